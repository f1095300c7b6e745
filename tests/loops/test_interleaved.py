"""Results whose rows are a few others side by side, as transposed convolutions make images."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.target import Facts
from alpenglow.ir.types import TensorType
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Blend
from alpenglow.kernel.rewrite import expressions
from alpenglow.loops import build
from alpenglow.loops.instruction import vector_axis
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Reshape, Transpose
from alpenglow.program.instr import Instr, Region, whole


@pytest.mark.parametrize("few", [2, 3, 4])
@pytest.mark.parametrize("extent", [3, 4, 9, 16, 37])
@pytest.mark.parametrize("dtype", ["f32", "u8", "f16"])
def test_rows_side_by_side_are_what_numpy_makes(few: int, extent: int, dtype: str) -> None:
    rows, t = 5, TensorType(dtype, (5, extent, few))
    # Rows are longer than what is read of them, or they would be one long row.
    x = np.arange(few * rows * (extent + 1)).astype(t.numpy)
    apart = Region("x", t, 0, (extent + 1, 1, rows * (extent + 1)))

    kernel = build("copy", Instr(Copy(), (whole("y", t),), (apart,)), Facts(lanes=16)).done()
    y = np.zeros(t.size, x.dtype)
    operands = {"y0": y, "x0": x}
    evaluate(kernel, {b.name: operands.get(b.name, np.zeros(1, np.int64)) for b in kernel.buffers})

    blended = any(isinstance(e, Blend) for e in expressions(kernel))
    assert blended == (extent > 3)
    read = x.reshape(few, rows, extent + 1)[..., :extent]
    assert np.array_equal(y, read.transpose(1, 2, 0).ravel())


@pytest.mark.parametrize("few", [2, 4])
def test_images_of_open_extents_are_interleaved(few: int) -> None:
    g = ag.Graph("f")
    x = g.input("x", f"f32[{few},h,w]")
    h, w = x.type.shape[1:]
    g.output("y", g(Reshape((h, few * w)), g(Transpose((1, 2, 0)), x)))
    exe = ag.compile(g, threads=1)

    for h, w in ((3, 40), (2, 5), (4, 1)):
        feed = np.random.default_rng(0).standard_normal((few, h, w), dtype=np.float32)
        assert np.array_equal(exe(feed), feed.transpose(1, 2, 0).reshape(h, few * w))


def test_vectors_run_along_the_axis_whose_elements_are_closest() -> None:
    assert vector_axis(whole("y", TensorType("f32", (100, 20, 3)))) == 1

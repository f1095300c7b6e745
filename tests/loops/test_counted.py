"""Operators whose results are as long as the data make them: padded results and a count.

The kernel evaluator, which refuses to read or write outside of a buffer, runs every example;
larger ones are compiled and compared with the reference, or with NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.evaluate import apply
from alpenglow.extras.ml.grams import CountGrams
from alpenglow.ir.graph import infer
from alpenglow.ir.op import Op, Primitive
from alpenglow.ir.target import Facts
from alpenglow.ir.types import Array, TensorType, type_of
from alpenglow.kernel.evaluate import evaluate
from alpenglow.loops import build
from alpenglow.ops.image.suppress import Suppress
from alpenglow.ops.random.random import Choose, RandomNormal, RandomUniform
from alpenglow.ops.tensor.counted import NonZero, Unique
from alpenglow.ops.tensor.order import TopK
from alpenglow.program.instr import Instr, whole

OPERATORS: tuple[type[Primitive], ...] = (
    NonZero, Unique, Suppress, CountGrams, RandomUniform, RandomNormal, Choose,
)  # fmt: skip


def drawn(given: Any) -> Array | None:
    """Return the contents of an operand of an example."""
    if not isinstance(given, str):
        return None if given is None else np.asarray(given)
    t = TensorType.parse(given)
    return np.random.default_rng(0).integers(0, 3, t.extents).astype(t.numpy)


def stepwise(op: Op, arrays: list[Array | None]) -> list[Array]:
    """Return what the kernel evaluator makes of an operator, element by element."""
    types = [None if a is None else type_of(a) for a in arrays]
    outs = tuple(whole(f"y{i}", t) for i, t in enumerate(infer(op, types)))
    ins = tuple(None if t is None else whole(f"x{i}", t) for i, t in enumerate(types))
    made = {f"y{i}": np.full(r.type.size, 99).astype(r.type.numpy) for i, r in enumerate(outs)}
    given = {f"x{i}": np.ravel(a) for i, a in enumerate(arrays) if a is not None}
    evaluate(build("kernel", Instr(op, outs, ins), Facts(lanes=4)).done(), {**made, **given})
    return [y.reshape(r.shape) for y, r in zip(made.values(), outs, strict=True)]


def compiled(op: Op, *arrays: Array) -> list[Array]:
    """Return what compiled code makes of an operator."""
    g = ag.Graph("one")
    operands = [g.input(f"x{i}", type_of(a)) for i, a in enumerate(arrays)]
    for i, v in enumerate(g.add(op, operands).results):
        g.output(f"y{i}", v)
    exe = ag.compile(g, threads=1)
    assert all(entry.kernel for entry in exe.artifact.table)
    return list(exe.run(dict(zip(g.inputs, arrays, strict=True))).values())


def assert_equal(expected: Any, actual: list[Array]) -> None:
    for wanted, y in zip(expected, actual, strict=True):
        exact = wanted.dtype.kind in "iub"
        tolerance = 0 if exact else 2e-2 if wanted.dtype.itemsize == 2 else 1e-5
        kind = wanted.dtype if exact else np.float64
        np.testing.assert_allclose(y.astype(kind), wanted.astype(kind), tolerance, tolerance)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
@pytest.mark.sampled(3)
def test_kernels_stay_within_their_buffers(cls: type[Primitive]) -> None:
    for op, *given in cls.examples():
        arrays = [drawn(x) for x in given]

        assert_equal(apply(op, arrays), stepwise(op, arrays))


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_what_is_not_zero_is_found(share: float) -> None:
    x = np.random.default_rng(0).random((30, 7, 50)) < share
    places, count = compiled(NonZero(), x)

    assert_equal(np.nonzero(x), list(places[:, : int(count)]))


@pytest.mark.parametrize("dtype", ["int64", "float32", "uint8"])
@pytest.mark.parametrize("kinds", [1, 7, 100_000])
def test_slices_of_all_kinds_are_found(kinds: int, dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, min(kinds, 256), 3001).astype(dtype)
    first, kind, sizes, count = compiled(Unique(0), x)
    n = int(count)

    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    assert_equal(expected, [x[first[:n]], first[:n], kind, sizes[:n]])


@pytest.mark.parametrize("dtype", ["int64", "uint64", "float32", "float64", "int32"])
@pytest.mark.sampled(3)
def test_elements_that_are_far_from_each_other_are_sorted(dtype: str) -> None:
    x = np.random.default_rng(0).integers(0, 2**62, 301).astype(dtype)
    x[::3] = x[::3] - np.array(2**63, x.dtype) if dtype == "uint64" else -x[::3]
    x[5::7] = x[4]
    first, kind, sizes, count = compiled(Unique(0), x)
    n = int(count)

    expected = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    assert_equal(expected, [x[first[:n]], first[:n], kind, sizes[:n]])


def test_rows_are_compared_element_by_element() -> None:
    x = np.random.default_rng(0).integers(0, 3, (500, 2, 3)).astype(np.int32)
    first, kind, sizes, count = compiled(Unique(0), x)
    n = int(count)

    expected = np.unique(x, return_index=True, return_counts=True, axis=0)
    assert_equal(expected, [x[first[:n]], first[:n], sizes[:n]])
    assert_equal([x], [x[first[kind]]])


def test_unsorted_kinds_are_numbered_as_they_occur() -> None:
    x = np.random.default_rng(0).integers(0, 50, 999)
    first, kind, _, count = compiled(Unique(0, False), x)
    n = int(count)

    assert (np.diff(first[:n]) > 0).all()
    assert_equal([x], [x[first[kind]]])


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("limit", [0, 5, 1000])
def test_the_boxes_that_are_kept_agree_with_the_reference(center: bool, limit: int) -> None:
    random = np.random.default_rng(0)
    boxes = random.uniform(0, 9, (2, 200, 4)).astype(np.float32)
    scores = random.integers(0, 90, (2, 3, 200)).astype(np.float32)
    scores[0, 1, ::7] = np.nan
    operands = [boxes, scores, np.array(limit), np.float32(0.3), np.float32(20)]
    arrays = [np.asarray(a) for a in operands]

    assert_equal(apply(Suppress(center), arrays), compiled(Suppress(center), *arrays))


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("count", [60, 1500])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
@pytest.mark.sampled(6)
def test_many_of_a_line_are_ordered(count: int, largest: bool, dtype: str) -> None:
    x = np.random.default_rng(0).integers(-100, 100, (2, 1500)).astype(dtype)
    if x.dtype.kind == "f":
        x[0, ::11] = np.nan
    op = TopK(1, count, largest)

    assert_equal(apply(op, [x]), compiled(op, x))

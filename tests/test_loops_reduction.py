"""Loop forms of reductions, scans, softmax, layer normalisation and their neighbours.

Every example of each operator is compiled for this machine and compared with its reference.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from alpenglow.backends.cpu.assemble import assemble
from alpenglow.backends.cpu.jit import Code
from alpenglow.backends.cpu.render import render
from alpenglow.backends.loops import build
from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Value, infer
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import NAMES, Array, TensorType
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.activation import LeakyRelu
from alpenglow.ops.arithmetic import Add, Mul
from alpenglow.ops.contraction import Dilate
from alpenglow.ops.fused import Fused
from alpenglow.ops.normalize import LayerNorm
from alpenglow.ops.pooling import MaxPoolIndex
from alpenglow.ops.reduction import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from alpenglow.ops.scan import CumProd, CumSum
from alpenglow.ops.softmax import Softmax
from alpenglow.program.instr import Instr, Region, row_major

HOST = Target.parse("cpu")
OPERATORS = (
    ReduceSum, ReduceMean, ReduceProd, ReduceMax, ReduceMin, ArgMax, ArgMin, CumSum, CumProd,
    Softmax, LayerNorm, MaxPoolIndex, Dilate,
)  # fmt: skip
LARGER: list[tuple[Any, ...]] = [
    (ReduceSum((1,)), "f32[3,5000]"),
    (ReduceMean((2, 3)), "f32[2,40,7,7]"),
    (ReduceMean((1,)), "i8[2,300]"),
    (ReduceMax((0,)), "f32[130,70]"),
    (ReduceSum((0, 2), False), "f32[9,40,33]"),
    (ReduceMin((1,)), np.array([[1, np.nan] + [3] * 40, [2] * 42], np.float32)),
    (ArgMax(-1), np.array([[1, np.nan, 3, np.nan], [4, 4, 2, 2]], np.float32)),
    (ArgMin(-1, last=True), np.array([[1, np.nan, 3, np.nan], [4, 4, 2, 2]], np.float32)),
    (CumSum(1, True, True), "f16[3,40,21]"),
    (Softmax(-1), "f32[2,5000]"),
    (Softmax(-1), "f32[70,197]"),
    (Softmax(1), "f32[2,9,70]"),
    (Softmax(-1), np.array([[-np.inf, 1, 2], [1e30, 2, -1e30]], np.float32)),
    (LayerNorm(-1), "f32[30,768]", "f32[768]", "f32[768]"),
    (LayerNorm(1), "f32[3,7,9]"),
]


def drawn(t: TensorType) -> Array:
    rng = np.random.default_rng(0)
    if t.dtype == "bool":
        return rng.random(t.extents) > 0.5
    if t.numpy.kind in "iu":
        return rng.integers(0, 5, t.extents).astype(t.numpy)
    return rng.standard_normal(t.extents).astype(t.numpy)


def operand(given: Any) -> tuple[TensorType | None, Array | None]:
    """Return the type and contents of an operand of an example."""
    if given is None:
        return None, None
    if isinstance(given, str):
        t = TensorType.parse(given)
        return t, drawn(t)
    return TensorType(NAMES[given.dtype], given.shape), given


def region(name: str, t: TensorType) -> Region:
    return Region(name, t, 0, row_major(t.extents))


def run(kernel: Kernel, operands: dict[str, Array]) -> None:
    """Compile a kernel and run all of it in place on `operands`."""
    code = Code.install([assemble(render(kernel), HOST)])
    slots = np.array([operands[b.name].ctypes.data for b in kernel.buffers], np.int64)
    loop = kernel.parallel
    part = (0, loop.extent.value) if loop is not None else (0, 0)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address(kernel.name))(slots.ctypes.data, *part)


def compiled(instr: Instr, arrays: list[Array | None]) -> list[Array]:
    """Return what the loop form of an instruction makes of these operands."""
    outs = {f"y{i}": np.full(r.shape, 99).astype(r.type.numpy) for i, r in enumerate(instr.outs)}
    ins = {f"x{i}": np.ascontiguousarray(a) for i, a in enumerate(arrays) if a is not None}
    run(build("kernel", instr, 16).done(), {**outs, **ins})
    return list(outs.values())


def check(op: Op, *given: Any) -> None:
    types, arrays = zip(*map(operand, given), strict=True)
    expected = apply(op, arrays)
    outs = tuple(region(f"y{i}", t) for i, t in enumerate(infer(op, types)))
    ins = tuple(None if t is None else region(f"x{i}", t) for i, t in enumerate(types))
    actual = compiled(Instr(op, outs, ins), list(arrays))

    for y, wanted in zip(actual, expected, strict=True):
        exact = wanted.dtype.kind in "iub"
        kind = wanted.dtype if exact else np.float64
        tolerance = 0 if exact else 1e-2 if wanted.dtype.itemsize == 2 else 1e-4
        np.testing.assert_allclose(y.astype(kind), wanted.astype(kind), tolerance, tolerance)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
def test_the_examples_agree_with_the_reference(cls: type[Op]) -> None:
    for op, *given in cls.examples():
        check(op, *given)


@pytest.mark.parametrize("case", LARGER, ids=lambda c: f"{c[0].name}-{c[1]}"[:40])
def test_larger_tensors_agree_with_the_reference(case: tuple[Any, ...]) -> None:
    check(*case)


@pytest.mark.parametrize("op", [ReduceMean((1,)), Softmax(1), LayerNorm(1), CumSum(1), ArgMax(1)])
def test_producers_and_consumers_are_computed_on_the_way(op: Op) -> None:
    t = TensorType.parse("f32[5,37]")
    body = Graph("body")
    a, b = body.input("a", t), body.input("b", t)
    middle = body(op, body(Add(), a, b))
    last: Value = middle if middle.type.dtype == "i64" else body(LeakyRelu(), middle)
    body.output("y", body(Mul(), last, last))
    arrays = [drawn(t), drawn(t) - 0.5]
    (expected,) = apply(Fused(), arrays, [body])
    out = region("y0", body.outputs["y"].type)
    (y,) = compiled(Instr(Fused(), (out,), (region("x0", t), region("x1", t)), body), arrays)

    np.testing.assert_allclose(y, expected, 1e-4, 1e-5)

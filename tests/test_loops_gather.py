"""Loop forms of gathering, scattering, ordering, resampling and recurrent layers.

Every example of each operator is run by the kernel evaluator, which refuses to read or write
outside of a buffer, and compiled for this machine; both are compared with the reference.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from alpenglow.backends.cpu.assemble import assemble
from alpenglow.backends.cpu.jit import Code
from alpenglow.backends.cpu.render import render
from alpenglow.backends.loops import build
from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, infer
from alpenglow.ir.op import Op, Primitive
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array, TensorType, type_of
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.stmt import Kernel
from alpenglow.ops.activation import LeakyRelu
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.fused import Fused
from alpenglow.ops.gather import (
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.movement import Trilu
from alpenglow.ops.order import ReverseSequence, TopK
from alpenglow.ops.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.resize import Interpolate
from alpenglow.program.instr import Instr, whole

HOST = Target.parse("cpu")
OPERATORS: tuple[type[Primitive], ...] = (
    Gather, GatherElements, GatherNd, ScatterElements, ScatterNd, OneHot, TopK, ReverseSequence,
    Trilu, Interpolate, Lstm, Gru, Rnn,
)  # fmt: skip

FAR = np.random.default_rng(1).integers(-300, 300, (40, 3))
LARGER: list[tuple[Any, ...]] = [
    (Gather(0), "f32[100,70]", FAR),
    (Gather(1), "f32[9,130,33]", FAR[0]),
    (GatherElements(1), "f32[40,200]", FAR),
    (GatherNd(), "i64[7,8,9]", FAR),
    (ScatterElements(1, "max"), "f32[40,200]", FAR, "f32[40,3]"),
    (ScatterNd("add"), "f32[7,8,9,20]", FAR, "f32[40,20]"),
    (TopK(1, 50), "f32[3,2000]"),
    (TopK(1, 2000, False), "i8[2,2000]"),
    (Trilu(-3), "f32[2,70,75]"),
    (Lstm(), "f32[4,3,280]", "f32[70,280]", "f32[3,70]", "f32[3,70]", "f32[3,70]"),
    (Gru(True), "f32[4,3,210]", "f32[70,210]", "f32[3,70]", "f32[70]", np.int32([4, 0, 9])),
    (Rnn(), "f32[4,3,70]", "f32[70,70]", "f32[3,70]"),
]


def drawn(t: TensorType) -> Array:
    a = np.random.default_rng(0).uniform(-1, 1, t.extents)
    if t.dtype == "bool":
        return np.asarray(a > 0)
    return np.asarray((np.abs(a) * 9 if t.dtype[0] == "u" else a * 9 if t.dtype[0] == "i" else a)
                      .astype(t.numpy))  # fmt: skip


def operand(given: Any) -> tuple[TensorType | None, Array | None]:
    """Return the type and contents of an operand of an example."""
    if isinstance(given, str):
        t = TensorType.parse(given)
        return t, drawn(t)
    return (None, None) if given is None else (type_of(given), given)


def run(kernel: Kernel, operands: dict[str, Array]) -> None:
    """Compile a kernel and run all of it in place on `operands`."""
    code = Code.install([assemble(render(kernel), HOST)])
    slots = np.array([operands[b.name].ctypes.data for b in kernel.buffers], np.int64)
    loop = kernel.parallel
    part = (0, loop.extent.value) if loop is not None else (0, 0)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address(kernel.name))(slots.ctypes.data, *part)


def results(instr: Instr, arrays: Sequence[Array | None], lanes: int, how: Any) -> list[Array]:
    """Return what the loop form of an instruction makes of these operands, run by `how`."""
    outs = {f"y{i}": np.full(r.type.size, 99).astype(r.type.numpy)
            for i, r in enumerate(instr.outs)}  # fmt: skip
    ins = {f"x{i}": np.ascontiguousarray(a).reshape(-1)
           for i, a in enumerate(arrays) if a is not None}  # fmt: skip
    how(build("kernel", instr, lanes).done(), {**outs, **ins})
    return [y.reshape(r.shape) for y, r in zip(outs.values(), instr.outs, strict=True)]


def check(op: Op, *given: Any, small: bool = True) -> None:
    types, arrays = zip(*map(operand, given), strict=True)
    expected = apply(op, arrays)
    outs = tuple(whole(f"y{i}", t) for i, t in enumerate(infer(op, types)))
    ins = tuple(None if t is None else whole(f"x{i}", t) for i, t in enumerate(types))
    instr = Instr(op, outs, ins)
    actual = [results(instr, arrays, HOST.lanes, run)]
    if small:
        actual += [results(instr, arrays, 4, evaluate)]

    for made in actual:
        assert_same(expected, made)


def assert_same(expected: Sequence[Array], actual: Sequence[Array]) -> None:
    for wanted, y in zip(expected, actual, strict=True):
        exact = wanted.dtype.kind in "iub"
        kind = wanted.dtype if exact else np.float64
        tolerance = 0 if exact else 2e-2 if wanted.dtype.itemsize == 2 else 1e-5
        np.testing.assert_allclose(y.astype(kind), wanted.astype(kind), tolerance, tolerance)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
def test_the_examples_agree_with_the_reference(cls: type[Primitive]) -> None:
    for op, *given in cls.examples():
        check(op, *given)


@pytest.mark.parametrize("case", LARGER, ids=lambda c: c[0].name)
def test_larger_tensors_agree_with_the_reference(case: tuple[Any, ...]) -> None:
    check(*case, small=False)


@pytest.mark.parametrize(
    ("op", "indices"),
    [
        (Gather(1), np.array([3, -1, 99, 0])),
        (GatherElements(1), np.tile(np.array([3, -1, 99, 0]), (5, 1))),
        (GatherNd(), np.array([[3, 1], [-1, -99], [0, 0]])),
    ],
)
def test_producers_and_consumers_are_computed_on_the_way(op: Op, indices: Array) -> None:
    t, at = TensorType.parse("f32[5,37]"), type_of(indices)
    body = Graph("body")
    a, b, i = body.input("a", t), body.input("b", t), body.input("i", at)
    body.output("y", body(LeakyRelu(0.5), body(op, body(Add(), a, b), i)))
    arrays = [drawn(t), drawn(t) - 0.5, indices]
    out = whole("y0", body.outputs["y"].type)
    ins = (whole("x0", t), whole("x1", t), whole("x2", at))
    instr = Instr(Fused(), (out,), ins, body)

    assert_same(apply(Fused(), arrays, [body]), results(instr, arrays, 4, evaluate))

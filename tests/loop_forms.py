"""Loop forms compared with references: operands drawn, an instruction built, compiled and run."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.evaluate import apply
from alpenglow.ir.graph import infer
from alpenglow.ir.op import Op
from alpenglow.ir.target import Facts, Target
from alpenglow.ir.types import Array, TensorType, type_of
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.stmt import Kernel
from alpenglow.loops import build
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.legal import legal
from alpenglow.program.instr import Instr, whole
from alpenglow.render.llvm.render import render

HOST = Target.parse("cpu")


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
    code = Code.install([assemble(render(legal(kernel, HOST)), HOST)])
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
    how(build("kernel", instr, Facts(lanes=lanes)).done(), {**outs, **ins})
    return [y.reshape(r.shape) for y, r in zip(outs.values(), instr.outs, strict=True)]


def check(op: Op, *given: Any, small: bool = True, tolerance: float = 1e-5) -> None:
    """Assert that the loop form of an operator agrees with its reference.

    It is compiled for this machine, and if the case is `small` also evaluated with short vectors.
    """
    types, arrays = zip(*map(operand, given), strict=True)
    expected = apply(op, arrays)
    outs = tuple(whole(f"y{i}", t) for i, t in enumerate(infer(op, types)))
    ins = tuple(None if t is None else whole(f"x{i}", t) for i, t in enumerate(types))
    instr = Instr(op, outs, ins)
    actual = [results(instr, arrays, HOST.facts.lanes, run)]
    if small:
        actual += [results(instr, arrays, 4, evaluate)]

    for made in actual:
        assert_same(expected, made, tolerance)


def assert_same(
    expected: Sequence[Array], actual: Sequence[Array], tolerance: float = 1e-5
) -> None:
    for wanted, y in zip(expected, actual, strict=True):
        exact = wanted.dtype.kind in "iub"
        kind = wanted.dtype if exact or wanted.dtype.kind == "c" else np.float64
        off = 0 if exact else 2e-2 if wanted.dtype.itemsize == 2 else tolerance
        np.testing.assert_allclose(y.astype(kind), wanted.astype(kind), off, off)

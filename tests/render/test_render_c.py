"""Kernels as C: compiled by gcc without a warning, they do what the evaluator does.

Hundreds of kernels are compiled together, as one shared library.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from alpenglow.base.errors import UnsupportedError
from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import BINARY, Binary, Buffer, Const, Load
from alpenglow.kernel.stmt import Kernel, Store
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.registry import kernels
from alpenglow.program import Instr, Program
from alpenglow.program.interpret import Memory, step
from alpenglow.render.c.render import Unit, render
from c_library import call, shared_library
from kernel_cases import Case, formulas, mapped, statements
from operator_cases import OPERATORS, applications, assert_agree, feeds, forest

pytestmark = pytest.mark.cross

TARGET = Target.parse("x86-64-v3")


def check(cases: Iterable[Case], portable: bool, folder: Path) -> None:
    """Assert that each kernel, compiled with all others, leaves what the evaluator leaves."""
    unit = Unit(portable=portable, fast=False)
    named = [c._replace(kernel=replace(c.kernel, name=f"k{i}")) for i, c in enumerate(cases)]
    for case in named:
        unit.add(case.kernel, exported=True)
    library = shared_library(unit.text(), folder)
    for kernel, operands, extents in named:
        expected = {name: a.copy() for name, a in operands.items()}
        actual = {name: a.copy() for name, a in operands.items()}
        part = (1, 3) if kernel.parallel is not None else None
        evaluate(kernel, expected, extents, part)
        call(library, kernel, actual, extents, part)
        for b in kernel.buffers:
            assert_equal(kernel, b.name, expected[b.name], actual[b.name])


def assert_equal(kernel: Kernel, name: str, expected: Array, actual: Array) -> None:
    nan = expected.dtype.kind not in "biu"
    if nan:
        expected, actual = expected.astype(np.float64), actual.astype(np.float64)
    if not np.array_equal(expected, actual, equal_nan=nan):
        raise AssertionError(f"{name}: {expected} and {actual}\n{render(kernel)}")


MODES = pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])


@MODES
def test_numbers_of_an_address_are_no_arithmetic_of_int(portable: bool, tmp_path: Path) -> None:
    """Builders fold them; a kernel that was parsed, or built by hand, may hold them."""
    x, y = Buffer("x", "f32"), Buffer("y", "f32", mutable=True)
    numbers = [(op, 100_000, 100_000 if op == "mul" else 30) for op in BINARY if op != "pow"]
    kernel = Kernel("k", (y, x), (), (), tuple(
        Store(y, Const(i), Load(x, Binary("rem", Binary(op, Const(a), Const(b)), Const(7))))
        for i, (op, a, b) in enumerate(numbers)
    ))  # fmt: skip
    data = {"x": np.arange(8, dtype=np.float32), "y": np.zeros(len(numbers), np.float32)}
    check([Case(kernel, data, {})], portable, tmp_path)


@MODES
def test_numbers_of_an_address_may_make_a_negative_one(portable: bool, tmp_path: Path) -> None:
    b = Builder("k")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    with b.loop(4) as i:
        less = Binary("add", i, Binary("sub", Const(3), Const(5)))
        b.store(y, i, Load(x, Binary("add", less, Const(4))))
    data = {"x": np.arange(8, dtype=np.float32), "y": np.zeros(4, np.float32)}
    check([Case(b.done(), data, {})], portable, tmp_path)


@MODES
@pytest.mark.parametrize("lanes", [1, 8])
def test_operators_of_each_element_type(portable: bool, lanes: int, tmp_path: Path) -> None:
    check((mapped(f, lanes) for f in formulas(lanes)), portable, tmp_path)


@MODES
def test_memory_loops_and_branches(portable: bool, tmp_path: Path) -> None:
    check(statements(), portable, tmp_path)


@cache
def emitted(operator: str) -> tuple[Program, dict[str, Array]]:
    """Return the program of all examples of an operator, named, and contents of its inputs."""
    cases = list(applications(Op.registry[operator]))
    random = np.random.default_rng(3)
    contents = [a.draw(random) for a in cases]
    *_, (_, program) = run_stages(forest(cases), TARGET, Options())
    return program, feeds(cases, contents)


@dataclass
class Example:
    """An instruction with the kernel that computes it."""

    instr: Instr
    kernel: Kernel
    aliased: frozenset[str]


def examples(program: Program, limit: int) -> Iterator[Example]:
    """Yield instructions whose kernels differ in more than numbers, `limit` at most."""
    seen: set[str] = set()
    for instr, kernel in kernels(program, TARGET):
        shape = re.sub(r"\d+", "", print_kernel(kernel))
        if shape not in seen and len(seen) < limit:
            seen.add(shape)
            written = {r.buffer for r in instr.outs}
            aliased = (f"x{i}" for i, r in enumerate(instr.ins) if r and r.buffer in written)
            yield Example(instr, kernel, frozenset(aliased))


def check_examples(portable: bool, limit: int, folder: Path, *flags: str) -> tuple[int, set[str]]:
    """Compare instructions of the examples of all operators with the interpreter.

    Returns how many there were, and what C was said not to have.
    """
    unit = Unit(portable=portable)
    compiled: dict[Instr, tuple[str, Kernel]] = {}
    refused: set[str] = set()
    programs = [emitted(cls.name) for cls in OPERATORS]
    for program, _ in programs:
        for e in examples(program, limit):
            name = f"{e.kernel.name}_{len(compiled)}"
            try:
                unit.add(replace(e.kernel, name=name), aliased=e.aliased, exported=True)
            except UnsupportedError as error:
                refused.add(str(error).splitlines()[0])
                continue
            compiled[e.instr] = name, e.kernel
    library = shared_library(unit.text(), folder, *flags)
    for program, given in programs:
        with np.errstate(all="ignore"):
            follow(library, program, given, compiled)
    return len(compiled), refused


def follow(
    library: ctypes.CDLL,
    program: Program,
    given: Mapping[str, Array],
    compiled: Mapping[Instr, tuple[str, Kernel]],
) -> None:
    """Interpret a program; compare each instruction that is compiled as well."""
    memory = Memory(program)
    for name in (*program.inputs, *program.outputs):
        t = program.buffers[name].type
        assert t is not None
        array = np.array(given[name]) if name in program.inputs else np.empty(t.extents, t.numpy)
        memory.bytes[name] = (
            array.reshape(-1).view(np.uint8) if array.size else np.empty(0, np.uint8)
        )
    for instr in program.instrs():
        if instr not in compiled:
            step(memory, instr)
            continue
        name, kernel = compiled[instr]
        before = {n: a.copy() for n, a in memory.bytes.items() if a.flags.writeable}
        run(library, name, kernel, instr, memory)
        actual = [memory.view(r).copy() for r in instr.outs]
        for n, a in before.items():
            memory.bytes[n][...] = a
        step(memory, instr)
        for r, found in zip(instr.outs, actual, strict=True):
            assert_agree(f"{name}: {instr.op}", memory.view(r), found, r.type)


def run(library: ctypes.CDLL, name: str, kernel: Kernel, instr: Instr, memory: Memory) -> None:
    slots: list[ctypes.c_void_p | ctypes.c_ssize_t] = []
    for r in (*instr.outs, *instr.reads()):
        start = memory.bytes[r.buffer].ctypes.data + r.offset * r.type.numpy.itemsize
        slots.append(ctypes.c_void_p(start))
    loop = kernel.parallel
    if loop is not None:
        assert isinstance(loop.extent, Const)
        slots += [ctypes.c_ssize_t(0), ctypes.c_ssize_t(int(loop.extent.value))]
    getattr(library, name)(*slots)


@MODES
@pytest.mark.slow
def test_examples_of_all_operators(portable: bool, tmp_path: Path) -> None:
    count, refused = check_examples(portable, 2, tmp_path, "-O1")

    assert count > 200
    assert all(r.endswith("of f64") for r in refused)

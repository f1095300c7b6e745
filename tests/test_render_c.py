"""Kernels as C: compiled by gcc without a warning, they do what the evaluator does.

Hundreds of kernels are compiled together, as one shared library.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from alpenglow.backends.c.render import Unit, render
from alpenglow.backends.cpu.emit import kernels
from alpenglow.base.errors import UnsupportedError
from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import ALL, DTYPES, FLOATS, INTS, NUMBERS, Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import (
    COMPARE,
    REDUCE,
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Intrinsic,
    Lanes,
    Load,
    Reduce,
    Select,
    Shuffle,
    Splat,
    Unary,
)
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import print_kernel
from alpenglow.program import Instr, Program
from alpenglow.program.interpret import Memory, step
from test_operators import OPERATORS, applications, assert_agree, feeds, forest

pytestmark = pytest.mark.cross

TARGET = Target.parse("x86-64-v3")

WARNINGS = ("-std=c11", "-Wall", "-Wextra", "-Werror")


@dataclass
class Batch:
    """Kernels with operands, to be compiled as one file."""

    portable: bool
    cases: list[tuple[Kernel, dict[str, Array], dict[str, int]]]

    def add(self, kernel: Kernel, operands: Mapping[str, Array], **extents: int) -> None:
        name = f"{kernel.name}_{len(self.cases)}"
        self.cases.append((replace(kernel, name=name), dict(operands), extents))

    def check(self, folder: Path, *flags: str) -> None:
        """Assert that each compiled kernel leaves the numbers that the evaluator leaves."""
        unit = Unit(portable=self.portable, fast=False)
        for kernel, _, _ in self.cases:
            unit.add(kernel, exported=True)
        library = shared_library(unit.text(), folder, *flags)
        for kernel, operands, extents in self.cases:
            expected = {name: a.copy() for name, a in operands.items()}
            actual = {name: a.copy() for name, a in operands.items()}
            part = (1, 3) if kernel.parallel is not None else None
            evaluate(kernel, expected, extents, part)
            call(library, kernel, actual, extents, part)
            for b in kernel.buffers:
                assert_equal(kernel, b.name, expected[b.name], actual[b.name])


def shared_library(text: str, folder: Path, *flags: str, compiler: str = "gcc") -> ctypes.CDLL:
    source, made = folder / "kernels.c", folder / "kernels.so"
    source.write_text(text)
    command = [compiler, *WARNINGS, *(flags or ("-O1",)), "-fPIC", "-shared", "-nostdlib"]
    done = subprocess.run(
        [*command, "-o", str(made), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(made))


def call(
    library: ctypes.CDLL,
    kernel: Kernel,
    operands: Mapping[str, Array],
    extents: Mapping[str, int],
    part: tuple[int, int] | None,
) -> None:
    slots = [ctypes.c_void_p(operands[b.name].ctypes.data) for b in kernel.buffers]
    numbers = [extents[n.name] for n in kernel.extents] + list(part or ())
    getattr(library, kernel.name)(*slots, *map(ctypes.c_ssize_t, numbers))


def assert_equal(kernel: Kernel, name: str, expected: Array, actual: Array) -> None:
    nan = expected.dtype.kind not in "biu"
    if nan:
        expected, actual = expected.astype(np.float64), actual.astype(np.float64)
    if not np.array_equal(expected, actual, equal_nan=nan):
        raise AssertionError(f"{name}: {expected} and {actual}\n{render(kernel)}")


def values(dtype: str, size: int = 64) -> Array:
    """Return numbers of `dtype`, the awkward ones first."""
    rng = np.random.default_rng(3)
    if dtype in FLOATS:
        some = [0.0, -0.0, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 127.9, -1.0, 300.0, 1e-7]
        return np.concatenate([some, rng.normal(0, 9, size - len(some))]).astype(DTYPES[dtype])
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(np.bool_)
    limits = np.iinfo(DTYPES[dtype])
    edges = np.array([limits.min, limits.max, 0, 1, 2, 3], DTYPES[dtype])
    rest = rng.integers(limits.min, limits.max, size - edges.size, DTYPES[dtype])
    return np.concatenate([edges, rest])


def mapped(batch: Batch, formula: Callable[..., Expr], *arrays: str, lanes: int) -> None:
    """Add y = formula(*arrays) on values of the element types named."""
    b = Builder("mapped")
    operands = {f"x{i}": values(dtype) for i, dtype in enumerate(arrays)}
    if len(arrays) > 1:
        operands["x1"] = operands["x1"][::-1].copy()
    xs = [b.buffer(f"x{i}", dtype) for i, dtype in enumerate(arrays)]
    dry = formula(*(Const(1, dtype, lanes) for dtype in arrays))
    y = b.buffer("y", dry.dtype, mutable=True)
    with b.loop(64 // lanes) as i:
        b.store(y, i * dry.lanes, formula(*(Load(x, i * lanes, lanes) for x in xs)))
    size = 64 // lanes * dry.lanes
    batch.add(b.done(), operands | {"y": np.zeros(size, DTYPES[dry.dtype])})


def operations(dtype: str) -> list[str]:
    """Return the binary operations that `dtype` has and that never trap."""
    if dtype == "bool":
        return ["and", "or", "xor", "min", "max"]
    if dtype in FLOATS:
        return ["add", "sub", "mul", "div", "rem", "min", "max"]
    return ["add", "sub", "mul", "min", "max", "and", "or", "xor"]


def arithmetic(batch: Batch, lanes: int) -> None:
    def add(formula: Callable[..., Expr], *arrays: str) -> None:
        mapped(batch, formula, *arrays, lanes=lanes)

    for dtype in sorted(ALL):
        for op in operations(dtype):
            add(lambda x, y, op=op: Binary(op, x, y), dtype, dtype)
        for op in COMPARE:
            add(lambda x, y, op=op: Compare(op, x, y), dtype, dtype)
        add(lambda x, y: Select(Compare("lt", x, y), y, x), dtype, dtype)
        names = {"bool": ["not"]}.get(dtype, ["neg", "abs"])
        names += ["sqrt", "floor", "ceil", "round", "trunc"] if dtype in FLOATS else []
        names += ["not"] if dtype in INTS else []
        for op in names:
            add(lambda x, op=op: Unary(op, x), dtype)
        for target in sorted(ALL):
            add(lambda x, target=target: Convert(x, target), dtype)
    for dtype in sorted(INTS):
        for op, by in (("div", 3), ("rem", 3), ("div", 100), ("shl", 7), ("shr", 7)):
            add(lambda x, op=op, by=by, d=dtype: Binary(op, x, Const(by, d, lanes)), dtype)
    for dtype in sorted(NUMBERS):
        add(lambda x, y: Fma(x, y, x), dtype, dtype)
        add(lambda x: Binary("mul", x, Const(2, x.dtype, lanes)), dtype)
    for dtype in sorted(FLOATS):
        for value in (np.inf, -np.inf, np.nan, -0.0):
            add(lambda x, v=value: Binary("add", x, Const(v, x.dtype, lanes)), dtype)


def movement(batch: Batch, lanes: int) -> None:
    def add(formula: Callable[..., Expr], *arrays: str, lanes: int = lanes) -> None:
        mapped(batch, formula, *arrays, lanes=lanes)

    add(lambda x: Splat(Shuffle(x, (lanes - 1,)), 4), "f64")
    add(lambda x: Bitcast(Bitcast(x, "i32"), "u32"), "f32")
    add(lambda x: Bitcast(Bitcast(x, "i64"), "f64"), "f64")
    add(lambda x: Bitcast(Bitcast(x, "u16"), "bf16"), "f16")
    if lanes == 1:
        add(lambda x: Splat(x, 4), "bool")
        add(lambda x: Shuffle(x, (0, 0)), "f32")
        return
    for dtype in ("f32", "i8", "bool", "bf16"):
        add(lambda x: Shuffle(x, tuple(reversed(range(lanes)))), dtype)
        add(lambda x: Shuffle(x, (1, 5)), dtype)
        add(lambda x: Shuffle(x, (0, 4, 1, 5)), dtype)
    for op in REDUCE:
        for dtype in ("f32", "i32", "u8", "bf16"):
            add(lambda x, op=op: Reduce(op, x), dtype)
    add(lambda x: Reduce("max", x), "bool")
    add(lambda x, y: Binary("add", x, Splat(Reduce("max", y), lanes)), "i64", "i64")


def masked(batch: Batch, dtype: str) -> None:
    b = Builder("masked")
    x, y, s = (b.buffer(n, dtype, n != "x") for n in "xys")
    lane = Binary("add", Lanes(8), Splat(Const(56), 8))
    mask = Compare("lt", lane, Splat(Const(60), 8))
    b.store(y, 0, Load(x, Const(56), 8, mask), mask)
    with b.loop(64) as i:
        low = Compare("lt", i, Const(5))
        b.store(s, i, Load(x, i * 3, 1, low), Compare("ne", i, Const(2)))
    operands = {"x": values(dtype)[:60].copy(), "y": values(dtype)[:4].copy(), "s": values(dtype)}
    batch.add(b.done(), operands)


def spread(batch: Batch) -> None:
    b = Builder("spread")
    x, at, y = b.buffer("x", "f32"), b.buffer("at", "i64"), b.buffer("y", "f32", True)
    with b.loop(4) as i:
        places = b.let(Load(at, i * 16, 16))
        inside = Compare("ge", places, Splat(Const(0), 16))
        b.store(y, places, Load(x, places, 16, inside), inside)
        b.store(y, Binary("sub", Splat(Const(127), 16), Lanes(16)), Load(x, Lanes(16), 16))
    where = np.random.default_rng(0).permutation(64) - 8
    batch.add(b.done(), {"x": values("f32"), "at": where, "y": np.zeros(128, np.float32)})


def in_place(batch: Batch) -> None:
    b = Builder("reversed")
    y = b.buffer("y", "i32", True)
    kept = b.let(Load(y, Const(0), 8))
    b.store(y, 0, Shuffle(kept, tuple(reversed(range(8)))))
    b.store(y, 1, Load(y, Const(0), 8))
    swapped = b.var(Load(y, Const(0), 8))
    b.set(swapped, Shuffle(swapped, (1, 0, 3, 2, 5, 4, 7, 6)))
    b.store(y, 8, swapped)
    moved = b.let(Load(y, Const(4), 8))
    b.store(y, 5, moved)
    batch.add(b.done(), {"y": np.arange(16, dtype=np.int32)})


def sums(batch: Batch, extent: int) -> None:
    b = Builder("sums")
    n, x, y = b.extent("N"), b.buffer("x", "i64"), b.buffer("y", "i64", True)
    with b.loop(3, "parallel") as p:
        total = b.var(Const(0))
        with b.loop(n) as i:
            b.store(y, p * n + i, Load(x, p * n + i) * 3 + i)
        with b.loop(n) as i:
            b.set(total, total + Load(y, p * n + i))
        b.store(y, n * 3 + p, total)
    batch.add(b.done(), {"x": np.arange(300), "y": np.zeros(3 * extent + 3, np.int64)}, N=extent)


def collatz(batch: Batch) -> None:
    b = Builder("collatz")
    y = b.buffer("y", "i64", True)
    seen = b.array("i64", 16)
    with b.loop(30) as i:
        n, steps = b.var(i + 1), b.var(Const(0))
        with b.repeat_while(Compare("ne", n, Const(1))):
            with b.when(Compare("eq", n % 2, Const(0))):
                b.set(n, n // 2)
            with b.otherwise():
                b.set(n, n * 3 + 1)
            b.set(steps, steps + 1)
        b.store(seen, i % 16, steps)
        b.atomic("add", y, Const(0), steps)
        b.atomic("max", y, Const(1), steps)
        b.store(y, i + 2, Load(seen, i % 16))
    batch.add(b.done(), {"y": np.zeros(32, np.int64)})


def dots(batch: Batch, name: str, lanes: int) -> None:
    dtype = "i32" if name == "vpdpbusd" else "f32"
    b = Builder("dot")
    x, w, y = b.buffer("x", "i32"), b.buffer("w", "i32"), b.buffer("y", dtype, True)
    acc = Load(y, Const(0), lanes)
    b.store(y, 0, Intrinsic(name, (acc, Load(x, Const(0), lanes), Load(w, Const(0), lanes))))
    bits = np.random.default_rng(0).normal(0, 1, (2, 16)).astype(np.float32).view(np.int32)
    operands = {"x": bits[0].copy(), "w": bits[1].copy(), "y": np.arange(16).astype(DTYPES[dtype])}
    batch.add(b.done(), operands)


MODES = pytest.mark.parametrize("portable", [False, True], ids=["vectors", "portable"])


@MODES
@pytest.mark.parametrize("lanes", [1, 8])
def test_operators_of_each_element_type(portable: bool, lanes: int, tmp_path: Path) -> None:
    batch = Batch(portable, [])
    arithmetic(batch, lanes)
    movement(batch, lanes)

    batch.check(tmp_path)


@MODES
def test_memory_loops_and_branches(portable: bool, tmp_path: Path) -> None:
    batch = Batch(portable, [])
    for dtype in ("f32", "bool", "i64", "bf16"):
        masked(batch, dtype)
    for extent in (0, 1, 7, 100):
        sums(batch, extent)
    for name in ("vpdpbusd", "vdpbf16ps"):
        for lanes in (1, 4, 16):
            dots(batch, name, lanes)
    spread(batch)
    in_place(batch)
    collatz(batch)

    batch.check(tmp_path)


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
def test_examples_of_all_operators(portable: bool, tmp_path: Path) -> None:
    count, refused = check_examples(portable, 2, tmp_path, "-O1")

    assert count > 200
    assert all(r.endswith("of f64") for r in refused)

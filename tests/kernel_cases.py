"""Kernels with operands and extents, for comparing what a renderer makes with the evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import ml_dtypes
import numpy as np

from alpenglow.ir.types import ALL, DTYPES, FLOATS, INTS, NUMBERS, Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    COMPARE,
    REDUCE,
    Binary,
    Bitcast,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Intrinsic,
    Lanes,
    Load,
    Lookup,
    Reduce,
    Select,
    Shuffle,
    Splat,
    Unary,
)
from alpenglow.kernel.stmt import Kernel, Kind

DOTS = ("vpdpbusd", "usdot", "sdot", "vdpbf16ps")


class Case(NamedTuple):
    """A kernel with an array for each of its buffers and a number for each of its extents."""

    kernel: Kernel
    operands: dict[str, Array]
    extents: dict[str, int]


class Formula(NamedTuple):
    """A function of vectors, with the element types that it takes."""

    result: Callable[..., Expr]
    dtypes: tuple[str, ...]


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


def mapped(formula: Formula, lanes: int, kind: Kind = "serial") -> Case:
    """Return y = formula(x0, …) on values of the element types that it takes."""
    b = Builder("mapped")
    operands = {f"x{i}": values(dtype) for i, dtype in enumerate(formula.dtypes)}
    if len(formula.dtypes) > 1:
        operands["x1"] = operands["x1"][::-1].copy()
    xs = [b.buffer(f"x{i}", dtype) for i, dtype in enumerate(formula.dtypes)]
    dry = formula.result(*(Const(1, dtype, lanes) for dtype in formula.dtypes))
    y = b.buffer("y", dry.dtype, mutable=True)
    with b.loop(64 // lanes, kind) as i:
        b.store(y, i * dry.lanes, formula.result(*(Load(x, i * lanes, lanes) for x in xs)))
    size = 64 // lanes * dry.lanes
    return Case(b.done(), operands | {"y": np.zeros(size, DTYPES[dry.dtype])}, {})


# ── formulas ──


def operations(dtype: str) -> list[str]:
    """Return the binary operations that `dtype` has and that never trap."""
    if dtype == "bool":
        return ["and", "or", "xor", "min", "max"]
    if dtype in FLOATS:
        return ["add", "sub", "mul", "div", "rem", "min", "max"]
    return ["add", "sub", "mul", "min", "max", "and", "or", "xor"]


def binary(dtype: str) -> Iterator[Formula]:
    for op in operations(dtype):
        yield Formula(lambda x, y, op=op: Binary(op, x, y), (dtype, dtype))
    for op in COMPARE:
        yield Formula(lambda x, y, op=op: Compare(op, x, y), (dtype, dtype))
    yield Formula(lambda x, y: Select(Compare("lt", x, y), y, x), (dtype, dtype))


def unary(dtype: str) -> Iterator[Formula]:
    names = {"bool": ["not"]}.get(dtype, ["neg", "abs"])
    names += ["sqrt", "floor", "ceil", "round", "trunc"] if dtype in FLOATS else []
    names += ["not"] if dtype in INTS else []
    for op in names:
        yield Formula(lambda x, op=op: Unary(op, x), (dtype,))


def conversions(source: str) -> Iterator[Formula]:
    for target in sorted(ALL):
        yield Formula(lambda x, target=target: Convert(x, target), (source,))


def divisions_and_shifts(dtype: str) -> Iterator[Formula]:
    """Yield operations of integers by what is allowed."""
    for op, by in (("div", 3), ("rem", 3), ("div", 100), ("shl", 7), ("shr", 7)):
        yield Formula(lambda x, op=op, by=by: Binary(op, x, Const(by, x.dtype, x.lanes)), (dtype,))


def multiply_add(dtype: str) -> Formula:
    return Formula(lambda x, y: Fma(x, y, x), (dtype, dtype))


def constants(dtype: str) -> Iterator[Formula]:
    """Yield operations with constants that are awkward to write."""
    yield Formula(lambda x: Binary("mul", x, Const(2, x.dtype, x.lanes)), (dtype,))
    for value in (np.inf, -np.inf, np.nan, -0.0) if dtype in FLOATS else ():
        yield Formula(lambda x, v=value: Binary("add", x, Const(v, x.dtype, x.lanes)), (dtype,))


def reductions(*dtypes: str) -> Iterator[Formula]:
    for dtype in dtypes:
        for op in ("or",) if dtype == "bool" else REDUCE if dtype in INTS else REDUCE[:-1]:
            yield Formula(lambda x, op=op: Reduce(op, x), (dtype,))


def movement(lanes: int) -> Iterator[Formula]:
    """Yield what moves lanes and bits of vectors of one lane, or of eight and more."""
    yield Formula(lambda x: Splat(Shuffle(x, (lanes - 1,)), 4), ("f64",))
    yield Formula(lambda x: Bitcast(Bitcast(x, "i32"), "u32"), ("f32",))
    yield Formula(lambda x: Bitcast(Bitcast(x, "i64"), "f64"), ("f64",))
    yield Formula(lambda x: Bitcast(Bitcast(x, "u16"), "bf16"), ("f16",))
    if lanes == 1:
        yield Formula(lambda x: Splat(x, 4), ("bool",))
        yield Formula(lambda x: Shuffle(x, (0, 0)), ("f32",))
        return
    for dtype in ("f32", "i8", "bool", "bf16"):
        yield Formula(lambda x: Shuffle(x, tuple(reversed(range(lanes)))), (dtype,))
        yield Formula(lambda x: Shuffle(x, (1, 5)), (dtype,))
        yield Formula(lambda x: Shuffle(x, (0, 4, 1, 5)), (dtype,))
        yield Formula(lambda x, y: Blend(x, y, (0, lanes, 1, 2 * lanes - 1)), (dtype, dtype))
        yield Formula(lambda x, y: Blend(x, y, tuple(range(1, lanes + 1))), (dtype, dtype))
    yield Formula(lambda x: Reduce("max", x), ("bool",))
    yield Formula(lambda x, y: Binary("add", x, Splat(Reduce("max", y), lanes)), ("i64", "i64"))


def tables() -> Iterator[Formula]:
    """Yield what only machines have that look up a table in one instruction, and C."""
    table = tuple(n / 8 - 1 for n in range(16))
    yield Formula(lambda x: Lookup(table, x), ("i32",))


def formulas(lanes: int) -> Iterator[Formula]:
    """Yield all of the above, of every element type that they take."""
    for dtype in sorted(ALL):
        yield from binary(dtype)
        yield from unary(dtype)
        yield from conversions(dtype)
    for dtype in sorted(INTS):
        yield from divisions_and_shifts(dtype)
    for dtype in sorted(NUMBERS):
        yield multiply_add(dtype)
        yield from constants(dtype)
    yield from movement(lanes)
    yield from tables()
    if lanes > 1:
        yield from reductions("f32", "i32", "u8", "bf16")


# ── memory, loops and branches ──


def masked(dtype: str) -> Case:
    """Lanes and elements that a mask leaves out lie outside of the buffers."""
    b = Builder("masked")
    x, y, s = (b.buffer(n, dtype, n != "x") for n in "xys")
    lane = Binary("add", Lanes(8), Splat(Const(56), 8))
    mask = Compare("lt", lane, Splat(Const(60), 8))
    b.store(y, 0, Load(x, Const(56), 8, mask), mask)
    with b.loop(64) as i:
        low = Compare("lt", i, Const(5))
        b.store(s, i, Load(x, i * 3, 1, low), Compare("ne", i, Const(2)))
    operands = {"x": values(dtype)[:60].copy(), "y": values(dtype)[:4].copy(), "s": values(dtype)}
    return Case(b.done(), operands, {})


def spread() -> Case:
    """Vectors are gathered from and scattered to addresses that are loaded."""
    b = Builder("spread")
    x, at, y = b.buffer("x", "f32"), b.buffer("at", "i64"), b.buffer("y", "f32", True)
    with b.loop(4) as i:
        places = b.let(Load(at, i * 16, 16))
        inside = Compare("ge", places, Splat(Const(0), 16))
        b.store(y, places, Load(x, places, 16, inside), inside)
        b.store(y, Binary("sub", Splat(Const(127), 16), Lanes(16)), Load(x, Lanes(16), 16))
    where = np.random.default_rng(0).permutation(64) - 8
    operands = {"x": values("f32"), "at": where, "y": np.zeros(128, np.float32)}
    return Case(b.done(), operands, {})


def in_place() -> Case:
    """What was loaded is stored where it, or what comes next, lay."""
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
    return Case(b.done(), {"y": np.arange(16, dtype=np.int32)}, {})


def strips() -> Case:
    """A parallel loop in strips adds to an element in each iteration."""
    b = Builder("strips")
    y = b.buffer("y", "i64", True)
    with b.loop(12, "parallel", strips=5) as i:
        b.store(y, i, Load(y, i) + i + 1)
    return Case(b.done(), {"y": np.zeros(12, np.int64)}, {})


def sums(extent: int, kind: Kind = "serial") -> Case:
    """Loops of an extent that is known when they run, in a loop that threads share."""
    b = Builder("sums")
    n, x, y = b.extent("N"), b.buffer("x", "i64"), b.buffer("y", "i64", True)
    with b.loop(3, "parallel") as p:
        total = b.var(Const(0))
        with b.loop(n, kind) as i:
            b.store(y, p * n + i, Load(x, p * n + i) * 3 + i)
        with b.loop(n) as i:
            b.set(total, total + Load(y, p * n + i))
        b.store(y, n * 3 + p, total)
    operands = {"x": np.arange(300), "y": np.zeros(3 * extent + 3, np.int64)}
    return Case(b.done(), operands, {"N": extent})


def collatz() -> Case:
    """Loops with a condition, branches, registers, an array, atomic operations and prefetches."""
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
        b.prefetch(y, i + 1000)
        b.prefetch(y, i + 2000, later=True)
        b.store(y, i + 2, Load(seen, i % 16))
    return Case(b.done(), {"y": np.zeros(32, np.int64)}, {})


def operands() -> Case:
    """Elements that stay in memory, which is an operand, an array, or what is written meanwhile."""
    b = Builder("operands")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", True)
    kept = b.array("f32", 9)

    def element(buffer: Buffer, at: Expr) -> Expr:
        return Splat(Load(buffer, at, operand=True), 4)

    with b.loop(9) as i:
        b.store(kept, i, Load(x, i))
    with b.loop(4) as i:
        acc = b.var(Const(1.0, "f32", 4))
        for buffer in (x, kept, y):
            for r in (0, 2, 2, 1):
                b.set(acc, Fma(element(buffer, i * 2 - r + 2), Load(x, i, 4), acc))
            if buffer is not x:
                for _ in range(2):
                    b.store(buffer, i * 2 + 1, Reduce("add", acc))
                    b.set(acc, Fma(acc, element(buffer, i * 2 + 1), element(buffer, i * 2)))
        b.store(y, i * 4 + 16, acc)
    x_, y_ = (np.random.default_rng(n).normal(0, 0.3, 32).astype(np.float32) for n in (0, 1))
    return Case(b.done(), {"x": x_, "y": y_}, {})


def dot(name: str, lanes: int) -> Case:
    """A machine's own operation on four bytes, or two numbers of bf16, in each lane."""
    dtype = "f32" if name == "vdpbf16ps" else "i32"
    b = Builder("dot")
    x, w, y = b.buffer("x", "i32"), b.buffer("w", "i32"), b.buffer("y", dtype, True)
    acc = Load(y, Const(0), lanes)
    b.store(y, 0, Intrinsic(name, (acc, Load(x, Const(0), lanes), Load(w, Const(0), lanes))))
    numbers = np.random.default_rng(0).normal(0, 1, (2, 32))
    bits = numbers.astype(ml_dtypes.bfloat16).view(np.int32)
    operands = {"x": bits[0].copy(), "w": bits[1].copy(), "y": np.arange(16).astype(DTYPES[dtype])}
    return Case(b.done(), operands, {})


def statements() -> Iterator[Case]:
    """Yield all of these cases."""
    yield from (masked(dtype) for dtype in ("f32", "bool", "i64", "bf16"))
    yield from (sums(extent) for extent in (0, 1, 7, 100))
    yield from (dot(name, lanes) for name in DOTS for lanes in (1, 4, 16))
    yield from (spread(), in_place(), strips(), collatz(), operands())

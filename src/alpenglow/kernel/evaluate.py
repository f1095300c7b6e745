"""The meaning of kernels in NumPy: slow, plain, and the measure of every renderer.

`evaluate` follows the rules at the top of `kernel.expr`.  Loops run in Python, lanes as NumPy
arrays, so that a kernel of a few hundred thousand operations takes a second.  It is stricter
than a machine: an address outside a buffer raises IndexError, division of integers by 0 raises
ZeroDivisionError, and local arrays begin with NaN or the largest number.

Every expression is turned into a Python function of a `ThreadState` once, before anything runs.
Loops over groups and threads are run by `kernel.grid`, all threads of a group at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from alpenglow.base.errors import KernelError
from alpenglow.base.words import shown
from alpenglow.ir.types import DTYPES, FLOATS, OPAQUE, Array
from alpenglow.kernel.across import Across
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Blend,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Index,
    Intrinsic,
    Lanes,
    Load,
    Lookup,
    Reduce,
    Register,
    Select,
    Shape,
    Shuffle,
    Splat,
    Unary,
)
from alpenglow.kernel.fragments import Mma, Tile, multiplied, places
from alpenglow.kernel.grid import run_grid
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.scalar import BINARY_MEANING, COMPARE_MEANING, UNARY_MEANING, convert, fma
from alpenglow.kernel.stmt import (
    Atomic,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    While,
)
from alpenglow.kernel.verify import verify_subgroup

Scalars = Any
"""A NumPy scalar, or an array of lanes."""

Sizes = Sequence[int]
"""How many there are along each axis of a grid, the innermost first."""


def evaluate(
    kernel: Kernel,
    operands: Mapping[str, Array],
    extents: Mapping[str, int] | None = None,
    parallel: tuple[int, int] | None = None,
    launch: tuple[Sizes, Sizes] | None = None,
) -> None:
    """Run `kernel` on flat arrays, writing into those of mutable buffers.

    `parallel` = (begin, end) runs that part of the kernel's parallel loop only, as a thread of
    a team would.  `launch` says how many groups a host starts, of how many threads, each innermost
    first: it raises KernelError if the loops of the grid say otherwise.
    """
    arrays = {b.name: operands[b.name] for b in kernel.buffers}
    for b in kernel.buffers:
        a = arrays[b.name]
        assert a.ndim == 1 and a.dtype == DTYPES[b.dtype], f"{b.name}: {a.dtype}{a.shape}"
    names = {e.name: np.int64((extents or {})[e.name]) for e in kernel.extents}
    verify_subgroup(kernel)
    assert parallel is None or kernel.parallel is not None, "this kernel has no parallel loop"
    arrays |= {b.name: _untouched(b) for b in kernel.arrays}
    frame = ThreadState(names, arrays, kernel, parallel)
    with np.errstate(all="ignore"):
        if launch is not None:
            _compare(launch, kernel, frame)
        _block(kernel.body)(frame)


def _compare(launch: tuple[Sizes, Sizes], kernel: Kernel, frame: ThreadState) -> None:
    """Raise KernelError if a grid is not that of the loops of a kernel."""
    for what, stated, loops in zip(("groups", "threads"), launch, kernel.launch.sizes, strict=True):
        expected = tuple(int(_expr(extent)(frame)) for extent in loops)
        if tuple(stated) != expected:
            raise KernelError(
                f"{what} are launched as {tuple(stated)}, expected {expected}: "
                f"what the loops of kernel {shown(kernel.name)} say"
            )


@dataclass(slots=True)
class ThreadState:
    """What a thread sees: its indices and registers by name, its buffers by name."""

    names: dict[str, Scalars]
    arrays: dict[str, Array]
    kernel: Kernel
    parallel: tuple[int, int] | None

    def fresh(self) -> dict[Buffer, Callable[[], Array]]:
        """Return what makes each array that a group or a thread has for itself."""
        return {b: partial(_untouched, b) for b in self.kernel.arrays}


def _untouched(b: Buffer) -> Array:
    if b.dtype == "bool":
        return np.zeros(b.size, np.bool_)
    if b.dtype in OPAQUE:
        return np.full(b.size * DTYPES[b.dtype].itemsize, 255, np.uint8).view(DTYPES[b.dtype])
    value = np.nan if b.dtype in FLOATS else np.iinfo(DTYPES[b.dtype]).max
    return np.full(b.size, value, DTYPES[b.dtype])


# ── statements ──

Run = Callable[[ThreadState], None]


def _block(body: Sequence[Stmt]) -> Run:
    """Return a function that runs `body` from end to end."""
    runs = [_statement(s) for s in body]

    def run(f: ThreadState) -> None:
        for r in runs:
            r(f)

    return run


def _statement(s: Stmt) -> Run:
    match s:
        case Set(Register(name), value):
            return _assign(name, _expr(value))
        case Store():
            return _store(s)
        case StoreTile():
            return _store_tile(s)
        case Atomic():
            return _atomic(s)
        case Prefetch():
            return lambda f: None
        case For(kind="serial" | "parallel" | "vector" | "unrolled"):
            return _loop(s)
        case If(condition, then, orelse):
            test, yes, no = _expr(condition), _block(then), _block(orelse)
            return lambda f: yes(f) if test(f) else no(f)
        case While(condition, inner):
            return _while(_expr(condition), _block(inner))
        case For():
            return lambda f: run_grid(s, f.names, f.arrays, f.fresh(), f.kernel)
    raise AssertionError(f"a {type(s).__name__.lower()} has no threads around it")


def _assign(name: str, value: Callable[[ThreadState], Scalars]) -> Run:
    def run(f: ThreadState) -> None:
        f.names[name] = value(f)

    return run


def _loop(loop: For) -> Run:
    name, extent, body = loop.index.name, _expr(loop.extent), _block(loop.body)

    def run(f: ThreadState) -> None:
        for i in _range(loop, extent, f):
            f.names[name] = np.int64(i)
            body(f)

    return run


def _range(loop: For, extent: Callable[[ThreadState], Scalars], f: ThreadState) -> range:
    n = int(extent(f))
    if loop.kind != "parallel" or f.parallel is None:
        return range(n)
    begin, end = f.parallel
    assert begin >= 0 and end <= n, f"{begin}…{end} is no part of 0…{n}"
    return range(begin, end)


def _while(test: Callable[[ThreadState], Scalars], body: Run) -> Run:
    def run(f: ThreadState) -> None:
        while test(f):
            body(f)

    return run


def _store(s: Store) -> Run:
    name, at, value, lanes = s.buffer.name, _expr(s.at), _expr(s.value), s.value.lanes
    mask = None if s.mask is None else _expr(s.mask)
    gathers = s.at.lanes > 1

    def run(f: ThreadState) -> None:
        a, v, where = f.arrays[name], value(f), at(f)
        if mask is None and not gathers and lanes > 1:
            a[_neighbours(name, a, where, lanes)] = v
            return
        keep = None if mask is None else np.reshape(mask(f), -1)
        where = np.reshape(where, -1) if gathers or lanes == 1 else where + np.arange(lanes)
        v = np.reshape(v, -1)
        if keep is not None:
            where, v = where[keep], v[keep]
        a[_inside(name, a, where)] = v

    return run


def _store_tile(s: StoreTile) -> Run:
    name, value = s.buffer.name, _expr(s.value)
    where = _tile(name, s.at, s.stride, s.value.shape)

    def run(f: ThreadState) -> None:
        f.arrays[name][where(f)] = value(f)

    return run


def _atomic(s: Atomic) -> Run:
    name, at, value, op = s.buffer.name, _expr(s.at), _expr(s.value), BINARY_MEANING[s.op]

    def run(f: ThreadState) -> None:
        a, v = f.arrays[name], np.reshape(value(f), -1)
        for i, x in zip(_inside(name, a, np.reshape(at(f), -1)), v, strict=True):
            a[i] = op(a[i], x)

    return run


# ── expressions ──


def _expr(e: Expr) -> Callable[[ThreadState], Scalars]:
    """Return the function from a frame to the value of `e`."""
    match e:
        case Const(value, dtype, lanes):
            c = np.full(lanes, np.array(value).astype(DTYPES[dtype]))
            constant = c if lanes > 1 else c[0]
            return lambda f: constant
        case Index(name) | Register(name):
            return lambda f: f.names[name]
        case Lanes(lanes):
            iota = np.arange(lanes, dtype=np.int64)
            return lambda f: iota
        case Binary(op, x, y):
            return _apply(BINARY_MEANING[op], x, y)
        case Compare(op, x, y):
            return _apply(COMPARE_MEANING[op], x, y)
        case Unary(op, x):
            return _apply(UNARY_MEANING[op], x)
        case Fma(x, y, z):
            return _apply(fma, x, y, z)
        case Convert(x, dtype):
            return _apply(lambda v: convert(v, DTYPES[dtype]), x)
        case Bitcast(x, dtype):
            one: int | tuple[()] = () if e.lanes > 1 else 0
            return _apply(lambda v: np.atleast_1d(v).view(DTYPES[dtype])[one], x)
        case Splat(x, lanes):
            return _apply(lambda v: np.full(lanes, v), x)
        case Select(condition, x, y) if e.lanes == 1:
            return _apply(lambda c, v, w: v if c else w, condition, x, y)
        case Select(condition, x, y):
            return _apply(np.where, condition, x, y)
        case Shuffle(x, order):
            lane = list(order) if len(order) > 1 else order[0]
            return _apply(lambda v: np.atleast_1d(v)[lane], x)
        case Blend(x, y, order):
            return _apply(lambda v, w: np.concatenate([v, w])[list(order)], x, y)
        case Lookup(table, at):
            numbers = np.array(table, np.float32)
            return _apply(lambda v: numbers[np.asarray(v) % len(table)], at)
        case Reduce(op, x):
            return _reduce(op, x)
        case Load():
            return _load(e)
        case Tile(buffer, at, stride, shape):
            where = _tile(buffer.name, at, stride, shape)
            return lambda f: f.arrays[buffer.name][where(f)]
        case Mma(acc, x, y):
            return _apply(partial(multiplied, e), acc, x, y)
        case Across(_, x):
            return _expr(x)  # one thread is a subgroup
        case Intrinsic(name, args):
            return _apply(INTRINSICS[name].meaning, *args)
    raise AssertionError(f"no meaning for {type(e).__name__}")


def _apply(function: Callable[..., Scalars], *args: Expr) -> Callable[[ThreadState], Scalars]:
    match [_expr(a) for a in args]:
        case [x]:
            return lambda f: function(x(f))
        case [x, y]:
            return lambda f: function(x(f), y(f))
        case [x, y, z]:
            return lambda f: function(x(f), y(f), z(f))
        case parts:
            return lambda f: function(*(p(f) for p in parts))


def _reduce(op: str, x: Expr) -> Callable[[ThreadState], Scalars]:
    combine, value = BINARY_MEANING[op], _expr(x)
    assert x.lanes.bit_count() == 1, f"reduce over {x.lanes} lanes, which is no power of 2"

    def run(f: ThreadState) -> Scalars:
        v = np.atleast_1d(value(f))
        while len(v) > 1:
            v = combine(v[: len(v) // 2], v[len(v) // 2 :])
        return v[0]

    return run


def _load(e: Load) -> Callable[[ThreadState], Scalars]:
    name, at, lanes, gathers = e.buffer.name, _expr(e.at), e.lanes, e.at.lanes > 1
    if e.mask is not None:
        return _masked_load(e, _expr(e.mask))
    if gathers:
        return lambda f: f.arrays[name][_inside(name, f.arrays[name], at(f))]
    if lanes > 1:
        return lambda f: f.arrays[name][_neighbours(name, f.arrays[name], at(f), lanes)].copy()

    def run(f: ThreadState) -> Scalars:
        a, i = f.arrays[name], at(f)
        if not 0 <= i < len(a):
            raise _outside(name, a, i)
        return a[i]

    return run


def _tile(name: str, at: Expr, stride: Expr, shape: Shape | None) -> Callable[[ThreadState], Array]:
    """Return what gives the elements of a tile."""
    assert shape is not None, "a tile has rows and columns"
    first, step = _expr(at), _expr(stride)
    return lambda f: _inside(name, f.arrays[name], places(first(f), step(f), shape))


def _masked_load(
    e: Load, mask: Callable[[ThreadState], Scalars]
) -> Callable[[ThreadState], Scalars]:
    name, at, lanes, gathers = e.buffer.name, _expr(e.at), e.lanes, e.at.lanes > 1

    def run(f: ThreadState) -> Scalars:
        a, keep = f.arrays[name], np.reshape(mask(f), -1)
        where = at(f) if gathers else at(f) + np.arange(lanes)
        loaded = np.zeros(lanes, a.dtype)
        loaded[keep] = a[_inside(name, a, where[keep])]
        return loaded if lanes > 1 else loaded[0]

    return run


def _neighbours(name: str, a: Array, at: Scalars, lanes: int) -> slice:
    if not 0 <= at <= len(a) - lanes:
        raise _outside(name, a, at if at < 0 else max(at, len(a)))
    return slice(at, at + lanes)


def _inside(name: str, a: Array, where: Array) -> Array:
    bad = (where < 0) | (where >= len(a))
    if bad.any():
        raise _outside(name, a, where[bad][0])
    return where


def _outside(name: str, a: Array, at: Scalars) -> IndexError:
    return IndexError(f"{name}[{at}] is outside, expected 0 or more and less than {len(a)}")

"""Grids of threads in NumPy: the threads of a group are the first axis of every value.

Groups run one after the other, their threads in step: a branch narrows the threads that are at
work, and a barrier wants them all.  What a thread has written to memory that others see they may
read behind the next barrier, and what it has read they may overwrite behind that; who does so
before is told, with the place (`kernel.races`).

A value has an axis for threads, of extent 1 where it is the same for all of them, and one for lanes
if there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from alpenglow.ir.types import DTYPES, Array
from alpenglow.kernel.across import Across, exchanged
from alpenglow.kernel.copies import Copies
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
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.races import Watch
from alpenglow.kernel.scalar import BINARY_MEANING, COMPARE_MEANING, UNARY_MEANING, convert, fma
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    Commit,
    Copy,
    For,
    If,
    Kernel,
    Prefetch,
    Scope,
    Set,
    Stmt,
    Store,
    StoreTile,
    Wait,
    While,
)


def run_grid(
    loop: For, names: Mapping[str, Any], arrays: Mapping[str, Array],
    fresh: Mapping[Buffer, Callable[[], Array]], kernel: Kernel,
) -> None:  # fmt: skip
    """Run a loop over groups or threads of a kernel.

    `names` are the numbers of extents and indices, `arrays` the operands; `fresh` makes shared and
    local arrays that nobody has touched.
    """
    wide = {name: np.atleast_1d(value) for name, value in names.items()}
    watches = {
        b.name: Watch(b.name, len(arrays[b.name]), shared=False)
        for b in kernel.buffers
        if b.mutable and not b.volatile
    }
    outermost = _Group(1, 0, wide, dict(arrays), fresh, watches, kernel.subgroup)
    if loop.kind == "thread":
        outermost = outermost.anew()
    outermost.block((loop,), np.arange(1))


class _Group:
    """The threads of a group, `n` so far, and what they see."""

    def __init__(
        self, n: int, number: int, names: dict[str, Array], arrays: dict[str, Array],
        fresh: Mapping[Buffer, Callable[[], Array]], watches: dict[str, Watch], subgroup: int,
    ) -> None:  # fmt: skip
        self.n, self.number, self.names, self.arrays = n, number, names, arrays
        self.fresh, self.watches, self.subgroup = fresh, watches, subgroup
        self.own = {
            b.name: np.tile(make(), (n, 1)) for b, make in fresh.items() if b.space == "local"
        }
        for watch in watches.values():
            watch.enter(number, n, subgroup)
        self.copies = Copies(n)
        self.tiles = 0
        """How many times subgroups have gone to tiles."""

    def anew(self, number: int = 0) -> _Group:
        """Return a group of another number, with shared memory of its own."""
        shared = {b.name: make() for b, make in self.fresh.items() if b.space == "shared"}
        watches = self.watches | {
            name: Watch(name, len(array), shared=True) for name, array in shared.items()
        }
        arrays = self.arrays | shared
        return _Group(self.n, number, dict(self.names), arrays, self.fresh, watches, self.subgroup)

    def split(self, index: str, count: int) -> _Group:
        """Return the group with `count` threads for each."""
        names = {
            name: v if len(v) == 1 else np.repeat(v, count, 0) for name, v in self.names.items()
        }
        names[index] = np.tile(np.arange(count, dtype=np.int64), self.n)
        n, number = self.n * count, self.number
        return _Group(n, number, names, self.arrays, self.fresh, self.watches, self.subgroup)

    # ── statements ──

    def block(self, body: Sequence[Stmt], at_work: Array) -> None:
        for s in body:
            self.statement(s, at_work)

    def statement(self, s: Stmt, at_work: Array) -> None:
        match s:
            case Set(Register(name), value):
                self._set(name, self.value(value, at_work), at_work)
            case Store():
                self._store(s, at_work)
            case StoreTile():
                self._store_tile(s, at_work)
            case Atomic():
                self._atomic(s, at_work)
            case Prefetch():
                pass
            case Copy():
                self._copy(s, at_work)
            case Commit():
                self.copies.commit(at_work)
            case Wait(left):
                self._wait(left, at_work)
            case Barrier(scope):
                self._meet(scope, at_work)
            case For(kind="group" | "thread"):
                self._grid(s, at_work)
            case For(index, extent, body):
                counts = np.broadcast_to(self.value(extent, at_work), at_work.shape)
                for i in range(int(counts.max(initial=0))):
                    self.names[index.name] = np.array([i], np.int64)
                    self.block(body, at_work[counts > i])
            case If(condition, then, orelse):
                test = np.broadcast_to(self.value(condition, at_work), at_work.shape)
                for part, some in ((then, at_work[test]), (orelse, at_work[~test])):
                    if len(some):
                        self.block(part, some)
            case While(condition, body):
                while len(at_work := at_work[self._holds(condition, at_work)]):
                    self.block(body, at_work)

    def _meet(self, scope: Scope, at_work: Array) -> None:
        if scope == "subgroup":
            self._together("a barrier of the subgroup", at_work)
            numbers = np.unique(at_work // self.subgroup)
            for watch in self.watches.values():
                watch.meet_subgroups(numbers)
            return
        assert len(at_work) == self.n, (
            "some threads of a group wait at a barrier that others do not come to"
        )
        for watch in self.watches.values():
            watch.meet()

    def _holds(self, condition: Expr, at_work: Array) -> Array:
        if not len(at_work):
            return np.zeros(0, np.bool_)
        return np.broadcast_to(self.value(condition, at_work), at_work.shape)

    def _grid(self, loop: For, at_work: Array) -> None:
        assert len(at_work) == self.n, f"not all threads come to a {loop.kind} loop"
        counts = np.unique(self.value(loop.extent, at_work))
        assert len(counts) == 1, f"threads disagree on the extent of a {loop.kind} loop"
        count = int(counts[0])
        if loop.kind == "thread":
            threads = self.split(loop.index.name, count)
            threads.block(loop.body, np.arange(threads.n))
            return
        for i in range(count):
            group = self.anew(self.number * count + i)
            group.names[loop.index.name] = np.array([i], np.int64)
            group.block(loop.body, np.arange(group.n))

    def _set(self, name: str, value: Array, at_work: Array) -> None:
        if len(at_work) == self.n:
            self.names[name] = value
            return
        before = self.names.get(name)
        whole = np.zeros((self.n, *value.shape[1:]), value.dtype)
        if before is not None:
            whole[:] = before
        whole[at_work] = value
        self.names[name] = whole

    def _store(self, s: Store, at_work: Array) -> None:
        where, keep = self._places(s.buffer, s.at, s.value.lanes, s.mask, at_work)
        value = _spread(self.value(s.value, at_work), where)
        who = _spread(at_work, where)
        if s.buffer.space == "local":
            self.own[s.buffer.name][who[keep], where[keep]] = value[keep]
            return
        self._write(s.buffer.name, where[keep], who[keep])
        self.arrays[s.buffer.name][where[keep]] = value[keep]

    def _store_tile(self, s: StoreTile, at_work: Array) -> None:
        where, who = self._tile(s.buffer, s.at, s.stride, s.value.shape, at_work)
        value = self._held(s.value, at_work)
        if s.buffer.space == "local":
            self.own[s.buffer.name][who, where] = value
            return
        self._write(s.buffer.name, where.ravel(), who.ravel())
        self.arrays[s.buffer.name][where] = value

    def _tile(
        self, buffer: Buffer, at: Expr, stride: Expr, shape: Shape | None, at_work: Array
    ) -> tuple[Array, Array]:
        """Return the elements of the tile of each subgroup, and who touches them."""
        assert shape is not None, "a tile has rows and columns"
        self._together("a tile", at_work)
        first, step = (np.broadcast_to(self.value(e, at_work), at_work.shape) for e in (at, stride))
        for each in (first, step):
            of_subgroups = each.reshape(-1, self.subgroup)
            agree = (of_subgroups == of_subgroups[:, :1]).all()
            assert agree, f"threads of a subgroup disagree on where a tile of {buffer.name} is"
        where = places(first[:: self.subgroup], step[:: self.subgroup], shape)
        self._check(buffer, where)
        who = at_work[:: self.subgroup]
        if self.subgroup > 1:
            # Which thread touches what is open, so each time the subgroup is like one more thread.
            self.tiles += 1
            who = self.n + self.n // self.subgroup * self.tiles + who // self.subgroup
        return where, np.broadcast_to(who[:, None], where.shape)

    def _held(self, e: Expr, at_work: Array) -> Array:
        """Return a fragment for each subgroup at work, not for each of their threads."""
        value = self.value(e, at_work)
        return np.broadcast_to(value, (len(at_work), e.lanes))[:: self.subgroup]

    def _atomic(self, s: Atomic, at_work: Array) -> None:
        where, keep = self._places(s.buffer, s.at, s.value.lanes, None, at_work)
        value = _spread(self.value(s.value, at_work), where)
        who = _spread(at_work, where)
        self.copies.touch(s.buffer.name, where[keep], who[keep], "changes")
        if s.buffer.name in self.watches:
            self.watches[s.buffer.name].change(where[keep], who[keep])
        op = BINARY_MEANING[s.op]
        for thread, at, x in zip(who[keep], where[keep], value[keep], strict=True):
            local = s.buffer.space == "local"
            array = self.own[s.buffer.name][thread] if local else self.arrays[s.buffer.name]
            array[at] = op(array[at], x)

    def _copy(self, s: Copy, at_work: Array) -> None:
        where, _ = self._places(s.to, s.at, s.lanes, None, at_work)
        value = self._load(Load(s.source, s.source_at, s.lanes, s.mask), at_work)
        places, who = where.ravel(), _spread(at_work, where).ravel()
        self._write(s.to.name, places, who)
        self.copies.begin(s.to.name, places, value.ravel(), who)

    def _wait(self, left: int, at_work: Array) -> None:
        for c in self.copies.arrive(at_work, left):
            self.watches[c.name].write(c.where, c.who)
            self.arrays[c.name][c.where] = c.value

    def _read(self, name: str, where: Array, who: Array) -> None:
        """Note that threads read elements of an array that others see."""
        self.copies.touch(name, where, who, "reads")
        if name in self.watches:
            self.watches[name].read(where, who)

    def _write(self, name: str, where: Array, who: Array) -> None:
        self.copies.touch(name, where, who, "writes")
        if name in self.watches:
            self.watches[name].write(where, who)

    def _places(
        self, buffer: Buffer, at: Expr, lanes: int, mask: Expr | None, at_work: Array
    ) -> tuple[Array, Array]:
        """Return the elements of threads and lanes, and which of them are meant."""
        first = self.value(at, at_work)
        where = first if at.lanes > 1 else first[:, None] + np.arange(lanes)
        where = np.broadcast_to(where, (len(at_work), lanes))
        keep = np.ones(where.shape, np.bool_)
        if mask is not None:
            keep = _spread(self.value(mask, at_work), where)
        self._check(buffer, where[keep])
        return where, keep

    def _check(self, buffer: Buffer, where: Array) -> None:
        """Raise IndexError for elements that a buffer has not."""
        name = buffer.name
        size = buffer.size if buffer.space == "local" else len(self.arrays[name])
        for bad in where[(where < 0) | (where >= size)][:1]:
            raise IndexError(f"{name}[{bad}] is outside, expected 0 or more and less than {size}")

    # ── expressions ──

    def value(self, e: Expr, at_work: Array) -> Array:
        """Return the value of an expression for the threads at work."""

        def of(x: Expr) -> Array:
            return self.value(x, at_work)

        def rows(x: Expr) -> Array:
            v = of(x)
            return v if v.ndim > 1 else v[:, None]

        def as_lanes(v: Array) -> Array:
            return v if e.lanes > 1 else v[:, 0]

        match e:
            case Const(value, dtype, lanes):
                c = np.array(value).astype(DTYPES[dtype])
                return np.full((1, lanes) if lanes > 1 else 1, c)
            case Index(name) | Register(name):
                v = self.names[name]
                return v if len(v) == 1 else v[at_work]
            case Lanes(lanes):
                return as_lanes(np.arange(lanes, dtype=np.int64)[None])
            case Binary(op, x, y):
                return np.asarray(BINARY_MEANING[op](of(x), of(y)))
            case Compare(op, x, y):
                return np.asarray(COMPARE_MEANING[op](of(x), of(y)))
            case Unary(op, x):
                return np.asarray(UNARY_MEANING[op](of(x)))
            case Fma(x, y, z):
                return np.asarray(fma(of(x), of(y), of(z)))
            case Convert(x, dtype):
                return np.asarray(convert(of(x), DTYPES[dtype]))
            case Bitcast(x, dtype):
                return as_lanes(np.ascontiguousarray(rows(x)).view(DTYPES[dtype]))
            case Splat(x, lanes):
                v = rows(x)
                return as_lanes(np.broadcast_to(v, (len(v), lanes)))
            case Select(condition, x, y):
                return np.where(of(condition), of(x), of(y))
            case Shuffle(x, order):
                return as_lanes(rows(x)[:, list(order)])
            case Blend(x, y, order):
                a, b = (np.broadcast_to(v, (len(at_work), v.shape[1])) for v in (rows(x), rows(y)))
                return as_lanes(np.concatenate([a, b], 1)[:, list(order)])
            case Lookup(table, at):
                return np.asarray(np.array(table, np.float32)[of(at) % len(table)])
            case Reduce(op, x):
                v = rows(x)
                while v.shape[1] > 1:
                    half = v.shape[1] // 2
                    v = np.asarray(BINARY_MEANING[op](v[:, :half], v[:, half:]))
                return v[:, 0]
            case Load():
                return as_lanes(self._load(e, at_work))
            case Tile():
                return np.repeat(self._load_tile(e, at_work), self.subgroup, 0)
            case Mma(acc, x, y):
                product = multiplied(e, *(self._held(v, at_work) for v in (acc, x, y)))
                return np.repeat(product, self.subgroup, 0)
            case Across():
                return self._across(e, at_work)
            case Intrinsic(name, args):
                given = [np.broadcast_to(v, (len(at_work), v.shape[1])) for v in map(rows, args)]
                meaning = INTRINSICS[name].meaning
                each = [np.atleast_1d(meaning(*of_one)) for of_one in zip(*given, strict=True)]
                return as_lanes(np.stack(each))
        raise AssertionError(f"no meaning for {type(e).__name__}")

    def _across(self, e: Across, at_work: Array) -> Array:
        if self.subgroup == 1:
            return self.value(e.x, at_work)
        self._together(f"across.{e.op}", at_work)
        x = self.value(e.x, at_work)
        x = np.broadcast_to(x, (len(at_work), *x.shape[1:]))
        at = np.zeros(1, np.int64) if e.at is None else self.value(e.at, at_work)
        size = (-1, self.subgroup)
        result = exchanged(
            e.op,
            x.reshape(*size, *x.shape[1:]),
            np.broadcast_to(at, at_work.shape).reshape(size),
        )
        return result.reshape(x.shape)

    def _together(self, what: str, at_work: Array) -> None:
        """Assert that the threads at work are whole subgroups."""
        present = np.bincount(at_work // self.subgroup)
        assert set(present.tolist()) <= {0, self.subgroup}, (
            f"some threads of a subgroup come to {what} and others do not"
        )

    def _load_tile(self, e: Tile, at_work: Array) -> Array:
        where, who = self._tile(e.buffer, e.at, e.stride, e.shape, at_work)
        if e.buffer.space == "local":
            return np.asarray(self.own[e.buffer.name][who, where])
        self._read(e.buffer.name, where.ravel(), who.ravel())
        return np.asarray(self.arrays[e.buffer.name][where])

    def _load(self, e: Load, at_work: Array) -> Array:
        where, keep = self._places(e.buffer, e.at, e.lanes, e.mask, at_work)
        who = _spread(at_work, where)
        loaded = np.zeros(where.shape, DTYPES[e.buffer.dtype])
        if e.buffer.space == "local":
            loaded[keep] = self.own[e.buffer.name][who[keep], where[keep]]
            return loaded
        self._read(e.buffer.name, where[keep], who[keep])
        loaded[keep] = self.arrays[e.buffer.name][where[keep]]
        return loaded


def _spread(value: Array, where: Array) -> Array:
    """Return a value for each thread and lane of an access."""
    return np.broadcast_to(value if value.ndim > 1 else value[:, None], where.shape)

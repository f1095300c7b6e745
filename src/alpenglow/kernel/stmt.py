"""Statements of the kernel language, and kernels: what is done with the expressions of `expr`.

A `parallel` loop may run its iterations in any order and on several threads; at most one stands
in a kernel, outermost and last, and the caller runs any part of it (see the ABI in
`machines.cpu`).  `vector` says that iterations are independent, `unrolled` asks for unrolling.
`group` and `thread` are the grid of a GPU: threads of a group share `shared` buffers and meet at
a `Barrier`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Literal

from alpenglow.kernel.expr import Buffer, Const, Expr, Index, Register, alike

Scope = Literal["group", "subgroup"]
Kind = Literal["serial", "parallel", "vector", "unrolled", "group", "thread"]


@dataclass(frozen=True, slots=True, eq=False)
class Set:
    """The register becomes the value."""

    register: Register
    value: Expr

    def __post_init__(self) -> None:
        alike("set", self.register, self.value)


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """The mirror of a `Load`: lanes of `value` go where the address says, unless masked off."""

    buffer: Buffer
    at: Expr
    value: Expr
    mask: Expr | None = None

    def __post_init__(self) -> None:
        assert self.buffer.mutable, f"{self.buffer.name} is read-only"
        assert self.buffer.dtype == self.value.dtype, f"{self.buffer} := {self.value.dtype}"
        assert self.value.shape is None, "a fragment is stored with a stride"


@dataclass(frozen=True, slots=True, eq=False)
class StoreTile:
    """The mirror of a `Tile`: a fragment goes to memory, its rows `stride` elements apart."""

    buffer: Buffer
    at: Expr
    stride: Expr
    value: Expr

    def __post_init__(self) -> None:
        assert self.buffer.mutable, f"{self.buffer.name} is read-only"
        assert self.buffer.dtype == self.value.dtype, f"{self.buffer} := {self.value.dtype}"
        assert self.value.shape is not None, "what is stored with a stride is a fragment"


@dataclass(frozen=True, slots=True, eq=False)
class Atomic:
    """buffer[at] = buffer[at] op value, indivisibly; op is add, min or max."""

    op: str
    buffer: Buffer
    at: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Barrier:
    """All threads of a group, or of each subgroup, wait for each other."""

    scope: Scope = "group"


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """Elements of `source` begin to go to a shared array; those that are masked off become 0.

    They are there when this thread has waited for the batch that they are committed with.
    """

    to: Buffer
    at: Expr
    source: Buffer
    source_at: Expr
    lanes: int = 1
    mask: Expr | None = None

    def __post_init__(self) -> None:
        assert self.to.space == "shared", f"copies go to shared arrays, not to {self.to.name}"
        assert self.to.dtype == self.source.dtype, f"{self.to} := {self.source.dtype}"


@dataclass(frozen=True, slots=True)
class Commit:
    """What this thread has begun to copy since the last one is a batch."""


@dataclass(frozen=True, slots=True)
class Wait:
    """All batches that this thread has committed are there, but the last `left`."""

    left: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch:
    """The memory there will be read soon.  It changes nothing; the place may lie past the end.

    What is read `later` should not yet drive anything out of the first level cache.
    """

    buffer: Buffer
    at: Expr
    later: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """index = 0, 1, … extent-1.

    A parallel loop may run `strips` times through its part: for the indices of remainder 0 by that
    number first, then for those of remainder 1, and so on.
    """

    index: Index
    extent: Expr
    body: tuple[Stmt, ...]
    kind: Kind = "serial"
    strips: int = 1

    def __post_init__(self) -> None:
        assert self.strips == 1 or self.kind == "parallel", f"a {self.kind} loop has no strips"


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`then` where the condition holds, else `orelse`."""

    condition: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """`body`, as long as the condition holds before it."""

    condition: Expr
    body: tuple[Stmt, ...]


Stmt = (
    Set | Store | StoreTile | Atomic | Copy | Commit | Wait | Prefetch | Barrier | For | If | While
)


def blocks(s: Stmt) -> tuple[tuple[Stmt, ...], ...]:
    """Return the blocks of statements in a statement."""
    match s:
        case For(body=body) | While(body=body):
            return (body,)
        case If(_, then, orelse):
            return (then, orelse)
    return ()


def operands(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions of a statement itself, not of those in it."""
    match s:
        case Set(value=value):
            return (value,)
        case Store(at=at, value=value, mask=mask):
            return (at, value) if mask is None else (at, value, mask)
        case StoreTile(at=at, stride=stride, value=value):
            return (at, stride, value)
        case Atomic(at=at, value=value):
            return (at, value)
        case Copy(at=at, source_at=source_at, mask=mask):
            return (at, source_at) if mask is None else (at, source_at, mask)
        case Prefetch(at=at):
            return (at,)
        case For(extent=extent):
            return (extent,)
        case If(condition=condition) | While(condition=condition):
            return (condition,)
    return ()


def statements(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Yield all statements, those in others too."""
    for s in body:
        yield s
        for block in blocks(s):
            yield from statements(block)


def peel(body: tuple[Stmt, ...], kind: Kind) -> tuple[list[For], tuple[Stmt, ...]]:
    """Split perfectly nested loops of `kind` off; returns them, outermost first, and the rest."""
    match body:
        case (For() as loop,) if loop.kind == kind:
            inner, rest = peel(loop.body, kind)
            return [loop, *inner], rest
    return [], body


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """The loops of a grid, innermost first: those over groups, and over the threads of each."""

    groups: tuple[For, ...]
    threads: tuple[For, ...]

    @property
    def sizes(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        """How many groups there are along each axis, and how many threads in a group."""
        groups, threads = ((loop.extent for loop in each) for each in (self.groups, self.threads))
        return tuple(groups), tuple(threads)

    @property
    def count(self) -> int | None:
        """How many threads a group has; None if a run-time extent says so."""
        known = [int(e.value) for e in self.sizes[1] if isinstance(e, Const)]
        return prod(known) if len(known) == len(self.threads) else None

    @property
    def number(self) -> Expr:
        """The number of a thread in its group: the innermost loop counts fastest."""
        total: Expr = Const(0)
        for loop in reversed(self.threads):
            total = total * loop.extent + loop.index
        return total


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A function on `buffers` (its operands, in order) and run-time `extents`."""

    name: str
    buffers: tuple[Buffer, ...]
    extents: tuple[Index, ...]
    arrays: tuple[Buffer, ...]
    body: tuple[Stmt, ...]
    subgroup: int = 1
    """How many threads of a group, in the order of their numbers, run in step."""

    @property
    def launch(self) -> Launch:
        """The grid that the loops around everything else make; of one thread if there are none."""
        groups, inside = peel(self.body, "group")
        threads, _ = peel(inside, "thread")
        return Launch(tuple(reversed(groups)), tuple(reversed(threads)))

    @property
    def parallel(self) -> For | None:
        """The parallel loop that callers may split, if there is one."""
        last = self.body[-1] if self.body else None
        return last if isinstance(last, For) and last.kind == "parallel" else None

"""Building kernels: a template is a Python function over a `Builder`.

What is unrolled is a Python loop; what loops at run time is a `with b.loop(…)`.  `let` names a
value once, so that using it twice does not compute it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from alpenglow.kernel.expr import Buffer, Const, Expr, Index, Register, Shape, Space, lift
from alpenglow.kernel.fragments import Tile
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    Commit,
    Copy,
    For,
    If,
    Kernel,
    Kind,
    Prefetch,
    Scope,
    Set,
    Stmt,
    Store,
    StoreTile,
    Wait,
    While,
)


class Builder:
    """Collects the statements of one kernel."""

    def __init__(self, name: str, first: int = 0, subgroup: int = 1) -> None:
        """Names of registers and indices are numbered from `first` on."""
        self.name = name
        self.subgroup = subgroup
        self.buffers: list[Buffer] = []
        self.arrays: list[Buffer] = []
        self.extents: list[Index] = []
        self._scopes: list[list[Stmt]] = [[]]
        self._fresh = count(first)

    def buffer(self, name: str, dtype: str, mutable: bool = False, align: int = 0) -> Buffer:
        """Add an operand."""
        assert name not in {b.name for b in self.buffers}, name
        self.buffers.append(Buffer(name, dtype, mutable, "global", align))
        return self.buffers[-1]

    def array(self, dtype: str, size: int, space: Space = "local", align: int = 64) -> Buffer:
        """Add an array that lives as long as the kernel runs: on the stack, or shared."""
        self.arrays.append(Buffer(f"a{len(self.arrays)}", dtype, True, space, align, size))
        return self.arrays[-1]

    def extent(self, name: str) -> Index:
        """Add a run-time extent."""
        self.extents.append(Index(name))
        return self.extents[-1]

    @contextmanager
    def loop(self, extent: Expr | int, kind: Kind = "serial", strips: int = 1) -> Iterator[Expr]:
        """Open a loop; yields its index (the constant 0 for an extent of 1, and no loop then)."""
        n = lift(extent)
        if isinstance(n, Const) and n.value == 1 and kind not in ("group", "thread", "parallel"):
            yield Const(0)
            return
        index = Index(f"i{next(self._fresh)}")
        self._scopes.append([])
        yield index
        body = tuple(self._scopes.pop())
        self._scopes[-1].append(For(index, n, body, kind, strips))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """Open a block that runs if `condition` holds."""
        self._scopes.append([])
        yield
        self._scopes[-2].append(If(condition, tuple(self._scopes.pop())))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """Open the else block of the `when` just closed."""
        before = self._scopes[-1].pop()
        assert isinstance(before, If), "otherwise follows when"
        self._scopes.append([])
        yield
        self._scopes[-2].append(If(before.condition, before.then, tuple(self._scopes.pop())))

    @contextmanager
    def repeat_while(self, condition: Expr) -> Iterator[None]:
        """Open a block that runs as long as `condition` holds."""
        self._scopes.append([])
        yield
        self._scopes[-2].append(While(condition, tuple(self._scopes.pop())))

    def var(self, init: Expr) -> Register:
        """Return a new register that holds `init`."""
        r = self.register(init)
        self.set(r, init)
        return r

    def register(self, like: Expr) -> Register:
        """Return a new register for values such as an expression's."""
        return Register(f"r{next(self._fresh)}", like.dtype, like.lanes, like.shape)

    def let(self, value: Expr) -> Expr:
        """Return `value` as something that is cheap to use repeatedly."""
        return value if isinstance(value, Const | Index | Register) else self.var(value)

    def set(self, register: Register, value: Expr) -> None:
        self._scopes[-1].append(Set(register, value))

    def store(self, buffer: Buffer, at: Expr | int, value: Expr, mask: Expr | None = None) -> None:
        assert mask is None or mask.lanes == value.lanes, (
            f"{value.lanes} lanes are stored under a mask of {mask.lanes}"
        )
        self._scopes[-1].append(Store(buffer, lift(at), value, mask))

    def store_tile(self, buffer: Buffer, at: Expr | int, stride: Expr | int, value: Expr) -> None:
        self._scopes[-1].append(StoreTile(buffer, lift(at), lift(stride), value))

    def atomic(self, op: str, buffer: Buffer, at: Expr | int, value: Expr) -> None:
        self._scopes[-1].append(Atomic(op, buffer, lift(at), value))

    def tile(self, buffer: Buffer, at: Expr | int, stride: Expr | int, shape: Shape) -> Tile:
        """Return a fragment in memory."""
        return Tile(buffer, lift(at), lift(stride), shape)

    def copy(
        self, to: Buffer, at: Expr | int, source: Buffer, source_at: Expr | int, lanes: int = 1,
        mask: Expr | None = None,
    ) -> None:  # fmt: skip
        self._scopes[-1].append(Copy(to, lift(at), source, lift(source_at), lanes, mask))

    def commit(self) -> None:
        self._scopes[-1].append(Commit())

    def wait(self, left: int = 0) -> None:
        self._scopes[-1].append(Wait(left))

    def prefetch(self, buffer: Buffer, at: Expr | int, later: bool = False) -> None:
        self._scopes[-1].append(Prefetch(buffer, lift(at), later))

    def barrier(self, scope: Scope = "group") -> None:
        self._scopes[-1].append(Barrier(scope))

    def add(self, s: Stmt) -> None:
        """Add a statement that has been built elsewhere."""
        self._scopes[-1].append(s)

    @contextmanager
    def block(self) -> Iterator[list[Stmt]]:
        """Open a block that the caller puts into a statement; yields what is added to it."""
        self._scopes.append([])
        yield self._scopes[-1]
        self._scopes.pop()

    def length(self, emit: Callable[[], None]) -> int:
        """Return how many statements `emit` adds, without adding them."""
        self._scopes.append([])
        emit()
        return len(self._scopes.pop())

    def done(self) -> Kernel:
        """Return the kernel."""
        assert len(self._scopes) == 1, "a block is still open"
        return Kernel(
            self.name,
            tuple(self.buffers),
            tuple(self.extents),
            tuple(self.arrays),
            tuple(self._scopes[0]),
            self.subgroup,
        )

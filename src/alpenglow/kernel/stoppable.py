"""Long kernels that can be stopped: they look at a word now and then, and run out once it is set.

A kernel that executes many statements gets one more operand, `stop`, whose one element another
thread may change.  Its long loops are cut into pieces of about `PIECE` statements, each of which is
run only while the word is 0:

    for i in n { … }

    =>  for o in ceil(n / s) { if stop[0] == 0 { for i in min(s, n - o*s) { … } } }

Nothing is left early, so nothing that holds at the end of a loop without a break is lost; what
results hold after a stop is nobody's business.  Addresses may not depend on a loop having run, and
no proof of them does: to a proof, a register that a loop changes is anything after it that fewer
turns could have made of it, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from alpenglow.ir import dims
from alpenglow.ir.dims import Sym
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Index,
    Load,
    Register,
    children,
    parts,
    rebuilt,
)
from alpenglow.kernel.stmt import (
    Atomic,
    Copy,
    For,
    If,
    Kernel,
    Kind,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    While,
    operands,
    statements,
)

STOP = Buffer("stop", "i64", mutable=True, volatile=True)

LONG = 1 << 26
"""Statements from which on a kernel is long: 20 ms or so."""

PIECE = 1 << 18
"""Statements between two looks at the word: 0.1 ms or so."""

LEAST = 1 << 12
"""Statements beside which a look at the word costs nothing."""

MOST_PIECES = 1 << 20
"""How many looks a loop may take to run out: a millisecond."""

UNKNOWN = 64
"""How often a loop is taken to turn if that depends on data."""


def stoppable(kernel: Kernel) -> Kernel:
    """Return a kernel that does the same and looks at `STOP`; itself if it is not long."""
    if _work(kernel.body) <= LONG or any(_is_grid(s) for s in statements(kernel.body)):
        return kernel
    cut = _Cut(kernel)
    body = cut.block(kernel.body)
    if not cut.count:
        return kernel
    buffers = kernel.buffers if STOP in kernel.buffers else (*kernel.buffers, STOP)
    extents = (*kernel.extents, *cut.extents)
    return replace(kernel, buffers=buffers, extents=extents, body=body)


def _is_grid(s: Stmt) -> bool:
    return isinstance(s, For) and s.kind in ("group", "thread")


def _work(body: Iterable[Stmt]) -> int:
    """Return about how many statements a block executes."""
    total = 0
    for s in body:
        match s:
            case For(_, extent, inner):
                total += 1 + _turns(extent) * _work(inner)
            case While(_, inner):
                total += 1 + UNKNOWN * _work(inner)
            case If(_, then, orelse):
                total += 1 + max(_work(then), _work(orelse))
            case _:
                total += 1
    return total


def _turns(extent: Expr) -> int:
    """Return about how often a loop turns, rather too often than not."""
    match extent:
        case Const(value):
            return max(int(value), 0)
        case Index(_, dim) if dim is not None:
            return max(dims.estimate(dim), 0)
        case Binary("min", x, y):
            return min(_turns(x), _turns(y))
        case Binary("max" | "add", x, y):
            return _turns(x) + _turns(y)
        case Binary("mul", x, y):
            return _turns(x) * _turns(y)
        case Binary("div", x, Const(value)) if value:
            return _turns(x) // abs(int(value)) + 1
        case Binary("sub", x, _):
            return _turns(x)
    return UNKNOWN


class _Cut:
    """Cuts the loops of one kernel; `count` says how many looks at the word it has put in."""

    def __init__(self, kernel: Kernel) -> None:
        self.count = 0
        self.extents: list[Index] = []
        self._reads = Counter(_registers(kernel.body))
        self._set: set[str] = set()

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """Return a block whose long loops are cut."""
        stmts: list[Stmt] = []
        for s in body:
            match s:
                case Set(register, _):
                    self._set.add(register.name)
                    stmts.append(s)
                case If(condition, then, orelse):
                    stmts.append(If(condition, self.block(then), self.block(orelse)))
                case While(condition, inner) if _work([s]) > PIECE:
                    going = Binary("and", condition, self._goes_on())
                    stmts.append(While(going, self.block(inner)))
                case For() if _work([s]) > PIECE:
                    stmts += self._loop(s)
                case _:
                    stmts.append(s)
        return tuple(stmts)

    def _loop(self, s: For) -> list[Stmt]:
        turn = _work(s.body)
        if self._leaves_something(s):
            return [replace(s, body=self.block(s.body))]
        if turn > PIECE or s.strips > 1 or not self._can_cut(s):
            inner = self.block(s.body) if turn > PIECE else s.body
            if turn < LEAST:
                return [s]
            return [replace(s, body=(If(self._goes_on(), inner),))]
        # A power of two divides more extents than others do.
        return self._pieces(s, 1 << (max(PIECE // max(turn, 1), 1).bit_length() - 1))

    def _can_cut(self, s: For) -> bool:
        """Whether a loop can be cut: the caller must know the extent of a parallel one."""
        match s.extent:
            case Const():
                return True
            case Index(_, dim) if dim is not None:
                return True
        return s.kind != "parallel"

    def _pieces(self, s: For, size: int) -> list[Stmt]:
        """Cut a loop into pieces of so many turns; those again, while they are too many."""
        before: list[Stmt] = []
        extent = s.extent
        if not isinstance(extent, Const | Index | Register):
            register = Register(self._fresh("e"), "i64")
            before, extent = [Set(register, extent)], register
        outer, inner = Index(self._fresh("o")), Index(self._fresh("c"))
        first = Register(self._fresh("b"), "i64")
        kind: Kind = "vector" if s.kind == "parallel" else s.kind
        rest = extent - first
        turns = Const(size) if _divides(size, extent) else Binary("min", Const(size), rest)
        at = Binary("add", first, inner)
        piece = For(inner, turns, tuple(_replaced(x, s.index, at) for x in s.body), kind)
        guarded = If(self._goes_on(), (piece,))
        start = Set(first, outer * size)
        whole: Kind = "parallel" if s.kind == "parallel" else "serial"
        loop = For(outer, self._pieces_of(extent, size), (start, guarded), whole)
        if _turns(loop.extent) > MOST_PIECES and self._can_cut(loop):
            return [*before, *self._pieces(loop, MOST_PIECES >> 4)]
        return [*before, loop]

    def _pieces_of(self, extent: Expr, size: int) -> Expr:
        """Return how many pieces of a size there are."""
        match extent:
            case Const(value):
                return Const(-(-int(value) // size))
            case Index(_, dim) if dim is not None:
                pieces = dims.ceil_div(dim, size)
                assert isinstance(pieces, Sym), f"{dim} is open"
                count = Index(self._fresh("m"), pieces)
                self.extents.append(count)
                return count
        return (extent + (size - 1)) // size

    def _goes_on(self) -> Expr:
        self.count += 1
        return Compare("eq", Load(STOP, Const(0)), Const(0))

    def _fresh(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def _leaves_something(self, s: For) -> bool:
        """Whether what a loop sets first is read elsewhere: then it must turn."""
        inside = Counter(_registers(s.body))
        own = {x.register.name for x in statements(s.body) if isinstance(x, Set)} - self._set
        return any(self._reads[name] > inside[name] for name in own)


def _divides(size: int, extent: Expr) -> bool:
    return isinstance(extent, Const) and int(extent.value) % size == 0


def _registers(body: tuple[Stmt, ...]) -> Iterator[str]:
    """Yield the name of a register for each time that it is read."""
    for s in statements(body):
        for e in operands(s):
            yield from (x.name for x in parts(e) if isinstance(x, Register))


def _replaced(s: Stmt, index: Index, by: Expr) -> Stmt:
    """Return a statement in which another expression stands for an index."""

    def of(e: Expr) -> Expr:
        return _with(e, index, by)

    def block(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(_replaced(x, index, by) for x in body)

    match s:
        case Set(register, value):
            return Set(register, of(value))
        case Store(buffer, at, value, mask):
            return Store(buffer, of(at), of(value), None if mask is None else of(mask))
        case StoreTile(buffer, at, stride, value):
            return StoreTile(buffer, of(at), of(stride), of(value))
        case Atomic(op, buffer, at, value):
            return Atomic(op, buffer, of(at), of(value))
        case Copy(at=at, source_at=source_at, mask=mask):
            within = None if mask is None else of(mask)
            return replace(s, at=of(at), source_at=of(source_at), mask=within)
        case Prefetch(buffer, at, later):
            return Prefetch(buffer, of(at), later)
        case For(_, extent, body):
            return replace(s, extent=of(extent), body=block(body))
        case If(condition, then, orelse):
            return If(of(condition), block(then), block(orelse))
        case While(condition, body):
            return While(of(condition), block(body))
    return s


def _with(e: Expr, index: Index, by: Expr) -> Expr:
    """Return an expression in which another stands for an index; itself if that is not in it."""
    if isinstance(e, Index):
        return by if e.name == index.name else e
    return rebuilt(e, tuple(_with(x, index, by) for x in children(e)))

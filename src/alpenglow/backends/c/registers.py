"""Where the registers of a kernel are declared in C, what they are called, and which index memory.

A register becomes a local variable of the innermost block that holds all its uses.  If the first of
them sets it there, that is its declaration, `const` if nothing else sets it.  Registers that nobody
reads, and what sets them, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expr,
    Fma,
    Index,
    Lanes,
    Load,
    Register,
    Splat,
    children,
)
from alpenglow.kernel.stmt import (
    Atomic,
    For,
    If,
    Kernel,
    Set,
    Stmt,
    Store,
    While,
    blocks,
    statements,
)

Path = tuple[int, ...]
"""Where a statement stands: numbers in its block and, before each, of blocks in statements."""


@dataclass(frozen=True)
class Registers:
    """What is known of the registers of a kernel, by their names in it."""

    names: dict[str, str]
    indices: frozenset[str]
    constant: frozenset[str]
    declaring: frozenset[Path]
    """The statements that declare what they set."""
    opening: dict[Path, list[Register]]
    """What blocks declare at their beginning."""
    uses: dict[str, frozenset[Path]]
    """The statements that read or set each."""


@dataclass(frozen=True)
class _Use:
    path: Path
    register: Register
    sets: Expr | None


def parts(e: Expr) -> Iterator[Expr]:
    """Yield an expression and all that it is made of."""
    yield e
    for x in children(e):
        yield from parts(x)


def operands(s: Stmt) -> tuple[Expr, ...]:
    """Return the expressions that a statement evaluates itself."""
    match s:
        case Set(value=value):
            return (value,)
        case Store(at=at, value=value, mask=mask):
            return (at, value) if mask is None else (at, value, mask)
        case Atomic(at=at, value=value):
            return (at, value)
        case For(extent=extent):
            return (extent,)
        case If(condition=condition) | While(condition=condition):
            return (condition,)
    return ()


def without_dead(kernel: Kernel) -> Kernel:
    """Return the kernel without registers, and local arrays, that nothing depends on."""
    kernel = replace(kernel, body=_without_unread(kernel))
    feeds: dict[str, set[str]] = defaultdict(set)
    live: set[str] = set()

    def visit(body: tuple[Stmt, ...]) -> None:
        for s in body:
            read = {x.name for e in operands(s) for x in parts(e) if isinstance(x, Register)}
            if isinstance(s, Set):
                feeds[s.register.name] |= read
            else:
                live.update(read)
            for block in blocks(s):
                visit(block)

    visit(kernel.body)
    waiting = list(live)
    while waiting:
        for name in feeds[waiting.pop()] - live:
            live.add(name)
            waiting.append(name)
    return replace(kernel, body=_kept(kernel.body, live))


def _without_unread(kernel: Kernel) -> tuple[Stmt, ...]:
    """Return the statements but those that store in local arrays that are never read."""
    read = {
        x.buffer.name
        for s in statements(kernel.body)
        for e in operands(s)
        for x in parts(e)
        if isinstance(x, Load)
    }
    unread = {a.name for a in kernel.arrays} - read

    def kept(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        found: list[Stmt] = []
        for s in body:
            match s:
                case Store(buffer=buffer) | Atomic(buffer=buffer) if buffer.name in unread:
                    continue
                case For(index, extent, inner, kind, strips):
                    found.append(For(index, extent, kept(inner), kind, strips))
                case While(condition, inner):
                    found.append(While(condition, kept(inner)))
                case If(condition, then, orelse):
                    found.append(If(condition, kept(then), kept(orelse)))
                case _:
                    found.append(s)
        return tuple(found)

    return kept(kernel.body) if unread else kernel.body


def _kept(body: tuple[Stmt, ...], live: set[str]) -> tuple[Stmt, ...]:
    kept: list[Stmt] = []
    for s in body:
        match s:
            case Set(register=register) if register.name not in live:
                continue
            case For(index, extent, inner, kind, strips):
                kept.append(For(index, extent, _kept(inner, live), kind, strips))
            case While(condition, inner):
                kept.append(While(condition, _kept(inner, live)))
            case If(condition, then, orelse):
                kept.append(If(condition, _kept(then, live), _kept(orelse, live)))
            case _:
                kept.append(s)
    return tuple(kept)


def study(kernel: Kernel) -> Registers:
    """Return what is known of the registers of `kernel`."""
    uses: dict[str, list[_Use]] = defaultdict(list)
    _collect(kernel.body, (), uses)
    declaring: set[Path] = set()
    constant: set[str] = set()
    opening: dict[Path, list[Register]] = defaultdict(list)
    for name, found in uses.items():
        sets = [u for u in found if u.sets is not None]
        block = _common([u.path[:-1] for u in found])
        first = next(u for u in found if u.sets is not None or u is found[0])
        reads_itself = first.sets is None or _reads(first.sets, name)
        if first.path[:-1] == block and not reads_itself and first is found[0]:
            declaring.add(first.path)
            if len(sets) == 1:
                constant.add(name)
        else:
            opening[block].append(first.register)
    indices = _indices(uses)
    names = {name: _named(found, indices) for name, found in uses.items()}
    paths = {name: frozenset(u.path for u in found) for name, found in uses.items()}
    return Registers(names, indices, frozenset(constant), frozenset(declaring), opening, paths)


def _collect(body: tuple[Stmt, ...], path: Path, uses: dict[str, list[_Use]]) -> None:
    for i, s in enumerate(body):
        here = (*path, i)
        own = s.register.name if isinstance(s, Set) else None
        for x in (x for e in operands(s) for x in parts(e) if isinstance(x, Register)):
            # What a Set reads of itself is told from the value.
            if x.name != own:
                uses[x.name].append(_Use(here, x, None))
        if isinstance(s, Set):
            uses[s.register.name].append(_Use(here, s.register, s.value))
        for k, block in enumerate(blocks(s)):
            _collect(block, (*here, k), uses)


def _common(paths: list[Path]) -> Path:
    """Return the innermost block that holds all the blocks."""
    shared = 0
    while all(len(p) > shared for p in paths) and len({p[shared] for p in paths}) == 1:
        shared += 1
    # Blocks have paths of an even length.
    return paths[0][: shared // 2 * 2]


def _reads(e: Expr, name: str) -> bool:
    return any(isinstance(x, Register) and x.name == name for x in parts(e))


def _indices(uses: dict[str, list[_Use]]) -> frozenset[str]:
    """Return the registers that hold indices, from loops and constants alone.

    What is read from memory may be any number, and its arithmetic wraps.
    """
    scalar = {n for n, found in uses.items() if found[0].register.dtype == "i64"}
    indices = {n for n in scalar if uses[n][0].register.lanes == 1}
    while True:
        kept = {
            name
            for name in indices
            if all(u.sets is None or is_index(u.sets, indices) for u in uses[name])
        }
        if kept == indices:
            return frozenset(kept)
        indices = kept


def is_index(e: Expr, registers: frozenset[str] | set[str]) -> bool:
    """Whether `e` is arithmetic on loop indices."""
    match e:
        case Const(value=value, dtype="i64"):
            return abs(int(value)) < 1 << 31
        case Index() | Lanes():
            return True
        case Splat(x):
            return is_index(x, registers)
        case Register(name=name):
            return name in registers
        case Binary("add" | "sub" | "mul" | "div" | "rem", x, y):
            return is_index(x, registers) and is_index(y, registers)
    return False


def _named(found: list[_Use], indices: frozenset[str]) -> str:
    """Return a name that says what a register holds."""
    register = found[0].register
    name = register.name
    if not (name.startswith("r") and name[1:].isdigit()):
        return name
    sets = [u.sets for u in found if u.sets is not None]
    number = name[1:]
    if name in indices:
        return f"at{number}"
    if any(isinstance(e, Fma) and _reads(e, name) for e in sets):
        return f"sum{number}"
    match sets:
        case [Load(buffer=Buffer(name=source))] | [Splat(Load(buffer=Buffer(name=source)))]:
            return f"{source}_{number}"
        case [Compare()]:
            return f"is{number}"
    return f"t{number}"

"""Where the registers of a kernel are declared, what they are called, and which index memory.

A register becomes a local variable of the innermost block that holds all its uses.  If the first of
them sets it there, that is its declaration, `const` if nothing else sets it.  Registers that nobody
reads, and what sets them, are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
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
    parts,
)
from alpenglow.kernel.stmt import (
    Atomic,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    While,
    blocks,
    operands,
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


def without_dead(kernel: Kernel) -> Kernel:
    """Return the kernel without registers, and local arrays, that nothing depends on."""
    own = [(s, list(_evaluated(s))) for s in statements(kernel.body)]
    read = {x.buffer.name for _, every in own for x in every if isinstance(x, Load)}
    unread = {a.name for a in kernel.arrays} - read
    feeds: dict[str, set[str]] = defaultdict(set)
    waiting: set[str] = set()
    for s, every in own:
        names = {x.name for x in every if isinstance(x, Register)}
        if isinstance(s, Set):
            feeds[s.register.name] |= names
        elif not (isinstance(s, Store | Atomic) and s.buffer.name in unread):
            waiting |= names
    live: set[str] = set()
    while waiting:
        live.add(name := waiting.pop())
        waiting |= feeds[name] - live

    def lives(s: Stmt) -> bool:
        match s:
            case Set(register=register):
                return register.name in live
            case Store(buffer=buffer) | Atomic(buffer=buffer):
                return buffer.name not in unread
        return True

    return replace(kernel, body=_kept(kernel.body, lives))


def _kept(body: tuple[Stmt, ...], keeps: Callable[[Stmt], bool]) -> tuple[Stmt, ...]:
    """Return the statements that `keeps` allows, in blocks too."""
    kept: list[Stmt] = []
    for s in filter(keeps, body):
        match s:
            case For(body=inner) | While(body=inner):
                kept.append(replace(s, body=_kept(inner, keeps)))
            case If(condition, then, orelse):
                kept.append(If(condition, _kept(then, keeps), _kept(orelse, keeps)))
            case _:
                kept.append(s)
    return tuple(kept)


def _evaluated(s: Stmt) -> Iterator[Expr]:
    """Yield what a statement evaluates itself: nothing if it is a prefetch, which C leaves out."""
    if not isinstance(s, Prefetch):
        for e in operands(s):
            yield from parts(e)


def study(kernel: Kernel) -> Registers:
    """Return what is known of the registers of `kernel`."""
    uses: dict[str, list[_Use]] = defaultdict(list)
    _collect(kernel.body, (), uses)
    declaring: set[Path] = set()
    constant: set[str] = set()
    opening: dict[Path, list[Register]] = defaultdict(list)
    for name, steps in uses.items():
        sets = [u for u in steps if u.sets is not None]
        block = _common([u.path[:-1] for u in steps])
        first = next(u for u in steps if u.sets is not None or u is steps[0])
        reads_itself = first.sets is None or _reads(first.sets, name)
        if first.path[:-1] == block and not reads_itself and first is steps[0]:
            declaring.add(first.path)
            if len(sets) == 1:
                constant.add(name)
        else:
            opening[block].append(first.register)
    indices = _indices(uses)
    names = {name: _named(steps, indices) for name, steps in uses.items()}
    paths = {name: frozenset(u.path for u in steps) for name, steps in uses.items()}
    return Registers(names, indices, frozenset(constant), frozenset(declaring), opening, paths)


def _collect(body: tuple[Stmt, ...], path: Path, uses: dict[str, list[_Use]]) -> None:
    for i, s in enumerate(body):
        here = (*path, i)
        own = s.register.name if isinstance(s, Set) else None
        for x in (x for x in _evaluated(s) if isinstance(x, Register)):
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
    scalar = {n for n, steps in uses.items() if steps[0].register.dtype == "i64"}
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


def _named(steps: list[_Use], indices: frozenset[str]) -> str:
    """Return a name that says what a register holds."""
    register = steps[0].register
    name = register.name
    if not (name.startswith("r") and name[1:].isdigit()):
        return name
    sets = [u.sets for u in steps if u.sets is not None]
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

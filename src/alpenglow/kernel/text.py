"""The textual form of kernels: what `print_kernel` writes, `parse_kernel` reads back.

    kernel @relu(x: f32, y: mut f32 align 64) extents(n) {
      array a0: f32[256] local align 64
      parallel i0 in 64 {
        r0: f32x16 = x.16[i0*16 + 3 if lanes.16 < splat.16(n)]
        if n > 5 {
          y[i0*16] = max(r0, 0.0:f32x16)
        } else {
          r0 = fma(r0, r0, splat.16(x[i0]))
        }
      }
    }

One statement stands on a line; `docs/kernel.md` lists the forms.  A register's type stands at
its first assignment, a constant's behind a colon (i64 and bool scalars need none).  A name that
is no plain word is written in double quotes; `#` begins a comment.

The text is also the key under which compiled code is cached: two kernels with the same text are
the same kernel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from alpenglow.ir.types import FLOATS, NARROW_FLOATS
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
    Shuffle,
    Splat,
    Unary,
    type_text,
)
from alpenglow.kernel.fragments import Mma, Tile
from alpenglow.kernel.parse import INFIX, parse_kernel
from alpenglow.kernel.stmt import (
    Atomic,
    Barrier,
    Commit,
    Copy,
    For,
    If,
    Kernel,
    Prefetch,
    Set,
    Stmt,
    Store,
    StoreTile,
    Wait,
    While,
)
from alpenglow.kernel.tokens import KINDS, RESERVED

__all__ = ["parse_kernel", "print_expr", "print_kernel"]

_SPACED = {op: sign if level == 7 else f" {sign} " for op, (sign, level) in INFIX.items()}
_KEYWORDS = {kind: word for word, kind in KINDS.items()}


def print_kernel(k: Kernel) -> str:
    """Return the text of `k`."""
    operands = ", ".join(f"{_word(b.name)}: {_access(b)}{b.dtype}{_align(b)}" for b in k.buffers)
    extents = f" extents({', '.join(_word(e.name) for e in k.extents)})" if k.extents else ""
    subgroup = f" subgroup {k.subgroup}" if k.subgroup > 1 else ""
    lines = [f"kernel @{_word(k.name)}({operands}){extents}{subgroup} {{"]
    lines += (
        f"  array {_word(a.name)}: {a.dtype}[{a.size}] {a.space}{_align(a)}" for a in k.arrays
    )
    _print_block(k.body, "  ", lines, set())
    return "\n".join([*lines, "}", ""])


def _access(b: Buffer) -> str:
    return ("volatile " if b.volatile else "") + ("mut " if b.mutable else "")


def _print_block(body: Iterable[Stmt], pad: str, lines: list[str], typed: set[str]) -> None:
    for s in body:
        match s:
            case Set(Register(name) as register, value):
                declared = "" if name in typed else f": {type_text(register)}"
                typed.add(name)
                lines.append(f"{pad}{_word(name)}{declared} = {print_expr(value)}")
            case Store(buffer, at, value, mask):
                lines.append(f"{pad}{_word(buffer.name)}{_place(at, mask)} = {print_expr(value)}")
            case StoreTile(buffer, at, stride, value):
                place = f"{_word(buffer.name)}[{print_expr(at)}, {print_expr(stride)}]"
                lines.append(f"{pad}{place} = {print_expr(value)}")
            case For(index, extent, inner, kind, strips):
                head = f"{_KEYWORDS[kind]} {_word(index.name)} in {print_expr(extent)}"
                head += f" strips {strips}" if strips > 1 else ""
                lines.append(f"{pad}{head} {{")
                _print_block(inner, pad + "  ", lines, typed)
                lines.append(pad + "}")
            case If(condition, then, orelse):
                lines.append(f"{pad}if {print_expr(condition)} {{")
                _print_block(then, pad + "  ", lines, typed)
                if orelse:
                    lines.append(pad + "} else {")
                    _print_block(orelse, pad + "  ", lines, typed)
                lines.append(pad + "}")
            case While(condition, inner):
                lines.append(f"{pad}while {print_expr(condition)} {{")
                _print_block(inner, pad + "  ", lines, typed)
                lines.append(pad + "}")
            case Atomic(op, buffer, at, value):
                place = _word(buffer.name) + _place(at, None)
                lines.append(f"{pad}atomic.{op} {place} = {print_expr(value)}")
            case Prefetch(buffer, at, later):
                word = "prefetch.later" if later else "prefetch"
                lines.append(f"{pad}{word} {_word(buffer.name)}{_place(at, None)}")
            case Copy(to, at, source, source_at, lanes, mask):
                place = _word(to.name) + _place(at, None)
                loaded = print_expr(Load(source, source_at, lanes, mask))
                lines.append(f"{pad}copy {place} = {loaded}")
            case Commit():
                lines.append(pad + "commit")
            case Wait(left):
                lines.append(f"{pad}wait {left}")
            case Barrier(scope):
                lines.append(pad + ("barrier" if scope == "group" else f"barrier {scope}"))


def print_expr(e: Expr, least: int = 0) -> str:
    """Return the text of `e`, in parentheses if it binds less tightly than `least`."""
    match e:
        case Const():
            return _constant(e)
        case Index(name) | Register(name):
            return _word(name)
        case Binary(op, x, y) if op in INFIX:
            level = INFIX[op][1]
            text = f"{print_expr(x, level)}{_SPACED[op]}{print_expr(y, level + 1)}"
            return text if level >= least else f"({text})"
        case Load(buffer, at, lanes, mask, operand):
            width = ".operand" if operand else f".{lanes}" if lanes > 1 else ""
            return f"{_word(buffer.name)}{width}{_place(at, mask)}"
        case Fma(x, y, z):
            return f"fma({print_expr(x)}, {print_expr(y)}, {print_expr(z)})"
        case Splat(x, lanes):
            return f"splat.{lanes}({print_expr(x)})"
        case Unary(op, x):
            return f"{op}({print_expr(x)})"
        case Binary(op, x, y):
            return f"{op}({print_expr(x)}, {print_expr(y)})"
        case Compare(op, x, y):
            text = f"{print_expr(x, 2)}{_SPACED[op]}{print_expr(y, 2)}"
            return text if least <= 1 else f"({text})"
        case Select(condition, x, y):
            return f"select({print_expr(condition)}, {print_expr(x)}, {print_expr(y)})"
        case Convert(x, dtype):
            return f"{dtype}({print_expr(x)})"
        case Bitcast(x, dtype):
            return f"bits.{dtype}({print_expr(x)})"
        case Lanes(lanes):
            return f"lanes.{lanes}"
        case Reduce(op, x):
            return f"reduce.{op}({print_expr(x)})"
        case Shuffle(x, order):
            return f"shuffle({print_expr(x)}, [{', '.join(map(str, order))}])"
        case Blend(x, y, order):
            return f"blend({print_expr(x)}, {print_expr(y)}, [{', '.join(map(str, order))}])"
        case Lookup(table, at):
            return f"lookup({print_expr(at)}, [{', '.join(map(repr, table))}])"
        case Tile(buffer, at, stride, (rows, columns)):
            place = f"[{print_expr(at)}, {print_expr(stride)}]"
            return f"{_word(buffer.name)}.{rows}x{columns}{place}"
        case Mma(acc, x, y):
            return f"mma({print_expr(acc)}, {print_expr(x)}, {print_expr(y)})"
        case Across(op, x, at):
            where = "" if at is None else f", {print_expr(at)}"
            return f"across.{op}({print_expr(x)}{where})"
        case Intrinsic(name, args):
            return f"@{name}({', '.join(map(print_expr, args))})"
    raise AssertionError(f"no text for {type(e).__name__}")


def _place(at: Expr, mask: Expr | None) -> str:
    return f"[{print_expr(at)}]" if mask is None else f"[{print_expr(at)} if {print_expr(mask)}]"


def _constant(c: Const) -> str:
    if c.dtype == "i64" and c.shape is None:
        return repr(int(c.value)) if c.lanes == 1 else f"{int(c.value)!r}:i64x{c.lanes}"
    if c.dtype == "bool" and c.shape is None:
        return ("true" if c.value else "false") + (f":boolx{c.lanes}" if c.lanes > 1 else "")
    value = float(c.value) if c.dtype in FLOATS | NARROW_FLOATS else int(c.value)
    return f"{value!r}:{type_text(c)}"


def _align(b: Buffer) -> str:
    return f" align {b.align}" if b.align else ""


def _word(name: str) -> str:
    if name.isidentifier() and name.isascii() and name not in RESERVED:
        return name
    return json.dumps(name)

"""Vectors of no more lanes than a target has."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.across import Across
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Blend,
    Const,
    Expr,
    Intrinsic,
    Lanes,
    Load,
    Reduce,
    Register,
    Shuffle,
    Splat,
    children,
    fold,
    rebuilt,
)
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.legalise.lacks import Lacks
from alpenglow.kernel.legalise.parts import gathered
from alpenglow.kernel.rewrite import Rewriter
from alpenglow.kernel.stmt import Atomic, Kernel, Set, Store


def without_long_vectors(kernel: Kernel, lacks: Lacks) -> Kernel:
    """x op y of N lanes  =>  the same of parts of W lanes, the largest power of two that divides N.

    A register becomes one register a part.  Lanes that move among each other are taken from the
    parts that they are in, and the halves that `Reduce` combines are parts as long as there are
    two.  All parts of what is stored are computed before the first is written.
    """
    limited = lacks.lanes or lacks.element
    return _Split(kernel, lacks).rewritten() if limited else kernel


class _Split(Rewriter):
    """Rebuilds a kernel; each expression becomes one part, or several."""

    def __init__(self, kernel: Kernel, lacks: Lacks) -> None:
        super().__init__(kernel)
        self.lacks = lacks

    def width(self, dtype: str, lanes: int) -> int:
        """Return how many lanes the parts of a vector have."""
        if self.lacks.element and DTYPES[dtype].itemsize > self.lacks.element:
            return 1
        return min(lanes & -lanes, self.lacks.lanes) if self.lacks.lanes else lanes

    # ── statements ──

    def set(self, s: Set) -> None:
        values = self.split(s.value)
        registers = self.split_register(s.register)
        if len(values) == 1:
            self.b.add(s if values[0] is s.value else Set(s.register, values[0]))
            return
        names = {r.name for r in registers}
        for register, value in zip(registers, values, strict=True):
            if _reads(value, names - {register.name}):
                values = tuple(map(self.b.var, values))
                break
        for register, value in zip(registers, values, strict=True):
            self.b.set(register, value)

    def split_register(self, r: Register) -> tuple[Register, ...]:
        width = self.width(r.dtype, r.lanes)
        if width == r.lanes or r.shape is not None:
            return (r,)
        return tuple(Register(f"{r.name}_{i}", r.dtype, width) for i in range(r.lanes // width))

    def store(self, s: Store) -> None:
        width = self.width(s.value.dtype, s.value.lanes)
        if width == s.value.lanes:
            super().store(s)
            return
        values = list(map(self.b.let, self.split(s.value)))
        at = self.places(s.at, width, len(values))
        masks = self.masks(s.mask, width, len(values))
        for place, value, mask in zip(at, values, masks, strict=True):
            self.b.store(s.buffer, place, value, mask)

    def atomic(self, s: Atomic) -> None:
        if s.value.lanes == 1:
            super().atomic(s)
            return
        values, places = (list(map(self.b.let, self.split(e, 1))) for e in (s.value, s.at))
        for place, value in zip(places, values, strict=True):
            self.b.atomic(s.op, s.buffer, place, value)

    def places(self, at: Expr, width: int, count: int) -> Sequence[Expr]:
        """Return the addresses of all parts of a load or store."""
        if at.lanes > 1:
            return [self.b.let(x) for x in self.split(at, width)]
        first = self.b.let(self.expr(at))
        return [fold("add", first, Const(i * width)) for i in range(count)]

    def masks(self, mask: Expr | None, width: int, count: int) -> Sequence[Expr | None]:
        if mask is None:
            return [None] * count
        return [self.b.let(x) for x in self.split(mask, width)]

    # ── expressions ──

    def expr(self, e: Expr) -> Expr:
        (whole,) = self.split(e)
        return whole

    def split(self, e: Expr, width: int = 0) -> tuple[Expr, ...]:
        """Return the parts of a vector; parts of `width` lanes if that is not 0."""
        if id(e) not in self.known:
            self.known[id(e)] = self.divided(e)
        parts = self.known[id(e)]
        if width in (0, parts[0].lanes):
            return parts
        parts = tuple(map(self.b.let, parts))
        return tuple(gathered(self.b, parts, range(i, i + width)) for i in range(0, e.lanes, width))

    def divided(self, e: Expr) -> tuple[Expr, ...]:
        if e.shape is not None:
            return (rebuilt(e, tuple(map(self.expr, children(e)))),)  # fragments are no vectors
        width = self.width(e.dtype, e.lanes)
        count = e.lanes // width
        match e:
            case Const(value, dtype):
                return (e,) if count == 1 else (Const(value, dtype, width),) * count
            case Register():
                return self.split_register(e)
            case Lanes():
                return (
                    (e,) if count == 1 else tuple(_ramp(i, width) for i in range(0, e.lanes, width))
                )
            case Splat(x) if count == 1:
                return (rebuilt(e, (self.expr(x),)),)
            case Splat(x):
                one = self.b.let(self.expr(x))
                return (one if width == 1 else Splat(one, width),) * count
            case Load():
                return self.loaded(e, width, count)
            case Shuffle(x, order):
                return self.moved(e, (x,), order, width)
            case Blend(x, y, order):
                return self.moved(e, (x, y), order, width)
            case Reduce(op, x):
                return (self.reduced(e, op, self.split(x)),)
            case Bitcast(x) if x.lanes != e.lanes:
                return self.regrouped(e, x, width)
            case Across(_, x, at):
                rest = () if at is None else (self.b.let(self.expr(at)),)
                return tuple(rebuilt(e, (part, *rest)) for part in self.split(x, width))
            case Intrinsic(name) if INTRINSICS[name].together:
                assert count == 1, f"{name} of {e.lanes} lanes goes before its vectors do"
        columns = zip(*(self.split(x, width) for x in children(e)), strict=True)
        return tuple(rebuilt(e, column) for column in columns) if children(e) else (e,)

    def loaded(self, e: Load, width: int, count: int) -> tuple[Expr, ...]:
        if count == 1:
            return (rebuilt(e, tuple(map(self.expr, children(e)))),)
        at = self.places(e.at, width, count)
        masks = self.masks(e.mask, width, count)
        return tuple(
            Load(e.buffer, place, width, mask) for place, mask in zip(at, masks, strict=True)
        )

    def moved(
        self, e: Expr, operands: tuple[Expr, ...], order: tuple[int, ...], width: int
    ) -> tuple[Expr, ...]:
        split = [self.split(x) for x in operands]
        if all(len(parts) == 1 for parts in split) and width == len(order):
            return (rebuilt(e, tuple(parts[0] for parts in split)),)
        parts = [self.b.let(x) for parts in split for x in parts]
        return tuple(
            gathered(self.b, parts, order[i : i + width]) for i in range(0, len(order), width)
        )

    def reduced(self, e: Expr, op: str, parts: tuple[Expr, ...]) -> Expr:
        assert len(parts).bit_count() == 1, f"{len(parts)} parts have no halves"
        if len(parts) == 1:
            return parts[0] if parts[0].lanes == 1 else rebuilt(e, parts)
        while len(parts) > 1:
            half = len(parts) // 2
            pairs = zip(parts[:half], parts[half:], strict=True)
            parts = tuple(self.b.let(Binary(op, x, y)) for x, y in pairs)
        return parts[0] if parts[0].lanes == 1 else Reduce(op, parts[0])

    # ── bits in other lanes ──

    def regrouped(self, e: Bitcast, x: Expr, width: int) -> tuple[Expr, ...]:
        """Return the bits of x in lanes of another size, by parts of the same number of bits."""
        size, own = DTYPES[x.dtype].itemsize, DTYPES[e.dtype].itemsize
        if len(self.split(x)) == 1 and width == e.lanes:
            return (rebuilt(e, self.split(x)),)
        common = min(size * self.split(x)[0].lanes, own * width)
        if common < max(size, own):
            scalars = [self.b.let(v) for v in self.split(x, 1)]
            same = self.cut(scalars, e) if size > own else self.put_together(scalars, e)
        else:
            same = [self.b.let(Bitcast(v, e.dtype)) for v in self.split(x, common // size)]
        if same[0].lanes == width:
            return tuple(same)
        return tuple(gathered(self.b, same, range(i, i + width)) for i in range(0, e.lanes, width))

    def cut(self, scalars: list[Expr], e: Bitcast) -> list[Expr]:
        """Return the parts of numbers, the lowest first, as scalars."""
        bits = 8 * DTYPES[e.dtype].itemsize
        count = e.lanes // len(scalars)
        wide = [self.bits(x) for x in scalars]
        narrow = f"u{bits}"
        return [
            self.as_kind(self.m.cast(self.m.shift_right(x, i * bits), narrow), e.dtype)
            for x in wide
            for i in range(count)
        ]

    def put_together(self, scalars: list[Expr], e: Bitcast) -> list[Expr]:
        """Return numbers of the bits of several, the lowest first, as scalars."""
        if e.dtype == "c128":
            raise self.unsupported("f64 as c128")
        bits = 8 * DTYPES[scalars[0].dtype].itemsize
        count = len(scalars) // e.lanes
        kind = f"u{8 * DTYPES[e.dtype].itemsize}"
        wide = [self.m.cast(self.bits(x), kind) for x in scalars]
        numbers = []
        for first in range(0, len(wide), count):
            total = wide[first]
            for i in range(1, count):
                total = self.m.bit_or(total, self.m.shift_left(wide[first + i], i * bits))
            numbers.append(self.as_kind(total, e.dtype))
        return numbers

    def bits(self, x: Expr) -> Expr:
        """Return the bits of a scalar as an unsigned number."""
        if x.dtype == "c128":
            raise self.unsupported("c128 as f64")
        return self.as_kind(x, f"u{8 * DTYPES[x.dtype].itemsize}")

    def as_kind(self, x: Expr, dtype: str) -> Expr:
        return x if x.dtype == dtype else self.m.bits(x, dtype)

    def unsupported(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"reading the bits of {what} is not supported: the target has neither such vectors "
            f"nor 128-bit integers (kernel {self.kernel.name})"
        )


def _ramp(first: int, width: int) -> Expr:
    """Return first, first + 1, and so on."""
    return fold("add", Lanes(width), Const(first, "i64", width)) if width > 1 else Const(first)


def _reads(e: Expr, names: set[str]) -> bool:
    if isinstance(e, Register) and e.name in names:
        return True
    return any(_reads(x, names) for x in children(e))

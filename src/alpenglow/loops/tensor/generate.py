"""Loop forms of what makes tensors from indices or from types alone."""

from __future__ import annotations

from alpenglow.kernel.expr import Const, Expr, lift
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull
from alpenglow.ops.tensor.generate import Iota, Range, Shape, Size


@pull(Range)
def numbers(k: Loops, op: Range, ins: list[Source | None], at: list[Coord]) -> Expr:
    # Integers are counted in i64 and wrap to their type, short floats in f32.
    kind = op.dtype if op.dtype in ("f32", "f64") else "f32" if "f" in op.dtype else "i64"
    steps = k.m.mul(k.m.cast(at[0].expr(), kind), op.step)
    return k.m.cast(k.m.add(steps, op.start), op.dtype if kind == "i64" else kind)


@pull(Iota)
def iota(k: Loops, op: Iota, ins: list[Source | None], at: list[Coord]) -> Expr:
    return at[op.axis].expr()


@pull(Shape)
def shape(k: Loops, op: Shape, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    value: Expr = Const(0)
    for i, extent in enumerate(x.shape[op.start : op.end]):
        value = k.select(at[0].compare("eq", i), lift(extent), value)
    return value


@pull(Size)
def size(k: Loops, op: Size, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    return lift(x.type.size)

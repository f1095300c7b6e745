"""The loop form of functions that take as many turns as each element needs: one after the other."""

from __future__ import annotations

from typing import Any

from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.ops.elementwise.iterated import Gcd, Iterated, Orthogonal, narrowed


@push(Gcd, Orthogonal)
def iterated(k: Loops, op: Iterated, ins: list[Source | None], outs: list[Sink]) -> None:
    with k.parallel(outs[0].shape) as at:
        operands = [x(at) for x in ins if x is not None]
        state = [k.b.var(number(v)) for v in op.first(k.m, *operands)]
        going = k.b.var(op.goes_on(k.m, tuple(state)))
        with k.b.repeat_while(going):
            after = [k.b.var(number(v)) for v in op.turn(k.m, tuple(state))]
            for register, v in zip(state, after, strict=True):
                k.b.set(register, v)
            k.b.set(going, op.goes_on(k.m, tuple(state)))
        narrow = narrowed(operands[0].dtype)
        outs[0].store(at, k.m.cast(op.last(k.m, tuple(state)), narrow))


def number(v: Any) -> Expr:
    """Return an entry of a state as an expression: a number of Python's is an f64."""
    return v if isinstance(v, Expr) else Const(float(v), "f64")

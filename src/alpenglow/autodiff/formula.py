"""Derivatives of elementwise operators, from their formulas.

An elementwise operator needs no rule: its `scalar` formula has a third reading, besides NumPy and
kernels, over values of a graph that carry a *tangent*, what they change by.  The Jacobian of such
an operator is diagonal, so pulling a gradient back is the same as pushing it forward: the gradient
of the result goes in as the tangent of an operand, and what comes out is the operand's gradient.

`PARTIALS` says what each function of the math vocabulary does to tangents.  A choice (`where`,
`maximum`) chooses among tangents, it does not multiply them by 0: so what was not chosen may be
infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Elementwise, Op, is_half
from alpenglow.ir.types import FLOATS
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Ceil,
    Div,
    Floor,
    Fmod,
    Maximum,
    Minimum,
    Mod,
    Mul,
    Neg,
    Pow,
    Round,
    Sign,
    Sub,
)
from alpenglow.ops.elementwise.comparison import (
    Equal,
    Greater,
    GreaterOrEqual,
    IsInf,
    IsNaN,
    Less,
    LessOrEqual,
)
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr, BitXor, ShiftLeft, ShiftRight
from alpenglow.ops.elementwise.select import BitCast, Where
from alpenglow.ops.elementwise.transcendental import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cos,
    Cosh,
    Erf,
    Exp,
    Log,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)
from alpenglow.ops.reduction.reduction import as_type, filled
from alpenglow.ops.tensor.movement import Broadcast

Scalar = Value | float
"""A tensor, standing for its elements, or a Python number."""

OPERATORS: dict[str, Op] = {
    "add": Add(), "sub": Sub(), "mul": Mul(), "div": Div(), "mod": Mod(), "fmod": Fmod(),
    "pow": Pow(), "neg": Neg(), "abs": Abs(), "sign": Sign(), "minimum": Minimum(),
    "maximum": Maximum(), "sqrt": Sqrt(), "exp": Exp(), "log": Log(), "sin": Sin(), "cos": Cos(),
    "tan": Tan(), "asin": Asin(), "acos": Acos(), "atan": Atan(), "sinh": Sinh(), "cosh": Cosh(),
    "tanh": Tanh(), "asinh": Asinh(), "acosh": Acosh(), "atanh": Atanh(), "erf": Erf(),
    "floor": Floor(), "ceil": Ceil(), "round": Round(), "isnan": IsNaN(), "isinf": IsInf(),
    "bit_and": BitAnd(), "bit_or": BitOr(), "bit_xor": BitXor(), "bit_not": BitNot(),
    "shift_left": ShiftLeft(), "shift_right": ShiftRight(), "eq": Equal(), "lt": Less(),
    "le": LessOrEqual(), "gt": Greater(), "ge": GreaterOrEqual(),
}  # fmt: skip
"""The operator that is one function of the vocabulary."""


class GraphMath:
    """The vocabulary on values of a graph: each function appends a node, equal ones once."""

    def __init__(self, g: Graph, dtype: str) -> None:
        self._g = g
        self._dtype = dtype  # of a choice between numbers
        self._made: dict[tuple[Op, tuple[Value, ...]], Value] = {}

    def __getattr__(self, name: str) -> Callable[..., Scalar]:
        if name not in OPERATORS:
            raise AttributeError(f"the math vocabulary has no '{name}'")
        return partial(self._apply, name)

    def ne(self, x: Scalar, y: Scalar) -> Scalar:
        return self._apply("bit_not", self._apply("eq", x, y))

    def where(self, condition: Scalar, x: Scalar, y: Scalar) -> Scalar:
        if not isinstance(condition, Value):
            return x if condition else y
        like = next((v for v in (x, y) if isinstance(v, Value)), None)
        if like is None:
            number = self._g.constant(np.asarray(x, condition.type.with_dtype(self._dtype).numpy))
            x = like = self._g(Broadcast(condition.type.shape), number)
        return self._node(Where(), condition, self._tensor(x, like), self._tensor(y, like))

    def cast(self, x: Scalar, dtype: str) -> Scalar:
        return as_type(self._g, x, dtype) if isinstance(x, Value) else x

    def bits(self, x: Scalar, dtype: str) -> Scalar:
        assert isinstance(x, Value), "a number has no type whose bits could be read"
        return self._node(BitCast(dtype), x)

    def _apply(self, name: str, *xs: Scalar) -> Scalar:
        like = next((x for x in xs if isinstance(x, Value)), None)
        if like is None:
            with np.errstate(all="ignore"):
                result = getattr(NUMPY, name)(*xs)
            return bool(result) if isinstance(result, np.bool_ | bool) else float(result)
        return self._node(OPERATORS[name], *(self._tensor(x, like) for x in xs))

    def _tensor(self, x: Scalar, like: Value) -> Value:
        return x if isinstance(x, Value) else filled(self._g, x, like)

    def _node(self, op: Op, *xs: Value) -> Value:
        if (op, xs) not in self._made:
            self._made[op, xs] = self._g(op, *xs)
        return self._made[op, xs]


Partial = Callable[..., Scalar]
"""The share of an operand's tangent t in the tangent of y: (vocabulary, t, y, *operands)."""


def _chosen(m: Any, t: Scalar, mine: Scalar, other: Scalar, ahead: str) -> Scalar:
    """Return t where `mine` is `ahead` of the other operand, half of it where they are equal.

    A limit that is a number in the formula counts as ahead: a relu is flat at 0.
    """
    tie = m.where(m.eq(mine, other), m.mul(t, 0.5), 0.0) if isinstance(other, Value) else 0.0
    share: Scalar = m.where(getattr(m, ahead)(mine, other), t, tie)
    return share


PARTIALS: dict[str, tuple[Partial, ...]] = {
    "add": (lambda m, t, y, a, b: t, lambda m, t, y, a, b: t),
    "sub": (lambda m, t, y, a, b: t, lambda m, t, y, a, b: m.neg(t)),
    "mul": (lambda m, t, y, a, b: m.mul(t, b), lambda m, t, y, a, b: m.mul(t, a)),
    "div": (
        lambda m, t, y, a, b: m.div(t, b),
        lambda m, t, y, a, b: m.neg(m.div(m.mul(t, y), b)),
    ),
    "mod": (
        lambda m, t, y, a, b: t,
        lambda m, t, y, a, b: m.mul(t, m.round(m.div(m.sub(y, a), b))),
    ),
    "fmod": (
        lambda m, t, y, a, b: t,
        lambda m, t, y, a, b: m.mul(t, m.round(m.div(m.sub(y, a), b))),
    ),
    "pow": (
        lambda m, t, y, a, b: m.where(
            m.eq(b, 0.0), 0.0, m.mul(t, m.mul(b, m.pow(a, m.sub(b, 1.0))))
        ),
        lambda m, t, y, a, b: m.where(m.eq(a, 0.0), 0.0, m.mul(t, m.mul(y, m.log(a)))),
    ),
    "neg": (lambda m, t, y, a: m.neg(t),),
    "abs": (lambda m, t, y, a: m.mul(t, m.sign(a)),),
    "minimum": (
        lambda m, t, y, a, b: _chosen(m, t, a, b, "lt"),
        lambda m, t, y, a, b: _chosen(m, t, b, a, "lt"),
    ),
    "maximum": (
        lambda m, t, y, a, b: _chosen(m, t, a, b, "gt"),
        lambda m, t, y, a, b: _chosen(m, t, b, a, "gt"),
    ),
    "sqrt": (lambda m, t, y, a: m.div(m.mul(t, 0.5), y),),
    "exp": (lambda m, t, y, a: m.mul(t, y),),
    "log": (lambda m, t, y, a: m.div(t, a),),
    "sin": (lambda m, t, y, a: m.mul(t, m.cos(a)),),
    "cos": (lambda m, t, y, a: m.neg(m.mul(t, m.sin(a))),),
    "tan": (lambda m, t, y, a: m.mul(t, m.add(m.mul(y, y), 1.0)),),
    "asin": (lambda m, t, y, a: m.div(t, m.sqrt(m.sub(1.0, m.mul(a, a)))),),
    "acos": (lambda m, t, y, a: m.neg(m.div(t, m.sqrt(m.sub(1.0, m.mul(a, a))))),),
    "atan": (lambda m, t, y, a: m.div(t, m.add(m.mul(a, a), 1.0)),),
    "sinh": (lambda m, t, y, a: m.mul(t, m.cosh(a)),),
    "cosh": (lambda m, t, y, a: m.mul(t, m.sinh(a)),),
    "tanh": (lambda m, t, y, a: m.mul(t, m.sub(1.0, m.mul(y, y))),),
    "asinh": (lambda m, t, y, a: m.div(t, m.sqrt(m.add(m.mul(a, a), 1.0))),),
    "acosh": (lambda m, t, y, a: m.div(t, m.mul(m.sqrt(m.sub(a, 1.0)), m.sqrt(m.add(a, 1.0)))),),
    "atanh": (lambda m, t, y, a: m.div(t, m.sub(1.0, m.mul(a, a))),),
    "erf": (lambda m, t, y, a: m.mul(t, m.mul(m.exp(m.neg(m.mul(a, a))), 2 / math.sqrt(math.pi))),),
}
"""Functions that are not here are flat between their steps, or have other results than floats."""


@dataclass(frozen=True, slots=True)
class Moving:
    """A scalar of a formula with its tangent, None where it does not change."""

    value: Scalar
    tangent: Scalar | None = None

    @property
    def dtype(self) -> str:
        """The element type, which formulas of conversions look at."""
        assert isinstance(self.value, Value), "a number has no element type"
        return self.value.type.dtype


class Tangents:
    """The vocabulary on scalars with tangents."""

    def __init__(self, m: GraphMath) -> None:
        self._m = m

    def __getattr__(self, name: str) -> Callable[..., Moving]:
        return partial(self._apply, name)

    def _apply(self, name: str, *xs: Any) -> Moving:
        operands = [_moving(x) for x in xs]
        values = [x.value for x in operands]
        y = getattr(self._m, name)(*values)
        total: Scalar | None = None
        for x, rule in zip(operands, PARTIALS.get(name, ()), strict=False):
            if x.tangent is not None:
                part = rule(self._m, x.tangent, y, *values)
                total = part if total is None else self._m.add(total, part)
        return Moving(y, total)

    def where(self, condition: Any, x: Any, y: Any) -> Moving:
        c, a, b = _moving(condition), _moving(x), _moving(y)
        value = self._m.where(c.value, a.value, b.value)
        if a.tangent is None and b.tangent is None:
            return Moving(value)
        tangents = [0.0 if v.tangent is None else v.tangent for v in (a, b)]
        return Moving(value, self._m.where(c.value, *tangents))

    def cast(self, x: Any, dtype: str) -> Moving:
        x = _moving(x)
        value = self._m.cast(x.value, dtype)
        if x.tangent is None or dtype not in FLOATS:
            return Moving(value)
        return Moving(value, self._m.cast(x.tangent, dtype))

    def bits(self, x: Any, dtype: str) -> Moving:
        x = _moving(x)
        if x.tangent is not None:
            raise UnsupportedError("gradient: a formula that reads float bits is not supported")
        return Moving(self._m.bits(x.value, dtype))


def _moving(x: Any) -> Moving:
    return x if isinstance(x, Moving) else Moving(x)


def pull_back(
    g: Graph, op: Elementwise, dy: Value, xs: Sequence[Value], wanted: Sequence[bool]
) -> list[Value | None]:
    """Return the gradients of the wanted operands, for the gradient `dy` of the result."""
    wide = [as_type(g, x, "f32") if is_half(x.type.numpy) else x for x in xs]
    dxs: list[Value | None] = []
    for i, x in enumerate(xs):
        moved: Scalar | None = None
        if wanted[i]:
            seed = as_type(g, dy, wide[i].type.dtype)
            m = Tangents(GraphMath(g, wide[i].type.dtype))
            operands = [Moving(v, seed if k == i else None) for k, v in enumerate(wide)]
            moved = _moving(op.scalar(m, *operands)).tangent
        if isinstance(moved, float):
            moved = filled(g, moved, x)
        dxs.append(None if moved is None else as_type(g, moved, x.type.dtype))
    return dxs

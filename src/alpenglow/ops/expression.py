"""Expressions: values of a graph that is built by hand, with Python's operators and NumPy's shapes.

An expression is a value and the graph that it belongs to.  Each operator of Python appends the
nodes that it stands for; broadcasts and constants become nodes and values of their own, as in any
graph.  Comparisons compare Python objects: `alpenglow.functions` has `less` and the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.misuse import told_of
from alpenglow.ir.op import Elementwise, Op, check_rank
from alpenglow.ir.types import DTYPES, TensorType, holds
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mod, Mul, Neg, Pow, Sub
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import stretch

Operand = Any
"""An expression, an array, which becomes a constant, a number of Python, or None (absent)."""


class Expression:
    """Write formulas such as ``x @ w + 1`` that append nodes to a graph.

    The operators take expressions of the same graph, arrays of the same element type, and numbers
    that the element type can hold.

    Args:
        graph: the graph to which nodes are appended.
        value: a value of the graph.

    Example:
        >>> g = ag.Graph("f")
        >>> x = ag.Expression(g, g.input("x", "f32[2,3]"))
        >>> _ = g.output("y", (2 * x - 1).value)
        >>> ag.compile(g)(np.ones((2, 3), np.float32)).sum()
        np.float32(6.0)
    """

    __slots__ = ("graph", "value")
    __array_ufunc__ = None  # an array to the left leaves the operator to `__radd__` and the like

    def __init__(self, graph: Graph, value: Value) -> None:
        if not isinstance(graph, Graph) or not isinstance(value, Value):
            raise TypeRuleError(
                f"an expression is of {told_of(graph)} and {told_of(value)}, "
                "expected a Graph and a Value",
                hint="Expression(g, g.input('x', 'f32[2,3]'))",
            )
        self.graph, self.value = graph, value

    @property
    def type(self) -> TensorType:
        """The element type and shape."""
        return self.value.type

    def __repr__(self) -> str:
        return f"Expression({self.value!r})"

    def __bool__(self) -> bool:
        raise TypeRuleError(
            f"bool({self}) is not supported: an expression has no elements before its graph runs",
            hint="ag.functions.where(condition, x, y)",
        )

    def __neg__(self) -> Expression:
        return one(Neg(), self)

    def __add__(self, other: Operand) -> Expression:
        return one(Add(), self, other)

    def __radd__(self, other: Operand) -> Expression:
        return one(Add(), other, self)

    def __sub__(self, other: Operand) -> Expression:
        return one(Sub(), self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return one(Sub(), other, self)

    def __mul__(self, other: Operand) -> Expression:
        return one(Mul(), self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return one(Mul(), other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return one(Div(), self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return one(Div(), other, self)

    def __mod__(self, other: Operand) -> Expression:
        return one(Mod(), self, other)

    def __rmod__(self, other: Operand) -> Expression:
        return one(Mod(), other, self)

    def __pow__(self, other: Operand) -> Expression:
        return one(Pow(), self, other)

    def __rpow__(self, other: Operand) -> Expression:
        return one(Pow(), other, self)

    def __matmul__(self, other: Operand) -> Expression:
        return one(MatMul(), self, other)

    def __rmatmul__(self, other: Operand) -> Expression:
        return one(MatMul(), other, self)


def one(op: Op, *operands: Operand) -> Expression:
    """Append an operator that has one result, and return the result."""
    (result,) = applied(op, operands)
    return result


def applied(op: Op, operands: Sequence[Operand]) -> tuple[Expression, ...]:
    """Append an operator to the graph of its operands, and return the results.

    Operands of elementwise operators are broadcast to one shape, operands of `mat_mul` along all
    axes but the last two.  Raises TypeRuleError if operands do not fit.
    """
    expressions = [x for x in operands if isinstance(x, Expression)]
    if not expressions:
        raise TypeRuleError(
            f"{op.name}: no operand is an expression, expected at least one",
            hint="Expression(g, value) of the graph g",
        )
    graph = expressions[0].graph
    if any(x.graph is not graph for x in expressions):
        names = " and ".join(dict.fromkeys(x.graph.name for x in expressions))
        raise TypeRuleError(f"{op.name}: operands belong to several graphs ({names}), expected one")
    dtype = expressions[-1].type.dtype
    values = [_value(op, x, graph, dtype) for x in operands]
    node = graph.add(op, _broadcast(op, graph, values))
    return tuple(Expression(graph, v) for v in node.results)


def _value(op: Op, x: Operand, graph: Graph, dtype: str) -> Value | None:
    """Return an operand as a value of the graph; a number becomes one of element type `dtype`."""
    if x is None:
        return None
    if isinstance(x, Expression):
        return x.value
    if isinstance(x, int | float) and not isinstance(x, bool | np.generic):
        return graph.constant(_number(op, x, dtype))
    if isinstance(x, np.ndarray | np.generic):
        return graph.constant(x)
    raise TypeRuleError(
        f"{op.name}: an operand is {told_of(x)}, expected an Expression, an array or a number"
    )


def _number(op: Op, x: float, dtype: str) -> np.ndarray[Any, Any]:
    """Return a number as an element of a type; raise TypeRuleError if the type cannot hold it."""
    try:
        with np.errstate(over="ignore"):
            array = np.array(x if holds(dtype, x) else math.nan, DTYPES[dtype])
        if not holds(dtype, x) or (math.isfinite(x) and not np.isfinite(array)):
            raise OverflowError
    except (OverflowError, ValueError):
        raise TypeRuleError(
            f"{op.name}: the number is {x}, expected one that {dtype} can hold"
        ) from None
    return array


def _broadcast(op: Op, graph: Graph, values: Sequence[Value | None]) -> list[Value | None]:
    """Return the operands of an operator, stretched as NumPy does."""
    present = [v for v in values if v is not None]
    if len(present) < 2 or not isinstance(op, Elementwise | MatMul):
        return list(values)
    if type(op).infer is Elementwise.infer:
        _check_dtypes(op, present)
    kept = 0
    if isinstance(op, MatMul):
        kept = 2
        for name, v in zip(op.operands, present, strict=False):
            check_rank(op, name, v.type, 2)
    leading = [v.type.shape[: v.type.rank - kept] for v in present]
    shape = _common(op, present, leading)
    return [
        None if v is None else stretch(graph, v, (*shape, *v.type.shape[v.type.rank - kept :]))
        for v in values
    ]


def _check_dtypes(op: Op, values: Sequence[Value]) -> None:
    """Raise TypeRuleError unless all operands have one element type."""
    first = values[0]
    for name, v in zip(op.operands[1:], values[1:], strict=False):
        if v.type.dtype != first.type.dtype:
            raise TypeRuleError(
                f"{op.name}: {op.operands[0]} is {first.type} and {name} is {v.type}, "
                "expected one element type",
                hint=f"functions.cast({name}, dtype='{first.type.dtype}')",
            )


def _common(
    op: Op, values: Sequence[Value], shapes: Sequence[tuple[Dim, ...]]
) -> tuple[Dim, ...]:
    """Return the shape that all broadcast to; two dynamic dimensions must be the same."""
    rank = max(map(len, shapes))
    common: list[Dim] = []
    for axis in range(-rank, 0):
        wide = {s[axis] for s in shapes if len(s) >= -axis} - {1}
        if len(wide) > 1:
            types = " and ".join(str(v.type) for v in values)
            raise TypeRuleError(f"{op.name}: operands are {types}, expected shapes that broadcast")
        common.append(wide.pop() if wide else 1)
    return tuple(common)


def made(cls: type[Op], attributes: Mapping[str, Any]) -> Op:
    """Return an operator with attributes by name; raise TypeRuleError if a name is wrong."""
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]  # subclasses are dataclasses
    wanted = ", ".join(known) or "none"
    if unknown := [name for name in attributes if name not in known]:
        raise TypeRuleError(f"{cls.name}: attribute {unknown[0]} is unknown, expected: {wanted}")
    try:
        return cls(**attributes)
    except TypeError:
        given = ", ".join(attributes) or "none"
        raise TypeRuleError(f"{cls.name}: attributes are {given}, expected: {wanted}") from None

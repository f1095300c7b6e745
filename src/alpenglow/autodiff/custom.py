"""Gradients that a user states in place of the gradients of nodes.

A rounded number has no slope, and a quotient may have one that overflows.  A user who knows better
says what goes back instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import COMPLEX, FLOATS
from alpenglow.ops.training.custom_gradient import CustomGradient

Backward = Callable[..., Value | Sequence[Value | None] | None]


def custom_gradient(g: Graph, y: Value, xs: Sequence[Value], backward: Backward) -> Value:
    """Return y as a function of xs whose gradients are what `backward` says.

    `backward(b, dy, *xs)` appends to a graph b what computes the gradients of xs from that of y,
    and returns one for each of xs, of its type, or None for 0; of one x it may return the gradient
    itself.  Its operands stand for dy and xs in b: other values of g it can read only if they are
    among xs.  y itself may be, and what is among xs needs not lead to y.  To what y is computed
    from no gradient goes back but by xs.

    A straight-through estimator (Bengio, Léonard and Courville, 2013):

        y = ag.custom_gradient(g, g(Round(), x), [x], lambda b, dy, x: dy)

    When a graph is compiled, or written as ONNX, y is what is left.  Raises TypeRuleError where xs
    are no floats, or `backward` returns something else.
    """
    if not xs:
        raise TypeRuleError(
            "custom_gradient: xs is empty, expected at least one value",
            hint="train.stop_gradient(g, y), which takes y as a constant",
        )
    for i, v in enumerate((y, *xs)):
        if v.type.dtype not in FLOATS | COMPLEX:
            raise TypeRuleError(
                f"custom_gradient: {f'x{i - 1}' if i else 'y'} is {v.type}, expected floats",
                hint="leave integers and bools out of xs; Cast y to f32",
            )
    b = Graph("backward")
    dy = b.input("dy", y.type)
    inside = [b.input(f"x{i}", x.type) for i, x in enumerate(xs)]
    try:
        returned = backward(b, dy, *inside)
        grads = [returned] if returned is None or isinstance(returned, Value) else list(returned)
        _check(b, grads, inside)
    except BaseException:
        for node in list(b.nodes):
            b.remove(node)  # values of g are read by them no longer
        raise
    for i, dx in enumerate(grads):
        if dx is not None:
            b.output(f"d{i}", dx)
    b.prune()
    return g.add(CustomGradient(), [y, *xs], [b]).output


def stop_gradient(g: Graph, x: Value) -> Value:
    """Return x as a constant: no gradient goes back through it."""
    return g(CustomGradient(), x)


def _check(b: Graph, grads: Sequence[Value | None], xs: Sequence[Value]) -> None:
    """Raise TypeRuleError unless there is a gradient for each x, made of dy, xs and constants."""
    if len(grads) != len(xs):
        raise TypeRuleError(
            f"custom_gradient: backward returned {len(grads)} gradients, expected {len(xs)}, one "
            "for each of xs",
            hint="None stands for a gradient of 0",
        )
    if len(b.inputs) != 1 + len(xs):
        raise TypeRuleError("custom_gradient: backward adds inputs or variables, expected none")
    known = {*b.inputs.values(), *(v for n in b.nodes for v in n.results)}
    read = [v for n in b.nodes for v in n.inputs]
    for v in (*read, *grads):
        if v is not None and v.array is None and v not in known:
            raise TypeRuleError(
                f"custom_gradient: backward reads {v} of another graph, expected dy, xs, constants",
                hint="make it one of xs, with None for its gradient",
            )
    for i, (dx, x) in enumerate(zip(grads, xs, strict=True)):
        if dx is not None and dx.type != x.type:
            raise TypeRuleError(
                f"custom_gradient: backward returned {dx.type} for x{i}, expected its type {x.type}"
            )

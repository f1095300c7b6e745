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
    """Return `y` with gradients that `backward` computes instead of the gradients of its nodes.

    Gradients reach the nodes before `y` through `xs` only.  `y` may be one of `xs`, and `xs` need
    not lead to `y`.  In a compiled or exported graph the result is `y` itself.

    Args:
        g: the graph.
        y: a value of floats.
        xs: the values that get gradients.
        backward: a function that is called as ``backward(b, dy, *xs)``.  It appends nodes to the
            graph `b` and returns a gradient for each of `xs`, or None for 0; for one `x` it may
            return the gradient itself.  It can read other values of `g` only if these are in `xs`.

    Returns:
        The value of `y`.

    Raises:
        TypeRuleError: if `xs` are not floats, or `backward` returns anything else.

    Example:
        A straight-through estimator (Bengio, Léonard and Courville, 2013):

        >>> g = ag.Graph("rounded")
        >>> x = g.input("x", "f32[2]")
        >>> y = ag.functions.round(ag.Expression(g, x)).value
        >>> y = ag.custom_gradient(g, y, [x], lambda b, dy, x: dy)
        >>> _ = g.output("dx", ag.gradients(g, y, [x])[0])
        >>> ag.compile(g)(np.array([0.2, 0.7], np.float32))
        array([1., 1.], dtype=float32)
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
    """Return `x` as a constant for gradients.

    Args:
        g: the graph.
        x: a value of floats.

    Returns:
        A value equal to `x`, whose gradient is 0.

    Example:
        >>> g = ag.Graph("f")
        >>> x = g.input("x", "f32[2]")
        >>> y = ag.Expression(g, ag.train.stop_gradient(g, x)) * ag.Expression(g, x)
        >>> _ = g.output("dx", ag.gradients(g, y.value, [x])[0])
        >>> ag.compile(g)(np.array([3, 4], np.float32))
        array([3., 4.], dtype=float32)
    """
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

"""Evaluating a graph node by node.  Slow and right: this is what every backend must agree with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

import numpy as np

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Control, Op, Primitive
from alpenglow.ir.types import NAMES, Array, TensorType
from alpenglow.ops.fused import Fused

After = Callable[[Node, Sequence[Array | None], Sequence[Array]], None]
"""A function that is called after each node, with the node, its operands and its results."""

Enter = Callable[[], None]
"""A function that is called before a loop or a branch runs a region."""


def evaluate(
    g: Graph, feeds: Mapping[str, Array],
    after: After | None = None,
    enter: Enter | None = None,
) -> dict[str, Array]:  # fmt: skip
    """Return the outputs of `g` by name, for one array an input.

    Hidden inputs that are not given are all zeros: the same random numbers every time.  Variables
    that are not given have their initial values; what is assigned to one is under its name.
    `after` each node it is told that, the operands and the results: of nodes in the regions of
    control flow, too, in each turn, and before the node that holds them.  `enter` is called before
    each run of a region.
    """
    env = {v: feeds[k] if k in feeds else _default(g, k) for k, v in g.inputs.items()}
    left = _reads(g)
    for node in g.nodes:
        arrays = [None if v is None else _lookup(env, v) for v in node.inputs]
        results = apply(node.op, arrays, node.regions, [v.type for v in node.results], after, enter)
        env.update(zip(node.results, results, strict=True))
        if after is not None:
            after(node, arrays, results)
        for v in node.inputs:
            if v is not None and v in left:
                left[v] -= 1
                if not left[v]:
                    env.pop(v, None)
    return {name: _lookup(env, v) for name, v in g.outputs.items()}


def _default(g: Graph, name: str) -> Array:
    """Return what an input holds that a caller need not give."""
    if name in g.initial and name not in g.growing:
        initial = g.initial[name].array
        assert initial is not None, "a variable begins with a constant"
        return initial
    v = g.inputs[name]
    if not v.hidden and name not in g.growing:
        raise KeyError(name)
    return np.zeros(v.type.extents, v.type.numpy)


def apply(
    op: Op,
    arrays: Sequence[Array | None],
    regions: Sequence[Graph] = (),
    expected: Sequence[TensorType] = (),
    after: After | None = None,
    enter: Enter | None = None,
) -> tuple[Array, ...]:
    """Apply one operator to arrays; assert that the results have the types its rule promised.

    `after` and `enter` are called for the regions of control flow, as `evaluate` says.
    """
    match op:
        case Primitive():
            outputs = op.reference(*arrays)
            results = outputs if isinstance(outputs, tuple) else (outputs,)
        case Composite():
            types = tuple(
                None if a is None else t for a, t in zip(arrays, _types(arrays), strict=True)
            )
            body = expand(op, types)
            operands = [a for a in arrays if a is not None]
            results = tuple(evaluate(body, dict(zip(body.inputs, operands, strict=True))).values())
        case Fused():
            (region,) = regions
            results = tuple(_run(region, arrays))
        case Control():
            results = tuple(op.run(regions, partial(_run, after=after, enter=enter), *arrays))
        case _:
            raise AssertionError(f"{op.name} has no meaning in a graph")
    for array, t in zip(results, expected, strict=bool(expected)):
        assert array.shape == t.extents and array.dtype == t.numpy, (
            f"{op}: made {array.dtype}{array.shape}, its type rule says {t}"
        )
    return results


def _run(
    region: Graph,
    arrays: Sequence[Array | None],
    after: After | None = None,
    enter: Enter | None = None,
) -> list[Array]:
    """Return the outputs of a region, for one array an input."""
    if enter is not None:
        enter()
    feeds = {k: a for k, a in zip(region.inputs, arrays, strict=True) if a is not None}
    return list(evaluate(region, feeds, after, enter).values())


@cache
def expand(op: Composite, types: tuple[TensorType | None, ...]) -> Graph:
    """Return the graph that a composite stands for, on operands of the given types."""
    g = Graph(op.name)
    values = [None if t is None else g.input(f"x{i}", t) for i, t in enumerate(types)]
    body = op.lower(g, *values)
    for i, v in enumerate([body] if isinstance(body, Value) else body):
        g.output(f"y{i}", v)
    g.prune()
    return g


def _types(arrays: Sequence[Array | None]) -> list[TensorType | None]:
    return [None if a is None else TensorType(NAMES[a.dtype], a.shape) for a in arrays]


def _lookup(env: Mapping[Value, Array], v: Value) -> Array:
    return v.array if v.array is not None else env[v]


def _reads(g: Graph) -> dict[Value, int]:
    """Return how often each computed value is read; outputs count once more."""
    left: dict[Value, int] = {}
    reads: list[Node] = list(g.nodes)
    for node in reads:
        for v in node.inputs:
            if v is not None and v.array is None:
                left[v] = left.get(v, 0) + 1
    for v in g.outputs.values():
        left[v] = left.get(v, 0) + 1
    return left

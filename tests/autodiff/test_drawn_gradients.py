"""Gradients of what is drawn: operators beside their examples, and random graphs, in f64."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from test_gradients import EXAMPLES, SYMMETRIC, applies, of_example, smooth, types_of

from alpenglow.autodiff import gradients
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.extras.ml.probability import Couple
from alpenglow.frontends import load
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from differences import Array, Unsettled, check, weighted_sum
from drawn_operators import Application, drawn_from
from fuzz import models

FLOATS = frozenset({"f16", "bf16", "f32"})
"""What is computed in f64 instead."""

LARGEST = 6000
"""The most elements of what is differentiated."""

Compared = Counter[str]
"""How often gradients were compared, and why they were not."""


# ── operators ──


def named(name: str) -> list[Application]:
    return [(op, operands) for op, operands in EXAMPLES if op.name == name]


def compare_operator(op: Op, operands: tuple[object, ...]) -> str:
    """Check the gradients of one operator; return "compared", or why they were not."""
    if not applies(op, types_of(operands)):
        return "not of f64 alone"
    g, y, feeds = of_example(op, operands)
    try:
        gradients(g, y, [v for v in g.inputs.values() if v.type.dtype == "f64"])
    except UnsupportedError:
        return "without gradient"
    g.output("total", y)
    if not smooth(op, g, feeds):
        return "not smooth"
    try:
        check(g, y, feeds, symmetric=op.name in SYMMETRIC)
    except Unsettled:
        return "on an edge"
    return "compared"


def compare_operators(name: str, seeds: range) -> Compared:
    found = Compared()
    for seed in seeds:
        application = drawn_from(named(name), np.random.default_rng([seed, len(name)]))
        if application is not None:
            try:
                found[compare_operator(*application)] += 1
            except AssertionError as error:
                raise AssertionError(f"{application}: {error}") from error
    return found


# Pivots that are drawn are none that a factorization makes.
NAMES = sorted({op.name for op, _ in EXAMPLES} - {"solve_ldl"})

FAMILIES = (
    "attention", "average_pool", "batch_norm_training", "conv", "conv_transpose", "group_norm",
    "layer_norm", "local_response_norm", "lp_norm", "lp_pool", "max_pool", "mean_variance_norm",
    "pad", "reduce_mean", "rmsnorm", "slice", "softmax",
)  # fmt: skip
"""Operators with attributes that say much."""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(10, *FAMILIES)
def test_gradients_of_drawn_operators_agree_with_differences(name: str) -> None:
    compare_operators(name, range(4))


@pytest.mark.rest
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_many_drawn_operators_agree_with_differences(name: str) -> None:
    compare_operators(name, range(4, 40))


# ── graphs ──


def drawn_graph(seed: int) -> tuple[Graph, dict[str, Array]] | str:
    """Return the graph of a random model in f64 and what to feed it, or why there is none."""
    draft = models.draft(seed)
    shapes = {k: a.shape for k, a in draft.feeds().items()}
    try:
        loaded = load(draft.model().SerializeToString(), shapes)
        if not isinstance(loaded, Graph):
            return "in stages"
        graph = widened(loaded)
    except AlpenglowError:
        return "not in f64"
    random = np.random.default_rng(seed)
    feeds = {}
    for name, array in draft.feeds().items():
        if name in graph.inputs and graph.inputs[name].type.dtype == "f64":
            apart = random.uniform(-0.01, 0.01, array.shape)
            feeds[name] = np.clip(array.astype(np.float64), -4, 4) + apart
        elif name in graph.inputs:
            feeds[name] = array
    return graph, feeds


def widened(graph: Graph) -> Graph:
    """Return a graph that computes in f64 what another does in smaller floats."""
    new = Graph("drawn")
    env: dict[Value, Value] = {}
    for name, v in graph.inputs.items():
        env[v] = new.input(name, v.type.with_dtype("f64") if v.type.dtype in FLOATS else v.type)
    for v in graph.constants():
        small = v.array is not None and v.type.dtype in FLOATS
        env[v] = new.constant(v.array.astype(np.float64)) if small else Value(
            v.type, v.name, array=v.array)  # fmt: skip
    for node in graph.nodes:
        operands = [None if v is None else env[v] for v in node.inputs]
        copy = new.add(in_f64(node.op), operands, node.regions)
        env.update(zip(node.results, copy.results, strict=True))
    for name, v in graph.outputs.items():
        new.output(name, env[v])
    return new


def in_f64(op: Op) -> Op:
    """Return an operator with f64 where an attribute of it is a smaller float."""
    attributes = dict(op.__dict__)
    small = [k for k, v in attributes.items() if isinstance(v, str) and v in FLOATS]
    return type(op)(**attributes | dict.fromkeys(small, "f64")) if small else op


def compare_graph(seed: int) -> str:
    """Check the gradients of a random graph; return "compared", or why they were not."""
    drawn = drawn_graph(seed)
    if isinstance(drawn, str):
        return drawn
    g, feeds = drawn
    ys, xs = ([v for v in vs.values() if v.type.dtype == "f64"] for vs in (g.outputs, g.inputs))
    if not ys or not xs:
        return "of integers"
    if sum(v.type.size for v in (*ys, *xs)) > LARGEST:
        return "large"
    if not finite(g, feeds):
        return "infinite"
    if any(isinstance(n.op, Couple) for n in g.nodes):
        return "ends where it is near enough"  # which differences are not
    g.outputs.clear()
    y = weighted_sum(g, ys)
    try:
        gradients(g, y, xs)
    except UnsupportedError:
        return "without gradient"
    try:
        check(g, y, feeds)
    except Unsettled:
        return "on an edge"
    except AssertionError as error:
        raise AssertionError(f"seed {seed}, {[n.op for n in g.nodes][:20]}: {error}") from error
    return "compared"


def finite(g: Graph, feeds: dict[str, Array]) -> bool:
    """Whether all that is computed is finite, on the way too."""
    whole = g.copy()
    for node in whole.nodes:
        for v in node.results:
            whole.outputs[f"{v.name} {len(whole.outputs)}"] = v
    with np.errstate(all="ignore"):
        values = evaluate(whole, feeds).values()
    return all(np.isfinite(x).all() for x in values if x.dtype == np.float64)


def parts(count: int, size: int) -> list[range]:
    return [range(i, i + size) for i in range(0, count * size, size)]


@pytest.mark.parametrize("seeds", parts(1, 80), ids=str)
def test_gradients_of_random_graphs_agree_with_differences(seeds: range) -> None:
    found = Compared(map(compare_graph, seeds))

    assert found["compared"] > len(seeds) / 4, found


@pytest.mark.rest
@pytest.mark.parametrize("seeds", parts(20, 200), ids=str)
def test_gradients_of_many_random_graphs_agree_with_differences(seeds: range) -> None:
    found = Compared(map(compare_graph, seeds))

    assert found["compared"] > len(seeds) / 4, found

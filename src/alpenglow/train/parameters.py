"""From a model to what is trained, and back: constants become parameters, parameters constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.ir.graph import Graph, Node, Value, require_graph
from alpenglow.ir.op import Control
from alpenglow.ir.region import captured, deep, lift
from alpenglow.ir.staged import StagedModel, refuse_staged
from alpenglow.ir.types import FLOATS
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.training.custom_gradient import CustomGradient
from alpenglow.ops.training.training import BatchNormTraining, Dropout
from alpenglow.train.step import RATE, STEP

Statistics = Literal["batch", "running"]


def trainable(
    graph: Graph | StagedModel, names: str | Iterable[str] = "*", statistics: Statistics = "batch"
) -> Graph:
    """Return a copy of a graph in which constants become parameters, variables to be trained.

    Parameters are constants of floats with at least one axis whose names match; running means and
    variances of batch norms are excluded.

    Args:
        graph: the graph.
        names: a pattern for names of constants, or several, as ``"*.weight"``.
        statistics: "batch" lets batch norms with a trained scale use the mean and variance of the
            batch, and update running ones; "running" uses the ones of the graph.

    Returns:
        The copy.

    Raises:
        OptionError: if a pattern matches no constant.
        UnsupportedError: if the graph of the model depends on its data.

    Example:
        >>> graph = ag.trainable(ag.load("model.onnx"), "w")
        >>> list(graph.variables)
        ['w']
    """
    if isinstance(graph, StagedModel):
        refuse_staged("trained")
    require_graph(graph)
    if names is None:
        raise OptionError("trainable: names is None, expected patterns of names", hint='"fc.*"')
    patterns = [names] if isinstance(names, str) else list(names)
    g = graph.copy()
    running = _running(g)
    lift(g, lambda v: _may_be_trained(v) and v not in running and _matches(v, patterns))
    # What is trained has inputs besides, as labels: arguments are no longer what the model's were.
    g.metadata = replace(g.metadata, structure=None)
    able = [v for v in g.constants() if _may_be_trained(v) and v not in running]
    for pattern in patterns:
        if not any(fnmatchcase(v.name, pattern) for v in able):
            known = ", ".join(v.name for v in able[:20]) or "none"
            raise OptionError(
                f"no constant is called {shown(pattern)}; there are {known}",
                hint="a pattern that matches one of them" if able else _without_constants(g),
            )
    trained = {_variable(g, v) for v in able if _matches(v, patterns)}
    if statistics == "batch":
        _require_no_norm_inside(g)
        for node in [n for n in g.nodes if isinstance(n.op, BatchNorm)]:
            if node.inputs[1] in trained:
                _normalise_by_batch(g, node)
    g.prune()  # restores the order of nodes
    return g


def _matches(v: Value, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(v.name, p) for p in patterns)


def _running(g: Graph) -> set[Value]:
    """Return the running means and variances of batch norms, in regions too."""
    parts = list(deep(g))
    nodes = [n for part in parts for n in part.nodes]
    running = {v for n in nodes if isinstance(n.op, BatchNorm) for v in n.inputs[3:] if v}
    for node in reversed(nodes):
        if isinstance(node.op, Control):
            running |= {v for v, own in captured(node) if running.intersection(own)}
    return running


def _require_no_norm_inside(g: Graph) -> None:
    """Raise UnsupportedError for a batch norm in a region: nothing is assigned there."""
    _, *regions = deep(g)
    norms = (n for r in regions for n in r.nodes if isinstance(n.op, BatchNorm))
    if (norm := next(norms, None)) is not None:
        raise UnsupportedError(
            f"batch_norm {shown(norm.output.name)} is inside of a loop or a branch, where it keeps "
            "no running statistics",
            hint='trainable(graph, statistics="running")',
        )


def _without_constants(g: Graph) -> str:
    """Return the hint for a graph without constants of floats."""
    if any(v.type.dtype in FLOATS and v.type.rank for v in g.callers_inputs().values()):
        return "load(…, constants={'NAME': array}) makes constants of inputs that hold weights"
    return "the model in floats, from which this one was quantized"


def inference(g: Graph, outputs: Sequence[str] | None = None) -> Graph:
    """Return what a graph that is trained computes when it is used: with the running statistics,
    without dropout and gradients that are said, and nothing is assigned.

    `outputs` are the names of those that are kept, by default all; inputs that these do not need
    are left out.
    """
    g = g.copy()
    for part in deep(g):
        for node in list(part.nodes):
            match node.op:
                case Dropout() | CustomGradient():
                    x = node.inputs[0]
                    assert x is not None, "x is there"
                    part.replace(node.output, x)
                case BatchNormTraining(epsilon=epsilon) if node.inputs[3] in g.inputs.values():
                    part.replace(node.results[0], part(BatchNorm(epsilon), *node.inputs))
        part.prune()
    for name in [n for n in g.outputs if n in g.initial]:
        del g.outputs[name]
    if outputs is not None:
        if unknown := [n for n in outputs if n not in g.outputs]:
            raise OptionError(
                f"output is {shown(unknown[0])}, expected one of {', '.join(g.outputs)}"
            )
        g.outputs = {n: g.outputs[n] for n in outputs}
    g.prune()
    for name, v in list(g.inputs.items()):
        if not g.users(v):
            del g.inputs[name]
            g.initial.pop(name, None)
    return g


def fixed(g: Graph, values: Mapping[str, Any]) -> Graph:
    """Return a copy of a graph in which variables are constants, which hold these values."""
    g = g.copy()
    for name in list(g.initial):
        v = g.inputs.pop(name)
        del g.initial[name]
        g.replace(v, g.constant(values[name], name))
    return g


def _may_be_trained(v: Value) -> bool:
    return bool(v.name) and v.type.dtype in FLOATS and v.type.rank > 0 and v.type.size > 0


def _variable(g: Graph, constant: Value) -> Value:
    """Make a constant a variable, of its name where that is free."""
    taken = {*g.inputs, *g.outputs, STEP, RATE}
    name, number = constant.name, 1
    while name in taken:
        number += 1
        name = f"{constant.name}.{number}"
    v = g.variable(name, constant.array, copy=False)
    for user in constant.users:
        user.inputs = tuple(v if x is constant else x for x in user.inputs)
    v.users |= constant.users
    constant.users = {}
    return v


def _normalise_by_batch(g: Graph, node: Node) -> None:
    op = node.op
    assert isinstance(op, BatchNorm)
    mean, variance = node.inputs[3:5]
    assert mean is not None and variance is not None
    if mean.array is None or variance.array is None:
        return
    running = [_variable(g, v) for v in (mean, variance)]
    new = g.add(BatchNormTraining(op.epsilon), [*node.inputs[:3], *running])
    g.replace(node.output, new.results[0])
    for v, after in zip(running, new.results[1:3], strict=True):
        g.assign(v.name, after)

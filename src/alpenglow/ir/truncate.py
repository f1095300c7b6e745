"""The first part of a graph: up to values that are named."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from alpenglow.base.errors import OptionError
from alpenglow.base.words import shown, some
from alpenglow.ir import dims
from alpenglow.ir.graph import Graph, Value, require_graph
from alpenglow.ir.misuse import told_of
from alpenglow.ir.region import deep
from alpenglow.ir.staged import StagedModel, refuse_staged


def truncate(graph: Graph | StagedModel, *names: str) -> Graph:
    """Return a copy of a graph that ends at the named values, which become its outputs.

    Nodes and inputs that these values do not need are removed.  A variable that is still read is
    assigned as before.

    Args:
        graph: the graph.
        names: the names of results of nodes, as `alpenglow show` prints them, of outputs or of
            inputs.

    Returns:
        The copy.

    Raises:
        OptionError: if no value or more than one has a name.
        UnsupportedError: if the graph of the model depends on its data.

    Example:
        >>> ag.truncate(ag.load("model.onnx"), "r")
        Graph(tiny; x f32[batch,8] -> r f32[batch,16]; 2 nodes, 1 constant of 512 B)
    """
    if isinstance(graph, StagedModel):
        refuse_staged("truncated")
    require_graph(graph)
    if not names or not all(isinstance(name, str) for name in names):
        given = ", ".join(map(told_of, names)) or "no name"
        raise OptionError(f"truncate: names is {given}, expected one name or more",
                          hint='truncate(graph, "conv1", "conv2")')  # fmt: skip
    g = graph.copy()
    # A caller's structure tells of outputs that there are no more, and another import has them all.
    g.metadata, g.otherwise = replace(g.metadata, structure=None), None
    ends = {name: _named(g, name) for name in names}
    g.outputs = {**_assigned(g, ends.values()), **ends}
    g.prune()
    for name, v in list(g.inputs.items()):
        if not g.users(v):
            del g.inputs[name]
            g.initial.pop(name, None)
            g.growing.pop(name, None)
    open_extents = {symbol for v in g.inputs.values() for symbol in v.type.symbols()}
    g.guards = tuple((x, relation) for x, relation in g.guards if dims.names(x) <= open_extents)
    return g


def _assigned(g: Graph, ends: Iterable[Value]) -> dict[str, Value]:
    """Return what variables are assigned that these values read, or that what is assigned reads."""
    variables = {v.value: (name, v.assigned) for name, v in g.variables.items()}
    assigned: dict[str, Value] = {}
    seen: set[Value] = set()
    stack = list(ends)
    while stack:
        v = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        name, after = variables.get(v, ("", None))
        if after is not None:
            assigned[name] = after
            stack.append(after)
        if v.producer is not None:
            stack += [x for x in v.producer.inputs if x is not None]
    return assigned


def _inside(g: Graph) -> Iterator[Value]:
    """Yield the values of nodes in regions."""
    _, *regions = deep(g)
    for region in regions:
        for node in region.nodes:
            yield from node.results


def _named(g: Graph, name: str) -> Value:
    if name in g.callers_outputs():
        return g.outputs[name]
    values = [*g.inputs.values(), *(v for node in g.nodes for v in node.results)]
    matching = [v for v in values if v.name == name]
    if len(matching) == 1:
        return matching[0]
    if matching:
        many = f"{len(matching)} values of graph {shown(g.name)}"
        raise OptionError(f"{many} are called {shown(name)}, expected one")
    if any(v.name == name for v in _inside(g)):
        raise OptionError(
            f"{shown(name)} is a value inside a loop or branch of graph {shown(g.name)}, "
            "expected one outside",
            hint="evaluate(graph, feeds, after=…), which is called with each node and its results",
        )
    last = [v.name for node in reversed(g.nodes) for v in node.results if v.name]
    raise OptionError(
        f"no value of graph {shown(g.name)} is called {shown(name)}, expected one such as "
        f"{some(last, 8) or 'none'}"
    )

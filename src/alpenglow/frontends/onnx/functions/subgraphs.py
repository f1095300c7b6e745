"""Graphs of ONNX: what nodes read besides their operands, order, and branches in the open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx

from alpenglow.base.errors import ModelError

PREVIEW = "ai.onnx.preview.training"


def graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among the attributes of a node."""
    for a in node.attribute:
        if a.type == onnx.AttributeProto.GRAPH:
            yield a.g
        elif a.type == onnx.AttributeProto.GRAPHS:
            yield from a.graphs


def reads(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads: operands, what graphs capture, what is differentiated."""
    names = dict.fromkeys(n for n in node.input if n)
    names |= dict.fromkeys(n.decode() for a in named_by(node) for n in (a.s, *a.strings) if n)
    for g in graphs_of(node):
        names |= dict.fromkeys(captured(g))
    return list(names)


def varied(node: onnx.NodeProto) -> list[str]:
    """Return the names of what a Gradient takes as variables of the function it differentiates."""
    inner = [n for g in graphs_of(node) for other in g.node for n in varied(other)]
    return [*inner, *(n.decode() for a in named_by(node) for n in a.strings)]


def named_by(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    """Return the attributes of a node that are names of values: y, xs and zs of Gradient."""
    if (node.domain, node.op_type) != (PREVIEW, "Gradient"):
        return []
    return [a for a in node.attribute if a.name in ("xs", "zs", "y")]


def captured(g: onnx.GraphProto) -> list[str]:
    """Return the names that a graph reads from outside."""
    own = defined(g)
    names: dict[str, None] = {}
    for node in g.node:
        names |= {n: None for n in reads(node) if n not in own}
    names |= {o.name: None for o in g.output if o.name not in own}
    return list(names)


def defined(g: onnx.GraphProto) -> set[str]:
    """Return the names that a graph gives to values."""
    own = {i.name for i in g.input} | {t.name for t in g.initializer}
    own |= {t.values.name for t in g.sparse_initializer}
    return own | {o for node in g.node for o in node.output if o}


def ordered(source: onnx.GraphProto, outer: frozenset[str] = frozenset()) -> list[onnx.NodeProto]:
    """Return the nodes in topological order; raise ModelError for what breaks single assignment.

    `outer` are the names that the graph may read from around it.
    """
    ready = {i.name for i in source.input} | {t.name for t in source.initializer}
    ready |= {t.values.name for t in source.sparse_initializer}
    makers: dict[str, onnx.NodeProto] = {}
    for node in source.node:
        for out in node.output:
            if out and (out in makers or out in ready):
                raise ModelError(f"'{out}' is computed twice, expected once", node=label(node))
            if out:
                makers[out] = node
    ready |= outer - makers.keys()
    needs = [reads(node) for node in source.node]
    for node, names in zip(source.node, needs, strict=True):
        for name in names:
            if name not in ready and name not in makers:
                raise ModelError(
                    f"input '{name}' is unknown, expected a graph input, initializer or output",
                    node=label(node),
                )
    order: list[onnx.NodeProto] = []
    waiting = list(zip(source.node, needs, strict=True))
    while waiting:
        later = []
        for node, names in waiting:
            if all(i in ready for i in names):
                order.append(node)
                ready.update(node.output)
            else:
                later.append((node, names))
        if len(later) == len(waiting):
            what = f"{len(later)} nodes form a cycle or read from one, expected none"
            raise ModelError(what, node=label(later[0][0]))
        waiting = later
    return order


def with_own_outputs(g: onnx.GraphProto) -> onnx.GraphProto:
    """Return a graph in which no two outputs have one name, itself if there are none."""
    names = [o.name for o in g.output]
    if len(set(names)) == len(names):
        return g
    new = onnx.GraphProto()
    new.CopyFrom(g)
    for i, out in enumerate(new.output):
        if out.name in names[:i]:
            copied = onnx.helper.make_node("Identity", [out.name], [f"{out.name}/{i}"])
            new.node.append(copied)
            out.name = copied.output[0]
    return new


def renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """Return a copy of a node with other names for the values it reads and makes."""
    new = onnx.NodeProto()
    new.CopyFrom(node)
    _rename(new, names)
    return new


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    for i, name in enumerate(node.input):
        node.input[i] = names.get(name, name)
    for i, name in enumerate(node.output):
        node.output[i] = names.get(name, name)
    for a in named_by(node):
        a.s = _renamed(a.s, names)
        for i, name in enumerate(a.strings):
            a.strings[i] = _renamed(name, names)
    for g in graphs_of(node):
        own = defined(g)
        outer = {k: v for k, v in names.items() if k not in own}
        for inner in g.node:
            _rename(inner, outer)
        for out in g.output:
            out.name = outer.get(out.name, out.name)


def _renamed(name: bytes, names: Mapping[str, str]) -> bytes:
    return names.get(name.decode(), name.decode()).encode()


def as_outside(
    part: onnx.NodeProto, node: onnx.NodeProto, opset_keys: Iterable[str]
) -> onnx.NodeProto:
    """Let a node that replaces a part of `node` keep to the same opset."""
    for entry in node.metadata_props:
        if entry.key in opset_keys:
            kept = part.metadata_props.add()
            kept.key, kept.value = entry.key, entry.value
    return part


def label(node: onnx.NodeProto) -> str:
    """Return the operator and name of a node for messages."""
    first = next((o for o in node.output if o), "")
    return f"{node.op_type} '{node.name or first}'"

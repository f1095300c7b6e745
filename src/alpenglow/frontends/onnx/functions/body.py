"""The body of a function, copied for one call: with the call's names, attributes and graphs.

Operands and results take the names that the call gives them, everything else gets a name that
nobody has yet, ``call/name``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import onnx
from onnx import helper

from alpenglow.base.errors import ModelError

GRAPH, LIST = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS


@dataclass(frozen=True, slots=True)
class Definition:
    """The body of a function, and what its attributes are where a call does not say.

    `local` is whether the model defines it; then it sees no names but its own.
    """

    body: onnx.FunctionProto
    defaults: Mapping[str, onnx.AttributeProto]
    local: bool


def domain_of(node: onnx.NodeProto) -> str:
    """Return the domain of a node; the domain of ONNX itself is empty."""
    return "" if node.domain == "ai.onnx" else node.domain


def called(node: onnx.NodeProto) -> str:
    """Return the name of a node, or of its first output."""
    return node.name or next((o for o in node.output if o), "") or node.op_type


def graphs_in(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in a node's attributes."""
    for a in node.attribute:
        if a.type == GRAPH:
            yield a.g
        yield from a.graphs


def defined(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph gives, not those in graphs that it holds."""
    yield from (i.name for i in graph.input)
    yield from (t.name for t in graph.initializer)
    yield from (t.values.name for t in graph.sparse_initializer)
    yield from made_by(graph.node)


def made_by(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of all outputs of nodes."""
    yield from (o for n in nodes for o in n.output if o)


class Inlining:
    """One call of a function; `taken` holds the names in use, and is added to."""

    def __init__(self, node: onnx.NodeProto, definition: Definition, taken: set[str]) -> None:
        self.label = called(node)
        self.function = definition.body
        self.local = definition.local
        self.taken = taken
        self.attributes = self._attributes(node, definition)
        self.names = self._operands(node)
        # Results that are operands, or other results, under a further name.
        self.aliases: list[tuple[str, str]] = []
        for formal, actual in zip(self.function.output, node.output, strict=False):
            if not actual:
                continue
            if formal in self.names:
                self.aliases.append((formal, actual))
            else:
                self.names[formal] = actual

    def nodes(self) -> list[onnx.NodeProto]:
        """Return the nodes that take the place of the call."""
        names = dict(self.names)
        for name in made_by(self.function.node):
            if name not in names:
                names[name] = self._fresh(name)
        nodes = [self._node(n, names) for n in self.function.node]
        for formal, actual in self.aliases:
            nodes.append(helper.make_node("Identity", [names[formal]], [actual], f"{self.label}/="))
        return nodes

    def _attributes(
        self, node: onnx.NodeProto, definition: Definition
    ) -> dict[str, onnx.AttributeProto]:
        attributes = dict(definition.defaults) | {a.name: a for a in node.attribute}
        for name in self.function.attribute:
            if definition.local and name not in attributes:
                raise ModelError(f"{node.op_type}: attribute '{name}' is missing", node=self.label)
        return attributes

    def _operands(self, node: onnx.NodeProto) -> dict[str, str]:
        for what, formal, actual in (
            ("inputs", self.function.input, node.input),
            ("outputs", self.function.output, node.output),
        ):
            if len(actual) > len(formal):
                raise ModelError(
                    f"{node.op_type}: got {len(actual)} {what}, expected at most {len(formal)}",
                    node=self.label,
                )
        absent = [""] * (len(self.function.input) - len(node.input))
        return dict(zip(self.function.input, [*node.input, *absent], strict=True))

    def _fresh(self, name: str) -> str:
        wanted = fresh = f"{self.label}/{name}"
        count = 1
        while fresh in self.taken:
            count += 1
            fresh = f"{wanted}_{count}"
        self.taken.add(fresh)
        return fresh

    def _seen(self, name: str, names: Mapping[str, str]) -> str:
        """Return the outer name of a name that a node reads."""
        if not name or name in names:
            return names.get(name, "")
        # One that nobody makes must not meet one of the model's by chance.  The bodies that ONNX
        # makes hold graphs of the call, which may read anything.
        return f"{self.label}/{name}" if self.local else name

    def _node(self, node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
        new = onnx.NodeProto()
        new.CopyFrom(node)
        new.name = f"{self.label}/{called(node)}"
        new.input[:] = [self._seen(i, names) for i in node.input]
        new.output[:] = [names[o] if o else "" for o in node.output]
        del new.attribute[:]
        new.attribute.extend(self._given(node, names))
        return new

    def _given(
        self, node: onnx.NodeProto, names: Mapping[str, str]
    ) -> Iterator[onnx.AttributeProto]:
        """Yield the attributes of a node of the body, with the call's in the place of references.

        A reference to an attribute that the call leaves out is left out as well.
        """
        for a in node.attribute:
            new = onnx.AttributeProto()
            if not a.ref_attr_name:
                new.CopyFrom(a)
                if a.type == GRAPH:
                    new.g.CopyFrom(self._graph(a.g, names))
                elif a.type == LIST:
                    del new.graphs[:]
                    new.graphs.extend(self._graph(g, names) for g in a.graphs)
                yield new
            elif a.ref_attr_name in self.attributes:
                new.CopyFrom(self.attributes[a.ref_attr_name])
                new.name = a.name
                yield new

    def _graph(self, graph: onnx.GraphProto, names: Mapping[str, str]) -> onnx.GraphProto:
        """Return a copy of a graph in the body, whose own names hide those around it."""
        inner = {**names, **{name: self._fresh(name) for name in defined(graph)}}
        new = onnx.GraphProto()
        new.CopyFrom(graph)
        del new.value_info[:], new.quantization_annotation[:], new.node[:]
        for info in new.input:
            info.name = inner[info.name]
        for info in new.output:
            info.name = self._seen(info.name, inner)
        for tensor in (*new.initializer, *(t.values for t in new.sparse_initializer)):
            tensor.name = inner[tensor.name]
        new.node.extend(self._node(n, inner) for n in graph.node)
        return new

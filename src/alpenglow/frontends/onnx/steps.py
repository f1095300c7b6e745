"""Nodes of ONNX as steps, and graphs of nodes as regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.file.attributes import tensor_array
from alpenglow.frontends.onnx.functions.functions import OPSET
from alpenglow.frontends.onnx.functions.subgraphs import (
    as_outside,
    captured,
    defined,
    graphs_of,
    label,
    ordered,
    reads,
    renamed,
    varied,
)
from alpenglow.frontends.steps import LONGEST, Body, Step
from alpenglow.ir.types import Array

NodeStep = Step[onnx.NodeProto]


def step_of(node: onnx.NodeProto) -> NodeStep:
    """Return a node as a step; what its graphs read from outside is captured."""
    inputs = tuple(node.input)
    inner = tuple(n for n in reads(node) if n not in inputs)
    return Step(node.op_type, label(node), inputs, tuple(node.output), node, inner)


@dataclass(frozen=True, slots=True)
class Placed(Body[onnx.NodeProto]):
    """A graph where it stands: also its constants by name."""

    constants: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Inner:
    """The graph that an attribute of a node is; its first `skipped` outputs are none of the body.

    `folder` has the external data; `_arrays` are the initializers by name, wherever it stands.
    """

    node: onnx.NodeProto
    attribute: str
    folder: Path | None
    skipped: int = 0
    _arrays: dict[str, Array] = field(default_factory=dict)

    @property
    def length(self) -> int | None:
        """The number of nodes; None if there are too many, if something is differentiated, or if
        there is no such graph."""
        count, waiting = 0, [a.g for a in self.node.attribute if a.name == self.attribute]
        if not waiting:
            return None
        while waiting and count <= LONGEST:
            g = waiting.pop()
            count += len(g.node)
            if any(map(varied, g.node)):
                return None
            waiting += [inner for node in g.node for inner in graphs_of(node)]
        return count if count <= LONGEST else None

    def place(self, prefix: str, operands: Sequence[str]) -> Placed:
        g = graph_of(self.node, self.attribute)
        if len(operands) != len(g.input):
            raise ModelError(
                f"{self.node.op_type}: {self.attribute} has {len(g.input)} inputs, expected "
                f"{len(operands)}"
            )
        names = {n: f"{prefix}{g.name}/{n}" for n in defined(g)}
        names |= zip((i.name for i in g.input), operands, strict=True)
        nodes: list[onnx.NodeProto] = []
        constants: dict[str, Array] = {}
        for t in g.initializer:
            if t.data_type == TensorProto.STRING:
                stated = helper.make_node("Constant", [], [names[t.name]], value=t)
                nodes.append(as_outside(stated, self.node, (OPSET,)))
                continue
            if t.name not in self._arrays:
                self._arrays[t.name] = tensor_array(t, self.folder)
            constants[names[t.name]] = self._arrays[t.name]
        nodes += [renamed(inner, names) for inner in ordered(g, frozenset(captured(g)))]
        outputs = tuple(names.get(o.name, o.name) for o in g.output[self.skipped :])
        return Placed(tuple(map(step_of, nodes)), outputs, constants)


def graph_of(node: onnx.NodeProto, name: str) -> onnx.GraphProto:
    """Return the graph that an attribute of a node is; raise ModelError without one."""
    for a in node.attribute:
        if a.name == name and a.type == onnx.AttributeProto.GRAPH:
            g: onnx.GraphProto = a.g
            return g
    raise ModelError(f"{node.op_type}: attribute '{name}' is missing")


def renaming(step: NodeStep) -> NodeStep:
    """Return the node that calls a value by another name: it may be a value of any kind."""
    node = helper.make_node("Identity", step.inputs, step.outputs)
    return step_of(as_outside(node, step.payload, (OPSET,)))

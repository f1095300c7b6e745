"""Loops that are known to turn a few times, as the nodes of all their turns in a row.

What is unrolled is part of the graph around it: constants fold, turns are compiled as one, and a
model with no other loop is no staged one.  Only loops that no turn ends are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from alpenglow.frontends.onnx.subgraphs import (
    as_outside,
    captured,
    defined,
    graphs_of,
    ordered,
    renamed,
)
from alpenglow.ir.types import Array, TensorType

MOST_NODES = 128
"""How many nodes a loop may become."""

Nodes = list[onnx.NodeProto]


@dataclass(frozen=True, slots=True)
class Operands:
    """What the import knows: the elements of a value (None: data), the type of one."""

    elements: Callable[[str], Array | None]
    type_of: Callable[[str], TensorType]


@dataclass(frozen=True, slots=True)
class UnrolledLoop:
    """The nodes of a loop before its first turn, of each turn, and after the last one."""

    before: Nodes
    turns: list[Nodes]
    after: Nodes


def unrolled(
    node: onnx.NodeProto, opset: int, known: Operands, opset_keys: Sequence[str]
) -> UnrolledLoop | None:
    """Return what a Loop or Scan comes to if it is known to turn a few times, else None."""
    body = next((a.g for a in node.attribute if a.name == "body"), None)
    if body is None or body.sparse_initializer or not node.output or not all(node.input[2:]):
        return None
    if any(t.data_type == TensorProto.STRING for t in body.initializer):
        return None
    most = MOST_NODES // max(_size(body), 1)
    order = ordered(body, frozenset(captured(body)))
    copier = _Copier(node, body, tuple(opset_keys), order)
    match node.op_type:
        case "Loop":
            return _loop(copier, known, opset, most)
        case "Scan" if opset >= 9:
            return _scan(copier, known, opset, most)
    return None


def _loop(c: _Copier, known: Operands, opset: int, most: int) -> UnrolledLoop | None:
    trips, condition, *starts = [*c.node.input, "", ""][: max(len(c.node.input), 2)]
    count = len(starts)
    fits = len(c.body.input) == count + 2 and len(c.body.output) == len(c.node.output) + 1
    if not fits or not trips or not _never_ends(c.body):
        return None
    turns = _number(known.elements(trips))
    going = _number(known.elements(condition)) if condition else 1
    if turns is None or not 0 < turns <= most or not going:
        return None
    number, goes_on, *carried = [i.name for i in c.body.input]
    each: list[Nodes] = []
    kept: list[list[str]] = []
    values = starts
    for i in range(turns):
        names = {number: c.name(f"{i}/{number}"), goes_on: c.name(f"{i}/{goes_on}")}
        nodes = [
            c.constant(names[number], np.full(_shape(c.body.input[0]), i, np.int64)),
            c.constant(names[goes_on], np.full(_shape(c.body.input[1]), True)),
        ]
        copied, results = c.turn(i, names | dict(zip(carried, values, strict=True)))
        each.append(nodes + copied)
        values = results[1 : 1 + count]
        kept.append(results[1 + count :])
    zeros = [0] * (len(c.node.output) - count)
    return UnrolledLoop(c.constants(), each, c.results(values, kept, zeros, opset))


def _scan(c: _Copier, known: Operands, opset: int, most: int) -> UnrolledLoop | None:
    settings = {a.name: onnx.helper.get_attribute_value(a) for a in c.node.attribute}
    scanned = settings.get("num_scan_inputs", 0)
    count = len(c.node.input) - scanned
    results = len(c.node.output) - count
    fits = scanned > 0 and count >= 0 and len(c.body.input) == len(c.node.input)
    if not fits or results < 0 or len(c.body.output) != len(c.node.output):
        return None
    axes = settings.get("scan_input_axes", [0] * scanned)
    reverse = settings.get("scan_input_directions", [0] * scanned)
    out_axes = settings.get("scan_output_axes", [0] * results)
    out_reverse = settings.get("scan_output_directions", [0] * results)
    if {len(axes), len(reverse)} != {scanned} or {len(out_axes), len(out_reverse)} - {results}:
        return None
    sources = list(c.node.input)[count:]
    types = [known.type_of(name) for name in sources]
    if not all(-t.rank <= axis < t.rank for t, axis in zip(types, axes, strict=True)):
        return None
    lengths = {t.shape[axis] for t, axis in zip(types, axes, strict=True)}
    length = lengths.pop()
    if lengths or not isinstance(length, int) or not 0 < length <= most:
        return None
    names = [i.name for i in c.body.input]
    each: list[Nodes] = []
    kept: list[list[str]] = []
    values = list(c.node.input)[:count]
    for i in range(length):
        slices = [c.name(f"{i}/{name}") for name in names[count:]]
        nodes: Nodes = []
        for source, name, axis, back in zip(sources, slices, axes, reverse, strict=True):
            index = np.array(length - 1 - i if back else i)
            nodes.append(c.constant(f"{name}/at", index))
            nodes.append(c.node_like("Gather", [source, f"{name}/at"], [name], axis=axis))
        copied, outputs = c.turn(i, dict(zip(names, values + slices, strict=True)))
        each.append(nodes + copied)
        values = outputs[:count]
        kept.append(outputs[count:])
    for k, back in enumerate(out_reverse):
        if back:
            column = [row[k] for row in reversed(kept)]
            for row, name in zip(kept, column, strict=True):
                row[k] = name
    return UnrolledLoop(c.constants(), each, c.results(values, kept, out_axes, opset))


@dataclass(frozen=True, slots=True)
class _Copier:
    """Copies the body of a loop, under names of their own for each turn."""

    node: onnx.NodeProto
    body: onnx.GraphProto
    opset_keys: tuple[str, ...]
    order: Nodes

    def name(self, inner: str) -> str:
        return f"{next(filter(None, self.node.output), self.node.name)}/{self.body.name}/{inner}"

    def node_like(
        self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any
    ) -> onnx.NodeProto:
        node = onnx.helper.make_node(op, inputs, outputs, **attributes)
        return as_outside(node, self.node, self.opset_keys)

    def constant(self, name: str, array: Array) -> onnx.NodeProto:
        return self.node_like("Constant", [], [name], value=numpy_helper.from_array(array))

    def constants(self) -> Nodes:
        """Return nodes for the initializers of the body: one each for all turns."""
        return [
            self.node_like("Constant", [], [self.name(t.name)], value=t)
            for t in self.body.initializer
        ]

    def turn(self, number: int, operands: Mapping[str, str]) -> tuple[Nodes, list[str]]:
        """Return the nodes of one turn, and what they call the results of the body."""
        fixed = {t.name for t in self.body.initializer} - operands.keys()
        names = {n: self.name(n if n in fixed else f"{number}/{n}") for n in defined(self.body)}
        names |= operands
        nodes = [renamed(inner, names) for inner in self.order]
        return nodes, [names.get(o.name, o.name) for o in self.body.output]

    def results(
        self, values: Sequence[str], kept: list[list[str]], axes: Sequence[int], opset: int
    ) -> Nodes:
        """Return nodes that make the results of the loop: what is left, and what was collected."""
        outputs = list(self.node.output)
        pairs = zip(values, outputs, strict=False)
        nodes = [self.node_like("Identity", [source], [out]) for source, out in pairs if out]
        for k, (out, axis) in enumerate(zip(outputs[len(values) :], axes, strict=True)):
            if not out:
                continue
            parts = [f"{out}/{self.body.name}/part{i}" for i in range(len(kept))]
            at = self.name(f"axis{k}")
            if opset >= 13:
                nodes.append(self.constant(at, np.array([axis])))
            for row, part in zip(kept, parts, strict=True):
                nodes.append(
                    self.node_like("Unsqueeze", [row[k], at], [part])
                    if opset >= 13
                    else self.node_like("Unsqueeze", [row[k]], [part], axes=[axis])
                )
            nodes.append(self.node_like("Concat", parts, [out], axis=axis))
        return nodes


def _size(g: onnx.GraphProto) -> int:
    """Return how many nodes a graph has, those of graphs in it included."""
    return sum(1 + sum(map(_size, graphs_of(node))) for node in g.node)


def _shape(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """Return the shape in which a body declares a number: a scalar, or a vector of one."""
    return (1,) if len(info.type.tensor_type.shape.dim) == 1 else ()


def _number(elements: Array | None) -> int | None:
    """Return the single element that is known, if it is a number."""
    if elements is None or elements.size != 1:
        return None
    (value,) = elements.reshape(-1).tolist()
    return int(value) if isinstance(value, int) else None


def _never_ends(body: onnx.GraphProto) -> bool:
    """Whether a body tells its loop to go on if it was told so."""
    makers = {o: node for node in body.node for o in node.output}
    constants = {t.name: t for t in body.initializer}
    name = body.output[0].name
    for _ in body.node:
        node = makers.get(name)
        if node is None or node.domain not in ("", "ai.onnx"):
            break
        if node.op_type == "Constant":
            constants[name] = next((a.t for a in node.attribute if a.name == "value"), None)
        if node.op_type not in ("Identity", "Cast") or len(node.input) != 1:
            break
        name = node.input[0]
    told = constants.get(name)
    if told is not None:
        return bool(told.data_type == TensorProto.BOOL and numpy_helper.to_array(told).all())
    return bool(name == body.input[1].name)

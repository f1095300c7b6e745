"""Taking ONNX models apart: each function returns a smaller case, or None where there is none.

A case is a model with arrays for its inputs.  The results of a node that is cut away become
inputs of the smaller model, fed with the arrays that the original model computed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import external_data_helper, helper, numpy_helper, shape_inference

from alpenglow.frontends.onnx.file.attributes import tensor_type
from alpenglow.frontends.onnx.file.extents import symbols_of
from alpenglow.frontends.onnx.reader import read
from alpenglow.ir.types import NAMES, Array, TensorType


@dataclass(frozen=True, slots=True)
class Case:
    """A model and arrays for its inputs."""

    model: onnx.ModelProto
    feeds: Mapping[str, Array]

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        return list(self.model.graph.node)

    @property
    def outputs(self) -> list[str]:
        return [o.name for o in self.model.graph.output]

    def size(self) -> tuple[int, int, int]:
        """Return the counts that a reduction lowers: nodes, outputs, elements fed or stored."""
        elements = sum(a.size for a in self.feeds.values())
        elements += sum(int(np.prod(t.dims)) for t in self.model.graph.initializer)
        return len(self.nodes), len(self.outputs), elements


def whole(path: str | Path) -> onnx.ModelProto:
    """Return the model of a file with all weights in it."""
    model, _, folder = read(path)
    external_data_helper.load_external_data_for_model(model, str(folder))
    return model


def input_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """Return the types of the inputs that have no default."""
    stored = {t.name for t in model.graph.initializer}
    infos = [i for i in model.graph.input if i.name not in stored]
    labels = symbols_of(infos)
    return {i.name: tensor_type(i, labels) for i in infos}


def fixed(case: Case) -> Case:
    """Return the case with inputs of exactly the shapes that are fed, and no inferred types."""
    model = copy.deepcopy(case.model)
    _settle(model, case.feeds)
    return Case(model, case.feeds)


def typed(case: Case) -> Case:
    """Return the case with the types that ONNX infers for outputs, which its checker asks for."""
    try:
        return Case(shape_inference.infer_shapes(case.model), case.feeds)
    except (ValueError, RuntimeError):  # so it says that the model is too large, or wrong
        return case


def annotated(model: bytes) -> bytes:
    """Return the model with the types that ONNX infers."""
    return bytes(shape_inference.infer_shapes(model).SerializeToString())


def inferred(model: bytes) -> dict[str, TensorType]:
    """Return the types that ONNX infers for outputs, as far as these are all numbers."""
    try:
        proto = shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # what a damaged model raises here is of no known class
        return {}
    types = {}
    for info in proto.graph.output:
        t = info.type.tensor_type
        known = t.HasField("shape") and all(
            d.HasField("dim_value") and d.dim_value >= 0 for d in t.shape.dim
        )
        if known and t.elem_type in _TYPES:
            shape = tuple(d.dim_value for d in t.shape.dim)
            types[info.name] = TensorType(_TYPES[t.elem_type], shape)
    return types


_TYPES = {helper.np_dtype_to_tensor_dtype(dtype): name for dtype, name in NAMES.items()}


def exposed(case: Case) -> Case:
    """Return the case with every value of the graph as an output."""
    model = copy.deepcopy(case.model)
    taken = {i.name for i in model.graph.input} | {t.name for t in model.graph.initializer}
    names = [o for n in model.graph.node for o in n.output if o]
    _set_outputs(model, [o for o in names if o not in taken])
    return Case(model, case.feeds)


def with_outputs(case: Case, names: Iterable[str]) -> Case | None:
    """Return the case with these outputs only, and without what they do not need."""
    return with_nodes(case, range(len(case.nodes)), {}, tuple(names))


def with_nodes(
    case: Case, nodes: Iterable[int], values: Mapping[str, Array], outputs: Sequence[str] = ()
) -> Case | None:
    """Return the case with the nodes of these numbers only; None if a value is needed but unknown.

    Its outputs are `outputs`, by default the outputs of the case; if no node computes them any
    more, all values that no node reads.
    """
    kept = [case.nodes[i] for i in nodes]
    results = {o for n in kept for o in n.output if o}
    wanted = [o for o in (outputs or case.outputs) if o in results]
    if not wanted:
        read = {name for n in kept for name in reads(n)}
        wanted = [o for n in kept for o in n.output if o and o not in read]
    kept = list(_needed(kept, set(wanted)))
    if not kept:
        return None
    return _rebuilt(case, kept, wanted, values)


def without_attribute(case: Case, number: int, name: str) -> Case:
    """Return the case with one attribute of one node left out."""
    model = copy.deepcopy(case.model)
    node = model.graph.node[number]
    left = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend(left)
    return Case(model, case.feeds)


def without_operand(case: Case, number: int, position: int) -> Case | None:
    """Return the case with one operand of one node left out."""
    model = copy.deepcopy(case.model)
    node = model.graph.node[number]
    node.input[position] = ""
    while node.input and not node.input[-1]:
        del node.input[-1]
    if not node.input:
        return None
    return with_nodes(Case(model, case.feeds), range(len(model.graph.node)), {})


def resized(case: Case, old: int, new: int, sizes_too: bool) -> Case:
    """Return the case with extents `old` of inputs and weights cut down to `new`.

    `sizes_too` replaces the number in integer weights as well: they may be shapes.
    """
    model = copy.deepcopy(case.model)
    for tensor in model.graph.initializer:
        array = _less(numpy_helper.to_array(tensor), old, new)
        if sizes_too and array.dtype == np.int64:
            array = np.where(array == old, new, array)
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), name))
    feeds = {name: _less(array, old, new) for name, array in case.feeds.items()}
    _settle(model, feeds)
    return Case(model, feeds)


def extents(case: Case) -> list[int]:
    """Return the extents above 1 of inputs and weights, largest first."""
    shapes = [a.shape for a in case.feeds.values()]
    shapes += [tuple(t.dims) for t in case.model.graph.initializer]
    return sorted({d for shape in shapes for d in shape if d > 1}, reverse=True)


def fed(case: Case, feeds: Mapping[str, Array]) -> Case:
    """Return the case with other arrays of the same types."""
    return Case(case.model, {**case.feeds, **feeds})


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names that a node reads, those that its subgraphs take from around it too."""
    yield from (name for name in node.input if name)
    for attribute in node.attribute:
        for graph in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
            inside = {i.name for i in graph.input} | {t.name for t in graph.initializer}
            inside |= {o for n in graph.node for o in n.output}
            read = [name for n in graph.node for name in reads(n)]
            read += [o.name for o in graph.output]
            yield from (name for name in read if name not in inside)


def _needed(nodes: Sequence[onnx.NodeProto], wanted: set[str]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes that something wanted depends on, in order."""
    makers = {o: i for i, n in enumerate(nodes) for o in n.output if o}
    indices: set[int] = set()
    waiting = [makers[name] for name in wanted if name in makers]
    while waiting:
        i = waiting.pop()
        if i not in indices:
            indices.add(i)
            waiting += [makers[name] for name in reads(nodes[i]) if name in makers]
    return (nodes[i] for i in sorted(indices))


def _rebuilt(
    case: Case, nodes: Sequence[onnx.NodeProto], outputs: Sequence[str], values: Mapping[str, Array]
) -> Case | None:
    source = case.model.graph
    results = {o for n in nodes for o in n.output}
    read = [name for n in nodes for name in reads(n) if name not in results]
    stored = {t.name for t in source.initializer}
    feeds: dict[str, Array] = {}
    for name in dict.fromkeys(read):
        if name in case.feeds:
            feeds[name] = case.feeds[name]
        elif name in values:
            feeds[name] = values[name]
        elif name not in stored:
            return None
    model = copy.deepcopy(case.model)
    graph = model.graph
    weights = [t for t in source.initializer if t.name in read and t.name not in feeds]
    del graph.node[:], graph.initializer[:], graph.input[:]
    graph.node.extend(nodes)
    graph.initializer.extend(weights)
    _set_outputs(model, outputs)
    _settle(model, feeds)
    return Case(model, feeds)


def _settle(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> None:
    """Give the model inputs of the types of `feeds`, and forget all that was inferred."""
    graph = model.graph
    # An input that is not fed may have a default: an initializer of its name.
    del graph.input[:], graph.value_info[:]
    for name, array in feeds.items():
        code = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(name, code, array.shape))
    _set_outputs(model, [o.name for o in graph.output])


def _set_outputs(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Give the model these outputs; those it has keep their type, but not their shape."""
    types = {o.name: o.type for o in model.graph.output}
    infos = []
    for name in names:
        info = onnx.ValueInfoProto(name=name)
        if name in types:
            info.type.CopyFrom(types[name])
            if info.type.HasField("tensor_type"):
                info.type.tensor_type.ClearField("shape")
        infos.append(info)
    del model.graph.output[:]
    model.graph.output.extend(infos)


def _less(array: Array, old: int, new: int) -> Array:
    cut = tuple(slice(new) if d == old else slice(None) for d in array.shape)
    # A scalar must not become a vector of one element.
    return np.ascontiguousarray(array[cut]).reshape(array[cut].shape)


def storable(array: object) -> bool:
    """Whether a value can be an input of a smaller model."""
    return isinstance(array, np.ndarray) and array.dtype in NAMES

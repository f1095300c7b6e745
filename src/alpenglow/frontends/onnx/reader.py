"""Reading model files: what was given, as a protocol buffer, with its name and folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from alpenglow.base.errors import ModelError
from alpenglow.frontends.files import content_of
from alpenglow.frontends.onnx import table
from alpenglow.frontends.onnx.file.long_lists import KINDS, LongList, put_back, taken_out
from alpenglow.frontends.onnx.functions.body import graphs_in
from alpenglow.frontends.onnx.functions.functions import inlined
from alpenglow.frontends.onnx.hosted import find_hosted


def read(
    model: str | Path | bytes | onnx.ModelProto, aside: bool = False
) -> tuple[onnx.ModelProto, str, Path | None]:
    """Return the parsed model, what to call it in messages, and its folder (None if no file).

    If `aside`, long lists of attributes may be tensors, as `long_lists` puts them: the model is
    no longer what other readers of ONNX understand.
    Raises ModelError if the file does not exist or is no ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        return checked(model, "model", []), "model", None
    data, file = content_of(model)
    proto, lists = parse(data, file, aside)
    del data
    folder = None if isinstance(model, bytes) else Path(model).parent
    return checked(proto, file, lists), file, folder


def parse(data: bytes, file: str, aside: bool) -> tuple[onnx.ModelProto, list[LongList]]:
    """Parse serialised bytes, long lists `aside`; raise ModelError if they are not a model."""
    if not data:
        raise ModelError("the file is empty, expected an ONNX model", file=file)
    proto = onnx.ModelProto()
    rest, lists = taken_out(data) if aside else (data, [])
    try:
        proto.ParseFromString(rest)
    except DecodeError as error:
        what = "the file is not ONNX or truncated, expected a ModelProto"
        raise ModelError(what, file=file) from error
    return proto, lists


def checked(proto: onnx.ModelProto, file: str, lists: list[LongList]) -> onnx.ModelProto:
    """Return the model with its lists, its functions inlined.

    Raises ModelError if it lacks what all must have.
    """
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError("graph or opset_import is missing, expected an ONNX model", file=file)
    for name in names(proto):
        # Protocol buffers hand out text that is no UTF-8 as bytes.
        if not isinstance(name, str):
            raise ModelError(f"a name is {name!r}, expected UTF-8; the file is damaged", file=file)
    for o in (*proto.opset_import, *(o for f in proto.functions for o in f.opset_import)):
        if not 0 <= o.version < 1 << 31:
            what = f"opset of domain '{o.domain}' is {o.version}, expected 0 to {(1 << 31) - 1}"
            raise ModelError(what, file=file)
    for a in attributes(proto):
        # One that was put back looks so.
        if a.type in KINDS.values() and a.HasField("t"):
            what = f"attribute '{a.name}' holds a list and a tensor, expected one of them"
            raise ModelError(what, file=file)
    put_back(proto.graph, lists)
    try:
        return inlined(proto, has_form)
    except ModelError as error:
        raise error.located(file=file) from None


def attributes(proto: onnx.ModelProto) -> Iterator[onnx.AttributeProto]:
    """Yield all attributes of nodes in a model."""
    waiting = [*proto.graph.node]
    for f in proto.functions:
        yield from f.attribute_proto
        waiting += f.node
    while waiting:
        node = waiting.pop()
        yield from node.attribute
        waiting += [inner for graph in graphs_in(node) for inner in graph.node]


def names(proto: onnx.ModelProto) -> Iterator[object]:
    """Yield all names in a model that the import reads."""
    yield from (o.domain for o in proto.opset_import)
    yield from of_graph(proto.graph)
    for f in proto.functions:
        yield from (f.name, f.domain, f.overload, *f.input, *f.output, *f.attribute)
        yield from (o.domain for o in f.opset_import)
        yield from of_attributes(f.attribute_proto)
        for node in f.node:
            yield from of_node(node)


def of_graph(graph: onnx.GraphProto) -> Iterator[object]:
    """Yield the names in a graph, and in those that it holds."""
    yield graph.name
    for node in graph.node:
        yield from of_node(node)
    for tensor in graph.initializer:
        yield from external(tensor)
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from (d.dim_param for d in info.type.tensor_type.shape.dim)


def of_node(node: onnx.NodeProto) -> Iterator[object]:
    """Yield the names in a node."""
    yield from (node.name, node.op_type, node.domain, node.overload, *node.input, *node.output)
    yield from of_attributes(node.attribute)
    for entry in node.metadata_props:
        yield from (entry.key, entry.value)


def of_attributes(attributes: Iterable[onnx.AttributeProto]) -> Iterator[object]:
    """Yield the names in attributes."""
    for attribute in attributes:
        yield from (attribute.name, attribute.ref_attr_name)
        yield from external(attribute.t)
        if attribute.HasField("g"):
            yield from of_graph(attribute.g)
        for graph in attribute.graphs:
            yield from of_graph(graph)


def external(tensor: onnx.TensorProto) -> Iterator[object]:
    """Yield the names in a tensor: its own, and the entries of its external data."""
    yield tensor.name
    for entry in tensor.external_data:
        yield from (entry.key, entry.value)


def has_form(domain: str, name: str, opset: int) -> bool:
    """Whether an operator has a converter, a hosted form, or is one of control flow."""
    if not domain and name in ("If", "Loop", "Scan"):
        return True
    return bool(table.find(domain, name, opset) or find_hosted(domain, name, opset))

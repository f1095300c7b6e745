"""The front end: files are read, and the layers of a network are imported one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from alpenglow.base.errors import NONSENSE, AlpenglowError, ModelError, UnsupportedError
from alpenglow.frontends.shapes import check_size
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.types import Array
from alpenglow_caffe.layers import TABLE, Blob, Ints, Layer, Shapes, decode
from alpenglow_caffe.protobuf import Message, read_bytes, read_text, read_varint

SUFFIXES = ".prototxt", ".caffemodel"
STORED_LAYERS = {100: (1, 7), 2: (4, 6)}  # fields, now and before 2014, with name and blobs

Messages = tuple[Message, ...]
Names = tuple[str, ...]
NET = {"name": str, "layer": Messages, "input": Names, "input_shape": Messages, "input_dim": Ints}
LAYER: dict[str, Any] = {"name": str, "type": str, "bottom": Names, "top": Names, "param": Messages}
LAYER |= {"include": Messages, "exclude": Messages, "phase": Literal["TEST"]}


class CaffeFrontEnd:
    """Reads a network from a ``.prototxt``, and the ``.caffemodel`` of the same name beside it."""

    name = "caffe"
    version = "1"

    def may_read_more(self, content: bytes) -> bool:
        return b"layer" in content

    def accepts(self, model: object) -> bool:
        return isinstance(model, str | Path) and Path(model).suffix in SUFFIXES

    def load(self, model: Any, shapes: Shapes | None = None) -> Graph:
        """Return the graph of a network; raise ModelError or UnsupportedError if there is none."""
        text, file = (Path(model).with_suffix(suffix) for suffix in SUFFIXES)
        try:
            weights = read_weights(file.read_bytes()) if file.exists() else {}
            file = text
            return Network(weights, shapes or {}).imported(read_text(text.read_bytes().decode()))
        except (OSError, *NONSENSE) as error:
            raise ModelError(f"cannot read this: {error!r}", file=str(file)) from error
        except AlpenglowError as error:
            raise error.located(file=str(file)) from None


def read_weights(content: bytes) -> dict[str, list[Array]]:
    """Return the weights of each layer that has some, by name; raise ModelError if damaged."""
    weights: dict[str, list[Array]] = {}
    _, net = read_bytes(memoryview(content))
    for number, (name_field, blobs_field) in STORED_LAYERS.items():
        for _, layer in map(read_bytes, net[number]):
            name = b"".join(layer[name_field]).decode()
            if (number == 2 and layer[1]) or (layer[blobs_field] and name in weights):
                raise ModelError(f"layer '{name}' is of type V0LayerParameter, or there twice")
            if layer[blobs_field]:
                weights[name] = [_array(data) for data in layer[blobs_field]]
    return weights


def _array(data: memoryview) -> Array:
    """Return a message BlobProto: extents in shape 7 or 1 to 4, floats in 5 or doubles in 8."""
    numbers, spans = read_bytes(data)
    dims = [numbers[i][-1] if numbers[i] else 0 for i in (1, 2, 3, 4)]
    if not any(dims):
        (unpacked, packed), at = read_bytes(memoryview(b"".join(spans[7]))), 0
        dims, run = unpacked[1], memoryview(b"".join(packed[1]))
        while at < len(run):
            dim, at = read_varint(run, at)
            dims.append(dim)
    chunks, dtype = (spans[8], "<f8") if spans[8] else (spans[5], "<f4")
    return np.frombuffer(b"".join(chunks), dtype).astype(np.float32).reshape(dims)


class Network:
    """A network on its way to a graph: the results so far, and all that is wrong."""

    def __init__(self, weights: Mapping[str, Sequence[Array]], shapes: Shapes) -> None:
        self.graph, self.weights, self.shapes = Graph("caffe"), dict(weights), shapes
        self.problems: list[AlpenglowError] = []  # each with a line and a layer as its node
        self.values: dict[str, Blob | None] = {}  # None if a layer has a problem
        self.unread: set[str] = set()

    def imported(self, text: Message) -> Graph:
        """Return the graph; raise one UnsupportedError or ModelError for all that is wrong."""
        net = decode(text, NET)
        names, dims = net.get("input", ()), net.get("input_dim", ())
        fours = [Message(dim=[*dims[i : i + 4]]) for i in range(0, len(dims), 4)]
        inputs = Message(shape=[*net.get("input_shape", ()), *fours])
        layers = [Message(type=["Input"], top=[*names], input_param=[inputs])] if names else []
        for layer in [*layers, *net.get("layer", ())]:
            self._add(layer)
        if self.problems:
            unsupported = any(isinstance(e, UnsupportedError) for e in self.problems)
            message = "; ".join(f"{e.node}: {e.message}" for e in self.problems)
            hint = next((e.hint for e in self.problems if e.hint), "")
            raise (UnsupportedError if unsupported else ModelError)(message, hint=hint)
        self.graph.name = net.get("name", "caffe")
        for name in sorted(self.unread):
            if (v := self.values[name]) is not None:
                self.graph.output(name, v.value)
        return bind_shapes(self.graph, self.shapes) if self.shapes else self.graph

    def _add(self, text: Message) -> None:
        """Add a layer to the graph, if it is there when the network is tested."""
        name, kind = (str(text.get(key, [""])[0]) for key in ("name", "type"))
        tops = text.get("top", [])
        values: Sequence[Blob | None] = [None] * len(tops)
        try:
            if not _is_tested(text):
                return
            values = self._results(name, kind, text)
        except (AlpenglowError, *NONSENSE) as error:
            place = f"line {text.line}, layer '{name}' ({kind})"
            known = error if isinstance(error, AlpenglowError) else ModelError(repr(error))
            self.problems.append(known.located(node=place))
        self.values |= zip(tops, values, strict=True)
        self.unread |= set(tops) if kind != "Input" else set()

    def _results(self, name: str, kind: str, text: Message) -> Sequence[Blob | None]:
        """Return the results of a layer, None if another layer has a problem."""
        if kind not in TABLE:
            raise UnsupportedError("the type is not supported", hint="load the deployed network")
        convert, field, hints = TABLE[kind]
        fields = decode(text, LAYER | {field: Message})
        parameters = decode(fields.get(field, Message()), hints)
        bottoms, tops = fields.get("bottom", ()), fields.get("top", ())
        if shared := [p["name"] for p in fields.get("param", ()) if "name" in p]:
            raise UnsupportedError(f"weights to be shared are not supported: {shared}")
        if missing := [b for b in bottoms if b not in self.values]:
            raise ModelError(f"no layer before has the top '{missing[0]}'")
        if twice := [t for t in tops if t in self.values and t not in bottoms]:
            raise ModelError(f"a layer before has the top '{twice[0]}', too")
        self.unread -= set(bottoms)
        operands = [self.values[b] for b in bottoms]
        if None in operands:
            return [None] * len(tops)
        layer = Layer(self.graph, self.shapes, kind, tops, self.weights.pop(name, ()))
        result = convert(layer, *operands, **parameters)
        results = result if isinstance(result, list) else [result]
        if len(results) != len({*tops}) or layer.arrays:
            raise UnsupportedError(f"{len(tops)} tops or {len(layer.arrays)} weights are too many")
        for blob in results:
            check_size("the result", blob.type)
        return results


def _is_tested(text: Message) -> bool:
    """Return True if a layer is there when the network is tested, at level 0 and in no stage."""
    rules = [(key, rule) for key in ("include", "exclude") for rule in text.get(key, ())]
    if any(rule not in ({"phase": ["TRAIN"]}, {"phase": ["TEST"]}) for _, rule in rules):
        raise UnsupportedError(f"the rules {rules} are not supported, expected a phase in each")
    held = [key for key, rule in rules if rule["phase"] == ["TEST"]]
    return "exclude" not in held and ("include" in held or "include" not in text)

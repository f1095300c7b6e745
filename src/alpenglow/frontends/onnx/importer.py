"""From an ONNX model to a Graph: nodes in order, each through its entry in the table.

Everything that a model can get wrong is found here and reported by file and node; operators that
are not known are reported all at once.  Small integer computations (shapes) are carried along and
folded (`contents`), so that what is left open is exactly what the model leaves open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from alpenglow.base.errors import AlpenglowError, ModelError, UnsupportedError
from alpenglow.evaluate import apply
from alpenglow.frontends.onnx import contents, table
from alpenglow.frontends.onnx.attributes import (
    attribute_value,
    check_form,
    check_size,
    identifier,
    tensor_array,
    tensor_type,
)
from alpenglow.frontends.onnx.reader import read
from alpenglow.frontends.onnx.table import Made, Site
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import Array, TensorType

Model = str | Path | bytes | onnx.ModelProto

NONSENSE = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
"""What Python raises in converters and type rules when attributes or operands make no sense.

No AssertionError: an assertion that a model can break is a check that is missing."""


def load(model: Model, shapes: Mapping[str, Sequence[int]] | None = None) -> Graph:
    """Read an ONNX model and return its graph.

    `shapes` binds open extents of inputs by input name.  Raises ModelError if the file is damaged
    or breaks the rules of ONNX, UnsupportedError if it uses what is not there.
    """
    proto, file, folder = read(model)
    try:
        return Importer(proto, folder).graph(dict(shapes or {}))
    except AlpenglowError as error:
        raise error.located(file=file) from None


class Importer:
    """The state of one import."""

    def __init__(self, proto: onnx.ModelProto, folder: Path | None) -> None:
        self.proto = proto
        self.folder = folder
        self.opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version
                       for o in proto.opset_import}  # fmt: skip
        self.g = Graph(identifier(proto.graph.name) or "main")
        self.values: dict[str, Value] = {}
        # What is known of a value's elements; None: it was looked at, and they are data.
        self.known: dict[Value, Array | None] = {}

    def graph(self, shapes: dict[str, Sequence[int]]) -> Graph:
        """Build and return the graph."""
        source = self.proto.graph
        nodes = ordered(source)
        self._check_supported(nodes)
        for tensor in source.initializer:
            if tensor.name in self.values:
                raise ModelError(f"two initializers are called '{tensor.name}'")
            array = tensor_array(tensor, self.folder)
            self.values[tensor.name] = self.g.constant(array, tensor.name)
        if source.sparse_initializer:
            raise UnsupportedError("the model has sparse initializers")
        self._inputs(source, shapes)
        for node in nodes:
            self._node(node)
        for out in source.output:
            if out.name not in self.values:
                raise ModelError(f"graph output '{out.name}' is made by no node")
            self.g.output(out.name, self.values[out.name])
        self.g.prune()
        return self.g

    def _inputs(self, source: onnx.GraphProto, shapes: dict[str, Sequence[int]]) -> None:
        # Up to IR version 3 every initializer is also listed among the inputs.
        wanted = [i for i in source.input if i.name not in self.values]
        names = [i.name for i in wanted]
        for name, count in Counter(names).items():
            if count > 1:
                raise ModelError(f"{count} inputs are called '{name}'")
        for name in shapes:
            if name not in names:
                raise ModelError(f"shapes names '{name}', but the inputs are {', '.join(names)}")
        for info in wanted:
            t = tensor_type(info)
            if info.name in shapes:
                t = bound(info.name, t, shapes[info.name])
            check_size(f"input '{info.name}'", t)
            self.values[info.name] = self.g.input(info.name, t)

    def _check_supported(self, nodes: Sequence[onnx.NodeProto]) -> None:
        missing: Counter[str] = Counter()
        for node in nodes:
            domain = "" if node.domain == "ai.onnx" else node.domain
            if domain not in self.opsets:
                raise ModelError(f"no opset is imported for domain '{domain}'", node=label(node))
            if table.find(domain, node.op_type, self.opsets[domain]) is None:
                missing[f"{domain}:{node.op_type}" if domain else node.op_type] += 1
        if missing:
            listed = ", ".join(f"{name} ({n} nodes)" for name, n in sorted(missing.items()))
            raise UnsupportedError(f"these operators are not supported: {listed}")

    def _node(self, node: onnx.NodeProto) -> None:
        before = len(self.g.nodes)
        try:
            made = self._convert(node)
            fresh = list(self.g.nodes)[before:] if len(self.g.nodes) > before else []
            folded = self._settle(fresh)
        except AlpenglowError as error:
            raise error.located(node=label(node)) from None
        except NONSENSE as error:
            raise ModelError(
                f"{node.op_type} breaks the rules of ONNX: {type(error).__name__}: {error}",
                node=label(node),
            ) from error
        results = [made] if isinstance(made, Value) else list(made)
        for name, v in zip(node.output, results, strict=False):
            v = folded.get(v, v)
            if v.producer in fresh and not v.name:
                v.name = name
            self.values[name] = v
        self.values.pop("", None)

    def _convert(self, node: onnx.NodeProto) -> Made:
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opsets[domain]
        convert = table.find(domain, node.op_type, opset)
        assert convert is not None, "checked before"
        check_form(node, domain, opset)
        for name in node.input:
            if name and name not in self.values:
                raise ModelError(f"input '{name}' is an output that its operator does not have")
        return convert(
            Site(
                self.g,
                label(node),
                node.op_type,
                opset,
                [self.values[i] if i else None for i in node.input],
                {a.name: attribute_value(a, self.folder) for a in node.attribute},
                node.output,
                self.contents,
            )
        )

    def contents(self, v: Value) -> Array | None:
        """Return the elements of v if it is a small integer tensor whose elements are known."""
        if v.producer is None:
            return contents.of_constant(v)
        if v not in self.known:
            self._settle([v.producer])
        return self.known[v]

    def _settle(self, fresh: list[Node]) -> dict[Value, Value]:
        """Find the contents of what `fresh` nodes made; return constants for those all numbers."""
        folded: dict[Value, Value] = {}
        for node in fresh:
            for v in node.results:
                check_size(f"the result of {node.op.name}", v.type)
            inputs = [folded.get(v, v) if v is not None else None for v in node.inputs]
            if not any(v is None or v.array is None for v in inputs) and node.op.pure:
                small = all(v.type.static and v.type.size <= contents.LIMIT for v in node.results)
                cheap = all(v is None or v.type.size <= 4096 for v in inputs)
                if small and cheap:
                    arrays = [None if v is None else v.array for v in inputs]
                    results = apply(node.op, arrays, node.regions)
                    for v, array in zip(node.results, results, strict=True):
                        exact = np.ascontiguousarray(array).reshape(array.shape)
                        folded[v] = self.g.constant(exact)
                        self.known[v] = contents.of_constant(folded[v])
                    continue
            found = self._shape_contents(node)
            self.known |= dict.fromkeys(node.results, found)
            if found is not None and contents.numbers(found):
                exact = np.array(found.tolist(), node.output.type.numpy)
                folded[node.output] = self.g.constant(exact.reshape(found.shape))
        return folded

    def _shape_contents(self, node: Node) -> Array | None:
        if hasattr(node.op, "extents_of"):  # Shape and Size know their result from the type
            v = node.inputs[0]
            assert v is not None
            found = np.empty(node.output.type.extents, object)
            found[...] = node.op.extents_of(v.type)
            return found
        if not contents.may_be_shape(node):
            return None
        return contents.propagate(
            node, [None if v is None else self.contents(v) for v in node.inputs]
        )


def bound(name: str, t: TensorType, shape: Sequence[int]) -> TensorType:
    """Return t with its open extents taken from `shape`; raise ModelError where they disagree."""
    given = isinstance(shape, Sequence) and all(isinstance(d, int | np.integer) for d in shape)
    if not given or isinstance(shape, bytes):
        raise ModelError(f"input '{name}' is {t}; shape {shape!r} is no sequence of integers")
    fits = len(shape) == t.rank and all(
        isinstance(want, Sym) or want == got for want, got in zip(t.shape, shape, strict=True)
    )
    if not fits or min(shape, default=0) < 0:
        raise ModelError(f"input '{name}' is {t}; shape {tuple(shape)} does not fit it")
    return t.with_shape(int(d) for d in shape)


def label(node: onnx.NodeProto) -> str:
    """Return what to call a node in messages."""
    first = next((o for o in node.output if o), "")
    return f"{node.op_type} '{node.name or first}'"


def ordered(source: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return the nodes in topological order; raise ModelError for what breaks single assignment."""
    ready = {i.name for i in source.input} | {t.name for t in source.initializer}
    ready |= {t.values.name for t in source.sparse_initializer}
    makers: dict[str, onnx.NodeProto] = {}
    for node in source.node:
        for out in node.output:
            if out and (out in makers or out in ready):
                raise ModelError(f"'{out}' is made twice", node=label(node))
            if out:
                makers[out] = node
    for node in source.node:
        for name in node.input:
            if name and name not in ready and name not in makers:
                raise ModelError(
                    f"input '{name}' is no graph input, no initializer and no node's output",
                    node=label(node),
                )
    order: list[onnx.NodeProto] = []
    waiting = list(source.node)
    while waiting:
        later = []
        for node in waiting:
            if all(not i or i in ready for i in node.input):
                order.append(node)
                ready.update(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise ModelError(f"{len(later)} nodes form a cycle", node=label(later[0]))
        waiting = later
    return order

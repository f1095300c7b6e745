"""Functions: operators that are defined by other operators, replaced by their definitions.

A model may define operators of its own, and ONNX defines some of its operators by a function body.
`inlined` puts the nodes of the body in the place of each call of what the importer has no converter
for, and of everything that the model itself defines.

A node keeps to the opset of the function that it comes from, which need not be the model's: where
they differ, the node says so in its metadata (`opset_of`).  It is called after the node whose call
it comes from, ``call/node``, so that messages lead back to the file.
"""

from __future__ import annotations

import math
from collections.abc import (
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    MutableSequence,
    Sequence,
)
from dataclasses import dataclass
from typing import Any

import onnx
from google.protobuf.message import EncodeError
from onnx import defs, helper, shape_inference

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.functions.body import (
    Definition,
    Inlining,
    called,
    defined,
    domain_of,
    graphs_in,
)

Keep = Callable[[str, str, int], bool]
"""Whether there is a converter for (domain, operator name, opset)."""

OPSET = "alpenglow.opset"
"""The key in a node's metadata under which its opset stands if it is not the model's."""

MOST_NODES = 1 << 18
"""Calls that make more nodes than this are a mistake in the file."""

TOO_MANY = "calls of functions expand to more than {} nodes, which is the limit"

DEEPEST = 64
"""Functions that call each other deeper than this are a mistake in the file."""

TOO_DEEP = f"functions call each other more than {DEEPEST} deep, which is the limit"

SMALL = 1024
"""Initializers of up to so many elements may be shapes, which type inference reads."""

UNASKED = frozenset({"DictVectorizer", "LabelEncoder", "RegexFullMatch"})
"""Operators at which ONNX's inference dies if nothing is known of their operand."""

Key = tuple[str, str, str]
Types = Mapping[str, onnx.TypeProto]


def inlined(proto: onnx.ModelProto, keep: Keep) -> onnx.ModelProto:
    """Return the model without calls of functions, itself if there are none.

    Calls of functions that the model defines are replaced; and so are those operators that `keep`
    does not want and that ONNX defines by others.  Raises ModelError if functions call themselves.
    """
    for _ in range(DEEPEST):
        inliner = Inliner(proto, keep)
        if inliner.finds(proto.graph):
            proto = inliner.model()
        if not inliner.undecided:
            return proto
        # Some bodies depend on the types of their operands.
        inliner = Inliner(proto, keep, inferred(proto))
        model = inliner.model()
        if not inliner.count:
            return proto
        proto = model
    raise ModelError(TOO_DEEP)


def opset_of(node: onnx.NodeProto, opsets: Mapping[str, int]) -> int | None:
    """Return the opset that a node keeps to, given those that the model imports; None if none."""
    for entry in node.metadata_props:
        if entry.key == OPSET:
            if not entry.value.isdecimal() or len(entry.value) > 9:
                what = f"opset is '{entry.value}', expected an integer of at most 9 digits"
                raise ModelError(what, node=called(node))
            return int(entry.value)
    return opsets.get(domain_of(node))


@dataclass(frozen=True, slots=True)
class Scope:
    """The surroundings of nodes: the opsets that hold there, and the calls around."""

    opsets: Mapping[str, int]
    calls: tuple[Key, ...] = ()


class Inliner:
    """The state of one round: what the model defines, and the names that are taken.

    `undecided` is whether a body was asked for that depends on types, which were not given;
    `count` is how many calls were replaced and how many nodes those made.
    """

    def __init__(self, proto: onnx.ModelProto, keep: Keep, types: Types | None = None) -> None:
        self.proto = proto
        self.keep = keep
        self.types = types
        self.opsets = imports(proto.opset_import)
        self.local = local_functions(proto)
        self.taken: set[str] = set()
        self.undecided = False
        self.count = 0

    def finds(self, graph: onnx.GraphProto) -> bool:
        """Whether there is a call in a graph, or in one that it holds."""
        scope = Scope(self.opsets)
        has_call = False
        for node in graph.node:
            has_call |= self._definition(node, scope) is not None
            for inner in graphs_in(node):
                has_call |= self.finds(inner)
        return has_call

    def model(self) -> onnx.ModelProto:
        """Return the model with its calls replaced."""
        self._require_few()
        new = onnx.ModelProto()
        new.CopyFrom(self.proto)
        self.taken.update(names_in(new.graph))
        self._graph(new.graph, Scope(dict(self.opsets)))
        del new.functions[:], new.opset_import[:]
        new.opset_import.extend(helper.make_opsetid(*item) for item in self.opsets.items())
        return new

    def _require_few(self) -> None:
        """Raise ModelError if the calls make too many nodes, before any is made.

        Two calls in each of forty functions are a trillion.
        """
        sizes: dict[Key, int] = {}
        if sum(self._made(key, sizes, 0) for key in self._calls(self.proto.graph)) > MOST_NODES:
            raise ModelError(TOO_MANY.format(MOST_NODES))

    def _made(self, key: Key, sizes: dict[Key, int], depth: int) -> int:
        """Return how many nodes a call makes at least; what calls itself counts as nothing."""
        if depth < DEEPEST and key not in sizes:
            sizes[key] = 0
            body = self.local[key].body
            inner = sum(self._made(k, sizes, depth + 1) for k in self._calls(body))
            sizes[key] = min(1 + len(body.node) + inner, MOST_NODES + 1)
        return sizes.get(key, 0)

    def _calls(self, body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[Key]:
        """Yield what is called of the model's functions, once for each call."""
        for node in body.node:
            key = domain_of(node), node.op_type, node.overload
            if key in self.local:
                yield key
            for graph in graphs_in(node):
                yield from self._calls(graph)

    def _graph(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Replace the calls in a graph, in place."""
        before = self.count
        nodes = self._nodes(graph.node, scope)
        if self.count != before:
            del graph.node[:]
            graph.node.extend(nodes)

    def _nodes(self, nodes: Iterable[onnx.NodeProto], scope: Scope) -> list[onnx.NodeProto]:
        flat: list[onnx.NodeProto] = []
        for node in nodes:
            for graph in graphs_in(node):
                self._graph(graph, scope)
            definition = self._definition(node, scope)
            if definition is None:
                self._mark(node, scope)
                flat.append(node)
            else:
                flat += self._call(node, definition, scope)
        return flat

    def _call(
        self, node: onnx.NodeProto, definition: Definition, scope: Scope
    ) -> list[onnx.NodeProto]:
        """Return the nodes that replace a call."""
        key = domain_of(node), node.op_type, node.overload
        if key in scope.calls:
            circle = " → ".join(name for _, name, _ in (*scope.calls, key))
            what = f"a function calls itself ({circle}), expected no recursion"
            raise ModelError(what, node=called(node))
        if len(scope.calls) == DEEPEST:
            raise ModelError(TOO_DEEP)
        for graph in graphs_in(node):
            self._mark_all(graph, scope)
        nodes = Inlining(node, definition, self.taken).nodes()
        self.count += 1 + len(nodes)
        if self.count > MOST_NODES:
            raise ModelError(TOO_MANY.format(MOST_NODES))
        opsets = imports(definition.body.opset_import)
        return self._nodes(nodes, Scope(opsets, (*scope.calls, key)))

    def _definition(self, node: onnx.NodeProto, scope: Scope) -> Definition | None:
        """Return the definition to put in the place of a node; None if the node stays."""
        domain, opset = domain_of(node), opset_of(node, scope.opsets)
        if local := self.local.get((domain, node.op_type, node.overload)):
            return local
        if opset is None or self.keep(domain, node.op_type, opset):
            return None
        if not defs.has(node.op_type, opset, domain):
            return None
        schema: Any = defs.get_schema(node.op_type, opset, domain)
        if schema.has_function:
            version = fitting(schema.function_opset_versions, opset)
            return of_schema(schema, schema.get_function_with_opset_version(version))
        if not schema.has_context_dependent_function:
            return None
        if self.types is None:
            self.undecided = True
            return None
        # Its body is made of the graphs that it is given.
        for graph in graphs_in(node):
            self._mark_all(graph, scope)
        return self._dependent(node, schema, opset, self.types)

    def _dependent(
        self, node: onnx.NodeProto, schema: Any, opset: int, types: Types
    ) -> Definition | None:
        """Return a definition that depends on the operands' types; None if those are not known."""
        operands = [types.get(name) if name else onnx.TypeProto() for name in node.input]
        known = [t.SerializeToString() for t in operands if t is not None]
        if len(known) < len(operands):
            return None
        version = fitting(schema.context_dependent_function_opset_versions, opset)
        try:
            body = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), known
            )
        except (ValueError, RuntimeError) as error:
            raise ModelError(
                f"{node.op_type}: expected a form that ONNX defines: {error}", node=called(node)
            ) from error
        return of_schema(schema, body) if body else None

    def _mark(self, node: onnx.NodeProto, scope: Scope) -> None:
        """Note a node's opset if it is not the model's."""
        opset = opset_of(node, scope.opsets)
        if opset is not None and self.opsets.setdefault(domain_of(node), opset) != opset:
            mark(node, opset)

    def _mark_all(self, graph: onnx.GraphProto, scope: Scope) -> None:
        """Note the opsets in a graph that a call hands to its function, which has others."""
        for node in graph.node:
            opset = opset_of(node, scope.opsets)
            if opset is not None:
                mark(node, opset)
            for inner in graphs_in(node):
                self._mark_all(inner, scope)


def mark(node: onnx.NodeProto, opset: int) -> None:
    """Note the opset that a node keeps to, unless it says so already."""
    if all(entry.key != OPSET for entry in node.metadata_props):
        node.metadata_props.append(onnx.StringStringEntryProto(key=OPSET, value=str(opset)))


def imports(entries: Iterable[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return opset versions by domain."""
    return {"" if o.domain == "ai.onnx" else o.domain: o.version for o in entries}


def local_functions(proto: onnx.ModelProto) -> dict[Key, Definition]:
    """Return the functions of the model; raise ModelError if it defines one twice."""
    definitions: dict[Key, Definition] = {}
    for body in proto.functions:
        domain = "" if body.domain == "ai.onnx" else body.domain
        key = domain, body.name, body.overload
        if key in definitions:
            name = ":".join(filter(None, key))
            raise ModelError(f"two functions are called '{name}', expected different names")
        definitions[key] = Definition(body, {a.name: a for a in body.attribute_proto}, local=True)
    return definitions


def of_schema(schema: Any, serialized: bytes) -> Definition:
    """Return the definition that ONNX gives of an operator."""
    body = onnx.FunctionProto()
    body.ParseFromString(serialized)
    defaults = {
        name: a.default_value for name, a in schema.attributes.items() if a.default_value.type
    }
    return Definition(body, defaults, local=False)


def fitting(versions: Sequence[int], opset: int) -> int:
    """Return the newest version that is not newer than `opset`; if none is, the oldest."""
    return max((v for v in versions if v <= opset), default=min(versions))


def names_in(graph: onnx.GraphProto) -> Iterator[str]:
    """Yield the names that a graph, and those that it holds, give."""
    yield from defined(graph)
    for node in graph.node:
        for inner in graphs_in(node):
            yield from names_in(inner)


def inferred(proto: onnx.ModelProto) -> Types:
    """Return the types of values that ONNX infers; types of one name must agree."""
    bare = onnx.ModelProto()
    bare.CopyFrom(proto)
    listed = {i.name for i in bare.graph.input}
    large = [t for t in bare.graph.initializer if math.prod(t.dims) > SMALL]
    small = [t for t in bare.graph.initializer if math.prod(t.dims) <= SMALL]
    for t in large:
        if t.name not in listed:
            bare.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    del bare.graph.initializer[:]
    bare.graph.initializer.extend(small)
    for nodes in (bare.graph.node, *(f.node for f in bare.functions)):
        leave_out(nodes, UNASKED)
    try:
        bare = shape_inference.infer_shapes(bare, data_prop=True)
    except (shape_inference.InferenceError, EncodeError, ValueError, MemoryError):
        return {}  # the importer will find what is wrong
    types: dict[str, onnx.TypeProto] = {}
    differing: set[str] = set()
    for name, t in typed(bare.graph):
        if name in types and types[name] != t:
            differing.add(name)
        types[name] = t
    return {name: t for name, t in types.items() if name not in differing}


def leave_out(nodes: MutableSequence[onnx.NodeProto], ops: Container[str]) -> None:
    """Delete the nodes of some operators, in the graphs of the other nodes, too."""
    for i in reversed(range(len(nodes))):
        if nodes[i].op_type in ops:
            del nodes[i]
            continue
        for inner in graphs_in(nodes[i]):
            leave_out(inner.node, ops)


def typed(graph: onnx.GraphProto) -> Iterator[tuple[str, onnx.TypeProto]]:
    """Yield the names with a type in a graph and in those that it holds."""
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.WhichOneof("value"):
            yield info.name, info.type
    for t in graph.initializer:
        yield t.name, helper.make_tensor_type_proto(t.data_type, list(t.dims))
    for node in graph.node:
        for inner in graphs_in(node):
            yield from typed(inner)

"""Verification: a graph that passes can be evaluated, rewritten, and printed so that it reads back.

Passes and texts of users are not believed, and our own passes are looked at under validation.
After `verify_graph`

- inputs have names, each its own value, which nothing makes; the hidden ones are random keys;
- a variable is an input, and if it is assigned an output, of the type of its initial value;
- what nodes and outputs read is an input, a constant, or a result of a node that stands before;
- a result says which node makes it, and which of the results it is;
- the readers that a value lists are the nodes of this graph that read it, all of them;
- operators may be applied to their operands, and results have the types that these then make;
- a constant's extents are numbers, and its array has that type;
- extents are open in names that inputs bring, or in elements of tensors; guards ask of no other;
- what is true of a graph is true of its regions, which read nothing from around them but extents;
- where it is to be "primitive", no composite is left.

A node can only be made well typed; what breaks these rules is a graph that was changed afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from alpenglow.base.errors import NONSENSE, AlpenglowError, GraphError
from alpenglow.base.words import shown
from alpenglow.ir import dims
from alpenglow.ir.bind_op import bind_op
from alpenglow.ir.graph import Graph, Node, Value, infer
from alpenglow.ir.op import Control, is_composite, misfit
from alpenglow.ir.types import NAMES, TensorType

KEY = TensorType("u32", (2,))
"""What a hidden input is."""


def verify_graph(
    g: Graph,
    properties: Set[str] = frozenset(),
    extents: Mapping[str, int] | None = None,
    around: Set[str] = frozenset(),
) -> None:
    """Raise GraphError if `g` breaks a rule of graphs, or lacks one of `properties`.

    Where open extents are taken to be numbers, types agree for those `extents`.  What is known
    `around` it may be open in it, too.
    """
    _Verifier(g, properties, extents or {}, around).run()


class _Verifier:
    """What is known of the values of a graph at a node of it."""

    def __init__(
        self,
        g: Graph,
        properties: Set[str],
        extents: Mapping[str, int],
        around: Set[str] = frozenset(),
    ) -> None:
        self.g = g
        self.properties = properties
        self.extents = extents
        self.readers: dict[Value, dict[Node, None]] = {}
        """Values that may be read, and the nodes that have read them."""
        self.names = around | {name for v in g.inputs.values() for name in v.type.symbols()}
        """What extents may be open in: of a region, what they are open in around it, too."""

    def run(self) -> None:
        for name, v in self.g.inputs.items():
            self._input(name, v)
        for x, relation in self.g.guards:
            if unknown := self._unknown(dims.names(x)):
                raise GraphError(
                    f"guard {x} {relation} 0: expected dimensions of inputs, not {unknown}"
                )
        for node in self.g.nodes:
            try:
                self._node(node)
            except AlpenglowError as error:
                where = error.node or _shown(node)
                raise GraphError(error.message, node=where, hint=error.hint) from None
        for name, v in self.g.outputs.items():
            self._read(v, f"output {_name(name)}")
        for name, v in self.g.initial.items():
            self._variable(name, v)
        for v, readers in self.readers.items():
            self._listed(v, readers)

    # ── inputs and constants ──

    def _input(self, name: str, v: Value) -> None:
        what = f"input {_name(name)}"
        if not name:
            raise GraphError("the name of an input is empty, expected a name")
        if v.producer is not None or v.array is not None:
            maker = "a constant" if v.producer is None else f"made by {_shown(v.producer)}"
            raise GraphError(f"{what} is {maker}, expected a value that the caller gives")
        if v in self.readers:
            raise GraphError(f"{what} is another input, too, expected a value of its own")
        if v.hidden and v.type != KEY:
            raise GraphError(f"{what} is {v.type}, expected {KEY}: the runtime fills it")
        self.readers[v] = {}

    def _constant(self, v: Value, what: str) -> None:
        assert v.array is not None, "of constants only"
        if v.producer is not None:
            maker = _shown(v.producer)
            raise GraphError(f"{what}, a constant, is made by {maker}, expected no producer")
        if v.type.symbols():
            raise GraphError(f"{what}, a constant, is {v.type}, expected fixed dimensions")
        if (v.array.shape, v.array.dtype) != (v.type.shape, v.type.numpy):
            holds = f"{NAMES.get(v.array.dtype, v.array.dtype)}{list(v.array.shape)}"
            raise GraphError(f"{what}, a constant, holds {holds}, expected {v.type}")
        self.readers[v] = {}

    def _variable(self, name: str, initial: Value) -> None:
        what = f"variable {_name(name)}"
        if name not in self.g.inputs:
            raise GraphError(
                f"{what} has no input, expected one of its name for its value at entry"
            )
        if name in self.g.growing:
            if initial.array is not None or not 0 <= self.g.growing[name] < initial.type.rank:
                raise GraphError(
                    f"{what} grows along axis {self.g.growing[name]}, expected an axis of "
                    f"{initial.type} and no initial constant"
                )
        elif initial.array is None:
            raise GraphError(f"{what} begins with {_name(initial.name)}, expected a constant")
        elif initial not in self.readers:
            self._constant(initial, f"the initial value of {what}")
        if self.g.inputs[name].type != initial.type:
            entry = self.g.inputs[name].type
            raise GraphError(f"{what} is {entry} at entry, expected {initial.type}, as initially")
        for v in (self.g.outputs.get(name, initial),):
            if not self.g.may_hold(name, v.type):
                found = f"{v.type} {_name(v.name)}"
                raise GraphError(f"{what} is {found} at exit, expected {initial.type}")

    # ── nodes ──

    def _node(self, node: Node) -> None:
        for i, v in enumerate(node.inputs):
            if v is not None:
                self._read(v, f"operand {i}")
                self.readers[v][node] = None
        for region in node.regions:
            # A machine computes the parts of a fused node as they are.
            held = self.properties if isinstance(node.op, Control) else frozenset[str]()
            _Verifier(region, held, self.extents, self.names).run()
        if "primitive" in self.properties and is_composite(node.op):
            raise GraphError(
                f"{node.op.name} is a composite, expected primitives in a graph of primitives"
            )
        self._types(node)
        for i, v in enumerate(node.results):
            self._result(node, i, v)

    def _read(self, v: Value, what: str) -> None:
        """Check that a value may be read here."""
        if v not in self.readers and v.array is not None:
            self._constant(v, what)
        if v in self.readers:
            return
        called = f"{what}, {_name(v.name)},"
        if v.producer is None:
            raise GraphError(f"{called} is not defined, expected an input, constant or result")
        if v.producer in self.g.nodes:
            raise GraphError(f"{called} is read before it is computed, expected nodes in order")
        maker = _shown(v.producer)
        raise GraphError(f"{called} is made by {maker}, expected a node of this graph")

    def _types(self, node: Node) -> None:
        """Check that the operator makes what the results say."""
        types = [None if v is None else self._type(v) for v in node.inputs]
        declared = tuple(self._type(v) for v in node.results)
        regions = [r.bind(self.extents) if self.extents else r for r in node.regions]
        try:
            inferred = infer(bind_op(node.op, self.extents), types, regions)
        except NONSENSE as error:
            raise GraphError(misfit(node.op, error)) from None
        if inferred != declared:
            raise GraphError(
                f"results of {node.op.name} are {', '.join(map(str, declared))}, "
                f"expected {', '.join(map(str, inferred))}"
            )

    def _type(self, v: Value) -> TensorType:
        return v.type.bind(self.extents) if self.extents else v.type

    def _result(self, node: Node, index: int, v: Value) -> None:
        what = f"result {index}, {_name(v.name)},"
        if v.producer is not node or v.index != index:
            maker = "none" if v.producer is None else f"result {v.index} of {_shown(v.producer)}"
            raise GraphError(f"{what} records {maker} as its producer, expected this node")
        if v.array is not None or v in self.readers:
            raise GraphError(
                f"{what} is an input, constant or other result, too, expected a value of its own"
            )
        if unknown := self._unknown(v.type.symbols()):
            raise GraphError(f"{what} {v.type}, names {unknown}, expected dimensions of inputs")
        self.readers[v] = {}

    def _unknown(self, names: Set[str]) -> str:
        """Return the names of extents, among these, that no input brings."""
        return ", ".join(sorted(n for n in names - self.names if not dims.is_element(n)))

    # ── readers ──

    def _listed(self, v: Value, readers: Mapping[Node, None]) -> None:
        """Check that a value lists who reads it."""
        if v.users.keys() == readers.keys():
            return
        for node in readers.keys() - v.users.keys():
            found = f"users of {_name(v.name)} lack this reader"
            raise GraphError(f"{found}, expected all nodes that read it", node=_shown(node))
        for node in v.users.keys() - readers.keys():
            where = "does not read it" if node in self.g.nodes else "is not in the graph"
            found = f"users of {_name(v.name)} hold a node that {where}"
            raise GraphError(f"{found}, expected only nodes that read it", node=_shown(node))


def _shown(node: Node) -> str:
    """Return what a node makes and its operator, without operands."""
    return f"{', '.join(_name(v.name) for v in node.results)} = {node.op.name}(…)"


def _name(name: str) -> str:
    return f"%{shown(name) or '?'}"

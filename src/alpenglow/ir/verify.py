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
from alpenglow.ir.graph import Graph, Node, Value, bind_op, infer
from alpenglow.ir.op import Control, is_composite
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
                raise GraphError(f"the guard {x} {relation} 0 asks of {unknown}, open in no input")
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
            raise GraphError("an input has no name")
        if v.producer is not None or v.array is not None:
            maker = "a constant" if v.producer is None else f"made by {_shown(v.producer)}"
            raise GraphError(f"{what} is {maker}, expected a value that the caller gives")
        if v in self.readers:
            raise GraphError(f"{what} is another input, too")
        if v.hidden and v.type != KEY:
            raise GraphError(f"{what} is {v.type}, expected {KEY}: the runtime fills it")
        self.readers[v] = {}

    def _constant(self, v: Value, what: str) -> None:
        assert v.array is not None, "of constants only"
        if v.producer is not None:
            raise GraphError(f"{what}, a constant, is made by {_shown(v.producer)} as well")
        if v.type.symbols():
            raise GraphError(f"{what}, a constant {v.type}, has open extents")
        if (v.array.shape, v.array.dtype) != (v.type.shape, v.type.numpy):
            holds = f"{NAMES.get(v.array.dtype, v.array.dtype)}{list(v.array.shape)}"
            raise GraphError(f"{what}, a constant {v.type}, holds {holds}")
        self.readers[v] = {}

    def _variable(self, name: str, initial: Value) -> None:
        what = f"variable {_name(name)}"
        if name not in self.g.inputs:
            raise GraphError(f"{what} is no input: nothing has what it holds at entry")
        if name in self.g.growing:
            if initial.array is not None or not 0 <= self.g.growing[name] < initial.type.rank:
                raise GraphError(f"{what} grows along axis {self.g.growing[name]} of a constant")
        elif initial.array is None:
            raise GraphError(f"{what} begins with what is no constant")
        elif initial not in self.readers:
            self._constant(initial, f"what {what} begins with")
        if self.g.inputs[name].type != initial.type:
            raise GraphError(f"{what} is {initial.type} at first, but {self.g.inputs[name].type}")
        for v in (self.g.outputs.get(name, initial),):
            if not self.g.may_hold(name, v.type):
                raise GraphError(f"{what} is {initial.type} at first, but {v.type} {_name(v.name)}")

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
                f"{node.op.name} is a composite; none is left in a graph of primitives"
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
            raise GraphError(f"{called} is neither an input of the graph nor a constant")
        if v.producer in self.g.nodes:
            raise GraphError(f"{called} is read before it is made")
        raise GraphError(f"{called} is made by {_shown(v.producer)}, no node of the graph")

    def _types(self, node: Node) -> None:
        """Check that the operator makes what the results say."""
        types = [None if v is None else self._type(v) for v in node.inputs]
        expected = tuple(self._type(v) for v in node.results)
        regions = [r.bind(self.extents) if self.extents else r for r in node.regions]
        try:
            inferred = infer(bind_op(node.op, self.extents), types, regions)
        except NONSENSE as error:
            raise GraphError(f"{node.op.name}: {type(error).__name__}: {error}") from None
        if inferred != expected:
            raise GraphError(
                f"{node.op.name} makes {', '.join(map(str, inferred))}, "
                f"found {', '.join(map(str, expected))}"
            )

    def _type(self, v: Value) -> TensorType:
        return v.type.bind(self.extents) if self.extents else v.type

    def _result(self, node: Node, index: int, v: Value) -> None:
        what = f"result {index}, {_name(v.name)},"
        if v.producer is not node or v.index != index:
            maker = "nothing" if v.producer is None else f"result {v.index} of {_shown(v.producer)}"
            raise GraphError(f"{what} says it is {maker}")
        if v.array is not None or v in self.readers:
            raise GraphError(f"{what} is an input, a constant or another result, too")
        if unknown := self._unknown(v.type.symbols()):
            raise GraphError(f"{what} {v.type}, is open in {unknown}, which no input is")
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
            raise GraphError(
                f"{_name(v.name)} does not list a node that reads it", node=_shown(node)
            )
        for node in v.users.keys() - readers.keys():
            where = "does not" if node in self.g.nodes else "is not in the graph"
            raise GraphError(f"{_name(v.name)} lists a reader that {where}", node=_shown(node))


def _shown(node: Node) -> str:
    """Return what a node makes and its operator, without operands."""
    return f"{', '.join(_name(v.name) for v in node.results)} = {node.op.name}(…)"


def _name(name: str) -> str:
    return f"%{shown(name) or '?'}"

"""The graph: named, typed values and the nodes that make them.

A node holds an operator, operands (None where an optional one is absent), one or more results,
and regions (graphs that its operator runs; whatever a region reads is passed as an operand).  An
ill-typed node cannot be built, because the type rule runs when it is made.  Nodes stay in
topological order as long as builders only append; `prune` restores the order after rewriting.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import count
from typing import Any

import numpy as np

from alpenglow.base import deadline
from alpenglow.base.errors import AlpenglowError, GraphError, OptionError, TypeRuleError
from alpenglow.base.memory import copied
from alpenglow.base.words import counted, shown
from alpenglow.ir import describe, dims, misuse
from alpenglow.ir.bind_op import bind_op
from alpenglow.ir.dims import Guards, Sym
from alpenglow.ir.metadata import NONE, Metadata
from alpenglow.ir.op import Op, check_arity, check_layouts
from alpenglow.ir.types import Array, TensorType, type_of


class Value:
    """One tensor: result `index` of `producer`, or a graph input, or a constant (`array`).

    An input that is `hidden` is no caller's: the runtime fills it with random bits at each call.
    """

    __slots__ = ("_digest", "array", "hidden", "index", "name", "producer", "type", "users")
    __match_args__ = ("producer",)

    def __init__(
        self,
        type_: TensorType,
        name: str = "",
        producer: Node | None = None,
        index: int = 0,
        array: Array | None = None,
    ) -> None:
        self.type = type_
        self.name = name
        self.producer = producer
        self.index = index
        self.array = array
        self.hidden = False
        self.users: dict[Node, None] = {}
        self._digest = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of a constant's type and bytes, in hexadecimal."""
        assert self.array is not None, f"{self.name} is no constant"
        if not self._digest:
            data = np.ascontiguousarray(self.array)
            head = str(self.type).encode()
            digest = hashlib.sha256(head + b"\0")
            if data.size:
                digest.update(data.reshape(-1).view(np.uint8).data)
            self._digest = digest.hexdigest()
        return self._digest

    def detached(self, array: Array | None = None) -> Value:
        """Return a constant outside of any graph, with the same elements if an array is given."""
        v = Value(self.type, self.name, array=self.array if array is None else array)
        v._digest = self._digest
        return v

    def take_digest(self, digest: str) -> None:
        """Take over what was found of the same type and bytes elsewhere."""
        self._digest = digest

    def __repr__(self) -> str:
        return f"%{self.name or '?'} : {self.type}"


class Node:
    """One application of an operator.  Identity matters: two equal nodes are two nodes."""

    __slots__ = ("inputs", "op", "regions", "results")
    __match_args__ = ("op", "inputs")

    def __init__(
        self,
        op: Op,
        inputs: Sequence[Value | None],
        regions: Sequence[Graph] = (),
        name: str = "",
    ) -> None:
        self.op = op
        self.inputs = tuple(inputs)
        self.regions = tuple(regions)
        types = infer(op, [None if v is None else v.type for v in inputs], self.regions, name)
        self.results = tuple(Value(t, name if not i else "", self, i) for i, t in enumerate(types))
        for v in inputs:
            if v is not None:
                v.users[self] = None

    def over(self, inputs: Sequence[Value | None], regions: Sequence[Graph]) -> Node:
        """Return a node that does the same to operands of the same types; nothing is inferred."""
        node = Node.__new__(Node)
        node.op, node.inputs, node.regions = self.op, tuple(inputs), tuple(regions)
        node.results = tuple(Value(v.type, v.name, node, v.index) for v in self.results)
        for v in inputs:
            if v is not None:
                v.users[node] = None
        return node

    @property
    def output(self) -> Value:
        """The result of a node that has one."""
        assert len(self.results) == 1, f"{self.op.name} has {len(self.results)} results"
        return self.results[0]

    @property
    def users(self) -> list[Node]:
        return list({user: None for v in self.results for user in v.users})

    def __repr__(self) -> str:
        return f"<{', '.join(map(repr, self.results))} = {self.op}>"


def infer(
    op: Op, types: Sequence[TensorType | None], regions: Sequence[Graph] = (), name: str = ""
) -> tuple[TensorType, ...]:
    """Run the type rule of `op`; raise TypeRuleError, naming the node, if it forbids this."""
    try:
        check_arity(op, len(types))
        required = op.operands[: len(types)]
        for operand, t in zip(required, types, strict=False):
            if t is None and operand not in op.optional:
                raise TypeRuleError(f"{op.name}: operand {operand} is missing")
        check_layouts(op, types)
        result = op.infer(*types, regions=regions) if regions else op.infer(*types)
    except AlpenglowError as error:
        raise error.located(node=name) from None
    return result if isinstance(result, tuple) else (result,)


class Alternative:
    """What a model is for extents that the guards of its graph leave out (`ir.staged`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """What a graph remembers from one call of a session to the next.

    `value` is what it holds at entry, `assigned` what it holds at exit, None where nothing assigns
    it; `initial` is a constant, what it holds before the first call.  One that grows holds nothing
    then: `initial` is no constant, but tells the type.
    """

    value: Value
    initial: Value
    assigned: Value | None


class Graph:
    """Hold nodes between named inputs and outputs.

    A variable is an input and an output of one name, which `initial` has too; a session passes its
    value at exit to the next call.

    Args:
        name: the name of the model.

    Example:
        >>> g = ag.Graph("f")
        >>> x = ag.Expression(g, g.input("x", "f32[2,3]"))
        >>> _ = g.output("y", ag.functions.relu(x).value)
        >>> g
        Graph(f; x f32[2,3] -> y f32[2,3]; 1 node, 0 constants)
    """

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.inputs: dict[str, Value] = {}
        self.outputs: dict[str, Value] = {}
        self.nodes: dict[Node, None] = {}
        self.initial: dict[str, Value] = {}
        self.growing: dict[str, int] = {}  # the axes along which variables grow
        # What the graph takes for granted of its open extents, and the model, to be imported anew
        # for extents of which that is not true.
        self.guards: Guards = ()
        self.otherwise: Alternative | None = None
        self.metadata: Metadata = NONE

    def __repr__(self) -> str:
        types = describe.signature(*self._types())
        return f"Graph({shown(self.name)}; {types}; {self._size()})"

    def _repr_html_(self) -> str:
        ops = Counter(node.op.name for node in self.nodes).most_common()
        listed = ", ".join(f"{number} {name}" for name, number in ops)
        return describe.html(f"Graph {shown(self.name)}", *self._types(), [self._size(), listed])

    def _types(self) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
        inputs = {n: v.type for n, v in self.callers_inputs().items()}
        return inputs, {n: v.type for n, v in self.callers_outputs().items()}

    def _size(self) -> str:
        """Return how many nodes and constants there are."""
        constants = [v.array.nbytes for v in self.constants() if v.array is not None]
        text = f"{counted(len(self.nodes), 'node')}, {counted(len(constants), 'constant')}"
        text += f" of {describe.bytes_text(sum(constants))}" if constants else ""
        text += f", {counted(len(self.initial), 'variable')}" if self.initial else ""
        return text

    def callers_inputs(self) -> dict[str, Value]:
        """Return the inputs that a caller fills: neither hidden ones nor variables."""
        return {n: v for n, v in self.inputs.items() if n not in self.initial and not v.hidden}

    def callers_outputs(self) -> dict[str, Value]:
        """Return the outputs that a caller gets."""
        return {n: v for n, v in self.outputs.items() if n not in self.initial}

    def has_input(self, name: str) -> bool:
        """Return True if a variable, or an input that a caller fills, has this name."""
        return name in self.inputs and not self.inputs[name].hidden

    def input(self, name: str, type_: TensorType | str, *, hidden: bool = False) -> Value:
        """Add an input and return its value.

        Args:
            name: the name of the input.
            type_: its type; a text like "f32[N,8]" may name dynamic dimensions.
            hidden: True for an input that the runtime fills with random bits; a later input of the
                same name renames it.

        Returns:
            The value, an operand for nodes.
        """
        if not name or not isinstance(name, str):
            raise TypeRuleError(f"graph {self.name}: input is {name!r}, expected a name")
        if self.has_input(name) or (hidden and name in self.inputs):
            raise TypeRuleError(f"graph {self.name} already has an input called '{name}'")
        value = Value(misuse.type_given(type_, f"the type of input '{name}'"), name)
        value.hidden = hidden
        if name in self.inputs:
            self._rename_hidden(name)
        self.inputs[name] = value
        return value

    def random_key(self) -> Value:
        """Add a hidden input, ``u32[2]`` of random bits, and return its value."""
        return self.input(self._key_name(), "u32[2]", hidden=True)

    def _key_name(self) -> str:
        """Return a name for a hidden input that no input has."""
        names = (f"random_key{n}" for n in count())
        return next(name for name in names if name not in self.inputs)

    def _rename_hidden(self, name: str) -> None:
        """Give a hidden input another name, and leave it at its position."""
        other = self._key_name()
        self.inputs = {other if n == name else n: v for n, v in self.inputs.items()}
        self.inputs[other].name = other

    def variable(
        self, name: str, initial: Any, type_: TensorType | None = None, *, copy: bool = True
    ) -> Value:
        """Add a variable and return its value at entry.

        Args:
            name: the name of the variable; no output may have it.
            initial: the value before the first call of a session, which determines the type.
            type_: its type; None: the type of `initial`.
            copy: True copies `initial`; if False, nothing may write the array any more.

        Returns:
            The value at entry; `assign` sets the value at exit.
        """
        if name in self.outputs:
            raise TypeRuleError(f"graph {self.name} already has an output called '{name}'")
        constant = self.constant(initial, name, type_, copy=copy)
        value = self.input(name, constant.type)
        self.initial[name] = constant
        return value

    def growing_variable(self, name: str, type_: TensorType | str, axis: int) -> Value:
        """Add a variable that grows along an axis, such as a KV cache; return its value at entry.

        Args:
            name: the name of the variable, which is empty before the first call of a session.
            type_: its type, with a named dynamic dimension along `axis`.
            axis: the axis along which the variable grows.

        Returns:
            The value at entry; `assign` sets the longer value at exit.
        """
        value = self.input(name, type_)
        self.let_grow(name, axis)
        return value

    def let_grow(self, name: str, axis: int) -> None:
        """Make an input a variable that grows along an axis, and is empty at first."""
        t = self.inputs[name].type
        if not 0 <= axis < t.rank or not isinstance(t.shape[axis], Sym):
            raise TypeRuleError(
                f"variable '{name}' {t} cannot grow along axis {axis}, expected a dynamic "
                "dimension there"
            )
        if name in self.outputs:
            raise TypeRuleError(f"graph {self.name} already has an output called '{name}'")
        self.initial[name] = Value(t, name)
        self.growing[name] = axis

    def assign(self, name: str, value: Value) -> None:
        """Set the value of a variable at exit, once.

        Args:
            name: its name.
            value: a value of the type of the variable; longer if the variable grows.
        """
        if name not in self.initial:
            known = ", ".join(self.initial) or "none"
            raise TypeRuleError(
                f"graph {self.name}: '{name}' is assigned, expected a variable: {known}"
            )
        if name in self.outputs:
            raise TypeRuleError(f"variable '{name}' of graph {self.name} is already assigned")
        if not self.may_hold(name, value.type):
            raise TypeRuleError(
                f"variable '{name}' is assigned {value.type}, expected {self.initial[name].type}"
            )
        self.outputs[name] = value

    def may_hold(self, name: str, t: TensorType) -> bool:
        """Whether a variable may have a value of this type at exit."""
        before = self.initial[name].type
        if name not in self.growing:
            return t == before
        axis = self.growing[name]
        return t.rank == before.rank and t == before.with_shape(
            t.shape[i] if i == axis else d for i, d in enumerate(before.shape)
        )

    @property
    def variables(self) -> dict[str, Variable]:
        """The variables by name."""
        return {
            name: Variable(self.inputs[name], initial, self.outputs.get(name))
            for name, initial in self.initial.items()
        }

    def output(self, name: str, value: Value) -> Value:
        """Make a value an output of the graph.

        Args:
            name: the name of the output.
            value: a value of this graph.

        Returns:
            `value`.
        """
        if name in self.initial:
            raise TypeRuleError(f"graph {self.name} already has a variable called '{name}'")
        if name in self.outputs:
            raise TypeRuleError(f"graph {self.name} already has an output called '{name}'")
        if not isinstance(value, Value):
            raise TypeRuleError(
                f"output '{name}' is {misuse.told_of(value)}, expected a Value of the graph"
            )
        self.outputs[name] = value
        return value

    def constant(
        self, array: Any, name: str = "", type_: TensorType | None = None, *, copy: bool = True
    ) -> Value:
        """Return a constant that holds an array.

        Args:
            array: the elements.
            name: the name of the constant; "" for none.
            type_: its type; None: the type of the array.
            copy: True copies the array; if False, nothing may write the array any more.

        Returns:
            The value.
        """
        data = misuse.array_given(array)
        t = type_of(data) if type_ is None else misuse.type_given(type_, "the type of a constant")
        if t.shape != data.shape and all(isinstance(d, int) for d in t.shape):
            raise TypeRuleError(f"the shape of a constant is {data.shape}, expected {t}")
        return Value(t, name, array=copied(data) if copy else data)

    def __call__(self, op: Op, *inputs: Value | None, name: str = "") -> Value:
        """Append a node with one result and return that result.

        Args:
            op: the operator with its attributes, such as ``Relu()``.
            inputs: the operands; None for absent ones.
            name: the name of the node; "" for none.

        Returns:
            The result.

        Raises:
            TypeRuleError: if the operator does not take operands of these types.
        """
        return self.add(op, inputs, name=name).output

    def add(
        self, op: Op, inputs: Sequence[Value | None], regions: Sequence[Graph] = (), name: str = ""
    ) -> Node:
        """Append a node; absent operands at the end are dropped."""
        deadline.check("the next node")
        operands = list(inputs)
        while operands and operands[-1] is None:
            operands.pop()
        try:
            node = Node(op, operands, regions, name)
        except (AttributeError, TypeError):
            misuse.require_operation(op, operands, Value)
            raise
        self.nodes[node] = None
        return node

    def users(self, value: Value) -> int:
        """How many times `value` is read: operand positions of nodes, and graph outputs."""
        reads = sum(v is value for n in value.users for v in n.inputs)
        return reads + sum(v is value for v in self.outputs.values())

    def replace(self, old: Value, new: Value) -> None:
        """Make every user of `old` use `new` instead; `new` takes over the name if it has none."""
        assert old.type == new.type, f"{old} replaced by {new}"
        for user in old.users:
            user.inputs = tuple(new if v is old else v for v in user.inputs)
        new.users |= old.users
        old.users = {}
        new.name = new.name or old.name
        for name, v in self.outputs.items():
            if v is old:
                self.outputs[name] = new

    def prune(self) -> int:
        """Drop pure nodes that reach no output, restore topological order; return how many fell."""
        roots = [v.producer for v in self.outputs.values()]
        roots += [n for n in self.nodes if not n.op.pure]
        order = _ordered(roots)
        dead = [n for n in self.nodes if n not in order]
        for node in dead:
            self.remove(node)
        self.nodes = order
        return len(dead)

    def sort(self) -> None:
        """Restore topological order; nodes that are in order keep it."""
        self.nodes = _ordered(self.nodes)

    def remove(self, node: Node) -> None:
        """Take out a node whose results nobody in the graph will read; it lets go of operands."""
        del self.nodes[node]
        for v in node.inputs:
            if v is not None:
                v.users.pop(node, None)
        # A node and its results refer to each other: without this, large constants would live
        # until the garbage collector runs.
        node.inputs = ()

    def constants(self) -> Iterator[Value]:
        """Yield each constant that a node or an output reads, once, in order of first use."""
        seen: set[Value] = set()
        reads = [v for n in self.nodes for v in n.inputs]
        for v in [*reads, *self.outputs.values()]:
            if v is not None and v.array is not None and v not in seen:
                seen.add(v)
                yield v

    def copy(self) -> Graph:
        """Return a copy of the graph with nodes of its own, which shares the arrays of constants.

        Returns:
            The copy; its types are copied, as those inferred under an assumption may need it.
        """
        return self._copied({})

    def bind(self, extents: Mapping[str, int]) -> Graph:
        """Return a copy of the graph in which dynamic dimensions are fixed.

        Args:
            extents: the sizes by the names of the dimensions.

        Returns:
            The copy, with all types inferred again.

        Raises:
            TypeRuleError: if an operator does not fit these sizes.
        """
        return self._copied(extents, anew=True)

    def _copied(self, extents: Mapping[str, int], anew: bool = False) -> Graph:
        """Return a copy with some extents bound, and types inferred `anew`, or as they are."""
        new = Graph(self.name)
        new.otherwise = self.otherwise
        new.metadata = self.metadata
        new.guards = self._left(extents)
        env: dict[Value, Value] = {
            v: new.input(k, v.type.bind(extents), hidden=v.hidden) for k, v in self.inputs.items()
        }
        for v in self.constants():
            env[v] = Value(v.type, v.name, array=v.array)
            env[v]._digest = v._digest
        for node in self.nodes:
            if missing := [v for v in node.inputs if v is not None and v not in env]:
                raise GraphError(
                    f"graph {self.name}: {node.op.name} reads {missing[0]}, expected a value of "
                    "this graph; the value is of another graph, or its node was removed"
                )
            inputs = [None if v is None else env[v] for v in node.inputs]
            regions = [r._copied(extents, anew) for r in node.regions]
            if anew:
                op, name = bind_op(node.op, extents), node.results[0].name
                copy = new.add(op, inputs, regions, name)
            else:
                copy = node.over(inputs, regions)
                new.nodes[copy] = None
            for a, b in zip(node.results, copy.results, strict=True):
                b.name = a.name
                env[a] = b
        new.initial = {
            name: Value(v.type.bind(extents), v.name) if name in self.growing else v
            for name, v in self.initial.items()
        }
        new.growing = dict(self.growing)
        new.outputs = {name: env[v] for name, v in self.outputs.items()}
        return new

    def _left(self, extents: Mapping[str, int]) -> Guards:
        """Return the guards that are still open where some extents are numbers."""
        left: list[tuple[Sym, str]] = []
        for x, relation in self.guards:
            value = dims.bind(x, extents)
            if isinstance(value, Sym):
                left.append((value, relation))
            elif not dims.RELATIONS[relation](value):
                bindings = ", ".join(f"{n} = {extents[n]}" for n in sorted(dims.names(x)))
                raise TypeRuleError(
                    f"graph {self.name} was imported for {x} {relation} 0, which is not so "
                    f"with {bindings}",
                    hint="fix dimensions as the model is loaded: load(…, shapes={'NAME': (…)})",
                    flags="--shapes NAME=…, which fixes dimensions as the model is loaded",
                )
        return tuple(left)


def _ordered(roots: Iterable[Node | None]) -> dict[Node, None]:
    """Return the nodes that lead to `roots`, these included, operands first."""
    order: dict[Node, None] = {}
    stack = [(n, False) for n in reversed(list(roots))]
    while stack:
        node, inputs_done = stack.pop()
        if node is None or node in order:
            continue
        if inputs_done:
            order[node] = None
        else:
            stack.append((node, True))
            stack += [(v.producer, False) for v in reversed(node.inputs) if v is not None]
    return order


def is_closed(node: Node) -> bool:
    """Whether neither the operator of a node nor its results have open extents."""
    if any(v.type.symbols() for v in node.results):
        return False
    return not any(
        isinstance(part, Sym)
        for f in fields(node.op)  # type: ignore[arg-type]
        for value in (getattr(node.op, f.name),)
        for part in (value if isinstance(value, tuple) else (value,))
    )


def open_in(node: Node) -> set[str]:
    """Return the symbols that the operator of a node and its results are open in."""
    symbols = {n for v in node.results for n in v.type.symbols()}
    for f in fields(node.op):  # type: ignore[arg-type]
        value = getattr(node.op, f.name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Sym):
                symbols |= dims.names(part)
    return symbols


def require_graph(graph: object, what: str = "graph") -> None:
    """Raise OptionError if an argument is no graph: a path, or an executable, perhaps."""
    if not isinstance(graph, Graph):
        raise OptionError(
            f"{what} is {misuse.told_of(graph)}, expected a Graph",
            hint="alpenglow.load(path) returns the Graph of a model file",
        )

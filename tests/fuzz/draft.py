"""A random model under construction: values with types, and nodes that ONNX finds well typed.

Recipes (`recipes_*.py`) add nodes to a Draft; `models.draft` makes a whole model of a seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from alpenglow.frontends.onnx.cut import reads

from .dice import LARGEST, SYMBOLS, Dice
from .elements import (
    DTYPES,
    FLOATS,
    STYLES,
    Array,
    Shape,
    code,
    elements,
    name_of,
)
from .inference import Declined, inferred

OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 15, 16, 17, 18, 18, 19, 20, 21, 21, 22, 23, 24, 25, 26)

EVER = frozenset(s.name for s in onnx.defs.get_all_schemas_with_history() if not s.domain)
"""The operators that ONNX has, or had; some are known that it only had on trial."""


@dataclass(frozen=True, slots=True)
class Var:
    """A value: its name, the name of its element type, and its shape."""

    name: str
    dtype: str
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass
class Draft(Dice):
    """Nodes, inputs and weights so far."""

    is_staged: bool = False
    """Whether shapes, axes and counts may be inputs, and what is run may depend on data."""
    prefix: str = ""
    """What names begin with: bodies and branches have one of their own."""
    vars: list[Var] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Array] = field(default_factory=dict)
    weights: dict[str, Array] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    controls: dict[str, list[Array]] = field(default_factory=dict)
    """Inputs that decide what is run, with what else they may be."""
    elements: dict[str, Array] = field(default_factory=dict)
    """What is known of computed values: shapes that are made of open extents."""
    results: list[str] = field(default_factory=list)
    """Outputs that are no Var: sequences, and what has no fixed shape."""
    view: Callable[[Draft, Array], Var] | None = None
    """How a new value may be made of another one (`views.viewed`), and how often it is."""
    views: float = 0.0
    joins: float = 0.3
    """How often a value that fits no recipe is converted to what it takes."""
    versions: dict[str, int] = field(default_factory=dict)
    """Of domains other than that of ONNX, where it is not 1."""
    types: dict[str, Var] = field(default_factory=dict)
    """All values by their names, those of bodies as well."""
    shown: set[str] = field(default_factory=set)
    """Outputs beside what nobody reads: inputs and weights may be among them."""
    idle: set[str] = field(default_factory=set)
    """Inputs and weights that nobody reads, and which the model has nevertheless."""

    def some(self, op: str, domain: str = "", **choices: Sequence[Any]) -> dict[str, Any]:
        """Return attributes that this form of an operator has: each left out, or a choice.

        Those that must be there always are.
        """
        schema = self.schema(op, domain)
        found = {}
        for name, options in choices.items():
            if schema is not None and name not in schema.attributes:
                continue
            required = schema is not None and schema.attributes[name].required
            if required or self.chance(0.6):
                found[name] = self.one_of(options)
        return found

    def has(self, op: str, attribute: str) -> bool:
        """Return whether this opset's form of an operator has an attribute."""
        schema = self.schema(op)
        return schema is not None and attribute in schema.attributes

    def makes(self, op: str) -> list[str]:
        """Return the element types that the first result of an operator may have."""
        schema = self.schema(op)
        if schema is None:
            raise Declined
        return sorted(t[7:-1] for t in schema.outputs[0].types if t[7:-1] in DTYPES)

    def schema(self, op: str, domain: str = "") -> onnx.defs.OpSchema | None:
        version = self.versions.get(domain, 1) if domain else self.opset
        if not onnx.defs.has(op, version, domain):
            return None
        return onnx.defs.get_schema(op, version, domain)

    # ── values ──

    def fresh(self, dtype: str, shape: Shape, constant: bool | None = None) -> Var:
        """Return a new input or, if `constant` (by custom one time in four), a new weight.

        It may also be a value that is there already, or a view of a new one.
        """
        again = [v for v in self.vars if v.dtype == dtype and v.shape == shape
                 and v.name not in self.controls
                 and (constant is None or (v.name in self.weights) == constant)]  # fmt: skip
        if again and self.chance(0.15):
            return again[-1] if self.chance(0.6) else self.one_of(again)
        array = self.contents(dtype, shape)
        if self.view is not None and constant is not True and self.chance(self.views):
            with contextlib.suppress(Declined):
                return self.view(self, array)
        return self.given(array, constant)

    def given(self, array: Array, constant: bool | None = None) -> Var:
        """Return a new input or weight that holds `array`."""
        stored = self.chance(0.25) if constant is None else constant
        if self.is_open and set(array.shape) & set(SYMBOLS.values()):
            stored = False
        name = f"{self.prefix}{'w' if stored else 'x'}{len(self.vars)}"
        v = Var(name, name_of(array.dtype), array.shape)
        (self.weights if stored else self.inputs)[v.name] = array
        return self.add(v)

    def add(self, v: Var, made: bool = False) -> Var:
        """Take note of a value."""
        self.vars.append(v)
        self.types[v.name] = v
        if made:
            self.made.add(v.name)
        return v

    def array(self, v: Var) -> Array | None:
        """Return what a value holds, if nothing computes it."""
        return self.weights.get(v.name, self.inputs.get(v.name))

    def ints(self, values: Sequence[int], dtype: str = "int64") -> Var:
        """Return a weight that holds integers, or computes those that are of open extents."""
        if self.is_open and dtype == "int64" and any(_symbol(n) for n in values):
            return computed(self, [int(n) for n in values])
        return self.known(np.array(values, DTYPES[dtype]))

    def known(self, array: Array) -> Var:
        """Return a weight for what an importer must know, or an input where it may wait."""
        if self.is_staged and self.chance(0.25):
            v = self.control(array)
            self.elements[v.name] = self.inputs[v.name]
            return v
        return self.given(array, True)

    def control(self, array: Array, *others: Array) -> Var:
        """Return an input that decides what is run, and may be `others` in other calls."""
        v = self.given(array, False)
        self.controls[v.name] = list(others)
        return v

    def contents(self, dtype: str, shape: Shape) -> Array:
        """Return elements of moderate size, some of them equal."""
        return elements(self.rng, dtype, shape, self.one_of(STYLES))

    def pick(
        self, dtypes: Iterable[str], least: int = 0, most: int = 6, *, empty: bool = True,
        where: Callable[[Var], bool] = lambda v: True, shape: Callable[[], Shape] | None = None,
    ) -> Var:  # fmt: skip
        """Return a value that was made before or a new one, of a rank in between.

        A new one has a random shape, or that which `shape` returns.
        """
        allowed = [d for d in dtypes if d in DTYPES]

        def fits(v: Var) -> bool:
            ranked = v.dtype in allowed and least <= v.rank <= most
            return ranked and (empty or 0 not in v.shape) and where(v)

        fitting = [v for v in self.vars if fits(v)]
        computed = [v for v in fitting if v.name in self.made]
        if computed and self.chance(0.75 if self.joins < 0.5 else 0.95):
            return computed[-1] if self.chance(0.6) else self.one_of(computed)
        if fitting and self.chance(0.3):
            return self.one_of(fitting)
        if self.made and self.chance(self.joins):
            with contextlib.suppress(Declined):
                joined = self.adapted([v for v in self.vars if v.name in self.made][-1],
                                      allowed, least, most)  # fmt: skip
                if fits(joined):
                    return joined
        for _ in range(8):
            wanted = shape() if shape is not None else self.shape(least, most, empty)
            v = Var("", self.dtype(allowed), wanted)
            if where(v):
                return self.fresh(v.dtype, v.shape, False if not self.vars else None)
        raise Declined

    def adapted(self, v: Var, dtypes: Sequence[str], least: int, most: int) -> Var:
        """Return v converted to one of `dtypes`, of a rank in between."""
        if v.dtype not in dtypes:
            wide = [t for t in (*FLOATS, "int32", "int64", "bool") if t in dtypes]
            v = self.node("Cast", [v], to=code(self.one_of(wide)))[0]
        if v.rank < least:
            axes = list(range(v.rank, least)) if self.chance(0.5) else list(range(least - v.rank))
            if self.opset < 13:
                return self.node("Unsqueeze", [v], axes=axes)[0]
            return self.node("Unsqueeze", [v, self.given(np.array(axes), True)])[0]
        if v.rank > most:
            if self.is_open or not most or self.opset < 5:
                raise Declined
            merged = (-1, *v.shape[v.rank - most + 1 :])
            return self.node("Reshape", [v, self.given(np.array(merged, np.int64), True)])[0]
        return v

    def beside(self, v: Var, dtype: str = "") -> Var:
        """Return a value that broadcasts with v: with some extents 1, or some axes missing."""
        if not dtype and self.chance(0.08):
            return v
        shape = tuple(1 if self.chance(0.2) else d for d in v.shape)
        shape = shape[self.number(0, len(shape)) :] if self.chance(0.3) else shape
        wanted = dtype or v.dtype
        same = [
            u for u in self.vars
            if u.dtype == wanted and u.shape == v.shape and u.name in self.made
        ]  # fmt: skip
        return self.one_of(same) if same and self.chance(0.4) else self.fresh(wanted, shape)

    # ── nodes ──

    def node(
        self, op: str, inputs: Sequence[Var | None], outputs: int = 1, domain: str = "",
        types: Sequence[tuple[str, Shape]] | None = None, **attributes: Any,
    ) -> list[Var]:  # fmt: skip
        """Add a node; return its outputs, of `types` or what ONNX infers.

        Raises Declined if ONNX says that the node is no good, or cannot tell the shapes.
        """
        names = ["" if v is None else v.name for v in inputs]
        while names and not names[-1]:
            names.pop()
        results = [f"{self.prefix}v{len(self.nodes)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, names, results, domain=domain)
        self._describe(node, attributes)
        self._check(node)
        found = types or self._inferred(node, [v for v in inputs if v is not None])
        if any(int(np.prod(shape)) > 4 * LARGEST for _, shape in found):
            raise Declined
        made = [Var(name, d, s) for name, (d, s) in zip(results, found, strict=True)]
        self.nodes.append(node)
        return [self.add(v, made=True) for v in made]

    def _describe(self, node: onnx.NodeProto, attributes: dict[str, Any]) -> None:
        """Add attributes to a node; those that are None are left out."""
        schema = self.schema(node.op_type, node.domain)
        for name, value in attributes.items():
            if value is None:
                continue
            kind = None  # an empty list does not tell
            if schema is not None and name in schema.attributes:
                kind = schema.attributes[name].type.value
            try:
                node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
            except (ValueError, TypeError) as error:
                raise Declined from error

    def _check(self, node: onnx.NodeProto) -> None:
        """Decline a node that this opset does not have, or not with these operands."""
        schema = self.schema(node.op_type, node.domain)
        if schema is None:
            if node.domain == "ai.onnx.ml" or (not node.domain and node.op_type in EVER):
                raise Declined
            return
        if not schema.min_input <= len(node.input) <= schema.max_input:
            raise Declined
        if len(node.output) > schema.max_output:
            raise Declined
        if any(a.name not in schema.attributes for a in node.attribute):
            raise Declined

    def _inferred(self, node: onnx.NodeProto, given: Sequence[Var]) -> list[tuple[str, Shape]]:
        schema = self.schema(node.op_type, node.domain)
        if schema is None:
            raise Declined
        held = self.weights | self.elements
        known = {v.name: held[v.name] for v in given if v.name in held}
        types = {v.name: (v.dtype, v.shape) for v in given}
        return inferred(schema, node, types, known, self.opset)

    def inner(self, prefix: str) -> Draft:
        """Return a draft for a body or a branch: it sees what is here, and shares the weights."""
        seen = [v for v in self.vars if v.name not in self.controls]
        return dataclasses.replace(
            self, prefix=prefix, vars=seen, nodes=[], made=set(self.made),
            elements=dict(self.elements), results=[], shown=set(), idle=set(),
        )  # fmt: skip

    def without(self, number: int) -> Draft:
        """Return the draft without one node and without all that depends on it."""
        gone: set[str] = set()
        kept = []
        for i, node in enumerate(self.nodes):
            if i == number or gone & set(reads(node)):
                gone |= set(node.output)
            else:
                kept.append(node)
        found = dataclasses.replace(self, nodes=kept, rng=np.random.default_rng(0))
        found.vars = [v for v in self.vars if v.name not in gone]
        found.made = self.made - gone
        found.results = [name for name in self.results if name not in gone]
        found.shown = self.shown - gone
        return found

    # ── the model ──

    def model(self) -> onnx.ModelProto:
        """Return the model: what nobody reads is an output, and so is what is `shown`."""
        read = self.read()
        ends = self.shown | (self.made - read)
        graph = helper.make_graph(
            self.nodes,
            "random",
            [self.info(k, a) for k, a in self.feeds().items()],
            [self._result(v) for v in self.vars if v.name in ends]
            + [onnx.ValueInfoProto(name=n) for n in self.results],
            [numpy_helper.from_array(a, k) for k, a in self._held(self.weights, read)],
        )
        domains = {n.domain for n in every(self.nodes)} - {""}
        imports = [
            helper.make_opsetid("", self.opset),
            *(helper.make_opsetid(d, self.versions.get(d, 1)) for d in sorted(domains)),
        ]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def info(self, name: str, array: Array) -> onnx.ValueInfoProto:
        """Return what the model says of an input."""
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        called = {n: k for k, n in SYMBOLS.items()} if self.is_open else {}
        return helper.make_tensor_value_info(name, kind, [called.get(d, d) for d in array.shape])

    def _result(self, v: Var) -> onnx.ValueInfoProto:
        shape = [None] * v.rank if self.is_open else v.shape
        return helper.make_tensor_value_info(v.name, code(v.dtype), shape)

    def read(self) -> set[str]:
        """Return the names of all that nodes read."""
        return {name for n in self.nodes for name in reads(n)}

    def _held(self, arrays: dict[str, Array], read: set[str]) -> list[tuple[str, Array]]:
        return [(k, a) for k, a in arrays.items() if k in read | self.shown | self.idle]

    def feeds(self) -> dict[str, Array]:
        return dict(self._held(self.inputs, self.read()))


def every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and those of the graphs that they hold."""
    for n in nodes:
        yield n
        for a in n.attribute:
            yield from every(a.g.node)


def operators(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    return [n.op_type for n in every(nodes)]


def computed(d: Draft, values: Sequence[int]) -> Var:
    """Return integers, some of them taken from the shapes of inputs."""
    whole = Var(f"{d.prefix}s{len(d.vars)}_{len(d.nodes)}", "int64", (len(values),))
    pieces = []
    for i, n in enumerate(values):
        name = f"{whole.name}_{i}"
        symbol = _symbol(n)
        holders = [v for v in d.vars if v.name in d.inputs and symbol in v.shape]
        if not symbol or not holders:
            d.weights[name] = np.array([n])
            pieces.append(name)
            continue
        holder = holders[-1]
        d.weights[f"{name}_at"] = np.array([holder.shape.index(symbol)])
        d.weights[f"{name}_times"] = np.array([n // symbol])
        d.nodes += [
            helper.make_node("Shape", [holder.name], [f"{name}_shape"]),
            helper.make_node("Gather", [f"{name}_shape", f"{name}_at"], [f"{name}_one"]),
            helper.make_node("Mul", [f"{name}_one", f"{name}_times"], [name]),
        ]
        pieces.append(name)
    d.nodes.append(helper.make_node("Concat", pieces, [whole.name], axis=0))
    d.elements[whole.name] = np.array(values)
    return whole


def _symbol(n: int) -> int:
    """Return the number of SYMBOLS that divides n, 0 if none does."""
    return next((s for s in SYMBOLS.values() if n and n % s == 0 and n < 10 * s), 0)

"""A random model under construction: values with types, and nodes that ONNX finds well typed.

Recipes (`recipes_*.py`) add nodes to a Draft; `models.draft` makes a whole model of a seed.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.shape_inference import InferenceError, infer_node_outputs

from alpenglow.report.cut import reads

Array = NDArray[Any]
Shape = tuple[int, ...]

DTYPES: dict[str, np.dtype[Any]] = {
    "bool": np.dtype(np.bool_), "int8": np.dtype(np.int8), "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32), "int64": np.dtype(np.int64), "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16), "uint32": np.dtype(np.uint32), "uint64": np.dtype(np.uint64),
    "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32), "double": np.dtype(np.float64),
}  # fmt: skip
"""Element types by the names that ONNX's schemas give them."""

FLOATS = ("float16", "bfloat16", "float", "double")
COMMON = ("float", "float", "float", "double", "float16", "int64", "int32", "uint8", "bool")
"""What stands in models most often is tried most often."""

EXTENTS = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33)
LARGEST = 4096
"""The most elements of a value: models stay quick, and loops still have every kind of tail."""

OPSETS = (7, 8, 9, 10, 11, 12, 13, 13, 15, 17, 18, 18, 19, 20, 21, 21, 22, 23, 24, 26)

SYMBOLS = {"n": 11, "m": 13}
"""Open extents, and what they are while a model is drafted: numbers that nothing else is."""


class Declined(Exception):
    """A recipe finds no way to go on from here."""


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
class Draft:
    """Nodes, inputs and weights so far."""

    rng: np.random.Generator
    opset: int
    is_open: bool = False
    """Whether inputs may have open extents: those that are a number of SYMBOLS."""
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

    # ── chance ──

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, both included."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, options: Sequence[Any]) -> Any:
        if not options:
            raise Declined
        return options[int(self.rng.integers(len(options)))]

    def shape(self, least: int = 0, most: int = 6, empty: bool = True) -> Shape:
        """Return a shape of a rank in between; large ranks are rare."""
        rank = min(most, max(least, int(self.one_of((0, 1, 2, 2, 3, 3, 4, 4, 5, 6)))))
        out: list[int] = []
        for _ in range(rank):
            fitting = [d for d in EXTENTS if d * int(np.prod(out or [1])) <= LARGEST]
            extent = int(self.one_of(fitting or [1]))
            if self.is_open and self.chance(0.4):
                extent = int(self.one_of(list(SYMBOLS.values())))
            # Without elements little is computed: rarely.
            out.append(extent if extent or (empty and self.chance(0.3)) else 2)
        return tuple(out)

    def dtype(self, allowed: Iterable[str]) -> str:
        known = [d for d in allowed if d in DTYPES]
        common = [d for d in COMMON if d in known]
        return str(self.one_of(common if common and self.chance(0.7) else known))

    # ── values ──

    def fresh(self, dtype: str, shape: Shape, constant: bool | None = None) -> Var:
        """Return a new input or, if `constant` (by custom one time in four), a new weight."""
        return self.given(self.contents(dtype, shape), constant)

    def given(self, array: Array, constant: bool | None = None) -> Var:
        name = next(k for k, d in DTYPES.items() if d == array.dtype)
        stored = self.chance(0.25) if constant is None else constant
        if self.is_open and set(array.shape) & set(SYMBOLS.values()):
            stored = False
        v = Var(f"{self.prefix}{'w' if stored else 'x'}{len(self.vars)}", name, array.shape)
        (self.weights if stored else self.inputs)[v.name] = array
        self.vars.append(v)
        return v

    def ints(self, values: Sequence[int], dtype: str = "int64") -> Var:
        """Return a weight that holds integers, or computes those that are of open extents."""
        if self.is_open and dtype == "int64" and any(_symbol(n) for n in values):
            return self._computed([int(n) for n in values])
        if self.is_staged and self.chance(0.25):
            v = self.control(np.array(values, DTYPES[dtype]))
            self.elements[v.name] = self.inputs[v.name]
            return v
        return self.given(np.array(values, DTYPES[dtype]), True)

    def control(self, array: Array, *others: Array) -> Var:
        """Return an input that decides what is run, and may be `others` in other calls."""
        v = self.given(array, False)
        self.controls[v.name] = list(others)
        return v

    def _computed(self, values: Sequence[int]) -> Var:
        """Return integers, some of them taken from the shapes of inputs."""
        whole = Var(f"{self.prefix}s{len(self.vars)}", "int64", (len(values),))
        pieces = []
        for i, n in enumerate(values):
            name = f"{whole.name}_{i}"
            symbol = _symbol(n)
            holders = [v for v in self.vars if v.name in self.inputs and symbol in v.shape]
            if not symbol or not holders:
                self.weights[name] = np.array([n])
                pieces.append(name)
                continue
            holder = holders[-1]
            self.weights[f"{name}_at"] = np.array([holder.shape.index(symbol)])
            self.weights[f"{name}_times"] = np.array([n // symbol])
            self.nodes += [
                helper.make_node("Shape", [holder.name], [f"{name}_shape"]),
                helper.make_node("Gather", [f"{name}_shape", f"{name}_at"], [f"{name}_one"]),
                helper.make_node("Mul", [f"{name}_one", f"{name}_times"], [name]),
            ]
            pieces.append(name)
        self.nodes.append(helper.make_node("Concat", pieces, [whole.name], axis=0))
        self.elements[whole.name] = np.array(values)
        return whole

    def contents(self, dtype: str, shape: Shape) -> Array:
        """Return elements of moderate size, some of them equal."""
        kind = DTYPES[dtype]
        if dtype == "bool":
            return np.asarray(self.rng.random(shape) < 0.5)
        if kind.kind in "iu":
            low = 0 if kind.kind == "u" else -9
            return np.asarray(self.rng.integers(low, 10, shape)).astype(kind)
        made = np.asarray(self.rng.standard_normal(shape))
        if self.chance(0.2):
            made = np.round(made * 2)
        return made.astype(kind)

    def pick(
        self, dtypes: Iterable[str], least: int = 0, most: int = 6, *, empty: bool = True,
        where: Callable[[Var], bool] = lambda v: True,
    ) -> Var:  # fmt: skip
        """Return a value that was made before or a new one, of a rank in between."""
        allowed = [d for d in dtypes if d in DTYPES]
        fitting = [
            v for v in self.vars
            if v.dtype in allowed and least <= v.rank <= most and where(v)
            and (empty or 0 not in v.shape)
        ]  # fmt: skip
        computed = [v for v in fitting if v.name in self.made]
        if computed and self.chance(0.75):
            return computed[-1] if self.chance(0.6) else self.one_of(computed)
        if fitting and self.chance(0.3):
            return self.one_of(fitting)
        for _ in range(8):
            v = Var("", self.dtype(allowed), self.shape(least, most, empty))
            if where(v):
                return self.fresh(v.dtype, v.shape, False if not self.vars else None)
        raise Declined

    def beside(self, v: Var, dtype: str = "") -> Var:
        """Return a value that broadcasts with v: with some extents 1, or some axes missing."""
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
        node = helper.make_node(op, names, results, domain=domain, **attributes)
        self._check(node)
        found = types or self._inferred(node, [v for v in inputs if v is not None])
        if any(int(np.prod(shape)) > 4 * LARGEST for _, shape in found):
            raise Declined
        made = [Var(name, d, s) for name, (d, s) in zip(results, found, strict=True)]
        self.nodes.append(node)
        self.vars += made
        self.made |= {v.name for v in made}
        return made

    def _check(self, node: onnx.NodeProto) -> None:
        """Decline a node that this opset does not have, or not with these operands."""
        if node.domain:
            return
        if not onnx.defs.has(node.op_type, self.opset):
            raise Declined
        schema = onnx.defs.get_schema(node.op_type, self.opset)
        if not schema.min_input <= len(node.input) <= schema.max_input:
            raise Declined
        if len(node.output) > schema.max_output:
            raise Declined
        if any(a.name not in schema.attributes for a in node.attribute):
            raise Declined

    def _inferred(self, node: onnx.NodeProto, given: Sequence[Var]) -> list[tuple[str, Shape]]:
        if not onnx.defs.has(node.op_type, self.opset, node.domain):
            raise Declined
        schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
        types = {v.name: type_proto(v) for v in given}
        held = self.weights | self.elements
        known = {
            v.name: numpy_helper.from_array(held[v.name], v.name) for v in given if v.name in held
        }
        imports = [helper.make_opsetid("", self.opset)]
        try:
            made = infer_node_outputs(schema, node, types, known, opset_imports=imports)
        except (InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError) as error:
            raise Declined from error
        found = []
        for name in node.output:
            t = made[name].tensor_type if name in made else onnx.TypeProto.Tensor()
            kind = onnx.TensorProto.DataType.Name(t.elem_type).lower()
            if not t.HasField("shape") or kind not in DTYPES:
                raise Declined
            if not all(d.HasField("dim_value") and d.dim_value >= 0 for d in t.shape.dim):
                raise Declined
            shape = tuple(d.dim_value for d in t.shape.dim)
            if 0 in shape and any(a.name == "kernel_shape" for a in node.attribute):
                raise Declined  # the window is larger than what it stands on
            found.append((kind, shape))
        return found

    def inner(self, prefix: str) -> Draft:
        """Return a draft for a body or a branch: it sees what is here, and shares the weights."""
        seen = [v for v in self.vars if v.name not in self.controls]
        return Draft(
            self.rng, self.opset, self.is_open, self.is_staged, prefix, seen, [], self.inputs,
            self.weights, set(self.made), self.controls, dict(self.elements),
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
        return found

    def model(self) -> onnx.ModelProto:
        """Return the model: what nobody reads is an output, and so are some others."""
        read = {name for n in self.nodes for name in reads(n)}
        made = [v for v in self.vars if v.name in self.made]
        outputs = [v for v in made if v.name not in read or self.chance(0.1)]
        fed = [k for k in self.inputs if k in read]
        graph = helper.make_graph(
            self.nodes,
            "random",
            [self.info(k, self.inputs[k]) for k in fed],
            [self._result(v) for v in outputs]
            + [onnx.ValueInfoProto(name=n) for n in self.results],
            [numpy_helper.from_array(a, k) for k, a in self.weights.items() if k in read],
        )
        domains = {n.domain for n in every(self.nodes)} - {""}
        imports = [
            helper.make_opsetid("", self.opset),
            *(helper.make_opsetid(d, 1) for d in domains),
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

    def feeds(self) -> dict[str, Array]:
        read = {name for n in self.nodes for name in reads(n)}
        return {k: a for k, a in self.inputs.items() if k in read}


def every(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """Yield nodes, and those of the graphs that they hold."""
    for n in nodes:
        yield n
        for a in n.attribute:
            yield from every(a.g.node)


def operators(nodes: Iterable[onnx.NodeProto]) -> list[str]:
    return [n.op_type for n in every(nodes)]


def _symbol(n: int) -> int:
    """Return the number of SYMBOLS that divides n, 0 if none does."""
    return next((s for s in SYMBOLS.values() if n and n % s == 0 and n < 10 * s), 0)


def code(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(DTYPES[dtype]))


def type_proto(v: Var) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(code(v.dtype), v.shape)


def allowed(op: str, opset: int, position: int = 0, domain: str = "") -> list[str]:
    """Return the element types that ONNX allows for an operand and that we know."""
    if not onnx.defs.has(op, opset, domain):
        raise Declined
    schema = onnx.defs.get_schema(op, opset, domain)
    types = schema.inputs[min(position, len(schema.inputs) - 1)].types
    return sorted(t[7:-1] for t in types if t.startswith("tensor(") and t[7:-1] in DTYPES)


Recipe = Callable[[Draft, str], None]
RECIPES: dict[str, Recipe] = {}
STAGED: dict[str, Recipe] = {}
"""Recipes for what depends on data; they are for drafts that are staged."""


def recipe(*ops: str, table: dict[str, Recipe] = RECIPES) -> Callable[[Recipe], Recipe]:
    """Register the decorated function as the way to make random nodes of these operators."""

    def add(made: Recipe) -> Recipe:
        assert not table.keys() & set(ops), ops
        table.update(dict.fromkeys(ops, made))
        return made

    return add


def grow(d: Draft, wanted: int) -> None:
    """Add nodes by random recipes until there are `wanted`, or nothing fits."""
    plain, staged = sorted(RECIPES), sorted(STAGED)
    end = len(d.nodes) + wanted
    for _ in range(30 * wanted):
        if len(d.nodes) >= end:
            return
        # One level of nesting is mostly enough.
        table = STAGED if d.is_staged and d.chance(0.5 if not d.prefix else 0.1) else RECIPES
        op = str(d.one_of(staged if table is STAGED else plain))
        # What a recipe made before it gave up stands.
        with contextlib.suppress(Declined):
            table[op](d, op)

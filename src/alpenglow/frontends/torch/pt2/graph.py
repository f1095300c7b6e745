"""The graph of a ``.pt2`` file as calls: arguments of every kind, extents, graphs in arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.base.words import shown, some
from alpenglow.frontends.torch.functional import Functional, functional
from alpenglow.frontends.torch.fx import DROPPED, PARAMETERS, READERS, source_of
from alpenglow.frontends.torch.fx import STRIDED as STRIDED_READERS
from alpenglow.frontends.torch.program import (
    Argument,
    Body,
    Call,
    Condition,
    Ref,
    Unknown,
    module_path,
    program_name,
    symbols_in,
)
from alpenglow.frontends.torch.pt2.schema import (
    DTYPES,
    FORMATS,
    LAYOUTS,
    STRIDED,
    Record,
    device,
    field,
    listed,
    number,
    of_kind,
    record,
    union,
    word,
)
from alpenglow.frontends.torch.refusals import blaming, undefined
from alpenglow.frontends.torch.symbols import conditions, extent
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.types import TensorType

DEEPEST = 32
"""The largest number of graphs nested in each other."""

CPU = "cpu"

PYTHON = ("operator.", "torch.", "math.")
"""Prefixes of functions of Python, which have no schema."""

KEYWORD = 2
"""The kind of a keyword argument."""

HIGHER = "higher_order."


def body_of(graph: Any, depth: int = 0) -> Body:
    """Return the calls of a graph that is nested in `depth` others."""
    made = functional_of(graph, depth)
    if made.written:
        raise UnsupportedError("a function of control flow writes into its inputs, "
                               "expected none that does")  # fmt: skip
    return made.body


def functional_of(graph: Any, depth: int = 0) -> Functional:
    """Return the calls of a graph that is nested in `depth` others, and the inputs it writes."""
    if depth > DEEPEST:
        raise UnsupportedError(f"graphs are nested too deep, expected at most {DEEPEST} levels")
    reader = _Reader(record(graph, "a graph", "graph"), depth)
    body = reader.body()
    with blaming(trusted=False):
        return functional(body, reader.lies_in_order)


def named(value: Any, what: str) -> str:
    """Return the name that a record holds and nothing else."""
    r = record(value, what)
    if r.keys() != {"name"}:
        fields = some(map(str, r))
        raise ModelError(f"{what} has the fields {fields}, expected the field name and no other")
    return field(r, "name", str, what)


def size(value: Any, what: str) -> Dim:
    """Return an extent, a number or an expression."""
    kind, content = union(value, what)
    if kind == "as_int":
        return of_kind(content, int, what)
    if kind == "as_expr":
        return extent(_expression(content, what))
    raise ModelError(f"{what} is {shown(kind)}, expected a number or an expression")


def type_of(meta: Any, what: str) -> TensorType | None:
    """Return the type of a tensor; None if it is not dense on the CPU or its type is unknown."""
    r = record(meta, what, "tensor")
    dtype = DTYPES.get(field(r, "dtype", int, what))
    sizes = tuple(size(s, f"an extent of {what}") for s in field(r, "sizes", list, what))
    if any(isinstance(d, int) and d < 0 for d in sizes):
        raise ModelError(f"{what} has sizes {sizes}, expected at least 0 each")
    dense = field(r, "layout", int, what) == STRIDED and device(r.get("device"), what) == CPU
    if not dense or dtype is None:
        return None
    t = TensorType(dtype, sizes)
    if t.static and t.nbytes > MOST_NBYTES:
        raise ModelError(f"{what} is {t}, expected at most {MOST_NBYTES} bytes")
    return t


def lies_in_order(meta: Record, t: TensorType, what: str) -> bool:
    """Whether the elements of a tensor lie in order from the start of its memory."""
    strides = [size(s, f"a stride of {what}") for s in field(meta, "strides", list, what)]
    wanted = [product(t.shape[i + 1 :]) for i in range(t.rank)]
    ordered = all(a == b or d == 1 for a, b, d in zip(strides, wanted, t.shape, strict=True))
    return ordered and size(meta.get("storage_offset"), what) == 0


def traced_name(graph: Record) -> str:
    """Return the name of a program: the class of the module that was traced."""
    nodes = listed(field(graph, "nodes", list, "a graph"), dict, "nodes of a graph")
    outermost = (modules[0] for node in nodes if (modules := _modules(node)))
    return program_name(next((kind for path, kind in outermost if not path), ""))


def _modules(node: Record) -> list[tuple[str, str]]:
    """Return path and class of each module that a node is a part of, the outermost first."""
    about = record(node.get("metadata") or {}, "metadata of a node")
    stack = of_kind(about.get("nn_module_stack") or "", str, "a stack of modules")
    parts = (entry.split(",") for entry in stack.split(";"))
    return [(path, kind) for _, path, kind in (p for p in parts if len(p) == 3)]


def target_of(text: str) -> str:
    """Return the name of an operator as the table has it: ``aten.add.Tensor``."""
    return text.removeprefix("torch.ops.").removeprefix(HIGHER).lstrip("_")


@dataclass(frozen=True, slots=True)
class _Result:
    """A result of a call: its name in the file, "" for none, and what the importer calls it."""

    name: str
    told: str


class _Reader:
    """The state of reading one graph."""

    def __init__(self, graph: Record, depth: int) -> None:
        self.graph = graph
        self.depth = depth
        self.tensors = dict(self._table("tensor_values"))
        self.types: dict[str, TensorType] = {}
        self.numbers: dict[str, Argument] = {}  # what is known of numbers by name
        self.symbols: dict[str, Argument] = {}
        self.made: set[str] = set()
        self.read: set[str] = set()
        self.calls: list[tuple[Call, Sequence[_Result]]] = []

    def body(self) -> Body:
        for name, meta in self.tensors.items():
            if (t := type_of(meta, f"tensor '{shown(name)}'")) is not None:
                self.types[name] = t
        for name, value in self._table("sym_int_values"):
            self.numbers[name] = _whole(value, f"number '{shown(name)}'")
        for name, value in self._table("sym_bool_values"):
            self.numbers[name] = _truth(value, f"number '{shown(name)}'")
        for name, value in self._table("sym_float_values"):
            kind, content = union(value, f"number '{shown(name)}'")
            if kind == "as_float":
                self.numbers[name] = number(content, f"number '{shown(name)}'")
            else:  # calls compute it, as a tensor
                self.types[name], self.numbers[name] = TensorType("f64", ()), Ref(name)
        inputs = tuple(self._input(i, a) for i, a in enumerate(self._list("inputs")))
        for node in self._list("nodes"):
            self._call(record(node, "a node", "node"))
        outputs = tuple(self.argument(a, "an output") for a in self._list("outputs"))
        calls = tuple(self._named(call, results) for call, results in self.calls)
        return Body(inputs, calls, outputs, self.types, symbols=self.symbols)

    def _table(self, name: str) -> list[tuple[str, Any]]:
        return list(record(self.graph.get(name, {}), f"{name} of a graph").items())

    def _list(self, name: str) -> list[Any]:
        return field(self.graph, name, list, "a graph")

    def _input(self, place: int, value: Any) -> str:
        kind, content = union(value, "an input")
        match kind:
            case "as_tensor":
                return self._make(named(content, "an input"))
            case "as_sym_int":
                name = self._number(content, "an input")
                self.symbols[name] = self.numbers[name]
                return name
            case "as_custom_obj":
                name = field(record(content, "an input"), "name", str, "an input")
                self.numbers[name] = Unknown("an object of a custom class")
                return self._make(name)
        return self._make(f"#{place}")  # what was fixed as the program was made; nothing reads it

    def _make(self, name: str) -> str:
        if name in self.made:
            raise ModelError(f"'{shown(name)}' is defined twice, expected once")
        self.made.add(name)
        return name

    def _number(self, value: Any, what: str) -> str:
        """Return the name of a number that is made here."""
        name = self._make(field(record(value, what), "as_name", str, what))
        if name not in self.numbers:
            raise ModelError(f"number '{shown(name)}' is missing in the sym_…_values of the graph")
        return name

    def _call(self, node: Record) -> None:
        target = target_of(field(node, "target", str, "a node"))
        outputs = listed(field(node, "outputs", list, "a node"), dict, "outputs of a node")
        results = [r for o in outputs for r in self._results(o, target, len(outputs))]
        known = len(results) == 1 and self._is_known(results[0].name)
        if target in DROPPED or (known and target not in READERS):
            return
        name = node.get("name") or next((r.name for r in results if r.name), target)
        trace = record(node.get("metadata") or {}, "metadata of a node").get("stack_trace") or ""
        source = source_of(of_kind(trace, str, "a stack trace"))
        path = module_path(next(reversed(_modules(node)), ("", ""))[0])
        call = Call(of_kind(name, str, "a node's name"), target, self._arguments(node, target), (),
                    source, path)  # fmt: skip
        self.calls.append((call, results))

    def _is_known(self, name: str) -> bool:
        """Whether a name is a number's that no call computes."""
        return name in self.numbers and self.numbers[name] != Ref(name)

    def _named(self, call: Call, results: Sequence[_Result]) -> Call:
        """Return a call with the names of its results; of several, "" for unread ones."""
        one = len(results) == 1
        names = tuple(r.told if one or r.name in self.read else "" for r in results)
        stated = () if one else tuple(self.types.get(r.name) for r in results)
        return replace(call, results=names, stated=stated)

    def _arguments(self, node: Record, target: str) -> dict[str, Argument]:
        """Return the arguments of a call by name; `PARAMETERS` names those without a schema."""
        arguments: dict[str, Argument] = {}
        has_schema = "." in target and not target.startswith(PYTHON)
        names = PARAMETERS.get(target, ("x", "other"))
        for i, given in enumerate(field(node, "inputs", list, "a node")):
            r = record(given, f"an argument of {shown(target)}", "argument")
            name = field(r, "name", str, "an argument")
            if not has_schema and r.get("kind") != KEYWORD:
                name = names[i] if i < len(names) else str(i)
            if name in arguments:
                raise ModelError(f"{shown(target)} has two arguments '{shown(name)}', expected one")
            arguments[name] = self.argument(r.get("arg"), f"argument {shown(name)}")
            if target in STRIDED_READERS and isinstance(of := arguments[name], Ref):
                arguments[name] = self._in_order(of)
        return arguments

    def lies_in_order(self, name: str) -> bool:
        """Whether the elements of a tensor lie in order from the start of its memory."""
        t, what = self.types.get(name), f"tensor '{shown(name)}'"
        meta = record(self.tensors.get(name), what, "tensor")
        return t is not None and lies_in_order(meta, t, what)

    def _in_order(self, tensor: Ref) -> Argument:
        """Return a tensor whose memory is read, which is known if its elements lie in order."""
        if self.lies_in_order(tensor.name):
            return tensor
        return Unknown("a tensor that is not contiguous")

    def _results(self, output: Record, target: str, outputs: int) -> list[_Result]:
        """Return the results that an output of a call is."""
        kind, content = union(output, "an output of a node")
        match kind:
            case "as_tensor":
                name = self._make(named(content, "a result"))
                return [_Result(name, name)]
            case "as_none":
                return [_Result("", "")] if outputs > 1 else []
            case "as_tensors" if outputs == 1:
                names = [self._make(named(t, "a result"))
                         for t in of_kind(content, list, "results")]  # fmt: skip
                return [_Result(n, n) for n in names]
            case "as_sym_int" | "as_sym_bool" | "as_sym_float":
                name = self._number(content, "a result")
                if target in READERS:
                    symbols = sorted(symbols_in(self.numbers[name]))
                    return [_Result(name, s) for s in symbols] or [_Result(name, name)]
                known = self._is_known(name) and outputs > 1
                return [_Result(name, str(self.numbers[name]) if known else name)]
        raise UnsupportedError(f"{shown(target)} returns {shown(kind)}, "
                               "expected tensors or numbers")  # fmt: skip

    # ── arguments ──

    def argument(self, value: Any, what: str) -> Argument:
        """Return an argument as the importer takes it."""
        kind, content = union(value, what)
        if kind not in _KINDS:
            return Unknown(f"kind {shown(kind)}")
        return _KINDS[kind](self, content, what)

    def tensor(self, value: Any, what: str) -> Argument:
        name = named(value, what)
        if name not in self.made:
            raise undefined(name)
        self.read.add(name)
        return Ref(name)

    def optional(self, value: Any, what: str) -> Argument:
        kind, content = union(value, what)
        return self.tensor(content, what) if kind == "as_tensor" else None

    def numbered(self, value: Any, what: str) -> Argument:
        """Return a number that is known, or what is known of one by name."""
        kind, content = union(value, what)
        if kind in _PLAIN:
            return _PLAIN[kind](content, what)
        name = of_kind(content, str, what)
        if kind != "as_name" or name not in self.numbers or name not in self.made:
            raise undefined(name)
        self.read.add(name)
        return self.numbers[name]

    def graph_of(self, value: Any, what: str) -> Argument:
        return body_of(field(record(value, what), "graph", dict, what), self.depth + 1)


# ── numbers ──


def _whole(value: Any, what: str) -> Argument:
    try:
        return size(value, what)
    except UnsupportedError as error:
        return Unknown(error.message)


def _truth(value: Any, what: str) -> Argument:
    kind, content = union(value, what)
    if kind == "as_bool":
        return of_kind(content, bool, what)
    try:
        return Condition(conditions(_expression(content, what)))
    except UnsupportedError as error:
        return Unknown(error.message)


def _expression(value: Any, what: str) -> str:
    return field(record(value, what, "expression"), "expr_str", str, what)


def _int(value: Any, what: str) -> int:
    return of_kind(value, int, what)


def _bool(value: Any, what: str) -> bool:
    return of_kind(value, bool, what)


def _str(value: Any, what: str) -> str:
    return of_kind(value, str, what)


def _complex(value: Any, what: str) -> complex:
    r = record(value, what)
    return complex(number(r.get("real"), what), number(r.get("imag"), what))


def _dtype(value: Any, what: str) -> Argument:
    key = of_kind(value, int, what)
    return DTYPES.get(key, Unknown(f"dtype {key}"))


_PLAIN: dict[str, Callable[[Any, str], Argument]] = {
    "as_int": _int, "as_float": number, "as_bool": _bool
}  # fmt: skip

_Read = Callable[[_Reader, Any, str], Argument]


def _alone(read: Callable[[Any, str], Argument]) -> _Read:
    """Return how a kind of argument is read that no name stands in."""
    return lambda reader, value, what: read(value, what)


def _each(read: _Read) -> _Read:
    """Return how a list of a kind of argument is read."""
    return lambda reader, value, what: tuple(
        read(reader, item, f"an item of {what}") for item in of_kind(value, list, what)
    )


_KINDS: dict[str, _Read] = {
    "as_none": _alone(lambda value, what: None),
    "as_tensor": _Reader.tensor,
    "as_tensors": _each(_Reader.tensor),
    "as_nested_tensors": _each(_each(_Reader.tensor)),
    "as_optional_tensor": _Reader.optional,
    "as_optional_tensors": _each(_Reader.optional),
    "as_int": _alone(_int),
    "as_ints": _each(_alone(_int)),
    "as_int_lists": _each(_each(_alone(_int))),
    "as_float": _alone(number),
    "as_floats": _each(_alone(number)),
    "as_float_lists": _each(_each(_alone(number))),
    "as_bool": _alone(_bool),
    "as_bools": _each(_alone(_bool)),
    "as_string": _alone(_str),
    "as_strings": _each(_alone(_str)),
    "as_complex": _alone(_complex),
    "as_sym_int": _Reader.numbered,
    "as_sym_ints": _each(_Reader.numbered),
    "as_sym_bool": _Reader.numbered,
    "as_sym_bools": _each(_Reader.numbered),
    "as_sym_float": _Reader.numbered,
    "as_sym_floats": _each(_Reader.numbered),
    "as_scalar_type": _alone(_dtype),
    "as_memory_format": _alone(lambda value, what: word(FORMATS, value, what)),
    "as_layout": _alone(lambda value, what: word(LAYOUTS, value, what)),
    "as_device": _alone(device),
    "as_graph": _Reader.graph_of,
}
"""How each kind of argument is read; another one is something that no converter takes."""

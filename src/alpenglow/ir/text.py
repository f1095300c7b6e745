"""The textual form of graphs: what `print_graph` writes, `parse_graph` reads back.

    graph @mnist8 {
      input %x : f32[1,1,28,28]
      hidden %k : u32[2]                             an input that the runtime fills at each call
      given N-3 >= 0                                 what holds of open extents
      const @w : f32[8,1,5,5] sha256:3f…            contents in a side file, found by hash
      const @k : i64[2] = [1, -1]                    up to 16 elements stand inline
      variable %n : i64[1] = [0]                     at entry; before the first call as said here
      variable %k : f32[P,8] grows along 0           at entry; before the first call empty
      %y : f32[1,8,28,28] = conv(%x, @w, pads=(2, 2, 2, 2))
      %a : f32[4], %b : i64[4] = top_k(%z, axis=0)
      %f : f32[4] = fused(%a, %b) {
        input %p : f32[4]
        ...
      }
      assign n = %m                                  what variable n has at exit
      output "y" = %y
    }

A name that is no plain word is written in double quotes.  Attributes are Python literals; named
extents inside them are written as expressions.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from alpenglow.base.errors import NONSENSE, AlpenglowError, ParseError, TypeRuleError
from alpenglow.base.expression import parse_expression
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.ir import dims
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.layout import Layout, find_layout
from alpenglow.ir.op import Op, find_operator, misfit
from alpenglow.ir.side import SideWeights
from alpenglow.ir.solve import satisfying
from alpenglow.ir.types import COMPLEX, NARROW, Array, TensorType
from alpenglow.ir.verify import verify_graph

INLINE = 16
"""Constants of up to this many elements are printed in full."""

WORD = r'(?:[\w.:/$-]+|"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")'
RESULT = rf"%{WORD} : \w+(?:\[[^\]]*\])?"

Values = dict[str, Value | None]
"""The values of a text so far, by mark and name."""


def print_graph(g: Graph) -> str:
    """Return the text of `g`, which is left as it is: names that the text lacks are its own."""
    return "\n".join(_lines(g, Namer()))


def parse_graph(
    text: str,
    weights: Mapping[str, Array] | None = None,
    properties: Set[str] = frozenset(),
    around: Set[str] = frozenset(),
) -> Graph:
    """Read a graph; `weights` holds the constants that are not inline, by SHA-256.

    A graph is verified: `properties` must be true of it, and its extents are open in names of its
    inputs or in those `around` it.  Raises ParseError with the line where the text breaks the
    grammar or a printed type is not what the operator infers, TypeRuleError where a node is
    ill-typed, and GraphError where the graph breaks another rule.
    """
    source = Lines(text)
    header = source.match(rf"graph @({WORD}) {{", "graph @NAME {")
    g = parse_body(source, unquote(header[1]), weights or {})
    source.end()
    told = source.told
    verify_graph(g, properties, None if told is None else told.values, around)
    if told is not None:
        g.guards = tuple(dict.fromkeys((*g.guards, *told.guards)))
    return g


def side_weights(g: Graph) -> dict[str, Array]:
    """Return the constants that the text of `g` refers to by hash."""
    stored = (*g.constants(), *g.initial.values())
    weights = {v.digest: v.array for v in stored if v.array is not None and not inline(v.type)}
    for node in g.nodes:
        for region in node.regions:
            weights |= side_weights(region)
    return weights


def inline(t: TensorType) -> bool:
    """Whether a constant of this type is printed in full; literals hold no complex numbers."""
    return t.size <= INLINE and t.dtype not in COMPLEX


class Namer:
    """Gives each value a name that is unique in the text, near its own."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.taken: dict[str, int] = {}

    def __call__(self, v: Value | None) -> str:
        if v is None:
            return "none"
        if v not in self.names:
            self.call(v, v.name)
        return self.names[v]

    def call(self, v: Value, name: str) -> None:
        """Give `v` a name near `name`, whatever it is called in its graph."""
        mark = "%" if v.array is None else "@"
        self.names[v] = mark + quote(unique(name, self.taken))


def unique(name: str, taken: dict[str, int]) -> str:
    """Return `name`, or a variant of it, that is not in `taken`, and put it there.

    Each name that is taken stands with the number of the variant of it to try next.
    """
    chosen, number = name, taken.get(name, 2 if name else 0)
    while not chosen or chosen in taken:
        chosen = f"{name}.{number}" if name else str(number)
        number += 1
    taken[name] = number
    taken.setdefault(chosen, 2)
    return chosen


def quote(name: str) -> str:
    """Return a name as one word of the text, in which no comment begins."""
    plain = re.fullmatch(r"[\w.:/$-]+", name)
    return name if plain else json.dumps(name).replace("#", "\\u0023")


def unquote(word: str) -> str:
    return str(json.loads(word)) if word.startswith('"') else word


# ── printing ──


def _lines(g: Graph, name: Namer) -> Iterator[str]:
    yield f"graph @{quote(g.name)} {{"
    for key, v in g.inputs.items():
        name.call(v, key)
        if key in g.initial:
            yield f"  variable {name(v)} : {variable_text(g.initial[key], g.growing.get(key))}"
        else:
            yield f"  {'hidden' if v.hidden else 'input'} {name(v)} : {v.type}"
    for x, relation in g.guards:
        yield f"  given {x} {relation} 0"
    for v in g.constants():
        yield f"  const {name(v)} : {constant_text(v)}"
    for n in g.nodes:
        left = ", ".join(f"{name(v)} : {v.type}" for v in n.results)
        line = f"  {left} = {application_text(n.op, [name(v) for v in n.inputs])}"
        if not n.regions:
            yield line
            continue
        for i, region in enumerate(n.regions):
            inner = list(_lines(region, Namer()))
            yield (line if i == 0 else "  }") + " {"
            yield from ("  " + text for text in inner[1:-1])
        yield "  }"
    for key, v in g.outputs.items():
        yield f"  {'assign' if key in g.initial else 'output'} {quote(key)} = {name(v)}"
    yield "}"


def variable_text(initial: Value, axis: int | None) -> str:
    """Return what a variable is: its type and first contents, or along which axis it grows."""
    return constant_text(initial) if axis is None else f"{initial.type} grows along {axis}"


def constant_text(v: Value) -> str:
    """Return the type of a constant and its contents or their hash."""
    assert v.array is not None
    if inline(v.type):
        return f"{v.type} = {literal(_shortest(v.array))}"
    return f"{v.type} sha256:{v.digest}"


def _shortest(array: Array) -> Any:
    """Return the elements as nested lists, floats with as few digits as tell them apart."""
    if array.dtype.kind not in "fV" or array.dtype == np.float64:
        return array.tolist()
    short = np.empty(array.shape, object)
    short[...] = np.reshape([float(str(x)) for x in array.reshape(-1)], array.shape)
    return short.tolist()


def application_text(op: Op, operands: Sequence[str]) -> str:
    """Return ``op(operands…, attribute=value…)``."""
    attributes = [
        str(v) if isinstance(v, Layout) else f"{k}={literal(v)}" for k, v in op.attributes()
    ]
    return f"{op.name}({', '.join([*operands, *attributes])})"


def literal(value: Any) -> str:
    """Return an attribute or constant as text that `parse_literal` reads."""
    if isinstance(value, tuple | list):
        inside = ", ".join(map(literal, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, str):
        return repr(value).replace("  #", "  \\x23")  # no comment begins here
    return str(value) if isinstance(value, dims.Sym) else repr(value)


# ── parsing ──


class Lines:
    """The lines of a text and where we are in it."""

    def __init__(self, text: str, *, trusted: bool = False) -> None:
        self.trusted = trusted
        """Whether constants are known to be what their hashes say."""
        self._types: dict[str, TensorType] = {}
        self._literals: dict[str, Any] = {}
        self.guarded: Graph | None = None
        self.told: dims.Told | None = None
        """Numbers for which the guards of the graph `guarded` hold, once they are needed."""
        self.operators: dict[tuple[str, str], Op] = {}
        """Those that were read: equal layers have the same."""
        self.lines = [line.split("  #")[0].strip() for line in text.splitlines()]
        self.at = 0

    def peek(self) -> str:
        while self.at < len(self.lines) and not self.lines[self.at]:
            self.at += 1
        return self.lines[self.at] if self.at < len(self.lines) else ""

    def take(self) -> str:
        line = self.peek()
        self.at += 1
        return line

    def match(self, pattern: str, grammar: str) -> re.Match[str]:
        """Take a line that matches `pattern`, or raise ParseError quoting `grammar`."""
        line = self.take()
        match = re.fullmatch(pattern, line)
        if match is None:
            raise self.error(f"expected {grammar}", line)
        return match

    def type(self, text: str) -> TensorType:
        """Read a type in the line taken last."""
        if text in self._types:
            return self._types[text]
        try:
            t = TensorType.parse(text)
        except ParseError as error:
            raise ParseError(f"line {self.at}: {error.message}") from error
        if math.prod(max(d, 1) for d in t.shape if isinstance(d, int)) > MOST_NBYTES:
            raise self.error(f"expected a tensor of at most {MOST_NBYTES} elements", text)
        self._types[text] = t
        return t

    def literal(self, text: str) -> Any:
        """Read an attribute or constant in the line taken last."""
        if text in self._literals:
            return self._literals[text]
        try:
            value = parse_literal(text)
        except ParseError as error:
            raise self.error("expected a Python literal", text) from error
        if not isinstance(value, list):  # strides and extents, which are the same all over
            self._literals[text] = value
        return value

    def error(self, message: str, line: str = "") -> ParseError:
        return ParseError(f"line {self.at}: {message}, found: {line or 'nothing more'}")

    @contextmanager
    def explained(self, line: str) -> Iterator[None]:
        """Raise what a graph refuses in a block as a ParseError of the line taken last."""
        try:
            yield
        except TypeRuleError as error:
            raise self.error(error.message, line) from error

    def end(self) -> None:
        if self.peek():
            raise self.error("expected the end", self.take())


def parse_body(source: Lines, name: str, weights: Mapping[str, Array]) -> Graph:
    """Read the lines of a graph after its head, up to and with the closing brace."""
    g = Graph(name)
    values: Values = {"none": None}
    while (line := source.peek()) not in ("}", "} {"):
        keyword = line.split(" ", 1)[0]
        if keyword in ("input", "hidden"):
            m = source.match(rf"{keyword} %({WORD}) : (.*)", f"{keyword} %NAME : TYPE")
            hidden = keyword == "hidden"
            _define(values, "%" + m[1], _input(g, unquote(m[1]), m[2], hidden, source), source)
        elif keyword == "variable":
            m = source.match(rf"variable %({WORD}) : (.*)", "variable %NAME : TYPE = … or sha256:…")
            v = _variable(g, unquote(m[1]), m[2], weights, source)
            _define(values, "%" + m[1], v, source)
        elif keyword == "given":
            m = source.match(rf"given (.*) ({'|'.join(dims.RELATIONS)}) 0", "given EXTENT >= 0")
            g.guards = (*g.guards, *_guard(m[1], m[2], source))
            source.guarded = g
        elif keyword == "const":
            m = source.match(rf"const @({WORD}) : (.*)", "const @NAME : TYPE = … or sha256:…")
            v = parse_constant(g, unquote(m[1]), m[2], weights, source)
            _define(values, "@" + m[1], v, source)
        elif keyword == "output":
            m = source.match(rf"output ({WORD}) = ([%@]{WORD})", "output NAME = %VALUE")
            with source.explained(line):
                g.output(unquote(m[1]), _lookup(values, m[2], source))
        elif keyword == "assign":
            m = source.match(rf"assign ({WORD}) = ([%@]{WORD})", "assign NAME = %VALUE")
            with source.explained(line):
                g.assign(unquote(m[1]), _lookup(values, m[2], source))
        else:
            _parse_node(source, g, values, weights)
    source.take()
    return g


def _input(g: Graph, name: str, text: str, hidden: bool, source: Lines) -> Value:
    with source.explained(f"input %{quote(name)}"):
        return g.input(name, source.type(text), hidden=hidden)


GROWS = re.compile(r"(.*) grows along (\d+)")
"""A variable that is empty at first."""


def _variable(g: Graph, name: str, text: str, weights: Mapping[str, Array], source: Lines) -> Value:
    if m := GROWS.fullmatch(text):
        with source.explained(f"variable %{quote(name)}"):
            return g.growing_variable(name, source.type(m[1]), int(m[2]))
    initial = parse_constant(g, name, text, weights, source)
    with source.explained(f"variable %{quote(name)}"):
        value = g.variable(name, initial.array, initial.type, copy=False)
    g.initial[name] = initial  # which may know its digest
    return value


def _guard(text: str, relation: str, source: Lines) -> dims.Guards:
    try:
        x = dims.parse(text)
    except ParseError as error:
        raise source.error(error.message, text) from error
    if not isinstance(x, dims.Sym):
        raise source.error("expected a guard on a dynamic dimension", text)
    return ((x, relation),)


def parse_constant(
    g: Graph, name: str, text: str, weights: Mapping[str, Array], source: Lines
) -> Value:
    """Read what `constant_text` wrote."""
    if m := re.fullmatch(r"(\S+) sha256:(\w+)", text):
        t = source.type(m[1])
        if m[2] not in weights:
            raise source.error("expected the SHA-256 hash of one of the weights given", text)
        array = weights[m[2]]
        if t.dtype in NARROW and array.dtype == np.uint8:  # as files hold them
            array = array.view(t.numpy)
        _check_size(t, array, text, source)
        kept = source.trusted or isinstance(weights, SideWeights)  # nothing writes these
        v = g.constant(array.reshape(t.extents), name, t, copy=not kept)
        if source.trusted:
            v.take_digest(m[2])
        elif isinstance(weights, SideWeights):
            weights.hash(m[2], v)
        return v
    m = re.fullmatch(r"(\S+) = (.*)", text)
    if m is None:
        raise source.error("expected TYPE = CONTENTS or TYPE sha256:HASH", text)
    t = source.type(m[1])
    try:
        with np.errstate(over="raise"):
            array = np.array(source.literal(m[2]), t.numpy)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise source.error(f"expected elements of {t.dtype}", text) from error
    _check_size(t, array, text, source)
    return g.constant(array.reshape(t.extents), name, t, copy=False)


def _check_size(t: TensorType, array: Array, text: str, source: Lines) -> None:
    if not t.static or array.size != t.size:
        wanted = t.size if t.static else "fixed dimensions and as many"
        raise source.error(f"{array.size} elements for {t}, expected {wanted}", text)


def _parse_node(source: Lines, g: Graph, values: Values, weights: Mapping[str, Array]) -> None:
    line = source.take()
    m = re.fullmatch(rf"({RESULT}(?:, {RESULT})*) = (\w+)\((.*)\)( {{)?", line)
    if m is None:
        raise source.error("expected %NAME : TYPE = OPERATOR(…)", line)
    pairs = re.findall(rf"%({WORD}) : (\w+(?:\[[^\]]*\])?)(?:, |$)", m[1])
    results = [(word, source.type(t)) for word, t in pairs]
    words, op = parse_application(m[2], m[3], source)
    operands = [_operand(values, word, source) for word in words]
    place = source.at
    regions: list[Graph] = []
    if m[4]:
        regions.append(parse_body(source, "region", weights))
        while source.lines[source.at - 1] == "} {":
            regions.append(parse_body(source, "region", weights))
    try:
        node = _applied(g, op, operands, regions, source)
    except AlpenglowError as error:
        raise error.located(node=line) from None
    except NONSENSE as error:
        raise source.error(misfit(op, error), line) from error
    end, source.at = source.at, place
    if [v.type for v in node.results] != [t for _, t in results]:
        inferred = ", ".join(str(v.type) for v in node.results)
        raise source.error(f"{op.name}: expected results {inferred}", line)
    for v, (word, _) in zip(node.results, results, strict=True):
        _define(values, "%" + word, v, source)
        v.name = unquote(word)
    source.at = end


def _applied(
    g: Graph, op: Op, operands: Sequence[Value | None], regions: Sequence[Graph], source: Lines
) -> Node:
    """Append a node.  Extents that agree only where the guards hold are compared as numbers.

    The answers to these comparisons are guards, too.
    """
    try:
        return g.add(op, operands, regions)
    except AlpenglowError:
        whole = source.guarded
        if whole is None or dims.assumed() is not None:
            raise
        if source.told is None:
            symbols = {s for v in whole.inputs.values() for s in v.type.symbols()}
            values = satisfying(whole.guards, symbols)
            if values is None:
                raise
            source.told = dims.Told(values)
    with dims.assuming(source.told):
        return g.add(op, operands, regions)


def parse_application(name: str, arguments: str, source: Lines) -> tuple[list[str], Op]:
    """Split ``%a, %b, k=v`` into operands and the operator `name` with its attributes."""
    operands: list[str] = []
    rest = arguments
    while m := re.match(rf"(none|[%@]{WORD})(?:, |$)", rest):
        operands.append(m[1])
        rest = rest[m.end() :]
    if (name, rest) not in source.operators:
        source.operators[name, rest] = _parse_operator(name, rest, arguments, source)
    return operands, source.operators[name, rest]


def _parse_operator(name: str, rest: str, arguments: str, source: Lines) -> Op:
    """Read the attributes of an operator; `arguments` are what an error quotes."""
    cls = find_operator(name)
    if cls is None:
        raise source.error(f"expected an operator, not '{name}'", arguments)
    try:
        call = parse_expression(f"f({rest})", "text")
    except ParseError as error:
        raise source.error("expected attributes that are Python literals", arguments) from error
    if not isinstance(call, ast.Call) or call.args or not all(k.arg for k in call.keywords):
        raise source.error("expected operands, then ATTRIBUTE=VALUE", arguments)
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    try:
        attributes = {str(k.arg): _from_ast(k.value) for k in call.keywords}
        if "layout" in known:
            _read_layout(attributes, known)
    except (ParseError, TypeRuleError) as error:
        raise source.error(error.message, arguments) from error
    if unknown := attributes.keys() - known:
        wanted = ", ".join(sorted(known)) or "none"
        found = ", ".join(sorted(unknown))
        raise source.error(f"{name} has no attribute {found}, expected {wanted}", arguments)
    missing = [
        f.name for f in fields(cls)  # type: ignore[arg-type]
        if f.name not in attributes and f.default is MISSING and f.default_factory is MISSING
    ]  # fmt: skip
    if missing:
        raise source.error(f"{name}: attribute {missing[0]} is missing", arguments)
    try:
        return cls(**attributes)
    except (TypeError, TypeRuleError) as error:
        reason = str(error)
        raise source.error(f"{name}: {reason}", arguments) from error


def _read_layout(attributes: dict[str, Any], known: Set[str]) -> None:
    """Put a layout in place of the attribute that is called after one."""
    for key in attributes.keys() - known:
        if (layout := find_layout(key)) is not None:
            attributes["layout"] = layout(attributes.pop(key))


def parse_literal(text: str) -> Any:
    """Read what `literal` wrote."""
    return _from_ast(parse_expression(text, "text"))


def _from_ast(tree: ast.expr) -> Any:
    match tree:
        case ast.Tuple(elts=items):
            return tuple(map(_from_ast, items))
        case ast.List(elts=items):
            return list(map(_from_ast, items))
        case ast.Constant(value=value):
            return value
        case ast.Name(id="inf"):
            return float("inf")
        case ast.Name(id="nan"):
            return float("nan")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=float(x))):
            return -x
        case ast.UnaryOp(op=ast.USub(), operand=ast.Name(id="inf")):
            return float("-inf")
    return dims.from_ast(tree)


def _define(values: Values, word: str, v: Value, source: Lines) -> None:
    """Give `v` the name `word`, a mark and a name, which nothing before has."""
    if _key(word) in values:
        raise source.error("this value is already defined", word)
    values[_key(word)] = v


def _operand(values: Values, word: str, source: Lines) -> Value | None:
    if _key(word) not in values:
        raise source.error("expected a value that is defined before its use", word)
    return values[_key(word)]


def _key(word: str) -> str:
    """Return a value's mark and name; quotes make no difference."""
    return word[0] + unquote(word[1:])


def _lookup(values: Values, word: str, source: Lines) -> Value:
    v = _operand(values, word, source)
    assert v is not None
    return v

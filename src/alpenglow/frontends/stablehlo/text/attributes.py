"""Attributes of MLIR's text."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any

import numpy as np

from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.frontends.stablehlo.dimension_numbers import (
    CONV,
    DOT,
    GATHER,
    SCATTER,
    take_convolution,
)
from alpenglow.frontends.stablehlo.elements import element_type, from_bytes, from_text
from alpenglow.frontends.stablehlo.module import (
    ConvDims,
    DotDims,
    GatherDims,
    Record,
    Scalar,
    Tensor,
    Type,
)
from alpenglow.frontends.stablehlo.text.lexer import Lexer, unquoted
from alpenglow.frontends.stablehlo.text.types import TypeReader
from alpenglow.ir.types import DTYPES, FLOATS, Array

DENSE = re.compile(r'dense\s*<\s*("[^"\\\n]*(?:\\.[^"\\\n]*)*"|[^>"]*)\s*>')
_CHOICE = re.compile(r"<\s*([A-Za-z_0-9]+)\s*>")


class AttributeReader(TypeReader):
    """Reads types and attributes where a lexer stands.

    `aliases` are attributes and types that the text has given names, `resources` the bytes of
    constants at the end of the text.
    """

    def __init__(self, lexer: Lexer, resources: Mapping[str, bytes]) -> None:
        super().__init__(lexer)
        self.resources = resources

    def attribute(self) -> Any:
        """Return the next attribute."""
        self.lexer.enter()
        value = self._attribute()
        self.lexer.leave()
        return value

    def _attribute(self) -> Any:
        x = self.lexer
        if x.word in ("[", "{"):
            return self.list() if x.word == "[" else self.dictionary()
        if x.kind == "string":
            text = x.string()
            return text if not x.take(":") else self._skip_type(text)
        if x.kind == "number" or x.word in ("-", "+"):
            return self._number()
        if x.kind == "symbol":
            return self.symbol()
        if x.kind == "alias" and x.word.startswith("#"):
            return self._aliased()
        if x.kind == "name":
            return self._word()
        return self.type()

    def _skip_type(self, value: Any) -> Any:
        self.type()
        return value

    def _number(self) -> float | int:
        number = self.number()
        if self.lexer.take(":"):
            t = self.type()
            if isinstance(t, Scalar) and t.dtype == "bool":
                return bool(number)
            if isinstance(t, Scalar) and t.dtype in FLOATS:
                return float(np.asarray(number, DTYPES[t.dtype]))
        return number

    def symbol(self) -> str:
        """Return the name of a function."""
        x = self.lexer
        word = x.want_kind("symbol", "a name with @")
        while x.take("::"):
            word = f"{word}::{x.want_kind('symbol', 'a name with @')}"
        return unquoted(word[1:]) if word[1:2] == '"' else word[1:]

    def _word(self) -> Any:
        x = self.lexer
        if x.word in ("true", "false"):
            return x.next() == "true"
        if x.word == "unit":
            x.next()
            return True
        if x.word == "dense":
            return self.constant()
        if x.word == "array":
            x.next()
            return self._array()
        if x.word in ("dense_resource", "sparse", "opaque"):
            return self._resource()
        if x.word == "loc":
            x.next()
            x.skip("(", ")")
            return None
        if element_type(x.word) is None and x.word not in ("tensor", "tuple", "complex", "none"):
            return x.next()  # a choice, as "HIGHEST"
        return self.type()

    def constant(self) -> Array:
        """Return a constant with its type."""
        text = self.dense()
        self.lexer.want(":")
        return self.typed(text, self.type())

    def dense(self) -> str:
        """Return the text in ``dense<…>``."""
        match = self.lexer.match(DENSE)
        if match is None:
            raise self.lexer.expected("dense<numbers>")
        return match[1]

    def typed(self, text: str, t: Type) -> Array:
        """Return the elements that a text of a constant says."""
        if not isinstance(t, Tensor):
            raise self.lexer.error(f"a constant is of type {t}, expected a tensor")
        try:
            if not text.startswith('"'):
                return from_text(text, t)
            content = text[1:-1]
            if not re.fullmatch(r"0x[0-9a-fA-F]*", content) or len(content) % 2:
                raise ModelError(f"a constant of {t} is a string, expected hexadecimal digits")
            return from_bytes(bytes.fromhex(content[2:]), t)
        except AlpenglowError as error:
            raise type(error)(f"{self.lexer.place}: {error.message}") from None

    def _resource(self) -> Array:
        x = self.lexer
        form = x.next()
        if form != "dense_resource":
            raise x.error(f"{form} is not supported; supported: dense and dense_resource")
        name = self.resource_name()
        x.want(":")
        return self.resource(name, self.type())

    def resource_name(self) -> str:
        """Return the name in ``<…>`` of a constant at the end of the text."""
        x = self.lexer
        x.want("<")
        name = x.string() if x.kind == "string" else x.next()
        x.want(">")
        return name

    def resource(self, name: str, t: Type) -> Array:
        """Return a constant from the end of the text."""
        if name not in self.resources:
            raise self.lexer.error(f"resource '{name}' is missing in dialect_resources")
        if not isinstance(t, Tensor):
            raise self.lexer.error(f"a constant is of type {t}, expected a tensor")
        return from_bytes(self.resources[name], t)

    def _array(self) -> tuple[Any, ...]:
        x = self.lexer
        x.want("<")
        x.want_kind("name", "an element type")
        elements: list[Any] = []
        if x.take(":"):
            while x.word != ">":
                elements.append(
                    x.next() == "true" if x.word in ("true", "false") else self.number()
                )
                if x.word != ">":
                    x.want(",")
        x.want(">")
        return tuple(elements)

    def list(self) -> tuple[Any, ...]:
        """Return attributes in brackets."""
        x = self.lexer
        x.want("[")
        elements: list[Any] = []
        while not x.take("]"):
            elements.append(None if x.take("?") else self.attribute())
            if x.word != "]":
                x.want(",")
        return tuple(elements)

    def dictionary(self, opening: str = "{", closing: str = "}") -> dict[str, Any]:
        """Return attributes by name; one without a value is true."""
        x = self.lexer
        x.want(opening)
        entries: dict[str, Any] = {}
        while not x.take(closing):
            name = x.string() if x.kind == "string" else x.want_kind("name", "a name")
            if name in entries:
                raise x.error(f"attribute '{name}' occurs twice, expected once")
            entries[name] = self.attribute() if x.take("=") else True
            if x.word != closing:
                x.want(",")
        return entries

    def _aliased(self) -> Any:
        x = self.lexer
        name = x.next()
        if name in self.aliases:
            return self.aliases[name]
        dialect, _, kind = name[1:].partition(".")
        if x.word != "<" or dialect not in ("stablehlo", "chlo", "mhlo", "vhlo"):
            if x.word == "<":
                x.skip("<", ">")
            return Record(name[1:])
        if not kind:
            return self._choice()
        if kind == "conv":
            return self._convolution()
        if kind == "bounds":
            x.next()
            bounds = [self._bound()]
            while x.take(","):
                bounds.append(self._bound())
            x.want(">")
            return Record("type_extensions", (("bounds", tuple(bounds)),))
        return _record(kind, self._fields(), x)

    def _bound(self) -> int | None:
        return None if self.lexer.take("?") else self.lexer.integer()

    def _choice(self) -> str:
        """Return a choice, as in ``#stablehlo<precision HIGH>``."""
        x = self.lexer
        x.want("<")
        x.want_kind("name", "the name of a choice")
        choice = x.next()
        x.want(">")
        return choice

    def _fields(self) -> dict[str, Any] | str:
        """Return the fields in ``<…>`` by name, or a choice."""
        choice = self.lexer.match(_CHOICE)
        return choice[1] if choice is not None else self.dictionary("<", ">")

    def _convolution(self) -> ConvDims:
        x = self.lexer
        x.want("<")
        if x.word == "raw":
            x.next()
            fields: dict[str, Any] = {}
            while not x.take(">"):
                name = x.want_kind("name", "a name")
                x.want("=")
                fields[name] = self.attribute()
                if x.word != ">":
                    x.want(",")
            dims = take_convolution(fields)
            if fields:
                known = ", ".join(chain(*CONV))
                raise x.error(f"#stablehlo.conv has a field {next(iter(fields))}, expected {known}")
            return dims
        dims = self.convolution()
        x.want(">")
        return dims

    def convolution(self) -> ConvDims:
        """Return the axes of a convolution, as in ``[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]``."""
        x = self.lexer
        inputs = self._axes("b", "f")
        if not x.word.startswith("x"):
            raise x.expected("'x'")
        x.end = x.start + 1
        x.next()
        kernel = self._axes("o", "i")
        x.want("->")
        outputs = self._axes("b", "f")
        if not len(inputs) == len(kernel) == len(outputs):
            ranks = f"{len(inputs)}, {len(kernel)} and {len(outputs)}"
            raise x.error(f"input, kernel and output have rank {ranks}, expected the same rank")
        return ConvDims(inputs, kernel, outputs)

    def _axes(self, first: str, second: str) -> tuple[int, ...]:
        x = self.lexer
        x.want("[")
        words: list[str] = []
        while not x.take("]"):
            words.append(x.next())
            if x.word != "]":
                x.want(",")
        spatial = [w for w in words if w.isdigit()]
        if len(words) - len(spatial) != len([w for w in words if w in (first, second, "?")]):
            raise x.error(f"dim_numbers are {words}, expected {first}, {second}, ? and numbers")
        if sorted(map(int, spatial)) != list(range(len(spatial))):
            last = len(spatial) - 1
            raise x.error(f"dim_numbers are {words}, expected numbers 0 to {last}, each once")
        if words.count(first) != 1 or words.count(second) != 1:
            raise x.error(f"dim_numbers are {words}, expected {first} and {second} once")
        return tuple(words.index(w) for w in (first, second, *map(str, range(len(spatial)))))


_DIMS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "gather": (GatherDims, GATHER), "scatter": (GatherDims, SCATTER), "dot": (DotDims, DOT),
}  # fmt: skip


def _record(kind: str, fields: Mapping[str, Any] | str, x: Lexer) -> Any:
    """Return an attribute with fields, or a choice."""
    if isinstance(fields, str):
        return fields
    if kind not in _DIMS:
        return Record(kind, tuple(fields.items()))
    make, names = _DIMS[kind]
    unknown = sorted(set(fields) - set(names))
    if unknown:
        known = ", ".join(names)
        raise x.error(f"#stablehlo.{kind} has a field {unknown[0]}, expected {known}")
    return make(**{names[name]: value for name, value in fields.items()})

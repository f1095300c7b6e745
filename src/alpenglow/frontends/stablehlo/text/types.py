"""Types of MLIR's text."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import Any

from alpenglow.frontends.stablehlo.elements import complex_of, element_type
from alpenglow.frontends.stablehlo.module import (
    Quantized,
    Record,
    Scalar,
    Signature,
    Tensor,
    Token,
    Tuple,
    Type,
)
from alpenglow.frontends.stablehlo.text.lexer import Lexer
from alpenglow.ir.types import NARROW_INTS, width

_SHAPE = re.compile(r"(?:(?:[0-9]+|\?)\s*x\s*)*(\*\s*x\s*)?")
_EXTENT = re.compile(r"[0-9]+|\?")


class TypeReader(ABC):
    """Reads types where a lexer stands; `aliases` are those that the text has given names."""

    def __init__(self, lexer: Lexer) -> None:
        self.lexer = lexer
        self.aliases: dict[str, Any] = {}

    @abstractmethod
    def attribute(self) -> Any:
        """Return the next attribute."""

    def number(self) -> float | int:
        """Return a number, perhaps with a sign."""
        x = self.lexer
        sign = -1 if x.take("-") else 1
        if x.kind == "number" and "." in x.word:
            return sign * float(x.next())
        return sign * x.integer()

    def type(self) -> Type:
        """Return the next type."""
        x = self.lexer
        x.enter()
        t = self._type()
        x.leave()
        return t

    def _type(self) -> Type:
        x = self.lexer
        if x.kind == "alias":
            return self._named_type()
        if x.word == "(":
            return self._signature()
        name = x.want_kind("name", "a type")
        if name == "tensor" and x.word == "<":
            return self._tensor()
        if name == "tuple" and x.take("<"):
            parts: list[Type] = []
            while not x.take(">"):
                parts.append(self.type())
                if x.word != ">":
                    x.want(",")
            return Tuple(tuple(parts))
        if name == "none":
            return Token()
        if name == "complex":
            return Scalar(self._complex())
        dtype = element_type(name)
        if dtype is None:
            raise x.error(f"found '{name}', expected a type")
        return Scalar(dtype)

    def _named_type(self) -> Type:
        x = self.lexer
        name = x.word
        if name in self.aliases and not name.startswith("#"):
            x.next()
            t = self.aliases[name]
            if not isinstance(t, Tensor | Token | Tuple | Scalar | Signature):
                raise x.error(f"found {name}, expected the alias of a type")
            return t
        x.next()
        if name in ("!stablehlo.token", "!mhlo.token"):
            return Token()
        if x.word == "<":
            x.skip("<", ">")
        raise x.error(f"type {name} is not supported; supported: builtin types, !stablehlo.token")

    def _signature(self) -> Signature:
        inputs = self.types_between()
        self.lexer.want("->")
        return Signature(inputs, self.results())

    def types_between(self) -> tuple[Type, ...]:
        """Return types in parentheses."""
        x = self.lexer
        x.want("(")
        types: list[Type] = []
        while not x.take(")"):
            types.append(self.type())
            if x.word != ")":
                x.want(",")
        return tuple(types)

    def results(self) -> tuple[Type, ...]:
        """Return the types behind an arrow: one, or several in parentheses."""
        return self.types_between() if self.lexer.word == "(" else (self.type(),)

    def _tensor(self) -> Tensor:
        x = self.lexer
        x.next()
        match = _SHAPE.match(x.text, x.start)
        shape: tuple[int | None, ...] | None = ()
        if match is not None and match[0]:
            found = _EXTENT.findall(match[0])
            if any(len(d) > 18 for d in found):
                longest = max(found, key=len)[:30]
                raise x.error(f"a dimension is {longest}, expected at most 18 digits")
            shape = None if match[1] else tuple(None if d == "?" else int(d) for d in found)
            x.end = match.end()
            x.next()
        dtype = self._element()
        bounds: tuple[int | None, ...] = ()
        if x.take(","):
            encoding = self.attribute()
            if isinstance(encoding, Record) and encoding.name == "type_extensions":
                bounds = tuple(dict(encoding.fields).get("bounds", ()))
        x.want(">")
        return Tensor(dtype, shape, bounds)

    def _element(self) -> str | Quantized:
        x = self.lexer
        if x.kind == "alias":
            return self._quantized()
        name = x.want_kind("name", "an element type")
        if name == "complex":
            return self._complex()
        dtype = element_type(name)
        if dtype is None:
            raise x.error(f"found '{name}', expected an element type")
        return dtype

    def _complex(self) -> str:
        x = self.lexer
        x.want("<")
        part = x.want_kind("name", "an element type")
        dtype = complex_of(element_type(part) or "")
        if dtype is None:
            raise x.error(f"found complex<{part}>, expected complex<f32> or complex<f64>")
        x.want(">")
        return dtype

    def _quantized(self) -> Quantized:
        x = self.lexer
        name = x.next()
        alias = self.aliases.get(name)
        if isinstance(alias, Quantized):
            return alias
        if name != "!quant.uniform":
            raise x.error(f"found {name}, expected !quant.uniform")
        x.want("<")
        storage = self._stored()
        low, high = limits(storage)
        if x.take("<"):
            low = x.integer()
            x.want(":")
            high = x.integer()
            x.want(">")
        x.want(":")
        expressed = element_type(x.want_kind("name", "an element type")) or ""
        axis = None
        if x.take(":"):
            axis = x.integer()
        x.want(",")
        scales, zeros = self._scales()
        x.want(">")
        return Quantized(storage, expressed, scales, zeros, axis, low, high)

    def _stored(self) -> str:
        x = self.lexer
        word = x.want_kind("name", "an integer type")
        storage = element_type(word) or ""
        if storage not in NARROW_INTS and not re.fullmatch(r"[iu](8|16|32)", storage):
            raise x.error(f"storage type is {word}, expected i2, i4, i8, i16, i32, or unsigned")
        return storage

    def _scales(self) -> tuple[tuple[float, ...], tuple[int, ...]]:
        x = self.lexer
        if not x.take("{"):
            scale, zero = self._scale()
            return (scale,), (zero,)
        pairs = []
        while not x.take("}"):
            pairs.append(self._scale())
            if x.word != "}":
                x.want(",")
        return tuple(s for s, _ in pairs), tuple(z for _, z in pairs)

    def _scale(self) -> tuple[float, int]:
        scale = float(self.number())
        return scale, self.lexer.integer() if self.lexer.take(":") else 0


def limits(storage: str) -> tuple[int, int]:
    """Return the least and the largest integer of a type."""
    bits = width(storage)
    if storage.startswith("u"):
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1

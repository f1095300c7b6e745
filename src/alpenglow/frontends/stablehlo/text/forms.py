"""Operations as parsed text, before words become attributes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

from alpenglow.frontends.stablehlo.module import Block, Record, Type
from alpenglow.frontends.stablehlo.text.attributes import DENSE, AttributeReader
from alpenglow.frontends.stablehlo.text.lexer import Lexer


@dataclass(slots=True)
class Form:
    """The parsed text of an operation."""

    name: str
    operands: list[str] = field(default_factory=list)
    types: list[Type] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    regions: list[Block] = field(default_factory=list)


class Reading(Protocol):
    """A reader of the text around an operation."""

    @property
    def lexer(self) -> Lexer: ...
    @property
    def types(self) -> AttributeReader: ...
    def value(self) -> str: ...
    def region(self, arguments: Any = ()) -> Block: ...


@dataclass(slots=True)
class Items:
    """Words behind the name of an operation; `dense` is a constant the type of which follows."""

    words: list[str] = field(default_factory=list)
    keyed: dict[str, Any] = field(default_factory=dict)
    dense: list[str] = field(default_factory=list)
    resources: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    bound: list[str] = field(default_factory=list)
    pairs: dict[str, tuple[Any, Any]] = field(default_factory=dict)


def read_items(r: Reading, form: Form, items: Items, end: tuple[str, ...]) -> None:
    """Read operands, words and values up to the colon before the types."""
    x = r.lexer
    while x.kind and x.word not in (":", *end):
        if x.kind == "value":
            form.operands.append(r.value())
        elif x.word == "dense" and (match := x.match(DENSE)):
            items.dense.append(match[1])
        elif x.take("dense_resource"):
            items.resources.append(r.types.resource_name())
        elif x.kind == "name":
            word = x.next()
            if x.take("="):
                items.keyed[word] = _value(r, word)
                if x.word == "x":
                    x.next()
                    items.pairs[word] = (items.keyed[word], r.types.attribute())
            else:
                items.words.append(word)
        elif x.kind == "symbol":
            items.words.append(r.types.symbol())
        elif x.kind == "string":
            items.words.append(x.string())
        elif x.word == "{":
            form.attributes |= r.types.dictionary()
        elif x.word == "<":
            x.next()
            form.attributes |= r.types.dictionary()
            x.want(">")
        elif x.word == "[":
            _ranges(x, items)
        elif x.take("("):
            read_items(r, form, items, (")",))
            x.want(")")
        elif not x.take(","):
            if x.word == "->" or x.word == "}":
                break
            raise x.expected(f"an operand or attribute of {form.name}, or ':'")


def _value(r: Reading, word: str) -> Any:
    x = r.lexer
    if word == "algorithm" and x.word == "<":
        return Record("dot_algorithm", tuple(r.types.dictionary("<", ">").items()))
    if x.kind == "number" or x.word == "-":
        return r.types.number()  # the types behind a colon belong to the operation
    return r.types.attribute()


def _ranges(x: Lexer, items: Items) -> None:
    """Read ``[0:4, 1:8:2]``, or ``[1]``."""
    x.want("[")
    while not x.take("]"):
        bounds = [x.integer()]
        while x.take(":"):
            bounds.append(x.integer())
        if len(bounds) > 3:
            raise x.error("a range has more than 3 numbers, expected start:limit:stride")
        end = bounds[1] if len(bounds) > 1 else bounds[0]
        items.ranges.append((bounds[0], end, bounds[2] if len(bounds) > 2 else 1))
        if x.word != "]":
            x.want(",")


def read_types(r: Reading, form: Form, items: Items) -> None:
    """Read the types; operations with one type for all have as many results as they have."""
    x = r.lexer
    if not x.take(":"):
        if form.name in ("func.return", "stablehlo.return"):
            return
        raise x.expected("':' and types")
    if x.word == "(":
        signature = r.types.type()
        form.types = list(getattr(signature, "results", ()))
        return
    types: list[Type] = [] if x.word == "->" else [r.types.type()]
    while x.take(","):
        types.append(r.types.type())
    if x.take("->"):
        form.types = list(r.types.results())
    elif form.name in ("func.return", "stablehlo.return") or form.name.startswith("check."):
        items.keyed.setdefault("", types)
    elif form.name == "stablehlo.optimization_barrier":
        form.types = types
    else:
        form.types = types[-1:]
    if form.name.startswith("check.") and x.word == "{":
        form.attributes |= r.types.dictionary()
    if items.dense or items.resources:
        _constant(r, form, items, types or form.types)


def _constant(r: Reading, form: Form, items: Items, types: list[Type]) -> None:
    if len(items.dense) + len(items.resources) != 1 or not types:
        found = f"{len(items.dense) + len(items.resources)} constants and {len(types)} types"
        raise r.lexer.error(f"{form.name} has {found}, expected 1 and at least 1")
    if items.dense:
        form.attributes["value"] = r.types.typed(items.dense[0], types[-1])
    else:
        form.attributes["value"] = r.types.resource(items.resources[0], types[-1])

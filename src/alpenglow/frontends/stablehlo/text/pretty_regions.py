"""Forms of operations that are like no other: convolutions, reductions, loops, scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from alpenglow.frontends.stablehlo.module import Block, Operation, Type
from alpenglow.frontends.stablehlo.text.forms import Form, Items, Reading, read_items, read_types
from alpenglow.frontends.stablehlo.text.lexer import Lexer


def _convolution(r: Reading, form: Form) -> Form:
    x = r.lexer
    items = Items()
    x.want("(")
    read_items(r, form, items, (")",))
    x.want(")")
    x.want("dim_numbers")
    x.want("=")
    form.attributes["dimension_numbers"] = r.types.convolution()
    x.want(",")
    x.want("window")
    x.want("=")
    names = {"stride": "window_strides", "pad": "padding", "lhs_dilate": "lhs_dilation",
             "rhs_dilate": "rhs_dilation", "reverse": "window_reversal"}  # fmt: skip
    for word, value in r.types.dictionary().items():
        if word not in names:
            known = ", ".join(names)
            raise x.error(f"{form.name} has an attribute '{word}', expected {known}")
        form.attributes[names[word]] = value
    if "padding" in form.attributes:
        rows = form.attributes["padding"]
        form.attributes["padding"] = np.array(rows, np.int64).reshape(len(rows), 2)
    if "window_reversal" in form.attributes:
        form.attributes["window_reversal"] = tuple(map(bool, form.attributes["window_reversal"]))
    if x.word == "{":
        form.attributes |= r.types.dictionary()
    read_types(r, form, items)
    return form


def _reduce(r: Reading, form: Form) -> Form:
    """``(%x init: %c), (%y init: %d) applies f across dimensions = […]``, or with a reducer."""
    x = r.lexer
    inits: list[str] = []
    while x.take("("):
        form.operands.append(r.value())
        x.want("init")
        x.want(":")
        inits.append(r.value())
        x.want(")")
        x.take(",")
    form.operands += inits
    applied = x.next() if x.take("applies") else ""
    x.want("across")
    x.want("dimensions")
    x.want("=")
    form.attributes["dimensions"] = r.types.list()
    if x.word == "{":
        form.attributes |= r.types.dictionary()
    x.want(":")
    signature = r.types.type()
    form.types = list(getattr(signature, "results", ()))
    operands = list(getattr(signature, "inputs", ()))[len(inits) :]
    if applied:
        form.regions.append(_applied(applied, operands, x))
        return form
    x.want("reducer")
    first: list[tuple[str, Type]] = []
    second: list[tuple[str, Type]] = []
    while x.take("("):
        pair = []
        while not x.take(")"):
            name = x.want_kind("value", "an argument")[1:]
            x.want(":")
            pair.append((name, r.types.type()))
            if x.word == "loc":
                x.next()
                x.skip("(", ")")
            x.take(",")
        if len(pair) != 2:
            raise x.error(f"the reducer of {form.name} groups {len(pair)} arguments, expected 2")
        first.append(pair[0])
        second.append(pair[1])
    form.regions.append(r.region([*first, *second]))
    return form


def _applied(name: str, inits: list[Type], x: Lexer) -> Block:
    """Return the body that a reduction has which names an operation."""
    if len(inits) != 1:
        raise x.error(f"{name} is applied to {len(inits)} operands, expected one")
    t = inits[0]
    place = x.place
    made = Operation(name, ("applied.lhs", "applied.rhs"), ("applied.result",), (t,), {}, (), place)
    back = Operation("stablehlo.return", ("applied.result",), (), (), {}, (), place)
    return Block((("applied.lhs", t), ("applied.rhs", t)), (made, back))


def _while(r: Reading, form: Form) -> Form:
    """``(%a = %x, …) : types cond {…} do {…}``."""
    x = r.lexer
    names: list[str] = []
    x.want("(")
    while not x.take(")"):
        names.append(x.want_kind("value", "an argument")[1:])
        x.want("=")
        form.operands.append(r.value())
        x.take(",")
    if x.take(":"):
        form.types.append(r.types.type())
        while x.take(","):
            form.types.append(r.types.type())
    if len(form.types) != len(names):
        raise x.error(f"{form.name} has {len(form.types)} types, expected {len(names)}")
    if x.take("attributes"):
        form.attributes |= r.types.dictionary()
    arguments = list(zip(names, form.types, strict=True))
    x.want("cond")
    form.regions.append(r.region(arguments))
    x.want("do")
    form.regions.append(r.region(arguments))
    return form


def _scan(r: Reading, form: Form) -> Form:
    """``(%x, …) inits(%c, …) dimension=0 {…} : (…) -> (…)``."""
    x = r.lexer
    read_items(r, form, Items(), ("inits",))
    count = len(form.operands)
    x.want("inits")
    x.want("(")
    read_items(r, form, Items(), (")",))
    x.want(")")
    while x.kind == "name":
        word = x.next()
        if word == "attributes":
            form.attributes |= r.types.dictionary()
            continue
        x.want("=")
        key = {"dimension": "dimension", "is_reverse": "is_reverse", "reverse": "is_reverse"}
        form.attributes[key.get(word, word)] = r.types.attribute()
    form.attributes["count"] = count
    form.regions.append(r.region())
    if x.word == "{":
        form.attributes |= r.types.dictionary()
    read_types(r, form, Items())
    return form


OWN: Mapping[str, Callable[[Reading, Form], Form]] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dynamic_conv": _convolution,
    "stablehlo.reduce": _reduce,
    "stablehlo.while": _while,
    "chlo.scan": _scan,
}

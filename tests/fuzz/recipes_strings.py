"""Recipes for strings: made of whole numbers or stored, moved, and read as numbers again.

Inputs and outputs of models are numbers: strings stand between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from .draft import Draft, Var
from .elements import Shape, code
from .inference import Declined
from .recipe import STAGED, recipe
from .recipes_movement import factors, some_axes

ML = "ai.onnx.ml"
WORDS = ("a", "B", "abc", "", "Straße", "x y", "7", "-3", "12", "日本", "a,b,,c", " lead", "ABC")


def text(d: Draft, op: str, given: Sequence[Var | None], shape: Shape, domain: str = "",
         **attributes: Any) -> Var:  # fmt: skip
    """Add a node whose result is strings, which only the recipe reads."""
    v = Var(f"{d.prefix}t{len(d.nodes)}", "string", shape)
    names = ["" if g is None else g.name for g in given]
    node = helper.make_node(op, names, [v.name], domain=domain)
    d._describe(node, attributes)
    d._check(node)
    d.nodes.append(node)
    return v


def numbers(d: Draft, op: str, given: Sequence[Var], kind: str, shape: Shape, domain: str = "",
            **attributes: Any) -> Var:  # fmt: skip
    """Add a node that makes numbers of strings."""
    return d.node(op, given, types=[(kind, shape)], domain=domain, **attributes)[0]


def stored(d: Draft, shape: Shape, words: Sequence[str] = WORDS) -> Var:
    """Return a constant."""
    chosen = [str(d.one_of(words)) for _ in range(prod(shape))]
    if d.opset >= 12 and len(shape) < 2 and d.chance(0.4):
        if not shape:
            return text(d, "Constant", [], shape, value_string=chosen[0])
        if chosen:
            return text(d, "Constant", [], shape, value_strings=chosen)
    encoded = [w.encode() for w in chosen]
    value = helper.make_tensor("strings", TensorProto.STRING, shape, encoded)
    return text(d, "Constant", [], shape, value=value)


def source(d: Draft, least: int = 0, most: int = 3) -> tuple[Var, bool]:
    """Return strings, and whether each is a whole number."""
    if d.opset < 9:
        raise Declined
    if d.chance(0.5):
        x = d.pick(["int64", "int32", "int8", "uint8", "bool"], least, most,
                   where=lambda v: prod(v.shape) <= 256)  # fmt: skip
        if x.dtype == "bool" or d.is_open:
            raise Declined
        return text(d, "Cast", [x], x.shape, to=TensorProto.STRING), True
    shape = d.shape(least, most)
    if prod(shape) > 64 or d.is_open:
        raise Declined
    return stored(d, shape), False


def moved(d: Draft, x: Var) -> Var:
    """Return strings after an operator that moves them, or none."""
    how = d.one_of(("none", "Reshape", "Transpose", "Concat", "Gather", "Slice", "Unsqueeze",
                    "Expand", "Where", "Identity"))  # fmt: skip
    if how == "Reshape" and 0 not in x.shape:
        shape = factors(d, prod(x.shape))
        return text(d, how, [x, d.given(np.array(shape, np.int64), True)], tuple(shape))
    if how == "Transpose" and x.rank:
        perm = d.rng.permutation(x.rank).tolist()
        return text(d, how, [x], tuple(x.shape[i] for i in perm), perm=perm)
    if how == "Concat" and x.rank:
        axis = d.number(0, x.rank - 1)
        more = x if d.chance(0.3) else stored(d, x.shape)
        shape = tuple(2 * e if i == axis else e for i, e in enumerate(x.shape))
        return text(d, how, [x, more], shape, axis=axis)
    if how == "Gather" and x.rank and x.shape[0]:
        at = d.rng.integers(0, x.shape[0], d.number(1, 4)).astype(np.int64)
        return text(d, how, [x, d.given(at, True)], (len(at), *x.shape[1:]), axis=0)
    if how == "Slice" and x.rank and d.opset >= 10:
        (axis, *_) = some_axes(d, x.rank)
        given = [np.array([n], np.int64) for n in (-1, -(2**40), axis, -1)]
        return text(d, how, [x, *(d.given(a, True) for a in given)], x.shape)
    if how == "Unsqueeze" and d.opset >= 13:
        return text(d, how, [x, d.given(np.array([0]), True)], (1, *x.shape))
    if how == "Expand":
        shape = (2, *x.shape)
        return text(d, how, [x, d.given(np.array(shape, np.int64), True)], shape)
    if how == "Where":
        return text(d, how, [d.fresh("bool", x.shape), x, stored(d, x.shape)], x.shape)
    return text(d, "Identity", [x], x.shape) if how == "Identity" else x


def read(d: Draft, x: Var, whole: bool = False) -> None:
    """Make numbers of strings."""
    ways = ["Shape", "Size"]
    if whole:
        ways += ["Cast", "Cast"]
    if d.opset >= 19:
        ways += ["Equal", "Equal"]
    if d.opset >= 20:
        ways += ["RegexFullMatch", "StringSplit"]
    ways.append("LabelEncoder")
    how = d.one_of(ways)
    if how == "Cast":
        kind = d.one_of(("int64", "int32", "float", "double"))
        numbers(d, how, [x], kind, x.shape, to=code(kind))
    elif how == "Equal":
        numbers(d, how, [x, stored(d, x.shape)], "bool", x.shape)
    elif how == "RegexFullMatch":
        pattern = d.one_of((r"\d+", r"[a-z]*", r"-?[0-9]{1,2}", r"(a|b)+.*", r".*[A-Z].*", ""))
        numbers(d, how, [x], "bool", x.shape, pattern=pattern)
    elif how == "StringSplit":
        split(d, x)
    elif how == "LabelEncoder":
        labels(d, x)
    elif how == "Shape":
        numbers(d, how, [x], "int64", (x.rank,))
    else:
        numbers(d, how, [x], "int64", ())


def labels(d: Draft, x: Var) -> None:
    d.versions[ML] = d.one_of((1, 2, 4)) if ML not in {n.domain for n in d.nodes} else (
        d.versions.get(ML, 1))  # fmt: skip
    keys = [str(WORDS[i]) for i in d.rng.permutation(len(WORDS))[: d.number(1, 6)]]
    if d.versions[ML] == 1:
        numbers(d, "LabelEncoder", [x], "int64", x.shape, ML, classes_strings=keys,
                **({"default_int64": 5} if d.chance(0.5) else {}))  # fmt: skip
        return
    values = d.rng.integers(-9, 9, len(keys)).tolist()
    if d.chance(0.5):
        numbers(d, "LabelEncoder", [x], "int64", x.shape, ML, keys_strings=keys,
                values_int64s=values, default_int64=d.number(-2, 2))  # fmt: skip
    else:
        numbers(d, "LabelEncoder", [x], "float", x.shape, ML, keys_strings=keys,
                values_floats=[float(v) for v in values])  # fmt: skip


def split(d: Draft, x: Var) -> None:
    """Split strings; how many parts there are is a number, how wide the result is only data say."""
    more = d.some("StringSplit", delimiter=(",", " ", "b"), maxsplit=(0, 1, 3))
    name = f"{d.prefix}t{len(d.nodes)}"
    node = helper.make_node("StringSplit", [x.name], [f"{name}_parts", f"{name}_counts"])
    d._describe(node, more)
    d._check(node)
    d.nodes.append(node)
    counts = d.add(Var(f"{name}_counts", "int64", x.shape), made=True)
    if d.chance(0.5):
        numbers(d, "Size", [Var(f"{name}_parts", "string", ())], "int64", ())
    assert counts.name in d.made


@recipe("StringConcat", table=STAGED)
def concat(d: Draft, op: str) -> None:
    x, whole = source(d)
    y = x if d.chance(0.2) else stored(d, tuple(1 if d.chance(0.3) else e for e in x.shape),
                                       ("1", "23") if whole else WORDS)  # fmt: skip
    read(d, moved(d, text(d, op, [x, y], x.shape)), whole)


@recipe("StringSplit", "RegexFullMatch", table=STAGED)
def reading(d: Draft, op: str) -> None:
    x, whole = source(d)
    x = moved(d, x)
    if op == "StringSplit":
        if d.opset < 20:
            raise Declined
        split(d, x)
    else:
        pattern = d.one_of((r"\d+", r"[a-z]*", r"-?\d?", r"(a|B).*", r"[^x]*", r"a{1,2}\w*"))
        numbers(d, op, [x], "bool", x.shape, pattern=pattern)
    read(d, x, whole and x.dtype == "string")


@recipe("StringNormalizer", table=STAGED)
def normal(d: Draft, op: str) -> None:
    shape = d.one_of(((5,), (1, 5), (1,), (3,)))
    x = stored(d, shape, ("a", "B", "abc", "ABC", "x y", "7"))
    more = d.some(op, case_change_action=("LOWER", "UPPER", "NONE"), is_case_sensitive=(0, 1),
                  stopwords=(["a"], ["abc", "7"]))  # fmt: skip
    y = text(d, op, [x], shape, **more)
    numbers(d, "Size", [y], "int64", ())
    if "stopwords" not in more:
        read(d, y)


@recipe("ai.onnx.ml:CategoryMapper", "strings:LabelEncoder", table=STAGED)
def mapper(d: Draft, op: str) -> None:
    x = moved(d, source(d)[0])
    if op.endswith("LabelEncoder"):
        labels(d, x)
        return
    names = [str(WORDS[i]) for i in d.rng.permutation(len(WORDS))[: d.number(1, 6)]]
    values = d.rng.permutation(20)[: len(names)].tolist()
    more = d.some("CategoryMapper", ML, default_int64=(5, -1), default_string=("none",))
    given = {"cats_strings": names, "cats_int64s": values}
    y = numbers(d, "CategoryMapper", [x], "int64", x.shape, ML, **given, **more)
    if d.chance(0.5):
        read(d, text(d, "CategoryMapper", [y], x.shape, ML, **given, **more))

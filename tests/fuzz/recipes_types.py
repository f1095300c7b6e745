"""Recipes for conversions between element types, and for constants."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper

from .draft import Draft, Var
from .elements import COMMON, DTYPES, FLOATS, NARROW, ORDINARY, code, is_whole
from .inference import Declined, allowed
from .recipe import recipe


def target(d: Draft, op: str, x: Var) -> str:
    """Return a type to cast to; fractions to unsigned numbers are anyone's guess."""
    known = d.makes(op)
    common = [t for t in COMMON if t in known]
    narrow = [t for t in known if t in NARROW]
    if narrow and d.chance(0.35):
        to = d.one_of(narrow)
    else:
        to = d.one_of(common if d.chance(0.4) else known)
    fraction = not is_whole(x.dtype) and x.dtype != "bool"
    if fraction and is_whole(to) and (to in NARROW or to.startswith("uint")):
        raise Declined
    if is_whole(x.dtype) and to in ("int4", "uint4", "int2", "uint2"):
        raise Declined
    if x.dtype.startswith("complex") or to.startswith("complex"):
        raise Declined
    return str(to)


@recipe("Cast")
def cast(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    to = target(d, op, x)
    more = d.some(op, saturate=(0, 1), round_mode=("up", "down", "nearest"))
    if d.opset < 6:
        d.node(op, [x], types=[(to, x.shape)], to=to.upper())
    else:
        d.node(op, [x], types=[(to, x.shape)], to=code(to), **more)


@recipe("CastLike")
def cast_like(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    to = target(d, op, x)
    more = d.some(op, saturate=(0, 1), round_mode=("up", "down", "nearest"))
    like = x if to == x.dtype and d.chance(0.3) else d.fresh(to, d.one_of(((1,), (), (0, 3))))
    d.node(op, [x, like], types=[(to, x.shape)], **more)


@recipe("BitCast")
def bit_cast(d: Draft, op: str) -> None:
    x = d.pick([t for t in allowed(op, d.opset) if t in ORDINARY and t != "bool"])
    size = DTYPES[x.dtype].itemsize
    to = d.one_of([t for t in ORDINARY if DTYPES[t].itemsize == size and t != "bool"])
    # As integers: what becomes of a NaN's bits nobody says.
    if to in FLOATS and (x.name in d.made or x.dtype not in FLOATS):
        raise Declined
    if x.dtype in FLOATS and x.name in d.made:
        raise Declined  # a unit in the last place is another number
    d.node(op, [x], to=code(to))


@recipe("Constant")
def constant(d: Draft, op: str) -> None:
    """A node that nobody feeds, and something that reads it."""
    how = d.one_of(["value", "value_int", "value_ints", "value_float", "value_floats"]
                   if d.opset >= 12 else ["value"])  # fmt: skip
    if how == "value":
        kind = d.dtype(d.makes(op))
        array = d.contents(kind, d.shape(0, 4))
        value: object = numpy_helper.from_array(array)
        found = (kind, array.shape)
    elif how in ("value_int", "value_ints"):
        numbers = d.rng.integers(-9, 9, d.number(1, 5)).tolist()
        value, found = (numbers[0], ("int64", ())) if how == "value_int" else (
            numbers, ("int64", (len(numbers),)))  # fmt: skip
    else:
        fractions = d.rng.standard_normal(d.number(1, 5)).astype(np.float32).tolist()
        value, found = (fractions[0], ("float", ())) if how == "value_float" else (
            fractions, ("float", (len(fractions),)))  # fmt: skip
    d.node(op, [], types=[found], **{how: value})


@recipe("GivenTensorFill")
def fill(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    shape = d.shape(1, 3, empty=False)
    values = d.rng.standard_normal(int(np.prod(shape))).astype(np.float32).tolist()
    how = d.one_of(("attribute", "shape", "operand"))
    if how == "attribute":
        d.node(op, [], types=[("float", shape)], shape=list(shape), values=values)
    elif how == "operand":
        d.node(op, [d.known(np.array(shape, np.int64))], types=[("float", shape)], values=values,
               input_as_shape=1)  # fmt: skip
    else:
        cut = d.number(0, len(shape) - 1)
        d.node(op, [d.fresh("float", shape[:cut])], types=[("float", shape)], values=values,
               extra_shape=list(shape[cut:]))  # fmt: skip


@recipe("Shape")
def shape(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    more = d.some(op, start=range(-x.rank - 1, x.rank + 2), end=range(-x.rank - 1, x.rank + 2))
    d.node(op, [x], **more)


@recipe("Size")
def size(d: Draft, op: str) -> None:
    d.node(op, [d.pick(allowed(op, d.opset))])

"""Converters for what makes tensors: constants, ranges, filled tensors, and extents."""

from __future__ import annotations

import math

import numpy as np

from alpenglow.frontends.onnx.file.attributes import FORMS, element_type
from alpenglow.frontends.onnx.hosted import HostSite, makes_host
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.frontends.presume import presume
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Add, Ceil, Div, Maximum, Mul, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.generate import Eye, Range, Shape, Size
from alpenglow.ops.tensor.movement import Broadcast, stretch


@makes_host("Constant")
def is_of_strings(s: HostSite) -> bool:
    value = s.attribute("value")
    textual = isinstance(value, np.ndarray) and value.dtype == object
    return textual or bool({"value_string", "value_strings"} & s.attributes.keys())


@on("Constant")
def constant(s: Site) -> Made:
    if len(s.attributes) != 1:
        raise s.wrong(f"{len(s.attributes)} attributes given, expected one")
    ((form, value),) = s.attributes.items()
    if isinstance(value, np.ndarray) and value.dtype == object:
        raise s.refuse("strings are not supported in a graph")
    if form == "value":
        return s.g.constant(value)
    if form in FORMS:
        return s.g.constant(np.array(value, FORMS[form]))
    if form in ("value_string", "value_strings"):
        raise s.refuse("strings are not supported")
    raise s.wrong(f"an attribute is '{form}', expected value, {', '.join(FORMS)}")


@on("ConstantOfShape")
def constant_of_shape(s: Site) -> Made:
    shape = s.dims(0)
    if any(known(d) and d < 0 for d in shape):
        raise s.wrong(f"input is {shape}, expected extents of 0 or more")
    value = s.attribute("value", np.zeros(1, np.float32))
    if value.size != 1:
        raise s.wrong(f"value has {value.size} elements, expected one")
    return s.g(Broadcast(shape), s.g.constant(value.reshape(())))


@on("Range")
def number_range(s: Site) -> Made:
    types = {s.input(i).type.dtype for i in range(3)}
    if len(types) != 1:
        raise s.wrong(f"operands have types {', '.join(sorted(types))}, expected one")
    dtype = types.pop()
    if dtype not in FLOATS:
        return integer_range(s, dtype)
    if any(v.array is None for v in s.required()):
        return measured_range(s, dtype)
    start, limit, step = (number(s, i) for i in range(3))
    if step == 0:
        raise s.wrong("delta is 0, expected another number")
    return s.g(Range(max(math.ceil((limit - start) / step), 0), start, step, dtype))


def measured_range(s: Site, dtype: str) -> Made:
    """Return a range of floats that depends on data; only its length must be known."""
    start, limit, step = (s.scalar(i) for i in range(3))
    first, last, delta = (s.g(Cast("f64"), v) for v in (start, limit, step))
    reach = s.g(Ceil(), s.g(Div(), s.g(Sub(), last, first), delta))
    (count,) = s.measured(s.g(Maximum(), s.g(Cast("i64"), reach), s.g.constant(0)))
    wide = dtype if dtype == "f64" else "f32"
    steps = s.g(Range(count, dtype=wide))
    begin, each = (stretch(s.g, s.g(Cast(wide), v), steps.type.shape) for v in (start, step))
    return s.g(Cast(dtype), s.g(Add(), s.g(Mul(), steps, each), begin))


def integer_range(s: Site, dtype: str) -> Made:
    """Return a range of integers whose start and limit may hold symbols."""
    (first,), (last,), (delta,) = s.dims(0), s.dims(1), s.ints(2)
    if delta == 0:
        raise s.wrong("delta is 0, expected another number")
    reach = last - first if delta > 0 else first - last
    count: Dim = reach if abs(delta) == 1 else ceil_div(reach, abs(delta))
    if not presume(reach, ">="):
        count = 0
    if isinstance(first, int):  # not only taken to be a number: it becomes part of the code
        return s.g(Range(count, first, delta, dtype))
    steps = s.g(Range(count, 0, delta, dtype))
    return s.g(Add(), steps, stretch(s.g, s.scalar(0), steps.type.shape))


def number(s: Site, i: int) -> float:
    """Return constant operand i, which has one element, as a Python number."""
    return float(s.single(i, s.constant(i).reshape(-1).tolist()))


@on("EyeLike")
def eye_like(s: Site) -> Made:
    x = s.input(0).type
    if x.rank != 2:
        raise s.wrong(f"input 0 is {x}, expected two axes")
    to = s.attribute("dtype")
    dtype = x.dtype if to is None else element_type(to, "EyeLike: dtype")
    rows, columns = x.shape
    return s.g(Eye(rows, columns, s.attribute("k", 0), dtype))


@on("Shape")
def shape(s: Site) -> Made:
    x = s.input(0)
    start, end, _ = slice(s.attribute("start", 0), s.attribute("end")).indices(x.type.rank)
    return s.g(Shape(start, max(start, end)), x)


@on("Size")
def size(s: Site) -> Made:
    return s.g(Size(), s.input(0))

"""Choosing between tensors, and changing their element type (ONNX Where, Cast)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import (
    SHAPES,
    Elementwise,
    Examples,
    Primitive,
    check_arity,
    check_choice,
    of_one_type,
)
from alpenglow.ir.types import (
    ALL,
    COMPLEX,
    DTYPES,
    EVERY,
    HALVES,
    INTS,
    NAMES,
    NARROW,
    NARROW_FLOATS,
    NARROW_INTS,
    UNSIGNED,
    Array,
    TensorType,
    width,
)
from alpenglow.kernel.narrow import ROUNDINGS, largest, power_of_two


class Where(Elementwise):
    """x where the condition holds, else y; all three of one shape.  ONNX Where.

    A `lazy` one chooses between the results of branches, of which a program runs one: what is
    computed for the operand that is not chosen counts as not computed by gradients.  Its condition
    is the same for all elements.
    """

    lazy: bool = False

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        condition, x, y = xs
        if condition != x.with_dtype("bool"):
            raise TypeRuleError(f"where: condition is {condition}, expected {x.with_dtype('bool')}")
        if x != y:
            raise TypeRuleError(f"where: x is {x} and y is {y}, expected equal types")
        return x

    def scalar(self, m: Any, condition: Any, x: Any, y: Any) -> Any:
        return m.where(condition, x, y)

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls(), f"bool[{shape}]", f"f32[{shape}]", f"f32[{shape}]"
        for dtype in sorted(EVERY - {"f32"}):
            yield cls(), "bool[3,7]", f"{dtype}[3,7]", f"{dtype}[3,7]"
        yield cls(lazy=True), np.ones((3, 7), np.bool_), "f32[3,7]", "f32[3,7]"


class Cast(Elementwise):
    """x as elements of type `dtype`.  ONNX Cast.

    Floats become integers by truncation, and bool by being other than 0; what an integer type
    cannot hold is unspecified from floats and wraps from integers.  Floats of 16 bits and less are
    reached by way of f32.

    With `saturate`, what the types of 8 bits cannot hold becomes the largest number of its sign,
    otherwise infinity, or NaN where there is none; those of fewer bits have the largest only.
    f8e8m0 holds powers of two, reached by `rounding` up, down, or to the nearest, halves up; with
    `saturate` 0 becomes the least.

    A `loose` conversion to 16 bits is one that no model asks for: fast numerics may put it off
    until the result is stored.
    """

    dtype: str
    saturate: bool = True
    rounding: str = "up"
    loose: bool = False

    def infer(self, *xs: TensorType) -> TensorType:
        check_arity(self, len(xs))
        check_choice(self, DTYPES, dtype=self.dtype)
        check_choice(self, ROUNDINGS, rounding=self.rounding)
        if self.dtype != xs[0].dtype and {self.dtype, xs[0].dtype} & COMPLEX:
            raise TypeRuleError(f"cast: {xs[0]} to {self.dtype}, expected no complex dtype")
        return xs[0].with_dtype(self.dtype)

    def scalar(self, m: Any, x: Any) -> Any:
        if NAMES.get(x.dtype, x.dtype) == self.dtype:
            return x
        if self.dtype == "f8e8m0":
            return as_power_of_two(m, x, self.rounding, self.saturate)
        if self.dtype in NARROW_FLOATS and self.saturate:
            x = limited(m, m.cast(x, "f32"), self.dtype)
        # A formula sees the short floats as f32; storing its result rounds it.
        return m.cast(x, "f32" if self.dtype in HALVES else self.dtype)

    @classmethod
    def examples(cls) -> Examples:
        for dtype in ("f32", "i32", "bool"):
            yield from of_one_type(cls(dtype), (ALL - UNSIGNED if dtype == "i32" else ALL) | NARROW)
        for dtype in sorted((ALL | NARROW) - UNSIGNED):
            yield cls(dtype), "f32[17]"
            yield cls(dtype), "bool[17]"
            yield cls(dtype), "f64[2,0]"
        for dtype in sorted(UNSIGNED):
            yield cls(dtype), np.array([0, 0.5, 1.75, 100.99], np.float32)
        for dtype in sorted(INTS | NARROW_INTS):
            yield cls(dtype), np.array([0, -1, 300, -70000, 1 << 40], np.int64)
        for dtype in sorted(NARROW_FLOATS):
            for source in ("f16", "bf16", "f64", "i32", "u4", "f8e5m2"):
                yield cls(dtype), f"{source}[3,7]"
            for saturate in (True, False):
                yield cls(dtype, saturate), EDGES
        for rounding in ROUNDINGS:
            for saturate in (True, False):
                yield cls("f8e8m0", saturate, rounding), np.abs(EDGES)
        for dtype in ("f16", "bf16"):
            yield cls(dtype, loose=True), "f32[17]"


def limited(m: Any, x: Any, dtype: str) -> Any:
    """Return the f32 x, no larger than `dtype` can hold; NaN stays as it is."""
    most = largest(dtype)
    return m.where(m.gt(x, most), most, m.where(m.lt(x, -most), -most, x))


def as_power_of_two(m: Any, x: Any, rounding: str, saturate: bool) -> Any:
    """Return any numbers as f8e8m0."""
    return m.bits(power_of_two(m, m.cast(x, "f32"), rounding, saturate), "f8e8m0")


class BitCast(Primitive):
    """The bits of x read as elements of type `dtype`, of the same width.  ONNX BitCast."""

    dtype: str

    def infer(self, x: TensorType) -> TensorType:
        check_choice(self, DTYPES, dtype=self.dtype)
        if width(self.dtype) != width(x.dtype):
            raise TypeRuleError(
                f"bit_cast: dtype is {self.dtype} of {width(self.dtype)} bits, expected one of "
                f"{width(x.dtype)} bits as {x}"
            )
        return x.with_dtype(self.dtype)

    def reference(self, x: Array) -> Array:
        return x.view(DTYPES[self.dtype])

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls("i32"), f"f32[{shape}]"
        for dtype in sorted(EVERY):
            alike = sorted(d for d in EVERY if width(d) == width(dtype) and d != "bool")
            for target in (alike[0], alike[-1]):
                yield cls(target), f"{dtype}[3,7]"


EDGES = np.array(
    [0, -0.0, 1, 1.5, 3, 6, 7, 0.75, 0.25, 2.0**-9, 2.0**-10, -(2.0**-10), 464, 465, 57344, 61440,
     1e9, -1e9, 2.0**-127, 2.0**-128, 1.5 * 2.0**-127, 2.0**-149, 1.9 * 2.0**127, np.inf, -np.inf,
     np.nan, -np.nan],
    np.float32,
)  # fmt: skip

"""Running totals along an axis (ONNX CumSum, CumProd), and linear recurrences."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, normal_axis
from alpenglow.ir.types import FLOATS, NUMBERS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.reduction.reduction import as_type, in_floats, widened


class Scan(Primitive, kind=True):
    """A primitive whose element i along `axis` combines the elements of x up to i.

    With `exclusive` element i itself is left out, so that the first result is the neutral
    element; with `reverse` the axis is read from its end.  Half precision is accumulated in f32.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False
    neutral: ClassVar[int] = 0

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        normal_axis(self, self.axis, x.rank)
        return x.with_shape(x.shape)

    def accumulated(self, x: Array, accumulate: Any) -> Array:
        """Return the running totals by `accumulate`, the method of a NumPy ufunc."""
        wide = np.flip(widened(x), self.axis) if self.reverse else widened(x)
        if self.exclusive:
            before = np.full_like(wide, self.neutral)
            np.moveaxis(before, self.axis, 0)[1:] = np.moveaxis(wide, self.axis, 0)[:-1]
            wide = before
        with np.errstate(all="ignore"):
            total = accumulate(wide, self.axis, wide.dtype).astype(x.dtype)
        return np.flip(total, self.axis) if self.reverse else np.asarray(total)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0), "f32[17]"
        yield cls(1, True), "f32[3,5,2]"
        yield cls(-1, False, True), "f32[3,5]"
        yield cls(0, True, True), "f32[4,3]"
        yield cls(0), "f32[0,3]"
        yield cls(1, True), "f32[3,1]"
        for dtype in sorted(NUMBERS - {"f32"}):
            yield cls(1), f"{dtype}[2,5]"


class CumSum(Scan):
    """The sum of the elements so far.  ONNX CumSum."""

    def reference(self, x: Array) -> Array:
        return self.accumulated(x, np.add.accumulate)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(CumSum(self.axis, self.exclusive, not self.reverse), dy)


class CumProd(Scan):
    """The product of the elements so far.  ONNX CumProd."""

    neutral = 1

    def reference(self, x: Array) -> Array:
        return self.accumulated(x, np.multiply.accumulate)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Multiply what is before an element by the weighted products of what is after it.

        So nothing is divided by x, which may be 0.
        """
        wide, dwide = in_floats(b, x), in_floats(b, dy)
        before = b(CumProd(self.axis, True, self.reverse), wide)
        later = LinearScan(self.axis, True, not self.reverse)
        if self.exclusive:
            after = b(later, wide, dwide)
        else:
            after = b(Add(), dwide, b(later, wide, b(Mul(), wide, dwide)))
        return as_type(b, b(Mul(), before, after), x.type.dtype)


class LinearScan(Primitive):
    """s[t] = a[t] s[t-1] + b[t] along `axis`, where s before the first element is 0.

    With `exclusive` the result is s[t-1]; with `reverse` the axis is read from its end.  Half
    precision is computed in f32, s kept so between the elements.
    """

    axis: int
    exclusive: bool = False
    reverse: bool = False

    def infer(self, a: TensorType, b: TensorType) -> TensorType:
        check_dtype(self, "a", a, FLOATS)
        normal_axis(self, self.axis, a.rank)
        if a != b:
            raise TypeRuleError(f"linear_scan: a is {a} and b is {b}, expected one type")
        return a.with_shape(a.shape)

    def reference(self, a: Array, b: Array) -> Array:
        factors, terms = (np.moveaxis(widened(v), self.axis, 0) for v in (a, b))
        states = np.zeros_like(terms)
        s = np.zeros_like(terms[0]) if len(terms) else terms
        order = range(len(terms))
        with np.errstate(all="ignore"):
            for t in reversed(order) if self.reverse else order:
                after = factors[t] * s + terms[t]
                states[t] = s if self.exclusive else after
                s = after
        return np.asarray(np.moveaxis(states, 0, self.axis).astype(a.dtype))

    def gradient(self, b: Graph, dy: Value, x: Value, y: Value) -> tuple[Value, Value]:
        """Let the gradients of s go the other way: ds[t] = dy[t] + a[t+1] ds[t+1]."""
        a, wide, dwide = (in_floats(b, v) for v in (x, y, dy))
        later = LinearScan(self.axis, True, not self.reverse)
        if self.exclusive:
            ds = b(later, a, dwide)
        else:
            ds = b(Add(), dwide, b(later, a, b(Mul(), a, dwide)))
        before = b(LinearScan(self.axis, True, self.reverse), a, wide)
        return as_type(b, b(Mul(), ds, before), x.type.dtype), as_type(b, ds, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0), "f32[17]", "f32[17]"
        yield cls(1, True), "f32[3,5,2]", "f32[3,5,2]"
        yield cls(-1, False, True), "f32[3,5]", "f32[3,5]"
        yield cls(0, True, True), "f32[4,19]", "f32[4,19]"
        yield cls(0), "f32[0,3]", "f32[0,3]"
        yield cls(0), "f32[3,0]", "f32[3,0]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(1), f"{dtype}[2,5]", f"{dtype}[2,5]"

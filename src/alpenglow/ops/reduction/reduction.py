"""Reductions: many elements made one along some axes (ONNX ReduceSum, ReduceL2, ArgMax, …).

The primitives add, average, multiply and compare; norms and logarithms of sums are composites of
these.  Half precision is accumulated in f32 and rounded once; integers wrap.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Op,
    Primitive,
    changed_along,
    check_dtype,
    is_half,
    normal_axis,
)
from alpenglow.ir.types import ALL, FLOATS, HALVES, NUMBERS, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.elementwise.transcendental import Exp, Log, Sqrt
from alpenglow.ops.tensor.movement import Broadcast, Reshape


class Reduction(Primitive, kind=True):
    """A primitive that reduces x along `axes`, which stay as extents of 1 if `keepdims`.

    The axes are sorted and not negative; without any, every element is reduced by itself.
    """

    layouts = "first"

    axes: tuple[int, ...]
    keepdims: bool = True
    dtypes: ClassVar[frozenset[str]] = NUMBERS

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, self.dtypes)
        return reduced(self, x, self.axes, self.keepdims)

    def stretched(self, b: Graph, y: Value, x: Value) -> Value:
        """Return what belongs to the results, for every element of x that went into them."""
        kept = reduced(self, x.type, self.axes, True).shape
        return b(Broadcast(x.type.shape), b(Reshape(kept), y))

    @classmethod
    def examples(cls) -> Examples:
        yield from reductions(cls, cls.dtypes)
        yield cls((2, 3)), "f32[2,20/16,5,3,16]"
        yield cls((0, 2)), "f32[2,20/16,5,16]"


class ReduceSum(Reduction):
    """The sum of the elements, 0 of none.  ONNX ReduceSum."""

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        total = wide.sum(axis=self.axes, keepdims=self.keepdims, dtype=wide.dtype)
        return np.asarray(total).astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return self.stretched(b, dy, x)


class SumBytes(Reduction):
    """The sum of bytes in i32, 0 of none: what means of quantized tensors are made of."""

    dtypes = frozenset({"i8", "u8"})

    def infer(self, x: TensorType) -> TensorType:
        return super().infer(x).with_dtype("i32")

    def reference(self, x: Array) -> Array:
        return np.asarray(x.sum(axis=self.axes, keepdims=self.keepdims, dtype=np.int32))

    @classmethod
    def examples(cls) -> Examples:
        for dtype in sorted(cls.dtypes):
            yield cls((1,)), f"{dtype}[3,37]"
            yield cls((0, 2), False), f"{dtype}[3,5,17]"
        yield cls((2, 3)), "u8[2,20/16,5,3,16]"
        yield cls((0,)), "i8[0,3]"
        yield cls((0,), False), np.full(300, 255, np.uint8)


class ReduceMean(Reduction):
    """The mean of the elements, NaN of none.  ONNX ReduceMean.

    Integers are summed in 64 bits, and their mean is truncated towards zero; 0 of none.
    """

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        if x.dtype.kind in "iu":
            wide = x.astype(np.int64 if x.dtype.kind == "i" else np.uint64)
        total = wide.sum(axis=self.axes, keepdims=self.keepdims, dtype=wide.dtype)
        count = np.prod([x.shape[a] for a in self.axes], dtype=np.int64)
        with np.errstate(all="ignore"):
            return np.asarray(NUMPY.div(total, count.astype(wide.dtype))).astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        count = b(ReduceSum(self.axes, self.keepdims), filled(b, 1, in_floats(b, x)))
        share = b(Div(), as_type(b, dy, count.type.dtype), count)
        return self.stretched(b, as_type(b, share, x.type.dtype), x)


class ReduceProd(Reduction):
    """The product of the elements, 1 of none.  ONNX ReduceProd."""

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        with np.errstate(all="ignore"):
            total = wide.prod(axis=self.axes, keepdims=self.keepdims, dtype=wide.dtype)
        return np.asarray(total).astype(x.dtype)


class ReduceMax(Reduction):
    """The largest element, NaN if one is; of none, the lowest of the type.  ONNX ReduceMax."""

    dtypes = ALL

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        largest = wide.max(axis=self.axes, keepdims=self.keepdims, initial=lowest(wide.dtype))
        return np.asarray(largest).astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return _shared(self, b, dy, x)


class ReduceMin(Reduction):
    """The smallest element, NaN if one is; of none, the highest of the type.  ONNX ReduceMin."""

    dtypes = ALL

    def reference(self, x: Array) -> Array:
        wide = widened(x)
        smallest = wide.min(axis=self.axes, keepdims=self.keepdims, initial=highest(wide.dtype))
        return np.asarray(smallest).astype(x.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return _shared(self, b, dy, x)


def _shared(op: Reduction, b: Graph, dy: Value, x: Value) -> Value:
    """Divide the gradient of an extreme among the elements that are equal to it."""
    hit = b(Equal(), x, op.stretched(b, b(op, x), x))
    wide = as_type(b, hit, in_floats(b, x).type.dtype)
    count = b(ReduceSum(op.axes, op.keepdims), wide)
    share = as_type(b, b(Div(), as_type(b, dy, count.type.dtype), count), x.type.dtype)
    return b(Where(), hit, op.stretched(b, share, x), filled(b, 0, x))


class ArgReduction(Primitive, kind=True):
    """A primitive that finds, along `axis`, where one element is, as i64.

    Of several candidates it is the first, or the last if `last`.
    """

    axis: int
    keepdims: bool = True
    last: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        axis = normal_axis(self, self.axis, x.rank)
        if x.shape[axis] == 0:
            raise TypeRuleError(f"{self.name}: x is {x}, expected an element on axis {axis}")
        return reduced(self, x.with_dtype("i64"), (axis,), self.keepdims)

    def located(self, x: Array, find: Any) -> Array:
        """Apply `find` (an arg function of NumPy) to x, read backwards if `last`."""
        wide = widened(x)
        if not self.last:
            return np.asarray(find(wide, axis=self.axis, keepdims=self.keepdims))
        back = find(np.flip(wide, self.axis), axis=self.axis, keepdims=self.keepdims)
        return np.asarray(x.shape[self.axis] - 1 - back)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), "f32[3,17]"
        yield cls(0, False), "f32[5]"
        yield cls(-2, False, True), "i32[2,9,3]"
        yield cls(1, last=True), np.array([[1, 3, 3], [2, 2, 1]], np.float32)
        yield cls(0), "f32[4,0]"
        for dtype in sorted(NUMBERS - {"f32", "i32"}):
            yield cls(1), f"{dtype}[3,6]"


class ArgMax(ArgReduction):
    """Where the largest element is; NaN counts as larger than all.  ONNX ArgMax."""

    def reference(self, x: Array) -> Array:
        return self.located(x, np.argmax)


class ArgMin(ArgReduction):
    """Where the smallest element is; NaN counts as smaller than all.  ONNX ArgMin."""

    def reference(self, x: Array) -> Array:
        return self.located(x, np.argmin)


class Norm(Composite, kind=True):
    """A composite that computes a function of all elements along `axes`, as `Reduction` does."""

    axes: tuple[int, ...]
    keepdims: bool = True

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, NUMBERS)
        return reduced(self, x, self.axes, self.keepdims)

    @classmethod
    def examples(cls) -> Examples:
        yield from reductions(cls, FLOATS | {"i32", "i64", "u32", "u64"})


class ReduceL1(Norm):
    """The sum of |x|.  ONNX ReduceL1."""

    def lower(self, b: Graph, x: Value) -> Value:
        return b(ReduceSum(self.axes, self.keepdims), b(Abs(), x))


class ReduceL2(Norm):
    """The square root of the sum of x².  ONNX ReduceL2."""

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        total = b(ReduceSum(self.axes, self.keepdims), b(Mul(), wide, wide))
        return as_type(b, b(Sqrt(), total), x.type.dtype)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """0 where all elements are 0, as in PyTorch."""
        wide = in_floats(b, x)
        shares = over(b, as_type(b, dy, wide.type.dtype), b(self, wide))
        kept = reduced(self, x.type, self.axes, True).shape
        stretched = b(Broadcast(x.type.shape), b(Reshape(kept), shares))
        return as_type(b, b(Mul(), wide, stretched), x.type.dtype)


class ReduceSumSquare(Norm):
    """The sum of x².  ONNX ReduceSumSquare."""

    def lower(self, b: Graph, x: Value) -> Value:
        wide = x if x.type.dtype not in FLOATS else in_floats(b, x)
        total = b(ReduceSum(self.axes, self.keepdims), b(Mul(), wide, wide))
        return as_type(b, total, x.type.dtype)


class ReduceLogSum(Norm):
    """The logarithm of the sum.  ONNX ReduceLogSum."""

    def lower(self, b: Graph, x: Value) -> Value:
        total = b(ReduceSum(self.axes, self.keepdims), in_floats(b, x))
        return as_type(b, b(Log(), total), x.type.dtype)


class ReduceLogSumExp(Norm):
    """The logarithm of the sum of exp(x), computed without overflow.  ONNX ReduceLogSumExp."""

    def lower(self, b: Graph, x: Value) -> Value:
        wide = in_floats(b, x)
        # Without the clip, an infinite maximum would make inf - inf of what is well defined.
        most = float(np.finfo(wide.type.numpy).max)
        top = b(Clip(-most, most), b(ReduceMax(self.axes), wide))
        shifted = b(Sub(), wide, b(Broadcast(wide.type.shape), top))
        total = b(Log(), b(ReduceSum(self.axes), b(Exp(), shifted)))
        result = b(Add(), total, top)
        if not self.keepdims:
            result = b(Reshape(reduced(self, x.type, self.axes, False).shape), result)
        return as_type(b, result, x.type.dtype)


def reduced(op: Op, x: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """Return the type of x with `axes` reduced; raise TypeRuleError if they are not x's."""
    if list(axes) != sorted(set(axes)) or any(not 0 <= a < x.rank for a in axes):
        raise TypeRuleError(
            f"{op.name}: axes are {axes}, expected distinct axes of {x} in order, counted from 0"
        )
    shape: list[Dim] = []
    for i, d in enumerate(x.shape):
        if i not in axes:
            shape.append(d)
        elif keepdims:
            shape.append(1)
    return changed_along(op, x, axes if keepdims else range(x.rank), shape)


def widened(x: Array) -> Array:
    """Return x in the type it is accumulated in: f32 for half precision, else its own."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def lowest(dtype: np.dtype[Any]) -> Any:
    """Return the value of `dtype` that no other is below."""
    if dtype.kind == "b":
        return False
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def highest(dtype: np.dtype[Any]) -> Any:
    """Return the value of `dtype` that no other is above."""
    if dtype.kind == "b":
        return True
    return np.iinfo(dtype).max if dtype.kind in "iu" else np.inf


def in_floats(b: Graph, x: Value) -> Value:
    """Return x in a type to compute in: f32 for half precision, f64 for integers, else its own."""
    if x.type.dtype in FLOATS:
        return as_type(b, x, "f32") if x.type.numpy.itemsize == 2 else x
    return as_type(b, x, "f64")


def over(b: Graph, x: Value, y: Value) -> Value:
    """Return x / y, x itself where y is 0."""
    none = b(Equal(), y, filled(b, 0, y))
    return b(Div(), x, b(Where(), none, filled(b, 1, y), y))


def as_type(b: Graph, x: Value, dtype: str) -> Value:
    """Return x in the given element type; x itself if it has it."""
    return x if x.type.dtype == dtype else b(Cast(dtype, loose=dtype in HALVES), x)


def filled(b: Graph, value: float, like: Value) -> Value:
    """Return a tensor of the type of `like` with `value` everywhere."""
    return b(Broadcast(like.type.shape), b.constant(np.asarray(value, like.type.numpy)))


def reductions(cls: Any, dtypes: frozenset[str]) -> Examples:
    """Yield applications of an operator with `axes` and `keepdims` to tensors of these types."""
    yield cls((0,), False), "f32[17]"
    yield cls((1,)), "f32[3,5]"
    yield cls((0, 2), False), "f32[2,3,5,2]"
    yield cls((0, 1, 2, 3)), "f32[2,1,3,17]"
    yield cls(()), "f32[2,3]"
    yield cls(()), "f32[]"
    yield cls((1,)), "f32[3,0]"
    yield cls((0,), False), "f32[3,0]"
    for dtype in sorted(dtypes - {"f32"}):
        yield cls((0,), False), f"{dtype}[3,7]"

"""Sums of products of integers with zero points: (x - x_zero) times (w - w_zero), exact in i32.

They are lowered to products of the bytes as they stand, and corrections that are constant wherever
the weights are:

    sum (x - a)(w - b)  =  sum x w  -  a sum (w - b)  -  b sum x

Sums wrap, so nothing is lost on the way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Composite, Examples, Op, check_dtype
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import BYTES, Conv, MatMul
from alpenglow.ops.reduction.reduction import ReduceSum, SumBytes
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Transpose, stretch

HALF = 128
"""How far apart the same bits are as u8 and as i8."""


class MatMulInteger(Composite):
    """(x - x_zero) times (y - y_zero), summed in i32.  ONNX MatMulInteger.

    Zero points have the types of x[…, M, K] and y[…, K, N]; the leading axes are equal.
    """

    def infer(
        self, x: TensorType, y: TensorType, x_zero: TensorType, y_zero: TensorType
    ) -> TensorType:
        _check_bytes(self, x, y, x_zero, y_zero)
        return MatMul().infer(x, y)

    def lower(self, b: Graph, x: Value, y: Value, x_zero: Value, y_zero: Value) -> Value:
        rank = x.type.rank
        rows, columns = Zero.of(x_zero), Zero.of(y_zero)
        if not (rows.varies_within(rank, {rank - 2}) and columns.varies_within(rank, {rank - 1})):
            return b(MatMul(), _centred(b, x, x_zero), _centred(b, y, y_zero))
        y, columns = _signed_matrix(b, y, columns)
        total = b(MatMul(), x, y)
        terms = []
        if not rows.none:
            terms.append((rows.value, _sums_of_columns(b, y, columns)))
        if not columns.none:
            terms.append((columns.value, b(SumBytes((rank - 1,)), x)))
        return _corrected(b, total, terms)

    @classmethod
    def examples(cls) -> Examples:
        for a in sorted(BYTES):
            for c in sorted(BYTES):
                yield cls(), f"{a}[3,4]", f"{c}[4,5]", f"{a}[3,4]", f"{c}[4,5]"
        yield cls(), "u8[2,5,17]", "i8[2,17,9]", "u8[2,5,17]", "i8[2,17,9]"
        yield cls(), "u8[3,0]", "i8[0,5]", "u8[3,0]", "i8[0,5]"


class ConvInteger(Composite):
    """x - x_zero convolved with w - w_zero, summed in i32.  ONNX ConvInteger.

    Attributes are those of Conv; the padding is zeros after the subtraction.
    """

    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    group: int = 1

    @property
    def conv(self) -> Conv:
        return Conv(self.strides, self.pads, self.dilations, self.group)

    def infer(
        self, x: TensorType, w: TensorType, x_zero: TensorType, w_zero: TensorType
    ) -> TensorType:
        _check_bytes(self, x, w, x_zero, w_zero)
        t = self.conv.infer(x, w)
        assert isinstance(t, TensorType), "a convolution has one result"
        return t

    def lower(self, b: Graph, x: Value, w: Value, x_zero: Value, w_zero: Value) -> Value:
        inputs, outputs = Zero.of(x_zero), Zero.of(w_zero)
        if not (inputs.varies_within(x.type.rank, set())
                and outputs.varies_within(x.type.rank, {0})):  # fmt: skip
            wide = [b(Cast("f64"), _centred(b, v, z)) for v, z in ((x, x_zero), (w, w_zero))]
            return b(Cast("i32"), b(self.conv, *wide))
        w, outputs = _as_signed(b, w, outputs)
        conv = self.conv
        if not inputs.none:
            # Padding that is the zero point adds nothing, so that all windows meet all weights.
            x, conv = _padded(b, conv, x, inputs), replace(conv, pads=())
        total = b(conv, x, w)
        terms = []
        if not inputs.none:
            terms.append((inputs.value, _sums_of_filters(b, w, outputs)))
        if not outputs.none:
            terms.append((_by_channel(b, outputs, total), _sums_of_windows(b, conv, x, w)))
        return _corrected(b, total, terms)

    @classmethod
    def examples(cls) -> Examples:
        for a, c in (("u8", "i8"), ("i8", "i8"), ("u8", "u8")):
            x, w = f"{a}[1,5,6,7]", f"{c}[4,5,3,3]"
            yield cls(pads=(1, 0, 1, 1)), x, w, x, w
        grouped, w = "u8[2,4,9]", "i8[6,2,3]"
        yield cls((2,), group=2), grouped, w, grouped, w
        yield cls(dilations=(2,), group=2), grouped, w, grouped, w


@dataclass(frozen=True)
class Zero:
    """The zero point of a tensor, as it was before it was stretched to the tensor's shape."""

    value: Value

    @classmethod
    def of(cls, v: Value) -> Zero:
        while True:
            match v:
                case Value(Node(Broadcast(), [Value() as source])):
                    v = source
                case _:
                    return cls(v)

    @property
    def number(self) -> float | None:
        """The zero point, if it is one and known."""
        array = self.value.array
        return None if array is None or array.size != 1 else float(array.reshape(()))

    @property
    def none(self) -> bool:
        """Whether there is nothing to subtract."""
        return self.value.array is not None and not self.value.array.any()

    def varies_within(self, rank: int, axes: set[int]) -> bool:
        """Whether along all other axes of the tensor it is the same."""
        shape = self.value.type.shape
        wide = {rank - len(shape) + i for i, d in enumerate(shape) if d != 1}
        return wide <= axes


def _as_signed(b: Graph, w: Value, zero: Zero) -> tuple[Value, Zero]:
    """Return constant weights as i8: less their zero points, if bytes hold that, else less 128."""
    offset = zero.value.array
    if w.array is None or offset is None or (zero.none and w.type.dtype == "i8"):
        return w, zero
    centred = w.array.astype(np.int32) - offset.astype(np.int32)
    if centred.min(initial=0) >= -HALF and centred.max(initial=0) < HALF:
        return _weights(b, centred, w), Zero(b.constant(np.zeros((), np.int8)))
    if w.type.dtype == "i8":
        return w, zero
    moved = offset.astype(np.int32) - HALF
    return _weights(b, w.array.astype(np.int32) - HALF, w), Zero(b.constant(moved.astype(np.int8)))


def _signed_matrix(b: Graph, y: Value, zero: Zero) -> tuple[Value, Zero]:
    """Do what `_as_signed` does, for weights that are the same for all of a batch as well."""
    match y:
        case Value(Node(Broadcast() as stretch, [Value() as w])):
            if w.type.rank >= 2 and w.type.shape[-2:] == y.type.shape[-2:]:
                signed, zero = _as_signed(b, w, zero)
                return (y if signed is w else b(stretch, signed)), zero
    return _as_signed(b, y, zero)


def _weights(b: Graph, steps: Array, w: Value) -> Value:
    return b.constant(steps.astype(np.int8), w.name)


def _less(b: Graph, w: Value, zero: Zero) -> Value:
    """Return w less its zero point, as i32."""
    wide = b(Cast("i32"), w)
    if zero.none:
        return wide
    return b(Sub(), wide, stretch(b, b(Cast("i32"), zero.value), wide.type.shape))


def _sums_of_columns(b: Graph, y: Value, zero: Zero) -> Value:
    """Return the sums of the columns of y less their zero points."""
    rows = y.type.rank - 2
    match y:
        case Value(Node(Transpose(perm=perm) as turn, [Value() as x])):
            # A transposed operand is read as it lies in memory.
            sums = b(turn, b(SumBytes((perm[rows],)), x))
        case _:
            sums = b(SumBytes((rows,)), y)
    if zero.none:
        return sums
    width = zero.value.type.shape[-1:] or (1,)
    row = b(Reshape((1, *width)), zero.value)
    zeros = b(SumBytes((0,)), b(Broadcast((y.type.shape[rows], *width)), row))
    return b(Sub(), sums, stretch(b, zeros, sums.type.shape))


def _by_channel(b: Graph, zero: Zero, total: Value) -> Value:
    """Return the zero points of filters as i32 that stretch to the results of a convolution."""
    wide = b(Cast("i32"), zero.value)
    count = math.prod(d for d in wide.type.extents)
    return b(Reshape((count, *[1] * (total.type.rank - 2))), wide)


def _sums_of_filters(b: Graph, w: Value, zero: Zero) -> Value:
    """Return the sums of the weights less their zero points, one for each channel of results."""
    channels, *window = w.type.shape
    sums = b(ReduceSum(tuple(range(1, w.type.rank)), False), _less(b, w, zero))
    return b(Reshape((1, channels, *[1] * (len(window) - 1))), sums)


def _sums_of_windows(b: Graph, conv: Conv, x: Value, w: Value) -> Value:
    """Return the sums of what each window holds of x, one for each result."""
    outputs, *window = w.type.shape
    each = b(Broadcast((conv.group, *window)), b.constant(np.int8(1)))
    if w.type.static:
        each = b.constant(np.ones((conv.group, *w.type.extents[1:]), np.int8))
    sums = b(conv, x, each)
    n, group, *image = sums.type.shape
    if conv.group == 1:
        return sums
    apart = b(Reshape((n, group, 1, *image)), sums)
    wide = b(Broadcast((n, group, _quotient(outputs, conv.group), *image)), apart)
    return b(Reshape((n, outputs, *image)), wide)


def _quotient(outputs: Dim, group: int) -> Dim:
    return outputs // group


def _padded(b: Graph, conv: Conv, x: Value, zero: Zero) -> Value:
    """Return x with its zero point around its image, as a convolution pads with zeros."""
    spatial = x.type.rank - 2
    pads, _, _ = conv.window(spatial)
    before, after = pads[:spatial], pads[spatial:]
    if not any(pads):
        return x
    if zero.number is not None:
        return b(Pad((0, 0, *before), (0, 0, *after), value=int(zero.number)), x)
    edge = b(Reshape((1,) * x.type.rank), zero.value)
    for axis, widths in enumerate(zip(before, after, strict=True), 2):
        shape = x.type.shape
        first, last = (
            [b(Broadcast((*shape[:axis], width, *shape[axis + 1 :])), edge)] if width else []
            for width in widths
        )
        x = b(Concat(axis), *first, x, *last) if first or last else x
    return x


def _corrected(b: Graph, total: Value, terms: list[tuple[Value, Value]]) -> Value:
    """Return a total less the products of zero points and sums, both stretched to it."""
    for zero, sums in terms:
        wide = zero if zero.type.dtype == "i32" else b(Cast("i32"), zero)
        # The smaller of both is negated: often it is one number.
        product = _product(b, b(Neg(), wide), sums)
        total = b(Add(), total, stretch(b, product, total.type.shape))
    return total


def _product(b: Graph, zero: Value, sums: Value) -> Value:
    """Return the product of operands that stretch to each other, as small as it can be."""
    rank = max(zero.type.rank, sums.type.rank)
    shapes = [(1,) * (rank - v.type.rank) + v.type.shape for v in (zero, sums)]
    shape = tuple(c if a == 1 else a for a, c in zip(*shapes, strict=True))
    return b(Mul(), stretch(b, zero, shape), stretch(b, sums, shape))


def _check_bytes(
    op: Op, x: TensorType, y: TensorType, x_zero: TensorType, y_zero: TensorType
) -> None:
    for what, v, zero in (("first", x, x_zero), ("second", y, y_zero)):
        check_dtype(op, f"{what} operand", v, BYTES)
        if zero != v:
            raise TypeRuleError(f"{op.name}: {what} zero point is {zero}, expected {v}")


def _centred(b: Graph, x: Value, zero: Value) -> Value:
    """Return x - zero as i32."""
    return b(Sub(), b(Cast("i32"), x), b(Cast("i32"), zero))

"""Writers of contractions: matrix products and convolutions, of floats and of integers."""

from __future__ import annotations

from typing import Any

from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import FLOATS, Array
from alpenglow.ops.product.contraction import BYTES, Conv, MatMul
from alpenglow.ops.product.einsum import Einsum
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.tensor.movement import Broadcast, Reshape, unstretched
from alpenglow.ops.window.conv_transpose import ConvTranspose


@on(MatMul)
def mat_mul(w: Writer, op: MatMul, x: Value, y: Value) -> Tensor:
    pair = [x, matrix(y)]
    if x.type.dtype not in BYTES:
        return w("MatMul", *(w.cast(v, "f32") if op.wide else v for v in pair))
    if x.type.shape[-1] == 0:  # of which runtimes make anything, in integers
        return w("MatMul", *(w.cast(v, "i32") for v in pair))
    return w("MatMulInteger", *pair)


def matrix(y: Value) -> Value:
    """Return the second operand of a product, a single matrix where it was stretched from one."""
    narrow = unstretched(y)
    return narrow if narrow.type.rank == 2 and narrow.type.shape == y.type.shape[-2:] else y


@on(Conv)
def conv(w: Writer, op: Conv, x: Value, weights: Value, bias: Value | None) -> Tensor:
    window = window_of(op, weights)
    if x.type.dtype not in BYTES:
        each = [None if v is None else w.cast(v, "f32") if op.wide else v
                for v in (x, weights, bias)]  # fmt: skip
        return w("Conv", *each, **window)
    total = w("ConvInteger", x, weights, **window)
    return total if bias is None else w("Add", total, by_channel(w, bias, x.type.rank))


def window_of(op: Conv | ConvInteger | ConvTranspose, weights: Value) -> dict[str, Any]:
    """Return the attributes of a convolution that are not what they are by default."""
    spatial = weights.type.rank - 2
    pads, strides, dilations = op.pads, op.strides, op.dilations
    attributes: dict[str, Any] = {}
    if all(isinstance(d, int) for d in weights.type.shape[2:]):
        attributes["kernel_shape"] = weights.type.shape[2:]
    for name, numbers, default in (("strides", strides, 1), ("pads", pads, 0),
                                   ("dilations", dilations, 1)):  # fmt: skip
        if any(n != default for n in numbers):
            attributes[name] = numbers
    assert all(len(n) in (0, spatial) for n in (strides, dilations)), f"{op} on {weights}"
    return attributes | ({"group": op.group} if op.group != 1 else {})


def by_channel(w: Writer, v: Operand, rank: int) -> Tensor:
    """Return a vector with an element a channel as it stretches along a tensor [N, C, …]."""
    return reshaped(w, v, (-1, *[1] * (rank - 2)))


@on(ConvTranspose)
def conv_transpose(
    w: Writer, op: ConvTranspose, x: Value, weights: Value, bias: Value | None
) -> Tensor:
    more: dict[str, Any] = {"output_padding": op.output_padding} if any(op.output_padding) else {}
    return w("ConvTranspose", x, weights, bias, **window_of(op, weights), **more)


def _fits_onnx(opset: int, node: Node) -> bool:
    """Return True unless the equation stretches extents of 1, which ONNX does not."""
    assert isinstance(node.op, Einsum), "asked of one operator"
    extents: dict[str, Dim] = {}
    if "." in node.op.equation or node.results[0].type.dtype not in FLOATS:
        return False
    terms = node.op.equation.replace(" ", "").partition("->")[0].split(",")
    for term, v in zip(terms, node.inputs, strict=True):
        assert v is not None, "operands are there"
        if any(extents.setdefault(n, d) != d for n, d in zip(term, v.type.shape, strict=True)):
            return False
    return True


@on(Einsum, when=_fits_onnx)
def einsum(w: Writer, op: Einsum, *xs: Value) -> Tensor:
    return w("Einsum", *xs, equation=op.equation)


def constant_of(v: Value) -> Array | None:
    """Return the elements of a constant that was only put into another shape; None otherwise."""
    while v.array is None:
        match v:
            case Value(Node(Reshape() | Broadcast(), [Value() as x])):
                v = x
            case _:
                return None
    return v.array


def one_zero(v: Value) -> Operand:
    """Return a zero point that is the same for all of a tensor, as a scalar; None if it is not.

    One for each channel, which runtimes do not take, is often the same for all.
    """
    array = constant_of(v)
    if array is not None:
        first = array.reshape(-1)[:1]
        return first.reshape(()) if array.size and (array == first).all() else None
    narrow = unstretched(v)
    return narrow if all(d == 1 for d in narrow.type.shape) else None


def has_zeros(node: Node) -> bool:
    """Return True if both zero points are scalars, or a product's second has one per column."""
    _, _, x_zero, w_zero = node.inputs
    assert x_zero is not None and w_zero is not None, "zero points are there"
    columns = isinstance(node.op, MatMulInteger) and _columns(w_zero) is not None
    return one_zero(x_zero) is not None and (one_zero(w_zero) is not None or columns)


def scalar(w: Writer, v: Operand) -> Tensor:
    """Return one number as a tensor without axes."""
    if isinstance(v, Value) and v.type.rank:
        return reshaped(w, v, ())
    return w.tensor(v)


def _columns(v: Value) -> Value | None:
    """Return the row from which a zero point of columns was stretched, if batches share it."""
    narrow = unstretched(v)
    shape = narrow.type.shape
    return narrow if shape and all(d == 1 for d in shape[:-1]) else None


def column_zeros(w: Writer, v: Value) -> Tensor:
    """Return the zero point of the second operand of a product: a number, or a row."""
    number = one_zero(v)
    if number is not None:
        return scalar(w, number)
    row = _columns(v)
    assert row is not None, "the writer serves what has a place"
    return reshaped(w, row, (-1,))


@on(MatMulInteger, when=lambda opset, node: has_zeros(node))
def mat_mul_integer(
    w: Writer, op: MatMulInteger, x: Value, y: Value, x_zero: Value, y_zero: Value
) -> Tensor:
    return w("MatMulInteger", x, matrix(y), scalar(w, one_zero(x_zero)), column_zeros(w, y_zero))


@on(ConvInteger, when=lambda opset, node: has_zeros(node))
def conv_integer(
    w: Writer, op: ConvInteger, x: Value, weights: Value, x_zero: Value, w_zero: Value
) -> Tensor:
    zeros = [scalar(w, one_zero(v)) for v in (x_zero, w_zero)]
    return w("ConvInteger", x, weights, *zeros, **window_of(op, weights))

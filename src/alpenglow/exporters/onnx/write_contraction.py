"""Writers of contractions: matrix products and convolutions, of floats and of integers."""

from __future__ import annotations

from typing import Any

from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_elementwise import unstretched
from alpenglow.exporters.onnx.write_movement import reshaped
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.contraction import BYTES, Conv, ConvTranspose, MatMul
from alpenglow.ops.einsum import Einsum
from alpenglow.ops.integer import ConvInteger, MatMulInteger


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


def _has_row_zeros(opset: int, node: Node) -> bool:
    """Return True if zero points are a number, or one a row of x and a column of y."""
    _, _, x_zero, y_zero = node.inputs
    assert x_zero is not None and y_zero is not None, "zero points are there"
    return _is_scalar(x_zero) and (_is_scalar(y_zero) or _columns(y_zero) is not None)


def _is_scalar(v: Value) -> bool:
    return all(d == 1 for d in unstretched(v).type.shape)


def _columns(v: Value) -> Value | None:
    """Return what a zero point of columns was stretched from, if that is a row for all batches."""
    narrow = unstretched(v)
    shape = narrow.type.shape
    return narrow if shape and all(d == 1 for d in shape[:-1]) else None


@on(MatMulInteger, when=_has_row_zeros)
def mat_mul_integer(
    w: Writer, op: MatMulInteger, x: Value, y: Value, x_zero: Value, y_zero: Value
) -> Tensor:
    row = _columns(y_zero)
    zeros = [_zero(w, x_zero), _zero(w, y_zero) if row is None else reshaped(w, row, (-1,))]
    return w("MatMulInteger", x, matrix(y), *zeros)


def _zero(w: Writer, v: Value) -> Tensor:
    """Return a zero point that is one number as a scalar."""
    narrow = unstretched(v)
    return reshaped(w, narrow, ()) if narrow.type.rank else w.tensor(narrow)


def _has_channel_zeros(opset: int, node: Node) -> bool:
    _, _, x_zero, w_zero = node.inputs
    assert x_zero is not None and w_zero is not None, "zero points are there"
    shape = unstretched(w_zero).type.shape
    return _is_scalar(x_zero) and (_is_scalar(w_zero) or all(d == 1 for d in shape[1:]))


@on(ConvInteger, when=_has_channel_zeros)
def conv_integer(
    w: Writer, op: ConvInteger, x: Value, weights: Value, x_zero: Value, w_zero: Value
) -> Tensor:
    zero = _zero(w, w_zero) if _is_scalar(w_zero) else reshaped(w, unstretched(w_zero), (-1,))
    return w("ConvInteger", x, weights, _zero(w, x_zero), zero, **window_of(op, weights))

"""Writers of normalisation, of softmax and its kin."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import DTYPES
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.normalize import (
    BatchNorm,
    GroupNorm,
    InstanceNorm,
    LocalResponseNorm,
    LpNorm,
)
from alpenglow.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax

SOFTMAX = {Softmax: "Softmax", LogSoftmax: "LogSoftmax", Hardmax: "Hardmax"}


@on(*SOFTMAX)
def softmax(w: Writer, op: Softmax | LogSoftmax | Hardmax, x: Value) -> Tensor:
    y = w(SOFTMAX[type(op)], x, axis=op.axis)
    if not isinstance(op, Softmax) or not op.zeros:
        return y
    m = OnnxMath(w)
    if op.zeros == "undefined":
        return m.where(w("IsNaN", y), 0.0, y)
    top = w("ReduceMax", x, np.array([op.axis], np.int64), keepdims=1)
    return m.where(m.eq(top, -np.inf), 0.0, y)


def _is_single(opset: int, node: Node) -> bool:
    """Return True unless elements are f64, of which ONNX computes some norms in f32."""
    return node.results[0].type.dtype != "f64"


@on(LayerNorm)
def layer_norm(
    w: Writer, op: LayerNorm, x: Value, scale: Value | None, bias: Value | None
) -> Tensor:
    axis = op.axis % x.type.rank
    if x.type.dtype == "f64":
        return _layer_norm_in_full(w, op, x, scale, bias)
    trailing = x.type.shape[axis:]
    if scale is not None:
        factor: Operand = scale
    elif any(map(is_open, trailing)):
        factor = expanded(w, np.ones((1,) * len(trailing), x.type.numpy), trailing)
    else:
        factor = np.ones([int(d) for d in trailing], x.type.numpy)
    return w("LayerNormalization", x, factor, bias, axis=op.axis, epsilon=op.epsilon)


def _layer_norm_in_full(
    w: Writer, op: LayerNorm, x: Value, scale: Value | None, bias: Value | None
) -> Tensor:
    """Write the parts: ONNX computes the mean and the variance in f32 or in bf16."""
    axes = np.arange(op.axis % x.type.rank, x.type.rank)
    centred = w("Sub", x, w("ReduceMean", x, axes))
    variance = w("ReduceMean", w("Mul", centred, centred), axes)
    y = w("Div", centred, w("Sqrt", w("Add", variance, np.array(op.epsilon))))
    y = y if scale is None else w("Mul", y, scale)
    return y if bias is None else w("Add", y, bias)


@on(RMSNorm)
def rms_norm(w: Writer, op: RMSNorm, x: Value, scale: Value | None) -> Tensor:
    """Write the operator where the opset has it for these elements, else its parts."""
    if w.opset >= 23 and x.type.dtype != "f64" and scale is not None:
        return w("RMSNormalization", x, scale, axis=op.axis, epsilon=op.epsilon)
    axes = np.arange(op.axis % x.type.rank, x.type.rank)
    wide = "f64" if x.type.dtype == "f64" else "f32"
    given = w.cast(x, wide)
    mean = w("ReduceMean", w("Mul", given, given), axes)
    y = w("Div", given, w("Sqrt", w("Add", mean, np.array(op.epsilon, DTYPES[wide]))))
    y = y if scale is None else w("Mul", y, w.cast(scale, wide))
    return w.cast(y, x.type.dtype)


@on(BatchNorm, when=_is_single)
def batch_norm(
    w: Writer, op: BatchNorm, x: Value, scale: Value, bias: Value, mean: Value, variance: Value
) -> Tensor:
    return w("BatchNormalization", x, scale, bias, mean, variance, epsilon=op.epsilon)


@on(InstanceNorm, when=_is_single)
def instance_norm(w: Writer, op: InstanceNorm, x: Value, scale: Value, bias: Value) -> Tensor:
    return w("InstanceNormalization", x, scale, bias, epsilon=op.epsilon)


def _has_groups(opset: int, node: Node) -> bool:
    """Return True if ONNX has this since it scales by channel, and there is something to scale."""
    is_empty = any(not is_open(d) and d == 0 for d in node.results[0].type.shape)
    return opset >= 21 and _is_single(opset, node) and not is_empty


@on(GroupNorm, when=_has_groups)
def group_norm(w: Writer, op: GroupNorm, x: Value, scale: Value, bias: Value) -> Tensor:
    return w("GroupNormalization", x, scale, bias, num_groups=op.groups, epsilon=op.epsilon)


@on(LpNorm)
def lp_norm(w: Writer, op: LpNorm, x: Value) -> Tensor:
    return w("LpNormalization", x, axis=op.axis, p=op.p)


def _has_middle(opset: int, node: Node) -> bool:
    """Return True if runtimes take an LRN: a channel is in the middle, and there are images."""
    assert isinstance(node.op, LocalResponseNorm), "asked of one operator"
    (x,) = node.inputs
    assert x is not None, "the operand is there"
    size = node.op.size
    return _is_single(opset, node) and size % 2 == 1 and size < 1 << 31 and x.type.rank == 4


@on(LocalResponseNorm, when=_has_middle)
def local_response_norm(w: Writer, op: LocalResponseNorm, x: Value) -> Tensor:
    return w("LRN", x, size=op.size, alpha=op.alpha, beta=op.beta, bias=op.bias)

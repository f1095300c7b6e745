"""Converters for the cross entropy of a linear layer, which PyTorch computes in chunks of rows.

Chunks bound its memory and leave the results as they are: here all rows are computed at once.
"""

from __future__ import annotations

from typing import NamedTuple

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.softmax import LogSoftmax
from alpenglow.ops.tensor.gather import Gather, GatherElements
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Transpose, stretch


class Rows(NamedTuple):
    """The log-probabilities [n, c], class [n] and weight [n] of each row."""

    logs: Value
    target: Value
    weight: Value

    def losses(self, s: Site) -> Value:
        """Return the loss of each row."""
        column = s.reshaped(self.target, (*self.target.type.shape, 1))
        logs = s.g(GatherElements(1), self.logs, column)
        return s.g(Mul(), s.g(Neg(), s.reshaped(logs, self.target.type.shape)), self.weight)


@on("torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default")
def by_row(
    s: Site, input: Value, linear_weight: Value, target: Value, linear_bias: Value | None,
    weight: Value | None, ignore_index: int, batch_chunk_size: int, acc_policy: str,
    acc_dtype: str,
) -> Made:  # fmt: skip
    """Return the loss of each row."""
    rows = rows_of(s, input, linear_weight, target, linear_bias, weight, ignore_index)
    return s.cast(rows.losses(s), s.result.dtype)


@on("torch_nn._linear_cross_entropy_batch_chunked.default")
def of_all(
    s: Site, input: Value, linear_weight: Value, target: Value, linear_bias: Value | None,
    weight: Value | None, reduction: str, ignore_index: int, label_smoothing: float,
    batch_chunk_size: int, acc_policy: str, acc_dtype: str, allow_retain_graph: bool,
    compute_input_grad: bool, compute_linear_weight_grad: bool, compute_linear_bias_grad: bool,
) -> Made:  # fmt: skip
    """Return the loss, and its gradients by input, weights and bias, empty where not asked for."""
    if reduction not in ("mean", "sum") or label_smoothing:
        raise UnsupportedError(f"reduction is '{reduction}' and label_smoothing {label_smoothing}, "
                               "expected 'mean' or 'sum', and 0")  # fmt: skip
    rows = rows_of(s, input, linear_weight, target, linear_bias, weight, ignore_index)
    if reduction == "mean":
        whole = s.g(ReduceSum((0,)), rows.weight)
        share = s.g(Div(), rows.weight, stretch(s.g, whole, rows.weight.type.shape))
        rows = rows._replace(weight=share)
    loss = s.g(ReduceSum((0,), False), rows.losses(s))
    if reduction == "mean" and input.type.shape[0] == 0:
        loss = s.filled(float("nan"), loss.type)
    slopes = slopes_of(s, rows)
    dtype = slopes.type.dtype
    gradients = (
        s.g(MatMul(), slopes, s.cast(linear_weight, dtype)),
        s.g(MatMul(), s.g(Transpose((1, 0)), slopes), s.cast(input, dtype)),
        s.g(ReduceSum((0,), False), slopes),
    )
    asked = (compute_input_grad, compute_linear_weight_grad, compute_linear_bias_grad)
    results: list[Value | None] = [s.cast(loss, s.result.dtype)]
    for i, (y, is_asked) in enumerate(zip(gradients, asked, strict=True), 1):
        if not s.is_read(i):
            results.append(None)
        else:
            t = s.stated(i)
            results.append(s.cast(y, t.dtype) if is_asked else s.filled(0, t))
    return results


def rows_of(
    s: Site, input: Value, linear_weight: Value, target: Value, linear_bias: Value | None,
    weight: Value | None, ignore_index: int,
) -> Rows:  # fmt: skip
    """Return the rows; one whose class is ignored counts nothing, and has class 0 instead."""
    dtype = wide(input.type.dtype)
    turned = s.g(Transpose((1, 0)), s.cast(linear_weight, dtype))
    logits = s.g(MatMul(), s.cast(input, dtype), turned)
    if linear_bias is not None:
        bias = stretch(s.g, s.cast(linear_bias, dtype), logits.type.shape)
        logits = s.g(Add(), logits, bias)
    target = s.cast(target, "i64")
    is_ignored = s.g(Equal(), target, s.filled(ignore_index, target.type))
    target = s.g(Where(), is_ignored, s.filled(0, target.type), target)
    ones = target.type.with_dtype(dtype)
    counted = s.filled(1, ones) if weight is None else s.g(Gather(0), s.cast(weight, dtype), target)
    counted = s.g(Where(), is_ignored, s.filled(0, ones), counted)
    return Rows(s.g(LogSoftmax(1), logits), target, counted)


def slopes_of(s: Site, rows: Rows) -> Value:
    """Return the gradient of the loss by the logits: (shares - what is so) times the weight."""
    n, c = shape = rows.logs.type.shape
    column = stretch(s.g, s.reshaped(rows.target, (n, 1)), shape)
    is_class = s.g(Equal(), stretch(s.g, s.g(Range(c)), shape), column)
    slope = s.g(Sub(), s.g(Exp(), rows.logs), s.cast(is_class, rows.logs.type.dtype))
    return s.g(Mul(), slope, stretch(s.g, s.reshaped(rows.weight, (n, 1)), shape))

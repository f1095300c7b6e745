"""Writers of reductions: sums, extremes, norms, positions of extremes, and running totals."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.extents import scalar_extent
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, FLOATS
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    Norm,
    ReduceL1,
    ReduceL2,
    ReduceLogSum,
    ReduceLogSumExp,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
    ReduceSumSquare,
    Reduction,
    SumBytes,
)
from alpenglow.ops.reduction.scan import CumProd, CumSum

REDUCTIONS: dict[type[Op], str] = {
    ReduceSum: "ReduceSum", ReduceProd: "ReduceProd", ReduceMax: "ReduceMax",
    ReduceMin: "ReduceMin", ReduceL1: "ReduceL1", ReduceL2: "ReduceL2",
    ReduceLogSum: "ReduceLogSum", ReduceLogSumExp: "ReduceLogSumExp",
    ReduceSumSquare: "ReduceSumSquare",
}  # fmt: skip


def _is_plain(opset: int, node: Node) -> bool:
    """Return True unless a norm is of integers, which we compute in f64, or of no axis."""
    (x,) = node.inputs
    assert x is not None and isinstance(node.op, Norm | Reduction), "reductions have an operand"
    return not isinstance(node.op, Norm) or (x.type.dtype in FLOATS and bool(node.op.axes))


@on(*REDUCTIONS, when=_is_plain)
def reduce(w: Writer, op: Reduction | Norm, x: Value) -> Tensor:
    return w.tensor(x) if not op.axes else reduced(w, REDUCTIONS[type(op)], op, x)


def reduced(w: Writer, name: str, op: Reduction | Norm, x: Operand) -> Tensor:
    """Apply an operator of ONNX to x along the axes of `op`."""
    return w(name, x, np.array(op.axes, np.int64), keepdims=int(op.keepdims))


@on(SumBytes)
def sum_bytes(w: Writer, op: SumBytes, x: Value) -> Tensor:
    wide = w.cast(x, "i32")
    return wide if not op.axes else reduced(w, "ReduceSum", op, wide)


@on(ReduceMean)
def mean(w: Writer, op: ReduceMean, x: Value) -> Tensor:
    """Write integers as a sum in 64 bits and a division; ONNX leaves open how they round."""
    if not op.axes:
        return w.tensor(x)
    count = product([x.type.shape[a] for a in op.axes])
    if x.type.dtype in FLOATS and count != 0:
        return reduced(w, "ReduceMean", op, x)
    if x.type.dtype in FLOATS:  # the mean of nothing is NaN
        y = reduced(w, "ReduceSum", op, x)
        return w("Div", y, np.zeros((), x.type.numpy))
    wide = "u64" if x.type.dtype == "u64" else "i64"
    total = reduced(w, "ReduceSum", op, w.cast(x, wide))
    # A divisor that is known not to be 0 needs no nodes for 0.
    number = np.array(count, DTYPES[wide]) if isinstance(count, int) else w.cast(
        scalar_extent(w, count), wide)  # fmt: skip
    return w.cast(OnnxMath(w).div(total, number), x.type.dtype)


@on(ArgMax, ArgMin)
def position(w: Writer, op: ArgMax | ArgMin, x: Value) -> Tensor:
    name = "ArgMax" if isinstance(op, ArgMax) else "ArgMin"
    return w(name, x, axis=op.axis, keepdims=int(op.keepdims), select_last_index=int(op.last))


@on(CumSum, CumProd)
def running(w: Writer, op: CumSum | CumProd, x: Value) -> Tensor:
    name = "CumSum" if isinstance(op, CumSum) else "CumProd"
    return w(name, x, np.array(op.axis, np.int64), exclusive=int(op.exclusive),
             reverse=int(op.reverse))  # fmt: skip

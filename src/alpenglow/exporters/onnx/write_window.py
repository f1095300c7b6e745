"""Writers of sliding windows: pooling, and putting windows back."""

from __future__ import annotations

from typing import Any

from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import blocked, reshaped, unblocked
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.pooling import AveragePool, LpPool, MaxPool, MaxPoolIndex
from alpenglow.ops.unpooling import OverlapAdd

Pool = MaxPool | MaxPoolIndex | AveragePool | LpPool


def window_of(op: Pool) -> dict[str, Any]:
    """Return the attributes that all kinds of pooling have, but those that are as by default."""
    attributes: dict[str, Any] = {"kernel_shape": op.kernel}
    for name, numbers, default in (("strides", op.strides, 1), ("pads", op.pads, 0),
                                   ("dilations", op.dilations, 1)):  # fmt: skip
        if any(n != default for n in numbers):
            attributes[name] = numbers
    return attributes | ({"ceil_mode": 1} if op.ceil else {})


def pooled(w: Writer, op: Pool, name: str, x: Value, **more: Any) -> Tensor:
    """Return x pooled by an operator of ONNX; the channels of a blocked x are put side by side."""
    if x.type.blocked is None:
        return w(name, x, **window_of(op), **more)
    y = op.infer(x.type)
    assert isinstance(y, TensorType), f"{op.name} has one result"
    return blocked(w, w(name, unblocked(w, x), **window_of(op), **more), y.shape)


@on(MaxPool)
def max_pool(w: Writer, op: MaxPool, x: Value) -> Tensor:
    return pooled(w, op, "MaxPool", x)


@on(MaxPoolIndex)
def max_pool_index(w: Writer, op: MaxPoolIndex, x: Value) -> Tensor:
    return w.several(2, "MaxPool", x, **window_of(op), storage_order=int(op.column_major))[1]


@on(AveragePool)
def average_pool(w: Writer, op: AveragePool, x: Value) -> Tensor:
    return pooled(w, op, "AveragePool", x, count_include_pad=int(op.count_pads))


def _is_plain(opset: int, node: Node) -> bool:
    """Return True if ONNX has had this pooling from the beginning; the rest came piece by piece."""
    op = node.op
    assert isinstance(op, LpPool), "asked of one operator"
    return op.p == int(op.p) and not op.ceil and set(op.dilations) <= {1}


@on(LpPool, when=_is_plain)
def lp_pool(w: Writer, op: LpPool, x: Value) -> Tensor:
    return w("LpPool", x, p=int(op.p), **window_of(op))


@on(OverlapAdd)
def overlap_add(w: Writer, op: OverlapAdd, x: Value) -> Tensor:
    """Write Col2Im; of one axis as of two, for there ONNX Runtime takes the pads for equal."""
    rank = len(op.extents)
    n, c, *window = x.type.shape
    kernel, places = window[:rank], window[rank:]
    columns = reshaped(w, x, (n, product([c, *kernel]), product(places)))
    image, strides, dilations = list(op.extents), op.strides, op.dilations
    before, after = op.pads[:rank], op.pads[rank:]
    if rank == 1:
        image, kernel, strides, dilations = (
            [1, *image],
            [1, *kernel],
            (1, *strides),
            (1, *dilations),
        )
        before, after = (0, *before), (0, *after)
    y = w("Col2Im", columns, extents(w, image), extents(w, kernel), strides=strides,
          pads=before + after, dilations=dilations)  # fmt: skip
    return y if rank > 1 else reshaped(w, y, (n, c, *op.extents))

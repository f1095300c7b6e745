"""Writers of sliding windows: pooling, and putting windows back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from alpenglow.exporters.onnx.extents import extents
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import padded, reshaped
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import is_open, product
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.types import TensorType
from alpenglow.ops.window.pooling import AveragePool, LpPool, MaxPool, MaxPoolIndex
from alpenglow.ops.window.unpooling import OverlapAdd

Pool = MaxPool | MaxPoolIndex | AveragePool | LpPool


def window_of(op: Pool) -> dict[str, Any]:
    """Return the attributes that all kinds of pooling have, but those that are as by default."""
    attributes: dict[str, Any] = {"kernel_shape": op.kernel}
    for name, numbers, default in (("strides", op.strides, 1), ("pads", op.pads, 0),
                                   ("dilations", op.dilations, 1)):  # fmt: skip
        if any(n != default for n in numbers):
            attributes[name] = numbers
    return attributes | ({"ceil_mode": 1} if op.ceil else {})


def reaching(op: Pool, x: Value) -> Pool:
    """Return pooling whose padding reaches just as far as its windows do, where it hangs over.

    Of what hangs over the end opsets, checkers and runtimes do not think the same.  Axes whose
    extents are open stay as they are.
    """
    y, spatial = op.infer(x.type), len(op.kernel)
    assert isinstance(y, TensorType), f"{op.name} has one result"
    if not op.ceil:
        return op
    pads, pairs = list(op.pads), list(zip(x.type.shape[2:], y.shape[2:], strict=True))[:spatial]
    for i, (extent, count) in enumerate(pairs):
        if not is_open(extent) and not is_open(count):
            reach = (int(count) - 1) * op.strides[i] + (op.kernel[i] - 1) * op.dilations[i] + 1
            pads[spatial + i] = max(0, reach - int(extent) - pads[i])
    ceil = any(is_open(d) for pair in pairs for d in pair)
    counts = isinstance(op, AveragePool) and op.count_pads
    return op if ceil and counts else replace(op, pads=tuple(pads), ceil=ceil)


@on(MaxPool)
def max_pool(w: Writer, op: MaxPool, x: Value) -> Tensor:
    return w("MaxPool", x, **window_of(reaching(op, x)))


@on(MaxPoolIndex)
def max_pool_index(w: Writer, op: MaxPoolIndex, x: Value) -> Tensor:
    window = window_of(reaching(op, x))
    return w.several(2, "MaxPool", x, **window, storage_order=int(op.column_major))[1]


@on(AveragePool)
def average_pool(w: Writer, op: AveragePool, x: Value) -> Tensor:
    """Write padding that counts as padding before, where what hangs over does not count."""
    whole = reaching(op, x)
    counted = tuple(map(min, op.pads, whole.pads))
    if not op.count_pads or counted == whole.pads:
        window = {"count_include_pad": int(op.count_pads), **window_of(whole)}
        return w("AveragePool", x, **window)
    spatial = len(op.kernel)
    around = [0, 0, *counted[:spatial], 0, 0, *counted[spatial:]]
    more = tuple(b - a for a, b in zip(counted, whole.pads, strict=True))
    window = window_of(replace(whole, pads=more))
    return w("AveragePool", padded(w, x, around, "constant"), **window)


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

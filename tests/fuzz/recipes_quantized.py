"""Recipes for what computes with small integers: to them and back, and sums of products."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, code, is_whole
from .grids import BYTES, bytes_of, extreme, scale, steps, zeros
from .inference import Declined, allowed
from .recipe import recipe
from .windows import divisor, features, image, window


@recipe("QuantizeLinear")
def quantize(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 0)
    if x.dtype == "int32" and d.opset < 19 and d.chance(0.5):
        raise Declined
    kind = d.one_of(BYTES) if d.chance(0.5) else d.one_of(d.makes(op))
    more, shape = spread(d, op, x)
    kinds = allowed(op, d.opset, 1)
    real = x.dtype if x.dtype in kinds and d.opset >= 19 else "float"
    if d.opset >= 23 and d.chance(0.2):
        real = d.one_of([t for t in kinds if t != "float8e8m0"])
    step = typed(d, scale(d, shape, *((0, 4) if real == "int32" else (-4, 0))), real)
    zero = d.given(_zeros(d, kind, shape), True)
    if d.opset >= 21 and d.chance(0.3):
        more["output_dtype"] = code(kind)
        zero_: Var | None = zero if d.chance(0.5) else None
    else:
        zero_ = zero if kind != "uint8" or d.chance(0.6) else None
    if kind.startswith("float8"):
        more |= d.some(op, saturate=(0, 1))
    if d.opset >= 23 and d.chance(0.2):
        more["precision"] = code(d.one_of(("float", "float16")))
    d.node(op, [x, step, zero_], types=[(kind, x.shape)], **more)


def typed(d: Draft, v: Var, kind: str) -> Var:
    if kind == v.dtype:
        return v
    array = d.array(v)
    assert array is not None
    return d.given(array.astype(DTYPES[kind]), True)


def _zeros(d: Draft, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return zero points: those of floats, and of wide integers, are 0."""
    if not is_whole(kind) or kind == "int32":
        return np.zeros(shape, DTYPES[kind])
    return d.contents(kind, shape) if d.chance(0.7) else extreme(d, kind, shape)


def spread(d: Draft, op: str, x: Var) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Return attributes, and the shape of scales: one for all, one a slice, or one a block."""
    how = d.one_of(("one", "one", "slice", "slice", "block"))
    if not x.rank or how == "one" or d.opset < 13:
        return ({} if d.opset < 13 or d.chance(0.7) or not x.rank else
                {"axis": d.number(-x.rank, x.rank - 1)}), d.one_of(((), (), (1,)))  # fmt: skip
    axis = d.number(0, x.rank - 1)
    more = {} if axis == 1 and d.chance(0.5) else {
        "axis": axis if d.chance(0.6) else axis - x.rank}  # fmt: skip
    if how == "slice" or d.opset < 21 or not x.shape[axis]:
        return more, (x.shape[axis],)
    block = d.number(1, x.shape[axis])
    more["block_size"] = block
    count = -(-x.shape[axis] // block)
    if count > 1 and block >= -(-x.shape[axis] // (count - 1)):
        raise Declined  # fewer blocks would do
    return more, (*x.shape[:axis], count, *x.shape[axis + 1 :])


@recipe("DequantizeLinear")
def dequantize(d: Draft, op: str) -> None:
    kinds = allowed(op, d.opset)
    kind = d.one_of(("int8", "uint8")) if d.chance(0.5) else d.one_of(kinds)
    x = d.pick([kind], 0)
    if x.name in d.inputs and kind in ("int8", "uint8") and d.chance(0.5):
        d.inputs[x.name] = extreme(d, kind, x.shape)
    more, shape = spread(d, op, x)
    reals = [t for t in allowed(op, d.opset, 1) if t != "float8e8m0"]
    real = "float" if d.chance(0.6) else d.one_of(reals)
    step = typed(d, scale(d, shape, -4, 0), real)
    # Zero points of int32 and of floats must be 0.
    some = d.chance(0.2 if kind == "int32" else 0.7)
    zero = d.given(_zeros(d, kind, shape), True) if some else None
    out = real
    if d.opset >= 23 and d.chance(0.3):
        out = d.one_of(d.makes(op))
        more["output_dtype"] = code(out)
    d.node(op, [x, step, zero], types=[(out, x.shape)], **more)


@recipe("DynamicQuantizeLinear")
def dynamic(d: Draft, op: str) -> None:
    d.node(op, [d.pick(["float"], empty=False)], outputs=3)


# ── products ──


def columns(d: Draft, k: int) -> int:
    return d.extent(max(min(8192 // max(k, 1), 130), 1))


@recipe("MatMulInteger")
def matmul_integer(d: Draft, op: str) -> None:
    """Nothing is empty: ONNX Runtime adds up what is not there."""
    x = bytes_of(d, 1 if d.chance(0.1) else 2, 4)
    n = columns(d, x.shape[-1])
    lead = x.shape[:-2] if d.chance(0.3) and prod(x.shape[:-2]) * n * x.shape[-1] < 8192 else ()
    w = d.given(extreme(d, d.one_of(BYTES), (*lead, x.shape[-1], n)), d.chance(0.8))
    x_zero = zeros(d, x.dtype, 1)[0] if d.chance(0.6) else None
    if x_zero is not None and x.rank == 2 and d.chance(0.2):
        x_zero = d.given(extreme(d, x.dtype, (x.shape[0],)), True)
    w_zero = None
    if d.chance(0.6):
        w_zero = d.given(extreme(d, w.dtype, (n,) if d.chance(0.3) and not lead else ()), True)
    d.node(op, [x, w, x_zero, w_zero])


@recipe("QLinearMatMul")
def q_matmul(d: Draft, op: str) -> None:
    x = bytes_of(d, 2, 4)
    kind = x.dtype if d.chance(0.7) else d.one_of(BYTES)
    n = columns(d, x.shape[-1])
    w = d.given(extreme(d, kind, (x.shape[-1], n)), d.chance(0.85))
    to = x.dtype if d.chance(0.8) else d.one_of(BYTES)
    each = d.chance(0.3)
    a, c = steps(d, 2)
    b = scale(d, (n,) if each else ())
    q = d.given(extreme(d, kind, (n,) if each else ()), True)
    p, r = zeros(d, x.dtype, 1)[0], zeros(d, to, 1)[0]
    d.node(op, [x, a, p, w, b, q, c, r], types=[(to, (*x.shape[:-1], n))])


@recipe("ConvInteger", "QLinearConv")
def conv(d: Draft, op: str) -> None:
    x = image(d, list(BYTES), d.one_of((1, 2, 2, 2, 3)))
    win = window(d, op, x.rank - 2)
    out = win.extents(x.shape[2:])
    channels = x.shape[1]
    group = divisor(d, channels)
    each = channels // group
    count = features(d, group, each * prod(win.kernel))
    kind = x.dtype if op[0] == "Q" and d.chance(0.7) else d.one_of(BYTES)
    w = d.given(extreme(d, kind, (count, each, *win.kernel)), d.chance(0.85))
    more = {} if group == 1 and d.chance(0.5) else {"group": group}
    shape = (x.shape[0], count, *out)
    if op == "ConvInteger":
        w_zero = zeros(d, w.dtype, 1)[0] if d.chance(0.3) else None
        if w_zero is not None and d.chance(0.3):
            w_zero = d.given(extreme(d, w.dtype, (count,)), True)
        x_zero = zeros(d, x.dtype, 1)[0] if w_zero or d.chance(0.5) else None
        d.node(op, [x, w, x_zero, w_zero], types=[("int32", shape)], **more, **win.attributes)
        return
    x_step, y_step = steps(d, 2)
    apart = d.chance(0.4)
    w_step = scale(d, (count,) if apart else (), -8, -3)
    w_zero = d.given(np.zeros((count,) if apart else (), DTYPES[kind]), True)
    if kind == "uint8" and d.chance(0.5):
        w_zero = zeros(d, kind, 1)[0] if not apart else w_zero
    to = x.dtype if d.chance(0.85) else d.one_of(BYTES)
    x_zero, y_zero = zeros(d, x.dtype, 1)[0], zeros(d, to, 1)[0]
    bias = None
    if d.chance(0.6):
        bias = d.given(d.rng.integers(-999, 999, count).astype(np.int32), True)
    d.node(op, [x, x_step, x_zero, w, w_step, w_zero, y_step, y_zero, bias],
           types=[(to, shape)], **more, **win.attributes)  # fmt: skip

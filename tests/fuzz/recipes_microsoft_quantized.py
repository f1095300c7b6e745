"""Recipes for ONNX Runtime's operators on small integers, and for weights of few bits."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, Shape
from .grids import BYTES, bytes_of, extreme, scale, steps, zeros
from .inference import Declined
from .recipe import recipe
from .recipes_gather import where_from
from .recipes_microsoft import add, last_image, options
from .recipes_movement import some_axes
from .recipes_quantized import columns
from .windows import divisor, features, image, window

# ── products ──


@recipe("com.microsoft:QGemm")
def q_gemm(d: Draft, op: str) -> None:
    x = bytes_of(d, 2, 2)
    more = options(d, transA=(0, 1), transB=(0, 1), alpha=(1.0, 0.5))
    m, k = x.shape[::-1] if more.get("transA") else x.shape
    n = columns(d, k)
    kind = d.one_of(BYTES)
    w = d.given(extreme(d, kind, (n, k) if more.get("transB") else (k, n)), d.chance(0.85))
    each = (n,) if d.chance(0.3) else ()
    bias = None
    if d.chance(0.7):
        shape = d.one_of(((n,), (1, n), (m, n)))
        bias = d.given(d.rng.integers(-999, 999, shape).astype(np.int32), True)
    given = [x, *steps(d, 1), *zeros(d, x.dtype, 1), w, scale(d, each),
             d.given(extreme(d, kind, each), True), bias]  # fmt: skip
    to = "float"
    if d.chance(0.7):
        to = x.dtype
        given += [*steps(d, 1), *zeros(d, to, 1)]
    add(d, op, given, (to, (m, n)), **more)


@recipe("com.microsoft:MatMulIntegerToFloat", "com.microsoft:DynamicQuantizeMatMul")
def to_float(d: Draft, op: str) -> None:
    """Products of bytes, times scales."""
    dynamic = "Dynamic" in op
    x = d.pick(["float"], 2, 3, empty=False) if dynamic else bytes_of(d, 2, 3)
    n = columns(d, x.shape[-1])
    w = d.given(extreme(d, d.one_of(BYTES), (x.shape[-1], n)), True)
    each = (n,) if d.chance(0.4) else ()
    step = scale(d, each, -6, 0)
    zero = d.given(extreme(d, w.dtype, each), True) if d.chance(0.5) else None
    bias = d.fresh("float", (n,), True) if d.chance(0.5) else None
    if dynamic:
        given = [x, w, step, zero, bias]
    else:
        x_zero = zeros(d, x.dtype, 1)[0] if d.chance(0.5) else None
        given = [x, w, *steps(d, 1), step, x_zero, zero, bias]
    add(d, op, given, ("float", (*x.shape[:-1], n)))


@recipe("com.microsoft:MatMulInteger16")
def words(d: Draft, op: str) -> None:
    x = d.pick(["int16"], 2, 3, empty=False)
    n = columns(d, x.shape[-1])
    w = d.given(d.rng.integers(-300, 300, (x.shape[-1], n)).astype(np.int16))
    add(d, op, [x, w], ("int32", (*x.shape[:-1], n)))


@recipe("com.microsoft:MatMulNBits")
def few_bits(d: Draft, op: str) -> None:
    bits = d.one_of((4, 4, 8, 2))
    block = d.one_of((16, 16, 32, 64))
    x = d.pick(["float"], 2, 3, empty=False, where=lambda v: v.shape[-1] <= 300)
    k, n = x.shape[-1], columns(d, x.shape[-1])
    count = -(-k // block)
    packed = d.rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8)
    step = d.given((2.0 ** d.rng.integers(-4, 0, (n, count))).astype(np.float32), True)
    if d.chance(0.3):
        step = d.given(np.asarray(d.weights[step.name]).reshape(-1), True)
    zero, group, bias = None, None, None
    how = d.one_of(("none", "bytes", "bytes", "floats"))
    if how == "bytes":
        wide = -(-count * bits // 8)
        zero = d.given(d.rng.integers(0, 256, (n, wide)).astype(np.uint8), True)
    elif how == "floats" and bits != 2:
        zero = d.given(d.rng.integers(0, 1 << bits, (n, count)).astype(np.float32), True)
    if d.chance(0.15) and bits == 4:
        group = d.given(d.rng.integers(0, count, k).astype(np.int32), True)
    if d.chance(0.4):
        bias = d.fresh("float", (n,), True)
    more = options(d, accuracy_level=(0, 1, 4, 4)) if d.chance(0.5) else {}
    more |= {} if bits == 4 and d.chance(0.4) else {"bits": bits}
    given = [x, d.given(packed, True), step, zero, group, bias]
    add(d, op, given, ("float", (*x.shape[:-1], n)), N=n, K=k, block_size=block, **more)


@recipe("com.microsoft:MatMulBnb4")
def bnb(d: Draft, op: str) -> None:
    block = d.one_of((16, 32, 64))
    x = d.pick(["float"], 2, 3, empty=False, where=lambda v: v.shape[-1] <= 300)
    k, n = x.shape[-1], columns(d, x.shape[-1])
    packed = d.rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    largest = d.rng.uniform(0.1, 2, -(-n * k // block)).astype(np.float32)
    more = options(d, transB=(1,))
    add(d, op, [x, d.given(packed, True), d.given(largest, True)], ("float", (*x.shape[:-1], n)),
        N=n, K=k, block_size=block, quant_type=d.number(0, 1), **more)  # fmt: skip


@recipe("com.microsoft:GatherBlockQuantized")
def gather_block(d: Draft, op: str) -> None:
    kind = d.one_of(("uint4", "int4", "uint8"))
    bits = 8 if kind == "uint8" and d.chance(0.4) else 4
    block = 16 if d.chance(0.7) else 32
    extent = 2 * d.number(1, 25)
    rows = d.number(1, 6)
    count = -(-extent // block)
    stored = extent // (8 // bits) if kind == "uint8" else extent
    data = extreme(d, kind, (rows, stored))
    step = d.given((2.0 ** d.rng.integers(-4, 0, (rows, count))).astype(np.float32), True)
    zero = None
    if d.chance(0.5):
        wide = -(-count * bits // 8) if kind == "uint8" else count
        zero = d.given(d.contents(kind, (rows, wide)), True)
    shape = d.shape(0, 2, empty=False)[:2]
    if prod(shape) * extent > 4096:
        raise Declined
    at = d.rng.integers(0, rows, shape).astype(DTYPES[d.one_of(("int64", "int32"))])
    more = {"bits": bits} if bits == 8 or d.chance(0.4) else {}
    given = [d.given(data, True), where_from(d, at), step, zero]
    add(d, op, given, ("float", (*shape, extent)), gather_axis=0, quantize_axis=1,
        block_size=block, **more)  # fmt: skip


@recipe("com.microsoft:ReduceSumInteger")
def reduce_sum(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    axes = some_axes(d, x.rank)
    keep = d.number(0, 1)
    wide = "uint32" if x.dtype == "uint8" else "int32"
    add(d, op, [x], (wide, reduced(x, axes, keep)), axes=axes, keepdims=keep)


def reduced(x: Var, axes: list[int], keep: int) -> Shape:
    gone = {a % x.rank for a in axes}
    kept = [1 if i in gone else e for i, e in enumerate(x.shape) if keep or i not in gone]
    return tuple(kept)


# ── to floats and back ──


@recipe("com.microsoft:QuantizeLinear", "com.microsoft:DequantizeLinear")
def convert(d: Draft, op: str) -> None:
    """As ONNX's, with other types at older opsets."""
    forward = op.endswith(":QuantizeLinear")
    kind = d.one_of((*BYTES, "int16", "uint16"))
    x = d.pick(["float"] if forward else [kind], 1, 4)
    axis = d.number(-x.rank, x.rank - 1)
    each = d.chance(0.5)
    shape = (x.shape[axis],) if each else ()
    step = scale(d, shape, -4, 0)
    zero = d.given(d.contents(kind, shape), True)
    more = {"axis": axis} if each and (axis != 1 or d.chance(0.5)) else {}
    add(d, op, [x, step, zero], (kind if forward else "float", x.shape), **more)


# ── element by element, and windows ──


def grid(d: Draft, kind: str) -> list[Var | None]:
    """Return a scale and a zero point."""
    return [*steps(d, 1), *zeros(d, kind, 1)]


@recipe("com.microsoft:QLinearAdd", "com.microsoft:QLinearMul")
def binary(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    y = x if d.chance(0.1) else d.beside(x)
    add(d, op, [x, *grid(d, x.dtype), y, *grid(d, x.dtype), *grid(d, x.dtype)], (x.dtype, x.shape))


@recipe("com.microsoft:QLinearSigmoid", "com.microsoft:QLinearLeakyRelu",
        "com.microsoft:QLinearSoftmax")  # fmt: skip
def unary(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    more: dict[str, Any] = {}
    if op.endswith("LeakyRelu"):
        more = options(d, alpha=(0.1, 0.01, 0.5))
    elif op.endswith("Softmax"):
        more = {"opset": d.one_of((12, 13))} | options(d, axis=tuple(range(-x.rank, x.rank)))
    fine = [d.given(np.float32(2.0**-7), True), *zeros(d, x.dtype, 1)]
    add(d, op, [x, *grid(d, x.dtype), *fine], (x.dtype, x.shape), **more)


@recipe("com.microsoft:QLinearWhere")
def where(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    y = d.fresh(x.dtype, x.shape)
    condition = d.beside(x, "bool")
    add(d, op, [condition, x, *grid(d, x.dtype), y, *grid(d, x.dtype), *grid(d, x.dtype)],
        (x.dtype, x.shape))  # fmt: skip


@recipe("com.microsoft:QLinearConcat")
def concat(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    axis = d.number(0, x.rank - 1)
    parts = [x]
    for _ in range(d.number(0, 2)):
        shape = (*x.shape[:axis], d.extent(9), *x.shape[axis + 1 :])
        parts.append(x if d.chance(0.2) else d.fresh(x.dtype, shape))
    total = sum(p.shape[axis] for p in parts)
    given = grid(d, x.dtype)
    for p in parts:
        given += [p, *grid(d, x.dtype)]
    shape = (*x.shape[:axis], total, *x.shape[axis + 1 :])
    add(d, op, given, (x.dtype, shape), axis=axis - x.rank if d.chance(0.3) else axis)


@recipe("com.microsoft:QLinearGlobalAveragePool", "com.microsoft:QLinearReduceMean")
def mean(d: Draft, op: str) -> None:
    x = bytes_of(d, 3, 4)
    more: dict[str, Any]
    if op.endswith("Pool"):
        last = d.number(0, 1)
        ones = (1,) * (x.rank - 2)
        shape: Shape = (x.shape[0], *ones, x.shape[-1]) if last else (*x.shape[:2], *ones)
        more = {"channels_last": last} if last or d.chance(0.5) else {}
    else:
        axes, keep = some_axes(d, x.rank), d.number(0, 1)
        more, shape = {"axes": axes, "keepdims": keep}, reduced(x, axes, keep)
    add(d, op, [x, *grid(d, x.dtype), *grid(d, x.dtype)], (x.dtype, shape), **more)


@recipe("com.microsoft:QLinearAveragePool")
def pool(d: Draft, op: str) -> None:
    last = d.chance(0.4)
    if last:
        x = d.pick(BYTES, 4, 4, empty=False, shape=lambda: last_image(d, 2))
        spatial: Shape = x.shape[1:3]
    else:
        x = image(d, list(BYTES), 2)
        spatial = x.shape[2:]
    w = window(d, "AveragePool", 2, pooling=True)
    w.attributes.pop("dilations", None)
    w.dilations = [1, 1]
    if d.chance(0.3):
        w.ceil = True
        w.attributes["ceil_mode"] = 1
    out = w.extents(spatial)
    shape = (x.shape[0], *out, x.shape[3]) if last else (*x.shape[:2], *out)
    more = {"channels_last": int(last)} if last or d.chance(0.5) else {}
    add(d, op, [x, *grid(d, x.dtype), *grid(d, x.dtype)], (x.dtype, shape), **more,
        **options(d, count_include_pad=(0, 1)), **w.attributes)  # fmt: skip


@recipe("com.microsoft:QLinearConv")
def conv(d: Draft, op: str) -> None:
    """As ONNX's, with channels last, too."""
    last = d.chance(0.7)
    x = d.pick(BYTES, 4, 4, empty=False, shape=lambda: last_image(d, 2)) if last else image(
        d, list(BYTES), 2)  # fmt: skip
    plain = (x.shape[0], x.shape[3], *x.shape[1:3]) if last else x.shape
    w = window(d, "Conv", 2)
    out = w.extents(plain[2:])
    group = divisor(d, plain[1])
    each = plain[1] // group
    count = features(d, group, each * prod(w.kernel))
    weights = d.given(extreme(d, x.dtype, (count, each, *w.kernel)), True)
    bias = None
    if d.chance(0.5):
        bias = d.given(d.rng.integers(-999, 999, count).astype(np.int32), True)
    own = [scale(d, (), -8, -3), d.given(np.zeros((), DTYPES[x.dtype]), True)]
    shape = (x.shape[0], *out, count) if last else (x.shape[0], count, *out)
    more = {"group": group} | ({"channels_last": 1} if last else {})
    add(d, op, [x, *grid(d, x.dtype), weights, *own, *grid(d, x.dtype), bias], (x.dtype, shape),
        **more, **w.attributes)  # fmt: skip


@recipe("com.microsoft:DynamicQuantizeLSTM")
def lstm(d: Draft, op: str) -> None:
    direction = d.one_of(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    length, batch, size, hidden = d.number(1, 4), d.number(1, 3), d.extent(9), d.extent(9)
    x = d.pick(["float"], 3, 3, where=lambda v: v.shape == (length, batch, size),
               shape=lambda: (length, batch, size))  # fmt: skip
    kind = d.one_of(BYTES)
    w = d.given(d.contents(kind, (ways, size, 4 * hidden)), True)
    r = d.given(d.contents(kind, (ways, hidden, 4 * hidden)), True)
    each = (ways, 4 * hidden) if d.chance(0.4) else (ways,)
    grids = []
    for _ in range(2):
        # Of columns, ONNX Runtime takes zero points that are all alike, and 0 with signs.
        middle = d.number(1, 200) if d.chance(0.3) and kind == "uint8" else 0
        zeros = np.full(each, middle, DTYPES[kind])
        grids += [scale(d, each, -6, -3), d.given(zeros, True)]
    bias = d.fresh("float", (ways, 8 * hidden), True) if d.chance(0.6) else None
    state, cell = (d.fresh("float", (ways, batch, hidden)) if d.chance(0.4) else None
                   for _ in range(2))  # fmt: skip
    lengths = None
    if d.chance(0.3):
        # None of length 0: ONNX Runtime has its own idea of the last state.
        lengths = d.given(d.rng.integers(1, length + 1, batch).astype(np.int32))
        if lengths.name in d.inputs:
            d.controls[lengths.name] = []
    peepholes = d.fresh("float", (ways, 3 * hidden), True) if d.chance(0.3) else None
    given = [x, w, r, bias, lengths, state, cell, peepholes, *grids]
    more = d.some(op, clip=(0.5, 2.0, 100.0)) if d.chance(0.3) else {}
    more |= d.some(op, input_forget=(0, 1)) if d.chance(0.3) else {}
    y, place = ("float", (length, ways, batch, hidden)), ("float", (ways, batch, hidden))
    add(d, op, given, *[y, place, place][: d.number(1, 3)], hidden_size=hidden,
        direction=direction, **more)  # fmt: skip

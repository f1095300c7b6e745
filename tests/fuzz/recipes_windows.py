"""Recipes for convolutions, pools, and what undoes them."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Var
from .elements import FLOATS, INTS, Shape
from .inference import Declined, allowed
from .recipe import PATTERNS, recipe
from .windows import Window, divisor, features, image, image_shape, window


def spatial_axes(d: Draft) -> int:
    return int(d.one_of((1, 2, 2, 2, 2, 3)))


@recipe("Conv")
def conv(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), spatial_axes(d))
    # Images are their own filters, once in a while.
    itself = d.chance(0.03) and max(x.shape) < 10
    w = window(d, op, x.rank - 2, kernel=list(x.shape[2:]) if itself else None)
    out = w.extents(x.shape[2:])
    channels = x.shape[1]
    group = 1 if itself else divisor(d, channels)
    each = channels // group * prod(w.kernel)
    count = x.shape[0] if itself else features(d, group, each)
    shape = (count, channels // group, *w.kernel)
    weights = x if x.shape == shape else d.fresh(x.dtype, shape, d.chance(0.75))
    bias = d.fresh(x.dtype, (count,), None if d.chance(0.5) else True) if d.chance(0.6) else None
    more = {} if group == 1 and d.chance(0.5) else {"group": group}
    d.node(op, [x, weights, bias], types=[(x.dtype, (x.shape[0], count, *out))],
           **more, **w.attributes)  # fmt: skip


@recipe("ConvTranspose")
def transposed(d: Draft, op: str) -> None:
    spatial = spatial_axes(d)
    x = d.pick(allowed(op, d.opset), spatial + 2, spatial + 2, empty=False,
               shape=lambda: image_shape(d, spatial, 800))  # fmt: skip
    w = window(d, op, spatial)
    if w.same:
        raise Declined  # ONNX Runtime has a mind of its own
    channels = x.shape[1]
    group = divisor(d, channels)
    each = d.one_of((1, 1, 2, 3, 4, 5, 8, 16, 17))
    if each * channels * prod(w.kernel) > 6144:
        each = 1
    weights = d.fresh(x.dtype, (channels, each, *w.kernel), d.chance(0.75))
    whole = [(e - 1) * w.strides[i] + w.reach(i) for i, e in enumerate(x.shape[2:])]
    more: dict[str, object] = {} if group == 1 and d.chance(0.5) else {"group": group}
    extra = [0] * spatial
    if d.chance(0.35):
        extra = [d.number(0, max(max(s, k) - 1, 0))
                 for s, k in zip(w.strides, w.dilations, strict=True)]  # fmt: skip
        more["output_padding"] = extra
    if d.chance(0.2) and not any(w.pads):
        w.attributes.pop("pads", None)
        out = [max(e + x_ - d.number(0, k - 1), 1)
               for e, x_, k in zip(whole, extra, w.kernel, strict=True)]  # fmt: skip
        more["output_shape"] = out
    else:
        out = [e + x_ - p - q for e, x_, p, q in
               zip(whole, extra, w.pads[:spatial], w.pads[spatial:], strict=True)]  # fmt: skip
    count = each * group
    if min(out) < 1 or x.shape[0] * count * prod(out) > 16384:
        raise Declined
    bias = d.fresh(x.dtype, (count,)) if d.chance(0.5) else None
    d.node(op, [x, weights, bias], types=[(x.dtype, (x.shape[0], count, *out))],
           **more, **w.attributes)  # fmt: skip


@recipe("windows over the end", table=PATTERNS)
def over(d: Draft, op: str) -> None:
    """A pool of which the last windows hang over the end of the image, or of its padding."""
    op = d.one_of(("AveragePool", "AveragePool", "AveragePool", "MaxPool", "LpPool"))
    if not d.has(op, "ceil_mode"):
        raise Declined
    x = image(d, allowed(op, d.opset), spatial_axes(d))
    spatial = x.rank - 2
    kernel = [d.number(2, 5) for _ in range(spatial)]
    w = Window(kernel, [d.number(2, k) for k in kernel], [1] * spatial,
               [d.number(0, k - 1) for k in kernel * 2], ceil=True)  # fmt: skip
    given = {"kernel_shape": kernel, "strides": w.strides, "pads": w.pads, "ceil_mode": 1}
    more = d.some(op, count_include_pad=(0, 1, 1), p=(1, 2, 3, 4))
    d.node(op, [x], types=[(x.dtype, (*x.shape[:2], *w.extents(x.shape[2:])))], **given, **more)


@recipe("AveragePool", "MaxPool", "LpPool")
def pool(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), spatial_axes(d))
    if op == "LpPool" and d.opset < 2:
        raise Declined
    w = window(d, op, x.rank - 2, pooling=True)
    if d.has(op, "ceil_mode") and d.chance(0.35):
        w.ceil = bool(d.one_of((1, 1, 0)))
        w.attributes["ceil_mode"] = int(w.ceil)
    more = d.some(op, count_include_pad=(0, 1), p=(1, 2, 3, 4))
    outputs = 2 if op == "MaxPool" and d.opset >= 8 and d.chance(0.3) else 1
    if outputs == 2:
        more |= d.some(op, storage_order=(0, 1))
    shape = (*x.shape[:2], *w.extents(x.shape[2:]))
    types = [(x.dtype, shape), ("int64", shape)][:outputs]
    d.node(op, [x], outputs=outputs, types=types, **more, **w.attributes)


@recipe("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def whole(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), spatial_axes(d))
    more = d.some(op, p=(1, 2, 3)) if d.opset >= 2 else d.some(op, p=(1.0, 2.0))
    d.node(op, [x], types=[(x.dtype, (*x.shape[:2], *(1 for _ in x.shape[2:])))], **more)


@recipe("MaxUnpool")
def unpool(d: Draft, op: str) -> None:
    spatial = d.one_of((1, 2, 2, 3))
    x = image(d, [t for t in allowed(op, d.opset) if d.opset >= 12 or t == "float"], spatial)
    kernel = [d.one_of((1, 2, 2, 3)) for _ in range(spatial)]
    # Windows that overlap write elements twice, in any order.
    w = Window(kernel, list(kernel), [1] * spatial, [0] * (2 * spatial))
    given = {"kernel_shape": kernel}
    if d.chance(0.3):
        w.pads = [d.number(0, k - 1) for k in kernel * 2]
        given["pads"] = w.pads
    if set(kernel) != {1} or d.chance(0.5):
        given["strides"] = kernel
    out = w.extents(x.shape[2:])
    shape = (*x.shape[:2], *out)
    y, at = d.node("MaxPool", [x], outputs=2, types=[(x.dtype, shape), ("int64", shape)], **given)
    whole_ = [e * k - w.pads[i] - w.pads[i + spatial]
              for i, (e, k) in enumerate(zip(out, kernel, strict=True))]  # fmt: skip
    back = (*x.shape[:2], *whole_)
    if back == x.shape and d.chance(0.6):
        d.node(op, [y, at], types=[(x.dtype, back)], **given)
    else:
        d.node(op, [y, at, d.ints(x.shape)], types=[(x.dtype, x.shape)], **given)


@recipe("Col2Im")
def col2im(d: Draft, op: str) -> None:
    spatial = d.one_of((1, 2, 2, 3))
    w = window(d, op, spatial, kernel=[d.number(1, 3) for _ in range(spatial)])
    if "auto_pad" in w.attributes:
        raise Declined
    image_ = tuple(w.reach(i) + d.extent(9, 0) for i in range(spatial))
    counts = w.extents(image_)
    n, c = d.number(1, 2), d.extent(9)
    shape = (n, c * prod(w.kernel), prod(counts))
    kind = d.dtype(t for t in allowed(op, d.opset) if t in (*FLOATS, *INTS))
    if prod(shape) > 4096:
        raise Declined
    x = d.pick([kind], 3, 3, where=lambda v: v.shape == shape, shape=lambda: shape)
    d.node(op, [x, d.ints(image_), d.ints(w.kernel)], types=[(kind, (n, c, *image_))],
           **w.attributes)  # fmt: skip


@recipe("DeformConv")
def deform(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 4, 4, empty=False,
               shape=lambda: image_shape(d, 2, 1024))  # fmt: skip
    w = window(d, op, 2)
    if "auto_pad" in w.attributes:
        raise Declined
    out = w.extents(x.shape[2:])
    n, channels = x.shape[:2]
    group = divisor(d, channels)
    each = channels // group
    count = features(d, group, each * prod(w.kernel))
    parts = divisor(d, channels) if d.chance(0.5) else 1
    taps = parts * prod(w.kernel)
    if n * 2 * taps * prod(out) > 4096:
        raise Declined
    weights = d.fresh(x.dtype, (count, each, *w.kernel), True)
    offset = d.rng.uniform(-1, 1, (n, 2 * taps, *out))
    bias = d.fresh(x.dtype, (count,)) if d.chance(0.5) else None
    mask = d.fresh(x.dtype, (n, taps, *out)) if d.chance(0.5) else None
    more = {} if group == 1 and d.chance(0.5) else {"group": group}
    more |= {} if parts == 1 and d.chance(0.5) else {"offset_group": parts}
    kind = d.contents(x.dtype, ()).dtype
    d.node(op, [x, weights, d.given(np.asarray(offset).astype(kind), True), bias, mask],
           types=[(x.dtype, (n, count, *out))], **more, **w.attributes)  # fmt: skip


@recipe("CausalConvWithState")
def causal(d: Draft, op: str) -> None:
    kind = d.dtype(allowed(op, d.opset))
    n, channels, length, k = d.number(1, 3), d.extent(17), d.extent(17), d.number(1, 4)
    shape: Shape = (n, channels, length)
    x = d.pick([kind], 3, 3, empty=False, shape=lambda: shape)
    n, channels, length = x.shape
    w = d.fresh(x.dtype, (channels, 1, k))
    bias = d.fresh(x.dtype, (channels,)) if d.chance(0.5) else None
    past: Var | None = d.fresh(x.dtype, (n, channels, k - 1)) if k > 1 and d.chance(0.6) else None
    types = [(x.dtype, x.shape), (x.dtype, (n, channels, k - 1))]
    d.node(op, [x, w, bias, past], outputs=2, types=types,
           **d.some(op, activation=("none", "silu", "swish")))  # fmt: skip

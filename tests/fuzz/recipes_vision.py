"""Recipes for sampling, regions of images, and what undoes windows."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import DTYPES, Declined, Draft, allowed, code, recipe


@recipe("GridSample")
def grid_sample(d: Draft, op: str) -> None:
    spatial = d.one_of((2, 2, 3)) if d.opset >= 20 else 2
    kinds = [t for t in allowed(op, d.opset) if t in ("float", "double")]
    shape = tuple(d.number(1, 5) for _ in range(spatial + 2))
    x = d.pick(kinds, spatial + 2, spatial + 2, empty=False)
    if x.name not in d.made:
        x = d.fresh(x.dtype, shape, False)
    out = tuple(d.number(1, 4) for _ in range(spatial))
    places = d.rng.uniform(-1.3, 1.3, (x.shape[0], *out, spatial)).astype(np.float32)
    if d.opset >= 20:
        mode = d.one_of(("linear", "nearest", *(["cubic"] if spatial == 2 else [])))
    else:
        mode = d.one_of(("bilinear", "nearest", "bicubic"))
    grid = d.given(places, True)
    d.node(op, [x, grid], types=[(x.dtype, (*x.shape[:2], *out))], mode=mode,
           padding_mode=d.one_of(("zeros", "border", "reflection")),
           align_corners=d.number(0, 1))  # fmt: skip


@recipe("AffineGrid")
def affine_grid(d: Draft, op: str) -> None:
    spatial = d.one_of((2, 3))
    n = d.number(1, 3)
    theta = d.fresh(d.one_of(("float", "double")), (n, spatial, spatial + 1))
    size = [n, d.number(1, 3), *(d.number(1, 5) for _ in range(spatial))]
    d.node(op, [theta, d.ints(size)], types=[(theta.dtype, (n, *size[2:], spatial))],
           align_corners=d.number(0, 1))  # fmt: skip


@recipe("RoiAlign")
def roi_align(d: Draft, op: str) -> None:
    x = d.fresh("float", (d.number(1, 2), d.number(1, 3), d.number(3, 8), d.number(3, 8)), False)
    count = d.number(0 if d.chance(0.1) else 1, 4)
    corners = d.rng.uniform(0, 6, (count, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2] / 2
    batch = d.rng.integers(0, x.shape[0], count).astype(np.int64)
    high, wide = d.number(1, 3), d.number(1, 3)
    d.node(op, [x, d.given(corners, True), d.given(batch, True)],
           types=[("float", (count, x.shape[1], high, wide))], output_height=high,
           output_width=wide, sampling_ratio=d.number(0, 2), spatial_scale=d.one_of((0.5, 1.0)),
           mode=d.one_of(("avg", "max")))  # fmt: skip


@recipe("MaxRoiPool")
def max_roi(d: Draft, op: str) -> None:
    x = d.fresh("float", (d.number(1, 2), d.number(1, 3), d.number(3, 8), d.number(3, 8)), False)
    count = d.number(1, 4)
    corners = d.rng.integers(0, 5, (count, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2]
    rois = np.concatenate([d.rng.integers(0, x.shape[0], (count, 1)), corners], 1)
    pooled = [d.number(1, 3), d.number(1, 3)]
    d.node(op, [x, d.given(rois.astype(np.float32), True)],
           types=[("float", (count, x.shape[1], *pooled))], pooled_shape=pooled)  # fmt: skip


@recipe("Col2Im")
def col2im(d: Draft, op: str) -> None:
    spatial = d.one_of((1, 2, 2, 3))
    block = [d.number(1, 3) for _ in range(spatial)]
    image = [b + d.number(0, 4) for b in block]
    steps = [d.number(1, 2) for _ in range(spatial)]
    pads = [d.number(0, 1) for _ in range(2 * spatial)]
    counts = [
        (e + pads[i] + pads[i + spatial] - block[i]) // steps[i] + 1 for i, e in enumerate(image)
    ]
    n, c = d.number(1, 2), d.number(1, 3)
    x = d.fresh("float", (n, c * prod(block), prod(counts)))
    d.node(op, [x, d.ints(image), d.ints(block)], types=[("float", (n, c, *image))],
           strides=steps, pads=pads)  # fmt: skip


@recipe("DeformConv")
def deform(d: Draft, op: str) -> None:
    n, group, each = d.number(1, 2), d.number(1, 2), d.number(1, 3)
    kernel = [d.number(1, 3), d.number(1, 3)]
    high, wide = kernel[0] + d.number(0, 4), kernel[1] + d.number(0, 4)
    features = group * d.number(1, 3)
    x = d.fresh("float", (n, group * each, high, wide), False)
    w = d.fresh("float", (features, each, *kernel), True)
    out = (high - kernel[0] + 1, wide - kernel[1] + 1)
    offset = d.rng.uniform(-1, 1, (n, 2 * prod(kernel), *out)).astype(np.float32)
    bias = d.fresh("float", (features,)) if d.chance(0.5) else None
    mask = d.fresh("float", (n, prod(kernel), *out)) if d.chance(0.5) else None
    d.node(op, [x, w, d.given(offset, True), bias, mask], group=group,
           types=[("float", (n, features, *out))])  # fmt: skip


@recipe("MaxUnpool")
def unpool(d: Draft, op: str) -> None:
    high, wide = 2 * d.number(1, 4), 2 * d.number(1, 4)
    x = d.fresh("float", (d.number(1, 2), d.number(1, 3), high, wide), False)
    if d.opset < 11:
        raise Declined
    y, at = d.node("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    d.node(op, [y, at], types=[("float", x.shape)], kernel_shape=[2, 2], strides=[2, 2])


@recipe("Det")
def determinant(d: Draft, op: str) -> None:
    kinds = [t for t in allowed(op, d.opset) if t in ("float", "double")]
    n = d.number(1, 4)
    lead = d.shape(0, 2, empty=False)[:2]
    d.node(op, [d.fresh(d.one_of(kinds), (*lead, n, n))])


@recipe("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def loss(d: Draft, op: str) -> None:
    n, classes = d.number(1, 4), d.number(1, 5)
    more = d.shape(0, 2, empty=False)[:2]
    x = d.fresh("float", (n, classes, *more), False)
    labels = d.rng.integers(0, classes, (n, *more)).astype(d.one_of((np.int64, np.int32)))
    given = [x, d.given(labels, True)]
    if d.chance(0.5):
        given.append(d.given(np.abs(d.contents("float", (classes,))) + np.float32(0.5), True))
    ignored = {"ignore_index": 0} if d.chance(0.2) and (labels != 0).any() else {}
    how = d.one_of(("mean", "sum", "none"))
    shape = labels.shape if how == "none" else ()
    types = [("float", shape)]
    if op[0] == "S" and d.chance(0.4):
        types.append(("float", x.shape))
    d.node(op, given, outputs=len(types), types=types, reduction=how, **ignored)


@recipe("BitCast")
def bit_cast(d: Draft, op: str) -> None:
    x = d.pick([t for t in DTYPES if t != "bool"])
    size = DTYPES[x.dtype].itemsize
    to = d.one_of([t for t in DTYPES if DTYPES[t].itemsize == size and t != "bool"])
    # As integers: what becomes of a NaN's bits nobody says.
    if x.dtype.startswith(("float", "double", "bfloat")) or not to.startswith(("int", "uint")):
        raise Declined
    d.node(op, [x], types=[(to, x.shape)], to=code(to))

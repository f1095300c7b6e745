"""Recipes for what reads images between their elements: resizing, grids, regions."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, FLOATS, Shape
from .inference import Declined, allowed
from .recipe import PATTERNS, recipe
from .recipes_movement import some_axes
from .windows import image_shape

SCALES = (0.5, 1.0, 1.0, 2.0, 3.0, 1.5, 0.75, 0.3, 2.5, 4.0, 7.0)
NEAREST = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")


def small_image(d: Draft, kinds: list[str], spatial: int) -> Var:
    return d.pick(kinds, spatial + 2, spatial + 2, empty=False,
                  shape=lambda: image_shape(d, spatial, 600),
                  where=lambda v: prod(v.shape) <= 1500)  # fmt: skip


@recipe("Resize")
def resize(d: Draft, op: str) -> None:
    if d.opset < 11:
        resize_old(d, op)
        return
    mode = d.one_of(("nearest", "nearest", "linear", "cubic"))
    kinds = allowed(op, d.opset)
    if mode != "nearest":
        kinds = [k for k in kinds if k in FLOATS]
    if mode == "cubic" or d.chance(0.7):
        x = small_image(d, kinds, 2)
    elif mode == "linear":
        x = d.pick(kinds, 1, 5, empty=False, where=lambda v: prod(v.shape) <= 1500)
    else:
        x = d.pick(kinds, 1, 5, empty=False, where=lambda v: prod(v.shape) <= 1500)
    ways = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
    if d.opset >= 19:
        ways.append("half_pixel_symmetric")
    if mode == "nearest" and d.opset < 13:
        ways.append("tf_half_pixel_for_nn")
    if d.chance(0.12):
        ways = ["tf_crop_and_resize"]
    more: dict[str, Any] = {"mode": mode} if mode != "nearest" or d.chance(0.5) else {}
    more |= d.some(op, coordinate_transformation_mode=ways)
    way = more.get("coordinate_transformation_mode", "half_pixel")
    if ways == ["tf_crop_and_resize"]:
        more["coordinate_transformation_mode"] = way = ways[0]
    if mode == "nearest":
        more |= d.some(op, nearest_mode=NEAREST)
    if mode == "cubic":
        more |= d.some(op, cubic_coeff_a=(-0.75, -0.5, -1.0), exclude_outside=(0, 1))
    if mode != "nearest" and d.opset >= 18 and d.chance(0.3):
        more["antialias"] = d.number(0, 1)
    axes = list(range(x.rank))
    if d.opset >= 18 and d.chance(0.3):
        axes = some_axes(d, x.rank)
        more["axes"] = axes
    roi = None
    if way == "tf_crop_and_resize":
        below = 1.0 if x.dtype[0] in "ub" else -2.0
        more |= d.some(op, extrapolation_value=(0.0, 1.5, below))
        begin = [0.0 if d.chance(0.4) else float(d.one_of((0.25, 0.1, -0.2))) for _ in axes]
        end = [1.0 if d.chance(0.4) else float(d.one_of((0.75, 0.9, 1.3))) for _ in axes]
        kind = d.one_of(("float", "double")) if mode != "nearest" else "float"
        roi = d.given(np.array([*begin, *end], DTYPES[kind]), True)
    resized(d, op, x, roi, axes, mode, more)


@recipe("resized twice", table=PATTERNS)
def twice(d: Draft, op: str) -> None:
    """An image of another size, and another of that."""
    for _ in range(2):
        resize(d, "Resize")


def resized(d: Draft, op: str, x: Var, roi: Var | None, axes: list[int], mode: str,
            more: dict[str, Any]) -> None:  # fmt: skip
    """Add the node, by scales or by extents."""
    spatial = {a % x.rank for a in axes}
    if mode != "nearest" and x.rank > 2:
        spatial &= set(range(2, x.rank))
    wanted: list[int] = []
    scales: list[float] = []
    for a in axes:
        e = x.shape[a]
        scale = float(d.one_of(SCALES)) if a % x.rank in spatial else 1.0
        size = max(int(e * scale), 1)
        if size > 40:
            scale, size = 1.0, e
        scales.append(scale)
        wanted.append(d.one_of((size, size, d.number(1, 9))) if a % x.rank in spatial else e)
    if d.chance(0.5) or roi is not None:
        if any(int(x.shape[a] * s) < 1 for a, s in zip(axes, scales, strict=True)):
            raise Declined
        found = list(x.shape)
        for i, (a, s) in enumerate(zip(axes, scales, strict=True)):
            e = np.float32(x.shape[a])
            if roi is not None:
                box = d.weights[roi.name].astype(np.float64)
                share = box[len(axes) + i] - box[i]
                found[a] = int(np.floor(x.shape[a] * share * s))
            else:
                found[a] = int(np.floor(e * np.float32(s)))
        if min(found) < 1:
            raise Declined
        array = np.array(scales, np.float32)
        d.node(op, [x, roi, d.known(array) if roi is None else d.given(array, True)],
               types=[(x.dtype, tuple(found))], **more)  # fmt: skip
        return
    if d.opset >= 18 and d.chance(0.3):
        more["keep_aspect_ratio_policy"] = d.one_of(("stretch", "not_larger", "not_smaller"))
    empty = d.given(np.zeros(0, np.float32), True) if d.opset < 13 else None
    d.node(op, [x, d.given(np.zeros(0, np.float32), True) if d.opset < 13 else None, empty,
                d.ints(wanted)], **more)  # fmt: skip


def resize_old(d: Draft, op: str) -> None:
    x = small_image(d, ["float"], 2)
    scales = np.array([1, 1, d.one_of((0.5, 1, 2, 3, 1.5)), d.one_of((1, 2, 3, 0.5))], np.float32)
    if int(x.shape[2] * scales[2]) < 1 or int(x.shape[3] * scales[3]) < 1:
        raise Declined
    d.node(op, [x, d.given(scales, True)], **d.some(op, mode=("nearest", "linear")))


@recipe("Upsample")
def upsample(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    x = small_image(d, ["float"], 2)
    high, wide = (float(d.one_of((1, 2, 3, 1.5))) for _ in range(2))
    shape = (*x.shape[:2], int(x.shape[2] * high), int(x.shape[3] * wide))
    more = d.some(op, mode=("nearest", "bilinear" if d.opset < 7 else "linear"))
    if d.opset >= 9:
        scales = d.given(np.array([1, 1, high, wide], np.float32), True)
        d.node(op, [x, scales], types=[(x.dtype, shape)], **more)
    elif d.opset >= 7:
        d.node(op, [x], types=[(x.dtype, shape)], scales=[1.0, 1.0, high, wide], **more)
    else:
        d.node(op, [x], types=[(x.dtype, shape)], height_scale=high, width_scale=wide, **more)


@recipe("GridSample")
def grid_sample(d: Draft, op: str) -> None:
    spatial = d.one_of((2, 2, 3, 1)) if d.opset >= 20 else 2
    kinds = [t for t in allowed(op, d.opset) if not t.startswith("complex")]
    modes = {20: ("linear", "nearest", "cubic")}.get(min(d.opset, 20),
                                                    ("bilinear", "nearest", "bicubic"))  # fmt: skip
    more = d.some(op, mode=modes[:2] if spatial != 2 else modes, align_corners=(0, 1),
                  padding_mode=("zeros", "border", "reflection"))  # fmt: skip
    if more.get("mode", "linear") != "nearest":
        kinds = [k for k in kinds if k in FLOATS]
    x = small_image(d, kinds, spatial)
    out = tuple(d.extent(9) for _ in range(spatial))
    places = d.rng.uniform(-1.3, 1.3, (x.shape[0], *out, spatial))
    if d.chance(0.2):
        places = np.round(places)
    second = allowed(op, d.opset, 1)
    kind = x.dtype if x.dtype in second and x.dtype in FLOATS and d.chance(0.3) else "float"
    grid = d.given(places.astype(DTYPES[kind]), d.chance(0.5))
    if grid.name in d.inputs:
        d.controls[grid.name] = []
    d.node(op, [x, grid], types=[(x.dtype, (*x.shape[:2], *out))], **more)


@recipe("AffineGrid")
def affine_grid(d: Draft, op: str) -> None:
    spatial = d.one_of((2, 3))
    kind = d.dtype(allowed(op, d.opset))
    theta = d.pick([kind], 3, 3, empty=False, shape=lambda: (d.number(1, 3), spatial, spatial + 1),
                   where=lambda v: v.shape[1:] == (spatial, spatial + 1))  # fmt: skip
    n = theta.shape[0]
    # Of an extent of 1, ONNX Runtime makes nothing of it.
    size = [n, d.number(1, 3), *(d.number(2, 9) for _ in range(spatial))]
    d.node(op, [theta, d.ints(size)], types=[(theta.dtype, (n, *size[2:], spatial))],
           **d.some(op, align_corners=(0, 1)))  # fmt: skip


def regions(d: Draft, count: int, reach: float) -> np.ndarray:
    corners = d.rng.uniform(-1 if d.chance(0.3) else 0, reach, (count, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2] / 2
    return corners


@recipe("RoiAlign")
def roi_align(d: Draft, op: str) -> None:
    kinds = [t for t in allowed(op, d.opset) if t in ("float", "double", "float16")]
    x = small_image(d, kinds, 2)
    count = d.number(0 if d.chance(0.1) else 1, 5)
    corners = regions(d, count, float(max(x.shape[2:]))).astype(DTYPES[x.dtype])
    batch = d.rng.integers(0, x.shape[0], count).astype(np.int64)
    more = d.some(op, output_height=(1, 2, 3, 7), output_width=(1, 2, 3, 5),
                  sampling_ratio=(0, 1, 2, 3), spatial_scale=(0.5, 1.0, 0.25),
                  coordinate_transformation_mode=("half_pixel", "output_half_pixel"),
                  mode=("avg", "max"))  # fmt: skip
    shape = (count, x.shape[1], more.get("output_height", 1), more.get("output_width", 1))
    d.node(op, [x, d.given(corners, True), d.given(batch, True)], types=[(x.dtype, shape)], **more)


@recipe("MaxRoiPool")
def max_roi(d: Draft, op: str) -> None:
    kinds = [t for t in allowed(op, d.opset) if t != "bfloat16"]
    x = small_image(d, kinds, 2)
    count = d.number(1, 4)
    corners = d.rng.integers(0, max(min(x.shape[2:]), 2), (count, 4)).astype(np.float32)
    corners[:, 2:] += corners[:, :2]
    rois = np.concatenate([d.rng.integers(0, x.shape[0], (count, 1)), corners], 1)
    pooled = [d.number(1, 4), d.number(1, 4)]
    shape: Shape = (count, x.shape[1], *pooled)
    d.node(op, [x, d.given(rois.astype(DTYPES[x.dtype]), True)], types=[(x.dtype, shape)],
           pooled_shape=pooled, **d.some(op, spatial_scale=(1.0, 0.5)))  # fmt: skip


@recipe("com.microsoft:CropAndResize")
def crop_and_resize(d: Draft, op: str) -> None:
    x = small_image(d, ["float"], 2)
    count = d.number(1, 4)
    boxes = d.rng.uniform(0, 1, (count, 4)).astype(np.float32)
    batch = d.rng.integers(0, x.shape[0], count).astype(np.int32)
    size = [d.number(1, 5), d.number(1, 5)]
    more = {"mode": d.one_of(("bilinear", "nearest"))} if d.chance(0.6) else {}
    more |= {"extrapolation_value": d.one_of((0.0, 2.5))} if d.chance(0.5) else {}
    given = [x, *(d.given(a, True) for a in (boxes, batch, np.array(size, np.int32)))]
    d.node("CropAndResize", given, domain="com.microsoft",
           types=[(x.dtype, (count, x.shape[1], *size))], **more)  # fmt: skip

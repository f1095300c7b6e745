"""Cases of operators with windows and pictures: convolutions, pools, resizing and sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from cliff_cases import partly
from cliff_draw import F16, F32, F64, I8, I32, SMALL, U8, Array, Case, Draw, Type, family, ints


def window(d: Draw, rank: int, most: int = 7) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return extents, strides, dilations and (symmetric) padding of a window."""
    if d.chance() < 0.7:
        kernel = [d.choice([k for k in (1, 2, 3, 3, 3, 4, 5, 7, 9, 11) if k <= most])] * rank
    else:
        kernel = [d.between(1, most) for _ in range(rank)]
    stride = [d.choice((1, 1, 1, 2, 2, 3, 4))] * rank
    if d.chance() < 0.1:
        stride = [d.between(1, 4) for _ in range(rank)]
    dilation = [d.choice((1, 1, 1, 1, 2, 3))] * rank
    pad = [min(k * e // 2, k // 2 * e) if d.chance() < 0.6 else 0
           for k, e in zip(kernel, dilation, strict=True)]  # fmt: skip
    return kernel, stride, dilation, pad


def sides(d: Draw, count: float, rank: int, least: list[int]) -> list[int]:
    """Return the sides of pictures with about `count` elements, each as long as a window."""
    side = max(count, 1) ** (1 / rank)
    skew = d.random.uniform(0.7, 1.4) if rank > 1 else 1.0
    drawn = [d.near(side * skew), *(d.near(side / skew ** (1 / max(1, rank - 1)))
                                    for _ in range(rank - 1))]  # fmt: skip
    return [max(s, n + 1) for s, n in zip(drawn, least, strict=True)]


def rank_of(d: Draw) -> int:
    return d.random.choices((1, 2, 3), (20, 65, 15))[0]


def spans(kernel: list[int], dilation: list[int]) -> list[int]:
    return [(k - 1) * e + 1 for k, e in zip(kernel, dilation, strict=True)]


def channels(d: Draw, most: int) -> int:
    """Return a number of channels: few, odd or a multiple of 8."""
    if d.chance() < 0.2:
        return d.choice((1, 2, 3, 4))
    return min(most, d.near(d.log(3, most)))


@family(18, "Conv", "QLinearConv", "ConvInteger")
def convolution(d: Draw, op: str) -> Case:
    rank = rank_of(d)
    kernel, stride, dilation, pad = window(d, rank, 7 if rank < 3 else 5)
    fate, batch = d.chance(), d.choice((1, 1, 1, 2, 4))
    if fate < 0.25:
        groups = channels(d, 256)
        inputs, outputs = groups, groups * d.choice((1, 1, 1, 2))
    elif fate < 0.4:
        groups = d.choice((2, 3, 4, 8, 16))
        inputs, outputs = groups * channels(d, 32), groups * channels(d, 32)
    else:
        groups, inputs, outputs = 1, channels(d, 384), channels(d, 384)
    taps = int(np.prod(kernel)) * inputs // groups * outputs * batch
    places = min(d.work(21, 27) / taps * np.prod(stride), 4e6 / batch / max(inputs, outputs))
    shape = [batch, inputs, *sides(d, places, rank, spans(kernel, dilation))]
    weights = [outputs, inputs // groups, *kernel]
    attributes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation,
                  "pads": [*pad, *pad], "group": groups}  # fmt: skip
    if op != "Conv":
        return _quantized_convolution(d, op, shape, weights, attributes)
    dtype = d.random.choices((F32, F16, F64), (88, 8, 4))[0]
    operands = [d.array(shape, dtype), d.array(weights, dtype)]
    if d.chance() < 0.6:
        operands.append(d.array([outputs], dtype))

    def torched(t: Any, x: Any, w: Any, b: Any = None) -> Any:
        return getattr(t, f"conv{rank}d")(x, w, b, stride, pad, dilation, groups)

    constant = frozenset([1, 2] if len(operands) == 3 else [1])
    return Case(op, tuple(operands), attributes, constant, torch=torched)


def _quantized_convolution(
    d: Draw, op: str, shape: list[int], weights: list[int], attributes: dict[str, Any]
) -> Case:
    x, w = d.array(shape, U8, 256), d.array(weights, I8, SMALL)
    zeros = np.array(d.choice((0, 128)), U8), np.array(0, I8)
    if op == "ConvInteger":
        return Case(op, (x, w, zeros[0]), attributes, frozenset([1, 2]))
    scales = d.positive([weights[0]]) if d.chance() < 0.5 else np.array(0.02, F32)
    zero = np.zeros(scales.shape, I8)
    end = np.array(30 * float(np.prod(weights[1:])) ** 0.5, F32), np.array(120, U8)
    bias: tuple[Array, ...] = (d.array([weights[0]], I32),) if d.chance() < 0.5 else ()
    operands = (x, np.array(0.02, F32), zeros[0], w, scales, zero, *end, *bias)
    return Case(op, operands, attributes, frozenset(range(1, len(operands))), ties=True)


@family(6, "ConvTranspose")
def deconvolution(d: Draw, op: str) -> Case:
    rank = rank_of(d)
    kernel, stride, dilation, pad = window(d, rank, 5)
    groups = d.choice((1, 1, 1, 2, 4))
    inputs, outputs = groups * channels(d, 128 // groups), groups * channels(d, 128 // groups)
    if d.chance() < 0.15:
        groups = inputs = outputs = channels(d, 128)
    batch = d.choice((1, 1, 2))
    taps = int(np.prod(kernel)) * inputs * outputs // groups * batch
    places = min(d.work(20, 26) / taps, 2e6 / batch / inputs, 4e6 / outputs / np.prod(stride))
    shape = [batch, inputs, *sides(d, places, rank, spans(kernel, dilation))]
    operands = [d.array(shape), d.array([inputs, outputs // groups, *kernel])]
    if d.chance() < 0.6:
        operands.append(d.array([outputs]))
    more = [d.between(0, s - 1) if d.chance() < 0.3 else 0 for s in stride]
    attributes = {"kernel_shape": kernel, "strides": stride, "dilations": dilation,
                  "pads": [*pad, *pad], "group": groups, "output_padding": more}  # fmt: skip

    def torched(t: Any, x: Any, w: Any, b: Any = None) -> Any:
        call = getattr(t, f"conv_transpose{rank}d")
        return call(x, w, b, stride, pad, more, groups, dilation)

    return Case(
        op, tuple(operands), attributes, frozenset(range(1, len(operands))), torch=torched
    )


@family(12, "MaxPool", "AveragePool", "LpPool")
def pool(d: Draw, op: str) -> Case:
    rank = rank_of(d)
    kernel, stride, dilation, pad = window(d, rank, 11 if rank < 3 else 5)
    pad = [min(p, k // 2) for p, k in zip(pad, kernel, strict=True)]
    dtype: Type = d.choice((F32,) * 8 + ((F64, F16, I8, U8) if op == "MaxPool" else (F16, F32)))
    batch, depth = d.choice((1, 1, 2, 4)), channels(d, 384)
    count = d.count(14, 20) / batch / depth
    shape = [batch, depth, *sides(d, count, rank, spans(kernel, dilation))]
    attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": stride,
                                  "dilations": dilation, "pads": [*pad, *pad]}  # fmt: skip
    x, torched = d.array(shape, dtype), None
    if op == "MaxPool":
        torched = partly(f"max_pool{rank}d", kernel, stride, pad, dilation)
        if d.chance() < 0.15 and dtype == F32:
            return Case(op, (x,), attributes, results=2)
    if op == "AveragePool":
        include = d.between(0, 1)
        attributes["count_include_pad"] = include
        if set(dilation) == {1}:
            torched = partly(f"avg_pool{rank}d", kernel, stride, pad, False, bool(include))
    return Case(op, (x,), attributes, torch=torched)


@family(3, "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(d: Draw, op: str) -> Case:
    shape = d.shape((3, 4, 5))
    axes = tuple(range(2, len(shape)))
    torched = {"GlobalAveragePool": "mean", "GlobalMaxPool": "amax"}.get(op)
    return Case(
        op, (d.array(shape, d.choice((F32, F32, F32, F16))),),
        torch=(lambda t, x: getattr(t, torched)(x, axes, True)) if torched else None,
    )  # fmt: skip


@family(8, "Resize")
def resize(d: Draw, op: str) -> Case:
    rank = d.random.choices((1, 2, 3), (10, 75, 15))[0]
    mode = d.choice(("nearest", "linear", "linear") + (("cubic",) if rank == 2 else ()))
    depth, batch = channels(d, 128), d.choice((1, 1, 2))
    factor = [d.choice((2.0, 2.0, 4.0, 0.5, 1.5, 3.0, 1.7, 0.37))] * rank
    if d.chance() < 0.2:
        factor = [d.random.uniform(0.4, 3) for _ in range(rank)]
    count = d.count(13, 19) / depth / batch / max(1.0, float(np.prod(factor)))
    shape = [batch, depth, *sides(d, count, rank, [3] * rank)]
    if d.chance() < 0.15:
        shape, factor = [batch, *shape[2:], depth], [*factor, 1.0][: rank + 1]
        factors = [1.0, *factor]
    else:
        factors = [1.0, 1.0, *factor]
    coordinates = d.choice(("half_pixel", "half_pixel", "asymmetric", "align_corners",
                            "pytorch_half_pixel"))  # fmt: skip
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        attributes["nearest_mode"] = d.choice(("floor", "round_prefer_floor"))
    elif d.chance() < 0.15 and coordinates == "half_pixel":
        attributes["antialias"] = 1
    dtype: Type = d.choice((F32,) * 7 + ((U8, I8) if mode != "cubic" else (F32,)))
    x = d.array(shape, dtype)
    lengths = ints(*(max(1, int(n * f)) for n, f in zip(shape, factors, strict=True)))
    torched = None
    named = {"nearest": "nearest", "linear": ("linear", "bilinear", "trilinear")[rank - 1],
             "cubic": "bicubic"}[mode]  # fmt: skip
    same = coordinates in ("half_pixel", "align_corners") if mode != "nearest" else (
        coordinates == "asymmetric" and attributes["nearest_mode"] == "floor")  # fmt: skip
    if dtype == F32 and factors[1] == 1.0 and same and not attributes.get("antialias"):
        corners = None if mode == "nearest" else coordinates == "align_corners"
        torched = partly("interpolate", lengths[2:].tolist(), None, named, corners, given=1)
    operands = (x, None, None, lengths)
    return Case(op, operands, attributes, frozenset([3]), torch=torched, ties=dtype != F32)


@family(2, "GridSample")
def grid_sample(d: Draw, op: str) -> Case:
    depth, batch = channels(d, 64), d.choice((1, 2))
    height, width = sides(d, d.count(12, 18) / depth / batch, 2, [3, 3])
    out = sides(d, d.count(12, 18) / depth / batch, 2, [3, 3])
    mode, padding = d.choice(("linear", "nearest", "cubic")), d.choice(("zeros", "border"))
    grid = (d.numbers.random([batch, *out, 2], np.float32) * 2.2 - 1.1).astype(F32)
    corners = d.between(0, 1)
    named = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    torched = partly("grid_sample", named, padding, bool(corners), given=2)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": corners}
    return Case(op, (d.array([batch, depth, height, width]), grid), attributes, torch=torched)


@family(2, "RoiAlign", "MaxRoiPool")
def regions(d: Draw, op: str) -> Case:
    depth, count = channels(d, 128), d.log(4, 128)
    height, width = sides(d, d.count(13, 18) / depth, 2, [12, 12])
    out = d.choice((3, 5, 7, 14))
    corners = d.numbers.random((count, 2, 2), np.float32)
    corners.sort(1)
    boxes = (corners * [width - 1, height - 1]).reshape(count, 4).astype(F32)
    x = d.array([1, depth, height, width])
    if op == "MaxRoiPool":
        numbered = np.concatenate([np.zeros((count, 1), F32), np.round(boxes)], 1)
        return Case(op, (x, numbered), {"pooled_shape": [out, out]})
    attributes = {"output_height": out, "output_width": out, "sampling_ratio": d.between(0, 2),
                  "mode": d.choice(("avg", "avg", "max"))}  # fmt: skip
    return Case(op, (x, boxes, np.zeros(count, np.int64)), attributes, opset=22)


@family(4, "DepthToSpace", "SpaceToDepth")
def blocks(d: Draw, op: str) -> Case:
    block, depth = d.choice((2, 2, 3, 4)), channels(d, 32)
    height, width = sides(d, d.count(13, 19) / depth / block**2, 2, [2, 2])
    dtype = d.choice((F32, F32, F32, F16, U8))
    if op == "DepthToSpace":
        mode = d.choice(("DCR", "CRD"))
        torched = (lambda t, x: t.pixel_shuffle(x, block)) if mode == "CRD" else None
        x = d.array([1, depth * block**2, height, width], dtype)
        return Case(op, (x,), {"blocksize": block, "mode": mode}, torch=torched)
    x = d.array([1, depth, height * block, width * block], dtype)
    return Case(op, (x,), {"blocksize": block})


@family(2, "Col2Im", "MaxUnpool")
def scattered_windows(d: Draw, op: str) -> Case:
    depth, kernel = channels(d, 64), d.choice((2, 3))
    height, width = sides(d, d.count(13, 18) / depth, 2, [kernel + 1, kernel + 1])
    if op == "MaxUnpool":
        height, width = max(2, height // 2), max(2, width // 2)
        base = np.arange(height * width * depth).reshape(1, depth, height, width)
        rows, columns = base // width, base % width
        index = rows * 2 * 2 * width + columns * 2 + d.numbers.integers(0, 2, base.shape)
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2]}
        return Case(op, (d.array(base.shape), index.astype(np.int64)), attributes)
    places = (height - kernel + 1) * (width - kernel + 1)
    x = d.array([1, depth * kernel**2, places])
    fold = partly("fold", [height, width], kernel, given=1)
    operands = (x, ints(height, width), ints(kernel, kernel))
    return Case(op, operands, {}, frozenset([1, 2]), torch=fold)

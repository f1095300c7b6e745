"""Probes of operators on integers that stand for reals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from tests.frontends.tflite.litert.probe import Probe

from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.ir.types import DTYPES, Array

RANDOM = np.random.default_rng(7)

ZEROS = {"i8": (-128, 5, 127), "u8": (0, 131, 255), "i16": (0,)}


def drawn(dtype: str, *shape: int, low: int | None = None, high: int | None = None) -> Array:
    info = np.iinfo(DTYPES[dtype])
    low, high = info.min if low is None else low, info.max if high is None else high
    return RANDOM.integers(low, high, shape, endpoint=True).astype(DTYPES[dtype])


def scale(low: float = 0.004, high: float = 0.2) -> float:
    """Return a scale, as an f32 holds it."""
    return float(np.float32(np.exp(RANDOM.uniform(np.log(low), np.log(high)))))


def grid(dtype: str, low: float = 0.004, high: float = 0.2, zero: int | None = None) -> Grid:
    if dtype == "i16":
        low, high = low / 256, high / 256
    zero = int(RANDOM.choice(ZEROS[dtype])) if zero is None else zero
    return Grid((scale(low, high),), (zero,), 0)


def channels(count: int, axis: int) -> Grid:
    return Grid(tuple(scale(0.001, 0.02) for _ in range(count)), (0,) * count, axis)


def weights(dtype: str, axis: int, shape: tuple[int, ...], each: bool) -> tuple[Array, Grid]:
    """Return weights for x of a type: i8 beside i8 and i16, with a scale for each channel."""
    kind = "u8" if dtype == "u8" else "i8"
    if kind == "u8":
        return drawn(kind, *shape), grid("u8", 0.001, 0.02, zero=int(RANDOM.integers(100, 156)))
    g = channels(shape[axis], axis) if each else grid("i8", 0.001, 0.02, zero=0)
    return drawn(kind, *shape, low=-127), g


def bias(dtype: str, x: Grid, w: Grid, count: int) -> tuple[Array, Grid]:
    kind = "i64" if dtype == "i16" else "i32"
    scales = tuple(float(np.float32(x.scales[0]) * np.float32(s)) for s in w.scales)
    reach = 4000 if dtype != "i16" else 400000
    return (
        RANDOM.integers(-reach, reach, count).astype(DTYPES[kind]),
        Grid(scales, (0,) * len(scales), 0),
    )


def result(dtype: str, x: Grid, w: Grid, terms: int) -> Grid:
    """Return a grid for sums of so many products."""
    spread = 75.0 * (75 if dtype != "i16" else 75 * 256) * terms**0.5
    step = max(w.scales) * x.scales[0] * spread / (60 if dtype != "i16" else 15000)
    zero = int(RANDOM.choice(ZEROS[dtype][:2])) if dtype != "i16" else 0
    return Grid((float(np.float32(step * RANDOM.uniform(0.5, 1.5))),), (zero,), 0)


def convolutions() -> Iterator[Probe]:
    for dtype, k, stride, padding, each, activation in itertools.product(
        ("i8", "u8", "i16"), ((1, 1), (3, 3), (2, 3)), (1, 2), (0, 1), (False, True), (0, 1, 3)
    ):
        if (each and dtype == "u8") or (not each and dtype == "i16"):
            continue
        x = grid(dtype)
        options = {"padding": padding, "stride_h": stride, "stride_w": stride,
                   "dilation_h_factor": 1, "dilation_w_factor": 1,
                   "fused_activation_function": activation}  # fmt: skip
        w, wg = weights(dtype, 0, (5, *k, 3), each)
        b, bg = bias(dtype, x, wg, 5)
        y = result(dtype, x, wg, 3 * k[0] * k[1])
        yield Probe("CONV_2D", [drawn(dtype, 2, 9, 8, 3), w, b], options, (1, 2),
                    grids=[x, wg, bg, y])  # fmt: skip
        for more in (1, 2):
            w, wg = weights(dtype, 3, (1, *k, 4 * more), each)
            b, bg = bias(dtype, x, wg, 4 * more)
            y = result(dtype, x, wg, k[0] * k[1])
            yield Probe("DEPTHWISE_CONV_2D", [drawn(dtype, 1, 9, 8, 4), w, b],
                        {**options, "depth_multiplier": more}, (1, 2),
                        grids=[x, wg, bg, y])  # fmt: skip


def products() -> Iterator[Probe]:
    for dtype, each, activation, biased, keep in itertools.product(
        ("i8", "u8", "i16"), (False, True), (0, 1, 3), (False, True), (False, True)
    ):
        if each and dtype != "i8":
            continue
        # LiteRT's own kernel of i16 rounds neither as its reference nor as XNNPACK.
        only = "reference" if dtype == "i16" else ""
        for rows, depth, columns in ((4, 20, 7), (1, 33, 16), (3, 300, 5)):
            x = grid(dtype)
            w, wg = weights(dtype, 0, (columns, depth), each)
            b, bg = bias(dtype, x, wg, columns)
            y = result(dtype, x, wg, depth)
            operands = [drawn(dtype, 1, rows, depth), w, b if biased else None]
            # Without a bias LiteRT's kernel of i16 rounds as the processor does.
            only = "reference" if dtype == "i16" and not biased else ""
            yield Probe("FULLY_CONNECTED", operands,
                        {"fused_activation_function": activation, "keep_num_dims": keep}, (1, 2),
                        grids=[x, wg, bg, y], only=only)  # fmt: skip


def computed() -> Iterator[Probe]:
    """Products whose weights or bias are no constants, which LiteRT's own kernels take.

    Its depthwise convolution rounds the first channels of i8, a multiple of 8, otherwise.
    """
    for dtype, each, fixed, seed in itertools.product(
        ("i8", "u8"), (False, True), ((), (1,), (2,)), range(2)
    ):
        if each and dtype == "u8":
            continue
        x = grid(dtype)
        window = {"padding": seed, "stride_h": 1, "stride_w": 1}
        w, wg = weights(dtype, 0, (8, 16), each)
        b, bg = bias(dtype, x, wg, 8)
        grids = [x, wg, bg, result(dtype, x, wg, 16)]
        rows = drawn(dtype, 500, 16)
        yield Probe("FULLY_CONNECTED", [rows, w, b], {}, fixed, grids=grids)
        for said in (None, Grid(bg.scales, tuple(3 for _ in bg.scales), 0)):
            others = [x, wg, said, grids[3]]
            yield Probe("FULLY_CONNECTED", [rows, w, b], {}, (1, 2), grids=others)
        pixels = drawn(dtype, 1, 20, 25, 16)
        square = w.reshape(8, 1, 1, 16)
        yield Probe("CONV_2D", [pixels, square, b], window, fixed, grids=grids)
        w, wg = weights(dtype, 0, (8, 3, 2, 16), each)
        b, bg = bias(dtype, x, wg, 8)
        grids = [x, wg, bg, result(dtype, x, wg, 96)]
        yield Probe("CONV_2D", [pixels, w, b], window, fixed, grids=grids)
        w, wg = weights(dtype, 3, (1, 3, 2, 7), each)
        b, bg = bias(dtype, x, wg, 7)
        grids = [x, wg, bg, result(dtype, x, wg, 6)]
        options = {**window, "depth_multiplier": 1}
        operands = [drawn(dtype, 1, 20, 25, 7), w, b]
        yield Probe("DEPTHWISE_CONV_2D", operands, options, fixed, grids=grids)


def of_four_bits() -> Iterator[Probe]:
    """Weights of four bits, of which XNNPACK takes rows of an even length alone."""
    for each, depth, seed in itertools.product((False, True), (15, 16), range(3)):
        x = grid("i8")
        shapes = (8, depth), (8, 1, 1, depth), (8, 3, 2, depth), (1, 3, 2, 7)
        kinds = "FULLY_CONNECTED", "CONV_2D", "CONV_2D", "DEPTHWISE_CONV_2D"
        for kind, shape in zip(kinds, shapes, strict=True):
            axis = 3 if kind == "DEPTHWISE_CONV_2D" else 0
            count = shape[axis]
            w, wg = weights("i8", axis, shape, each)
            b, bg = bias("i8", x, wg, count)
            wide = result("i8", x, wg, w.size // count)
            grids = [x, wg, bg, Grid((wide.scales[0] / 16,), wide.zeros, 0)]
            rows = (500, depth) if len(shape) == 2 else (1, 20, 25, shape[3])
            options = {} if len(shape) == 2 else {"padding": seed % 2, "stride_h": 1, "stride_w": 1}
            options |= {"depth_multiplier": 1} if axis else {}
            operands = [drawn("i8", *rows), (w >> 4).astype(DTYPES["i4"]), b]
            yield Probe(kind, operands, options, (1, 2), grids=grids)


def between() -> Iterator[Probe]:
    reals = np.concatenate([
        RANDOM.uniform(-40, 40, 4000), np.arange(-200, 200) * 0.05, np.arange(-200, 200) * 0.125,
    ]).astype(np.float32)  # fmt: skip
    for dtype, _ in itertools.product(("i8", "u8", "i16"), range(4)):
        yield Probe("QUANTIZE", [reals], results=(dtype,), grids=[None, grid(dtype)])
        yield Probe("QUANTIZE", [reals], results=(dtype,),
                    grids=[None, Grid((0.25,), (ZEROS[dtype][0],), 0)])  # fmt: skip
        yield Probe("DEQUANTIZE", [every(dtype)], results=("f32",), grids=[grid(dtype), None])
    for a, b in itertools.product(("i8", "u8", "i16"), repeat=2):
        if {a, b} == {"i8", "u8"}:
            continue  # LiteRT's own kernel, which is neither its reference nor XNNPACK's
        for _ in range(4):
            yield Probe("QUANTIZE", [every(a)], results=(b,), grids=[grid(a), grid(b)])


def every(dtype: str) -> Array:
    """Return all integers of a type."""
    info = np.iinfo(DTYPES[dtype])
    return np.arange(info.min, info.max + 1).astype(DTYPES[dtype])


FAMILIES: tuple[Callable[[], Iterator[Probe]], ...] = (
    between,
    convolutions,
    products,
    computed,
    of_four_bits,
)

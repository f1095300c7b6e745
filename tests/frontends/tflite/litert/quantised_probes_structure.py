"""Probes of operators that move, choose, join and pool integers that stand for reals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from tests.frontends.tflite.litert import probes
from tests.frontends.tflite.litert.probe import Probe
from tests.frontends.tflite.litert.quantised_probes import (
    RANDOM,
    ZEROS,
    bias,
    channels,
    drawn,
    every,
    grid,
    result,
    scale,
    weights,
)

from alpenglow.frontends.tflite.converters import moves
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.ir.types import DTYPES, Array

FLOAT = np.dtype(np.float32)


def stood_for(probe: Probe, dtype: str, each: Grid) -> Probe:
    """Return a probe of floats with integers of a type in their place, all of one grid."""
    floats = [v is not None and v.dtype == FLOAT for v in probe.operands]
    operands = [drawn(dtype, *v.shape) if f and v is not None else v
                for v, f in zip(probe.operands, floats, strict=True)]  # fmt: skip
    made = [(r or "f32" if floats[0] else r) == "f32" for r in probe.results]
    results = [dtype if m else r for r, m in zip(probe.results, made, strict=True)]
    grids = [each if f else None for f in (*floats, *made)]
    return replace(probe, operands=operands, results=results, grids=grids)


def moved() -> Iterator[Probe]:
    families = (probes.movements, probes.slices, probes.gathers, probes.generators, probes.resizes,
                probes.counted)  # fmt: skip
    for family in families:
        for probe in family():
            if moves(probe.kind) and any(
                v is not None and v.dtype == FLOAT for v in probe.operands
            ):
                for dtype in ("i8", "u8", "i16"):
                    yield stood_for(probe, dtype, grid(dtype))


FILLED = ("PAD", "PADV2", "SPACE_TO_BATCH_ND", "CONCATENATION", "MAX_POOL_2D", "AVERAGE_POOL_2D")
"""What asks for one grid in operands and results, and is more than a movement."""


def filled() -> Iterator[Probe]:
    for family in (probes.slices, probes.movements, probes.pools):
        for probe in family():
            if probe.kind in FILLED and probe.operands[0].dtype == FLOAT:
                for dtype in ("i8", "u8", "i16"):
                    yield stood_for(probe, dtype, grid(dtype))


def pools() -> Iterator[Probe]:
    for kind, dtype, zero, activation, k in itertools.product(
        ("MAX_POOL_2D", "AVERAGE_POOL_2D"), ("i8", "u8", "i16"), (0, 1, 2), (0, 1, 2, 3),
        ((1, 1), (4, 3), (1, 3)),
    ):  # fmt: skip
        g = grid(dtype, zero=ZEROS[dtype][zero % len(ZEROS[dtype])])
        options = {"padding": 0, "stride_h": 2, "stride_w": 1, "filter_height": k[0],
                   "filter_width": k[1], "fused_activation_function": activation}  # fmt: skip
        yield Probe(kind, [drawn(dtype, 1, 9, 11, 17)], options, grids=[g, g])
        wide = Grid((6.0 / 25.5,), g.zeros, 0)  # halves where 6 is
        yield Probe(kind, [drawn(dtype, 1, 9, 11, 17)], options, grids=[wide, wide])


def joined() -> Iterator[Probe]:
    for dtype, count, axis in itertools.product(("i8", "u8", "i16"), (1, 2, 3, 5, 6), (0, 1, -1)):
        g = grid(dtype)
        shapes = [[2, 3, 7] for _ in range(count)]
        shapes[0][axis] = 4
        xs = [drawn(dtype, *s) for s in shapes]
        yield Probe("CONCATENATION", xs, {"axis": axis}, grids=[g] * (count + 1))
        if dtype != "u8":  # i8 LiteRT refuses, and i16 it joins as if grids were one
            continue
        yield Probe("CONCATENATION", xs, {"axis": axis}, grids=[grid(dtype) for _ in (*xs, g)])
        yield Probe("CONCATENATION", [drawn(dtype, 300), drawn(dtype, 300)], {"axis": 0},
                    grids=[grid(dtype, 0.01, 0.02, zero=g.zeros[0]) for _ in range(3)])  # fmt: skip


def resized() -> Iterator[Probe]:
    for dtype, (h, w), size, (aligned, centred) in itertools.product(
        ("i8", "u8", "i16"), ((3, 4), (7, 5), (1, 2), (16, 16)),
        ((6, 8), (2, 3), (1, 1), (3, 4), (10, 7), (13, 9), (32, 31)),
        ((False, False), (True, False), (False, True)),
    ):  # fmt: skip
        g = grid(dtype)
        options = {"align_corners": aligned, "half_pixel_centers": centred}
        operands = [drawn(dtype, 2, h, w, 3), np.array(size, np.int32)]
        yield Probe("RESIZE_BILINEAR", operands, options, (1,), grids=[g, None, g])


def transposed() -> Iterator[Probe]:
    """The last channels are so many that f32 holds no sums of them."""
    for dtype, k, stride, padding, each, biased, (activation, depth) in itertools.product(
        ("i8", "u8", "i16"), ((1, 1), (3, 2), (4, 4)), (1, 2, 3), (0, 1), (False, True),
        (False, True), ((0, 3), (3, 4), (1, 150)),
    ):  # fmt: skip
        if dtype == "u8" and (each or (padding == 0 and stride > min(k))):
            continue  # with gaps it is LiteRT's own kernel, neither its reference nor XNNPACK's
        h, w = 3, 4
        size = (h * stride, w * stride - (stride > 1)) if padding == 0 else (
            (h - 1) * stride + k[0], (w - 1) * stride + k[1])  # fmt: skip
        x = grid(dtype)
        v, vg = weights(dtype, 0, (5, *k, depth), each)
        b, bg = bias(dtype, x, vg, 5)
        y = result(dtype, x, vg, depth * max(1, k[0] * k[1] // stride**2))
        options = {"padding": padding, "stride_h": stride, "stride_w": stride,
                   "fused_activation_function": activation}  # fmt: skip
        operands = [np.array([2, *size, 5], np.int32), v, drawn(dtype, 2, h, w, depth)]
        fixed = (0, 1, 3) if biased else (0, 1)
        more = ([b], [bg]) if biased else ([], [])
        yield Probe("TRANSPOSE_CONV", [*operands, *more[0]], options, fixed, (dtype,),
                    grids=[None, vg, x, *more[1], y])  # fmt: skip


def multiplied() -> Iterator[Probe]:
    shapes = (((2, 3, 4), (2, 4, 5)), ((30, 40), (40, 50)), ((1, 3, 4), (2, 4, 5)),
              ((2, 1, 3, 40), (3, 40, 5)), ((2, 2, 3, 300), (1, 1, 300, 5)))  # fmt: skip
    for (left, right, to), (a, b), turn_x, turn_y, fixed in itertools.product(
        (("i8", "i8", "i8"), ("i16", "i16", "i16"), ("i16", "i8", "i16"), ("i8", "i8", "i32")),
        shapes, (False, True), (False, True), ((), (1,)),
    ):  # fmt: skip
        x = grid(left, zero=0 if to == "i32" else None)
        w = grid(right, zero=0)  # with others it is LiteRT's own kernel
        y = result(left, x, w, a[-1] if right == "i8" else a[-1] * 65536)
        operands = [drawn(left, *((*a[:-2], a[-1], a[-2]) if turn_x else a)),
                    drawn(right, *((*b[:-2], b[-1], b[-2]) if turn_y else b))]  # fmt: skip
        yield Probe("BATCH_MATMUL", operands, {"adj_x": turn_x, "adj_y": turn_y}, fixed, (to,),
                    grids=[x, w, y if to != "i32" else None])  # fmt: skip


def embedded() -> Iterator[Probe]:
    rows = RANDOM.integers(0, 5, 7).astype(np.int32)
    for dtype, shape in itertools.product(("i8", "u8", "i16"), ((5, 3), (5, 2, 3))):
        g = grid(dtype)
        table = drawn(dtype, *shape)
        yield Probe("EMBEDDING_LOOKUP", [rows, table], results=(dtype,), grids=[None, g, g])
        for each in (grid(dtype, zero=0), channels(5, 0)) if dtype == "i8" else ():
            yield Probe("EMBEDDING_LOOKUP", [rows, table], fixed=(1,), results=("f32",),
                        grids=[None, each, None])  # fmt: skip


def dynamic() -> Iterator[Probe]:
    """Floats beside weights that are integers: for a while they are integers, too."""
    for shape, each, asymmetric, activation, keep in itertools.product(
        ((5, 64), (2, 3, 33), (1, 700)), (False, True), (False, True), (0, 3), (False, True)
    ):
        w, g = weights("i8", 0, (17, shape[-1]), each)
        options = {"fused_activation_function": activation, "keep_num_dims": keep,
                   "asymmetric_quantize_inputs": asymmetric}  # fmt: skip
        x = probes.floats(*shape, low=-3) * RANDOM.uniform(0.1, 9)
        operands = [x.astype(np.float32), w, probes.floats(17) if keep else None]
        yield Probe("FULLY_CONNECTED", operands, options, (1, 2), grids=[None, g])
    for k, stride, padding, each, activation in itertools.product(
        ((1, 1), (3, 2)), (1, 2), (0, 1), (False, True), (0, 1, 3)
    ):
        options = {"padding": padding, "stride_h": stride, "stride_w": stride,
                   "fused_activation_function": activation}  # fmt: skip
        w, g = weights("i8", 0, (6, *k, 5), each)
        x = probes.floats(2, 7, 8, 5, low=-1)
        yield Probe("CONV_2D", [x, w, probes.floats(6)], options, (1, 2), grids=[None, g])
        w, g = weights("i8", 3, (1, *k, 10), True)  # LiteRT reads a scale for each channel
        yield Probe("DEPTHWISE_CONV_2D", [x, w, probes.floats(10)],
                    {**options, "depth_multiplier": 2}, (1, 2), grids=[None, g])  # fmt: skip
        w, g = weights("i8", 0, (10, *k, 1), each)
        yield Probe("CONV_2D", [x, w, probes.floats(10)], options, (1, 2), grids=[None, g])
        w, g = weights("i8", 0, (6, *k, 5), each)
        size = np.array([2, 7 * stride, 8 * stride, 6], np.int32)
        if k[0] >= stride and padding == 0:
            yield Probe("TRANSPOSE_CONV", [size, w, x], options, (0, 1), ("f32",),
                        grids=[None, g])  # fmt: skip
    for (a, b), turn_x, turn_y, asymmetric in itertools.product(
        (((2, 3, 4), (2, 4, 5)), ((30, 40), (40, 50)), ((2, 1, 3, 40), (3, 40, 5))),
        (False, True), (False, True), (False, True),
    ):  # fmt: skip
        left = (*a[:-2], a[-1], a[-2]) if turn_x else a
        w = drawn("i8", *((*b[:-2], b[-1], b[-2]) if turn_y else b))
        options = {"adj_x": turn_x, "adj_y": turn_y, "asymmetric_quantize_inputs": asymmetric}
        yield Probe("BATCH_MATMUL", [probes.floats(*left, low=-1), w], options, (1,),
                    grids=[None, grid("i8", zero=0)])  # fmt: skip


def ranges() -> Iterator[Probe]:
    """Rows of floats whose steps are near the middle between two integers."""
    for asymmetric, part, seed in itertools.product((False, True), (0, 1, 2), range(4)):
        x = RANDOM.normal(size=(400, 32)) * RANDOM.uniform(0.1, 30)
        x = np.round(2 * x) / 2 if part == 1 else np.abs(x) if part == 2 and seed % 2 else x
        options = {"asymmetric_quantize_inputs": asymmetric}
        operands = [x.astype(np.float32), np.eye(32, dtype=np.int8)]
        yield Probe("FULLY_CONNECTED", operands, options, (1,), ("f32",),
                    grids=[None, Grid((1.0,), (0,), 0)])  # fmt: skip


def filters() -> Iterator[Probe]:
    """Filters with a memory of i16, which some features do not fit."""
    batch, inputs, units, memory = 3, 12, 8, 6
    for rank, biased, zero in itertools.product((1, 2), (False, True), (-128, 3, -128, 3)):
        x, w = grid("i8"), grid("i8", 0.001, 0.02, zero=0)
        state, over_time = (Grid((float(np.float32(RANDOM.uniform(low, 5 * low))),), (0,), 0)
                            for low in (1e-4, 2e-5))  # fmt: skip
        of = Grid((state.scales[0] * over_time.scales[0],), (0,), 0)
        y = Grid((float(np.float32(RANDOM.uniform(0.005, 0.05))),), (zero,), 0)
        bias = RANDOM.integers(-400000, 400000, units).astype(np.int32) if biased else None
        operands = [drawn("i8", batch, inputs), drawn("i8", units * rank, inputs, low=-127),
                    drawn("i16", units * rank, memory, low=-9000, high=9000), bias,
                    np.zeros((batch, memory * units * rank), np.int16)]  # fmt: skip
        options = {"rank": rank, "fused_activation_function": 1}
        yield Probe("SVDF", operands, options, (1, 2, 3), kept=(4,),
                    grids=[x, w, over_time, of, state, y])  # fmt: skip


def dynamic_of_four_bits() -> Iterator[Probe]:
    """XNNPACK takes rows of an even length; LiteRT's own kernels take the rest."""
    for each, asymmetric, activation, depth in itertools.product(
        (False, True), (False, True), (0, 3), (31, 33, 64, 700)
    ):
        options = {"fused_activation_function": activation,
                   "asymmetric_quantize_inputs": asymmetric}  # fmt: skip
        x = probes.floats(5, depth, low=-3)
        w, g = weights("i8", 0, (17, depth), each)
        operands = [x, (w >> 4).astype(DTYPES["i4"]), probes.floats(17)]
        yield Probe("FULLY_CONNECTED", operands, options, (1, 2), grids=[None, g])
    for each, k, stride, padding in itertools.product(
        (False, True), ((1, 1), (3, 2)), (1, 2), (0, 1)
    ):
        options = {"padding": padding, "stride_h": stride, "stride_w": stride}
        w, g = weights("i8", 0, (6, *k, 5), each)
        operands = [probes.floats(2, 7, 8, 5, low=-1), (w >> 4).astype(DTYPES["i4"]),
                    probes.floats(6)]  # fmt: skip
        yield Probe("CONV_2D", operands, options, (1, 2), grids=[None, g])


def halves() -> Iterator[Probe]:
    """Sums that become halves, or next to it: what scales are multiplied in tells."""
    for dtype, (a, b) in itertools.product(
        ("i8", "u8"), ((0.1, 0.02), (0.1, 0.06), (0.3, 0.02), (0.7, 0.02))
    ):
        x, w = (Grid((float(np.float32(v)),), (0,), 0) for v in (a, b))
        one, column = drawn(dtype, 1, 1, low=1, high=1), every(dtype).reshape(-1, 1)
        column = column if dtype == "u8" else column[1:]
        yield Probe("FULLY_CONNECTED", [one, column, None], {}, (1,), grids=[x, w, None, x])


FAMILIES: tuple[Callable[[], Iterator[Probe]], ...] = (
    moved, filled, pools, joined, resized, transposed, multiplied, embedded, dynamic,
    dynamic_of_four_bits, halves, ranges,
)  # fmt: skip


def integer_lstms() -> Iterator[Probe]:
    """LSTM of i8, but for what is both projected and peeped at, where LiteRT's kernel errs."""
    batch, steps, inputs, units = 2, 2, 6, 5
    for coupled, (peeping, projected), clip, major in itertools.product(
        (False, True), ((False, False), (True, False), (False, True)), (0.0, 0.4), (False, True)
    ):
        outputs = 3 if projected else units
        gates = (not coupled, True, True, True)
        layer: list[tuple[Array | None, Grid | None]] = []
        for there, shape in [*((g, (units, inputs)) for g in gates),
                             *((g, (units, outputs)) for g in gates)]:  # fmt: skip
            layer.append(some("i8", there, 127, *shape))
        for there in (peeping and not coupled, peeping, peeping):
            layer.append(some("i16", there, 20000, units))
        layer += [some("i32", there, 3000, units) for there in gates]
        layer += [some("i8", projected, 127, outputs, units), some("i32", projected, 3000, outputs)]
        h = Grid((scale(0.004, 0.01),), (int(RANDOM.integers(-20, 20)),), 0)
        c = Grid((2.0 ** -int(RANDOM.choice([11, 12, 13])),), (0,), 0)
        layer += [(np.zeros((batch, outputs), np.int8), h), (np.zeros((batch, units), np.int16), c)]
        layer += [(None, None)] * 4
        before = Grid((scale(0.003, 0.01),), (int(RANDOM.integers(-20, 20)),), 0)
        between = [("i16", Grid((2.0**-12,), (0,), 0))] * 4
        between.append(("i8", before if projected else h))
        shape = (steps, batch, inputs) if major else (batch, steps, inputs)
        options = {"fused_activation_function": 4, "cell_clip": clip, "proj_clip": clip,
                   "time_major": major}  # fmt: skip
        fixed = [i for i in range(1, 24) if i not in (18, 19)]
        yield Probe("UNIDIRECTIONAL_SEQUENCE_LSTM",
                    [drawn("i8", *shape), *(v for v, _ in layer)], options, fixed, kept=(18, 19),
                    grids=[grid("i8"), *(g for _, g in layer), h], between=between)  # fmt: skip


def some(dtype: str, there: bool, most: int, *shape: int) -> tuple[Array | None, Grid | None]:
    """Return an operand that may be absent, and what it stands for."""
    if not there:
        return None, None
    return drawn(dtype, *shape, low=-most, high=most), Grid((scale(0.002, 0.02),), (0,), 0)


INTEGERS = {"RNN": (1, 2), "UNIDIRECTIONAL_SEQUENCE_RNN": (1, 2), "SVDF": (1, 2),
            "LSTM": (*range(1, 12), 16), "UNIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 12), 16),
            "BIDIRECTIONAL_SEQUENCE_LSTM": (*range(1, 12), 16, *range(18, 29), 33)}  # fmt: skip
"""The weights of layers of floats that may be integers.

Two RNNs side by side may not: there LiteRT reads memory that it did not write.
"""


def dynamic_layers() -> Iterator[Probe]:
    """Layers of floats whose weights are integers."""
    for probe in (p for family in probes.STATEFUL for p in family()):
        if probe.kind not in INTEGERS or probe.options.get("kernel_type") == 1:
            continue
        operands = list(probe.operands)
        grids: list[Grid | None] = [None] * len(operands)
        for i in INTEGERS[probe.kind]:
            v = operands[i] if i < len(operands) else None
            if v is not None:
                step = float(np.float32(np.abs(v).max() / 127))
                operands[i] = np.clip(np.round(v / step), -127, 127).astype(np.int8)
                grids[i] = Grid((step,), (0,), 0)
        options = {**probe.options, "asymmetric_quantize_inputs": bool(RANDOM.integers(2))}
        yield replace(probe, operands=operands, grids=grids, options=options)


STATEFUL: tuple[Callable[[], Iterator[Probe]], ...] = (filters, integer_lstms, dynamic_layers)
"""Layers that remember something from call to call."""

"""Probes of arithmetic, tables and reductions on integers that stand for reals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from tests.frontends.tflite.litert.probe import Probe
from tests.frontends.tflite.litert.quantised_probes import (
    RANDOM,
    ZEROS,
    drawn,
    every,
    grid,
    scale,
)

from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.ir.types import DTYPES, Array

SHAPES = (
    ((2, 5, 7, 9), (2, 5, 7, 9)), ((3, 4, 5), (5,)), ((2, 3, 4, 8), (1, 1, 1, 8)),
    ((40, 30), (1,)), ((1, 6), (4, 1)), ((), (3, 7)), ((2, 1, 3, 1), (4, 1, 5)),
)  # fmt: skip
"""Pairs of shapes, most of which are stretched."""


def pairs(dtype: str, a: tuple[int, ...], b: tuple[int, ...], small: bool) -> list[Array]:
    if a == b and dtype != "i16":
        both = np.meshgrid(every(dtype), every(dtype))
        return [v.reshape(2, 4, 128, 64) for v in both]
    x, y = drawn(dtype, *a), drawn(dtype, *b)
    if small:
        x, y = x // 16, y // 16
    return [x, y]


def terms() -> Iterator[Probe]:
    for kind, dtype, activation, (a, b) in itertools.product(
        ("ADD", "SUB"), ("i8", "u8", "i16"), (0, 1, 2, 3), SHAPES
    ):
        grids = [grid(dtype) for _ in range(3)]
        options = {"fused_activation_function": activation}
        layout = f"{kind.capitalize()}Options"
        yield Probe(kind, pairs(dtype, a, b, False), options, layout=layout, grids=grids)
    for kind, dtype, (a, b, c), activation in itertools.product(
        ("ADD", "SUB"), ("i8", "u8"),
        ((1e-4, 1, 1e-2), (1e-3, 1e-3, 1), (1, 1, 5e-3), (3, 0.003, 5), (0.7, 700, 1e3),
         (1, 1, 1e-3), (4e-5, 0.05, 6 / 100.5)), (0, 3),
    ):  # fmt: skip
        grids = [Grid((float(np.float32(v)),), (int(RANDOM.choice(ZEROS[dtype])),), 0)
                 for v in (a, b, c)]  # fmt: skip
        # What is more than i16 holds, LiteRT's other kernels wrap, some of them.
        yield Probe(kind, pairs(dtype, SHAPES[0][0], SHAPES[0][1], False),
                    {"fused_activation_function": activation}, grids=grids,
                    only="reference" if a / c > 256 else "")  # fmt: skip
    for kind, powers, flag in itertools.product(
        ("ADD", "SUB"), ((-15, -15, -15), (-15, -12, -12), (-12, -14, -12), (-11, -12, -10)),
        (False, True),
    ):  # fmt: skip
        grids = [Grid((2.0**p,), (0,), 0) for p in powers]
        yield Probe(kind, [drawn("i16", 3, 1000), drawn("i16", 3, 1000)],
                    {"pot_scale_int16": flag}, grids=grids)  # fmt: skip


def factors() -> Iterator[Probe]:
    for dtype, activation, (a, b) in itertools.product(
        ("i8", "u8", "i16"), (0, 1, 2, 3), SHAPES
    ):  # fmt: skip
        grids = [grid(dtype), grid(dtype), grid(dtype, 0.02, 0.3)]
        yield Probe("MUL", pairs(dtype, a, b, False), {"fused_activation_function": activation},
                    grids=grids)  # fmt: skip
    for dtype, (a, b, c) in itertools.product(
        ("i8", "u8"), ((1e-4, 1e-3, 0.5), (1, 1, 5e-3), (1, 200, 1), (0.5, 1, 2.0**-7), (1, 300, 1))
    ):
        grids = [Grid((float(np.float32(v)),), (int(RANDOM.choice(ZEROS[dtype])),), 0)
                 for v in (a, b, c)]  # fmt: skip
        yield Probe("MUL", pairs(dtype, SHAPES[0][0], SHAPES[0][1], False), grids=grids,
                    only="reference" if a * b / c > 256 else "")  # fmt: skip


BOUNDED = {"LOGISTIC": ((2.0**-8, "i8", -128), (2.0**-8, "u8", 0)),
           "TANH": ((2.0**-7, "i8", 0), (2.0**-7, "u8", 128))}  # fmt: skip
"""Grids of results of functions that are bounded."""


def grids_for(dtype: str, low: float, high: float) -> Iterator[Grid]:
    """Yield grids with zero points at each end and within."""
    for zero in ZEROS[dtype]:
        for _ in range(9 if dtype == "i16" else 3):
            yield grid(dtype, low, high, zero)


def bounded() -> Iterator[Probe]:
    for kind, results in BOUNDED.items():
        for step, dtype, zero in results:
            for x in grids_for(dtype, 0.003, 0.3):
                yield Probe(kind, [every(dtype)], grids=[x, Grid((step,), (zero,), 0)])
        for power in range(-16, -8):
            for factor in (1.0, 1.0004, 1.3, 1.9):
                x = Grid((float(np.float32(factor * 2.0**power)),), (0,), 0)
                y = Grid((2.0**-15,), (0,), 0)
                yield Probe(kind, [every("i16")], grids=[x, y])
    for dtype, zero in itertools.product(("i8", "u8"), (-128, 0, 40)):
        x = grid(dtype)
        y = Grid((scale(0.005, 0.05),), (zero + 128 * (dtype == "u8"),), 0)
        yield Probe("TANH", [every(dtype)], grids=[x, y])


def unbounded() -> Iterator[Probe]:
    for kind, dtypes, options in (
        ("ELU", ("i8",), {}), ("GELU", ("i8", "u8", "i16"), {}),
        ("GELU", ("i8", "u8", "i16"), {"approximate": True}),
        ("HARD_SWISH", ("i8", "u8"), {}), ("LEAKY_RELU", ("i8", "u8", "i16"), {"alpha": 0.1}),
        ("LEAKY_RELU", ("i8", "u8", "i16"), {"alpha": 1.7}),
        ("LEAKY_RELU", ("i8", "u8", "i16"), {"alpha": 0.0}),
        ("LEAKY_RELU", ("i8", "u8", "i16"), {"alpha": 0.001}),
        ("LEAKY_RELU", ("i8", "u8"), {"alpha": -0.4}),
        ("RELU", ("i8", "u8", "i16"), {}), ("RELU6", ("i8", "u8", "i16"), {}),
        ("RELU_N1_TO_1", ("i8", "u8"), {}), ("RELU_0_TO_1", ("i8", "u8"), {}),
        ("ABS", ("i8", "i16"), {}), ("NEG", ("i8", "i16"), {}),
    ):  # fmt: skip
        for dtype in dtypes:
            off = 1 if (kind, dtype) == ("GELU", "i16") else 0  # of tanhf and erfcf
            for x in grids_for(dtype, 0.004, 0.2):
                y = grid(dtype, 0.004, 0.2)
                if kind == "HARD_SWISH" and x.scales[0] / 128 > y.scales[0]:
                    continue
                yield Probe(kind, [every(dtype)], options, grids=[x, y], off=off)
            yield Probe(kind, [every(dtype)], options, grids=[x, x], off=off)
            for wide, narrow in ((300, 1.0), (1.0, 300)):
                if kind in ("RELU", "LEAKY_RELU", "ABS"):
                    y = Grid((x.scales[0] * wide / narrow,), x.zeros, 0)
                    yield Probe(kind, [every(dtype)], options, grids=[x, y])


def rectified() -> Iterator[Probe]:
    for kind, dtype, a, b in itertools.product(
        ("HARD_SWISH", "RELU6", "ELU", "GELU"), ("i8", "u8"),
        (1e-8, 0.0007, 0.02, 0.4, 9.0), (0.06, 0.9, 5.0),
    ):  # fmt: skip
        if kind == "ELU" and dtype == "u8":
            continue
        x, y = grid(dtype, a, a * 1.5), grid(dtype, b, b * 1.5)
        yield Probe(kind, [every(dtype)], grids=[x, y])


def exponentials() -> Iterator[Probe]:
    for dtype in ("i8", "i16"):
        for x in grids_for(dtype, 0.003, 0.06):
            low, high = (int(v) - x.zeros[0] for v in (np.iinfo(DTYPES[dtype]).min,
                                                       np.iinfo(DTYPES[dtype]).max))  # fmt: skip
            y = Grid((float(np.float32(np.exp(high * x.scales[0]) / 2 ** (len(dtype) * 8 - 8))),),
                     (int(RANDOM.choice(ZEROS[dtype])),), 0)  # fmt: skip
            yield Probe("EXP", [every(dtype)], grids=[x, y])
            yield Probe("LOG", [every(dtype)], grids=[x, grid(dtype, 0.01, 0.1)])
            if low < 0:
                x = Grid(x.scales, (-128 if dtype == "i8" else 0,), 0)
            values = every(dtype)
            values = values[values >= x.zeros[0]]
            for kind in ("SQRT", "RSQRT"):
                yield Probe(kind, [values], grids=[x, grid(dtype, 0.01, 0.1)])


COMPARISONS = ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")


def pairwise() -> Iterator[Probe]:
    for dtype, (a, b) in itertools.product(("i8", "u8", "i16"), SHAPES):
        x, y = pairs(dtype, a, b, False)
        for kind in COMPARISONS:
            for same in (False, True):
                first = grid(dtype)
                # Some kernels do not know of scales of i16.
                alike = same or (dtype == "i16" and "EQUAL" not in (kind, kind[4:]))
                grids = [first, first if alike else grid(dtype), None]
                yield Probe(kind, [x, y], results=("bool",), grids=grids)
        g = grid(dtype)
        for kind in ("MAXIMUM", "MINIMUM"):
            yield Probe(kind, [x, y], grids=[g, g, g])
        if dtype == "i8":
            first, second = grid(dtype), grid(dtype)
            step = max(first.scales + second.scales) ** 2 * 300 * RANDOM.uniform(0.2, 1)
            third = Grid((float(np.float32(step)),), (int(RANDOM.choice(ZEROS["i8"])),), 0)
            yield Probe("SQUARED_DIFFERENCE", [x, y], grids=[first, second, third])
        if np.broadcast_shapes(a, b) == a:
            slope = "u8" if dtype == "u8" else "i8"
            grids = [grid(dtype), grid(slope, 0.002, 0.02), grid(dtype)]
            slopes = drawn(slope, *(x.shape if a == b else b))
            yield Probe("PRELU", [x, slopes], fixed=(1,), grids=grids)


def choices() -> Iterator[Probe]:
    for dtype in ("i8", "u8", "i16"):
        g = grid(dtype)
        x, y = drawn(dtype, 3, 4, 5), drawn(dtype, 3, 4, 5)
        condition = RANDOM.integers(0, 2, (3, 4, 5)).astype(bool)
        for kind in ("SELECT", "SELECT_V2"):
            yield Probe(kind, [condition, x, y], results=(dtype,), grids=[None, g, g, g])
        yield Probe("SELECT_V2", [condition[:, :1], x, y[..., :1]], results=(dtype,),
                    grids=[None, g, g, g])  # fmt: skip
        for to in ("f32", "i32"):
            yield Probe("CAST", [x], results=(to,), grids=[g, None])


AXES = (((2, 5, 7, 9), (1, 2)), ((2, 5, 7, 9), (2, 1)), ((3, 300), (1,)), ((4, 6, 5), (0, 2)),
        ((7, 11), (0, 1)), ((2, 3, 4), (-1,)), ((2, 9, 1, 4), (2,)), ((64, 33), (0,)),
        ((150, 90, 3), (2,)))  # fmt: skip


def reductions() -> Iterator[Probe]:
    for dtype, (shape, axes), keep in itertools.product(("i8", "u8", "i16"), AXES, (False, True)):
        x, axis = drawn(dtype, *shape), np.array(axes, np.int32)
        options = {"keep_dims": keep}
        count = int(np.prod([shape[a] for a in axes]))
        a, g = grid(dtype), grid(dtype)
        near = Grid((float(np.float32(a.scales[0] / count**0.5)),),
                    (int(RANDOM.choice(ZEROS[dtype])),), 0)  # fmt: skip
        for result in (g, near):
            yield Probe("MEAN", [x, axis], options, (1,), grids=[a, None, result])
        wide = Grid((float(np.float32(a.scales[0] * count**0.5)),), near.zeros, 0)
        only = "" if dtype == "u8" else "xnnpack"  # LiteRT's reference reads all as u8
        yield Probe("SUM", [x, axis], options, (1,), grids=[a, None, wide], only=only)
        for kind in ("REDUCE_MAX", "REDUCE_MIN"):
            yield Probe(kind, [x, axis], options, (1,), grids=[a, None, a])
        if dtype != "u8" and count <= 36:
            reach = 40 if dtype == "i8" else 10000
            steps = drawn(dtype, *shape, low=-reach, high=reach).astype(np.int64) + a.zeros[0]
            info = np.iinfo(DTYPES[dtype])
            step = (a.scales[0] * reach * 0.6) ** count / (info.max / 3)
            y = Grid((float(np.float32(step)),), near.zeros, 0)
            x = np.clip(steps, info.min, info.max).astype(DTYPES[dtype])
            if 1e-30 < step < 1e30:
                only = "" if count > 1 else "reference"  # the other kernel copies, unscaled
                yield Probe("REDUCE_PROD", [x, axis], options, (1,), grids=[a, None, y], only=only)
    for dtype, to in itertools.product(("i8", "u8"), ("i32", "i64")):
        for axis in (0, 1, -1):
            for kind in ("ARG_MAX", "ARG_MIN"):
                x = drawn(dtype, 5, 7, 300)
                options = {"output_type": 2 if to == "i32" else 4}
                yield Probe(kind, [x, np.array(axis, np.int32)], options, (1,), (to,),
                            kind.title().replace("_", "") + "Options",
                            grids=[grid(dtype), None, None])  # fmt: skip


def rows() -> Iterator[Probe]:
    for (dtype, to), shape, beta in itertools.product(
        ((("i8", "i8"), ("u8", "u8"), ("i8", "i16"), ("u8", "i16"), ("i16", "i16"))),
        ((50, 10), (6, 1000), (2, 3, 4, 5), (300, 2), (7,)), (1.0, 0.5, 3.0),
    ):  # fmt: skip
        zero = {"i8": -128, "u8": 0, "i16": -32768}[to] * (dtype != "i16")
        step = 2.0**-15 if dtype == "i16" else 2.0 ** (-8 if to != "i16" else -16)
        x = drawn(dtype, *shape)
        # Where all of many are alike, the reference kernel ends the process.
        least = 0.002 if shape[-1] < 500 else 0.05
        yield Probe("SOFTMAX", [x], {"beta": beta}, results=(to,),
                    grids=[grid(dtype, least, 0.5), Grid((step,), (zero,), 0)])  # fmt: skip
    for dtype, shape in itertools.product(
        ("i8", "u8"), ((50, 10), (6, 1000), (2, 3, 4, 5), (300, 2), (7,), (3, 40000))
    ):
        for near in (False, True):
            x = drawn(dtype, *shape)
            x = x // 8 if near else x
            result = Grid((2.0**-4,), (int(np.iinfo(DTYPES[dtype]).max),), 0)
            if shape[-1] < 4096:
                yield Probe("LOG_SOFTMAX", [x], grids=[grid(dtype, 0.005, 0.5), result])
        for few in (False, True):
            x = drawn(dtype, *shape)
            x = np.where(RANDOM.integers(0, 20, shape) > 0, x.reshape(-1)[0], x) if few else x
            zero = int(x.reshape(-1)[0]) if few else int(RANDOM.choice(ZEROS[dtype]))
            result = Grid((2.0**-7,), (0 if dtype == "i8" else 128,), 0)
            yield Probe("L2_NORMALIZATION", [x], grids=[grid(dtype, zero=zero), result])


def quotients() -> Iterator[Probe]:
    for dtype, activation, (a, b) in itertools.product(("i8", "u8", "i16"), (0, 3), SHAPES):
        g, h = grid(dtype), grid(dtype)
        x, y = pairs(dtype, a, b, False)
        zero = h.zeros[0]
        y = np.where(y == zero, zero + (1 if zero < 127 else -1), y).astype(y.dtype)
        # Quotients are scaled by as many bits as a divisor has, or kernels shift by 32 and more.
        for ratio in (111, 158, 630) if dtype != "i16" else (20000,):
            step = g.scales[0] / h.scales[0] / ratio
            result = Grid((float(np.float32(step)),), (int(RANDOM.choice(ZEROS[dtype])),), 0)
            yield Probe("DIV", [x, y], {"fused_activation_function": activation},
                        grids=[g, h, result])  # fmt: skip


FAMILIES: tuple[Callable[[], Iterator[Probe]], ...] = (
    terms, factors, quotients, bounded, unbounded, rectified, exponentials, pairwise, choices,
    reductions, rows,
)  # fmt: skip
"""Operators on integers that stand for reals, beside LiteRT's reference kernels and XNNPACK."""

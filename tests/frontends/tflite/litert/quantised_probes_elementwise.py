"""Probes of arithmetic, tables and reductions on integers that stand for reals."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from tests.frontends.tflite.litert.quantised_probes import (
    RANDOM,
    ZEROS,
    drawn,
    every,
    grid,
    scale,
)
from tests.frontends.tflite.litert.written import Probe

from alpenglow.frontends.tflite.model import Grid
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
    for kind, dtype, (a, b, c) in itertools.product(
        ("ADD", "SUB"), ("i8", "u8"),
        # From ratios of 256 on LiteRT's kernels for vectors wrap results, those for rests do not.
        ((1e-4, 1, 1e-2), (1e-3, 1e-3, 1), (1, 1, 5e-3), (3, 0.003, 5), (0.7, 700, 1e3)),
    ):  # fmt: skip
        grids = [Grid((float(np.float32(v)),), (int(RANDOM.choice(ZEROS[dtype])),), 0)
                 for v in (a, b, c)]  # fmt: skip
        yield Probe(kind, pairs(dtype, SHAPES[0][0], SHAPES[0][1], False), grids=grids)
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
        ("i8", "u8"), ((1e-4, 1e-3, 0.5), (1, 1, 5e-3), (1, 200, 1), (0.5, 1, 2.0**-7))
    ):
        grids = [Grid((float(np.float32(v)),), (int(RANDOM.choice(ZEROS[dtype])),), 0)
                 for v in (a, b, c)]  # fmt: skip
        yield Probe("MUL", pairs(dtype, SHAPES[0][0], SHAPES[0][1], False), grids=grids)


BOUNDED = {"LOGISTIC": ((2.0**-8, "i8", -128), (2.0**-8, "u8", 0)),
           "TANH": ((2.0**-7, "i8", 0), (2.0**-7, "u8", 128))}  # fmt: skip
"""Grids of results of functions that are bounded."""


def grids_for(dtype: str, low: float, high: float) -> Iterator[Grid]:
    """Yield grids with zero points at each end and within."""
    for zero in ZEROS[dtype]:
        for _ in range(3):
            yield grid(dtype, low, high, zero)


def bounded() -> Iterator[Probe]:
    for kind, results in BOUNDED.items():
        for step, dtype, zero in results:
            for x in grids_for(dtype, 0.003, 0.3):
                yield Probe(kind, [every(dtype)], grids=[x, Grid((step,), (zero,), 0)])
        for power in range(-16, -8):
            for factor in (1.0, 1.0004, 1.3, 1.9):
                x = Grid((float(np.float32(factor * 2.0**power)),), (0,), 0)
                if factor < 1.001 and power in (-12, -11):
                    continue  # LiteRT's other kernel is gemmlowp's, of 16 bits
                yield Probe(kind, [every("i16")], grids=[x, Grid((2.0**-15,), (0,), 0)])
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
        ("RELU", ("i8", "u8", "i16"), {}), ("RELU6", ("i8", "u8", "i16"), {}),
        ("RELU_N1_TO_1", ("i8", "u8"), {}), ("RELU_0_TO_1", ("i8", "u8"), {}),
        ("ABS", ("i8", "i16"), {}), ("NEG", ("i8", "i16"), {}),
    ):  # fmt: skip
        for dtype in dtypes:
            for x in grids_for(dtype, 0.004, 0.2):
                y = grid(dtype, 0.004, 0.2)
                if kind == "HARD_SWISH" and x.scales[0] / 128 > y.scales[0]:
                    continue
                yield Probe(kind, [every(dtype)], options, grids=[x, y])
            yield Probe(kind, [every(dtype)], options, grids=[x, x])
            for wide, narrow in ((300, 1.0), (1.0, 300)):
                if kind in ("RELU", "LEAKY_RELU", "ABS"):
                    y = Grid((x.scales[0] * wide / narrow,), x.zeros, 0)
                    yield Probe(kind, [every(dtype)], options, grids=[x, y])


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


FAMILIES: tuple[Callable[[], Iterator[Probe]], ...] = (
    terms, factors, bounded, unbounded, exponentials,
)  # fmt: skip
"""Operators on integers that stand for reals, beside LiteRT's reference kernels and XNNPACK."""

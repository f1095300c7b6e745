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
)
from tests.frontends.tflite.litert.written import Probe

from alpenglow.frontends.tflite.model import Grid
from alpenglow.ir.types import Array

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


FAMILIES: tuple[Callable[[], Iterator[Probe]], ...] = (terms, factors)
"""Operators on integers that stand for reals, beside LiteRT's reference kernels and XNNPACK."""

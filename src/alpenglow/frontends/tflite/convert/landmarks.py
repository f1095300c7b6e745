"""Converters for MediaPipe's operators between landmarks and the regions of an image around them.

A region is a rectangle that is turned as the landmarks are.  A matrix [1, 4, 4] takes points of
what is cut out, x to the right and y down, to points of the whole: its first two rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.file.flexbuffer import values
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Floor, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.elementwise.transcendental import Atan2, Cos, Sin
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceMin
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, Slice, stretch

OF_REGION = ("left_rotation_idx", "right_rotation_idx", "target_rotation_radians",
             "output_height", "output_width", "scale_x", "scale_y")  # fmt: skip


def options_of(s: Site, *names: str) -> dict[str, Any]:
    """Return the options of version 2; raise ModelError if one is missing."""
    if s.step.payload.operator.version != 2:
        raise s.unsupported(f"version {s.step.payload.operator.version}", "version 2")
    options = values(s.step.payload.operator.custom_options()) if names else {}
    s.check_options(options, names)
    return options


@on("Landmarks2TransformMatrix", custom=True)
def landmarks_to_matrix(s: Site) -> Made:
    """The matrix of the region that holds chosen landmarks of x[1, N, 3], turned level."""
    options = options_of(s, *OF_REGION, "subset_idxs")
    points = s.rank(0, 3)
    count = fixed(points.type.shape[1])
    chosen, ends = options["subset_idxs"], [options[n] for n in OF_REGION[:2]]
    whole = isinstance(chosen, tuple) and all(isinstance(i, int) for i in (*chosen, *ends))
    if not whole or not chosen or not all(0 <= i < count for i in (*chosen, *ends)):
        raise s.wrong(f"subset_idxs is {chosen} and the rotation_idx options are {ends}, "
                      f"expected at least 1 index each, from 0 to {count - 1}")  # fmt: skip
    g, size = s.g, [options["output_width"], options["output_height"]]
    least = min(OF_REGION[3:], key=lambda name: options[name])
    if options[least] <= 0:
        raise s.wrong(f"{least} is {options[least]}, expected more than 0")

    def column(axis: int, rows: list[int]) -> Value:
        line = g(Slice((0, 0, axis), (1, count, 1), (1, 1, 1)), points)
        return g(Gather(0), s.reshaped(line, (count,)), g.constant(np.array(rows, np.int32)))

    def number(x: float) -> Value:
        return g.constant(np.array([x], np.float32))

    (x0, y0), (x1, y1) = [[column(a, [end]) for a in (0, 1)] for end in ends]
    angle = g(Sub(), number(options["target_rotation_radians"]),
              g(Atan2(), g(Sub(), y1, y0), g(Sub(), x1, x0)))  # fmt: skip
    cos, sin = g(Cos(), angle), g(Sin(), angle)
    xs, ys = (column(a, list(chosen)) for a in (0, 1))
    across = s.apply(Sub(), s.apply(Mul(), xs, cos), s.apply(Mul(), ys, sin))
    down = s.apply(Add(), s.apply(Mul(), xs, sin), s.apply(Mul(), ys, cos))
    middles, steps = [], []
    for line, scale, extent in zip((across, down), ("scale_x", "scale_y"), size, strict=True):
        high, low = g(ReduceMax((0,), True), line), g(ReduceMin((0,), True), line)
        middles.append(g(Mul(), g(Add(), high, low), number(0.5)))
        steps.append(g(Mul(), g(Sub(), high, low), number(options[scale] / extent)))
    # Back from the level to how landmarks are turned.
    rows = []
    for a, b in ((cos, sin), (g(Neg(), sin), cos)):
        centre = g(Add(), g(Mul(), a, middles[0]), g(Mul(), b, middles[1]))
        a, b = g(Mul(), a, steps[0]), g(Mul(), b, steps[1])
        half = g(Add(), g(Mul(), a, number(size[0] / 2)), g(Mul(), b, number(size[1] / 2)))
        rows += [a, b, number(0), g(Sub(), centre, half)]
    rest = g.constant(np.array([0, 0, 1, 0, 0, 0, 0, 1], np.float32))
    return s.reshaped(g(Concat(0), *rows, rest), (1, 4, 4))


def moved(s: Site, matrix: Value, xs: Value, ys: Value, middles: bool) -> list[Value]:
    """Return points as a matrix takes them; with `middles`, pixels have their points at halves."""
    g, flat = s.g, s.reshaped(matrix, (16,))
    made = []
    for row in (0, 4):
        a, b, c = (s.g(Slice((row + i,), (1,), (1,)), flat) for i in (0, 1, 3))
        if middles:
            half = g.constant(np.array([0.5], np.float32))
            c = g(Add(), c, g(Sub(), g(Mul(), g(Add(), a, b), half), half))
        sum_ = s.apply(Add(), s.apply(Mul(), a, xs), s.apply(Mul(), b, ys))
        made.append(s.apply(Add(), sum_, c))
    return made


@on("TransformLandmarks", custom=True)
def transform_landmarks(s: Site) -> Made:
    """Landmarks x[1, N, 2 or 3] as a matrix takes them; depth stays."""
    options_of(s)
    x, matrix = s.rank(0, 3), s.rank(1, 3)
    one, count, width = x.type.shape
    if matrix.type.shape != (1, 4, 4) or one != 1 or width not in (2, 3):
        raise s.wrong(f"operands are {x.type} and {matrix.type}, "
                      "expected landmarks [1, N, 2 or 3] and a matrix [1, 4, 4]")  # fmt: skip
    columns = [s.g(Slice((0, 0, i), (1, count, 1), (1, 1, 1)), x) for i in range(int(width))]
    return s.g(Concat(2), *moved(s, matrix, columns[0], columns[1], False), *columns[2:])


@on("TransformTensorBilinear", custom=True)
def transform_tensor(s: Site) -> Made:
    """The region of x[1, H, W, C] that a matrix maps, bilinear between pixels; zeros outside."""
    options = options_of(s, "output_height", "output_width")
    x, matrix = s.rank(0, 4), s.rank(1, 3)
    high, wide = (options[n] for n in ("output_height", "output_width"))
    one, rows, columns, channels = x.type.shape
    rows, columns = fixed(rows), fixed(columns)
    if matrix.type.shape != (1, 4, 4) or one != 1 or min(high, wide, rows, columns) < 1:
        raise s.wrong(f"operands are {x.type} and {matrix.type} for an output of {high} by {wide}, "
                      "expected [1, H, W, C], [1, 4, 4] and sizes of at least 1")  # fmt: skip
    g = s.g
    grid = np.meshgrid(np.arange(wide, dtype=np.float32), np.arange(high, dtype=np.float32))
    across, down = (g.constant(v.reshape(-1)) for v in grid)
    places = moved(s, matrix, across, down, True)
    pixels = s.reshaped(x, (rows * columns, channels))
    inside, parts, weights = None, [], []
    for place, extent in zip(places, (columns, rows), strict=True):
        for test, bound in ((GreaterOrEqual(), 0), (LessOrEqual(), extent - 1)):
            within = g(test, place, s.filled(bound, place))
            inside = within if inside is None else g(BitAnd(), inside, within)
        near = g(Clip(0, extent - 1), place)
        first = g(Floor(), near)
        second = g(Clip(0, extent - 1), g(Add(), first, s.filled(1, first)))
        parts.append([g(Cast("i32"), v) for v in (first, second)])
        more = s.reshaped(g(Sub(), near, first), (high * wide, 1))
        weights.append((g(Sub(), s.filled(1, more), more), more))
    total = None
    for i, j in ((0, 0), (0, 1), (1, 0), (1, 1)):
        row = g(Mul(), parts[1][i], s.filled(columns, parts[1][i]))
        found = g(Gather(0), pixels, g(Add(), row, parts[0][j]))
        share = s.apply(Mul(), s.apply(Mul(), weights[1][i], weights[0][j]), found)
        total = share if total is None else g(Add(), total, share)
    assert total is not None and inside is not None
    there = stretch(g, s.reshaped(inside, (high * wide, 1)), total.type.shape)
    y = g(Where(), there, total, s.filled(0, total))
    return s.reshaped(y, (1, high, wide, channels))

"""Converters for resampling: interpolation to other extents, and sampling at places of a grid.

Where each element is read is computed here as PyTorch does, in its precision: nearest neighbours
hang on the last bit.  Of open extents, the program computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.numbers import wide
from alpenglow.frontends.torch.convert.window import weighted
from alpenglow.frontends.torch.table import Made, Site, dynamic, numbers, on
from alpenglow.ir.dims import is_open, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS, Array
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Fmod, Minimum, Mul, Sub
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.image.sampling import AffineGrid, GridSample, Sample
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Slice

Scales = Sequence[float | None]
Table = tuple[Array, Array]
"""For each element of the result, a row of elements to read, and their weights."""


@dataclass(frozen=True, slots=True)
class Axis:
    """How one axis is resampled; `double` says that places are computed in f64, not in f32."""

    extent: int
    size: int
    scale: float | None
    aligned: bool
    double: bool

    def number(self, x: float) -> Array:
        """Return a number in the precision that places have."""
        return np.asarray(x, np.float64 if self.double else np.float32)

    @property
    def step(self) -> Array:
        """How far apart the places of neighbours are."""
        if self.aligned and self.size < 2:
            return self.number(0)
        if self.aligned:
            return np.asarray(self.number(self.extent - 1) / self.number(self.size - 1))
        if self.scale is not None and self.scale > 0:
            return self.number(1.0 / self.scale)
        return np.asarray(self.number(self.extent) / self.number(self.size))

    def steps(self, start: float) -> Array:
        """Return the elements' numbers, counted from a start, times the step."""
        counted = np.arange(self.size).astype(self.step.dtype) + self.number(start)
        return np.asarray(counted * self.step)

    def places(self) -> Array:
        """Return the fractional position of each element in the input."""
        return self.steps(0) if self.aligned else self.steps(0.5) - self.number(0.5)


# ── weights along one axis ──


def linear(axis: Axis) -> Table:
    """Return the two neighbours of each place, by their distance."""
    at = np.maximum(axis.places(), 0)
    first = np.minimum(np.floor(at).astype(np.int64), axis.extent - 1)
    share = np.clip(at - first.astype(at.dtype), 0, 1)
    second = np.minimum(first + 1, axis.extent - 1)
    return np.stack([first, second], axis=1), np.stack([1 - share, share], axis=1)


def cubic(axis: Axis) -> Table:
    """Return the four neighbours of each place by Keys' kernel; the edges repeat."""
    at = axis.places()
    first = np.floor(at)
    share = at - first
    distances = np.stack([1 + share, share, 1 - share, 2 - share], axis=1)
    places = first.astype(np.int64)[:, None] + np.arange(-1, 3)
    return np.clip(places, 0, axis.extent - 1), keys(distances, -0.75)


def keys(distance: Array, a: float) -> Array:
    """Return Keys' kernel of distances from 0 to 2."""
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return np.asarray(np.where(distance <= 1, near, np.where(distance < 2, far, 0)))


def triangle(distance: Array) -> Array:
    return np.asarray(np.maximum(1 - distance, 0))


def lanczos(distance: Array) -> Array:
    return np.asarray(np.where(distance < 3, np.sinc(distance) * np.sinc(distance / 3), 0))


def antialiased(reach: int, kernel: Callable[[Array], Array]) -> Callable[[Axis], Table]:
    """Return the table of a kernel that is stretched where the axis shrinks."""

    def table(axis: Axis) -> Table:
        stretch = max(float(axis.step), 1.0)
        centre, support = axis.steps(0.5), axis.number(reach * stretch)
        half = axis.number(0.5)
        first = np.maximum((centre - support + half).astype(np.int64), 0)
        end = np.minimum((centre + support + half).astype(np.int64), axis.extent)
        at = first[:, None] + np.arange(max(int((end - first).max(initial=1)), 1))
        distance = np.abs((at - centre[:, None] + 0.5) / stretch)
        weights = np.where(at < end[:, None], kernel(distance), 0)
        return np.minimum(at, axis.extent - 1), weights / weights.sum(axis=1, keepdims=True)

    return table


# ── elements that are taken as they are ──


def nearest(axis: Axis) -> Array:
    """Return the element at or before each place."""
    return np.minimum(np.floor(axis.steps(0)).astype(np.int64), axis.extent - 1)


def nearest_exact(axis: Axis) -> Array:
    """Return the element whose centre is nearest."""
    return np.minimum(np.floor(axis.steps(0.5)).astype(np.int64), axis.extent - 1)


def taken(s: Site, x: Value, n: int, scales: Scales, table: Callable[[Axis], Array]) -> Value:
    """Return x with the elements that a table names along each of its last n axes."""
    for axis, plan in axes_of(s, x, n, scales, False):
        indices = table(plan)
        if not np.array_equal(indices, np.arange(plan.extent)):
            x = s.g(Gather(axis), x, s.g.constant(indices))
    return x


def axes_of(
    s: Site, x: Value, n: int, scales: Scales, aligned: bool
) -> list[tuple[int, Axis]]:  # fmt: skip
    """Return the axes to resample: outer ones that shrink first, and outer ones that grow last.

    Along an outer axis whole rows are added up, which is cheap; along the innermost one elements
    are picked out of rows, and so there are fewer of these.
    """
    extents, sizes = numbers(*x.type.shape[-n:]), numbers(*s.result.shape[-n:])
    plans = [Axis(e, size, scale, aligned, x.type.dtype == "f64")
             for e, size, scale in zip(extents, sizes, scales, strict=True)]  # fmt: skip
    first = [i for i in range(n - 1) if plans[i].size < plans[i].extent]
    order = [*first, *(i for i in reversed(range(n)) if i not in first)]
    return [(x.type.rank - n + i, plans[i]) for i in order]


def summed(
    s: Site, x: Value, n: int, scales: Scales, aligned: bool, table: Callable[[Axis], Table]
) -> Value:
    """Return weighted sums along each of the last n axes of x, rounded once."""
    if x.type.dtype not in FLOATS:
        raise UnsupportedError(f"input is {x.type}, expected a float dtype")
    y = s.cast(x, wide(x.type.dtype))
    for axis, plan in axes_of(s, x, n, scales, aligned):
        at, weights = table(plan)
        whole = np.array_equal(at[:, 0], np.arange(plan.extent)) and (weights[:, 0] == 1).all()
        if not whole:
            y = weighted(s, y, axis, at, weights)
    return s.cast(y, x.type.dtype)


# ── operators ──


def resized(s: Site, x: Value, scales: Scales, way: Way, align_corners: bool | None) -> Value:
    """Return x resampled along its last axes, as many as there are scales."""
    n, aligned = len(scales), bool(align_corners)
    if way.indices is None and align_corners is None:
        raise ModelError("argument align_corners is missing")
    spatial = (*x.type.shape[-n:], *s.result.shape[-n:])
    if not any(map(is_open, spatial)):
        if way.indices is not None:
            return taken(s, x, n, scales, way.indices)
        assert way.table is not None, "an element is taken or a sum"
        return summed(s, x, n, scales, aligned, way.table)
    if way.open is None or (way.open[0] != "nearest" and x.type.dtype not in FLOATS):
        raise dynamic(f"resampling {x.type} to {s.result} in this mode")
    mode, coordinates, rounding = way.open
    given = [scale for scale in scales if scale is not None]
    if len(given) not in (0, n):
        raise UnsupportedError(f"scales are {scales}, expected all or none with dynamic dimensions")
    factors = () if aligned or not given else (*[1.0] * (x.type.rank - n), *map(float, given))
    op = Resize(s.result.shape, factors, mode, "align_corners" if aligned else coordinates,
                rounding)  # fmt: skip
    return s.g(op, x)


@dataclass(frozen=True, slots=True)
class Way:
    """A way to resample: what is taken, or summed, and what Resize calls it if extents are open."""

    indices: Callable[[Axis], Array] | None = None
    table: Callable[[Axis], Table] | None = None
    open: tuple[str, str, str] | None = None


NEAREST = Way(nearest, open=("nearest", "asymmetric", "floor"))
EXACT = Way(nearest_exact, open=("nearest", "half_pixel", "round_prefer_ceil"))
LINEAR = Way(table=linear, open=("linear", "half_pixel", "round_prefer_floor"))
CUBIC = Way(table=cubic, open=("cubic", "half_pixel", "round_prefer_floor"))
SMOOTH = Way(table=antialiased(1, triangle))
SMOOTH_CUBIC = Way(table=antialiased(2, partial(keys, a=-0.5)))
LANCZOS = Way(table=antialiased(3, lanczos))


WAYS: Mapping[str, tuple[int, Way]] = {
    "upsample_nearest1d": (1, NEAREST),
    "upsample_nearest2d": (2, NEAREST),
    "upsample_nearest3d": (3, NEAREST),
    "_upsample_nearest_exact1d": (1, EXACT),
    "_upsample_nearest_exact2d": (2, EXACT),
    "_upsample_nearest_exact3d": (3, EXACT),
    "upsample_linear1d": (1, LINEAR),
    "upsample_bilinear2d": (2, LINEAR),
    "upsample_trilinear3d": (3, LINEAR),
    "upsample_bicubic2d": (2, CUBIC),
    "_upsample_bilinear2d_aa": (2, SMOOTH),
    "_upsample_bicubic2d_aa": (2, SMOOTH_CUBIC),
    "_upsample_lanczos2d_aa": (2, LANCZOS),
}
"""The operators that resize: how many axes, and how."""


def upsampling(name: str, n: int, way: Way) -> None:
    """Register what resizes n axes to a size, or to one of a size and scales."""

    @on(f"aten.{name}.vec")
    def by_size_or_scale(
        s: Site, x: Value, output_size: Sequence[int] | None,
        scale_factors: Sequence[float] | None, align_corners: bool | None = None,
    ) -> Made:  # fmt: skip
        return resized(s, x, scale_factors or (None,) * n, way, align_corners)

    @on(f"aten.{name}.default")
    def by_size(
        s: Site, x: Value, output_size: Sequence[int], align_corners: bool | None = None,
        scales: float | None = None, scales_d: float | None = None,
        scales_h: float | None = None, scales_w: float | None = None,
    ) -> Made:  # fmt: skip
        listed = along_axes(n, scales, scales_d, scales_h, scales_w)
        return resized(s, x, listed, way, align_corners)


def along_axes(n: int, scales: float | None, *by_axis: float | None) -> Scales:
    """Return scales of n axes: of one axis `scales`, of more the last of depth, height, width."""
    return (scales,) if n == 1 else by_axis[-n:]


for _name, (_n, _way) in WAYS.items():
    upsampling(_name, _n, _way)


# ── grids ──

MODES = ("linear", "nearest", "cubic")
PADDINGS = ("zeros", "border", "reflection")
"""The paddings by their numbers in PyTorch."""


@on("aten.grid_sampler.default", "aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(
    s: Site, input: Value, grid: Value, interpolation_mode: int, padding_mode: int,
    align_corners: bool,
) -> Made:  # fmt: skip
    mode, padding = MODES[interpolation_mode], PADDINGS[padding_mode]
    if (mode, padding) == ("nearest", "reflection"):
        return nearest_reflected(s, input, grid, align_corners)
    return s.g(GridSample(mode, padding, align_corners), input, grid)


def nearest_reflected(s: Site, x: Value, grid: Value, aligned: bool) -> Value:
    """Return the elements nearest to places of a grid, which are reflected before they are rounded.

    ONNX rounds first, which halfway between two elements may come to the other one.
    """
    extents = numbers(*x.type.shape[2:])
    (n, *out, rank), count = grid.type.shape, product(grid.type.shape[1:-1])
    dtype = "f64" if "f64" in (x.type.dtype, grid.type.dtype) else "f32"
    last = tuple(0 if i < 2 else rank - 1 for i in range(3))
    places = s.reshaped(s.cast(grid, dtype), (n, count, rank))
    at = s.g(Slice(last, (n, count, rank), (1, 1, -1)), places)  # the outermost axis first

    def by_axis(numbers: Sequence[float]) -> Value:
        row = s.g.constant(np.asarray(numbers, DTYPES[dtype]))
        return s.broadcast(row, shape=at.type.shape)[0]

    shift = 0 if aligned else 1
    reach = by_axis([d - 1 + shift for d in extents])
    at = s.g(Mul(), s.g(Add(), at, by_axis([1.0] * rank)), reach)
    at = s.g(Mul(), s.g(Sub(), at, by_axis([float(shift)] * rank)), by_axis([0.5] * rank))
    low = by_axis([-shift / 2] * rank)
    # An axis of one element has no length, if its ends are its centres: there all is at 0.
    turn = by_axis([2.0 * (d - 1 + shift) or 2.0 for d in extents])
    beyond = s.g(Fmod(), s.g(Abs(), s.g(Sub(), at, low)), turn)
    at = s.g(Add(), s.g(Minimum(), beyond, s.g(Sub(), turn, beyond)), low)
    y = s.g(Sample("nearest", "border", aligned), x, at)
    return s.reshaped(y, (*x.type.shape[:2], *out))


@on("aten.affine_grid_generator.default")
def affine_grid(s: Site, theta: Value, size: Sequence[int], align_corners: bool) -> Made:
    return s.g(AffineGrid(numbers(*size[2:]), align_corners), theta)

"""Converters that cut tensors into parts: Slice and Split."""

from __future__ import annotations

from alpenglow.frontends.movement import pieces
from alpenglow.frontends.onnx.convert.movement import normal_axes
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.frontends.presume import presume
from alpenglow.frontends.slices import limits, stride
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.movement import Slice


@on("Slice")
def slice_attributes(s: Site) -> Made:
    starts, ends = s.needed("starts"), s.needed("ends")
    return sliced(s, starts, ends, s.attribute("axes"), None)


@on("Slice", since=10)
def slice_operands(s: Site) -> Made:
    axes = None if s.optional(3) is None else s.ints(3)
    steps = None if s.optional(4) is None else s.ints(4)
    return sliced(s, s.dims(1), s.dims(2), axes, steps)


def sliced(
    s: Site,
    starts: tuple[Dim, ...],
    ends: tuple[Dim, ...],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Value:
    """Return ``x[start:end:step]`` on the given axes, as Python slices a list."""
    x = s.input(0)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise s.wrong(
            f"starts is {starts}, ends {ends}, axes {axes} and steps {steps}, expected equal "
            "numbers of elements"
        )
    if 0 in steps:
        raise s.wrong(f"steps is {steps}, expected no 0")
    first: list[Dim] = [0] * x.type.rank
    sizes = list(x.type.shape)
    strides = [1] * x.type.rank
    for axis, start, end, step in zip(
        normal_axes(s, axes, x.type.rank), starts, ends, steps, strict=True
    ):
        first[axis], sizes[axis] = limits(sizes[axis], start, end, step)
        strides[axis] = stride(step, sizes[axis])
    if tuple(sizes) == x.type.shape and not any(first) and set(strides) <= {1}:
        return x
    return s.g(Slice(tuple(first), tuple(sizes), tuple(strides)), x)


@on("Split")
def split_attribute(s: Site) -> Made:
    # The first form also took the sizes as an operand.
    return parts(s, s.attribute("split") if s.optional(1) is None else s.dims(1))


@on("Split", since=13)
def split(s: Site) -> Made:
    return parts(s, None if s.optional(1) is None else s.dims(1))


def parts(s: Site, sizes: tuple[Dim, ...] | None) -> list[Value]:
    """Return input 0 cut along an axis into `sizes`; if None into equal parts."""
    x = s.input(0)
    axis = normal_axes(s, (s.attribute("axis", 0),), x.type.rank)[0]
    extent = x.type.shape[axis]
    if sizes is None:
        sizes = equal_sizes(s, extent, s.attribute("num_outputs", len(s.outputs)))
    if not presume(sum(sizes) - extent, "=="):
        raise s.wrong(f"split is {sizes}, expected a sum of {extent}, axis {axis} of {x.type}")
    if len(sizes) != len(s.outputs):
        raise s.wrong(f"split has {len(sizes)} sizes, expected {len(s.outputs)} as outputs")
    return pieces(s.g, x, axis, sizes)


def equal_sizes(s: Site, extent: Dim, count: int) -> tuple[Dim, ...]:
    """Return the extents of `count` parts; only since opset 18 may the last be smaller."""
    if count < 1:
        raise s.wrong(f"num_outputs is {count}, expected 1 or more")
    if count != len(s.outputs):
        raise s.wrong(f"num_outputs is {count}, expected {len(s.outputs)} as outputs")
    if known(extent) and extent % count and s.opset < 18:
        raise s.wrong(f"the axis has {extent} elements, expected a multiple of {count} outputs")
    if not known(extent):
        # Whatever is left over goes another way: see `presume`.
        presume(extent % count, "==")
        return (extent // count,) * count
    size = ceil_div(extent, count)
    return (*[size] * (count - 1), extent - size * (count - 1))

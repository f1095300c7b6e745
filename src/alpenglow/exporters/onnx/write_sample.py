"""The writer of `Sample`: reading a tensor at places that are data, tap by tap.

ONNX's GridSample reads images at places from -1 to 1; this is for all else: lines, volumes, places
in elements, and integers.  It is the reference (`ops.image.sampling`) in nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product as combinations

import numpy as np

from alpenglow.exporters.onnx.extents import scalar_extent
from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, reshaped
from alpenglow.exporters.onnx.write_resample import narrowed
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.dims import Dim, is_open, product
from alpenglow.ir.graph import Node, Value
from alpenglow.ops.image.sampling import OFFSETS, SHARPNESS, Sample


@dataclass(frozen=True, slots=True)
class Tap:
    """A read along an axis: the position, its weight, and whether it is inside."""

    at: Tensor
    share: Tensor
    inside: Tensor | None


def _is_read(opset: int, node: Node) -> bool:
    """Return True unless the weights are derivatives, as in gradients."""
    return isinstance(node.op, Sample) and not any(node.op.orders)


@on(Sample, when=_is_read)
def sample(w: Writer, op: Sample, x: Value, at: Value) -> Tensor:
    n, c, *spatial = x.type.shape
    result = (n, c, at.type.shape[1])
    if any(not is_open(d) and d == 0 for d in (*x.type.shape, *result)):
        return expanded(w, np.zeros((1, 1, 1), x.type.numpy), result)
    wide = "f64" if "f64" in (x.type.dtype, at.type.dtype) else "f32"
    places = w.cast(at, wide)
    axes = []
    for i, extent in enumerate(spatial):
        number = len(spatial) - 1 - i if op.normalized else i
        place = w("Gather", places, np.array(number, np.int64), axis=2)
        axes.append(_taps(OnnxMath(w), op, place, extent, wide))
    flat = reshaped(w, x, (n, c, product(spatial)))
    total: Tensor | None = None
    for chosen in combinations(*axes):
        value = _element(w, flat, chosen, spatial, result, x.type.dtype)
        if op.mode == "nearest":
            return value
        weight = chosen[0].share
        for tap in chosen[1:]:
            weight = w("Mul", weight, tap.share)
        part = w("Mul", w.cast(value, wide), w("Unsqueeze", weight, np.array([1], np.int64)))
        total = part if total is None else w("Add", total, part)
    assert total is not None, "a place has neighbours"
    return narrowed(w, total, x.type.dtype)


def _element(
    w: Writer, flat: Tensor, chosen: tuple[Tap, ...], spatial: list[Dim],
    shape: tuple[Dim, ...], dtype: str,
) -> Tensor:  # fmt: skip
    """Return the elements that one combination of taps reads, 0 outside."""
    m, index, inside = OnnxMath(w), None, None
    for tap, extent in zip(chosen, spatial, strict=True):
        scale = w.tensor(scalar_extent(w, extent))
        index = tap.at if index is None else m.add(m.mul(index, scale), tap.at)
        if tap.inside is not None:
            inside = tap.inside if inside is None else m.bit_and(inside, tap.inside)
    one = np.array([1], np.int64)
    value = w("GatherElements", flat, expanded(w, w("Unsqueeze", index, one), shape), axis=2)
    return value if inside is None else m.where(
        w("Unsqueeze", inside, one), value, False if dtype == "bool" else 0)  # fmt: skip


def _taps(m: OnnxMath, op: Sample, p: Tensor, extent: Dim, wide: str) -> list[Tap]:
    """Return the taps of positions on an axis."""
    last = _number(m.w, extent - 1, wide)
    if op.normalized:
        shift = 0.0 if op.aligned else 1.0
        span = m.add(last, shift) if shift else last
        p = m.mul(m.sub(m.mul(m.add(p, 1.0), span), shift), 0.5)
    if op.mode == "nearest":
        p = m.round(p)
    low = 0.0 if op.aligned else -0.5
    high = last if op.aligned else m.add(last, 0.5)
    outside = m.bit_or(m.lt(p, low), m.gt(p, high))
    if op.padding == "border" and op.mode != "cubic":
        p = m.where(outside, m.minimum(m.maximum(p, 0.0), last), p)
    elif op.padding == "reflection":
        p = m.where(outside, _reflected(m, p, low, high), p)
    first = p if op.mode == "nearest" else m.floor(p)
    return [_tap(m, op, p, first, offset, low, high, last) for offset in OFFSETS[op.mode]]


def _tap(
    m: OnnxMath, op: Sample, p: Tensor, first: Tensor, offset: int, low: float, high: Operand,
    last: Operand,
) -> Tap:  # fmt: skip
    at = m.add(first, float(offset))
    inside = None
    if op.padding == "zeros":
        inside = m.bit_and(m.ge(at, 0.0), m.le(at, last))
    elif op.padding == "reflection":
        beyond = m.bit_or(m.lt(at, low), m.gt(at, high))
        at = _truncated(m, m.where(beyond, _reflected(m, at, low, high), at))
    # A comparison, unlike a maximum, turns NaN into 0.
    index = m.w.cast(m.minimum(m.where(m.gt(at, 0.0), at, 0.0), last), "i64")
    distance = m.abs(m.sub(m.sub(p, first), float(offset)))
    share = m.sub(1.0, distance)
    if op.mode == "cubic":
        share = m.where(m.isnan(distance), distance, _cubic(m, distance))
    return Tap(index, share, inside)


def _number(w: Writer, d: Dim, wide: str) -> Operand:
    """Return an extent as a float."""
    return w.cast(scalar_extent(w, d), wide)


def _truncated(m: OnnxMath, x: Tensor) -> Tensor:
    return m.where(m.lt(x, 0.0), m.ceil(x), m.floor(x))


def _cubic(m: OnnxMath, d: Tensor) -> Tensor:
    """Return Keys' kernel at distances, as `ops.image.resampling.keys_kernel` has it."""
    a = SHARPNESS
    near = m.mul(m.mul(m.sub(m.mul(d, a + 2), a + 3), d), d)
    far = m.mul(m.add(m.mul(m.sub(m.mul(d, a), 5 * a), d), 8 * a), d)
    outer = m.where(m.lt(d, 2.0), m.sub(far, 4 * a), 0.0)
    return m.where(m.le(d, 1.0), m.add(near, 1.0), outer)


def _reflected(m: OnnxMath, p: Tensor, low: float, high: Operand) -> Tensor:
    """Return places mirrored at both ends of an axis until they lie between them."""
    reach = m.sub(high, low)
    below = m.lt(p, low)
    distance = m.where(below, m.sub(low, p), m.sub(p, high))
    # If there is nothing between the ends, the position becomes the lower end.
    turns = m.div(distance, m.where(m.eq(reach, 0.0), 1.0, reach))
    times = m.floor(turns)  # a distance is not negative where the place is outside
    rest = m.sub(distance, m.mul(times, reach))
    at_low = m.eq(below, m.eq(m.fmod(times, 2.0), 0.0))
    mirrored = m.where(at_low, m.add(rest, low), m.sub(high, rest))
    return m.where(m.eq(reach, 0.0), low, mirrored)

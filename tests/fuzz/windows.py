"""Windows for convolutions and pools, drawn from all that ONNX allows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .draft import SYMBOLS, Draft, Var
from .elements import Shape
from .inference import Declined

KERNELS = (1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 5, 7)
STRIDES = (1, 1, 1, 1, 2, 2, 3, 4, 5)


@dataclass(slots=True)
class Window:
    """A window, and the attributes that say it."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[int]
    same: bool = False
    ceil: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)

    def reach(self, axis: int) -> int:
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def extents(self, spatial: Shape) -> Shape:
        """Return what is left of spatial extents; decline a window larger than what it is on."""
        out = []
        for i, e in enumerate(spatial):
            stride = self.strides[i]
            if self.same:
                out.append(-(-e // stride))
                continue
            low, high = self.pads[i], self.pads[i + len(spatial)]
            room = e + low + high - self.reach(i)
            if room < 0:
                raise Declined
            count = room // stride + 1
            if self.ceil:
                count = -(-room // stride) + 1
                # No window begins behind what there is.
                if (count - 1) * stride >= e + low:
                    count -= 1
            out.append(count)
        return tuple(out)


def window(d: Draft, op: str, spatial: int, *, kernel: list[int] | None = None,
           pooling: bool = False) -> Window:  # fmt: skip
    """Return a random window of so many axes, as an operator of this opset may have it.

    Of pools the padding is smaller than the window: ONNX Runtime takes no other, and neither do we.
    A dilated one does not ask for the same extents: it might hold nothing else, and others lay it
    elsewhere; nor has a dilated average any padding.
    """
    fixed = kernel is not None
    if kernel is None:
        one = d.one_of(KERNELS)
        kernel = [one if d.chance(0.6) else d.one_of(KERNELS) for _ in range(spatial)]
    w = Window(kernel, [1] * spatial, [1] * spatial, [0] * (2 * spatial))
    if pooling or (d.chance(0.5) and not fixed):
        w.attributes["kernel_shape"] = kernel
    if d.chance(0.6):
        one = d.one_of(STRIDES)
        w.strides = [one if d.chance(0.6) else d.one_of(STRIDES) for _ in range(spatial)]
        w.attributes["strides"] = w.strides
    if d.chance(0.35) and d.has(op, "dilations"):
        w.dilations = [d.one_of((1, 1, 2, 2, 3, 4)) for _ in range(spatial)]
        w.attributes["dilations"] = w.dilations
    dilated = pooling and max(w.dilations) > 1
    if dilated and op != "MaxPool":
        return w
    if d.chance(0.2) and not dilated:
        mode = d.one_of(("SAME_UPPER", "SAME_LOWER", "VALID"))
        w.same = mode != "VALID"
        w.attributes["auto_pad"] = mode
        if w.same:
            # Where the stride is larger, padding would be negative: the specification is silent.
            most = [k if pooling else k + 1 for k in w.kernel]
            w.strides = [min(s, k) for s, k in zip(w.strides, most, strict=True)]
            if "strides" in w.attributes:
                w.attributes["strides"] = w.strides
        return w
    if d.chance(0.1):
        w.attributes["auto_pad"] = "NOTSET"
    if d.chance(0.7):
        w.pads = pads(d, w, pooling)
        w.attributes["pads"] = w.pads
    return w


def pads(d: Draft, w: Window, pooling: bool) -> list[int]:
    """Return how much to pad on each side: as usual, as much as a window, or more."""
    count = len(w.kernel)

    def side(axis: int) -> int:
        reach = w.reach(axis)
        if pooling:
            return int(d.number(0, w.kernel[axis] - 1))
        return int(d.one_of((0, 0, 1, 1, 2, reach // 2, reach - 1, reach, reach + 2)))

    how = d.one_of(("even", "even", "any", "one"))
    if how == "even":
        half = [w.reach(i) // 2 if d.chance(0.6) else side(i) for i in range(count)]
        if pooling:
            half = [min(p, k - 1) for p, k in zip(half, w.kernel, strict=True)]
        return half * 2
    found = [side(i % count) for i in range(2 * count)]
    if how == "one":
        kept = d.number(0, 2 * count - 1)
        found = [p if i == kept else 0 for i, p in enumerate(found)]
    return found


def image_shape(d: Draft, spatial: int, most: int = 4096) -> Shape:
    """Return the shape of images: few samples, channels around the widths of vectors."""
    batch = d.one_of((1, 1, 1, 2, 3))
    channels = d.extent(48)
    room = max(most // (batch * channels), 1)
    extents: list[int] = []
    for i in range(spatial):
        side = max(int(room ** (1 / (spatial - i))), 1)
        extents.append(min(d.extent(max(2 * side, 3), 1), room))
        room = max(room // extents[-1], 1)
    if d.chance(0.5):
        extents.reverse()
    return (batch, channels, *extents)


def image(d: Draft, dtypes: list[str], spatial: int) -> Var:
    """Return images: ones that were made before, or new ones."""
    if d.is_open and d.chance(0.7):
        return d.pick(dtypes, spatial + 2, spatial + 2, empty=False)
    return d.pick(dtypes, spatial + 2, spatial + 2, empty=False,
                  shape=lambda: image_shape(d, spatial))  # fmt: skip


def divisor(d: Draft, channels: int) -> int:
    """Return a number of groups: one, where the number of channels is open."""
    if d.is_open and channels in SYMBOLS.values():
        return 1
    if d.chance(0.5):
        return int(d.one_of((1, channels)))
    return int(d.one_of([g for g in range(1, channels + 1) if channels % g == 0]))


def features(d: Draft, group: int, weights_each: int) -> int:
    """Return a number of results that divides into groups, whose weights are not too many."""
    room = max(min(6144 // max(weights_each, 1), 300), 1)
    if group == 1:
        return d.extent(room)
    return group * d.one_of([n for n in (1, 1, 1, 2, 3, 4, 8, 16) if n * group <= room] or [1])

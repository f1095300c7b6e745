"""Converters for padding with what is inside, and for windows that are laid together again."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.movement import sliced
from alpenglow.frontends.torch.convert.movement import amounts
from alpenglow.frontends.torch.table import Made, Site, each, numbers, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.movement import Pad
from alpenglow.ops.window.unpooling import OverlapAdd


def extended_by(s: Site, x: Value, padding: Sequence[Dim], mode: str) -> Value:
    """Return x padded by a mode of ours; negative amounts cut off what is left then."""
    before, after = amounts(numbers(*padding), x.type.rank)
    more = [[max(int(a), 0) for a in side] for side in (before, after)]
    y = s.g(Pad(tuple(more[0]), tuple(more[1]), mode), x)
    for axis, (low, extent) in enumerate(zip(before, s.result.shape, strict=True)):
        if y.type.shape[axis] != extent:
            y = sliced(s.g, y, axis, max(-int(low), 0), extent)
    return y


def padded(name: str, mode: str, n: int) -> None:
    """Register padding of n axes by a mode of ours."""

    @on(f"aten.{name}{n}d.default")
    def convert(s: Site, x: Value, padding: Sequence[Dim]) -> Made:
        return extended_by(s, x, padding, mode)


for axes in (1, 2, 3):
    padded("reflection_pad", "reflect", axes)
    padded("replication_pad", "edge", axes)


@on("aten.col2im.default")
def col2im(
    s: Site, x: Value, output_size: Sequence[Dim], kernel_size: Sequence[int],
    dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int],
) -> Made:  # fmt: skip
    kernel, steps, apart = (each(v, 2) for v in (kernel_size, stride, dilation))
    pads = each(padding, 2)
    single = x.type.rank == 2
    batch, channels = (1 if single else x.type.shape[0]), x.type.shape[-2]
    places = [
        (d + 2 * pads[i] - apart[i] * (kernel[i] - 1) - 1) // steps[i] + 1
        for i, d in enumerate(output_size)
    ]
    windows = s.reshaped(x, (batch, channels // product(kernel), *kernel, *places))
    op = OverlapAdd(tuple(output_size), steps, pads * 2, apart)
    return s.reshaped(s.g(op, windows), s.result.shape)

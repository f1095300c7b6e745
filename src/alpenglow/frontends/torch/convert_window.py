"""Converters for pooling."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.table import Made, Site, each, on
from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Value
from alpenglow.ops.pooling import AveragePool, MaxPool
from alpenglow.ops.reduction import ReduceMean


def batched(s: Site, x: Value, axes: int) -> Value:
    """Return x[N, C, …]: one sample where there is no batch."""
    return x if x.type.rank == axes + 2 else s.reshaped(x, (1, *x.type.shape))


def largest(n: int) -> None:
    """Register max pooling over n spatial axes."""

    @on(f"aten.max_pool{n}d.default")
    def convert(
        s: Site, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,) * n, dilation: Sequence[int] = (1,) * n,
        ceil_mode: bool = False,
    ) -> Made:  # fmt: skip
        kernel = each(kernel_size, n)
        op = MaxPool(kernel, each(stride, n) if stride else kernel, each(padding, n) * 2,
                     each(dilation, n), ceil_mode)  # fmt: skip
        return s.reshaped(s.g(op, batched(s, x, n)), s.result.shape)


def means(n: int) -> None:
    """Register average pooling over n spatial axes."""

    @on(f"aten.avg_pool{n}d.default")
    def convert(
        s: Site, x: Value, kernel_size: Sequence[int], stride: Sequence[int] = (),
        padding: Sequence[int] = (0,) * n, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Made:  # fmt: skip
        if divisor_override is not None:
            raise UnsupportedError("average pooling with a divisor of its own")
        kernel = each(kernel_size, n)
        op = AveragePool(kernel, each(stride, n) if stride else kernel, each(padding, n) * 2,
                         (1,) * n, ceil=ceil_mode, count_pads=count_include_pad)  # fmt: skip
        return s.reshaped(s.g(op, batched(s, x, n)), s.result.shape)


def adaptive(n: int) -> None:
    """Register average pooling to a given size over n spatial axes."""
    prefix = "aten._" if n > 1 else "aten."

    @on(f"aten.adaptive_avg_pool{n}d.default", *([f"{prefix}adaptive_avg_pool{n}d.default"]
                                                 if n > 1 else []))  # fmt: skip
    def convert(s: Site, x: Value, output_size: Sequence[int]) -> Made:
        sizes = each(output_size, n)
        spatial = x.type.shape[-n:]
        if all(size == 1 for size in sizes):
            axes = tuple(range(x.type.rank - n, x.type.rank))
            return s.g(ReduceMean(axes, True), x)
        if any(map(is_open, spatial)):
            raise UnsupportedError(f"adaptive pooling of {x.type}")
        if any(d % size for d, size in zip(spatial, sizes, strict=True)):
            raise UnsupportedError(f"adaptive pooling of {x.type} to {sizes}: windows are uneven")
        kernel = tuple(int(d) // size for d, size in zip(spatial, sizes, strict=True))
        op = AveragePool(kernel, kernel, (0,) * (2 * n), (1,) * n)
        return s.reshaped(s.g(op, batched(s, x, n)), s.result.shape)


for axes in (1, 2, 3):
    largest(axes)
    means(axes)
    adaptive(axes)

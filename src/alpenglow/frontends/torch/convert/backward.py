"""Converters for what autograd calls: the derivatives of operators.

Most build the forward operator again, as its own converter does, and differentiate that; nothing
reads its result, so it is not computed.  Those that are told where elements came from put gradients
back there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alpenglow.autodiff import gradients
from alpenglow.frontends.torch.convert.attention import mixed
from alpenglow.frontends.torch.convert.convolution import convolution
from alpenglow.frontends.torch.convert.padding import extended_by
from alpenglow.frontends.torch.convert.resize import WAYS, Way, along_axes, grid_sampler, resized
from alpenglow.frontends.torch.convert.window import mean_of
from alpenglow.frontends.torch.table import Made, Site, find, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.gather import ScatterElements


def differentiated(
    s: Site, y: Made, dy: Value, xs: Sequence[Value], wanted: Sequence[bool]
) -> list[Value | None]:
    """Return the gradients of those operands of y that are wanted, None for the others."""
    assert isinstance(y, Value), "one result is differentiated"
    by = [x for x, is_wanted in zip(xs, wanted, strict=True) if is_wanted]
    dxs = iter(gradients(s.g, y, by, [x for x in xs if x not in by], dy))
    return [next(dxs) if is_wanted else None for is_wanted in wanted]


def apart(s: Site, *xs: Value) -> list[Value]:
    """Return operands, each a value of its own, so that gradients by them are not added up."""
    return [s.g(Copy(), x) if x in xs[:i] else x for i, x in enumerate(xs)]


# ── convolutions ──


@on("aten.convolution_backward.default")
def convolution_backward(
    s: Site, grad_output: Value, input: Value, weight: Value, bias_sizes: Sequence[Dim] | None,
    stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], transposed: bool,
    output_padding: Sequence[int], groups: int, output_mask: Sequence[bool],
) -> Made:  # fmt: skip
    """The gradients of an input, of weights and of a bias, those that `output_mask` names."""
    dy = grad_output
    x, w = apart(s, input, weight)
    y = convolution(s.before(dy), x, w, None, stride, padding, dilation, transposed,
                    output_padding, groups)  # fmt: skip
    db = None
    if output_mask[2]:
        db = s.g(ReduceSum((0, *range(2, dy.type.rank)), False), dy)
    return [*differentiated(s, y, dy, (x, w), output_mask[:2]), db]


# ── windows and edges ──


def of_means(n: int) -> None:
    """Register the derivatives of average pooling over n spatial axes."""

    @on(f"aten.avg_pool{n}d_backward.default")
    def windows(
        s: Site, grad_output: Value, x: Value, kernel_size: Sequence[int], stride: Sequence[int],
        padding: Sequence[int], ceil_mode: bool, count_include_pad: bool,
        divisor_override: int | None,
    ) -> Made:  # fmt: skip
        y = mean_of(s.before(grad_output), x, n, kernel_size, stride, padding, ceil_mode,
                    count_include_pad, divisor_override)  # fmt: skip
        return differentiated(s, y, grad_output, [x], [True])

    @on(f"aten._adaptive_avg_pool{n}d_backward.default")
    def of_a_number(s: Site, grad_output: Value, x: Value) -> Made:
        y = forward(s, grad_output, f"aten._adaptive_avg_pool{n}d.default", x,
                    grad_output.type.shape[-n:])  # fmt: skip
        return differentiated(s, y, grad_output, [x], [True])


def forward(s: Site, dy: Value, target: str, *arguments: Any) -> Made:
    """Return what the converter of an operator makes, whose result has the type of dy."""
    entry = find(target)
    assert entry is not None, f"{target} has a converter"
    return entry.convert(s.before(dy), *arguments)


def of_edges(n: int) -> None:
    """Register the derivative of padding with the edges of n axes."""

    @on(f"aten.replication_pad{n}d_backward.default")
    def convert(s: Site, grad_output: Value, x: Value, padding: Sequence[Dim]) -> Made:
        y = extended_by(s.before(grad_output), x, padding, "edge")
        return differentiated(s, y, grad_output, [x], [True])


def of_maxima(name: str, n: int) -> None:
    """Register the derivative of what picks the largest elements of windows over n axes."""

    @on(f"aten.{name}_backward.default")
    def convert(
        s: Site, grad_output: Value, x: Value, indices: Value, kernel_size: Sequence[int] = (),
        output_size: Sequence[int] = (), stride: Sequence[int] = (), padding: Sequence[int] = (),
        dilation: Sequence[int] = (), ceil_mode: bool = False,
    ) -> Made:  # fmt: skip
        return put_back(s, grad_output, indices, n)


def put_back(s: Site, dy: Value, indices: Value, n: int) -> Value:
    """Return gradients where the elements came from: `indices` count in the plane of a channel."""
    shape = s.result.shape
    outer, count = product(shape[:-n]), product(dy.type.shape[-n:])
    zeros = s.filled(0, s.result.with_shape((outer, product(shape[-n:]))))
    at, dys = (s.reshaped(v, (outer, count)) for v in (indices, dy))
    return s.reshaped(s.g(ScatterElements(1, "add"), zeros, at, dys), shape)


for axes in (1, 2, 3):
    of_edges(axes)
for axes in (2, 3):
    of_means(axes)
    of_maxima(f"adaptive_max_pool{axes}d", axes)
    of_maxima(f"fractional_max_pool{axes}d", axes)
of_maxima("max_pool3d_with_indices", 3)


# ── images ──


@on("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    s: Site, grad_output: Value, input: Value, grid: Value, interpolation_mode: int,
    padding_mode: int, align_corners: bool, output_mask: Sequence[bool],
) -> Made:  # fmt: skip
    y = grid_sampler(s.before(grad_output), input, grid, interpolation_mode, padding_mode,
                     align_corners)  # fmt: skip
    return differentiated(s, y, grad_output, (input, grid), output_mask)


def of_resizing(name: str, n: int, way: Way) -> None:
    """Register the derivative of resizing n axes, which is linear."""

    @on(f"aten.{name}_backward.default")
    def convert(
        s: Site, grad_output: Value, output_size: Sequence[Dim], input_size: Sequence[Dim],
        align_corners: bool | None = None, scales: float | None = None,
        scales_d: float | None = None, scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Made:  # fmt: skip
        x = s.filled(0, grad_output.type.with_shape(input_size))
        listed = along_axes(n, scales, scales_d, scales_h, scales_w)
        y = resized(s.before(grad_output), x, listed, way, align_corners)
        return differentiated(s, y, grad_output, [x], [True])


for _name, (_n, _way) in WAYS.items():
    of_resizing(_name, _n, _way)


# ── attention ──


@on("alpenglow.attention_backward.default")
def attention_backward(
    s: Site, grad: Value, query: Value, key: Value, value: Value, mask: Value | None,
    is_causal: bool, scale: float | None,
) -> Made:  # fmt: skip
    """The gradients of a query, keys and values: `alpenglow.torch` has this operator traced."""
    q, k, v = apart(s, query, key, value)
    y = mixed(s.before(grad), q, k, v, mask, 0.0, is_causal, scale, True)
    return differentiated(s, y, grad, (q, k, v), [True] * 3)

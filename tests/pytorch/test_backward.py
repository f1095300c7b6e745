"""Derivatives that autograd calls as operators of their own, compiled, beside eager's in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from alpenglow.torch import attention

pytestmark = pytest.mark.usefixtures("traced_anew")


def assert_same_gradients(
    call: Callable[..., torch.Tensor], *shapes: tuple[int, ...], dtype: torch.dtype = torch.float64
) -> None:
    """Hold the gradients of all operands against eager's; nothing may run in eager."""
    start = [torch.randn(shape, dtype=dtype) for shape in shapes]
    made = []
    for f in (torch.compile(call, backend="alpenglow", options={"strict": True}), call):
        xs = [x.clone().requires_grad_() for x in start]
        y = f(*xs)
        torch.manual_seed(1)
        made.append((y, *torch.autograd.grad(y, xs, torch.randn(y.shape, dtype=dtype))))

    torch.testing.assert_close(*made)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 3), {}),
    "strided": ((2, 3, 7, 6), (4, 3, 3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    "dilated": ((2, 4, 9, 8), (6, 2, 3, 3), {"dilation": (2, 1), "padding": 2, "groups": 2}),
    "by channel": ((1, 4, 5, 5), (4, 1, 3, 3), {"padding": 1, "groups": 4}),
    "of a line": ((2, 3, 9), (5, 3, 4), {"stride": 2, "padding": 1}),
    "of a volume": ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"stride": (1, 2, 1), "padding": 1}),
    "of one sample": ((3, 6, 6), (2, 3, 3, 3), {}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_gradients_of_convolutions(name: str) -> None:
    x, w, words = CONVOLUTIONS[name]
    of = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[len(w) - 2]
    assert_same_gradients(lambda x, w, b: of(x, w, b, **words), x, w, (w[0],))


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 3), {}),
    "strided": ((2, 4, 4, 5), (4, 3, 3, 2),
                {"stride": (2, 3), "padding": 1, "output_padding": (1, 2), "groups": 2}),
    "of a line": ((2, 3, 5), (3, 2, 4), {"stride": 2, "dilation": 2, "padding": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_gradients_of_transposed_convolutions(name: str) -> None:
    x, w, words = TRANSPOSED[name]
    of = {1: F.conv_transpose1d, 2: F.conv_transpose2d}[len(w) - 2]
    outputs = w[1] * words.get("groups", 1)
    assert_same_gradients(lambda x, w, b: of(x, w, b, **words), x, w, (outputs,))


HALVES = torch.full((2, 3, 3), 0.5, dtype=torch.float64)

ONE_OPERAND: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 8)),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)), (2, 3, 7, 6)),
    "avg_pool2d, ends": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (2, 3, 8, 6)),
    "avg_pool2d, ends that count": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 3, 8, 6)),
    "avg_pool2d, divisor": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, True, divisor_override=5), (2, 3, 8, 6)),
    "avg_pool2d, one sample": (lambda x: F.avg_pool2d(x, 2), (3, 6, 6)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, 2, 1, True), (1, 2, 5, 4, 5)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 7, 5)),
    "adaptive_avg_pool2d, whole": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 6, 4)),
    "adaptive_avg_pool2d, one": (lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 6, 4)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), (1, 2, 5, 7, 4)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (2, 3, 7, 6)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2, 1, 1, 2, True), (1, 2, 5, 4, 5)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 2)), (2, 3, 7, 5)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), (1, 2, 5, 7, 4)),
    "replicate, line": (lambda x: F.pad(x, (2, 1), mode="replicate"), (2, 3, 5)),
    "replicate, image": (lambda x: F.pad(x, (2, 1, 0, 3), mode="replicate"), (1, 2, 4, 5)),
    "replicate, volume": (
        lambda x: F.pad(x, (1, 1, 0, 2, 2, 0), mode="replicate"), (1, 2, 3, 4, 5)),
    "fractional, image": (
        lambda x: F.fractional_max_pool2d(x, 2, (3, 3), _random_samples=HALVES[..., :2]),
        (2, 3, 7, 6)),
    "fractional, volume": (
        lambda x: F.fractional_max_pool3d(x, 2, (2, 3, 2), _random_samples=HALVES),
        (2, 3, 5, 6, 4)),
    "reflect": (lambda x: F.pad(x, (2, 1, 0, 3), mode="reflect"), (1, 2, 4, 5)),
    "nearest": (lambda x: F.interpolate(x, scale_factor=(2, 1.5)), (1, 2, 4, 5)),
    "nearest-exact": (lambda x: F.interpolate(x, (7, 3), mode="nearest-exact"), (1, 2, 4, 5)),
    "bilinear": (
        lambda x: F.interpolate(x, (7, 3), mode="bilinear", align_corners=True), (1, 2, 4, 5)),
    "antialiased": (
        lambda x: F.interpolate(x, (3, 3), mode="bilinear", antialias=True), (1, 2, 8, 7)),
    "bicubic": (lambda x: F.interpolate(x, (7, 3), mode="bicubic"), (1, 2, 4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE_OPERAND)
def test_gradients_of_windows_edges_and_images(name: str) -> None:
    assert_same_gradients(*ONE_OPERAND[name])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_gradients_of_samples_on_a_grid(mode: str, padding: str) -> None:
    assert_same_gradients(
        lambda x, at: F.grid_sample(x, at * 0.8, mode, padding, align_corners=False),
        (2, 3, 5, 6), (2, 4, 3, 2),
    )  # fmt: skip


ATTENTION: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"is_causal": True},
    "scaled": {"scale": 0.3},
    "masked": {"attn_mask": torch.arange(20).reshape(4, 5) % 3 != 0},
    "biased": {"attn_mask": torch.linspace(-1, 1, 40, dtype=torch.float64).reshape(2, 1, 4, 5)},
    "where a row sees nothing": {"attn_mask": torch.arange(4)[:, None].expand(4, 5) != 2},
}


@pytest.mark.parametrize("name", ATTENTION)
def test_gradients_of_attention(name: str) -> None:
    keys = 4 if name == "causal" else 5
    assert_same_gradients(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **ATTENTION[name]),
        (2, 3, 4, 8), (2, 3, keys, 8), (2, 3, keys, 8),
    )  # fmt: skip


def test_gradients_of_attention_whose_heads_share_keys() -> None:
    assert_same_gradients(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (2, 6, 4, 8), (2, 3, 5, 8), (2, 3, 5, 8),
    )  # fmt: skip


def test_gradients_of_attention_of_a_thing_to_itself() -> None:
    assert_same_gradients(lambda x: F.scaled_dot_product_attention(x, x, x), (2, 3, 4, 8))


WHERE_SEEN = torch.arange(16).reshape(4, 4) % 3 != 1
BIAS = torch.zeros(4, 4, dtype=torch.float64).masked_fill(~WHERE_SEEN, -torch.inf)


@pytest.mark.parametrize("shared", [6, 3])
@pytest.mark.parametrize("words", [{}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": BIAS}])
def test_gradients_of_attention_where_it_runs_in_eager(words: dict[str, Any], shared: int) -> None:
    shapes = ((2, 6, 4, 8), (2, shared, 4, 8), (2, shared, 4, 8))
    xs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    dy = torch.randn(shapes[0], dtype=torch.float64)
    y = F.scaled_dot_product_attention(*xs, **words, enable_gqa=True)
    expected = torch.autograd.grad(y, xs, dy)
    found = attention.OPERATOR(
        dy, *(x.detach() for x in xs), words.get("attn_mask"), words.get("is_causal", False),
        words.get("scale"),
    )  # fmt: skip

    torch.testing.assert_close(found, expected)

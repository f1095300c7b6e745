"""Derivatives that autograd calls as operators of their own, compiled, beside eager's in f64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from alpenglow.torch import attention
from alpenglow.torch.backend import recording

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


RESIZED: dict[str, tuple[dict[str, Any], int]] = {
    f"{mode}, {'aligned' if aligned else 'by area'}": ({"mode": mode, "align_corners": aligned}, n)
    for mode, n in (("linear", 1), ("bilinear", 2), ("trilinear", 3), ("bicubic", 2))
    for aligned in (False, True)
} | {f"{mode} of {n}": ({"mode": mode}, n) for mode in ("nearest", "nearest-exact")
     for n in (1, 2, 3)} | {
    f"{mode}, antialiased": ({"mode": mode, "antialias": True}, 2)
    for mode in ("bilinear", "bicubic")
}  # fmt: skip


@pytest.mark.parametrize("name", RESIZED)
def test_gradients_of_resizing_to_many_sizes(name: str) -> None:
    """Each is one operator in both graphs, and rows of 1 to 9 become others of 1 to 9."""
    how, n = RESIZED[name]

    def resized(*xs: torch.Tensor) -> list[torch.Tensor]:
        sizes = [(10 - d, 4, 5)[:n] for d in range(1, 10)] + [(d, 3, 7)[:n] for d in range(1, 10)]
        return [F.interpolate(x, size, **how) for x, size in zip(xs * 2, sizes, strict=True)]

    torch.manual_seed(0)
    xs = [torch.randn(2, 4, *(d, 3, 6)[:n]) for d in range(1, 10)]

    def step(f: Callable[..., list[torch.Tensor]]) -> list[torch.Tensor]:
        leaves = [x.clone().requires_grad_() for x in xs]
        ys = f(*leaves)
        torch.stack([(y**2).sum() for y in ys]).sum().backward()
        return [*ys, *(x.grad for x in leaves)]

    with recording() as record:
        got = step(torch.compile(resized, backend="alpenglow", options={"strict": True}))
    calls = {c.target for _, plan in record.plans for c in plan.program.body.calls}

    assert not any("index" in target for target in calls)
    for y, e in zip(got, step(resized), strict=True):
        torch.testing.assert_close(y, e, rtol=1e-4, atol=1e-5)


def test_gradients_of_resizing_other_types_layouts_and_open_batches() -> None:
    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    torch.manual_seed(0)
    x = torch.randn(2, 4, 5, 6)
    for start in (x.bfloat16(), x.half(), x.double(), x.to(memory_format=torch.channels_last)):
        made = []
        for f in (torch.compile(resized, backend="alpenglow", options={"strict": True}), resized):
            leaf = start.clone().requires_grad_()
            y = f(leaf)
            (dx,) = torch.autograd.grad(y, leaf, y.detach() + 1)
            made.append((y, dx))
        torch.testing.assert_close(*made)

    fast = torch.compile(resized, backend="alpenglow", dynamic=True)
    for batch in (2, 3, 5):
        leaves = [torch.ones(batch, 4, 5, 6, requires_grad=True) for _ in range(2)]
        for f, leaf in zip((fast, resized), leaves, strict=True):
            (f(leaf) ** 2).sum().backward()
        torch.testing.assert_close(*(leaf.grad for leaf in leaves))


def test_gradients_of_gradients_of_resizing() -> None:
    def slope(x: torch.Tensor) -> torch.Tensor:
        def total(x: torch.Tensor) -> torch.Tensor:
            return (F.interpolate(x, scale_factor=2, mode="bilinear") ** 3).sum()

        return torch.func.grad(total)(x)

    x = torch.randn(1, 2, 4, 5, dtype=torch.float64)

    torch.testing.assert_close(torch.compile(slope, backend="alpenglow")(x), slope(x))


def test_pytorch_resizes_bytes_as_before_and_after() -> None:
    kernels = dict(torch.ops.aten.upsample_bilinear2d.vec.py_kernels)
    x = torch.randint(0, 256, (1, 3, 9, 7), dtype=torch.uint8)

    def resized(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(5, 13), mode="bilinear")

    got = torch.compile(resized, backend="alpenglow")(x)

    # PyTorch's decomposition rounds some bytes otherwise than its kernel.
    torch.testing.assert_close(got, resized(x), rtol=0, atol=1)
    assert torch.ops.aten.upsample_bilinear2d.vec.py_kernels == kernels


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

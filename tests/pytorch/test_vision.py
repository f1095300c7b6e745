"""torchvision's own operators, against references: its extension is not there beside CPU torch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch_zoo import import_torchvision

import alpenglow as ag

ROIS = torch.tensor([[0, 1.0, 2.0, 9.0, 11.0], [1, 0.5, 0.5, 6.3, 4.2], [1, 3.0, 3.0, 3.5, 12.0]])
"""Rows: an image, and x1, y1, x2, y2."""

SCHEMAS = """
roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor
ps_roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width, int sampling_ratio) -> (Tensor, Tensor)
roi_pool(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width) -> (Tensor, Tensor)
deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor
"""  # noqa: E501
"""As torchvision's extension declares them."""


@pytest.fixture(scope="module")
def declared() -> Iterator[None]:
    """Declare the operators with the shapes of their results; what they compute is not there."""
    import_torchvision()
    library = torch.library.Library("torchvision", "FRAGMENT")
    for schema in SCHEMAS.strip().splitlines():
        library.define(schema)
    for name in ("roi_align", "ps_roi_align", "roi_pool", "deform_conv2d"):
        library.impl(name, SHAPES[name], "Meta")
    yield
    library._destroy()


def bins(
    x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int, *_: object
) -> torch.Tensor:
    return x.new_empty(len(rois), x.shape[1], h, w)


def own_bins(
    x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int, *_: object
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (len(rois), x.shape[1] // (h * w), h, w)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def pooled(
    x: torch.Tensor, rois: torch.Tensor, scale: float, h: int, w: int
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (len(rois), x.shape[1], h, w)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def deformed(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, *_: object) -> torch.Tensor:
    return x.new_empty(x.shape[0], w.shape[0], *offset.shape[-2:])


SHAPES = {
    "roi_align": bins, "ps_roi_align": own_bins, "roi_pool": pooled, "deform_conv2d": deformed,
}  # fmt: skip


def run(net: nn.Module, *args: torch.Tensor) -> np.ndarray:
    exe = ag.compile(torch.export.export(net, args), "interpreter")
    y: np.ndarray = exe(*(a.numpy() for a in args))
    return y


@pytest.mark.parametrize("samples", [2, -1])
@pytest.mark.parametrize("aligned", [True, False])
def test_aligned_regions_equal_torchvisions_own_python(
    declared: None, samples: int, aligned: bool
) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
            op = torch.ops.torchvision.roi_align
            y: torch.Tensor = op(x, rois, 0.5, 3, 2, samples, aligned)
            return y

    torch.manual_seed(0)
    x = torch.randn(2, 4, 7, 6)
    reference = import_torchvision().ops.roi_align.__globals__["_roi_align"]
    expected = reference(x, ROIS, 0.5, 3, 2, samples, aligned)
    np.testing.assert_allclose(run(Net(), x, ROIS), expected, rtol=1e-5, atol=1e-5)


def test_each_bin_of_ps_roi_align_reads_channels_of_its_own(declared: None) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = torch.ops.torchvision.ps_roi_align(x, rois, 1.0, 2, 2, 2)[0]
            return y

    torch.manual_seed(0)
    x = torch.randn(2, 12, 13, 12)
    whole = import_torchvision().ops.roi_align.__globals__["_roi_align"]
    every = whole(x, ROIS, 1.0, 2, 2, 2, True)
    expected = torch.empty(3, 3, 2, 2)
    for c, i, j in np.ndindex(3, 2, 2):
        expected[:, c, i, j] = every[:, (c * 2 + i) * 2 + j, i, j]
    np.testing.assert_allclose(run(Net(), x, ROIS), expected, rtol=1e-5, atol=1e-5)


def test_pooled_regions_have_the_largest_element_of_each_bin(declared: None) -> None:
    class Net(nn.Module):
        def forward(self, x: torch.Tensor, rois: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = torch.ops.torchvision.roi_pool(x, rois, 1.0, 2, 2)[0]
            return y

    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 8)
    rois = torch.tensor([[0.0, 0, 0, 3, 3], [1, 4, 2, 7, 5]])
    parts = [x[0, :, 0:4, 0:4], x[1, :, 2:6, 4:8]]
    expected = torch.stack([nn.functional.max_pool2d(p, 2) for p in parts])
    np.testing.assert_array_equal(run(Net(), x, rois), expected)


def test_a_deformable_convolution_without_offsets_is_one_and_whole_offsets_shift_it(
    declared: None,
) -> None:
    class Net(nn.Module):
        def forward(
            self, x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, mask: torch.Tensor,
            bias: torch.Tensor,
        ) -> torch.Tensor:  # fmt: skip
            op = torch.ops.torchvision.deform_conv2d
            y: torch.Tensor = op(x, w, offset, mask, bias, 1, 1, 1, 1, 1, 1, 1, 1, True)
            return y

    torch.manual_seed(0)
    x, w, bias = torch.randn(1, 3, 6, 7), torch.randn(4, 3, 3, 3), torch.randn(4)
    offset, mask = torch.zeros(1, 18, 6, 7), torch.full((1, 9, 6, 7), 0.5)
    offset[:, 0::2] = 1  # a row down: rows stand before columns
    moved = nn.functional.pad(x, (0, 0, 0, 1))[:, :, 1:]
    expected = nn.functional.conv2d(nn.functional.pad(moved, (1, 1, 0, 1)), w[:, :, 1:] * 0.5, bias)
    expected += nn.functional.conv2d(nn.functional.pad(x, (1, 1, 0, 0)), w[:, :, :1] * 0.5)
    np.testing.assert_allclose(run(Net(), x, w, offset, mask, bias), expected, rtol=1e-4, atol=1e-5)

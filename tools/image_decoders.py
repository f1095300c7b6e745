"""Decoders of images: networks that make images of features, by wider and wider layers."""

from __future__ import annotations

import itertools

import torch
from torch import nn


class Step(nn.Module):  # type: ignore[misc]  # mypy sees no torch
    """Two convolutions, as in every step of a UNet."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        layers = []
        for n in (inputs, outputs):
            layers += [nn.Conv2d(n, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class UNet(nn.Module):  # type: ignore[misc]
    """Four steps down and up again, 32 to 512 channels (Ronneberger et al. 2015)."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 128, 256, 512)) -> None:
        super().__init__()
        self.down = nn.ModuleList(Step(a, b) for a, b in zip([3, *widths], widths, strict=False))
        self.wider = nn.ModuleList(
            nn.ConvTranspose2d(b, a, 2, 2) for a, b in itertools.pairwise(widths)
        )
        self.up = nn.ModuleList(Step(2 * w, w) for w in widths[:-1])
        self.head = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, step in enumerate(self.down):
            x = step(x if i == 0 else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for wider, step, beside in reversed(
            list(zip(self.wider, self.up, kept[:-1], strict=True))
        ):  # fmt: skip
            x = step(torch.cat([beside, wider(x)], 1))
        return self.head(x)


class DCGAN(nn.Module):  # type: ignore[misc]
    """The generator of DCGAN: transposed convolutions from a vector to 64×64 (Radford et al.)."""

    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = latent
        for i, outputs in enumerate((8 * width, 4 * width, 2 * width, width)):
            stride, pad = (1, 0) if i == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(channels, outputs, 4, stride, pad, bias=False),
                       nn.BatchNorm2d(outputs), nn.ReLU()]  # fmt: skip
            channels = outputs
        layers += [nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.layers(z)


class Segmentation(nn.Module):  # type: ignore[misc]
    """A decoder of segmentations: features of four scales are widened, joined and convolved.

    As panoptic feature pyramids have it: each step doubles the sides by linear interpolation,
    adds the features of that scale and convolves; at the end come classes, four times as wide.
    """

    def __init__(self, channels: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.across = nn.ModuleList(nn.Conv2d(n, width, 1) for n in channels)
        self.steps = nn.ModuleList(Step(width, width) for _ in channels[1:])
        self.head = nn.Conv2d(width, classes, 3, padding=1)

    def forward(self, *scales: torch.Tensor) -> torch.Tensor:
        """Take features, the finest first."""
        x = self.across[-1](scales[-1])
        for i, step in enumerate(self.steps):
            k = len(scales) - 2 - i
            x = nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = step(x + self.across[k](scales[k]))
        return nn.functional.interpolate(self.head(x), scale_factor=4, mode="bilinear",
                                         align_corners=False)  # fmt: skip

"""Networks of torchvision and timm equal eager: a sample of what tools/models_torch.py runs."""

from __future__ import annotations

import pytest
import torch
from torch_zoo import import_timm, import_torchvision, judged, seeded

TIMM = ("test_byobnet", "test_vit", "test_convnext", "test_efficientnet", "test_nfnet")
"""Networks of a few layers each that timm has for tests: all of their kinds are there."""

TORCHVISION = ("squeezenet1_1", "shufflenet_v2_x0_5", "lraspp_mobilenet_v3_large")
"""Small ones; the last segments images, and resizes."""


@pytest.mark.parametrize("name", TIMM)
def test_a_network_of_timm_equals_eager(name: str) -> None:
    torch.manual_seed(0)
    net = seeded(import_timm().create_model(name))
    outcome = judged(net, (torch.randn(1, 3, 160, 160),))

    assert outcome.state == "right", outcome


@pytest.mark.parametrize("name", TORCHVISION)
def test_a_network_of_torchvision_equals_eager(name: str) -> None:
    torch.manual_seed(0)
    more = {"weights_backbone": None} if "lraspp" in name else {}
    net = seeded(import_torchvision().models.get_model(name, weights=None, **more))
    outcome = judged(net, (torch.randn(1, 3, 64, 64),))

    assert outcome.state == "right", outcome


def test_a_wrong_result_is_seen() -> None:
    class Sum(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            # Eager and the exporter take different ways on purpose.
            return x.sum(1) * (2 if torch.compiler.is_exporting() else 1)

    outcome = judged(Sum(), (torch.arange(6.0).reshape(2, 3),), target="interpreter")

    assert outcome.state == "wrong" and outcome.error == 1.0


def test_a_constant_result_proves_nothing() -> None:
    outcome = judged(torch.nn.Threshold(9, 1), (torch.arange(6.0),), target="interpreter")

    assert outcome.state == "no proof"

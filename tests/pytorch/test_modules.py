"""Modules of PyTorch are trained as in eager: a sample of tools/conformance_torch.py --backward."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from modules_torch import check_backward, module_entries

SAMPLE = (
    "AvgPool2d", "Conv2d", "ConvTranspose1d", "CrossEntropyLoss", "Embedding",
    "FractionalMaxPool2d", "GRUCell", "GroupNorm", "InstanceNorm2d", "LayerNorm", "MaxPool3d",
    "ReplicationPad2d", "Softmax",
)  # fmt: skip
MOST = 2
"""How many samples of each are taken."""


@pytest.mark.parametrize("name", SAMPLE)
def test_a_module_is_trained_as_in_eager(name: str) -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    (entry,) = [e for e in module_entries(torch.float32, training=True) if e.name == f"nn.{name}"]
    samples = list(islice(entry.sample_inputs("cpu", torch.float32), MOST))

    assert [check_backward(s) for s in samples] == [("right", "")] * len(samples)

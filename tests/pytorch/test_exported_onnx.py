"""Networks of transformers that torch exports as ONNX: a sample of tools/export_transformers.py."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
CLOSE = 1e-4


@pytest.mark.parametrize(
    ("name", "exporter"),
    [("swin_t", "dynamo"), ("t5_small_decoder_with_past", "script"), ("gpt2_with_past", "script")],
)
def test_an_exported_network_equals_torch_for_any_extents(
    name: str, exporter: str, tmp_path: Path
) -> None:
    tool = import_module("export_transformers")
    tool.export(tool.NETWORKS[name](True), tmp_path, exporter, None, False)

    exe = ag.compile(tmp_path / "model.onnx")

    for i in range(2):
        inputs, outputs = (dict(np.load(tmp_path / f"{kind}_{i}.npz"))
                           for kind in ("inputs", "outputs"))  # fmt: skip
        results = exe.run({key: inputs[key] for key in exe.inputs})
        for key, y in results.items():
            assert y.shape == outputs[key].shape
            assert np.abs(y - outputs[key]).max() <= CLOSE * np.abs(outputs[key]).max()

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
    [("swin_t", "dynamo"), ("t5_small_decoder_merged", "script"), ("gpt2_with_past", "script")],
)
def test_an_exported_network_equals_torch_for_any_extents(
    name: str, exporter: str, tmp_path: Path
) -> None:
    tool = import_module("export_transformers")
    tool.export_named(name, True, tmp_path, exporter, None, False)

    exe = ag.compile(tmp_path / "model.onnx")

    for i in range(2):
        inputs, outputs = (dict(np.load(tmp_path / f"{kind}_{i}.npz"))
                           for kind in ("inputs", "outputs"))  # fmt: skip
        results = exe.run({key: inputs[key] for key in exe.inputs})
        assert results.keys() >= outputs.keys()
        for key, expected in outputs.items():
            assert results[key].shape == expected.shape
            assert np.abs(results[key] - expected).max() <= CLOSE * np.abs(expected).max()

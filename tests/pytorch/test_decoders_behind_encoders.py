"""Decoders behind an encoder, two in one file: sessions equal torch, step by step."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import alpenglow as ag

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
Array = NDArray[Any]
BRANCH, CLOSE = "use_cache_branch", 1e-4


def past(outputs: dict[str, Array], kind: str) -> dict[str, Array]:
    return {n.replace("present", "past_key_values"): x for n, x in outputs.items() if kind in n}


def by_torch(network: Any, feeds: dict[str, Array]) -> dict[str, Array]:
    tensors = {name: torch.from_numpy(feeds[name]) for name in network.inputs}
    results: dict[str, Array] = import_module("export_transformers").results_of(network, tensors)
    return results


@pytest.mark.parametrize("name", ["t5_small_decoder", "whisper_tiny_decoder"])
def test_twenty_steps_of_a_session_equal_torch_and_the_merged_model(
    name: str, tmp_path: Path
) -> None:
    tool = import_module("export_transformers")
    tool.export_named(f"{name}_merged", True, tmp_path, "script", None, False)
    first, later = (tool.NETWORKS[n](True) for n in (name, f"{name}_with_past"))
    model = tmp_path / "model.onnx"
    staged = ag.compile(model)
    given = {n: x.numpy() for n, x in first.draw(first.sizes, seed=3).items()}
    expected = by_torch(first, given)

    began = ag.compile(model, constants={BRANCH: False}).run(given)
    for key, x in expected.items():
        np.testing.assert_allclose(began[key], x, atol=CLOSE * np.abs(x).max(), rtol=0)

    exe = ag.compile(model, constants={BRANCH: True}, state=True)
    lasting = {n: x for n, x in (given | past(began, ".encoder.")).items()
               if n in exe.inputs and n != "input_ids"}  # fmt: skip
    session = exe.session(length=24, inputs=lasting)
    session.variables.update(past(began, ".decoder."))
    assert list(session.inputs) == ["input_ids"]
    copied = given | past(began, "present") | {BRANCH: np.array([True])}
    handed = given | past(expected, "present")
    for step in range(20):
        token = {"input_ids": np.full((1, 1), 3 * step % 7)}
        expected = by_torch(later, handed | token)
        results = staged.run(copied | token)
        copied |= past(results, ".decoder.")
        handed |= past(expected, "present")
        actual = session.run(token)["logits"]

        np.testing.assert_array_equal(actual, results["logits"])
        most = CLOSE * np.abs(expected["logits"]).max()
        np.testing.assert_allclose(actual, expected["logits"], atol=most, rtol=0)
    assert session.rows == 24

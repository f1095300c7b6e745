"""`alpenglow convert`: models and texts of graphs as models of ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from command import alpenglow, answer
from residual_model import inputs, small


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `model.onnx`, and a cache of its own."""
    onnx.save(small(), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path


def outputs(model: str) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model)
    (x,) = session.get_inputs()
    return [session.run(None, {x.name: array})[0] for array in inputs(2)]


def test_a_model_says_the_same_as_before(folder: Path) -> None:
    told = answer("convert model.onnx -o again.onnx")

    np.testing.assert_allclose(outputs("again.onnx"), outputs("model.onnx"), rtol=1e-5, atol=1e-6)
    assert (told["file"], told["opset"]) == ("again.onnx", 21)
    assert told["nbytes"] == (folder / "again.onnx").stat().st_size
    assert told["nodes"] == len(onnx.load("again.onnx").graph.node)


@pytest.mark.parametrize("stage", ["import", "simplify", "lower", "recover"])
def test_a_text_of_a_graph_is_a_model_again(folder: Path, stage: str) -> None:
    alpenglow(f"show model.onnx --after {stage} -o stage.txt --dim N=1")
    alpenglow("convert stage.txt -o stage.onnx")

    np.testing.assert_allclose(outputs("stage.onnx"), outputs("model.onnx"), rtol=1e-4, atol=1e-5)


def test_a_program_is_no_graph(folder: Path) -> None:
    alpenglow("show model.onnx --after plan -o plan.txt --dim N=1")

    refused = alpenglow("convert plan.txt -o no.onnx", 2).stderr

    assert "this is a program, after pass plan" in refused
    assert not (folder / "no.onnx").exists()


def test_the_name_says_what_is_written(folder: Path) -> None:
    assert "ends in .onnx" in alpenglow("convert model.onnx -o model.txt", 2).stderr

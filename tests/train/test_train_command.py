"""`alpenglow train`: from a file and samples to a file, and on from where it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

import alpenglow as ag
import staged_cases
from alpenglow.ir.graph import Graph
from alpenglow.train.parameters import fixed, inference
from command import alpenglow
from train_cases import convolutional, samples

SHAPE = (3, 12, 12)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and samples."""
    monkeypatch.chdir(tmp_path)
    g = convolutional(8)
    model = fixed(inference(g, ["scores"]), {name: v.array for name, v in g.initial.items()})
    ag.export_onnx(model, "model.onnx")
    data = samples(160, SHAPE)
    np.savez("samples.npz", x=data["x"], labels=data["labels"])
    return tmp_path


def test_a_model_is_trained_and_written(folder: Path) -> None:
    alpenglow("train model.onnx --data samples.npz --held 0.2 --epochs 3 --rate 0.01 -o out.onnx "
              "--curve loss.svg")  # fmt: skip
    held = samples(64, SHAPE, seed=9)
    exe = ag.compile(folder / "out.onnx")
    scores = np.concatenate([exe(held["x"][k : k + 8]) for k in range(0, 64, 8)])

    assert np.mean(scores.argmax(1) == held["labels"]) > 0.9
    assert (folder / "loss.svg").read_text().count("<polyline") == 2


def test_a_log_is_written(folder: Path) -> None:
    """In a process of its own: what writes it imports torch if there is one, and finds our tests'
    folder of that name here."""
    command = [sys.executable, "-B", "-m", "alpenglow", "train", "model.onnx", "--data"]
    source = Path(ag.__file__).parent.parent
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run(
        [*command, "samples.npz", "--log", "log"], env=environment, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert any((folder / "log").iterdir())


@pytest.mark.rest
def test_a_run_goes_on_where_it_was(folder: Path) -> None:
    common = "train model.onnx --data samples.npz --json --schedule constant"
    alpenglow(f"{common} --epochs 3 -o whole.onnx")
    first = json.loads(alpenglow(f"{common} --epochs 1 --checkpoint run.npz").stdout)
    second = alpenglow(f"{common} --epochs 3 --checkpoint run.npz -o parts.onnx")
    third = json.loads(alpenglow(f"{common} --epochs 3 --checkpoint run.npz").stdout)

    assert first["steps"] == 20 and json.loads(second.stdout)["steps"] == 60
    assert "goes on from step 20" in second.stderr
    assert third["epochs"] == []
    x = samples(8, SHAPE)["x"]
    np.testing.assert_array_equal(ag.compile("whole.onnx")(x), ag.compile("parts.onnx")(x))


def test_an_archive_is_written_too(folder: Path) -> None:
    alpenglow("train model.onnx --data samples.npz --train last.* -o out.ago")
    before, after = ag.load("model.onnx"), ag.open("out.ago")

    assert isinstance(before, Graph)
    x = samples(8, SHAPE)["x"]
    assert after(x).shape == (8, 5) and not np.array_equal(after(x), ag.compile(before)(x))


def test_images_in_folders_are_samples(folder: Path) -> None:

    random = np.random.default_rng(0)
    for k, name in enumerate(("dark", "grey", "light", "red", "blue")):
        (folder / "pictures" / name).mkdir(parents=True)
        for i in range(8):
            pixels = random.integers(40 * k, 40 * k + 40, (20, 16, 3), np.uint8)
            Image.fromarray(pixels).save(folder / "pictures" / name / f"{i}.png")
    done = alpenglow("train model.onnx --data pictures --json --epochs 2")

    assert json.loads(done.stdout)["steps"] == 10
    (folder / "pictures" / "dark" / "0.png").write_bytes(b"no image")
    assert "0.png is no image" in alpenglow("train model.onnx --data pictures", 2).stderr


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--data nowhere.npz", "nowhere.npz"),
        ("--data model.onnx", "this holds no arrays"),
        ("--data samples.npz --train zz*", "no constant is called zz*; there are"),
        ("--data samples.npz --held 2", "between 0 and 1"),
        ("--data samples.npz --held there", "expected a share, as 0.2, or a file"),
        ("--data samples.npz --of logits", "there is no output logits"),
        ("--data samples.npz --optimizer adam --momentum 0.9", "one of sgd and rmsprop"),
        ("--data samples.npz -o out.txt", "expected FILE.onnx or FILE.ago"),
        ("--data samples.npz -o nowhere/out.onnx", "there is no such folder"),
        ("--data samples.npz --curve nowhere/loss.svg", "there is no such folder"),
        ("--data samples.npz --held 0.1125", "takes 8 at a time"),
        ("--data samples.npz --rate -1", "rate is -1.0"),
        ("--data samples.npz --batch 4", "expected (8, 3, 12, 12)"),
        ("--data samples.npz --checkpoint samples.npz", "samples.npz"),
    ],
)
def test_mistakes_are_told(folder: Path, options: str, text: str) -> None:
    assert text in alpenglow(f"train model.onnx {options}", 2).stderr


def test_a_model_that_depends_on_its_data_is_refused(folder: Path) -> None:
    onnx.save(staged_cases.CASES["nonzero"].model(), "few.onnx")
    for command in ("train", "quantize -o out.onnx"):
        done = alpenglow(f"{command} few.onnx --data samples.npz", 2)
        assert "no graph of the whole" in done.stderr

"""`alpenglow train`: from a file and samples to a file, and on from where it was."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

import alpenglow as ag
import staged_cases
from alpenglow import train
from alpenglow.cli.interrupts import interruptible
from alpenglow.ir.graph import Graph
from alpenglow.train.data import folder as train_folder
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
    np.savez("bytes.npz", x=np.zeros((8, *SHAPE), np.uint8), labels=np.zeros(8, np.int64))
    return tmp_path


def accuracy(model: Path) -> float:
    """Return the share of samples that were held back which a model of batches of 8 tells apart."""
    held = samples(64, SHAPE, seed=9)
    exe = ag.compile(model)
    scores = np.concatenate([exe(held["x"][k : k + 8]) for k in range(0, 64, 8)])
    return float(np.mean(scores.argmax(1) == held["labels"]))


def test_a_model_is_trained_and_written(folder: Path) -> None:
    alpenglow("train model.onnx --data samples.npz --validation 0.2 --epochs 3 "
              "--learning-rate 0.01 -o out.onnx --curve loss.svg")  # fmt: skip

    assert accuracy(folder / "out.onnx") > 0.9
    assert (folder / "loss.svg").read_text().count("<polyline") == 2


def test_a_model_is_trained_for_8_bits(folder: Path) -> None:
    alpenglow("train model.onnx --data samples.npz --epochs 3 --rate 0.01 --quantize "
              "symmetric_uint8 --granularity tensor -o small.onnx")  # fmt: skip

    assert accuracy(folder / "small.onnx") > 0.9
    weights = [t for t in onnx.load("small.onnx").graph.initializer if len(t.dims) > 1]
    assert weights and {t.data_type for t in weights} == {onnx.TensorProto.INT8}


@pytest.mark.rest
def test_the_memory_of_a_step_is_limited(folder: Path) -> None:
    run = "train model.onnx --data samples.npz --epochs 1 -o"
    alpenglow(f"{run} free.onnx")
    alpenglow(f"{run} short.onnx --memory 200KB")
    least = alpenglow(f"{run} none.onnx --memory 1KB", 2).stderr

    assert "the memory of a call is limited to 1,000 bytes" in least
    assert Path("free.onnx").read_bytes() == Path("short.onnx").read_bytes()


@pytest.mark.rest
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


@pytest.mark.rest
def test_ctrl_c_ends_after_a_step_and_says_where_to_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = train.Trainer.step

    def third(self: train.Trainer, feeds: Mapping[str, Any]) -> dict[str, Any]:
        if self.steps == 2:
            signal.raise_signal(signal.SIGINT)
        return step(self, feeds)

    common = "train model.onnx --data samples.npz --target interpreter"
    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patched:
        patched.setattr(train.Trainer, "step", third)
        first = alpenglow(f"{common} --checkpoint run.npz -o out.onnx --curve cut.svg", 130)
        second = alpenglow(common, 130)

    assert "3 steps were taken; the same command goes on from run.npz" in first.stderr
    assert "3 steps were taken; nothing of it is left; with --checkpoint" in second.stderr
    assert "<polyline" in (folder / "cut.svg").read_text()
    assert signal.getsignal(signal.SIGINT) is before and not (folder / "out.onnx").exists()
    third_run = alpenglow(f"{common} --checkpoint run.npz -o out.onnx --curve loss.svg")
    assert "goes on from step 3" in third_run.stderr and "out.onnx: 20 steps" in third_run.stdout
    alpenglow(f"{common} -o whole.onnx")
    x = samples(8, SHAPE)["x"]
    np.testing.assert_array_equal(ag.compile("out.onnx")(x), ag.compile("whole.onnx")(x))


def test_ctrl_c_once_more_ends_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(print) as pressed:
        assert not pressed()
        signal.raise_signal(signal.SIGINT)
        assert pressed()
        signal.raise_signal(signal.SIGINT)


def test_a_curve_has_the_epochs_before_a_checkpoint(folder: Path) -> None:
    common = "train model.onnx --data samples.npz --target interpreter --checkpoint run.npz"
    alpenglow(f"{common} --epochs 1")
    alpenglow(f"{common} --epochs 2 --curve loss.svg")
    both = (folder / "loss.svg").read_text()
    done = alpenglow(f"{common} --epochs 2 --curve loss.svg")

    assert "nothing was left to do; -o FILE writes the model" in done.stdout
    assert (folder / "loss.svg").read_text() == both
    assert [e["number"] for e in json.loads((folder / "run.npz.epochs.json").read_text())] == [0, 1]


def test_a_curve_of_nothing_is_not_drawn(folder: Path) -> None:
    common = "train model.onnx --data samples.npz --target interpreter --checkpoint run.npz"
    alpenglow(common)
    (folder / "run.npz.epochs.json").unlink()
    alpenglow(f"{common} --curve loss.svg")

    assert not (folder / "loss.svg").exists()


def test_an_unknown_history_is_an_error(folder: Path) -> None:
    common = "train model.onnx --data samples.npz --target interpreter --checkpoint run.npz"
    alpenglow(common)
    (folder / "run.npz.epochs.json").write_text("[{}]")

    assert "expected a list of epochs" in alpenglow(common, 2).stderr


def test_training_stops_without_improvement_and_keeps_the_best(folder: Path) -> None:
    """The labels of the validation data are wrong, so that learning makes their loss larger."""
    held = samples(32, SHAPE, seed=9)
    np.savez("wrong.npz", x=held["x"], labels=(held["labels"] + 1) % 5)
    common = ("train model.onnx --data samples.npz --validation wrong.npz --schedule constant "
              "--target interpreter --json --epochs")  # fmt: skip
    limited = f"{common} 9 --keep-best --patience 2 --checkpoint run.npz -o"
    stopped = json.loads(alpenglow(f"{limited} best.onnx").stdout)
    again = json.loads(alpenglow(f"{limited} again.onnx").stdout)
    best = int(np.argmin([e["held_loss"] for e in stopped["epochs"]]))
    alpenglow(f"{common} {best + 1} -o wanted.onnx")

    assert len(stopped["epochs"]) == best + 3 < 9 and again["epochs"] == []
    assert stopped["best"] == again["best"] == best
    wanted = Path("wanted.onnx").read_bytes()
    assert Path("best.onnx").read_bytes() == Path("again.onnx").read_bytes() == wanted


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
    (folder / "pictures" / "dark" / "Thumbs.db").write_bytes(b"no image")
    done = alpenglow("train model.onnx --data pictures --json --epochs 2")

    assert json.loads(done.stdout)["steps"] == 10
    assert "pictures: 1 file skipped: Thumbs.db" in done.stderr
    scaled = "train model.onnx --data pictures --json --crop center --std"
    means = json.loads(alpenglow(f"{scaled} 0.5,0.5,0.5 --mean 0.5").stdout)["epochs"][0]
    assert means["loss"] != json.loads(done.stdout)["epochs"][0]["loss"]
    assert "std has 2 numbers, expected 1 or 3" in alpenglow(f"{scaled} 1,2", 2).stderr
    (folder / "pictures" / "dark" / "0.png").write_bytes(b"no image")
    assert "0.png, expected" in alpenglow("train model.onnx --data pictures", 2).stderr


def test_images_are_grey_where_a_model_has_one_channel(tmp_path: Path) -> None:
    for k, name in enumerate(("left", "right")):
        (tmp_path / name).mkdir()
        pixels = np.zeros((4, 6, 3), np.uint8)
        pixels[:, 3 * k : 3 * k + 3] = 0, 255, 0
        Image.fromarray(pixels).save(tmp_path / name / "0.png")
    grey, colours = (train_folder(tmp_path, (4, 6), ("x", "y"), grey=g) for g in (True, False))

    assert grey["x"].shape == (2, 1, 4, 6) and colours["x"].shape == (2, 3, 4, 6)
    np.testing.assert_array_equal(colours["x"][1, :, 0], [[0] * 6, [0, 0, 0, 1, 1, 1], [0] * 6])
    # Rec. 601, as Pillow rounds it.
    np.testing.assert_array_equal(grey["x"][0, 0, 2], np.float32([150, 150, 150, 0, 0, 0]) / 255)
    assert grey["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--data nowhere.npz", "nowhere.npz"),
        ("--data model.onnx", "expected a .npy or .npz file"),
        ("--data bytes.npz", "array x holds uint8, expected floats"),
        ("--data samples.npz --train zz*", "no constant is called zz*; there are"),
        ("--data samples.npz --validation 2", "between 0 and 1"),
        ("--data samples.npz --validation there", "expected a share, as 0.2, or a file"),
        ("--data samples.npz --loss-of logits", "output is logits, expected one of"),
        ("--data samples.npz --optimizer adam --momentum 0.9", "supported: sgd, rmsprop"),
        ("--data samples.npz -o out.txt", "expected FILE.onnx or FILE.ago"),
        ("--data samples.npz -o nowhere/out.onnx", "there is no such folder"),
        ("--data samples.npz --curve nowhere/loss.svg", "there is no such folder"),
        ("--data samples.npz --validation 0.1125", "takes 8 at a time"),
        ("--data samples.npz --rate -1", "rate is -1.0"),
        ("--data samples.npz --mean 0.5", "for folders of pictures, expected --data DIR"),
        ("--data samples.npz --keep-best", "--keep-best is given without --validation"),
        ("--data samples.npz --patience 2", "--patience is given without --validation"),
        ("--data samples.npz --mean half", "--mean is half, expected a number"),
        ("--data samples.npz --granularity tensor", "--granularity is given without --quantize"),
        ("--data samples.npz --quantize symmetric --keep zz", "zz"),
        ("--data samples.npz --batch 4", "expected (8, 3, 12, 12)"),
        ("--data samples.npz --checkpoint samples.npz", "samples.npz"),
    ],
)
@pytest.mark.sampled(6)
def test_mistakes_are_told(folder: Path, options: str, text: str) -> None:
    assert text in alpenglow(f"train model.onnx {options}", 2).stderr


def test_a_model_that_depends_on_its_data_is_refused(folder: Path) -> None:
    onnx.save(staged_cases.CASES["nonzero"].model(), "few.onnx")
    for command in ("train", "quantize -o out.onnx"):
        done = alpenglow(f"{command} few.onnx --data samples.npz", 2)
        assert "the graph of this model depends on its data" in done.stderr

"""`alpenglow profile-ranges` and `alpenglow quantize`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import alpenglow as ag
from command import alpenglow, answer
from residual_model import inputs, small


@pytest.fixture
def folder(tmp_path: Path, own_cache: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `model.onnx` and labelled `samples.npz`."""
    onnx.save(small(), tmp_path / "model.onnx")
    xs = np.concatenate(inputs(8))
    exe = ag.compile(small(), shapes={"x": (8, 3, 8, 8)})
    np.savez(tmp_path / "samples.npz", x=xs, labels=exe(xs).argmax(1))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ranges_are_written_and_used(folder: Path) -> None:
    told = answer("profile-ranges model.onnx --data samples.npz -o ranges.yaml --bins 64")
    found = ag.Profile.load(folder / "ranges.yaml")

    assert (told["samples"], told["values"]) == (8, len(found.ranges))
    assert all(len(r.counts) == 64 for r in found.ranges.values())
    command = "quantize model.onnx --data samples.npz --ranges ranges.yaml -o small.onnx"
    assert answer(command)["drop"] == 0


def test_a_profile_of_another_model_is_an_error(folder: Path) -> None:
    other = small()
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(
        np.zeros((8, 3, 3, 3), np.float32), "w"))  # fmt: skip
    onnx.save(other, "other.onnx")
    alpenglow("profile-ranges other.onnx --data samples.npz -o ranges.yaml")
    found = alpenglow("quantize model.onnx --data samples.npz --ranges ranges.yaml -o s.onnx", 2)

    assert "the profile is of another graph" in found.stderr
    assert not (folder / "s.onnx").exists()


def test_the_model_and_the_report_are_written(folder: Path) -> None:
    told = answer("quantize model.onnx --data samples.npz --metric top1 -o small.onnx")
    session = onnxruntime.InferenceSession("small.onnx")
    expected = np.load("samples.npz")["labels"]
    actual = session.run(None, {"x": np.concatenate(inputs(8))})[0].argmax(1)
    report = (folder / "small.md").read_text()

    assert np.mean(expected == actual) >= 1 - told["loss_after"] - 1e-9
    assert [x["quantized"] for x in told["layers"]] == [True] * 3
    assert report.startswith("# model.onnx, quantized\n\n3 of 3 layers are quantized; top1 loses")
    assert "| c | conv | quantized |" in report


def test_a_layer_with_several_results_is_told_of(folder: Path) -> None:
    weights = (np.random.default_rng(0).standard_normal((2, 1, 32, 8)) / 4).astype(np.float32)
    text = """<ir_version: 10, opset_import: ["" : 21]>
        lstm (float[3,1,8] x) => (float[3,1,1,8] y) { y = LSTM<hidden_size=8>(x, w, r) }"""
    model = onnx.parser.parse_model(text)
    tensors = zip(weights, ("w", "r"), strict=True)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for a, n in tensors)
    onnx.save(model, "lstm.onnx")
    np.savez("rows.npz", x=np.ones((2, 3, 1, 8), np.float32))
    told = answer("quantize lstm.onnx --data rows.npz -o small.onnx")

    assert [x["quantized"] for x in told["layers"]] == [True, False]


@pytest.mark.rest
def test_layers_stay_as_they_are_until_little_enough_is_lost(folder: Path) -> None:
    loose = answer("quantize model.onnx --data samples.npz --metric sqnr -o a.onnx")
    line = "quantize model.onnx --data samples.npz --metric sqnr -o b.onnx --report why.md"
    tight = answer(f"{line} --max-drop {loose['drop'] * 0.8:.12f}")

    assert tight["drop"] < loose["drop"]
    assert 0 < sum(x["quantized"] for x in tight["layers"]) < 3
    assert "## Each layer alone" in (folder / "why.md").read_text()


@pytest.mark.rest
def test_the_report_says_how_to_compile_what_takes_halves(folder: Path) -> None:
    line = "quantize model.onnx --data samples.npz --metric sqnr --max-drop 0 --precision bf16"
    found = alpenglow(f"{line} -o small.onnx")

    assert "on 8 samples, compiled with --precision bf16 --keep " in found.stdout
    assert "c stays in f32: quantized alone it leaves the results" in found.stdout
    found = alpenglow("quantize model.onnx --data samples.npz --metric sqnr --precision bf16 "
                      "--keep d --max-drop 0.00005 -o small.onnx")  # fmt: skip
    sentences = [s for s in found.stdout.splitlines() if ": quantized alone" in s]

    assert "d stays in f32: it is kept as it is, as asked." in found.stdout
    assert sentences and all(" takes bf16: " in s for s in sentences)


@pytest.mark.rest
def test_converted_placeholders_are_measured_on_the_samples_as_they_are(folder: Path) -> None:
    line = "quantize model.onnx --dim N=1 --data samples.npz --metric sqnr"
    plain = answer(f"{line} -o plain.onnx")
    told = answer(f"{line} --convert-placeholders -o small.onnx")
    session = onnxruntime.InferenceSession("small.onnx")

    assert plain["drop"] < told["drop"] < 0.01
    types = [x.type for x in (*session.get_inputs(), *session.get_outputs())]
    assert types == ["tensor(uint8)", "tensor(uint8)"]


def test_what_loses_nothing_says_so(folder: Path) -> None:
    line = "quantize model.onnx --data samples.npz --metric sqnr --keep conv,mat_mul"

    assert "0 of 3 layers are quantized; the outputs are those before" in alpenglow(
        f"{line} -o same.onnx").stdout  # fmt: skip


@pytest.mark.rest
def test_calibrating_on_some_samples_measures_on_the_others(folder: Path) -> None:
    told = answer("quantize model.onnx --data samples.npz --calibrate 3 -o a.onnx")

    assert told["samples"] == 5


@pytest.mark.rest
def test_other_names_get_the_text_of_the_graph(folder: Path) -> None:
    alpenglow("quantize model.onnx --dim N=1 --data samples.npz -o small.txt")
    text = (folder / "small.txt").read_text()

    assert text.startswith("# after: import\n") and " = quantize(" in text
    assert answer("run small.txt")["outputs"][0]["name"] == "scores"


MLIR = """func.func @main(%x: tensor<1x16xf32>) -> tensor<1x4xf32> {
  %w = stablehlo.constant dense<0.5> : tensor<16x4xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}"""


EXPONENTIAL = """# after: import
graph @main {
  input %x : f32[1,3,8,8]
  %y : f32[1,3,8,8] = matrix_exp(%x)
  output y = %y
}
"""


@pytest.mark.parametrize("ending", ["onnx", "ago", "txt"])
def test_a_model_of_another_format_is_written_as_each(folder: Path, ending: str) -> None:
    Path("model.mlir").write_text(MLIR)
    np.savez("rows.npz", x=np.linspace(-1, 1, 64, dtype=np.float32).reshape(4, 16))
    alpenglow(f"quantize model.mlir --data rows.npz -o small.{ending}")

    (told,) = answer(f"run small.{ending}")["outputs"]

    assert told["type"] == "f32[1,4]"


def test_what_cannot_be_written_is_refused_before_the_work(folder: Path) -> None:
    Path("graph.txt").write_text(EXPONENTIAL)
    found = alpenglow("quantize graph.txt --data samples.npz -o small.onnx", 2)

    assert "matrix_exp" in found.stderr and "try: -o small.ago" in found.stderr


def test_pictures_are_samples_and_their_folders_labels(folder: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        Path("pictures", name).mkdir(parents=True)
        image.new("RGB", (9, 7), (name == "cat" and "red") or "blue").save(f"pictures/{name}/0.png")
    found = answer("quantize model.onnx --data pictures --metric top1 -o small.txt")

    assert found["samples"] == 2
    wrong = alpenglow("profile-ranges model.onnx --dim N=2 --data pictures -o r.yaml", 2)
    assert "pictures are read for one input f32 or u8" in wrong.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--max-drop 1", "--max-drop is 1, expected a percentage, or a share below 1"),
        ("--max-drop 1", "try: --max-drop 1%"),
        ("--max-drop 200%", "--max-drop is 200%, expected a share, like 0.5% or 0.005"),
        ("--max-drop lots", "--max-drop is lots, expected a share"),
        ("--keep nothing", "keep names nothing, which is no value and no operator"),
        (
            "--precision bf16 --weights-only int8",
            "--precision bf16 is not supported with --weights-only",
        ),
        ("--group 4", "group is 4, expected 0, or a number of inputs with weights_only"),
        ("--calibrate 8", "count is 8, expected 1 to 7 of 8 samples"),
        ("--data none.npz", "expected a folder or file of samples"),
    ],
)
@pytest.mark.sampled(5)
def test_what_cannot_be_is_an_error(folder: Path, flags: str, message: str) -> None:
    data = "" if "--data" in flags else "--data samples.npz"

    assert message in alpenglow(f"quantize model.onnx {data} -o s.onnx {flags}", 2).stderr


def test_a_stage_past_the_import_cannot_be_profiled(folder: Path) -> None:
    alpenglow("show model.onnx --dim N=1 --after lower -o lowered.txt")
    found = alpenglow("profile-ranges lowered.txt --data samples.npz -o r.yaml", 2)

    assert "its values are no longer those of the model" in found.stderr

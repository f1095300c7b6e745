"""Real networks: what they answer, and how well they see.

Expected outputs are ONNX Runtime's.  A tolerance is relative to the largest element of an output.
"""

from __future__ import annotations

import csv
import gzip
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models
from alpenglow.debug import peer

sys.path.insert(0, str(models.ROOT / "tools"))

import model_inputs

Array = NDArray[Any]

pytestmark = pytest.mark.models

FLOAT = 1e-4
"""Sums in another order, through some fifty layers."""

TOLERANCE = {
    # One step of the output's quantization, as a fraction of the largest output.
    "squeezenet11_qdq": 0.2216 / 20.8,
    "squeezenet11_qlinear": 0.2216 / 20.8,
    # Two: ONNX Runtime computes its first layer in floats.  Of that 1 in 75 000 rounds the other
    # way, of the last of 53 layers every second.
    "style_predict_qdq": 2 * 0.0199 / 1.92,
    # Variances are quantized, and one step of a small one is many of 1/sqrt: differences in the
    # last bit of a sum grow to a tenth of the range.
    "style_transform_qdq": 0.25,
}

INTERPRETED = {
    # It takes logarithms of what is left where sums cancel, and NumPy sums in another order.
    "basic_pitch": 2e-3,
}

UNDETERMINED = "light_squeezenet"
"""All weights are one number, so that 1000 equal scores of 1e10 go into its softmax.  On some
processors NumPy's products round the last columns of a matrix otherwise than the first: of the
scores that is 1e-7, but e to the power of it is anything."""

HEAVY = (
    "vgg19", "zfnet512", "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50",
)  # fmt: skip
"""Networks that NumPy takes seconds for, each there with two kinds of weights."""


TWICE = (
    "seeded_vgg19", "seeded_zfnet512", "seeded_bvlc_alexnet", "seeded_densenet121",
    "seeded_inception_v2",
)  # fmt: skip
"""Large networks that are compiled with their light weights, too."""

SMALL = (
    "mnist8-0", "squeezenet11-0", "squeezenet11_qlinear-0", "espcn_x2_nn-0", "mtcnn_onet-1",
    "silero_vad_16k_op15-1", "silero_vad_half-0", "minilm_l6_int8w-1", "light_shufflenet-0",
    "style26-1",
)  # fmt: skip
"""One of each kind of network, and none that takes long: what `make test` runs."""


def on_cpu() -> list[Any]:
    return [
        pytest.param(name, k, marks=pytest.mark.slow if name in TWICE else ())
        for name, k in models.cases()
    ]


def on_interpreter() -> list[Any]:
    return [
        pytest.param(name, k, marks=pytest.mark.slow if name.endswith(HEAVY) else ())
        for name, k in models.cases()
        if name != UNDETERMINED
    ]


def check(name: str, number: int, target: str) -> None:
    feeds = models.inputs(name, number)
    shapes = {key: array.shape for key, array in feeds.items()}
    exe = ag.compile(models.model_path(name), target, shapes=shapes)

    outputs = exe.run(feeds)
    expected = models.reference(name, number)

    assert list(outputs) == [e.name for e in expected]
    known = TOLERANCE | INTERPRETED if target == "interpreter" else TOLERANCE
    for e, output in zip(expected, outputs.values(), strict=True):
        e.check(output, known.get(name, FLOAT))


@pytest.mark.parametrize(("name", "number"), on_cpu())
@pytest.mark.sampled(0, *SMALL)
def test_compiled_it_answers_like_onnx_runtime(name: str, number: int) -> None:
    check(name, number, "cpu")


@pytest.mark.parametrize(("name", "number"), on_interpreter())
@pytest.mark.sampled(0, *SMALL)
def test_interpreted_it_answers_like_onnx_runtime(name: str, number: int) -> None:
    check(name, number, "interpreter")


def test_interpreted_scores_are_those_of_onnx_runtime_where_their_softmax_is_undetermined() -> None:
    model = onnx.load(models.model_path(UNDETERMINED))
    softmax = model.graph.node.pop()
    model.graph.output[0].name = softmax.input[0]
    feeds = models.inputs(UNDETERMINED)
    (expected,) = peer.session(model.SerializeToString(), 1).run(feeds).values()

    (actual,) = ag.compile(model, "interpreter").run(feeds).values()

    assert softmax.op_type == "Softmax"
    assert np.abs(actual - expected).max() <= FLOAT * np.abs(expected).max()


@pytest.mark.parametrize("name", ["squeezenet11", "squeezenet11_qdq", "squeezenet11_qlinear"])
def test_a_classifier_finds_19_of_20_photographs_in_its_top_five(name: str) -> None:
    exe = ag.compile(models.model_path(name), shapes={"x": (1, 3, 227, 227)})
    pictures = sorted(models.data_path("imagenet").glob("*.jpg"))
    found = 0
    for picture in pictures:
        label = int(picture.stem.rpartition("_")[2])
        logits = exe(model_inputs.squeezenet_input(picture.read_bytes()))
        found += label in np.argsort(logits[0])[-5:]

    assert len(pictures) == 20
    assert found >= 19


def test_mnist8_reads_4968_of_5000_digits() -> None:
    exe = ag.compile(models.model_path("mnist8"), threads=1)
    with gzip.open(models.data_path("mnist_5k.csv.gz"), "rt") as file:
        rows = np.array([list(map(int, row)) for row in csv.reader(file)])
    digits, labels = rows[:, :-1].astype(np.float32), rows[:, -1]
    answers = [int(np.argmax(exe(d.reshape(1, 1, 28, 28)))) for d in digits]
    expected = 4968
    actual = int(np.sum(answers == labels))

    assert len(labels) == 5000
    assert expected == actual

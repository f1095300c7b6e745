"""Real models, quantized: what they answer, here and in ONNX Runtime."""

from __future__ import annotations

import csv
import gzip
import sys
from typing import Any

import numpy as np
import onnxruntime
import pytest

import alpenglow as ag
import models
from alpenglow.calibration import Dataset, tune
from alpenglow.frontends.onnx.export import export
from alpenglow.quant.calibrate import Calibration
from alpenglow.quant.plan import plan
from alpenglow.quant.schema import Schema
from peer_bytes import saturates

sys.path.insert(0, str(models.ROOT / "tools"))

import model_inputs

pytestmark = pytest.mark.models

SEEN = 200
"""Digits that ranges are taken from; the others are for measuring."""


@pytest.fixture(scope="module")
def digits() -> Dataset:
    with gzip.open(models.data_path("mnist_5k.csv.gz"), "rt") as file:
        rows = np.array([list(map(int, row)) for row in csv.reader(file)])
    pixels = rows[:, :-1].astype(np.float32).reshape(-1, 1, 1, 28, 28)
    return Dataset(len(rows), lambda i: {"Input3": pixels[i]}, rows[:, -1:])


@pytest.fixture(scope="module")
def reader() -> ag.Graph:
    return ag.load(models.model_path("mnist8"))


@pytest.fixture(scope="module")
def profile(reader: ag.Graph, digits: Dataset) -> ag.Profile:
    return ag.profile_ranges(reader, digits.parted(SEEN)[0])


STORED: list[tuple[Schema, Calibration]] = [
    ("asymmetric", "mse"), ("symmetric", "mse"), ("symmetric_uint8", "mse"),
    ("symmetric_power2", "mse"), ("asymmetric", "minmax"), ("asymmetric", "percentile"),
    ("asymmetric", "entropy"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "calibration"), STORED)
@pytest.mark.sampled(1)
def test_int8_reads_digits_within_a_tenth_of_a_point(
    reader: ag.Graph, profile: ag.Profile, digits: Dataset, schema: Schema, calibration: Calibration
) -> None:
    options = ag.QuantOptions(schema=schema, calibration=calibration)
    others = digits.parted(SEEN)[1]
    found = tune(reader, profile, others, options, metric="top1", max_drop=1.0, threads=1)

    assert len(others) == 4800
    assert len(found.plan.layers) == 3
    assert found.drop <= 0.001


def test_digits_are_read_alike_in_onnx_runtime(
    reader: ag.Graph, profile: ag.Profile, digits: Dataset
) -> None:
    model = export(models.model_path("mnist8"), plan(reader, profile, ag.QuantOptions())).model
    session = onnxruntime.InferenceSession(model.SerializeToString())
    exe = ag.compile(ag.quantize(reader, profile), threads=1)
    some = digits.first(500)
    expected = [int(session.run(None, dict(x))[0].argmax()) for x in some]
    actual = [int(exe.run(x)["Plus214_Output_0"].argmax()) for x in some]

    # A digit that is between two may fall either way by a single step.
    assert sum(a != b for a, b in zip(expected, actual, strict=True)) <= 1


@pytest.mark.rest
def test_a_classifier_of_photographs_finds_as_many_in_its_top_five() -> None:
    pictures = sorted(models.data_path("imagenet").glob("*.jpg"))
    xs = [model_inputs.squeezenet_input(p.read_bytes()) for p in pictures]
    labels = [int(p.stem.rpartition("_")[2]) for p in pictures]
    g = ag.load(models.model_path("squeezenet11"), {"x": (1, 3, 227, 227)})
    profile = ag.profile_ranges(g, xs)
    made = plan(g, profile, ag.QuantOptions())
    session = onnxruntime.InferenceSession(
        export(models.model_path("squeezenet11"), made).model.SerializeToString()
    )
    exe = ag.compile(ag.quantize(g, profile))

    def found(answers: list[Any]) -> int:
        return sum(n in np.argsort(a)[-5:] for n, a in zip(labels, answers, strict=True))

    assert len(made.layers) == 26
    assert found([exe(x)[0] for x in xs]) >= 19
    if not saturates():
        assert found([session.run(None, {"x": x})[0][0] for x in xs]) >= 19

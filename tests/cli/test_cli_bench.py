"""`alpenglow bench`: what it counts, how long it measures, and how it prints that."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import onnx
import pytest
from onnx import helper

from command import alpenglow, answer
from open_cases import model, weights

FLOP = 2 * 2 * 8 * 4
"""Of two rows of 8 features to 4."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with `model.onnx`, and a cache of its own."""
    product = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    onnx.save(model(product, {"x": ("N", 8)}, {"w": weights(8, 4)}), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_bench_measures_and_counts() -> None:
    found = answer("bench model.onnx --dim N=2 --calls 5 --threads 1")

    assert found["flop"] == FLOP
    times = found["seconds"]["alpenglow"]
    assert 0 < times["best"] <= times["p50"] <= times["p90"] <= times["p99"] <= times["worst"]
    assert found["calls"] == {"alpenglow": 5} and found["calls_per_second"]["alpenglow"] > 0
    assert 0 < found["share_of_peak"] < 1.5


def test_bench_measures_for_some_time_and_with_several_callers() -> None:
    bench = "bench model.onnx --dim N=2 --threads 1"
    found = answer(f"{bench} --seconds 0.05 --streams 2 --warmup 0")

    assert found["streams"] == 2
    assert found["calls"]["alpenglow"] > 50
    assert found["calls"]["alpenglow"] / found["calls_per_second"]["alpenglow"] >= 0.05


def test_bench_prints_a_line_for_each_runtime_as_csv() -> None:
    text = alpenglow("bench model.onnx --dim N=2 --threads 1 --calls 7 --csv").stdout
    (row,) = csv.DictReader(io.StringIO(text))

    assert (row["runtime"], row["calls"], row["flop"]) == ("alpenglow", "7", str(FLOP))
    assert (
        0 < float(row["best_seconds"]) <= float(row["p90_seconds"]) <= float(row["worst_seconds"])
    )


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--vs openvino", "bench/compare.py in a checkout"),
        ("--csv --json", "expected one of them"),
        ("--streams 2 --vs onnxruntime", "--vs with 2 streams"),
        ("--seconds 0", "--seconds"),
        ("--streams 0", "--streams"),
    ],
)
def test_bench_refuses_what_does_not_go_together(options: str, says: str) -> None:
    assert says in alpenglow(f"bench model.onnx --dim N=2 {options}", 2).stderr


def test_bench_measures_onnx_runtime_in_turn() -> None:
    found = answer("bench model.onnx --dim N=2 --calls 4 --threads 1 --vs onnxruntime")

    assert found["seconds"].keys() == {"alpenglow", "onnxruntime"}
    assert found["calls"] == {"alpenglow": 4, "onnxruntime": 4}
    assert 0 < found["ratios"]["onnxruntime"]["low"] <= found["ratios"]["onnxruntime"]["high"]


def test_bench_compares_models_of_onnx_only() -> None:
    alpenglow("compile model.onnx --dim N=2 -o model.ago")

    assert "expected an ONNX file" in alpenglow("bench model.ago --vs onnxruntime", 2).stderr

"""The random models of `tools/cliffs.py`: they are repeatable and valid; the page counts cliffs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import shape_inference

import alpenglow as ag
import models

sys.path.insert(0, str(models.ROOT / "tools"))

import cliff_measure
import cliff_page
import cliffs
from cliff_draw import FAMILIES, Case, draw

DRAWS = [(op, number) for op in FAMILIES for number in range(2)]


def row(op: str, ours: float, peer: float) -> cliff_page.Row:
    seconds = {"alpenglow": ours, "onnxruntime": peer}
    return {"case": f"{op} 0 seed 0 scale 1", "op": op, "text": f"{op}(x)", "seconds": seconds}


@pytest.mark.parametrize(("op", "number"), DRAWS, ids=lambda value: str(value))
@pytest.mark.sampled(8)
def test_a_draw_is_a_valid_model_that_compiles(op: str, number: int) -> None:
    case = draw(op, number, 5)
    model = case.model()
    if not case.domain:
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)

    results = ag.compile(model, threads=1).run(case.feeds)

    assert list(results) == [f"y{i}" for i in range(case.results)]


@pytest.mark.parametrize("op", ["MaxPool", "Gemm", "GatherND", "QLinearConv"])
def test_a_draw_is_the_same_for_a_seed_and_another_for_another(op: str) -> None:
    first, again, other = (draw(op, 3, seed) for seed in (1, 1, 2))

    assert first.model().SerializeToString() == again.model().SerializeToString()
    assert all(np.array_equal(first.feeds[n], again.feeds[n]) for n in first.feeds)
    assert str(first) != str(other)


def test_a_scale_enlarges_the_same_case() -> None:
    small, large = (draw("Relu", 0, 0, scale).operands[0] for scale in (1, 4))

    assert small is not None and large is not None
    assert small.ndim == large.ndim
    assert 2 < large.size / small.size < 9


def test_the_order_is_drawn_by_the_seed_and_numbers_each_operator() -> None:
    found = list(cliffs.order(300, 7))

    assert found == list(cliffs.order(300, 7)) != list(cliffs.order(300, 8))
    assert [n for op, n in found if op == "Conv"] == list(range(sum(o == "Conv" for o, _ in found)))


def test_a_name_of_a_case_is_read_and_another_is_refused() -> None:
    assert cliffs.parsed("MaxPool 17 seed 3 scale 4") == ("MaxPool", 17, 3, 4)
    assert cliffs.parsed("MaxPool 17 seed 3") == ("MaxPool", 17, 3, 1)
    with pytest.raises(SystemExit, match='expected "OPERATOR NUMBER seed SEED scale SCALE"'):
        cliffs.parsed("Nothing 17 seed 3")


def test_a_line_that_was_cut_off_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps(row("Conv", 1, 1)) + '\n{"case": "Co')

    assert [r["op"] for r in cliffs.done(file)] == ["Conv"]


def results(*values: float) -> list[np.ndarray]:
    return [np.array(values, np.float32)]


def differences() -> Iterator[tuple[str, Case, list[np.ndarray], list[np.ndarray], str]]:
    case = Case("Relu", tuple(results(0)))
    rounded = Case("QuantizeLinear", tuple(results(0)), ties=True)
    steps = np.arange(100, dtype=np.int8)
    yield "close", case, results(1, 2), results(1, 2.0001), ""
    yield "far", case, results(1, 2), results(1, 2.1), "result 0: differs by 1.00e-01"
    yield "nan", case, results(1, np.nan), results(1, 2), "result 0: 1 infinite or NaN, expected 0"
    yield "shape", case, results(1), results(1, 2), "result 0 has shape (1,), expected (2,)"
    yield "tie", rounded, [steps], [np.where(steps == 7, 8, steps)], ""
    yield "ties", rounded, [steps], [steps + 1], "result 0: 100 of 100 integers differ, by up to 1"
    yield "integer", case, [steps], [np.where(steps == 7, 8, steps)], "result 0: 1 of 100 integers"


@pytest.mark.parametrize(
    ("case", "ours", "wanted", "words"),
    [pytest.param(*rest, id=name) for name, *rest in differences()],
)
def test_results_that_differ_by_more_than_rounding_are_wrong(
    case: Case, ours: list[np.ndarray], wanted: list[np.ndarray], words: str
) -> None:
    actual = cliff_measure.difference(case, ours, wanted)

    assert actual.startswith(words)
    assert bool(actual) == bool(words)


def test_a_cliff_takes_twice_as_long_and_a_short_case_does_not_count() -> None:
    rows = [row("Conv", 250e-6, 100e-6), row("Relu", 50e-6, 100e-6), row("Abs", 9e-6, 3e-6)]

    page = cliff_page.page(rows)

    assert "| best peer | 2 | 0.89 | 50.0% |" in page
    assert "| Conv | 1 | 0.40 | 0.40 | 1 | 0.40 |" in page
    assert "Abs" not in page
    assert cliff_page.remarkable(rows[0]).startswith("  2.5x Conv 0 seed 0 scale 1: Conv(x)")
    assert cliff_page.remarkable(rows[1]) == ""


def test_a_wrong_result_a_foreign_exception_and_a_refusal_are_listed() -> None:
    kinds = ("wrong", "failed", "refused")
    rows = [row("Conv", 100e-6, 100e-6) | {kind: f"it is {kind}"} for kind in kinds]

    page = cliff_page.page(rows)

    assert "3 cases; 3 count; 1 wrong, 1 failed, 1 refused." in page
    assert all(f"- Conv 0 seed 0 scale 1: `Conv(x)`: it is {kind}" in page for kind in kinds)


def test_a_known_reason_is_given_by_operator_and_text() -> None:
    known, unknown = row("RotaryEmbedding", 300e-6, 100e-6), row("Conv", 300e-6, 100e-6)
    known["text"] = "RotaryEmbedding(float32[2,3,128,128], interleaved=1)"

    lines = cliff_page.page([known, unknown]).splitlines()

    cases = ("| RotaryEmbedding 0", "| Conv 0")
    assert [x.split(" | ")[-1] for x in lines if x.startswith(cases)] == [
        "halves are copied apart and together: five kernels |",
        "– |",
    ]

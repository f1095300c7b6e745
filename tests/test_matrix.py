"""A sample of the features by source of the model that `tools/matrix.py` runs: none is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import models
from alpenglow.base.errors import UnsupportedError

sys.path.insert(0, str(models.ROOT / "tools"))

import matrix


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, matrix.Cell]:
    folder: Path = tmp_path_factory.mktemp("matrix")
    return {
        f"{s.model.source}: {s.model.name}: {feature}": matrix.judged(s, feature)
        for s in matrix.subjects(True, folder)
        for feature in matrix.SAMPLE
    }


def test_no_feature_of_the_sample_is_wrong(cells: dict[str, matrix.Cell]) -> None:
    assert {k: c for k, c in cells.items() if c.kind not in ("right", "refused")} == {}


def test_a_model_that_depends_on_its_data_alone_is_refused(cells: dict[str, matrix.Cell]) -> None:
    refused = {k: c.words for k, c in cells.items() if c.kind == "refused"}

    features = ("profile-ranges", "quantize", "truncate")
    assert list(refused) == [f"ONNX: selection: {f}" for f in features]
    assert all("depends on its data" in w and "; try: " in w for w in refused.values())


def test_a_wrong_result_and_a_foreign_exception_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(subject: matrix.Subject) -> None:
        raise KeyError("x")

    def differing(subject: matrix.Subject) -> None:
        subject.check({n: x + 1 for n, x in subject.expected.items()})

    monkeypatch.setitem(matrix.VERBS, "raising", raising)
    monkeypatch.setitem(matrix.VERBS, "differing", differing)
    def silent(subject: matrix.Subject) -> None:
        raise UnsupportedError("no")

    monkeypatch.setitem(matrix.VERBS, "silent", silent)
    subject = next(matrix.subjects(True, tmp_path))

    assert matrix.judged(subject, "raising") == matrix.Cell("WRONG", "KeyError: 'x'")
    assert matrix.judged(subject, "differing").kind == "WRONG"
    assert matrix.judged(subject, "silent").words == "refused without a way round: no"


def test_the_page_counts_models_by_source_and_gives_each_reason_once() -> None:
    right, refused = matrix.Cell("right"), matrix.Cell("refused", "no; try: yes")
    nothing = matrix.Cell("n/a", "nothing to do")
    lines = matrix.page({
        "A": {"one": {"run": right, "keep": refused}, "two": {"run": right, "keep": right}},
        "B": {"one": {"run": nothing, "keep": refused}},
    }).splitlines()  # fmt: skip

    assert "| run | 2/2 | n/a |" in lines
    assert "| keep | 1/2 | 0/1 |" in lines
    assert "Of 5 applicable cells 3 are right (60 %), and 2 refused.  1 cells do not apply." in (
        " ".join(lines).replace("and 2", "and 2")
    )
    assert lines.count("- no; try: yes") == 1
    assert "  (A one, B one: keep)" in lines

"""A sample of the features by source of the model that `tools/matrix.py` runs: none is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import models

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


def test_no_feature_of_the_sample_is_wrong_or_refused(cells: dict[str, matrix.Cell]) -> None:
    assert {k: c for k, c in cells.items() if c.kind not in ("right", "n/a")} == {}


def test_what_does_not_apply_says_why(cells: dict[str, matrix.Cell]) -> None:
    assert {c.words for c in cells.values() if c.kind == "n/a"} == {"the graph depends on data"}


def test_a_wrong_result_and_a_foreign_exception_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raising(subject: matrix.Subject) -> None:
        raise KeyError("x")

    def differing(subject: matrix.Subject) -> None:
        subject.check({n: x + 1 for n, x in subject.expected.items()})

    monkeypatch.setitem(matrix.VERBS, "raising", raising)
    monkeypatch.setitem(matrix.VERBS, "differing", differing)
    subject = next(matrix.subjects(True, tmp_path))

    assert matrix.judged(subject, "raising") == matrix.Cell("WRONG", "KeyError: 'x'")
    assert matrix.judged(subject, "differing").kind == "WRONG"

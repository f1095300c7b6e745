"""Random programs equal LiteRT: a few of those that `fuzz.programs.hunt` draws for hours."""

from __future__ import annotations

import pytest
from tests.fuzz.programs.hunt import problems_of


def test_random_programs_equal_litert(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")  # results are compared anyway
    cases, problems = problems_of("tflite", range(20_000, 20_040))

    assert cases
    assert not problems, "\n".join(problems)

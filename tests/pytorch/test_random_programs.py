"""Random programs equal eager: a few of those that `fuzz.programs.hunt` draws for hours."""

from __future__ import annotations

import pytest
from tests.fuzz.programs.hunt import problems_of


def test_random_programs_equal_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")  # results are compared anyway
    cases, problems = problems_of("torch", range(20_000, 20_003))

    assert cases
    assert not problems, "\n".join(problems)

"""Random programs equal XLA: a few of those that `fuzz.programs.hunt` draws for hours."""

from __future__ import annotations

import pytest
from tests.fuzz.programs.hunt import problems_of


def test_random_programs_equal_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")  # results are compared anyway
    cases, problems = problems_of("jax", range(20_000, 20_008))

    assert cases
    assert not problems, "\n".join(problems)

"""A host of toys needs no core: there are as many as it wants, wherever tests run."""

from __future__ import annotations

import pytest

from alpenglow.base import cpus


@pytest.fixture(autouse=True)
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpus.allowed_cpus()[-1]
    monkeypatch.setattr(cpus, "granted_cpus", lambda: [here] * 16)

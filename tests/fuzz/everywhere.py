"""A plugin of pytest: whatever tests compile runs guarded (see `guarded`), in their process.

    PYTHONPATH=tests pytest -p fuzz.everywhere tests/runtime/test_executor.py

At the end stands how much that was.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .guarded import watching
from .trial import Tally

_TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()


@pytest.fixture(autouse=True)
def _guarded(request: pytest.FixtureRequest) -> Iterator[None]:
    with watching() as tally:
        yield
    request.config.stash[_TALLY].add(tally)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how much ran guarded in this process; those of pytest-xdist are others."""
    terminalreporter.write_line(f"guarded: {config.stash[_TALLY]}")

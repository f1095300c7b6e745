"""Options and fixtures that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite golden files with what is computed now"
    )


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile everything anew."""
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no compiled kernels but those that this session has made."""
    monkeypatch.setenv("ALPENGLOW_CACHE", str(session_folder))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was tried by tests that try as much as their time allows."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "tried":
                terminalreporter.write_line(f"{report.nodeid}: tried {value}")

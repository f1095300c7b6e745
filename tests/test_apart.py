"""Tests are kept apart from the sources, the installation and the home of who runs them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "unchanged.py"


def run(*args: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, args)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def unchanged(folder: Path, command: str) -> tuple[int, list[str]]:
    """Run shell commands in a folder that they may not change; return the status and the lines."""
    done = run(TOOL, folder, "--", "sh", "-c", f"cd {shlex.quote(str(folder))}; {command}")
    return done.returncode, [line.replace(f"{folder}/", "") for line in done.stderr.splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a", "deep/b", ".git/index", ".venv/times", "spared/.git"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("as it was\n")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("echo new > deep/c", "deep/c has come"),
        ("mkdir deep/empty", "deep/empty has come"),
        ("rm a", "a has gone"),
        ("echo as it was > deep/b", "deep/b was written"),
        ("printf x >> deep/b", "deep/b was written"),
        ("chmod 600 a", "a was written"),
        ("ln -sf elsewhere a", "a was written"),
        ("echo x > spared/.git", "spared/.git was written"),
    ],
)
def test_what_a_command_changes_is_named(folder: Path, command: str, says: str) -> None:
    status, said = unchanged(folder, command)

    assert status == 1
    assert said[0] == f"unchanged.py: {says}" and len(said) == 2


@pytest.mark.parametrize(
    "command",
    [
        "cat a deep/b",
        "touch .git/index; mkdir -p .pytest_cache; rm -f .venv/times",
        "touch x; rm x",
        "mkdir -p deep/__pycache__; touch deep/__pycache__/b.cpython-311.pyc",
    ],
)
def test_what_changes_nothing_exits_as_it_does(folder: Path, command: str) -> None:
    assert unchanged(folder, command) == (0, [])
    assert unchanged(folder, f"{command}; exit 5") == (5, [])


def test_a_failure_is_not_hidden_by_a_change(folder: Path) -> None:
    assert unchanged(folder, "rm a; exit 5")[0] == 5


def test_what_a_test_starts_writes_no_bytecode_and_sees_no_home(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1\n")
    code = "import module, pathlib, alpenglow.base.knobs as k; print(k.cache_folder())"
    done = run("-c", code, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, sys.path)]))

    assert done.stdout == f"{os.environ['HOME']}/.cache/alpenglow\n", done.stderr
    assert "alpenglow-home-" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["module.py"]

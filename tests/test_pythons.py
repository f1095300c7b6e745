"""tools/pythons.py finds what runs, and names what does not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import pythons


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose commands are those that a test writes into this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(pythons, "FOLDERS", ())
    monkeypatch.delenv("PYTHONS", raising=False)
    return tmp_path


def command(folder: Path, name: str, script: str) -> Path:
    """Write a command of the shell."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def says(version: str, executable: str = "/there/python", kind: str = "cpython") -> str:
    return f"""echo '["{kind}", [{version.replace(".", ", ")}], "{executable}"]'"""


def found() -> tuple[list[str], list[str]]:
    there, absent = pythons.find()
    return [p.name for p in there], absent


def test_each_version_is_found_once_and_the_rest_is_named(machine: Path) -> None:
    command(machine, "python3", says("3.12.4"))
    command(machine, "python3.12", says("3.12.4"))
    command(machine, "python3.11", says("3.11.2"))
    names, absent = found()

    assert names == ["3.11.2", "3.12.4"]
    assert absent == [f"3.{minor:<6} not found" for minor in (13, 14, 15)]


def test_a_command_that_does_not_run_is_named_with_the_reason(machine: Path) -> None:
    shim = command(machine, "python3.13", "echo 'pyenv: python3.13: no such command' >&2; exit 127")
    bare = command(machine, "python3.12", "echo 'ModuleNotFoundError: ensurepip' >&2; exit 1")
    other = command(machine, "python3.14", says("3.14.1", kind="pypy"))
    text = command(machine, "python3.15", "echo hello")
    names, absent = found()

    assert names == []
    assert absent[1:4] == [
        f"3.12     {bare}: does not run (ModuleNotFoundError: ensurepip)",
        f"3.13     {shim}: does not run (pyenv: python3.13: no such command)",
        f"3.14     {other}: is pypy 3.14.1",
    ]
    assert absent[4].startswith(f"3.15     {text}: does not run (")


def test_pyenv_is_told_which_version_is_meant(machine: Path) -> None:
    command(machine, "python3.13", f'[ "$PYENV_VERSION" = 3.13 ] && {says("3.13.0")}')

    assert found()[0] == ["3.13.0"]


def test_what_is_asked_for_by_name_comes_first_and_is_told_of(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(machine, "python3.12", says("3.12.4", "/on/path"))
    mine = command(machine, "mine", says("3.12.4", "/mine"))
    old = command(machine, "old", says("3.10.1"))
    monkeypatch.setenv("PYTHONS", f"{mine} {old} /no/such")
    there, absent = pythons.find()

    assert [p.executable for p in there] == ["/mine"]
    assert absent[-2:] == [
        f"{old}: is cpython 3.10.1",
        "/no/such: does not run ([Errno 2] No such file or directory: '/no/such')",
    ]


def test_the_other_python_is_the_systems_or_the_oldest(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here = ".".join(map(str, sys.version_info[:3]))
    command(machine, "python3", says(here))

    assert pythons.main(["other"]) == 1

    command(machine, "python3.14", says("3.14.9", "/newer"))
    command(machine, "python3.13", says("3.13.99", "/older"))

    assert pythons.main(["other"]) == 0

    monkeypatch.setattr(pythons, "SYSTEM", "/newer")

    assert pythons.main(["other"]) == 0
    assert capsys.readouterr().out == "/older\n/newer\n"


def test_make_runs_on_each_although_one_fails(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    command(machine, "python3.12", says("3.12.4", "/twelve"))
    command(machine, "python3.13", says("3.13.0", "/thirteen"))
    make = command(machine, "make", 'echo "$@"; [ "$2" = PYTHON=/thirteen ]')
    monkeypatch.setenv("MAKE", str(make))
    status = pythons.main(["each", "test"])
    lines = capfd.readouterr().out.splitlines()

    assert status == 1
    assert "test PYTHON=/twelve VENV=.venv/3.12.4" in lines
    assert "test PYTHON=/thirteen VENV=.venv/3.13.0" in lines
    assert lines[4].startswith("3.12.4   failed, status 1 in ")
    assert lines[5].startswith("3.13.0   passed in ")
    assert lines[6:] == [f"3.{minor:<6} not found" for minor in (11, 14, 15)]


def test_without_any_python_nothing_has_passed(machine: Path) -> None:
    assert os.listdir(machine) == []
    assert pythons.main(["each", "test"]) == 1

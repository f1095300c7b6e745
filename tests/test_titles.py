"""Titles of commits follow our guide to writing: `tools/titles.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from titles import faults, titles


def test_commits_have_titles_of_the_form() -> None:
    commits = titles()
    if commits is None:
        pytest.skip("this copy has no git history since the commit in tools/titles_since.txt")

    assert [(name, title, *faults(title)) for name, title in commits if any(faults(title))] == []


@pytest.mark.parametrize(
    "title",
    [
        "program/reorder: move instructions to lower peak memory",
        "docs, README: describe the arena",
        "tools: pass the seed to each worker",
        "program/reorder: move filter gradients earlier (ResNet-18 −12 % arena)",
    ],
)
def test_titles_of_the_form_have_no_fault(title: str) -> None:
    assert list(faults(title)) == []


@pytest.mark.parametrize(
    ("title", "fault"),
    [
        ("What waits for its readers moves out of the way", "'area: verb object'"),
        ("cpu: Shrink the thread pool", "'area: verb object'"),
        ("cpu: shrink", "'area: verb object'"),
        ("cpu: added a pool", "base form"),
        ("cpu: adding a pool", "base form"),
        ("cpu: adds a pool", "base form"),
        ("cpu: shrink the pool; grow the arena", "two commits"),
        ("cpu: shrink " + "the pool " * 8, "at most 72"),
    ],
)
def test_other_titles_are_faulty(title: str, fault: str) -> None:
    assert any(fault in found for found in faults(title))


def test_a_copy_without_history_is_not_checked(tmp_path: Path) -> None:
    assert titles(root=tmp_path) is None
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    assert titles(root=tmp_path) is None

"""Sentences and messages follow our guide to writing: `tools/riddles.py`, `tools/messages.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

from messages import incomplete
from riddles import RECORD, counts, riddles

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.rest
def test_no_file_has_more_riddles_than_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    recorded = {
        path: int(number)
        for number, path in (line.split() for line in RECORD.read_text().splitlines())
    }

    more = {path: n for path, n in counts().items() if n > recorded.get(path, 0)}

    assert not more, "python tools/riddles.py FILE lists them"


@pytest.mark.rest
def test_each_message_says_what_is_expected_or_what_to_try() -> None:
    lacking = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in incomplete(path)
    ]

    assert not lacking


@pytest.mark.parametrize(
    ("docstring", "number"),
    [
        ("Return the rows of `x`.", 0),
        ("Return what is computed of rows.", 1),
        ("What waits for its readers moves out of the way.", 1),
        ("A page.\n\nWhere an axis is dynamic, code is compiled anew.", 1),
        ("Copy the weights, but for those of the last layer.", 2),
    ],
)
def test_riddles_are_counted(tmp_path: Path, docstring: str, number: int) -> None:
    file = tmp_path / "module.py"
    file.write_text(f'"""{docstring}"""\n')

    assert len(riddles(file)) == number

"""docs/errors.md: each class has code that raises it and code that runs.

``pytest --bless tests/test_errors_page.py`` rewrites the messages on the page.  They are not
compared: the tests of the place that raises an error compare its message.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from alpenglow.base import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"
HEAD, *SECTIONS = re.split(r"^## (?=\w+Error$)", PAGE.read_text(), flags=re.MULTILINE)
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.MULTILINE | re.DOTALL)
PAIRS = {s.partition("\n")[0]: [m[1] for m in BLOCK.finditer(s)] for s in SECTIONS}


def run(code: str, scope: dict[str, Any]) -> None:
    exec(compile(code, str(PAGE), "exec"), scope)


def test_the_root_catches_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path))
    scope: dict[str, Any] = {}
    for block in (*BLOCK.findall(HEAD), *PAIRS["AlpenglowError"]):
        run(block, scope)  # It prints what it catches.


def test_the_page_has_each_class() -> None:
    classes = {
        name
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.AlpenglowError)
    }

    assert classes == PAIRS.keys()


@pytest.mark.parametrize("name", [n for n in PAIRS if n != "AlpenglowError"])
def test_the_first_block_raises_the_class_and_the_second_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bless: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    wrong, right = PAIRS[name]
    scope: dict[str, Any] = {}
    [setup] = BLOCK.findall(HEAD)
    run(setup, scope)

    with pytest.raises(errors.AlpenglowError) as raised:
        run(wrong, scope)
    run(right, scope)

    assert type(raised.value) is getattr(errors, name)
    if bless:
        text = PAGE.read_text()
        said = f"{name}: {raised.value}"
        block = f"```python\n{wrong}```\n"
        before, _, after = text.partition(block)
        after = re.sub(r"\A\n```text\n.*?^```\n", "", after, flags=re.MULTILINE | re.DOTALL)
        PAGE.write_text(f"{before}{block}\n```text\n{said}\n```\n{after}")

"""Examples run and print the text that is stored with them: `NAME.txt`, or cells' outputs.

``pytest --bless tests/examples/test_scripts.py`` stores what they print.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from example_runs import VARIES, code_cells

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("notebooks/*.ipynb"))

FRACTION = re.compile(r"[-+]?\d+\.\d*(?:e[-+]?\d+)?")
"""Numbers with a point are compared with a tolerance, because targets round differently."""


def run(path: Path, folder: Path) -> list[str]:
    """Return the text that each cell prints, run in a process of its own in `folder`."""
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("example_runs.py"), path],
        cwd=folder,
        env={**os.environ, "ALPENGLOW_CACHE": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed: list[str] = json.loads(done.stdout)
    return printed


def assert_alike(expected: str, actual: str) -> None:
    """Assert that texts are equal, except for last digits of numbers and spaces around them."""

    def words(text: str) -> list[str]:
        return FRACTION.sub("#", text).replace("[", " [ ").replace("]", " ] ").split()

    numbers = [[float(x) for x in FRACTION.findall(text)] for text in (expected, actual)]

    assert words(expected) == words(actual)
    assert numbers[1] == pytest.approx(numbers[0], rel=0.02, abs=0.002)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.sampled(0, "compile_onnx", "own_operator_and_pass")
def test_a_script_prints_the_stored_text(path: Path, tmp_path: Path, bless: bool) -> None:
    [actual] = run(path, tmp_path)
    stored = path.with_suffix(".txt")
    if bless:
        stored.write_text(actual)

    assert_alike(stored.read_text(), actual)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.sampled(0, "compile_and_inspect")
def test_a_notebook_prints_the_stored_outputs(path: Path, tmp_path: Path, bless: bool) -> None:
    notebook = json.loads(path.read_text())
    cells = code_cells(notebook)
    outputs = run(path, tmp_path)
    if bless:
        for number, (cell, text) in enumerate(zip(cells, outputs, strict=True), 1):
            stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}
            cell["outputs"] = [stream] if text else []
            cell["execution_count"] = number
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")

    for cell, actual in zip(cells, outputs, strict=True):
        if VARIES not in cell["metadata"].get("tags", ()):
            assert_alike("".join("".join(o["text"]) for o in cell["outputs"]), actual)


def test_each_example_is_listed_with_its_stored_output() -> None:
    page = (EXAMPLES / "README.md").read_text()
    names = [str(p.relative_to(EXAMPLES)) for p in (*SCRIPTS, *NOTEBOOKS)]

    assert [name for name in names if f"]({name})" not in page] == []
    assert [p.name for p in SCRIPTS if len(p.read_text().splitlines()) > 60] == []
    assert [p.name for p in SCRIPTS if not p.with_suffix(".txt").exists()] == []


def test_numbers_and_words_are_compared() -> None:
    assert_alike("a [ 1.50 2. ]", "a [1.501 2.  ]")
    with pytest.raises(AssertionError):
        assert_alike("a 1.5", "a 1.6")
    with pytest.raises(AssertionError):
        assert_alike("a 1", "a 2")

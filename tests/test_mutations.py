"""tools/mutations.py draws mistakes, and tools/test_costs.py counts which test files find them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import functions
import mutations
import record
import test_costs
from test_costs import Outcome

TEXT = '''
"""A module."""
LIMIT = 3

def low(x, seen):
    """Return 1."""
    seen.append("é" + f"{x}")
    x += 1
    return (x *
            2 < LIMIT)

class Box:
    def side(self, y):
        return y if y - 1 else 7
'''


def texts(source: str) -> set[str]:
    places = mutations.mutations(source, Path("module.py"))
    return {m.what.replace("`", "") for m in places}


def test_a_mutation_is_of_one_expression_or_statement_inside_a_function() -> None:
    assert texts(TEXT) == {
        'seen.append("é" + f"{x}") is pass', "x += 1 is pass", "1 is 2", "2 is 3", "7 is 8",
        "x * 2 is (x + 2)", "x * 2 < LIMIT is (x * 2 <= LIMIT)", "y - 1 is (y + 1)",
        "y if y - 1 else 7 is (7 if y - 1 else y)",
    }  # fmt: skip


def test_a_mutation_leaves_all_else_as_it_is() -> None:
    before = ast.dump(ast.parse(TEXT))

    for mutation in mutations.mutations(TEXT, Path("module.py")):
        tree = ast.parse(mutation.text)
        assert ast.dump(tree) != before
        assert [f.name for f in functions.functions(tree)] == ["low", "Box.side"]


def test_a_seed_draws_the_same_mutations() -> None:
    assert mutations.drawn(2, 5) == mutations.drawn(2, 5) != mutations.drawn(2, 6)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A module and its tests, one of which fails always."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "toy.py").write_text("def half(x):\n    return x // 2\n")
    (tmp_path / "test_toy.py").write_text(
        "from toy import half\n"
        "def test_half(): assert half(6) == 3\n"
        "def test_other(): assert 1\n"
        "def test_wrong(): assert half(6) == 4\n"
    )
    return tmp_path


@pytest.mark.parametrize(
    ("new", "found"),
    [
        ("return x // 3", ["test_half"]),
        ("return x // 2 + 0", []),
        ("import os; os._exit(0)", ["test_half"]),
    ],
)
def test_a_test_finds_what_it_fails_with_and_passes_without(
    folder: Path, new: str, found: list[str]
) -> None:
    tests = [f"test_toy.py::{name}" for name in ("test_other", "test_wrong", "test_half")]
    tests = tests[2:] if "_exit" in new else tests
    mutation = {"file": "src/toy.py", "line": 2, "kind": "k", "what": new, "reached": 3,
                "text": f"def half(x):\n    {new}\n", "tests": tests}  # fmt: skip
    out = folder / "outcomes"
    asked = {"out": str(out), "seconds": 20, "until": time.time() + 90, "mutations": [mutation]}
    (folder / "mutating.json").write_text(json.dumps(asked))
    paths = [str(record.RECORDING), str(folder / "src"), *filter(None, sys.path)]
    environment = {"MUTATING": str(folder / "mutating.json"), "PYTHONPATH": os.pathsep.join(paths)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "mutating", "-p", "no:cacheprovider"],
        cwd=folder, env={**os.environ, **environment}, timeout=100, check=False,
    )  # fmt: skip

    (outcome,) = test_costs.read(out)
    assert [t.partition("::")[2] for t in outcome.found] == found
    assert sorted(outcome.ran) == sorted(tests)


def test_the_page_counts_what_a_file_finds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_costs, "TRIED", 2)
    cost = {"tests/a.py": (3, 30.0), "tests/b.py": (1, 20.0), "tests/c.py": (1, 50.0)}
    both, alone = ("tests/a.py::x", "tests/b.py::y"), ("tests/a.py::x", "tests/a.py::z")
    outcomes = [Outcome("src/alpenglow/m.py", n, "constant", f"mistake {n}", 9, both, found)
                for n, found in enumerate([both, alone, ()])]  # fmt: skip

    page = test_costs.text(cost, outcomes).splitlines()

    assert "| `tests/a.py` | 3 | 30.0 | 3 | 2 | 1 |" in page
    assert "| `tests/b.py` | 1 | 20.0 | 3 | 1 | 0 |" in page
    assert "| `tests/c.py` | 1 | 50.0 | 0 | 0 | 0 |" in page
    assert [line for line in page if line.startswith("| `tests/b.py` | 20.0")]
    others = ("| `tests/a.py` | 30.0", "| `tests/c.py` | 50.0")
    assert not [line for line in page if line.startswith(others)]
    assert any("Files that are candidates: 1, which take 20 s, 20% of" in line for line in page)
    assert any("are not judged: 1." in line for line in page)
    assert "| all | 3 | 3 | 2 | 1 |" in page
    assert "| `m.py:2` | mistake 2 | 9 | 2 |" in page


def test_without_a_file_there_are_no_outcomes(tmp_path: Path) -> None:
    assert test_costs.read(tmp_path / "outcomes") == []


def test_costs_are_those_of_a_report(tmp_path: Path) -> None:
    (tmp_path / "report.xml").write_text(
        '<testsuites><testsuite><testcase file="tests/a.py" name="x" time="1.5" />'
        '<testcase file="tests/a.py" name="y" time="2" /></testsuite></testsuites>'
    )

    assert test_costs.costs(tmp_path / "report.xml") == {"tests/a.py": (2, 3.5)}

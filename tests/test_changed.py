"""tools/record.py notes what tests execute, and tools/changed.py chooses the tests of a change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))

import changed
import changes
import functions
import record
from import_graph import Graph

ROOT = Path(__file__).resolve().parent.parent

A = """
LIMIT = 3
TABLE = {"limit": LIMIT}

class Box:
    size: int = 1

    def area(self):
        return self.size

def low(x):
    def inside():
        return x
    return inside() < TABLE["limit"]

def high(x):
    return x > 9
"""

B = """
from alpenglow.a import LIMIT

def bounded(x):
    return x < LIMIT

def other(x):
    return x
"""

FILES = {
    "src/alpenglow/__init__.py": "",
    "src/alpenglow/__main__.py": "",
    "src/alpenglow/a.py": A,
    "src/alpenglow/ops/__init__.py": "",
    "src/alpenglow/ops/b.py": B,
    "tests/test_a.py": "from alpenglow import a\n",
    "tests/ops/test_b.py": "def test_b():\n    from alpenglow.ops import b\n",
    "tests/test_helped.py": "import helper\n",
    "tests/helper.py": "from importlib import import_module\nimport_module('alpenglow.ops.b')\n",
    "tests/test_docs.py": "",
    "tests/test_imports.py": "",
    "tests/test_page.py": "PAGE = 'docs/page.md'\n",
    "docs/page.md": "",
}


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a package of two files, with tests, at its first commit."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> None:
    name = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *name, *words], cwd=folder, check=True, timeout=60)


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a commit")


def replaced(folder: Path, file: str, old: str, new: str) -> set[str]:
    """Replace a text in a file; return the functions that this changes, without `src/alpenglow`."""
    path = folder / file
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    change = changes.changes(folder, "HEAD", Graph(folder))
    assert change.files == [file]
    return {name.removeprefix("src/alpenglow/") for name in change.functions}


@pytest.mark.parametrize(
    ("old", "new", "names"),
    [
        ("return x > 9", "return x > 9  # more", set()),
        ("return x > 9", "return x >= 9", {"a.py:high"}),
        ("return x\n", "return -x\n", {"a.py:low.inside"}),
        ("size: int = 1", "size: int = 2", {"a.py:Box.area"}),
        ("LIMIT = 3", "LIMIT = 4", {"a.py:low", "ops/b.py:bounded"}),
        ("def high(x):", "def top(x):", {"a.py:high", "a.py:top"}),
    ],
)
def test_a_difference_changes_the_functions_that_see_it(
    clone: Path, old: str, new: str, names: set[str]
) -> None:
    assert replaced(clone, "src/alpenglow/a.py", old, new) == names


def test_differences_are_those_from_the_last_commit_else_from_the_one_before(clone: Path) -> None:
    (clone / "tests/test_new.py").write_text("")
    assert changes.default_base(clone) == "HEAD"
    assert changes.changed_files(clone, "HEAD") == ["tests/test_new.py"]

    commit(clone)
    assert changes.default_base(clone) == "HEAD~1"
    assert changes.changed_files(clone, "HEAD~1") == ["tests/test_new.py"]


def test_differences_are_those_from_the_merge_base_of_a_branch(clone: Path) -> None:
    git(clone, "update-ref", "refs/remotes/origin/main", "HEAD")
    for name in ("one", "two"):
        (clone / name).write_text("")
        commit(clone)

    assert changes.changed_files(clone, changes.default_base(clone)) == ["one", "two"]


def test_imports_in_functions_and_names_in_strings_count(clone: Path) -> None:
    reached = Graph(clone).reaching(["src/alpenglow/ops/b.py"])

    assert {f for f in reached if f.startswith("tests/")} == {
        "tests/helper.py", "tests/ops/test_b.py", "tests/test_helped.py"
    }  # fmt: skip


def test_imports_are_kept_until_a_file_is_written(clone: Path) -> None:
    cache = clone / "cache" / "imports.json"
    before = Graph(clone, cache).imports["tests/test_a.py"]
    assert Graph(clone, cache).imports["tests/test_a.py"] == before

    (clone / "tests/test_a.py").write_text("import helper\n")
    assert Graph(clone, cache).imports["tests/test_a.py"] == {"tests/helper.py"}


def test_marked_code_marks_what_is_called_and_keeps_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(A)
    code, names = functions.marked(path, first=2)
    space = {"__reached__": bytearray(2 + len(names)), "__name__": "a"}
    exec(code, space)
    assert not any(space["__reached__"])

    space["low"](1)

    reached = [names[n - 2] for n, mark in enumerate(space["__reached__"]) if mark]
    assert reached == ["low", "low.inside"]
    assert space["low"].__code__.co_firstlineno == A[: A.index("def low")].count("\n") + 1


def toy(rows: dict[str, list[int]], unseen: tuple[str, ...] = ()) -> record.Record:
    """Return a record of tests that take one second each, and of eleven functions."""
    names = [f"src/alpenglow/a.py:f{n}" for n in range(11)]
    return record.gathered(names, [(t, 1.0, int(t in unseen), row) for t, row in rows.items()])


def planned(
    seen: record.Record | None, clone: Path, *names: str, seconds: float = 100.0
) -> changed.Plan:
    change = changes.Changes(["src/alpenglow/a.py"], {f"src/alpenglow/a.py:{n}" for n in names})
    return changed.planned(change, Graph(clone), seen, seconds)


def test_a_record_reads_back(tmp_path: Path) -> None:
    seen = toy({"t.py::a": [0, 9], "t.py::b": []}, unseen=("t.py::b",))
    seen.save(tmp_path / "deep" / "record.npz")
    read = record.load(tmp_path / "deep" / "record.npz")

    assert (read.functions, read.tests) == (seen.functions, seen.tests)
    assert [list(read.reaching(n)) for n in (0, 1, 9)] == [
        [True, False], [False, False], [True, False]
    ]  # fmt: skip
    assert list(read.unseen) == [False, True]


def test_tests_that_execute_a_change_run_and_no_others(clone: Path) -> None:
    seen = toy({"tests/test_a.py::x": [1], "tests/test_a.py::y": [2], "tests/test_a.py": [1]})

    assert planned(seen, clone, "f1").tests == ["tests/test_a.py::x"]


def test_tests_that_start_processes_out_of_sight_run_always(clone: Path) -> None:
    seen = toy({"tests/test_a.py::x": [1], "tests/test_a.py::y": []}, ("tests/test_a.py::y",))

    assert set(planned(seen, clone, "f1").tests) == {"tests/test_a.py::x", "tests/test_a.py::y"}


def test_what_few_tests_execute_comes_first_then_one_case_of_each_test(clone: Path) -> None:
    many = {f"tests/test_a.py::x[{n}]": [1] for n in range(4)}
    seen = toy({**many, "tests/test_a.py::y": [1], "tests/test_a.py::rare": [2]})

    tests = [t.partition("::")[2] for t in planned(seen, clone, "f1", "f2").tests]

    assert tests[0] == "rare"
    assert {t.partition("[")[0] for t in tests[1:3]} == {"x", "y"}


def test_what_does_not_fit_is_counted(clone: Path) -> None:
    plan = planned(toy({f"tests/test_a.py::x{n}": [1] for n in range(10)}), clone, "f1", seconds=4)

    assert len(plan.tests) == 4
    assert "10 of 10 recorded tests" in plan.notes[-1]
    assert "4 chosen (4 s of cores), 6 left out" in plan.notes[-1]


def test_a_function_that_no_test_executes_is_named_and_its_file_taken(clone: Path) -> None:
    plan = planned(toy({"tests/test_a.py::x": [1]}), clone, "f3")

    assert "no recorded test executes src/alpenglow/a.py:f3" in plan.notes[0]
    assert plan.tests == ["tests/test_a.py::x"]


def test_without_a_record_the_nearest_importers_run_first(clone: Path) -> None:
    change = changes.Changes(["src/alpenglow/ops/b.py"], {"src/alpenglow/ops/b.py:other"})
    plan = changed.planned(change, Graph(clone), None, 100.0)

    assert "no record" in plan.notes[0]
    assert plan.order()[:2] == ["tests/ops/test_b.py", "tests/test_helped.py"]


@pytest.mark.parametrize(
    ("file", "readers"),
    [
        ("docs/page.md", ["tests/test_docs.py", "tests/test_page.py"]),
        ("tests/helper.py", ["tests/test_helped.py"]),
        ("README.md", ["tests/test_docs.py"]),
    ],
)
def test_other_files_choose_their_readers(clone: Path, file: str, readers: list[str]) -> None:
    assert sorted(set(changed.readers_of([file], Graph(clone)))) == readers


def test_test_files_whose_package_is_absent_are_not_chosen(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "ROOT", clone)
    monkeypatch.setattr(changed, "_ignored", lambda: (str(clone / "tests" / "ops"),))
    change = changes.Changes(["src/alpenglow/ops/b.py"])

    assert changed.planned(change, Graph(clone), None, 100.0).order() == [
        "tests/test_helped.py", "tests/test_imports.py"
    ]  # fmt: skip


def test_every_reader_that_the_table_names_is_there() -> None:
    assert [r for rs in changed.READERS.values() for r in rs if not (ROOT / r).exists()] == []


def run(folder: Path, plugin: str, **environment: str) -> str:
    paths = [str(record.RECORDING), *filter(None, sys.path)]
    command = [sys.executable, "-m", "pytest", "-p", plugin, "-p", "no:cacheprovider", "-v", "-rs"]
    done = subprocess.run(
        [*command, "test_here.py"], cwd=folder, capture_output=True, text=True, timeout=100,
        env={**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("seconds", [1000, -1])
def test_what_is_chosen_runs_in_order_until_the_time_is_over(tmp_path: Path, seconds: int) -> None:
    (tmp_path / "test_here.py").write_text(
        "import pytest\n"
        "def test_a(): pass\n"
        "def test_b(): pass\n"
        "@pytest.mark.parametrize('n', [0, 1, 2])\n"
        "def test_c(n): pass\n"
    )
    order = ["test_here.py::test_c[1]", "test_here.py::test_a"]
    chosen = {"order": order, "known": [*order, "test_here.py::test_c[0]"],
              "functions": ["test_here.py::test_c"], "until": time.time() + seconds}  # fmt: skip
    (tmp_path / "chosen.json").write_text(json.dumps(chosen))

    lines = run(tmp_path, "chosen", CHOSEN=str(tmp_path / "chosen.json")).splitlines()

    ran = [line.split()[0] for line in lines if line.startswith("test_here.py::")]
    assert ran == [*order, "test_here.py::test_c[2]"]
    assert any("3 passed" in line for line in lines) == (seconds > 0)
    assert any("[3]" in line and "the time is over" in line for line in lines) == (seconds < 0)


def test_what_a_test_and_its_processes_execute_is_recorded(tmp_path: Path) -> None:
    path = functions.PACKAGE / "base" / "cpus.py"
    names = record.mark(tmp_path, [path])
    (tmp_path / "test_here.py").write_text(
        "import os, subprocess, sys\n"
        "CODE = 'from alpenglow.base.cpus import allowed_cpus; allowed_cpus()'\n"
        "def test_none(): pass\n"
        "def test_own(): exec(CODE)\n"
        "def test_child(): subprocess.run([sys.executable, '-c', CODE], check=True)\n"
        "def test_hidden(): subprocess.run([sys.executable, '-c', ''], check=True, env={})\n"
    )

    assert "4 passed" in run(tmp_path, "reached", REACHED_FOLDER=str(tmp_path))

    seen = record.gathered(names, record.lines(tmp_path))
    allowed = seen.reaching(seen.numbers["src/alpenglow/base/cpus.py:allowed_cpus"])
    tests = [name.partition("::")[2] for name in seen.tests]
    assert {t for t, there in zip(tests, allowed, strict=True) if there} == {
        "test_own", "test_child"
    }  # fmt: skip
    assert {t for t, out in zip(tests, seen.unseen, strict=True) if out} == {"test_hidden"}

"""Plugin of pytest: write for each test the functions that it executes, and its seconds of cores.

Each process writes lines of JSON to a file of its own: `[test, seconds, unseen, functions]`.
`unseen` is 1 if the test started a Python process that marks nothing.  Functions that run while a
test file is imported are written under the name of the file.  Those of a fixture that tests share
count for each test that asks for a fixture of this name.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import marking
import pytest

Wrapper = Generator[None, Any, Any]

FOLDER = Path(os.environ["REACHED_FOLDER"])
HITS = FOLDER / f"hits-{os.getpid()}"
HITS.write_bytes(bytes(int((FOLDER / "size").read_text())))
os.environ["REACHED_HITS"] = str(HITS)
if marking.Finder not in sys.meta_path:
    marking.install()

_unseen: list[str] = []
_shared: dict[str, set[int]] = {}


def _take() -> set[int]:
    """Return the functions that are marked, and unmark them."""
    marks = marking.hits()
    there = marks[:]
    if 1 not in there:
        return set()
    marks[:] = bytes(len(there))
    found, at = set(), there.find(1)
    while at >= 0:
        found.add(at)
        at = there.find(1, at + 1)
    return found


def _put(reached: set[int]) -> None:
    marks = marking.hits()
    for number in reached:
        marks[number] = 1


def _write(name: str, seconds: float, unseen: bool, reached: set[int]) -> None:
    with (FOLDER / f"lines-{os.getpid()}").open("a", encoding="utf-8") as lines:
        print(json.dumps([name, round(seconds, 4), int(unseen), sorted(reached)]), file=lines)


def _watch(event: str, details: tuple[Any, ...]) -> None:
    """Note a Python process whose environment does not let it mark."""
    if event == "subprocess.Popen":
        executable, _, _, environment = details
        if "python" in os.path.basename(os.fspath(executable)) and environment is not None:
            path = str(environment.get("PYTHONPATH", ""))
            if "REACHED_HITS" not in environment or str(Path(__file__).parent) not in path:
                _unseen.append(os.fspath(executable))


sys.addaudithook(_watch)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Wrapper:
    """Write the functions that the import of a test file executes."""
    _take()
    report: Any = yield
    if isinstance(collector, pytest.Module):
        _write(collector.nodeid, 0.0, False, _take())
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Wrapper:
    """Keep the functions of fixtures that several tests share."""
    if fixturedef.scope == "function":
        return (yield)
    before = _take()
    result: Any = yield
    _shared.setdefault(fixturedef.argname, set()).update(_take())
    _put(before)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Wrapper:
    """Write the functions that a test executes, from the set-up to the tear-down."""
    _take()
    _unseen.clear()
    before = sum(os.times()[:4])
    result: Any = yield
    reached = _take().union(*(_shared.get(name, ()) for name in item.fixturenames))
    _write(item.nodeid, sum(os.times()[:4]) - before, bool(_unseen), reached)
    return result

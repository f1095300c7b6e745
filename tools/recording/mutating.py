"""Plugin of pytest: run chosen tests once for each of several mutations, each in a fork.

The parent collects all tests once.  A child replaces the code of the functions that a mutation
changes, runs the chosen tests until its time is over, and writes `[test, outcome]` lines.  Tests
that fail run again in a child without the mutation; those that fail there, too, do not count.  The
processes that a test starts do not have the mutation.

MUTATING is a file of JSON: `out`, the file for the outcomes; `seconds` of a mutation; `until`, the
time from which on none begins; and `mutations`, each with `file`, `text`, `tests`, and what is
copied to the outcome.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

ASKED = json.loads(Path(os.environ["MUTATING"]).read_text(encoding="utf-8"))
WANTED = frozenset(t for mutation in ASKED["mutations"] for t in mutation["tests"])

HANGS = 15.0
"""Seconds after which a test that has not ended fails."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in WANTED])
    items[:] = [item for item in items if item.nodeid in WANTED]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Run the tests of each mutation, and write a line of JSON for it."""
    items = {item.nodeid: item for item in session.items}
    with open(ASKED["out"], "a", encoding="utf-8") as out:
        for number, mutation in enumerate(ASKED["mutations"]):
            if time.time() > ASKED["until"]:
                break
            tests = [items[name] for name in mutation["tests"] if name in items]
            outcomes = _forked(tests, mutation, ASKED["seconds"])
            failed = [t for t in tests if outcomes.get(t.nodeid) == "failed"]
            sound = _forked(failed, None, ASKED["seconds"]) if failed else {}
            found = [t.nodeid for t in failed if sound.get(t.nodeid) == "passed"]
            told = {name: mutation[name] for name in ("file", "line", "kind", "what", "reached")}
            print(json.dumps({**told, "ran": [*outcomes], "found": found}), file=out, flush=True)
            print(f"{number}: {told['file']}:{told['line']}: {told['what']}: "
                  f"{len(found)} of {len(outcomes)}", flush=True)  # fmt: skip
    return True


def _forked(tests: list[pytest.Item], mutation: Any, seconds: float) -> dict[str, str]:
    """Run tests in a child; return their outcomes.

    A test failed if the child dies in it, or if it runs for more than HANGS seconds at the end.
    """
    with tempfile.TemporaryDirectory() as home:
        lines = Path(home, "lines")
        lines.touch()
        child = os.fork()
        if child == 0:
            try:
                os.setpgid(0, 0)
                _child(tests, mutation, lines, home, time.time() + seconds)
            finally:
                os._exit(0)
        late = _waited(child, seconds + 5)
        events = [json.loads(line) for line in lines.read_text().splitlines()]
    outcomes = {name: outcome for name, outcome, _ in events if outcome != "begun"}
    if events and events[-1][1] == "begun" and (not late or time.time() - events[-1][2] > HANGS):
        outcomes[events[-1][0]] = "failed"
    return outcomes


def _waited(child: int, seconds: float) -> bool:
    """Wait for a child; kill its group if it takes longer, and return True."""
    end = time.time() + seconds
    while time.time() < end:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def _child(tests: list[pytest.Item], mutation: Any, lines: Path, home: str, end: float) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    os.environ["HOME"] = home
    tempfile.tempdir = home
    if mutation is not None:
        patch(mutation["file"], mutation["text"])
    with lines.open("a", encoding="utf-8") as out:
        for k, item in enumerate(tests):
            if time.time() > end:
                return
            print(json.dumps([item.nodeid, "begun", time.time()]), file=out, flush=True)
            outcome = _outcome(item, tests[k + 1] if k + 1 < len(tests) else None)
            print(json.dumps([item.nodeid, outcome, 0.0]), file=out, flush=True)


def _outcome(item: pytest.Item, following: pytest.Item | None) -> str:
    seen: list[str] = []

    class Listener:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            seen.append(report.outcome)

    plugins = item.config.pluginmanager
    listener = Listener()
    plugins.register(listener)
    item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
    plugins.unregister(listener)
    return "failed" if "failed" in seen else "skipped" if "skipped" in seen else "passed"


def patch(file: str, text: str) -> int:
    """Give the live functions of a file the code of another text; return how many differ.

    Functions are found by name and by their place among equal names, which no mutation changes.
    """
    path = os.path.abspath(file)
    name = os.path.splitext(file.removeprefix("src/"))[0].replace("/", ".")
    import_module(name.removesuffix(".__init__"))
    with open(path, encoding="utf-8") as source:
        old = _codes(compile(source.read(), path, "exec", dont_inherit=True))
    new = _codes(compile(text, path, "exec", dont_inherit=True))
    assert old.keys() == new.keys(), f"{file}: a mutation renames a function"
    lines = {(code.co_qualname, code.co_firstlineno): key for key, code in old.items()}
    changed = {key for key in old if not _same(old[key], new[key])}
    for value in gc.get_objects():
        if isinstance(value, FunctionType) and value.__code__.co_filename == path:
            key = lines.get((value.__code__.co_qualname, value.__code__.co_firstlineno))
            if key in changed:
                value.__code__ = new[key]
    return len(changed)


Place = tuple[str, int]


def _codes(module: CodeType) -> dict[Place, CodeType]:
    """Return the code of each function of a file, by its name and its number among equal names."""
    found: dict[Place, CodeType] = {}
    for code in _inside(module):
        number = sum(name == code.co_qualname for name, _ in found)
        found[code.co_qualname, number] = code
    return found


def _inside(code: CodeType) -> Iterator[CodeType]:
    for part in code.co_consts:
        if isinstance(part, CodeType):
            if "<" not in part.co_name:
                yield part
            yield from _inside(part)


def _same(a: CodeType, b: CodeType) -> bool:
    """Return True if two codes differ at most in their line numbers."""
    if (a.co_code, a.co_names) != (b.co_code, b.co_names):
        return False
    pairs = list(zip(a.co_consts, b.co_consts, strict=False))
    return len(a.co_consts) == len(b.co_consts) and all(
        _same(x, y) if isinstance(x, CodeType) and isinstance(y, CodeType)
        else (type(x), x) == (type(y), y) for x, y in pairs)  # fmt: skip


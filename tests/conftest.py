"""Options and fixtures that all tests share, and what keeps tests apart from the machine."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

APART = (
    "ALPENGLOW_CACHE", "ALPENGLOW_THREADS", "ALPENGLOW_TUNING", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
)  # fmt: skip
"""Files and choices of the user, none of which is seen by a test."""

VALIDATED = {Path(__file__).with_name(name) for name in ("passes", "ops", "machines", "loops")}
"""Tests whose every pass is followed by an evaluation, for they are about these."""

NEED_TORCH = Path(__file__).with_name("pytorch")
"""The tests of this folder run where PyTorch is: `make test-torch`."""

NEED_LITERT = Path(__file__).parent / "frontends" / "tflite" / "litert"
"""The tests of this folder run where LiteRT is: `make test-tflite`."""

NEED_JAX = Path(__file__).parent / "frontends" / "stablehlo" / "jaxlib"
"""The tests of this folder run where JAX is: `make test-stablehlo`."""

PACKAGES = {"torch": NEED_TORCH, "ai_edge_litert": NEED_LITERT, "jax": NEED_JAX}

collect_ignore = [str(f) for package, f in PACKAGES.items() if find_spec(package) is None]

FOREIGN = re.compile(r"code for target '(x86-64-v\d)' does not run on this machine")

CHECK_IS_SAID = "ALPENGLOW_CHECK" in os.environ


def pytest_configure(config: pytest.Config) -> None:
    """Let no test touch the home of the user, the caches in it, or the installation.

    A home of its own goes with the session.  Test processes write bytecode, which spares each of
    them 12 s; no process that a test starts does: one that may write only short files would leave
    half a file, which every later import fails on.

    Tests interrupt what they run, which a session in the background would ignore.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.addaudithook(_refuse_bytecode)
    if config.getoption("--processor"):
        _pretend(config.getoption("--processor"))
    if hasattr(config, "workerinput"):
        sys.dont_write_bytecode = config.workerinput["dont_write_bytecode"]
        return  # what pytest-xdist starts inherits the environment
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    for name in APART:
        os.environ.pop(name, None)
    home = tempfile.mkdtemp(prefix="alpenglow-home-")
    os.environ["HOME"] = home
    config.add_cleanup(lambda: shutil.rmtree(home, ignore_errors=True))


def _pretend(level: str) -> None:
    """Let target `cpu` of this process be the processor that has the features of a level alone."""
    targets = import_module("alpenglow.machines.cpu.targets")
    here = replace(targets.target(level, ()), name="cpu")
    targets.host = lambda: here


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let a process of pytest-xdist write bytecode if this one does."""
    node.workerinput["dont_write_bytecode"] = sys.dont_write_bytecode


def _refuse_bytecode(event: str, details: tuple[Any, ...]) -> None:
    """Fail a test whose process would write bytecode: who has it already would not notice."""
    if event == "subprocess.Popen":
        executable, words, _, environment = details
        if os.fspath(executable) == sys.executable and "-B" not in words:
            told = os.environ if environment is None else environment
            assert "PYTHONDONTWRITEBYTECODE" in told, f"this would write bytecode: {words}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite golden files with what is computed now"
    )
    parser.addoption(
        "--cases", type=float, metavar="N",
        help="run at most N cases of each test, evenly spread; 0.5: one of every other test",
    )  # fmt: skip
    parser.addoption(
        "--rest", type=float, metavar="SHARE", default=1.0,
        help="of slow tests run this share, always the same (default 1)",
    )  # fmt: skip
    parser.addoption(
        "--order", type=int, metavar="SEED", help="run tests in a random order, the same for a seed"
    )
    parser.addoption(
        "--processor", metavar="LEVEL", help="let `cpu` be a level of x86-64, such as x86-64-v3"
    )
    parser.addoption(
        "--sample", type=float, metavar="SHARE", default=0.1,
        help="on devices run this share of all kernels, chosen by a seed (default 0.1)",
    )  # fmt: skip


@pytest.hookimpl(tryfirst=True)  # before there are fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Validate every pass where it is about passes and operators, and in what `make test` left out
    where NumPy is quick enough for it, unless one has said what to check."""
    if not CHECK_IS_SAID:
        names = {mark.name for mark in item.iter_markers()}
        long = names & {"models", "cross"} or ("slow" in names and "rest" not in names)
        about = "rest" in names or VALIDATED & set(item.path.parents)
        os.environ["ALPENGLOW_CHECK"] = "1" if about and not long else "0"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    """Skip a test that runs code for another processor than this one, or the pretended one."""
    errors = import_module("alpenglow.base.errors")
    try:
        yield
    except errors.UnsupportedError as error:
        foreign = FOREIGN.search(str(error))
        if foreign is None:
            raise
        pytest.skip(f"this machine is no {foreign[1]}")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what needs PyTorch, so that the other tests run without it also where it is, and what
    `make test` has no time for."""
    if NEED_TORCH in item.path.parents:
        item.add_marker(pytest.mark.torch)
    if item.get_closest_marker("rest"):
        item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem() -> Iterator[None]:
    """Leave a sample of the cases of a test to `make test`, and all others to `make test-rest`.

    Here are all cases of a test, whatever the command line chooses of them, so the sample is the
    same everywhere.
    """
    items: Any = yield
    if isinstance(items, list) and items:
        mark = items[0].get_closest_marker("sampled")
        if mark is not None:
            _leave_a_sample(items, *mark.args)
    return items


def _leave_a_sample(items: Sequence[Any], count: int, *always: str) -> None:
    """Mark as `rest` all cases but those with one of the ids `always` and `count` of the others."""
    ids = [item.callspec.id for item in items]
    unknown = set(always).difference(ids)
    assert not unknown, f"{items[0].nodeid}: no case is called {sorted(unknown)}"
    others = [
        item
        for item, name in zip(items, ids, strict=True)
        if name not in always and item.get_closest_marker("slow") is None
    ]
    stay = set(_spread(len(others), count))
    for k, item in enumerate(others):
        if k not in stay:
            item.add_marker(pytest.mark.rest)


def _spread(many: int, few: int) -> Iterator[int]:
    """Yield a number of each of `few` equal parts of `range(many)`: of the first the first, of the
    next the second, and so on, so that of each of two parametrizations all values are met."""
    few = min(many, few)
    for part in range(few):
        begin, end = part * many // few, (part + 1) * many // few
        yield begin + part % (end - begin)


@pytest.hookimpl(trylast=True)  # when it is known what -m and -k have left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is more than the asked number of cases of a test, or share of the rest."""
    if config.getoption("--order") is not None:
        random.Random(config.getoption("--order")).shuffle(items)
    share = config.getoption("--rest")
    if share < 1:
        _leave_out(config, items, [item for item in items if not _is_left(item, share)])
    most = config.getoption("--cases")
    if most is None:
        return
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    count = max(1, int(most))
    kept = {
        id(all_of_one[k * len(all_of_one) // count])
        for name, all_of_one in cases.items()
        if _is_drawn(name, most)
        for k in range(count)
    }
    _leave_out(config, items, [item for item in items if id(item) in kept])


def _is_left(item: pytest.Item, share: float) -> bool:
    """Return True if a test is slow and not in the share of slow tests that runs."""
    is_slow = item.get_closest_marker("slow") is not None
    return is_slow and not _is_drawn(item.nodeid, share)


def _is_drawn(name: str, share: float) -> bool:
    """Return True if a test is in a share of all tests, the same in each run: its name decides."""
    return zlib.crc32(name.encode()) < share * 2**32


def _leave_out(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    chosen = set(map(id, kept))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = kept


@pytest.fixture
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--bless"))


@pytest.fixture
def many_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hosts of toys have as many CPUs as they want, wherever tests run."""
    cpus = import_module("alpenglow.base.cpus")
    here = cpus.allowed_cpus()[-1]
    monkeypatch.setattr(cpus, "granted_cpus", lambda: [here] * 16)


@pytest.fixture
def traced_anew() -> Iterator[None]:
    """Let PyTorch trace everything anew, and draw the same numbers."""
    torch = import_module("torch")
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile everything anew."""
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")


@pytest.fixture(scope="session")
def session_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def own_cache(session_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take no compiled kernels but those that this session has made."""
    monkeypatch.setenv("ALPENGLOW_CACHE", str(session_folder))


@pytest.fixture
def loops_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave loops and branches to the runtime, as those are that no graph can hold."""
    importer = import_module("alpenglow.frontends.stepped").StepImporter
    monkeypatch.setattr(importer, "_node", lambda *arguments: None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was tried by tests that try as much as their time allows."""
    for report in (*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")):
        for name, value in report.user_properties:
            if name == "tried":
                terminalreporter.write_line(f"{report.nodeid}: tried {value}")

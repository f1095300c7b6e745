"""What the logger says of compilations, and progress in Python."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError
from alpenglow.driver.progress import on_stderr
from open_cases import helper, model, weights
from staged_cases import CASES


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test a cache of its own, in which compilations are kept."""
    monkeypatch.setenv("ALPENGLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")


pytestmark = pytest.mark.usefixtures("cache")


def product(rows: int | str = 2, name: str = "product") -> onnx.ModelProto:
    proto = model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": (rows, 8)},
                  {"w": weights(8, 4)})  # fmt: skip
    proto.graph.name = name
    return proto


def told(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    found = [r.getMessage() for r in caplog.records if r.name == "alpenglow" and r.levelno == level]
    caplog.clear()
    return found


def test_a_compilation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "alpenglow")
    ag.compile(product())
    (first,) = told(caplog)
    ag.compile(product())
    (second,) = told(caplog)

    assert first.startswith("compiled 'product' for cpu in ") and " s (compile): " in first
    assert first.endswith("1 kernel, 0 from the cache")
    assert second.endswith("1 kernel, 1 from the cache")


def test_passes_are_logged_in_detail(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "alpenglow")
    ag.compile(product())
    found = told(caplog, logging.DEBUG)

    assert found[0].startswith("pass blocks: 0.0") and found[-1].startswith("pass plan: ")


def test_compilations_that_are_kept_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "alpenglow")
    path = tmp_path / "m.onnx"
    onnx.save(product(), path)
    ag.compile(path)
    first = told(caplog)
    ag.compile(path)
    (second,) = told(caplog)

    assert "is not in the compilation cache" in first[0] and "(compile of " in first[-1]
    assert second.startswith("loaded '") and "m.onnx" in second


def test_calls_that_compile_say_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "alpenglow")
    exe = ag.compile(product("N"))
    before = told(caplog)
    for _ in range(2):
        exe(np.ones((3, 8), np.float32))
    (during,) = told(caplog)

    assert before == [] and "(first call with N=3)" in during
    case = CASES["nonzero"]
    ag.compile(case.model()).run(case.calls()[0])
    assert any("next part of a model" in t or "first call with" in t for t in told(caplog))


def test_names_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "alpenglow")
    g = ag.load(product())
    g.name = "\x1b[2J\nforged " + "n" * 10_000
    ag.compile(g)
    (line,) = told(caplog)

    assert line.isprintable() and len(line) < 300


@pytest.mark.rest
def test_nothing_is_printed_unless_it_is_asked_for() -> None:
    source = """
import numpy as np, alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Neg
g = ag.Graph("g"); g.output("y", g(Neg(), g.input("x", "f32[3]")))
ag.compile(g)(np.ones(3, np.float32))
"""
    environment = {**os.environ, "PYTHONPATH": ":".join(p for p in sys.path if p)}
    environment["ALPENGLOW_CACHE"] = "off"
    ran = subprocess.run([sys.executable, "-c", source], capture_output=True, env=environment,
                         check=True)  # fmt: skip

    assert (ran.stdout, ran.stderr) == (b"", b"")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_a_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    ag.compile(product(), progress=True)

    assert sys.stderr.getvalue() == "\rcompiling kernels 0/1\rcompiling kernels 1/1\n"


def test_elsewhere_progress_is_told_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    ag.compile(product(), progress=True)

    assert capsys.readouterr().err == "compiling kernels 1/1\n"


def test_progress_may_be_a_function() -> None:
    seen: list[tuple[str, int, int]] = []
    exe = ag.compile(product("N"), progress=lambda *step: seen.append(step))
    exe(np.ones((3, 8), np.float32))

    assert seen[0] == ("compiling kernels", 0, 1) and seen[-1] == ("compiling kernels", 1, 1)


@pytest.mark.parametrize("wrong", [None, 1, "stderr"])
def test_other_progress_is_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match="expected True, False or a function"):
        ag.compile(product(), progress=wrong)


def test_a_closed_stderr_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    stream.close()
    for other in (stream, None):
        monkeypatch.setattr(sys, "stderr", other)
        on_stderr("compiling", 1, 2)

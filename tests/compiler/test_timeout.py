"""A compilation ends at its timeout, by whatever door it began."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base import deadline
from alpenglow.base.errors import CompileTimeoutError, OptionError
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.passes.fold import fold
from command import alpenglow


class Clock:
    """A clock that goes on by a second each time that it is read."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def chain(length: int = 40) -> ag.Graph:
    g = ag.Graph("chain")
    v = g.input("x", "f32[4]")
    for _ in range(length):
        v = g(Relu(), g(Exp(), v))
    g.output("y", v)
    return g


def test_a_compilation_ends_at_its_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = set()
    for seconds in (1, 30, 60, 100, 110, 120, 150):
        monkeypatch.setattr(deadline.time, "monotonic", Clock())
        try:
            ag.compile(chain(), options=ag.Options(timeout=seconds))
        except CompileTimeoutError as error:
            assert f"timeout: compilation has taken more than {seconds} s, before " in str(error)
            steps.add(error.message.partition(", before ")[2].split()[0])
    assert "pass" in steps
    monkeypatch.undo()
    ag.compile(chain(), options=ag.Options(timeout=1000.0))(np.ones(4, np.float32))


def test_folding_and_kernels_look_at_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    g = ag.Graph("g")
    g.output("y", g(Exp(), g.constant(np.ones(4, np.float32))))
    with deadline.limited(1e-9), pytest.raises(CompileTimeoutError, match="before folding"):
        fold(g)
    with deadline.limited(1e-9), pytest.raises(CompileTimeoutError, match="before the next node"):
        chain(1)


@pytest.mark.parametrize("timeout", [0, -1.0, True, "10s", float("nan")])
def test_a_timeout_is_a_number_of_seconds(timeout: object) -> None:
    with pytest.raises(OptionError, match=r"timeout is .*, expected seconds above 0"):
        ag.Options(timeout=timeout)  # type: ignore[arg-type]


@pytest.mark.parametrize("line", ["compile x.onnx -o x.ago", "bundle x.onnx -o x"])
def test_commands_take_a_timeout(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ag.export_onnx(chain(1), tmp_path / "x.onnx")

    assert "timeout: compilation has taken" in alpenglow(f"{line} --timeout 1e-9", 2).stderr
    assert not list(tmp_path.glob("x*[!x]"))
    alpenglow(f"{line} --timeout 100")


def test_other_shapes_have_a_time_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    g = ag.Graph("g")
    g.output("y", g(Exp(), g.input("x", "f32[N]")))
    exe = ag.compile(g, options=ag.Options(timeout=1e-9))
    with pytest.raises(CompileTimeoutError):
        exe(np.ones(3, np.float32))

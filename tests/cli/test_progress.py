"""A training run prints on a terminal: a spinner, a bar, and lines above them."""

from __future__ import annotations

import io
import re
import sys

import pytest

from alpenglow.cli.progress import COMPILING, training_progress


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return the terminal that both stdout and stderr are from now on."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    both = Terminal()
    monkeypatch.setattr(sys, "stdout", both)
    monkeypatch.setattr(sys, "stderr", both)
    return both


def test_a_spinner_is_shown_until_the_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with training_progress() as report:
        report.compiling("compiling kernels", 3, 7)
        report.step("loss 1.5", 1, 20)
        report.out("epoch 0: loss 1.5")

    before, bar, after = terminal.getvalue().partition("1/20")
    assert bar and f"{COMPILING} compiling kernels 3/7" in before and COMPILING not in after


def test_lines_are_printed_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    with training_progress() as report:
        report.step("loss 1.5", 1, 20)
        report.out("epoch 0: loss 1.5")
        report.err("a line for stderr")

    # The terminal is at the start of a line that it has cleared, and goes to the next one.
    shown = re.sub(r"\x1b\[[0-9;?]*[lhAm]", "", terminal.getvalue())
    for line in ("epoch 0: loss 1.5", "a line for stderr"):
        assert re.search(rf"\x1b\[2K(\r|\n)*{line}\n", shown), shown


def test_a_pipe_gets_lines_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress() as report:
        report.compiling("compiling kernels", 3, 7)
        report.step("loss 1.5", 1, 20)
        report.out("epoch 0: loss 1.5")
        report.err("a line for stderr")

    assert capsys.readouterr() == ("epoch 0: loss 1.5\n", "a line for stderr\n")

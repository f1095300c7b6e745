"""Weights that change after `torch.compile`: no call computes with old ones, whatever happens."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import alpenglow.torch

pytestmark = pytest.mark.usefixtures("traced_anew")

FAULTS = 6


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()


def change(module: Any, by: float) -> None:
    """Change weights that are packed and a bias that is not."""
    with torch.no_grad():
        module[0].weight.mul_(by)
        module[2].bias.add_(by)


class Faults:
    """Raises an error at the n-th line that a call runs in this package; counts the lines."""

    def __init__(self) -> None:
        self.lines, self.at = 0, 0
        self.error: BaseException = ValueError("no fault")
        self._package = str(alpenglow.torch.__file__).rpartition("torch")[0]

    def call(self, f: Callable[..., Any], *args: Any, at: int, error: BaseException) -> Any:
        self.lines, self.at, self.error = 0, at, error
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return f(*args)
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(self._package) else None

    def _line(self, frame: FrameType, event: str, arg: Any) -> Any:
        self.lines += event == "line"
        if self.lines == self.at:
            self.lines += 1
            raise self.error
        return self._line


@torch.no_grad()
def test_an_error_while_it_compiles_anew_leaves_no_old_weights() -> None:
    module, x, faults = net(), torch.randn(2, 4), Faults()
    f = torch.compile(module, backend="alpenglow")
    f(x)
    change(module, 1.5)
    faults.call(f, x, at=0, error=ValueError())
    total = faults.lines
    for n in range(FAULTS):
        if not n % 3:
            torch._dynamo.reset()
            module = net()
            f = torch.compile(module, backend="alpenglow")
            f(x)
        change(module, 0.7 + n)
        error = KeyboardInterrupt() if n % 2 else MemoryError()

        with pytest.raises(type(error)):
            faults.call(f, x, at=1 + n * total // FAULTS, error=error)
        for _ in range(2):
            torch.testing.assert_close(f(x), module(x))


@torch.no_grad()
def test_two_threads_that_call_after_a_change_both_compute_with_it() -> None:
    module, x = net(), torch.randn(2, 4)
    f = torch.compile(module, backend="alpenglow")
    f(x)
    before, after = threading.Barrier(3), threading.Barrier(3)
    results: dict[tuple[int, int], torch.Tensor] = {}

    def calls(thread: int) -> None:
        with torch.no_grad():
            for n in range(5):
                before.wait(60)
                results[thread, n] = f(x)
                after.wait(60)

    threads = [threading.Thread(target=calls, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    expected = []
    for n in range(5):
        change(module, 0.7 + n)
        expected.append(module(x))
        before.wait(60)
        after.wait(60)
    for thread in threads:
        thread.join()

    for (_, n), got in results.items():
        torch.testing.assert_close(got, expected[n])
    assert len(results) == 10

"""What a run on a device takes: kernels by the device, the rest by the clock, and copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.reduction.softmax import Softmax
from devices import Chip, on_chip

X = np.arange(32, dtype=np.float32).reshape(4, 8)


class Recorder(Chip):
    """A chip that keeps what its kernels were given when they were timed."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []

    def seconds(self, code: Any, launch: Any) -> float:
        memory, offset = launch.arguments[-1]
        self.given.append(memory[offset : offset + X.nbytes].view(np.float32).copy())
        super().seconds(code, launch)
        return 1e-6 * len(self.given)


def chain() -> ag.Graph:
    """A sum, a softmax of it, and the sum of that and itself."""
    g = ag.Graph("chain")
    x = g.input("x", "f32[4,8]")
    shares = g(Softmax(axis=1), g(Add(), x, x, name="twice"), name="shares")
    g.output("y", g(Add(), shares, shares, name="again"))
    return g


def test_kernels_are_timed_by_the_device_with_true_contents() -> None:
    chip = Recorder()
    exe = on_chip(chain(), chip, Add)
    timings = exe.timings({"x": X}, rounds=1)
    shares = np.exp(2 * X - 2 * X.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)

    assert [p.kind for p in timings] == ["add", "softmax", "add"]
    assert [p.compiled for p in timings] == [True, False, True]
    assert (timings[0].seconds, timings[2].seconds) == (1e-6, 2e-6)
    assert timings[1].seconds > 0 and timings.run > 0
    np.testing.assert_array_equal(chip.given[0], X.ravel())
    np.testing.assert_allclose(chip.given[1], shares.ravel(), rtol=1e-6)


@pytest.mark.parametrize(
    ("ops", "copies"),
    [((Add, Softmax), (1, 1)), ((Add,), (2, 2)), ((Softmax,), (1, 1)), ((), (0, 0))],
)
def test_copies_of_a_call_are_told_by_side(ops: tuple[type, ...], copies: tuple[int, int]) -> None:
    chip = Chip()
    exe = on_chip(chain(), chip, *ops)
    to_device, to_host = exe.timings({"x": X}, rounds=2).copies
    chip.copied.clear()
    exe.run({"x": X})

    assert (to_device.to, to_host.to) == ("device", "host")
    assert (to_device.count, to_host.count) == copies
    for timing, way in ((to_device, "up"), (to_host, "down")):
        moved = [nbytes for what, nbytes in chip.copied if what == way]
        assert (timing.count, timing.nbytes) == (len(moved), sum(moved))
        assert (timing.seconds > 0) == bool(moved)


def test_timing_leaves_results_as_they_are() -> None:
    exe = on_chip(chain(), Chip(), Add)
    before = exe.run({"x": X})["y"]
    exe.timings({"x": X + 1}, rounds=1)

    np.testing.assert_array_equal(exe.run({"x": X})["y"], before)


def test_the_text_of_timings_tells_of_copies() -> None:
    text = repr(on_chip(chain(), Chip(), Add).timings({"x": X}, rounds=1))

    assert "2 buffers copied to the device, 256 bytes" in text
    assert "softmax (interpreted): shares" in text

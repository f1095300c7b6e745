"""Schedules: the learning rate of each step, as a share of the optimizer's.

A schedule is any function of the number of steps taken so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from alpenglow.base.errors import OptionError

Schedule = Callable[[int], float]


def constant() -> Schedule:
    """Return 1 for every step."""
    return lambda step: 1.0


def warmup(steps: int, then: Schedule | None = None) -> Schedule:
    """Go from 1/`steps` to 1 in so many steps, and on as `then` says of the steps after them."""
    _check(steps)
    later = then or constant()
    return lambda step: (step + 1) / steps if step < steps else later(step - steps)


def cosine(steps: int, least: float = 0.0) -> Schedule:
    """Go from 1 to `least` along half a cosine in so many steps (Loshchilov and Hutter, 2017)."""
    _check(steps)

    def share(step: int) -> float:
        turn = math.cos(math.pi * min(step, steps) / steps)
        return least + (1 - least) * (1 + turn) / 2

    return share


def steps(factors: Mapping[int, float]) -> Schedule:
    """Multiply by factors, each from a step on: ``{1000: 0.1, 2000: 0.1}``."""
    return lambda step: math.prod(f for begin, f in factors.items() if step >= begin)


def _check(steps: int) -> None:
    if steps < 1:
        raise OptionError(f"a schedule of {steps} steps, expected 1 or more")

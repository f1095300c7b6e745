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
    """Return a schedule that rises from 1/`steps` to 1.

    Args:
        steps: the number of steps of the rise.
        then: the schedule after it, whose steps count from its start; None: 1.

    Returns:
        The schedule, a factor of the learning rate by the number of the step.

    Example:
        >>> schedule = ag.train.warmup(100, then=ag.train.cosine(900))
    """
    _check(steps)
    later = then or constant()
    return lambda step: (step + 1) / steps if step < steps else later(step - steps)


def cosine(steps: int, least: float = 0.0) -> Schedule:
    """Return a schedule that falls from 1 along half a cosine (Loshchilov and Hutter, 2017).

    Args:
        steps: the number of steps of the fall.
        least: the factor from then on.

    Returns:
        The schedule, a factor of the learning rate by the number of the step.

    Example:
        >>> schedule = ag.train.cosine(1000, least=0.01)
    """
    _check(steps)

    def share(step: int) -> float:
        turn = math.cos(math.pi * min(step, steps) / steps)
        return least + (1 - least) * (1 + turn) / 2

    return share


def steps(factors: Mapping[int, float]) -> Schedule:
    """Return a schedule that multiplies the learning rate by factors from given steps on.

    Args:
        factors: factors by the numbers of the steps: ``{1000: 0.1, 2000: 0.1}``.

    Returns:
        The schedule, a factor of the learning rate by the number of the step.

    Example:
        >>> schedule = ag.train.steps({1000: 0.1, 2000: 0.1})
    """
    return lambda step: math.prod(f for begin, f in factors.items() if step >= begin)


def _check(steps: int) -> None:
    if steps < 1:
        raise OptionError(f"a schedule of {steps} steps, expected 1 or more")

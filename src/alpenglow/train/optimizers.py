"""Optimizers: how a parameter changes by its gradient, and what is remembered of earlier ones.

An optimizer is a few numbers and one formula over the math vocabulary.  The formulas are those of
PyTorch's optimizers of the same names, so that what was found out there holds here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from alpenglow.base.errors import OptionError

State = dict[str, Any]
"""What is remembered of a parameter, by name: as large as that, and 0 at first."""


@dataclass(frozen=True)
class Optimizer(ABC):
    """The base of all; `rate` is the learning rate where no schedule says another."""

    rate: float

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of what is remembered of a parameter."""
        return ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, bool):
                continue
            if not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
                raise OptionError(
                    f"{type(self).__name__}: {name} is {value!r}, expected a number, 0 or more"
                )
        for name in ("momentum", "beta1", "beta2", "alpha"):
            if getattr(self, name, 0) >= 1:
                raise OptionError(
                    f"{type(self).__name__}: {name} is {getattr(self, name)}, expected less than 1"
                )

    def numbers(self, m: Any, rate: Any, step: Any) -> dict[str, Any]:
        """Return the scalars that the formula takes, of `rate` and `step`, which counts from 1.

        All are f64.
        """
        return {"rate": rate}

    @abstractmethod
    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        """Return the new value of a parameter and what is remembered of it then."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """w' = w - rate v, with v' = momentum v + g and g = dw + decay w + l1 sign(w).

    With `nesterov` w' = w - rate (g + momentum v').  Without momentum nothing is remembered.
    """

    momentum: float = 0.0
    nesterov: bool = False
    decay: float = 0.0
    l1: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:
        return ("velocity",) if self.momentum else ()

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        g = _decayed(m, self.decay, w, dw)
        if self.l1:
            g = m.add(g, m.mul(m.sign(w), self.l1))
        way, after = g, {}
        if self.momentum:
            v = m.add(m.mul(state["velocity"], self.momentum), g)
            way = m.add(g, m.mul(v, self.momentum)) if self.nesterov else v
            after = {"velocity": v}
        return m.sub(w, m.mul(way, numbers["rate"])), after


@dataclass(frozen=True)
class Adam(Optimizer):
    """w' = w - rate (v / (1 - beta1^t)) / (sqrt(h / (1 - beta2^t)) + epsilon), where v and h are
    running means of the gradient g = dw + decay w and of its square (Kingma and Ba, 2015)."""

    rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:
        return "mean", "square"

    def numbers(self, m: Any, rate: Any, step: Any) -> dict[str, Any]:
        first = m.sub(1.0, m.pow(self.beta1, step))
        second = m.sub(1.0, m.pow(self.beta2, step))
        return {"rate": rate, "ahead": m.div(rate, first), "root": m.sqrt(second)}

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        g = _decayed(m, self.decay, w, dw)
        v = _mean(m, self.beta1, state["mean"], g)
        h = _mean(m, self.beta2, state["square"], m.mul(g, g))
        spread = m.add(m.div(m.sqrt(h), numbers["root"]), self.epsilon)
        after = m.sub(w, m.mul(numbers["ahead"], m.div(v, spread)))
        return after, {"mean": v, "square": h}


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam of dw alone, after w has become (1 - rate decay) w (Loshchilov and Hutter, 2019)."""

    decay: float = 1e-2

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        kept = m.sub(1.0, m.mul(numbers["rate"], self.decay))
        plain = Adam(self.rate, self.beta1, self.beta2, self.epsilon)
        return plain.update(m, m.mul(w, kept), dw, state, numbers)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """w' = w - rate v, with v' = momentum v + g / (sqrt(h) + epsilon), where h is a running mean of
    the square of g = dw + decay w, less the square of that of g if `centred` (Hinton, 2012)."""

    rate: float = 1e-2
    alpha: float = 0.99
    epsilon: float = 1e-8
    momentum: float = 0.0
    centred: bool = False
    decay: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:
        more = ("mean",) if self.centred else ()
        return ("square", *more, *(("velocity",) if self.momentum else ()))

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        g = _decayed(m, self.decay, w, dw)
        h = _mean(m, self.alpha, state["square"], m.mul(g, g))
        after, spread = {"square": h}, h
        if self.centred:
            mean = after["mean"] = _mean(m, self.alpha, state["mean"], g)
            spread = m.sub(h, m.mul(mean, mean))
        way = m.div(g, m.add(m.sqrt(spread), self.epsilon))
        if self.momentum:
            way = after["velocity"] = m.add(m.mul(state["velocity"], self.momentum), way)
        return m.sub(w, m.mul(way, numbers["rate"])), after


@dataclass(frozen=True)
class Adagrad(Optimizer):
    """w' = w - rate / (1 + (t - 1) slowing) g / (sqrt(h) + epsilon), where h is the sum of the
    squares of all g = dw + decay w (Duchi, Hazan and Singer, 2011)."""

    rate: float = 1e-2
    epsilon: float = 1e-10
    slowing: float = 0.0
    decay: float = 0.0

    @property
    def remembers(self) -> tuple[str, ...]:
        return ("square",)

    def numbers(self, m: Any, rate: Any, step: Any) -> dict[str, Any]:
        slower = m.add(m.mul(m.sub(step, 1.0), self.slowing), 1.0)
        return {"rate": m.div(rate, slower)}

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        g = _decayed(m, self.decay, w, dw)
        h = m.add(state["square"], m.mul(g, g))
        way = m.div(g, m.add(m.sqrt(h), self.epsilon))
        return m.sub(w, m.mul(way, numbers["rate"])), {"square": h}


def _decayed(m: Any, decay: float, w: Any, dw: Any) -> Any:
    """Return the gradient plus that of decay/2 · w²."""
    return m.add(dw, m.mul(w, decay)) if decay else dw


def _mean(m: Any, share: float, old: Any, new: Any) -> Any:
    return m.add(m.mul(old, share), m.mul(new, 1 - share))

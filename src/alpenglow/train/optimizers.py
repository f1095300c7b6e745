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
    """Define how a step changes a parameter; the base of all optimizers.

    Args:
        rate: the learning rate; a schedule of the `Trainer` multiplies it.

    Example:
        >>> optimizer = ag.train.SGD(rate=0.1, momentum=0.9)
        >>> isinstance(optimizer, ag.train.Optimizer), optimizer.remembers
        (True, ('velocity',))
    """

    rate: float

    @property
    def remembers(self) -> tuple[str, ...]:
        """The names of the values that the optimizer stores for each parameter."""
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
        """Return the scalars of the formula, in f64.

        Args:
            m: the functions of the formula, which append to a graph.
            rate: the learning rate of the step.
            step: the number of the step, from 1.

        Returns:
            The scalars by name.
        """
        return {"rate": rate}

    @abstractmethod
    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        """Return the new value of a parameter, and the values stored for it.

        Args:
            m: the functions of the formula, which append to a graph.
            w: the parameter.
            dw: its gradient.
            state: the values stored for it, by name.
            numbers: the scalars that `numbers` returned.

        Returns:
            The new parameter, and the new stored values by name.
        """


@dataclass(frozen=True)
class SGD(Optimizer):
    """Subtract the learning rate times the gradient, with momentum: w' = w - rate v'.

    The velocity is v' = momentum v + g, the gradient g = dw + decay w + l1 sign(w).  Without
    momentum no values are stored.

    Args:
        rate: the learning rate.
        momentum: the share of the velocity that a step keeps.
        nesterov: True uses w' = w - rate (g + momentum v').
        decay: the factor of the L2 penalty.
        l1: the factor of the L1 penalty.

    Example:
        >>> ag.train.SGD(rate=0.1, momentum=0.9, decay=1e-4).momentum
        0.9
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
    """Scale steps by running means of the gradient and of its square (Kingma and Ba, 2015).

    w' = w - rate (v / (1 - beta1^t)) / (sqrt(h / (1 - beta2^t)) + epsilon), where v and h are
    running means of g = dw + decay w and of g².

    Args:
        rate: the learning rate.
        beta1: the share of v that a step keeps.
        beta2: the share of h that a step keeps.
        epsilon: the number added to the root.
        decay: the factor of the L2 penalty.

    Example:
        >>> ag.train.Adam().rate
        0.001
    """

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
    """Apply Adam to the gradient dw alone, after w is multiplied by 1 - rate decay.

    Loshchilov and Hutter (2019) describe the method.

    Args:
        rate: the learning rate.
        beta1: the share of the mean gradient that a step keeps.
        beta2: the share of the mean square that a step keeps.
        epsilon: the number added to the root.
        decay: the factor of the weight decay.

    Example:
        >>> ag.train.AdamW(rate=3e-4).decay
        0.01
    """

    decay: float = 1e-2

    def update(
        self, m: Any, w: Any, dw: Any, state: State, numbers: Mapping[str, Any]
    ) -> tuple[Any, State]:
        kept = m.sub(1.0, m.mul(numbers["rate"], self.decay))
        plain = Adam(self.rate, self.beta1, self.beta2, self.epsilon)
        return plain.update(m, m.mul(w, kept), dw, state, numbers)


@dataclass(frozen=True)
class RMSprop(Optimizer):
    """Divide gradients by the root of the running mean of their squares (Hinton, 2012).

    w' = w - rate v', with v' = momentum v + g / (sqrt(h) + epsilon), where h is the running mean of
    the square of g = dw + decay w.

    Args:
        rate: the learning rate.
        alpha: the share of h that a step keeps.
        epsilon: the number added to the root.
        momentum: the share of the velocity v that a step keeps.
        centred: True subtracts the square of the running mean of g from h.
        decay: the factor of the L2 penalty.

    Example:
        >>> ag.train.RMSprop(centred=True).alpha
        0.99
    """

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
    """Divide gradients by the root of the sum of their squares (Duchi, Hazan and Singer, 2011).

    w' = w - rate / (1 + (t - 1) slowing) g / (sqrt(h) + epsilon), where h is the sum of the squares
    of all g = dw + decay w.

    Args:
        rate: the learning rate.
        epsilon: the number added to the root.
        slowing: the factor by which the rate falls with the number t of the step.
        decay: the factor of the L2 penalty.

    Example:
        >>> ag.train.Adagrad().rate
        0.01
    """

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

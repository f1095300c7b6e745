"""A step of training as one graph: forward, backward and update, whose variables are what is kept.

Parameters and what an optimizer remembers are variables (docs/state.md), so a program plans their
memory, and updates them in place where it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.autodiff import gradients, leading_to
from alpenglow.autodiff.formula import GraphMath
from alpenglow.base.errors import OptionError, TypeRuleError
from alpenglow.base.words import shown
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.comparison import IsInf, IsNaN
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from alpenglow.ops.tensor.movement import stretch
from alpenglow.train.optimizers import Optimizer

STEP = "training step"
"""The variable that counts steps; the keys of dropout are made of it."""

RATE = "learning rate"
"""The input by which a step is told its learning rate."""

NORM = "gradient norm"
"""The output that says how long the gradient of all parameters together is."""


@dataclass(frozen=True)
class Rules:
    """What a step does with gradients besides what an optimizer says.

    The gradient of all parameters together is made no longer than `clip`.  Gradients of so many
    calls are averaged (`accumulate`) before parameters change.  `guard` lets nothing change where
    the loss or a gradient is infinite or NaN.
    """

    clip: float | None = None
    accumulate: int = 1
    guard: bool = True

    def __post_init__(self) -> None:
        if self.clip is not None and not 0 < self.clip < float("inf"):
            raise OptionError(f"clip is {self.clip}, expected a positive number")
        if isinstance(self.accumulate, bool) or self.accumulate < 1:
            raise OptionError(f"accumulate is {self.accumulate!r}, expected 1 or more")


def parameters(g: Graph) -> list[str]:
    """Return the names of what is trained: variables of floats that the graph does not assign."""
    found = []
    for name, v in g.variables.items():
        if v.assigned is None and v.value.type.dtype in FLOATS and name != STEP:
            found.append(name)
    return found


def counter(g: Graph) -> Value:
    """Return the number of steps taken so far, an i64 that starts with 0."""
    if STEP in g.inputs:
        return g.inputs[STEP]
    return g.variable(STEP, np.asarray(0, np.int64))


def training_step(g: Graph, loss: str, optimizer: Optimizer, rules: Rules) -> Graph:
    """Return a graph that computes what `g` does, and changes its parameters.

    It takes the learning rate besides, and says how long the gradient is where that is looked at.
    Raises TypeRuleError where `loss` is no scalar of floats, OptionError where there is nothing to
    train or a parameter has no part in the loss.
    """
    g = g.copy()
    y = _loss(g, loss)
    names = parameters(g)
    if not names:
        raise OptionError(
            f"graph {shown(g.name)} has no parameters: variables of floats that it does not assign",
            hint="ag.trainable(graph) makes parameters of a loaded model's constants",
        )
    ws = [g.inputs[name] for name in names]
    _check_used(g, y, names, ws)
    dws = gradients(g, y, ws)
    count = counter(g)
    taken = _value(GraphMath(g, "i64").add(count, 1.0))
    rate = g.input(RATE, "f64[]")
    usable: Value | None = None
    if rules.guard:
        usable = g(BitAnd(), _finite(g, _norm(g, dws)), _finite(g, as_type(g, y, "f64")))
        _keep_unless(g, usable)
    change, calls = usable, rules.accumulate
    if calls > 1:
        dws, last = _averaged(g, names, dws, count, calls, usable)
        change = last if usable is None else g(BitAnd(), last, usable)
    if rules.clip is not None or rules.guard:
        norm = _norm(g, dws)
        wide = any(w.type.dtype == "f64" for w in ws)
        g.output(NORM, as_type(g, norm, "f64" if wide else "f32"))
        if rules.clip is not None:
            dws = _clipped(g, dws, norm, rules.clip)
    _update(g, optimizer, names, ws, dws, rate, _steps(g, taken, calls), change)
    g.assign(STEP, _if(g, usable, taken, count))
    return g


def _keep_unless(g: Graph, usable: Value) -> None:
    """Let what the model itself assigns, as running statistics, stay as it is unless `usable`."""
    for name, v in g.variables.items():
        if v.assigned is not None and v.assigned is not v.value and name not in g.growing:
            g.outputs[name] = _if(g, usable, v.assigned, v.value)


def _loss(g: Graph, name: str) -> Value:
    if name not in g.outputs:
        raise OptionError(f"output is {shown(name)}, expected one of {', '.join(g.outputs)}")
    y = g.outputs[name]
    if y.type.shape != () or y.type.dtype not in FLOATS:
        raise TypeRuleError(f"the loss {shown(name)} is {y.type}, expected a scalar of floats")
    return y


def _check_used(g: Graph, y: Value, names: Sequence[str], ws: Sequence[Value]) -> None:
    seen = {y, *(v for node in leading_to(g, [y], ws) for v in node.inputs)}
    if idle := [name for name, w in zip(names, ws, strict=True) if w not in seen]:
        raise OptionError(
            f"the loss does not depend on {', '.join(map(shown, idle))}",
            hint="make constants of what is not trained",
        )


def _steps(g: Graph, taken: Value, calls: int) -> Value:
    """Return how many times parameters have changed after this call, as f64."""
    m = GraphMath(g, "f64")
    made = as_type(g, taken, "f64")
    return made if calls == 1 else _value(m.floor(m.div(made, float(calls))))


def _averaged(
    g: Graph, names: Sequence[str], dws: Sequence[Value], count: Value, calls: int,
    usable: Value | None,
) -> tuple[list[Value], Value]:  # fmt: skip
    """Add gradients up; return their means, and whether this call is the last of its turn."""
    m = GraphMath(g, "i64")
    turn = m.fmod(count, float(calls))
    first, last = (_value(m.eq(turn, float(n))) for n in (0, calls - 1))
    means = []
    for name, dw in zip(names, dws, strict=True):
        f = GraphMath(g, dw.type.dtype)
        before = g.variable(f"{name}: gradients", np.zeros(dw.type.extents, dw.type.numpy))
        total = _if(g, first, dw, _value(f.add(before, dw)))
        g.assign(f"{name}: gradients", _if(g, usable, total, before))
        means.append(_value(f.mul(total, 1 / calls)))
    return means, last


def _norm(g: Graph, dws: Sequence[Value]) -> Value:
    """Return the length of all gradients together, as f64."""
    m = GraphMath(g, "f64")
    total: Any = 0.0
    for dw in dws:
        squares = _value(GraphMath(g, dw.type.dtype).mul(dw, dw))
        total = m.add(total, as_type(g, g(ReduceSum(_axes(dw), False), squares), "f64"))
    return _value(m.sqrt(total))


def _clipped(g: Graph, dws: Sequence[Value], norm: Value, most: float) -> list[Value]:
    m = GraphMath(g, "f64")
    factor = _value(m.minimum(m.div(most, m.add(norm, 1e-6)), 1.0))
    return [_value(GraphMath(g, dw.type.dtype).mul(dw, _as(g, factor, dw))) for dw in dws]


def _finite(g: Graph, x: Value) -> Value:
    return g(BitNot(), g(BitOr(), g(IsNaN(), x), g(IsInf(), x)))


def _update(
    g: Graph, optimizer: Optimizer, names: Sequence[str], ws: Sequence[Value],
    dws: Sequence[Value], rate: Value, step: Value, change: Value | None,
) -> None:  # fmt: skip
    """Assign parameters and what is remembered of them their new values, if there is a `change`."""
    numbers = optimizer.numbers(GraphMath(g, "f64"), rate, step)
    for name, w, dw in zip(names, ws, dws, strict=True):
        m = GraphMath(g, w.type.dtype)
        own = {k: _as(g, v, w) for k, v in numbers.items()}
        zeros = np.zeros(w.type.extents, w.type.numpy)
        before = {k: g.variable(f"{name}: {k}", zeros) for k in optimizer.remembers}
        after, kept = optimizer.update(m, w, dw, dict(before), own)
        g.assign(name, _if(g, change, after, w))
        for k, old in before.items():
            g.assign(f"{name}: {k}", _if(g, change, kept[k], old))


def _if(g: Graph, condition: Value | None, x: Value, y: Value) -> Value:
    """Return x, or y where a condition that there is does not hold."""
    return x if condition is None else g(Where(), stretch(g, condition, x.type.shape), x, y)


def _as(g: Graph, x: Value, like: Value) -> Value:
    """Return a scalar in the type of another value."""
    return stretch(g, as_type(g, x, like.type.dtype), like.type.shape)


def _axes(x: Value) -> tuple[int, ...]:
    return tuple(range(x.type.rank))


def _value(x: Any) -> Value:
    assert isinstance(x, Value), "what is computed of values is one"
    return x

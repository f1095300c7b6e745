"""Converters for recurrent layers: LSTM, GRU and RNN in all directions and layouts.

Each direction is one matrix product over all steps and one recurrent operator; what ONNX stacks
in one tensor an axis of directions is cut apart here, and the results are joined again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from alpenglow.frontends.movement import part
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.sequence.recurrent import FORMULAS, Activation, Gru, Lstm, Rnn
from alpenglow.ops.tensor.movement import Concat, Reshape, Transpose, stretch

DEFAULTS = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01, 0.0),
    "thresholdedrelu": (1.0, 0.0),
    "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0, 0.0),
}
"""Alpha and beta of the activations that have them, where the model gives none."""

TAKES = {"affine": 2, "leakyrelu": 1, "thresholdedrelu": 1, "scaledtanh": 2, "hardsigmoid": 2,
         "elu": 1}  # fmt: skip
"""How many of alpha and beta an activation takes from the model's lists."""


@dataclass(frozen=True)
class Direction:
    """One direction of a layer: its recurrent operator's operands but the lengths."""

    direction: int
    reverse: bool
    activations: tuple[Activation, ...]
    xw: Value
    r: Value
    states: tuple[Value, ...]
    extra: Value | None


Apply = Callable[[Direction, Value | None], tuple[Value, ...]]

Multiply = Callable[[Value, Value, int], Value]
"""A function that multiplies the inputs by their weights for a direction."""


@on("LSTM")
def lstm(s: Site) -> Made:
    def apply(p: Direction, lengths: Value | None) -> tuple[Value, ...]:
        op = Lstm(*lstm_attributes(s, p))
        return s.g.add(op, [p.xw, p.r, *p.states, p.extra, lengths]).results

    return lstm_layer(s, apply)


def lstm_layer(s: Site, apply: Apply, multiply: Multiply | None = None) -> list[Value]:
    return layer(s, 4, ("sigmoid", "tanh", "tanh"), (5, 6), lstm_extra, apply, multiply)


def lstm_attributes(s: Site, p: Direction) -> tuple[bool, tuple[Activation, ...], float, bool]:
    return (
        p.reverse, p.activations, s.attribute("clip", 0.0), bool(s.attribute("input_forget", 0))
    )  # fmt: skip


@on("GRU")
def gru(s: Site) -> Made:
    clip = s.attribute("clip", 0.0)

    def apply(p: Direction, lengths: Value | None) -> tuple[Value, ...]:
        return s.g.add(Gru(p.reverse, p.activations, clip),
                       [p.xw, p.r, *p.states, p.extra, lengths]).results  # fmt: skip

    return layer(s, 3, ("sigmoid", "tanh"), (5,), gru_extra, apply)


@on("RNN")
def rnn(s: Site) -> Made:
    clip = s.attribute("clip", 0.0)

    def apply(p: Direction, lengths: Value | None) -> tuple[Value, ...]:
        return s.g.add(Rnn(p.reverse, p.activations, clip),
                       [p.xw, p.r, *p.states, lengths]).results  # fmt: skip

    return layer(s, 1, ("tanh",), (5,), lambda s, d, units: None, apply)


def lstm_extra(s: Site, direction: int, units: int) -> Value | None:
    """Return the peepholes of one direction, a row each for input, output and forget gate."""
    p = s.optional(7)
    return None if p is None else s.g(Reshape((3, units)), of_direction(s, p, direction))


def gru_extra(s: Site, direction: int, units: int) -> Value | None:
    """Return the recurrent bias of the hidden gate, where it is added before the reset."""
    if not s.attribute("linear_before_reset", 0):
        return None
    b = s.optional(3)
    if b is None:
        zeros = np.zeros(units, s.input(0).type.numpy)
        return s.g.constant(zeros)
    return part(s.g, of_direction(s, b, direction), 0, 5 * units, units)


def layer(
    s: Site,
    gates: int,
    functions: tuple[str, ...],
    states: tuple[int, ...],
    extra: Callable[[Site, int, int], Value | None],
    apply: Apply,
    multiply: Multiply | None = None,
) -> list[Value]:
    """Return Y and the final states; `states` are the operands that hold the initial ones."""
    x, r = s.input(0), s.input(2)
    multiply = multiply or (lambda rows, w, direction: s.g(MatMul(), rows, w))
    units = hidden_size(s, gates)
    directions = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    name = s.attribute("direction", "forward")
    if name not in directions:
        raise s.wrong(f"direction is '{name}', expected one of: {', '.join(directions)}")
    count = len(directions[name])
    if r.type.shape[0] != count:
        raise s.wrong(f"R is {r.type}, expected {count} directions ({name})")
    batch_first = bool(s.attribute("layout", 0))
    if batch_first:
        x = s.g(Transpose((1, 0, 2)), x)
    lengths = s.optional(4)
    if lengths is not None:
        lengths = s.within(lengths, 0, x.type.shape[0], "a sequence length")
    chosen = activations(s, functions, count)
    results = []
    for d, reverse in enumerate(directions[name]):
        start = tuple(initial(s, i, d, x.type.shape[1], units, batch_first) for i in states)
        p = Direction(d, reverse, chosen[d], projected(s, x, d, gates, units, multiply),
                      s.g(Transpose((1, 0)), of_direction(s, r, d)), start,
                      extra(s, d, units))  # fmt: skip
        results.append(apply(p, lengths))
    return joined(s, results, batch_first)


def hidden_size(s: Site, gates: int) -> int:
    """Return the number of units, as the shape of R gives it; raise ModelError if X or W differ."""
    x, w, r = s.input(0).type, s.input(1).type, s.input(2).type
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise s.wrong(f"X, W, R are {x}, {w}, {r}; expected rank 3 each")
    units = r.shape[2]
    named = s.attribute("hidden_size", units)
    if not known(units) or named != units or w.shape[1:] != (gates * units, x.shape[2]):
        raise s.wrong(
            f"W is {w} and R {r}, expected [directions,{gates * units},{x.shape[2]}] and "
            f"[directions,{gates * units},{units}] with hidden_size {named}"
        )
    return units


def projected(
    s: Site, x: Value, direction: int, gates: int, units: int, multiply: Multiply
) -> Value:
    """Return x[T, B, I] times the transposed weights of a direction, plus the biases."""
    steps, batch, features = x.type.shape
    w = s.g(Transpose((1, 0)), of_direction(s, s.input(1), direction))
    rows = s.g(Reshape((steps * batch, features)), x)
    flat = multiply(rows, w, direction)
    b = s.optional(3)
    if b is not None:
        both = of_direction(s, b, direction)
        of_input = part(s.g, both, 0, 0, gates * units)
        bias = s.g(Add(), of_input, recurrent_bias(s, both, gates, units))
        flat = s.g(Add(), flat, stretch(s.g, bias, flat.type.shape))
    return s.g(Reshape((steps, batch, gates * units)), flat)


def recurrent_bias(s: Site, both: Value, gates: int, units: int) -> Value:
    """Return the second half of the biases, without what a GRU adds before its reset."""
    if s.op_type != "GRU" or not s.attribute("linear_before_reset", 0):
        return part(s.g, both, 0, gates * units, gates * units)
    zeros = s.g.constant(np.zeros(units, both.type.numpy))
    return s.g(Concat(0), part(s.g, both, 0, 3 * units, 2 * units), zeros)


def initial(s: Site, i: int, direction: int, batch: Dim, units: int, batch_first: bool) -> Value:
    """Return the initial state [B, H] of a direction: operand i, or zeros."""
    states = s.optional(i)
    if states is None:
        return s.full(0, s.input(0).type.dtype, (batch, units))
    if batch_first:
        states = s.g(Transpose((1, 0, 2)), states)
    return of_direction(s, states, direction)


def joined(s: Site, results: list[tuple[Value, ...]], batch_first: bool) -> list[Value]:
    """Return Y[T, D, B, H] and the final states [D, B, H], or with the batch in front."""
    outputs = []
    for position, values in enumerate(zip(*results, strict=True)):
        axis = 1 if position == 0 else 0
        wide = [s.g(Reshape((*v.type.shape[:axis], 1, *v.type.shape[axis:])), v) for v in values]
        v = wide[0] if len(wide) == 1 else s.g(Concat(axis), *wide)
        if batch_first:
            v = s.g(Transpose((2, 0, 1, 3) if position == 0 else (1, 0, 2)), v)
        outputs.append(v)
    return outputs


def activations(
    s: Site, defaults: tuple[str, ...], directions: int
) -> list[tuple[Activation, ...]]:
    """Return the activations of each direction; the lists of alpha and beta serve in order."""
    names = s.attribute("activations", defaults * directions)
    if len(names) != len(defaults) * directions:
        raise s.wrong(f"{len(names)} activations given, expected {len(defaults) * directions}")
    alphas = list(s.attribute("activation_alpha", ()))
    betas = list(s.attribute("activation_beta", ()))
    flat: list[Activation] = []
    for name in (n.lower() for n in names):
        if name not in FORMULAS:
            raise s.wrong(f"an activation is '{name}', expected one of: {', '.join(FORMULAS)}")
        alpha, beta = DEFAULTS.get(name, (0.0, 0.0))
        takes = TAKES.get(name, 0)
        alpha = float(alphas.pop(0)) if takes >= 1 and alphas else alpha
        beta = float(betas.pop(0)) if takes >= 2 and betas else beta
        flat.append((name, alpha, beta))
    n = len(defaults)
    return [tuple(flat[d * n : (d + 1) * n]) for d in range(directions)]


def of_direction(s: Site, v: Value, direction: int) -> Value:
    """Return one direction of a tensor whose first axis is the directions."""
    return s.g(Reshape(v.type.shape[1:]), part(s.g, v, 0, direction, 1))

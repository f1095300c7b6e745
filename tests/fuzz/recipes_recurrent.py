"""Recipes for recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES
from .inference import Declined, allowed
from .recipe import recipe

PLAIN = ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus")
TUNED = {"Affine": (0.5, 0.25), "LeakyRelu": (0.1, 0.0), "ThresholdedRelu": (0.5, 0.0),
         "ScaledTanh": (0.5, 1.5), "HardSigmoid": (0.25, 0.4), "Elu": (0.5, 0.0)}  # fmt: skip
TAKES = {"Affine": 2, "ScaledTanh": 2, "HardSigmoid": 2, "LeakyRelu": 1, "ThresholdedRelu": 1,
         "Elu": 1}  # fmt: skip
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FUNCTIONS = {"RNN": 1, "GRU": 2, "LSTM": 3}


@recipe("RNN", "GRU", "LSTM")
def recurrent(d: Draft, op: str) -> None:
    kind = "float" if d.chance(0.6) else d.one_of(allowed(op, d.opset))
    gates = GATES[op]
    direction = d.one_of(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    first = d.has(op, "layout") and d.chance(0.3)
    hidden = d.extent(17 if d.chance(0.2) else 9)

    def shape() -> tuple[int, ...]:
        return d.number(1, 5), d.one_of((1, 2, 3, 4, 5)), d.extent(17)

    x = d.pick([kind], 3, 3, empty=False, shape=shape, where=lambda v: max(v.shape) < 40)
    length, batch, size = x.shape if not first else (x.shape[1], x.shape[0], x.shape[2])
    if length > 17 or gates * hidden * (size + hidden) > 8192:
        raise Declined
    chosen = functions(d, FUNCTIONS[op] * ways) if d.chance(0.4) else {}
    stored = True if d.chance(0.8) else None

    def weights(width: int) -> Var:
        shape = (ways, gates * hidden, width)
        if not chosen:
            return d.fresh(kind, shape, stored)
        # Gates without a bound let states grow from step to step.
        return d.given((d.contents(kind, shape) * 0.25).astype(DTYPES[kind]), stored)

    w, r = weights(size), weights(hidden)
    b = d.fresh(kind, (ways, 2 * gates * hidden), stored) if d.chance(0.7) else None
    lengths = None
    if d.chance(0.4):
        # Layers of length 0: ONNX Runtime has its own idea of their last state.
        lengths = d.given(d.rng.integers(1, length + 1, batch).astype(np.int32))
        if lengths.name in d.inputs:
            d.controls[lengths.name] = []
    place = (batch, ways, hidden) if first else (ways, batch, hidden)
    states = [d.fresh(kind, place) if d.chance(0.5) else None]
    given: list[Var | None] = [x, w, r, b, lengths, *states]
    if op == "LSTM":
        given.append(d.fresh(kind, place) if d.chance(0.5) else None)
        given.append(d.fresh(kind, (ways, 3 * hidden), True) if d.chance(0.3) else None)
    more: dict[str, Any] = d.some(op, hidden_size=(hidden,), direction=(direction,))
    if direction != "forward":
        more["direction"] = direction
    if d.opset < 7 or ("hidden_size" not in more and d.chance(0.8)):
        more["hidden_size"] = hidden
    if first:
        more["layout"] = 1
    more |= chosen
    more |= d.some(op, clip=(0.5, 2.0, 100.0)) if d.chance(0.3) else {}
    if op == "GRU":
        more |= d.some(op, linear_before_reset=(0, 1))
    if op == "LSTM" and d.chance(0.3):
        more |= d.some(op, input_forget=(0, 1))
    y = (batch, length, ways, hidden) if first else (length, ways, batch, hidden)
    types = [(kind, y), (kind, place), (kind, place)][: 3 if op == "LSTM" else 2]
    count = d.number(1, len(types))
    if d.has(op, "output_sequence"):
        more["output_sequence"] = 1
    d.node(op, given, outputs=count, types=types[:count], **more)


def functions(d: Draft, count: int) -> dict[str, Any]:
    """Return activations: plain ones, or those that take numbers from two lists."""
    names = [d.one_of(PLAIN if d.chance(0.6) else tuple(TUNED)) for _ in range(count)]
    given: dict[str, Any] = {}
    if any(n in TUNED for n in names):
        # Numbers only for what takes any.  ONNX Runtime has no default for some.
        alphas = [TUNED[n][0] for n in names if TAKES.get(n, 0) >= 1]
        betas = [TUNED[n][1] for n in names if TAKES.get(n, 0) >= 2]
        given = {"activation_alpha": alphas} | ({"activation_beta": betas} if betas else {})
    spelled = [n.lower() if d.chance(0.1) else n for n in names]
    return {"activations": spelled, **given}

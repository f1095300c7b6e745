"""Random numbers in loops: each turn draws under a key that the last turn makes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.random.random import RandomUniform
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice


def drawn_under(g: Graph, names: Sequence[str]) -> dict[str, Value]:
    """Let the body of a loop carry its random keys, behind inputs `names`; return the next keys.

    Each turn splits its key in two: it draws under one, and hands the other to the next turn.  So
    no two turns draw the same numbers, in nested loops either.
    """
    following: dict[str, Value] = {}
    for name in [n for n, v in g.inputs.items() if v.hidden]:
        hidden = g.inputs.pop(name)
        carried = Value(hidden.type, name)
        used, following[name] = _split(g, carried)
        g.replace(hidden, used)
        first = {n: g.inputs.pop(n) for n in (*names, *list(following)[:-1])}
        g.inputs = {**first, name: carried, **g.inputs}
    return following


def _split(g: Graph, key: Value) -> tuple[Value, Value]:
    """Return two keys that follow from one."""
    halves = g(Cast("u32"), g(RandomUniform((2, 2, 2), 0.0, 65536.0), key))
    parts = (g(Slice((k, 0, 0), (1, 2, 2), (1, 1, 1)), halves) for k in (0, 1))
    high, low = (g(Reshape((2, 2)), part) for part in parts)
    shift = g(Broadcast((2, 2)), g.constant(np.uint32(65536)))
    words = g(Add(), g(Mul(), high, shift), low)
    first, second = (g(Reshape((2,)), g(Slice((k, 0), (1, 2), (1, 1)), words)) for k in (0, 1))
    return first, second

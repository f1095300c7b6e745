"""Which operator made the first infinite number or NaN of a step that went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.evaluate import apply
from alpenglow.ir.graph import Graph, Value

Array = NDArray[Any]


def first_infinite(g: Graph, feeds: Mapping[str, Array]) -> str:
    """Return where, in words, with a comma before: the first node whose result is not finite though
    its operands are, of a graph that is evaluated anew; "" if there is none."""
    env: dict[Value, Array] = {}
    for name, v in g.inputs.items():
        x = np.asarray(feeds[name], v.type.numpy) if name in feeds else None
        env[v] = np.zeros(v.type.extents, v.type.numpy) if x is None else x
        if not _finite(env[v]):
            return f", and input '{name}' is not finite"
    for node in g.nodes:
        arrays = [None if v is None else _of(env, v) for v in node.inputs]
        with np.errstate(all="ignore"):
            results = apply(node.op, arrays, node.regions, [v.type for v in node.results])
        env.update(zip(node.results, results, strict=True))
        if not all(map(_finite, results)) and all(x is None or _finite(x) for x in arrays):
            name = next((v.name for v in node.results if v.name), "")
            return f", first in {node.op.name}" + (f" '{name}'" if name else "")
    return ""


def _of(env: Mapping[Value, Array], v: Value) -> Array:
    return env[v] if v.array is None else v.array


def _finite(x: Array) -> bool:
    return x.dtype.kind in "biuSUO" or bool(np.isfinite(x.astype(np.float64)).all())

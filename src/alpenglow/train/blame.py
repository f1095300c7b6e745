"""Which operator made the first infinite number or NaN of a step that went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node
from alpenglow.runtime.call.extents import Reader

Array = NDArray[Any]


def first_infinite(g: Graph, feeds: Mapping[str, Array]) -> str:
    """Return where, in words, with a comma before: the first node whose result is not finite though
    its operands are, of a graph that is evaluated anew; "" if there is none."""
    for name, x in feeds.items():
        if not np.size(x):
            return f", and input '{name}' of shape {list(np.shape(x))} is empty"
        if not _finite(np.asarray(x)):
            return f", and input '{name}' is not finite"
    found: list[Node] = []

    def look(node: Node, operands: Sequence[Array | None], results: Sequence[Array]) -> None:
        before = all(x is None or _finite(x) for x in operands)
        told = [x for i, x in enumerate(results) if i not in node.op.infinite]
        if not found and before and not all(map(_finite, told)):
            found.append(node)

    values, _ = Reader({n: v.type for n, v in g.inputs.items()}).values(
        {n: np.asarray(feeds[n]) for n in g.inputs}
    )
    with np.errstate(all="ignore"):
        evaluate(g.bind(values) if values else g, feeds, look)
    if not found:
        return ""
    name = next((v.name for v in found[0].results if v.name), "")
    return f", first in {found[0].op.name}" + (f" '{name}'" if name else "")


def _finite(x: Array) -> bool:
    return x.dtype.kind in "biuSUO" or bool(np.isfinite(x.astype(np.float64)).all())

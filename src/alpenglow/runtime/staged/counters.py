"""Counters: small integers that a loop carries, whose elements its body asks for.

A body that slices at a counter would be cut there, in every turn.  Where all that it asks for
follows from counters, these are measured as a turn begins: the body is then one part, made for
symbols that stand for the elements, and these move on from turn to turn as extents do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from alpenglow.ir import dims
from alpenglow.ir.dims import Dim, Sym
from alpenglow.ir.staged import Part
from alpenglow.ir.types import Array
from alpenglow.runtime.staged.turns import Roles

MOST_ELEMENTS = 8
"""How many elements a counter has at most."""


def counters_of(part: Part, env: Mapping[str, Any]) -> set[str] | None:
    """Return the inputs that decide the elements a part lacks; None if others decide, too."""
    g = part.graph
    names = {v: n for n, v in g.inputs.items()}
    lacking = [g.outputs.get(n, g.inputs.get(n)) for n in part.needs]
    if not all(lacking):
        return None
    waiting = [v for v in lacking if v is not None]
    met = set(waiting)
    counters: set[str] = set()
    while waiting:
        v = waiting.pop()
        if v in names:
            value = None if v.hidden else env.get(names[v])
            if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu":
                return None
            if value.size > MOST_ELEMENTS:
                return None
            counters.add(names[v])
        elif v.producer is not None and not hasattr(v.producer.op, "extents_of"):
            operands = {x for x in v.producer.inputs if x is not None} - met
            met |= operands
            waiting += operands
    return counters


def symbols_of(elements: Iterable[Array]) -> set[str]:
    """Return the names of the symbols among elements."""
    found = (d for array in elements if array.dtype == object for d in array.flat)
    return {name for d in found if isinstance(d, Sym) for name in dims.names(d)}


def element_steps(
    elements: Mapping[str, Array], contents: Mapping[str, Array], roles: Roles
) -> dict[str, Dim] | None:
    """Return by how much each symbol of `elements` is larger in the next turn; None: not known.

    `elements` are those of inputs of a body, `contents` those of its results.
    """
    steps: dict[str, Dim] = {}
    carried = dict(roles.carried)
    for name, now in elements.items():
        if name in roles.sliced:
            return None
        then = now
        if name == roles.count:
            then = np.asarray(now + 1, object)
        elif name in carried:
            known = contents.get(carried[name])
            if known is None or known.shape != now.shape:
                return None
            then = known
        pairs = zip(now.reshape(-1).tolist(), then.reshape(-1).tolist(), strict=True)
        steps.update((str(d), after - d) for d, after in pairs)
    return steps


"""Simplification: nodes that do nothing, undo each other, or can be said in fewer.

The rules are in files by subject: arithmetic (`identities`), the movement of elements
(`rearrange`), quantization there and back (`roundtrips`), checks (`indices`), windows on padding
(`taps`).

Every rule is exact except for the sign of zeros, and holds for NaN and infinities, except for
weights that only multiply padding.  The pass applies to models as imported as well as to
primitives, and to tensors in any layout.
"""

from __future__ import annotations

from alpenglow.ir.graph import Graph
from alpenglow.ir.rewrite import Rules
from alpenglow.passes import identities, indices, rearrange, roundtrips, taps

rules = Rules()
for part in (identities, rearrange, roundtrips, indices, taps):
    for root, group in part.rules.by_root.items():
        for rule in group:
            rules.on(root)(rule)


def simplify(g: Graph) -> Graph:
    """Apply all rules until none does anything more."""
    return rules.exhaust(g)

"""Groups of a convolution that are too narrow for vectors are computed as one, in bands.

What joins two groups is then a product with zero: an infinity or a NaN in one group may reach
others, so this runs under numerics="fast" only.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.blocked import PACKED, Ungroup
from alpenglow.machines.vector.passes.layout import grouped_planar_pays
from alpenglow.ops.product.contraction import Conv

MOST_GROUPS = 8
"""With more groups too much of what is computed is zero."""


def ungroup(g: Graph, target: Target) -> Graph:
    """Give convolutions in narrow groups weights that are zero between the groups."""
    nodes = len(g.nodes)
    for node in list(g.nodes):
        match node:
            case Node(Conv(group=group) as op, [x, w, *rest]) if x is not None and w is not None:
                if w.array is None or not 1 < group <= MOST_GROUPS:
                    continue
                outputs, per_group = w.type.extents[:2]
                narrow = per_group % target.facts.lanes or (outputs // group) % target.facts.lanes
                depthwise = per_group == 1 and outputs == group
                fits = (x.type.dtype, w.type.dtype) in PACKED
                if x.type.dtype == "f32" and grouped_planar_pays(
                    op, x.type, w.type, target.facts.lanes
                ):
                    continue
                if narrow and not depthwise and fits and outputs:
                    full = g(Ungroup(group), w)
                    g.replace(node.output, g(replace(op, group=1), x, full, *rest))
    if len(g.nodes) > nodes:
        g.prune()
    return g

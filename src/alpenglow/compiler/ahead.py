"""What is done to a graph with open extents before code is made for a kind of them."""

from __future__ import annotations

from alpenglow.compiler.options import Options
from alpenglow.compiler.pipeline import table
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target


def run_ahead(g: Graph, target: Target, options: Options) -> Graph:
    """Return a graph with open extents after the passes whose work all kinds of these share.

    The graph is left as it is.
    """
    rows = table(options)[0]
    for p in rows:
        wanted = p.serves(target.machine) and p.runs(options)
        if wanted and p.ahead is not None and p.ahead(g):
            g = p.run(g.copy(), target)
    return g

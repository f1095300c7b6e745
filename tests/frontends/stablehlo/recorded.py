"""Programs of StableHLO by name, and the graphs that the front end makes of them.

Programs that JAX wrote lie as text beside the goldens; `one_operation` writes programs of one
operation.
"""

from __future__ import annotations

import re
from functools import cache

from tests.frontends.goldens import FOLDER
from tests.frontends.stablehlo.one_operation import PROGRAMS

from alpenglow.frontends.stablehlo.loading import load
from alpenglow.ir.graph import Graph

BEGINS = re.compile(r"^// ---- (.+)\n", re.MULTILINE)


@cache
def texts(name: str) -> dict[str, str]:
    """Return the programs of a golden, by name."""
    file = FOLDER / "stablehlo" / f"{name}.mlir"
    if file.exists():
        _, *parts = BEGINS.split(file.read_text(encoding="utf-8"))
        return dict(zip(parts[::2], parts[1::2], strict=True))
    return dict(next(p for p in PROGRAMS if p.__name__ == name)())


def graph_of_text(text: str) -> Graph:
    """Return the graph of a program."""
    graph = load(text.encode())
    assert isinstance(graph, Graph), "it depends on data"
    return graph

"""Where instructions come from: the nodes of the imported graph that each of them computes.

The values that a model names keep their names through most passes.  A node belongs to the
instruction that makes a value of its name; one whose results have no instruction of their own,
because they were fused, absorbed or turned into addressing, belongs to whatever reads them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from alpenglow.ir.graph import Graph, Node
from alpenglow.program import Instr

Origins = list[tuple[str, ...]]


def sources(instrs: Sequence[Instr], graph: Graph | None) -> Origins:
    """Return, for each instruction, the first results of the nodes that it comes from.

    Without a graph they are what the program itself remembers of their names.
    """
    named = [i.names for i in instrs]
    if graph is None:
        buffers = [tuple(dict.fromkeys(r.buffer for r in i.outs)) for i in instrs]
        return _inherited(instrs, [n or b for n, b in zip(named, buffers, strict=True)])
    makers: dict[str, int] = {}
    for k, names in enumerate(named):
        for name in names:
            makers.setdefault(name, k)
    origins: dict[int, list[str]] = defaultdict(list)
    owners: dict[Node, frozenset[int]] = {}
    at_run_time = _at_run_time(graph)
    for node in reversed(graph.nodes):
        own = {makers[v.name] for v in node.results if v.name in makers}
        read = {k for user in node.users for k in owners.get(user, ())}
        owners[node] = frozenset(own or read)
        if node in at_run_time and node.results[0].name:
            for k in owners[node]:
                origins[k].append(node.results[0].name)
    known = {v.name for node in graph.nodes for v in node.results}
    own_names = [tuple(n for n in names if n in known) for names in named]
    return _inherited(instrs, [tuple(reversed(origins[k])) or own_names[k]
                               for k in range(len(instrs))])  # fmt: skip


def _at_run_time(graph: Graph) -> set[Node]:
    """Return the nodes whose results depend on inputs: the others are computed beforehand."""
    varying = set(graph.inputs.values())
    nodes: set[Node] = set()
    for node in graph.nodes:
        if any(v is not None and v in varying for v in node.inputs):
            nodes.add(node)
            varying.update(node.results)
    return nodes


def _inherited(instrs: Sequence[Instr], origins: Origins) -> Origins:
    """Give instructions without an origin that of the next one that reads what they write."""
    readers: dict[str, int] = {}
    for k in reversed(range(len(instrs))):
        if not origins[k]:
            heirs = [readers[r.buffer] for r in instrs[k].outs if r.buffer in readers]
            origins[k] = origins[min(heirs)] if heirs else ()
        readers |= {r.buffer: k for r in instrs[k].reads()}
    return origins

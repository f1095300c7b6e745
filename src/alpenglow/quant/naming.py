"""Names for all values of a graph, and a fingerprint of it: what a profile is keyed by.

Neither depends on extents, so that a profile made with one batch size serves any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from itertools import count

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.region import deep


def names(g: Graph) -> dict[Value, str]:
    """Return a name for each value of a graph that is computed or given, in regions too.

    A value has its own name.  One without, or whose name an earlier one has, is called by its
    operator and a number, `broadcast:3`.
    """
    taken: set[str] = set()
    called: dict[Value, str] = {}
    late: list[tuple[Value, str]] = []
    for name, v in _values(g):
        if name and name not in taken:
            taken.add(name)
            called[v] = name
        else:
            late.append((v, v.producer.op.name if v.producer else name))
    for v, stem in late:
        chosen = next(c for i in count() if (c := f"{stem}:{i}") not in taken)
        taken.add(chosen)
        called[v] = chosen
    return called


def fingerprint(g: Graph) -> str:
    """Return the SHA-256 of the operators of a graph, what each reads, and the constants."""
    called: Mapping[Value, str] = names(g)
    digest = hashlib.sha256()
    for key, v in g.inputs.items():
        digest.update(f"input {key} {v.type.dtype}\n".encode())
    for node in g.nodes:
        reads = ["none" if v is None else called.get(v) or v.digest for v in node.inputs]
        line = f"{' '.join(called[v] for v in node.results)} = {node.op.name} {' '.join(reads)}\n"
        digest.update(line.encode())
        for region in node.regions:
            digest.update(fingerprint(region).encode())
    for key, v in g.outputs.items():
        digest.update(f"output {key} {called.get(v) or v.digest}\n".encode())
    return digest.hexdigest()


def _values(g: Graph) -> Iterator[tuple[str, Value]]:
    for part in deep(g):
        yield from part.inputs.items()
        for node in part.nodes:
            for v in node.results:
                yield v.name, v

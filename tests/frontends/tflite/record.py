"""Record probes of TFLite's operators, each checked against LiteRT, as goldens of the converters.

    .venv/tflite/bin/python -m tests.frontends.tflite.record [--only FAMILIES]

Of the probes of an operator in a family those are kept that have options, element types or ranks
that none before has, and a graph that none before has.  A probe whose result differs from LiteRT's,
evaluated in NumPy, is not kept but printed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import combinations
from typing import Any

from tests.frontends.digests import text_of
from tests.frontends.goldens import write
from tests.frontends.tflite.litert.probe import Probe
from tests.frontends.tflite.litert.test_probes import oracle as oracle_of_floats
from tests.frontends.tflite.litert.test_probes import wrong
from tests.frontends.tflite.litert.test_quantised_probes import near, oracle
from tests.frontends.tflite.probed import FAMILIES, graph_of_probe, line_of, probes_of

from alpenglow.base.errors import AlpenglowError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import NAMES, Array

MOST = 6
"""So many probes of an operator are kept of a family."""

LARGE = 250
"""Of graphs with more nodes one is kept of a family for each rounding: they take long to build."""


def features(probe: Probe) -> set[Any]:
    """Return what tells probes apart: options, alone and in pairs, small constants, types."""
    found: set[Any] = set()
    values: list[Any] = [(k, str(v)) for k, v in probe.options.items()]
    for i, v in enumerate(probe.operands):
        if v is None:
            values.append((i, "absent"))
            continue
        found |= {(i, NAMES[v.dtype]), (i, "rank", v.ndim), (i, "fixed", i in probe.fixed)}
        if i in probe.fixed and v.size <= 4 and v.dtype.kind == "i":
            values.append((i, str(v.tolist())))
        if (grid := probe.grid(i)) is not None:
            found.add((i, "scales", len(grid.scales) > 1, any(grid.zeros)))
    return found | {*values, *combinations(values, 2), ("results", *probe.results)}


def spread(listed: list[Probe]) -> Iterator[int]:
    """Yield the numbers of probes, first those with the most that no other has had."""
    by_kind: dict[str, dict[int, set[Any]]] = defaultdict(dict)
    for i, probe in enumerate(listed):
        by_kind[probe.kind][i] = features(probe)
    for rest in by_kind.values():
        seen: set[Any] = set()
        for _ in range(3 * MOST):
            number = max(rest, key=lambda i: len(rest[i] - seen), default=None)
            if number is None or not rest[number] - seen:
                break
            seen |= rest.pop(number)
            yield number


def recorded(family: str, number: int, rounding: str) -> tuple[str, Graph] | None:
    """Return the line of a probe and its graph; None if LiteRT makes nothing or something else."""
    probe = probes_of(family)[number]
    wanted = wanted_of(probe, rounding)
    if wanted is None:
        return None
    line = line_of(family, number, rounding, [w.shape for w in wanted])
    try:
        graph = graph_of_probe(probe, rounding, [w.shape for w in wanted])
    except (AlpenglowError, AssertionError) as error:
        print(f"refused {line}: {error}", flush=True)
        return None
    feeds = dict(zip(graph.callers_inputs(), probe.inputs(), strict=True))
    made = list(evaluate(graph, feeds).values())[: len(wanted)]
    if said := wrong(made, near(made, wanted, probe.off)):
        print(f"WRONG {line}: {said}", flush=True)
        return None
    return line, graph


def wanted_of(probe: Probe, rounding: str) -> list[Array] | None:
    """Return what LiteRT makes of a probe."""
    if not probe.grids:
        return oracle_of_floats(probe) if rounding == ROUNDINGS[0] else None
    found = oracle(probe, rounding)
    return None if found is None else found[1]


def kept_of(family: str) -> list[tuple[str, Graph]]:
    """Return the probes of a family that are recorded."""
    kept: list[tuple[str, Graph]] = []
    counts: Counter[tuple[str, str]] = Counter()
    seen: set[tuple[str, str]] = set()
    for number in spread(probes_of(family)):
        kind = probes_of(family)[number].kind
        for rounding in ROUNDINGS:
            if counts[rounding, kind] == MOST or not (made := recorded(family, number, rounding)):
                continue
            if len(list(made[1].nodes)) > LARGE:
                counts[rounding, "large"] += 1
                if counts[rounding, "large"] > 1:
                    continue
            counts[rounding, kind] += 1
            text = text_of(made[1])
            if (kind, text) not in seen:
                seen.add((kind, text))
                kept.append(made)
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", choices=FAMILIES, help="only these families")
    asked = parser.parse_args()
    count = 0
    for family in asked.only or FAMILIES:
        kept = kept_of(family)
        write("tflite", family, kept)
        count += len(kept)
        print(f"{family}: {len(kept)}", flush=True)
    print(f"{count} probes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A pass that works on some operators changes no graph without them, so it is not run there."""

from __future__ import annotations

import pytest

from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.text import print_graph
from alpenglow.passes.table import Pass
from pass_cases import FOLDER, cases
from passes.test_pass_rules import PASSES

CASES = [(f"{path.stem}: {c.name}", c) for path in FOLDER.glob("*.txt") for c in cases(path.stem)]
SOME = [p for p in PASSES.values() if p.on]


def pruned(g: Graph) -> str:
    g.prune()
    return print_graph(g)


@pytest.fixture(scope="module")
def graphs() -> dict[str, tuple[Graph, Target]]:
    """Return the graphs of all cases before their passes, by name, and the targets."""
    return {
        name: (case.parsed(), Target.parse(case.target))
        for name, case in CASES
        if case.before.startswith("graph")
    }


@pytest.mark.parametrize("p", SOME, ids=lambda p: p.name)
def test_a_pass_changes_no_graph_without_its_operators(
    p: Pass, graphs: dict[str, tuple[Graph, Target]]
) -> None:
    others = [(n, g.copy(), t) for n, (g, t) in graphs.items() if not p.concerns(g)][::3]
    assert len(others) > 20
    for name, graph, target in others:  # every third, in 3 s for all passes
        before = pruned(graph)

        assert pruned(p.run(graph, target)) == before, name


@pytest.mark.parametrize("p", SOME, ids=lambda p: p.name)
def test_a_pass_has_the_operators_of_its_cases(p: Pass) -> None:
    assert all(p.concerns(c.parsed()) for c in cases(p.name) if c.before != c.after)

"""Golden cases of passes: a graph before and after, in tests/golden/passes/PASS.txt.

    == add_zero
    A sentence.  With the word "finite" in it, inputs hold no NaN and no infinity.
    graph @f { … }
    -- becomes
    graph @f { … }

The graph after is written by `pytest --bless`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow.ops  # noqa: F401 (registers the operators)
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.rewrite import Rules
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import FLOATS, TensorType

FOLDER = Path(__file__).resolve().parent / "golden" / "passes"

Array = NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One graph and what a pass makes of it."""

    name: str
    says: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"== {self.name}\n{self.says}\n{self.before}\n-- becomes\n{self.after}\n"

    def rewritten(self, rewrite: Callable[[Graph], Graph]) -> Case:
        """Return this case with the texts that printing and `rewrite` give now."""
        g = parse_graph(self.before)
        before = print_graph(g)
        return Case(self.name, self.says, before, print_graph(rewrite(g)))


def cases(name: str) -> list[Case]:
    """Read the cases of a pass."""
    found = []
    for text in re.split(r"^== ", (FOLDER / f"{name}.txt").read_text(), flags=re.M)[1:]:
        head, _, after = text.partition("-- becomes\n")
        title, says, before = head.split("\n", 2)
        found.append(Case(title.strip(), says, before.strip(), after.strip()))
    return found


def check_text(name: str, rewrite: Callable[[Graph], Graph], bless: bool) -> None:
    """Assert that the pass makes of every case what its file says; with `bless`, write the file."""
    path = FOLDER / f"{name}.txt"
    expected = path.read_text()
    actual = "\n".join(str(c.rewritten(rewrite)) for c in cases(name))
    if bless:
        path.write_text(actual)
        return

    assert expected == actual


def check_meaning(case: Case, rewrite: Callable[[Graph], Graph], tolerance: float) -> None:
    """Assert that the graph computes the same before and after, on inputs drawn anew."""
    before, after = parse_graph(case.before), rewrite(parse_graph(case.before))
    extents = {name: 2 for v in before.inputs.values() for name in v.type.symbols()}
    feeds = drawn(before.bind(extents), finite="finite" in case.says)
    with np.errstate(all="ignore"):
        expected = evaluate(before.bind(extents), feeds)
        actual = evaluate(after.bind(extents), feeds)

    assert list(expected) == list(actual)
    for key, array in expected.items():
        assert array.dtype == actual[key].dtype
        np.testing.assert_allclose(
            actual[key].astype(np.float64), array.astype(np.float64), tolerance, tolerance
        )


def drawn(g: Graph, finite: bool) -> dict[str, Array]:
    """Return random inputs for `g`."""
    random = np.random.default_rng(7)
    return {k: _array(random, v.type, finite) for k, v in g.inputs.items()}


def _array(random: np.random.Generator, t: TensorType, finite: bool) -> Array:
    shape = t.extents
    if t.dtype == "bool":
        return random.random(shape) < 0.5
    if t.dtype not in FLOATS:
        return random.integers(0 if t.dtype[0] == "u" else -5, 6, shape).astype(t.numpy)
    x = np.asarray(random.normal(0, 2, shape))
    if not finite:
        for special in (np.nan, np.inf, -np.inf):
            x[random.random(shape) < 0.15] = special
    return x.astype(t.numpy)


def fired(rules: Rules, name: str) -> set[str]:
    """Return the names of the rules that apply somewhere in the cases of a pass."""
    seen: set[str] = set()
    recording = Rules()
    for root, group in rules.by_root.items():
        for rule in group:
            recording.on(root)(_recording(rule, seen))
    for case in cases(name):
        g = parse_graph(case.before)
        while recording.apply(g):
            pass
    return seen


def _recording(rule: Any, seen: set[str]) -> Any:
    def apply(g: Graph, node: Any) -> Any:
        made = rule(g, node)
        if made is not None:
            seen.add(rule.__name__)
        return made

    apply.__doc__ = rule.__doc__
    return apply

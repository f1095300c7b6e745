"""Golden cases of passes: a graph or program before and after, in tests/golden/passes/PASS.txt.

    == add_zero for x86-64-v3
    A sentence.  With the word "finite" in it, inputs hold no NaN and no infinity.
    graph @f { … }
    -- becomes
    graph @f { … }

What stands after is written by `pytest --bless`.  A case that names no target is one for x86-64-v4,
wherever tests run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.rewrite import Rewritten, Rule, Rules
from alpenglow.ir.target import Target
from alpenglow.ir.text import parse_graph
from alpenglow.ir.types import DTYPES, FLOATS, PARTS, TensorType
from alpenglow.ir.verify import verify_graph
from alpenglow.passes.table import Pass, Properties
from alpenglow.program import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.text import parse_program, print_ir
from alpenglow.program.verify import verify

FOLDER = Path(__file__).resolve().parent / "golden" / "passes"

Array = NDArray[Any]
IR = Graph | Program

HERE = "x86-64-v4"
"""The target of cases that name none."""

LARGE = (
    ("f32", 16, 16, 3, 3), ("f16", 16, 16, 3, 3), ("bf16", 16, 16, 3, 3), ("f32", 8, 16, 3, 3),
    ("f32", 2, 2, 3, 3), ("i8", 2, 2, 3, 3), ("f32", 16, 1, 3, 3), ("i8", 16, 1, 3, 3),
    ("f32", 8, 1, 3, 3), ("f32", 8, 4, 1, 1), ("f32", 8, 4, 3, 3), ("f32", 32, 16, 1, 1),
    ("f32", 4, 130), ("i8", 32, 4),
)  # fmt: skip
"""Constants in cases that are too large to stand in text."""


def large(dtype: str, *shape: int) -> Array:
    """Return a constant of small whole numbers."""
    return (np.arange(math.prod(shape)) % 7 - 3).reshape(shape).astype(DTYPES[dtype])


HALVES = np.repeat(np.array([[0.5], [0.25]], np.float32), 16, 0)
"""A scale that the first sixteen of 32 rows share, and another for the others."""

WEIGHTS = {Graph().constant(a).digest: a for a in (HALVES, *(large(*t) for t in LARGE))}
"""The large constants by their hashes."""


@dataclass(frozen=True)
class Case:
    """One graph or program and what a pass makes of it for a target."""

    name: str
    target: str
    says: str
    before: str
    after: str

    def __str__(self) -> str:
        machine = "" if self.target == HERE else f" for {self.target}"
        head = f"== {self.name}{machine}\n{self.says}\n"
        return f"{head}{self.before}\n-- becomes\n{self.after}\n"

    def parsed(self) -> Any:
        """Return the graph or program before."""
        parse = parse_graph if self.before.startswith("graph") else parse_program
        return parse(self.before, WEIGHTS)

    def rewritten(self, p: Pass, ir: Any = None) -> Any:
        """Return what a pass makes of the case, or of another graph or program in its place."""
        return p.run(self.parsed() if ir is None else ir, Target.parse(self.target))


def cases(name: str) -> list[Case]:
    """Read the cases of a pass; none where it has no file."""
    path, read = FOLDER / f"{name}.txt", []
    texts = path.read_text() if path.exists() else ""
    for text in re.split(r"^== ", texts, flags=re.M)[1:]:
        head, _, after = text.partition("-- becomes\n")
        title, says, before = head.split("\n", 2)
        name, _, target = title.partition(" for ")
        read.append(Case(name, target or HERE, says, before.strip(), after.strip()))
    return read


def check_text(name: str, p: Pass, bless: bool) -> None:
    """Assert that a pass makes of every case what a file says; with `bless`, write the file."""
    path = FOLDER / f"{name}.txt"
    expected = path.read_text()
    actual = "\n".join(
        str(replace(c, before=print_ir(c.parsed()), after=print_ir(c.rewritten(p))))
        for c in cases(name)
    )
    if bless:
        path.write_text(actual)
        return

    assert expected == actual


def check_meaning(case: Case, p: Pass, held: Properties, tolerance: float) -> None:
    """Assert that the same is computed before and after, on inputs drawn anew, and that what a pass
    made breaks no rule of its language.

    Of a pass that `steps`, integers may be one off.
    """
    before, after = bound(case.parsed()), bound(case.rewritten(p))
    if print_ir(before) == print_ir(after):
        return
    feeds = drawn(before, finite="finite" in case.says)
    with np.errstate(all="ignore"):
        expected, actual = computed(before, feeds), computed(after, feeds)

    if isinstance(after, Program):
        verify(after, held)
    else:
        verify_graph(after)
    assert expected.keys() == actual.keys()
    for key, array in expected.items():
        assert array.dtype == actual[key].dtype
        off = 1 if p.steps and array.dtype.kind in "iu" else tolerance
        wide = np.complex128 if array.dtype.kind == "c" else np.float64
        np.testing.assert_allclose(actual[key].astype(wide), array.astype(wide), tolerance, off)


def bound(ir: IR) -> IR:
    """Return a graph with every open extent 2, a program as it is."""
    if isinstance(ir, Program):
        return ir
    return ir.bind({name: 2 for v in ir.inputs.values() for name in v.type.symbols()})


def computed(ir: IR, feeds: dict[str, Array]) -> dict[str, Array]:
    """Return what a graph or program computes."""
    return evaluate(ir, feeds) if isinstance(ir, Graph) else interpret(ir, feeds)


def drawn(ir: IR, finite: bool) -> dict[str, Array]:
    """Return random inputs for a graph or program."""
    random = np.random.default_rng(7)
    if isinstance(ir, Graph):
        types = {k: v.type for k, v in ir.inputs.items()}
    else:
        types = {k: t for k in ir.inputs if (t := ir.buffers[k].type) is not None}
    return {k: _array(random, t, finite) for k, t in types.items()}


def _array(random: np.random.Generator, t: TensorType, finite: bool) -> Array:
    shape = t.extents
    if t.dtype == "bool":
        return random.random(shape) < 0.5
    if t.dtype in PARTS:
        parts = [_array(random, t.with_dtype(PARTS[t.dtype]), finite) for _ in range(2)]
        return np.stack(parts, axis=-1).view(t.numpy)[..., 0]
    if t.dtype not in FLOATS:
        return random.integers(0 if t.dtype[0] == "u" else -5, 6, shape).astype(t.numpy)
    x = np.asarray(random.normal(0, 2, shape))
    if not finite:
        for special in (np.nan, np.inf, -np.inf):
            x[random.random(shape) < 0.15] = special
    return x.astype(t.numpy)


def fired(sets: Iterable[Rules], name: str) -> set[Rule]:
    """Return the rules, of several sets, that apply somewhere in the cases of a pass."""
    seen: set[Rule] = set()
    recording = Rules()
    for rules in sets:
        for root, group in rules.by_root.items():
            for rule in group:
                recording.on(root)(_recording(rule, seen))
    for case in cases(name):
        g = case.parsed()
        while recording.apply(g):
            pass
    return seen


def _recording(rule: Rule, seen: set[Rule]) -> Rule:
    def apply(g: Graph, node: Node) -> Rewritten:
        rewritten = rule(g, node)
        if rewritten is not None:
            seen.add(rule)
        return rewritten

    apply.__doc__ = rule.__doc__
    return apply

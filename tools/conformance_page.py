"""What came out of the conformance tests, counted, and the page that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx

from alpenglow.frontends.onnx.node_tests import RANDOM, UNDECIDED
from alpenglow.machines.api import Artifact
from alpenglow.ops.tensor.copy import Copy, Fill
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.staged.staged import StagedExecutable

LONGEST_REASON = 160

INTRODUCTION = """\
# Conformance

*Reference.*  Results of the tests in the package `onnx`.  For those who want to know how well an
ONNX operator is supported.  Index: [index](index.md).

The tests that onnx {version} brings (`onnx.backend.test`), run through `alpenglow.onnx_backend`.
*Compiled* are those tests on the CPU in which every instruction ran as emitted code; *in part*
those that needed NumPy or Python for some; *folded* those whose results were known when the model
was compiled, so that nothing was left to run.

Outputs are compared with those that come with the tests, by the comparator of onnx's own runner
(`BackendTest.assert_similar_outputs`): as many outputs, of the same shapes and element types;
strings equal; numbers within `rtol` of their size and `atol`, which are the test's own (1e-3 and
1e-7 for most, 2⁻⁶ of their size for bf16); NaN where NaN is.  That comparator cannot be given a
sequence with tensors of rank 0 or an optional that is empty, and does not miss what lacks at the
end of a sequence; there, `similar` in `tools/conformance.py` compares element by element.

`make conformance` runs the tests and writes this page.
"""

NOTES = {
    **{f"test_{name}": why for name, why in UNDECIDED.items() if why != RANDOM},
    "test_squeezenet": "its softmax reads sums of 9.5e9, which must be equal to the last bit; with "
    "the interpreter they are those of NumPy's BLAS, whose order is another on each machine",
}
"""What there is to say of a test that fails."""

STOCK = """
## What the stock runner counts

`BackendTest(AlpenglowBackend)`, with nothing of ours in the comparison, counts as passed:
"""

SUITES = {
    "Node": "single nodes",
    "PyTorchConverted": "modules exported by PyTorch",
    "PyTorchOperator": "operators exported by PyTorch",
    "Simple": "small models",
    "Real": "networks with made-up weights",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended on one target.

    `status` is passed, failed, skipped, timeout or crashed; `ran` is how the model ran if it
    passed: compiled, in part, or folded; `outside` holds what ran otherwise than compiled; `stock`
    is whether onnx's own comparator takes the outputs.
    """

    category: str
    test: str
    target: str
    status: str
    ran: str
    reason: str
    operators: tuple[str, ...]
    seconds: float
    outside: tuple[str, ...] = ()
    stock: bool = False

    @property
    def passed(self) -> bool:
        return self.status == "passed"


def how(exe: Executable) -> tuple[str, tuple[str, ...]]:
    """Return how an executable ran last, and the operators that no emitted code was run for.

    What decides the way through a model, If and Loop and Scan, is Python and counts for nothing.
    """
    artifacts = exe.artifacts
    if isinstance(exe, StagedExecutable):
        records = exe.report()
        outside = {name for r in records for name in (*r.interpreted, r.host) if name}
        ran = any(r.compiled for r in records)
    else:
        outside = {instr.op.name for a in artifacts for instr in a.interpreted()}
        ran = any(a.table for a in artifacts)
    if outside:
        return "in part", tuple(sorted(outside))
    return ("compiled" if ran and any(map(computes, artifacts)) else "folded"), ()


def computes(artifact: Artifact) -> bool:
    """Whether something is computed of the inputs; where there are none, something at all."""
    program = artifact.program
    instrs = list(program.instrs())
    if program.inputs:
        return any(program.buffers[r.buffer].space == "input" for i in instrs for r in i.reads())
    return any(not isinstance(i.op, Copy | Fill) for i in instrs)


def summary(outcomes: Sequence[Outcome], targets: Sequence[str]) -> Iterator[str]:
    """Yield a table of the suites: how many tests there are, and how many passed on each target."""
    yield from table("suite", {SUITES[c]: [o for o in outcomes if o.category == c]
                               for c in SUITES}, targets, total="all")  # fmt: skip


def page(outcomes: Sequence[Outcome], targets: Sequence[str]) -> Iterator[str]:
    """Yield the lines of docs/conformance.md."""
    yield INTRODUCTION.format(version=onnx.__version__)
    yield from summary(outcomes, targets)
    yield "\n## Tests that fail\n"
    failed: dict[tuple[str, str, str], list[str]] = {}
    for o in outcomes:
        if not o.passed:
            failed.setdefault((o.category, o.test, o.reason), []).append(o.target)
    for (_, test, reason), where in failed.items():
        on = "" if len(where) == len(targets) else f" ({', '.join(where)})"
        note = f"; {NOTES[test]}" if test in NOTES else ""
        yield f"- `{test}`{on}: {plain(reason)}{note}"
    yield from () if failed else ["None."]
    yield from stock(outcomes, targets)
    yield "\n## What ran outside of compiled code\n"
    yield "Our operators that no code was emitted for on the CPU, and in how many tests.\n"
    counts = Counter(name for o in outcomes if o.target == "cpu" for name in o.outside)
    listed = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    yield ", ".join(f"`{name}` {count}" for name, count in listed) + "." if listed else "None."
    yield "\n## Operators\n"
    yield "Tests count for each operator that their model holds.\n"
    names = sorted({name for o in outcomes for name in o.operators})
    by_operator = {f"`{n}`": [o for o in outcomes if n in o.operators] for n in names}
    yield from table("operator", by_operator, targets)


def stock(outcomes: Sequence[Outcome], targets: Sequence[str]) -> Iterator[str]:
    """Yield how many tests pass by onnx's own comparator, and of which it says otherwise."""
    yield STOCK
    total = len({(o.category, o.test) for o in outcomes})
    for target in targets:
        count = sum(o.stock and o.target == target for o in outcomes)
        yield f"- {target}: {count} of {total}"
    for title, others in (
        ("It fails what passes here", [o for o in outcomes if o.passed and not o.stock]),
        ("It passes what fails here", [o for o in outcomes if o.stock and not o.passed]),
    ):
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(o.test for o in others))
        yield f"\n{title}: {names or 'none'}."


def plain(text: str) -> str:
    """Return text of an error with nothing in it that Markdown would take for its own."""
    return text.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def table(
    title: str, groups: dict[str, list[Outcome]], targets: Sequence[str], total: str = ""
) -> Iterator[str]:
    """Yield a table with a line for each group of outcomes, and one for all of them."""
    ways = ("compiled", "in part", "folded") if "cpu" in targets else ()
    yield f"| {title} | tests | {' | '.join((*targets, *ways))} |"
    yield f"|---|{'---|' * (1 + len(targets) + len(ways))}"
    if total:
        groups = groups | {total: [o for group in groups.values() for o in group]}
    for name, group in groups.items():
        if not group:
            continue
        tests = len({(o.category, o.test) for o in group})
        passed = [sum(o.passed and o.target == t for o in group) for t in targets]
        ran = [sum(o.ran == way and o.target == "cpu" for o in group) for way in ways]
        yield f"| {name} | {' | '.join(map(str, (tests, *passed, *ran)))} |"


def shown(reason: str) -> str:
    """Return a reason in a line of at most 160 characters, as Markdown takes it for plain."""
    line = " ".join(reason.split())
    return plain(line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…")

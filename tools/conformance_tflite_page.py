"""The page on models of one operator beside LiteRT, docs/conformance-tflite.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance_page import shown

STATUSES = ("equal", "near", "wrong", "refused", "failed")

SUITES = {
    "floats": "floats",
    "integers": "integers that stand for reals",
    "states": "layers with a state, three calls",
    "glow": "Glow's models, outputs as stored",
}

INTRODUCTION = """\
# Conformance: TFLite

*Reference.*  Results of TFLite operators compared with LiteRT.  For users of TensorFlow Lite.
Index: [index](index.md).

Models of one operator, over the space of its attributes, beside LiteRT {version}, and Glow's models
with the outputs that TFLite wrote.  All are evaluated, and {share:.0%} are compiled for the CPU,
too; layers with a state and Glow's are all compiled.

- *equal*: the same integers; floats within 1e-5 of the range of a result;
- *near*: one step off, where LiteRT's own result depends on the platform's functions of f32;
- *refused*: told to be none that is supported, before anything is computed.

With `rounding="reference"` what is right is what LiteRT's reference kernels make, with `"xnnpack"`
what XNNPACK makes where it takes the operator, else LiteRT's own kernel.  Models that LiteRT itself
refuses are not counted.

`make conformance-tflite` runs all and writes this page.
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a probe came to: equal, near, wrong, refused, failed otherwise, or none to compare."""

    suite: str
    kind: str
    rounding: str
    probe: str
    target: str
    status: str
    reason: str


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a table with a line for each suite, rounding and target."""
    yield f"| | rounding | target | models | {' | '.join(STATUSES)} |"
    yield f"|---|---|---|{'---|' * (1 + len(STATUSES))}"
    groups: dict[tuple[str, str, str], Counter[str]] = {}
    for o in sorted(outcomes, key=lambda o: (list(SUITES).index(o.suite), o.rounding)):
        if o.status != "none":
            groups.setdefault((o.suite, o.rounding, o.target), Counter())[o.status] += 1
    for (suite, rounding, target), counts in groups.items():
        said = rounding if suite in ("integers", "states") else "–"
        numbers = (counts.total(), *(counts[s] for s in STATUSES))
        yield f"| {SUITES[suite]} | {said} | {target} | {' | '.join(map(str, numbers))} |"


def page(outcomes: Sequence[Outcome], version: str, share: float) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION.format(version=version, share=share)
    yield from summary(outcomes)
    yield "\n## By operator\n"
    yield "Models of each operator, and how many of these are neither equal nor near.\n"
    counted, bad = _by_operator(outcomes, False), _by_operator(outcomes, True)
    yield ", ".join(
        f"{kind} {n}" + (f" ({bad[kind]} not)" if bad[kind] else "")
        for kind, n in sorted(counted.items())
    )
    yield "\n## What is wrong, refused or fails\n"
    lines = Counter(
        f"- {SUITES[o.suite]}, {o.rounding}: {o.kind}: {o.status}: {shown(o.reason)}"
        for o in outcomes
        if o.status not in ("equal", "near", "none")
    )
    yield from (f"{line} ({n} ×)" if n > 1 else line for line, n in lines.items())
    if not lines:
        yield "Nothing."


def _by_operator(outcomes: Sequence[Outcome], bad: bool) -> Counter[str]:
    """Return how many models there are of each operator, or how many that are wrong."""
    several = {
        (o.kind, o.rounding, o.probe)
        for o in outcomes
        if o.suite != "glow" and o.status in (STATUSES[2:] if bad else STATUSES)
    }
    return Counter(kind for kind, _, _ in several)

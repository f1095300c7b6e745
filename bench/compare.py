"""Alpenglow beside other runtimes: speed, compile time, memory; writes bench/RESULTS.md.

    python bench/compare.py [--nets A,B] [--peers A,B] [--threads 1,2] [--rounds N] [--more]

Everything goes under .bench: an environment for each runtime, the nets, and what was measured.  A
run measures what it is asked for and keeps the rest, so the table can be made in pieces, with
--more even the rounds of one net; the page is written anew from all that is there.  Each piece
pins itself to as many of the CPUs that it may run on as it has threads.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import nets
import page
import peers
import startup
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends import load
from alpenglow.report.contest import Length, Process, compete, middles
from alpenglow.report.flops import flops
from alpenglow.report.peak import peak_now

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
Row = dict[str, Any]


def main() -> None:
    """Measure what the arguments ask for, then write the page."""
    given = _arguments()
    pythons: dict[str, Path] = {}
    absent: dict[str, str] = {}
    for name in given.peers:
        try:
            pythons[name] = peers.install(name, HOME / "env")
        except peers.PeerError as error:
            absent[name] = f"not installed: {error}"
            print(f"{name}: {absent[name]}", flush=True)
    cpus = sorted(os.sched_getaffinity(0))
    length = Length(given.rounds, given.calls)
    for name in given.nets:
        model, feeds = nets.make(name, HOME / "nets", given.models)
        for threads in given.threads:
            if threads > len(cpus):
                print(f"{name}: {threads} threads on {len(cpus)} CPUs are not measured")
                continue
            os.sched_setaffinity(0, cpus[:threads])
            row = measure(model, feeds, threads, pythons, length, nets.precision(name))
            row["peers"] |= {peer: {"error": why} for peer, why in absent.items()}
            keep(name, f"t{threads}", {"net": name, "threads": threads, **row}, given.more)
            print(page.line(kept(name, f"t{threads}")), flush=True)
            os.sched_setaffinity(0, cpus)
    for name in given.startup:
        model, feeds = nets.make(name, HOME / "nets", given.models)
        row = startup.measure(model, feeds, pythons, cpus[0])
        keep(name, "startup", {"net": name, "startup": row})
        print(name, row, flush=True)
    found = [json.loads(p.read_text()) for p in sorted((HOME / "results").glob("*.json"))]
    given.output.write_text(page.write(found))
    print(f"{given.output} tells of {len(found)} measurements")


def measure(
    model: Path,
    feeds: Path,
    threads: int,
    pythons: dict[str, Path],
    length: Length,
    precision: str,
) -> Row:
    """Return the figures of one net: what each runtime takes, and how that compares with ours."""
    cpus = os.sched_getaffinity(0)
    with np.load(feeds) as arrays:
        shapes = {name: x.shape for name, x in arrays.items()}
    row: Row = {"flop": flops_of(model, shapes), "peers": {}}
    made = HOME / "made" / model.stem
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cache = {"ALPENGLOW_CACHE": str(HOME / "cache"),
                 "TORCHINDUCTOR_CACHE_DIR": str(HOME / "inductor")}  # fmt: skip
        ours = stack.enter_context(Process("alpenglow", threads, cpus, environment=cache))
        ours.load(model, feeds, made, precision)
        wanted = ours.results(scratch / "ours.npz")
        contestants = {"alpenglow": ours}
        for name, python in pythons.items():
            one = stack.enter_context(Process(name, threads, cpus, python, cache))
            try:
                about = one.load(model, feeds, made / name, precision)
                found = one.results(scratch / f"{name}.npz")
            except UnsupportedError as error:
                row["peers"][name] = {"error": error.message}
                one.close()
                continue
            contestants[name] = one
            row["peers"][name] = {**about, "difference": difference(wanted, found)}
        peaks = [peak_now(threads)]
        bursts = {n: middles(found) for n, found in compete(contestants, length).items()}
        peaks.append(peak_now(threads))
    took = bursts.pop("alpenglow")
    for name, others in bursts.items():
        # Each round: what the other runtime took, and what we took.
        row["peers"][name]["rounds"] = [[o, t] for o, t in zip(others, took, strict=True)]
    return row | {"took": took, "peaks": peaks}


def flops_of(model: Path, shapes: dict[str, tuple[int, ...]]) -> int:
    """Return the operations that the model asks for; 0 if its graph depends on its data."""
    graph = load(model, shapes)
    return 0 if graph.rest is not None else flops(graph)


def difference(wanted: list[np.ndarray], made: list[np.ndarray]) -> float:
    """Return how far results are from ours, relative to the largest element of each.

    It is infinite if they are something else: of other sizes, or not numbers.
    """
    found = [0.0]
    for a, b in zip_longest(wanted, made, fillvalue=np.zeros(0)):
        if a.size != b.size:
            return math.inf
        x, y = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
        far = np.abs(x - y).max(initial=0) / max(np.abs(x).max(initial=0), 1e-30)
        found.append(float(far) if np.isfinite(far) else math.inf)
    return max(found)


def keep(name: str, what: str, row: Row, more: bool = False) -> None:
    """Add what was measured to what is known of a net; peers that were left out stay.

    With `more`, so do the rounds before.
    """
    path = _path(name, what)
    path.parent.mkdir(parents=True, exist_ok=True)
    before: Row = json.loads(path.read_text()) if path.exists() else {}
    old = before.get("peers", {})
    for key in ("took", "peaks"):
        if key in row and (more or old.keys() - row["peers"].keys()):
            row[key] = before.get(key, []) + row[key]
    for peer, about in row.get("peers", {}).items():
        if more and "rounds" in about:
            about["rounds"] = old.get(peer, {}).get("rounds", []) + about["rounds"]
    if "peers" in row:
        row["peers"] = old | row["peers"]
    path.write_text(json.dumps(before | row, indent=1))


def kept(name: str, what: str) -> Row:
    """Return what is known of a net."""
    found: Row = json.loads(_path(name, what).read_text())
    return found


def _path(name: str, what: str) -> Path:
    stem = re.sub(r"[^\w@]", "_", name)
    return HOME / "results" / f"{stem}-{what}.json"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nets", type=_names, default=list(nets.NETS),
                        help="default: " + ",".join(nets.NETS))  # fmt: skip
    parser.add_argument("--peers", type=_names, default=list(peers.PEERS),
                        help="default: " + ",".join(peers.PEERS))  # fmt: skip
    parser.add_argument("--threads", default=[1, 2], metavar="N[,N]",
                        type=lambda text: [int(n) for n in _names(text)])  # fmt: skip
    parser.add_argument("--startup", type=_names, default=list(startup.STARTUP),
                        help="nets whose start is measured; '' for none")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=Length().rounds)
    parser.add_argument("--calls", type=int, default=Length().calls)
    parser.add_argument("--more", action="store_true", help="add rounds to those there are")
    parser.add_argument("--models", type=Path, default=ROOT / ".models")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "RESULTS.md")
    given = parser.parse_args()
    unknown = set(given.peers) - set(peers.PEERS)
    if unknown:
        parser.error(f"no peer is called {', '.join(sorted(unknown))}")
    return given


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    main()

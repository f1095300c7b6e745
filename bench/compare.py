"""Alpenglow beside other runtimes: speed, compile time, memory; writes bench/RESULTS.md.

    python bench/compare.py [--nets A,B] [--peers A,B] [--threads 1,2] [--rounds N] [--more]
                            [--run first|second] [--sizes A,B] [--startup A,B] [--exact A,B]
                            [--profiles A,B]
    python bench/compare.py --against REV [--nets A,B] [--threads 1,2] [--rounds N]

Everything goes under .bench: an environment for each runtime, the nets, and what was measured, the
first run and the second apart.  A run measures what it is asked for and keeps the rest, so the
table can be made in pieces, with --more even the rounds of one net; the page is written anew from
all that is there.  Each piece pins itself to as many of the CPUs that it may run on as it has
threads.  The second form measures a commit of ours beside the sources as they are (`against`), and
prints what it found.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

import against
import exactness
import nets
import page
import peers
import profiles
import sizes
import startup
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.frontends import load
from alpenglow.ir.graph import Graph
from alpenglow.measure.contest import Length, compete, middles
from alpenglow.measure.flops import flops
from alpenglow.measure.peak import peak_now

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench"
BEGIN = time.monotonic()
RUNS = ("first", "second")
ATTEMPTS = 3
"""How often a net is measured at most until the machine stays the same meanwhile."""
STEADY = 1.1
"""How much the machine's peak and limit may change while a net is measured: its owner may let two
virtual CPUs share one core for a while, and then everything takes twice as long."""
Row = dict[str, Any]


def main() -> None:
    """Measure what the arguments ask for, then write the page."""
    given = _arguments()
    # Every process that is started here inherits where compiled code is kept.
    os.environ["ALPENGLOW_CACHE"] = str(HOME / "cache")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(HOME / "inductor")
    if given.against:
        compare_commits(given)
        return
    # Processes that compile for others would not be stopped with them.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    say(f"peers: {', '.join(given.peers) or 'none'}")
    pythons, absent = peers.install_all(given.peers, HOME / "env")
    for name, why in absent.items():
        say(f"{name}: {why}")
    bench = Bench(given, pythons, absent, sorted(os.sched_getaffinity(0)))
    pieces = [
        *((name, f"t{threads}", partial(bench.speed, name, threads))
          for threads in given.threads for name in given.nets),
        *((name, "startup", partial(bench.startup, name)) for name in given.startup),
        *((name, "exact", partial(bench.exact, name)) for name in given.exact),
        *((name, "sizes", partial(bench.sizes, name)) for name in given.sizes),
        *((name, "profile", partial(bench.profile, name)) for name in given.profiles),
    ]  # fmt: skip
    for number, (name, what, piece) in enumerate(pieces, 1):
        say(f"{number} of {len(pieces)}: {name} {what}")
        try:
            for told in piece():
                say(told)
        # The others are measured all the same.
        except (AlpenglowError, nets.NetError) as error:
            say(f"not measured: {error}")
        given.output.write_text(page.write(found()))
    given.output.write_text(page.write(found()))
    say(f"{given.output} is written")


def compare_commits(given: argparse.Namespace) -> None:
    """Measure what the arguments ask for beside another commit, and print a table."""
    then = against.unpacked(ROOT, given.against, HOME / "against")
    length = Length(given.rounds, given.calls)
    cpus = sorted(os.sched_getaffinity(0))
    rows = []
    for threads in [n for n in given.threads if n <= len(cpus)]:
        for name in given.nets:
            try:
                files = nets.make(name, HOME / "nets", given.models)
                with pinned(cpus[:threads]):
                    row = against.measure(
                        name, files, threads, then, HOME / "against", length, nets.precision(name)
                    )
            except (AlpenglowError, nets.NetError) as error:
                say(f"{name} on {threads}: not measured: {error}")
                continue
            rows.append(row)
            say(str(row))
    print("\n".join(against.table(rows)))


def found() -> dict[str, list[Row]]:
    """Return what is known from each run of which something is."""
    runs = {run: sorted((HOME / "results" / run).glob("*.json")) for run in RUNS}
    return {run: [json.loads(p.read_text()) for p in paths] for run, paths in runs.items() if paths}


def say(text: str) -> None:
    """Print a line after the minutes and seconds since the beginning."""
    minutes, seconds = divmod(int(time.monotonic() - BEGIN), 60)
    print(f"{minutes:3}:{seconds:02}  {text}", flush=True)


@dataclass(frozen=True)
class Bench:
    """The pieces of a run; each measures, keeps what it found and returns lines about it."""

    given: argparse.Namespace
    pythons: dict[str, Path]
    absent: dict[str, str]
    cpus: list[int]

    def speed(self, name: str, threads: int) -> list[str]:
        if threads > len(self.cpus):
            return [f"{threads} threads on {len(self.cpus)} CPUs are not measured"]
        model, feeds = self.files(name)
        length = Length(self.given.rounds, self.given.calls)
        with pinned(self.cpus[:threads]):
            row = measure(model, feeds, threads, self.pythons, length, nets.precision(name))
        row["peers"] |= {peer: {"error": why} for peer, why in self.absent.items()}
        path = self.path(name, f"t{threads}")
        keep(path, {"net": name, "threads": threads, **row}, self.given.more)
        return [page.line(json.loads(path.read_text()))]

    def startup(self, name: str) -> list[str]:
        row = startup.measure(*self.files(name), self.pythons, self.cpus[0])
        keep(self.path(name, "startup"), {"net": name, "startup": row})
        return [", ".join(f"{key} {value:.4g}" for key, value in row.items())]

    def exact(self, name: str) -> list[str]:
        row = exactness.measure(*self.files(name), self.pythons, self.cpus[0])
        keep(self.path(name, "exact"), {"net": name, "exact": row})
        return [", ".join(f"{key} {value:.1e}" for key, value in row.items())]

    def sizes(self, name: str) -> list[str]:
        with pinned(self.cpus[:1]):
            rows = sizes.measure(name, 1, self.cpus[:1], self.files, flops_of)
        row = {"net": name, "sizes": rows}
        keep(self.path(name, "sizes"), row)
        return sizes.table([row])[2:]

    def profile(self, name: str) -> list[str]:
        with pinned(self.cpus[:1]):
            profiles.write(name, *self.files(name), self.given.output.parent / "profiles")
        return []

    def files(self, name: str) -> tuple[Path, Path]:
        return nets.make(name, HOME / "nets", self.given.models)

    def path(self, name: str, what: str) -> Path:
        stem = re.sub(r"[^\w@]", "_", name)
        return HOME / "results" / self.given.run / f"{stem}-{what}.json"


@contextmanager
def pinned(cpus: Sequence[int]) -> Iterator[None]:
    """Let this process, and those that it starts, run on these CPUs only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


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
    row: Row = {"flop": flops_of(model, feeds), "peers": {}}
    made = HOME / "made" / model.stem
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours = stack.enter_context(peers.Running("alpenglow", threads, cpus))
        ours.load(model, feeds, made, precision)
        wanted = ours.results(scratch / "ours.npz")
        contestants = {"alpenglow": ours}
        for name, python in pythons.items():
            one = stack.enter_context(peers.Running(name, threads, cpus, python))
            try:
                patience = peers.PEERS[name].patience
                about = one.load(model, feeds, made / name, precision, patience)
                found = one.results(scratch / f"{name}.npz")
            except UnsupportedError as error:
                row["peers"][name] = {"error": error.message}
                one.close()
                continue
            contestants[name] = one
            row["peers"][name] = {**about, "difference": difference(wanted, found)}
        for _ in range(ATTEMPTS):
            before = ours.ask("limit")["seconds"], peak_now(threads)
            bursts = {n: middles(found) for n, found in compete(contestants, length).items()}
            after = ours.ask("limit")["seconds"], peak_now(threads)
            if steady(before, after):
                break
    row["limit"] = before[0] and min(before[0], after[0])
    row["peaks"] = [before[1], after[1]]
    took = bursts.pop("alpenglow")
    for name, others in bursts.items():
        # Each round: what the other runtime took, and what we took.
        row["peers"][name]["rounds"] = [[o, t] for o, t in zip(others, took, strict=True)]
    return row | {"took": took}


def steady(before: Sequence[float | None], after: Sequence[float | None]) -> bool:
    """Whether what the machine can do has stayed the same, within `STEADY`."""
    pairs = zip(before, after, strict=True)
    return all(a is None or b is None or max(a, b) <= STEADY * min(a, b) for a, b in pairs)


def flops_of(model: Path, feeds: Path) -> int:
    """Return the operations that the model asks for; 0 if its graph depends on its data."""
    with np.load(feeds) as arrays:
        graph = load(model, {name: x.shape for name, x in arrays.items()})
    return flops(graph) if isinstance(graph, Graph) else 0


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


def keep(path: Path, row: Row, more: bool = False) -> None:
    """Add what was measured to what is known of a net; peers that were left out stay.

    With `more`, so do the rounds before.
    """
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nets", type=_names, default=list(nets.NETS),
                        help="default: " + ",".join(nets.NETS))  # fmt: skip
    parser.add_argument("--peers", type=_names, default=list(peers.PEERS),
                        help="default: " + ",".join(peers.PEERS))  # fmt: skip
    parser.add_argument("--threads", default=[1, 2], metavar="N[,N]",
                        type=lambda text: [int(n) for n in _names(text)])  # fmt: skip
    parser.add_argument("--against", metavar="REV", help="measure this commit of ours instead")
    parser.add_argument("--startup", type=_names, help="nets whose start is measured; '' for none")
    parser.add_argument("--exact", type=_names, help="nets that are compared with f64; '' for none")
    parser.add_argument("--sizes", type=_names,
                        help="nets that are measured in other sizes; '' for none")  # fmt: skip
    parser.add_argument("--profiles", type=_names,
                        help="nets whose kernels are listed; '' for none")  # fmt: skip
    parser.add_argument("--run", choices=RUNS, default=RUNS[0], help="under which name to keep it")
    parser.add_argument("--rounds", type=int, default=Length().rounds)
    parser.add_argument("--calls", type=int, default=Length().calls)
    parser.add_argument("--more", action="store_true", help="add rounds to those there are")
    parser.add_argument("--models", type=Path, default=ROOT / ".models")
    parser.add_argument("--output", type=Path, default=ROOT / "bench" / "RESULTS.md")
    given = parser.parse_args()
    # Unless nets are named for these, too: such of --nets as they are meant for.
    usual = {"startup": startup.STARTUP, "exact": exactness.EXACT, "sizes": sizes.SIZED,
             "profiles": profiles.PROFILED}  # fmt: skip
    for option, names in usual.items():
        if getattr(given, option) is None:
            setattr(given, option, [name for name in names if name in given.nets])
    unknown = set(given.peers) - set(peers.PEERS)
    if unknown:
        parser.error(f"no peer is called {', '.join(sorted(unknown))}")
    return given


def _names(text: str) -> list[str]:
    return [name for name in text.split(",") if name]


if __name__ == "__main__":
    main()

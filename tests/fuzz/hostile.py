"""Damaged and malicious files: each is refused with an error that says why, or it runs.

    python -m tests.fuzz.hostile --count 5000 --seed 0
    python -m tests.fuzz.hostile --only archives --count 20000 --jobs 16 --log archives.jsonl
    python -m tests.fuzz.hostile --only exported --count 10000

Anything else is a finding: another exception, a crash, a hang, or memory that the file does not
account for.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.compiler.validate import generate
from alpenglow.debug.failure import place
from alpenglow.debug.probe import Lost, Probe
from alpenglow.runtime.archive import archive

from .corpus import branches, corpus, network, sequences
from .damage import damaged_archive, mutant
from .damage_exported import damaged_exported
from .record import Outcome, Record, try_all

SECONDS = 10.0
NBYTES = 2 << 30
SMALL = 1 << 22
"""Inputs of more bytes than this are not fed: a model may well ask for them."""

EXPORTED = ".pt2"
MOST_TURNS = 10_000
UNCHECKED = ag.Options(check=False)
"""Damage makes weights of 1e30: what is left where their sums cancel, passes may change."""

# ── in the process that may crash ──


class Reception(NamedTuple):
    """How a file was received: that it ran, or the class of the error; and what is wrong there."""

    how: str
    problem: str = ""


def attempt(data: bytes, folder: str, suffix: str) -> Reception:
    """Load, compile and run the model in `data`.

    The model is a file of `folder`, where its external data are.
    """
    path = Path(folder) / f"model{suffix}"
    path.write_bytes(data)
    return received(lambda: ran(path))


def attempt_archive(data: bytes, folder: str, runs: bool, number: int) -> Reception:
    """Read the archive in `data`, and run it if it is taken for what it was before the damage.

    Code in an archive whose digests fit is trusted: such a one is not run.
    """
    path = Path(folder) / "model.ago"
    path.write_bytes(data)
    if not runs:
        return received(lambda: "read" if archive.read(path) else "")
    return received(lambda: whole(path, number))


def whole(path: Path, number: int) -> str:
    """Run an archive of a sample; raise if it is another than that."""
    actual = ag.open(path, threads=1).run(samples()[number].feeds)
    for name, y in samples()[number].expected.items():
        if not np.array_equal(actual[name], y):
            raise ValueError("a damaged archive computes other numbers")
    return "ran"


class Sample(NamedTuple):
    """An archive, and what it computes of arrays."""

    archive: bytes
    feeds: dict[str, np.ndarray]
    expected: dict[str, np.ndarray]


@cache
def samples() -> list[Sample]:
    """Return archives of a small network, and of models with a loop and with sequences in parts."""
    rng = np.random.default_rng(0)
    found = []
    for model in (network(), branches(), sequences()):
        exe = ag.compile(model, threads=1)
        feeds = {n: np.array(generate(t, rng)) for n, t in exe.inputs.items()}
        expected = {n: np.array(y) for n, y in exe.run(feeds).items()}
        found.append(Sample(archive.to_bytes(exe.archived()), feeds, expected))
    return found


def received(action: Callable[[], str]) -> Reception:
    try:
        return Reception(action())
    except AlpenglowError as error:
        wordless = "" if str(error) else f"{place(error)}: an error without a message"
        return Reception(type(error).__name__, wordless)
    except Exception as error:
        # NumPy says how much a result needs that data ask for: more than there is.
        if isinstance(error, MemoryError) and "Unable to allocate" in str(error):
            return Reception("MemoryError")
        return Reception(type(error).__name__, f"{place(error)}: {str(error)[:200]}")


def ran(path: Path) -> str:
    """Run a model on random inputs, unless it asks for much; return how far it came."""
    g = ag.load(path)
    first = g if isinstance(g, ag.Graph) else g.graph
    if path.suffix == EXPORTED and isinstance(g, ag.Graph):
        g = first = g.bind(dict.fromkeys(sorted(symbols(g)), 2))
    types = [v.type for v in first.callers_inputs().values()]
    if not all(t.static for t in types) or sum(t.nbytes for t in types) > SMALL:
        return "loaded"
    rng = np.random.default_rng(0)
    if path.suffix != EXPORTED and runs_for_ever(path):
        return "loaded"
    exe = ag.compile(g, threads=1, options=UNCHECKED)
    # Of what is cut into graphs that are run one by one, the outputs' types are open.
    if sum(t.nbytes for t in exe.outputs.values() if t is not None and t.static) > SMALL:
        return "compiled"
    with np.errstate(all="ignore"):
        exe.run({name: generate(v.type, rng) for name, v in first.callers_inputs().items()})
    return "ran"


def symbols(g: ag.Graph) -> set[str]:
    """Return the names of the open extents of inputs."""
    return {s for v in g.inputs.values() for s in v.type.symbols()}


def runs_for_ever(path: Path) -> bool:
    """Whether a loop of the model turns so often that to run long is right."""
    graph = onnx.load(path, load_external_data=False).graph
    counts = {n.input[0] for n in graph.node if n.op_type == "Loop" and n.input}
    named = [t for t in graph.initializer if t.name in counts and not t.external_data]
    numbers = [int(n) for t in named for n in numpy_helper.to_array(t).reshape(-1)[:1]]
    return any(n > MOST_TURNS for n in numbers)


# ── on this side ──


class Yard:
    """A folder for files, and the process that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "models"
        self.folder.mkdir()
        (self.folder / "data").write_bytes(b"\1" * 64)
        (folder / "secret").write_bytes(b"\2" * 64)
        (self.folder / "folder").mkdir()
        (self.folder / "link").symlink_to(folder / "secret")
        (self.folder / "circle").symlink_to(self.folder / "circle")
        os.mkfifo(self.folder / "fifo")
        self.models = corpus()
        self.probe = Probe(SECONDS, NBYTES)
        self.how: Counter[str] = Counter()

    def outcome(self, seed: int, only: str = "") -> Outcome:
        """Return how the mutant of a seed is received; every eighth is an archive unless told."""
        if only == "archives" or (not only and seed % 8 == 7):
            number = seed // 8 % len(samples())
            what, data = damaged_archive(seed, samples()[number].archive)
            call: Any = (attempt_archive, data, str(self.folder), "header" not in what, number)
        elif only == "exported":
            what, data = damaged_exported(seed)
            call = (attempt, data, str(self.folder), EXPORTED)
        else:
            what, data = mutant(seed, self.models)
            call = (attempt, data, str(self.folder), ".onnx")
        found = self.probe(*call)
        if isinstance(found, Lost) and found.kind == "hang":
            # A machine with much else to do may be slow; a second time it is the file.
            found = self.probe(*call)
        if isinstance(found, Lost):
            return Outcome(found.kind, what, f"{found.kind}, {found.how}")
        assert isinstance(found, Reception)
        return Outcome(found.how, what, found.problem)

    def try_seed(self, seed: int, only: str = "") -> str:
        """Return what is wrong with how the mutant of a seed is received, "" if nothing is."""
        found = self.outcome(seed, only)
        self.how[found.how] += 1
        return f"seed {seed}, {found.what}: {found.problem}" if found.problem else ""


def hunt(
    seeds: Iterable[int],
    until: float = float("inf"),
    report: Callable[[str], None] = print,
    only: str = "",
) -> tuple[Counter[str], list[str]]:
    """Try seeds until the clock says `until`; return how files were received, and findings."""
    findings = []
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(Path(folder))
        try:
            for seed in seeds:
                if time.monotonic() > until:
                    break
                if found := yard.try_seed(seed, only):
                    findings.append(found)
                    report(found)
        finally:
            yard.probe.close()
    return yard.how, findings


@contextmanager
def trier(only: str) -> Iterator[Callable[[int], Outcome]]:
    """Yield what tries a seed, in a folder and a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yard = Yard(Path(folder))
        try:
            yield lambda seed: yard.outcome(seed, only)
        finally:
            yard.probe.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=1000, help="how many mutants")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--only", default="", choices=["models", "archives", "exported"])
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--log", type=Path, help="a file of what became of each; goes on there")
    asked = parser.parse_args()
    seeds = range(asked.seed, asked.seed + asked.count)
    if asked.only or asked.log or asked.jobs > 1:
        record = Record(asked.log)
        try_all(seeds, lambda: trier(asked.only), asked.jobs, record, 25)
        print(record.summary())
        sys.exit(1 if record.problems() else 0)
    how, findings = hunt(seeds, time.monotonic() + asked.seconds, lambda f: print(f, flush=True))
    print(f"{how.total()} mutants: {dict(how.most_common())}")
    print(f"{len(findings)} findings")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()

"""Trying seeds on several processes: a line of JSON each in a file, to go on where it stopped."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple


class Outcome(NamedTuple):
    """What became of a seed: a word to count by, what was done to what, and what is wrong there."""

    how: str
    what: str = ""
    problem: str = ""


Trier = AbstractContextManager[Callable[[int], Outcome]]


class Record:
    """The lines of a file, and those added to it; seeds that had a problem are tried again."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.outcomes: dict[int, Outcome] = {}
        self.lock = threading.Lock()
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:  # the process was killed while it wrote
                    continue
                self.outcomes[entry["seed"]] = Outcome(
                    entry["how"], entry["what"], entry.get("problem", "")
                )
            with path.open("ab") as file:
                file.write(b"\n")

    def add(self, seed: int, outcome: Outcome) -> None:
        entry = {"seed": seed, "how": outcome.how, "what": outcome.what}
        if outcome.problem:
            entry["problem"] = outcome.problem
        with self.lock:
            self.outcomes[seed] = outcome
            if self.path is not None:
                with self.path.open("ab") as file:
                    file.write(json.dumps(entry).encode() + b"\n")
            if outcome.problem:
                print(f"seed {seed}, {outcome.what}: {outcome.problem}", flush=True)

    def summary(self) -> str:
        found = self.problems()
        how = Counter(o.how for o in self.outcomes.values())
        return f"{len(self.outcomes)} tried: {dict(how.most_common())}\n{len(found)} findings"

    def problems(self) -> dict[int, Outcome]:
        return {seed: o for seed, o in sorted(self.outcomes.items()) if o.problem}


def try_all(
    seeds: Sequence[int], trier: Callable[[], Trier], jobs: int, record: Record, batch: int = 1
) -> None:
    """Try the seeds that the record has not, or has a problem of; `batch` neighbours at a time."""
    done = {s for s, o in record.outcomes.items() if not o.problem}
    batches = iter([seeds[i : i + batch] for i in range(0, len(seeds), batch)])
    lock = threading.Lock()

    def taken() -> Iterator[int]:
        while True:
            with lock:
                some = next(batches, None)
            if some is None:
                return
            yield from (s for s in some if s not in done)

    def work() -> None:
        with trier() as attempt:
            for seed in taken():
                record.add(seed, attempt(seed))

    threads = [threading.Thread(target=work, daemon=True) for _ in range(jobs)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

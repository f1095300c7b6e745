"""Plant mistakes in converters of a front end, one at a time, and let random programs find them.

    python -m tests.fuzz.programs.plant torch --seconds 180 [--only WORDS]

Each mistake has a process of its own, in which the module with the mistake is imported in place of
the one on disk.  Programs are judged until one differs; a seed that differs without the mistake,
too, is none.  What was found, and what was not, is printed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import os
import sys
import time
from collections.abc import Iterable

from tests.frontends.plant import Planted
from tests.frontends.planted import PLANTED
from tests.fuzz.mistakes import Mistake

FOLDERS = {"torch": "frontends/torch", "jax": "frontends/stablehlo", "tflite": "frontends/tflite"}
SEED = 5_000_000
"""Far from the seeds of campaigns and tests."""


def caught(mistake: Mistake, name: str, until: float) -> int:
    """Return the first seed that differs because of a mistake, -1 if none does in time."""
    first = SEED
    while (seed := found_by(mistake, name, itertools.count(first), until)) >= 0:
        if found_by(None, name, [seed], until + 600) < 0:
            return seed
        first = seed + 1
    return -1


def found_by(mistake: Mistake | None, name: str, seeds: Iterable[int], until: float) -> int:
    """Return the first seed whose program differs with a mistake, -1 if none does in time."""
    reading, writing = os.pipe()
    if not (child := os.fork()):
        seed = -1
        try:
            if mistake is not None:
                sys.meta_path.insert(0, Planted(mistake))
            differs = False
            judge = importlib.import_module("tests.fuzz.programs.hunt").problems_of
            for seed in seeds:
                differs = time.monotonic() < until and bool(judge(name, [seed], 0.0)[1])
                if differs or time.monotonic() > until:
                    break
            seed = seed if differs else -1
        finally:
            os.write(writing, str(seed).encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, encoding="utf-8") as answer:
        return int(answer.read() or "-1")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("format", choices=sorted(FOLDERS))
    parser.add_argument("--seconds", type=float, default=180.0, help="for each mistake")
    parser.add_argument("--only", default="", help="mistakes with these words in file or name")
    asked = parser.parse_args()
    chosen = [m for m in PLANTED if m.file.startswith(FOLDERS[asked.format])
              and asked.only in m.file + m.name]  # fmt: skip
    count = 0
    for mistake in chosen:
        begin = time.monotonic()
        seed = caught(mistake, asked.format, begin + asked.seconds)
        seconds = time.monotonic() - begin
        count += seed >= 0
        print(f"{mistake.name}: {f'seed {seed}' if seed >= 0 else 'NOT FOUND'} ({seconds:.0f} s)",
              flush=True)  # fmt: skip
    print(f"{count} of {len(chosen)} are found")


if __name__ == "__main__":
    main()

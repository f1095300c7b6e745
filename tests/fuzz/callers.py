"""Many threads call one Executable with different shapes; each result has the bits of a serial one.

    python -m tests.fuzz.callers --seconds 60 MODEL.onnx 1,3,64,96 1,3,75,141

runs a model whose extents are open at the given shapes of its first input (what its other inputs
share with that follows; integers are small numbers), from eight threads for a minute.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.ir.types import TensorType

Array = NDArray[Any]
Feeds = Mapping[str, Array]


def disturbed(
    exe: ag.Executable, feeds: Sequence[Feeds], threads: int, seconds: float
) -> tuple[Counter[int], list[str]]:
    """Call `exe` from `threads` threads for so long; return the calls by feeds, and what was wrong.

    Every thread begins elsewhere and goes on in an order of its own.
    """
    expected = [_bits(exe.run(f)) for f in feeds]
    until = time.monotonic() + seconds
    calls: list[Counter[int]] = [Counter() for _ in range(threads)]
    problems: list[str] = []

    def call(number: int) -> None:
        random = np.random.default_rng(number)
        while time.monotonic() < until and not problems:
            i = int(random.integers(len(feeds)))
            try:
                if _bits(exe.run(feeds[i])) != expected[i]:
                    problems.append(f"thread {number}: other bits for feeds {i}")
            except Exception as error:
                problems.append(f"thread {number}, feeds {i}: {type(error).__name__}: {error}")
            calls[number][i] += 1

    callers = [threading.Thread(target=call, args=(n,)) for n in range(threads)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    return sum(calls, Counter[int]()), problems


def _bits(outputs: Mapping[str, Any]) -> list[tuple[str, tuple[int, ...], bytes]]:
    return [(name, np.shape(y), np.asarray(y).tobytes()) for name, y in outputs.items()]


def fed(types: Mapping[str, TensorType], shape: Sequence[int], seed: int) -> dict[str, Array]:
    """Return random arrays where the first input has a shape; extents of one name are the same."""
    random = np.random.default_rng(seed)
    first = next(iter(types.values()))
    extents = {str(d): n for d, n in zip(first.shape, shape, strict=True)}
    found: dict[str, Array] = {}
    for name, t in types.items():
        dims = tuple(d if isinstance(d, int) else extents.get(str(d), 1) for d in t.shape)
        if t.numpy.kind in "iub":
            found[name] = random.integers(0, 2, dims).astype(t.numpy)
        else:
            found[name] = random.random(dims).astype(t.numpy)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("shapes", nargs="+", help="shapes of the first input, as 1,3,64,64")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--inner", type=int, help="how many threads a call may use")
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    exe = ag.compile(asked.model, threads=asked.inner)
    shapes = [tuple(map(int, text.split(","))) for text in asked.shapes]
    feeds = [fed(exe.inputs, shape, i) for i, shape in enumerate(shapes)]
    calls, problems = disturbed(exe, feeds, asked.threads, asked.seconds)
    print("\n".join(problems[:20]))
    name, wrong = asked.model.parent.name, len(problems)
    print(f"{name}: {calls.total()} calls of {len(feeds)} shapes from {asked.threads} threads, "
          f"{len(exe.artifacts)} compiled, {wrong} wrong")  # fmt: skip
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()

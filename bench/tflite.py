"""TFLite models beside LiteRT with XNNPACK, on one thread: time of a call, and how far apart.

    taskset -c 0 .venv/tflite/bin/python bench/tflite.py MODEL.tflite […] [--rounds 9]

Both run in turns, in rounds of 0.1 s; a line has the median of the rounds and the ratio, and how
far apart results are of the same random input, by their range.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import geometric_mean, median

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError
from alpenglow.ir.types import Array

SLICE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    chosen = parser.parse_args()
    print(f"{'model':44}{'ours':>10}{'LiteRT':>10}{'ratio':>7}{'apart':>10}")
    ratios = []
    for path in chosen.models:
        try:
            ours, theirs, apart = beside(path, chosen.rounds)
        except (AlpenglowError, RuntimeError) as error:  # the other's, LiteRT's
            print(f"{path.stem:44}{str(error).splitlines()[0]}")
            continue
        ratios.append(theirs / ours)
        print(
            f"{path.stem:44}{1e3 * ours:8.3f}ms{1e3 * theirs:8.3f}ms{ratios[-1]:7.2f}{apart:10.1e}"
        )
    if ratios:
        print(f"{'geometric mean':44}{geometric_mean(ratios):27.2f}")


def beside(path: Path, rounds: int) -> tuple[float, float, float]:
    """Return the seconds of our call and of LiteRT's, and the difference of their results."""
    peer = Interpreter(model_path=str(path), num_threads=1)
    peer.allocate_tensors()
    feeds = [drawn(d["shape"], d["dtype"]) for d in peer.get_input_details()]
    shapes = [tuple(f.shape) for f in feeds]
    model = ag.load(path)
    kept = model.initial if isinstance(model, ag.Graph) else {}
    names = [name for name in model.inputs if name not in kept]
    exe = ag.compile(path, threads=1, shapes=dict(zip(names, shapes, strict=True)))
    run = exe.session().run if kept else exe.run
    mine = dict(zip(names, feeds, strict=True))

    def theirs() -> None:
        for d, x in zip(peer.get_input_details(), feeds, strict=True):
            peer.set_tensor(d["index"], x)
        peer.invoke()
        for d in peer.get_output_details():
            peer.get_tensor(d["index"])

    made = run(mine)
    theirs()
    wanted = [peer.get_tensor(d["index"]) for d in peer.get_output_details()]
    apart = max(difference(a, b) for a, b in zip(made.values(), wanted, strict=True))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for call, seen in zip((lambda: run(mine), theirs), times, strict=True):
            seen.append(timed(call))
    return median(times[0]), median(times[1]), apart


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call, repeated for a slice of time."""
    begin, count = time.perf_counter(), 0
    while time.perf_counter() - begin < SLICE:
        call()
        count += 1
    return (time.perf_counter() - begin) / count


def drawn(shape: Sequence[int], dtype: type) -> Array:
    random = np.random.default_rng(math.prod(shape))
    if np.issubdtype(dtype, np.integer):
        info = np.iinfo(dtype)
        return random.integers(info.min, info.max, shape, dtype, endpoint=True)
    return random.uniform(-1, 1, shape).astype(dtype)


def difference(made: Array, wanted: Array) -> float:
    span = float(np.abs(wanted.astype(np.float64)).max(initial=0)) or 1.0
    return float(np.abs(made.astype(np.float64) - wanted).max(initial=0)) / span


if __name__ == "__main__":
    main()

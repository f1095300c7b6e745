"""Compile SqueezeNet and classify twenty photographs: what `make demo` shows.

    python tools/demo.py [--threads N]

Every figure printed is measured in this run.  Needs Pillow and the models `data` and
`squeezenet11` (`python tools/fetch_models.py data squeezenet11`).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.cpus import default_threads
from alpenglow.measure.flops import flops
from alpenglow.measure.peak import peak
from model_inputs import squeezenet_input

ROOT = Path(__file__).resolve().parent.parent
MODELS = Path(os.environ.get("ALPENGLOW_MODELS") or ROOT / ".models")
WIDTH = 30
CALLS = 50

Array = NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; return 1 if what it needs is not there."""
    parser = argparse.ArgumentParser(description="Classify twenty photographs.")
    parser.add_argument("--threads", type=int, help="how many threads a run may use")
    threads = parser.parse_args(arguments).threads
    model = MODELS / "squeezenet11" / "model.onnx"
    photographs = sorted((MODELS / "data" / "imagenet").glob("*.jpg"))
    if not model.exists() or not photographs:
        print("run `python tools/fetch_models.py data squeezenet11` first", file=sys.stderr)
        return 1
    names = (MODELS / "data" / "imagenet_names.txt").read_text().splitlines()
    shape = {"x": (1, 3, 227, 227)}
    graph = ag.load(model, shape)
    assert isinstance(graph, ag.Graph), "what it computes does not depend on data"
    begin = time.perf_counter()
    exe = ag.compile(graph, threads=threads)
    compile_seconds = time.perf_counter() - begin
    print(f"SqueezeNet 1.1, compiled from {model.name} in {compile_seconds:.2f} s")
    print()
    classify(exe, photographs, names)
    print()
    measure(exe, squeezenet_input(photographs[0].read_bytes()), flops(graph))
    return 0


def classify(exe: ag.Executable, photographs: Sequence[Path], names: Sequence[str]) -> None:
    """Print for each photograph what the network sees in it and what it shows."""
    first = among = 0
    print(f"    {'the network sees':{WIDTH}}   the photograph shows")
    for path in photographs:
        # The last number of a photograph's name is the number of its class.
        label = int(path.stem.rsplit("_", 1)[1])
        scores = exe(squeezenet_input(path.read_bytes())).reshape(-1)
        best = np.argsort(scores)[::-1][:5].tolist()
        first += best[0] == label
        among += label in best
        mark = "✓" if best[0] == label else "5" if label in best else "✗"
        print(f"  {mark} {names[best[0]]:{WIDTH}.{WIDTH}}   {names[label]}")
    count = len(photographs)
    print()
    print(f"  ✓ right: {first} of {count}   5 among the first five: {among} of {count}")


def measure(exe: ag.Executable, picture: Array, work: int) -> None:
    """Print how long one picture takes, and how much of the machine that uses."""
    threads = exe.threads or default_threads()
    seconds = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        exe(picture)
        seconds.append(time.perf_counter() - begin)
    each = median(seconds)
    most = peak(threads)
    print(f"  {each * 1e3:.2f} ms a picture (median of {CALLS} runs), {threads} threads")
    print(f"  {work / 1e9:.2f} GFLOP a picture: {work / each / 1e9:.0f} GFLOP/s")
    print(
        f"  {work / each / most:.0%} of what {threads} threads of this machine can do "
        f"({most / 1e9:.0f} GFLOP/s, measured)"
    )
    if work > each * most:
        print("  More than all of it, because Winograd's way needs fewer operations.")


if __name__ == "__main__":
    sys.exit(main())

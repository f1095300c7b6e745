"""Every model of the tests: compile time cold and cached, run time beside ONNX Runtime's, error.

    taskset -c 0 python bench/models.py [NAME ...]

Each model runs in processes of its own: one compiles with an empty cache, a second with that cache
and then runs Alpenglow and ONNX Runtime in turn, one thread each.  Times are medians; the ratio is
the median of the ratios of the rounds.  Needs onnxruntime and the fetched models.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

import alpenglow as ag

ROOT = Path(__file__).resolve().parent.parent
ROUNDS, CALLS = 7, 20
SECONDS = 0.4  # of each burst at most, after its first call


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="models (default: all but the light ones)")
    parser.add_argument("--models", type=Path, default=ROOT / ".models")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(measured(given.models / given.names[0])))
        return
    found = sorted(p.parent.name for p in given.models.glob("*/model.onnx"))
    names = given.names or [n for n in found if not n.startswith("light_")]
    print("| model | nodes | cold s | cached s | ms | ONNX Runtime ms | ratio (10-90 %) | error |")
    print("|---|---|---|---|---|---|---|---|")
    for name in names:
        with tempfile.TemporaryDirectory() as cache:
            cold = in_process(name, given.models, cache)["compile"]
            row = in_process(name, given.models, cache)
        print(
            f"| {name} | {row['nodes']} | {cold:.2f} | {row['compile']:.2f} | {row['ours']:.3f} "
            f"| {row['peer']:.3f} | {row['ratio']:.2f} ({row['low']:.2f}-{row['high']:.2f}) "
            f"| {row['error']:.1e} |",
            flush=True,
        )


def in_process(name: str, models: Path, cache: str) -> dict[str, float]:
    """Measure one model in a new process, with the given kernel cache."""
    command = [sys.executable, __file__, "--one", "--models", str(models), name]
    environment = {**os.environ, "ALPENGLOW_CACHE": cache}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    row: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return row


def measured(folder: Path) -> dict[str, float]:
    """Return the figures of one model."""
    path = folder / "model.onnx"
    with np.load(folder / "inputs_0.npz") as archive:
        feeds = dict(archive)
    start = time.perf_counter()
    exe = ag.compile(path, threads=1, shapes={k: v.shape for k, v in feeds.items()})
    compile_seconds = time.perf_counter() - start
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    got = exe.run(feeds).values()
    wanted = session.run(None, feeds)
    ours, peer, ratios = [], [], []
    for _ in range(ROUNDS):
        ours.append(burst(lambda: exe.run(feeds)))
        peer.append(burst(lambda: session.run(None, feeds)))
        ratios.append(peer[-1] / ours[-1])
    return {
        "nodes": len(onnx.load(path, load_external_data=False).graph.node),
        "compile": compile_seconds,
        "ours": float(np.median(ours)) * 1e3,
        "peer": float(np.median(peer)) * 1e3,
        "ratio": float(np.median(ratios)),
        "low": float(np.percentile(ratios, 10)),
        "high": float(np.percentile(ratios, 90)),
        "error": max(relative_error(g, w) for g, w in zip(got, wanted, strict=True)),
    }


def burst(call: Callable[[], object]) -> float:
    """Return the median time of some calls, after two that are not counted."""
    call()
    call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < CALLS and (len(times) < 3 or time.perf_counter() < end):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def relative_error(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference, relative to the largest wanted element."""
    difference = np.abs(got.astype(np.float64) - wanted.astype(np.float64))
    return float(difference.max(initial=0.0) / max(np.abs(wanted).max(initial=0.0), 1e-12))


if __name__ == "__main__":
    main()

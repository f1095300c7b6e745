"""OpenCL on a processor beside the CPU machine, which makes the same kernels through LLVM.

    python bench/opencl.py                        kernels alone, one core
    python bench/opencl.py --nets resnet50=MODEL.onnx

Both are compiled under strict numerics, where neither takes Winograd's way.  Kernels are timed by
events of the device and by the CPU's own table, calls of networks as a whole, by turns.  The
process keeps to one core.  Numbers are medians of rounds, of the best of a burst each.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.machines.opencl.devices import devices
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.runtime.executables.in_process import InProcess

BURST = 5


def main() -> None:
    """Print a table of kernels, and of networks that are named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nets", nargs="*", default=[], metavar="NAME=FILE")
    parser.add_argument("--fast", action="store_true", help="with all that fast numerics allow")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--cpu", type=int, default=0, help="the core to keep to")
    options = parser.parse_args()
    how = ag.Options(numerics="fast" if options.fast else "strict")
    os.sched_setaffinity(0, {options.cpu})
    targets = ["cpu", *(f"opencl-cpu:{d.index}" for d in devices() if d.kind == "cpu")]
    names = {f"opencl-cpu:{d.index}": d.platform for d in devices()}
    print("| | " + " | ".join(names.get(t, t) for t in targets) + " |")
    for name, graph in () if options.nets else kernels():
        row([ag.compile(graph, t, threads=1, options=how) for t in targets], name,
            options.rounds, one_kernel)  # fmt: skip
    for pair in options.nets:
        name, _, file = pair.partition("=")
        model = ag.load(file)
        shapes = {n: [d if isinstance(d, int) else 1 for d in v.type.shape]
                  for n, v in model.inputs.items()}  # fmt: skip
        row([ag.compile(file, t, threads=1, shapes=shapes, options=how) for t in targets], name,
            options.rounds, whole_call)  # fmt: skip


def kernels() -> Iterator[tuple[str, ag.Graph]]:
    """Yield graphs of one matrix product or one convolution by 3x3."""
    rng = np.random.default_rng(0)
    for n in (512, 768, 1024):
        g = ag.Graph(f"matmul{n}")
        weights = g.constant(rng.standard_normal((n, n)).astype(np.float32))
        g.output("y", g(MatMul(), g.input("x", f"f32[{n},{n}]"), weights))
        yield f"matmul {n}", g
    for channels, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        g = ag.Graph(f"conv{channels}")
        weights = g.constant(rng.standard_normal((channels, channels, 3, 3)).astype(np.float32))
        x = g.input("x", f"f32[1,{channels},{size},{size}]")
        g.output("y", g(Conv(pads=(1, 1, 1, 1)), x, weights))
        yield f"conv 3x3 {channels}, {size}x{size}", g


def row(exes: list[Any], name: str, rounds: int, timed: Callable[[Any], float]) -> None:
    """Print how long each takes, by turns, and how fast the others are beside the first."""
    times: list[list[float]] = [[] for _ in exes]
    for _ in range(rounds):
        for exe, kept in zip(exes, times, strict=True):
            kept.append(timed(exe))
    cells = [f"{median(times[0]) * 1e3:.2f} ms"]
    for others in times[1:]:
        ratio = median(a / b for a, b in zip(times[0], others, strict=True))
        cells.append(f"{median(others) * 1e3:.2f} ms, {ratio:.2f}")
    print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def feeds(exe: Any) -> dict[str, Any]:
    """Return the same random arrays for the inputs each time."""
    rng = np.random.default_rng(0)
    fed: dict[str, Any] = {}
    for name, t in exe.inputs.items():
        fed[name] = (rng.standard_normal(t.extents).astype(np.float32) if t.dtype == "f32"
                     else rng.integers(0, 2, t.extents).astype(t.numpy))  # fmt: skip
    return fed


def whole_call(exe: Any) -> float:
    """Return the seconds of the fastest call of a burst."""
    fed = feeds(exe)
    exe.run(fed)
    times = []
    for _ in range(BURST):
        begin = time.perf_counter()
        exe.run(fed)
        times.append(time.perf_counter() - begin)
    return min(times)


def one_kernel(exe: Any) -> float:
    """Return the seconds of the longest kernel, the fastest of a burst."""
    assert isinstance(exe, InProcess)
    exe.run(feeds(exe))
    return max(map(min, zip(*exe.timed(feeds(exe), BURST).rounds, strict=True)))


if __name__ == "__main__":
    main()

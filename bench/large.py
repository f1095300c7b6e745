"""Weights larger than memory: how much memory a run takes, and how fast it reads.

    python bench/large.py --gigabytes 4 --weights 800MB

Makes an archive of seeded products (in `--folder`; it is removed afterwards), runs it in a process
of its own with weights limited, and prints the peak of its memory and the bytes a second that it
reads, beside those of reading the same file by position in pieces of the same size.  Before each
the file is dropped from the system's cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import alpenglow as ag
from alpenglow.base.sizes import parse_nbytes
from alpenglow.ops.product.contraction import MatMul

SIDE = 4096
PIECE = SIDE * SIDE * 4

RUN = """
import re, sys, time
import numpy as np
import alpenglow as ag
from pathlib import Path
import os

path, weights = sys.argv[1:]
exe = ag.open(path, weights=weights)
x = {"x": np.ones(exe.inputs["x"].extents, np.float32)}
exe.run(x)
seconds = []
for _ in range(3):
    descriptor = os.open(path, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
    begin = time.perf_counter()
    exe.run(x)
    seconds.append(time.perf_counter() - begin)
peak = re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())
print(sorted(seconds)[1], int(peak[1]) * 1024)
"""


def made(nbytes: int, to: Path) -> None:
    """Write an archive with about so many bytes of weights."""
    rng = np.random.default_rng(0)
    g = ag.Graph("large")
    x = g.input("x", f"f32[1,{SIDE}]")
    for _ in range(max(1, nbytes // PIECE)):
        w = rng.random((SIDE, SIDE), np.float32)
        w -= 0.5
        w *= np.float32((12 / SIDE) ** 0.5)
        x = g(MatMul(), x, g.constant(w))
    g.output("y", x)
    ag.compile(g).save(to)


def dropped(path: Path) -> int:
    """Return the descriptor of a file that is in nobody's cache."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    return descriptor


def plain(path: Path, half: int) -> float:
    """Return the seconds of reading a file in pieces into one half of memory after the other."""
    memory = np.zeros(half, np.uint8)
    descriptor = dropped(path)
    begin = time.perf_counter()
    at, nbytes = 0, path.stat().st_size
    while at < nbytes:
        at += os.preadv(descriptor, [memory[:PIECE].data], at)
    seconds = time.perf_counter() - begin
    os.close(descriptor)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--weights", default="800MB")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        path = Path(folder) / "large.ago"
        made(int(asked.gigabytes * 1e9), path)
        size = path.stat().st_size
        half = parse_nbytes(asked.weights, "--weights") // 2
        alone = sorted(plain(path, half) for _ in range(3))[1]
        dropped(path)
        told = subprocess.run(
            [sys.executable, "-c", RUN, str(path), asked.weights],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        seconds, peak = map(float, told.stdout.split())
    print(f"{size / 1e9:.2f} GB of weights, which may take {asked.weights}")
    print(f"a run takes {seconds:.2f} s, reads {size / seconds / 1e9:.2f} GB/s, "
          f"peak of the process {peak / 1e6:,.0f} MB")  # fmt: skip
    print(
        f"reading alone takes {alone:.2f} s, {size / alone / 1e9:.2f} GB/s: {alone / seconds:.0%}"
    )


if __name__ == "__main__":
    main()

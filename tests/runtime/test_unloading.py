"""Code goes with the last Executable that uses it.

Each case is measured in a process of its own: in one that has run other tests, how much memory
the allocator asks for says more of these than of the case.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.runtime.executables.installed import install

STATM = Path("/proc/self/statm")

pytestmark = [
    pytest.mark.usefixtures("no_cache"),
    pytest.mark.skipif(not STATM.exists(), reason="memory is read from /proc"),
]


def scaled(factor: float, width: int = 8) -> ag.Executable:
    """Return a model that is quick to compile, and differs for each factor."""
    g = ag.Graph("scaled")
    x = g.input("x", ag.TensorType("f32", (width,)))
    g.output("y", g(Mul(), x, g.constant(np.full(width, factor, np.float32))))
    return ag.compile(g, threads=1)


def compile_and_drop(begin: int, end: int) -> None:
    x = np.ones(8, np.float32)
    for i in range(begin, end):
        assert scaled(i)(x)[3] == i


def install_and_drop(begin: int, end: int) -> None:
    artifact, x = scaled(3).artifact, np.ones(8, np.float32)
    for _ in range(begin, end):
        assert install(artifact, 1)(x)[3] == 3


def open_and_drop(path: Path, begin: int, end: int) -> None:
    x = np.ones(1 << 17, np.float32)
    for _ in range(begin, end):
        assert ag.open(path, threads=1)(x)[3] == 3


@pytest.mark.parametrize(
    "work, times, most",
    [(compile_and_drop, 250, 40 << 10), (install_and_drop, 500, 20 << 10)],
    ids=["compiled", "installed"],
)
@pytest.mark.rest
def test_what_is_dropped_leaves_little_behind(
    work: Callable[[int, int], None], times: int, most: int
) -> None:
    # The linker keeps 10 KB of a library.
    assert_grows(work, 50, times, most)


def test_dropped_archives_leave_little_behind(tmp_path: Path) -> None:
    path = tmp_path / "model.ago"
    scaled(3, 1 << 17).save(path)  # 512 KB of weights
    assert_grows(open_and_drop, 10, 100, 40 << 10, path)


def assert_grows(
    work: Callable[..., None], warm: int, times: int, most: int, *operands: object
) -> None:
    """A process grows by fewer than `most` bytes a time, and by no handle."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        nbytes, handles = pool.submit(grown, work, warm, times, *operands).result(600)
    assert nbytes / times < most
    assert handles == 0


def grown(work: Callable[..., None], warm: int, times: int, *operands: object) -> tuple[int, int]:
    """Return by how many bytes and handles this process grows while it works."""
    work(*operands, 0, warm)
    gc.collect()
    before = resident(), open_handles()
    work(*operands, warm, warm + times)
    gc.collect()
    return resident() - before[0], open_handles() - before[1]


def resident() -> int:
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_handles() -> int:
    return len(os.listdir("/proc/self/fd"))

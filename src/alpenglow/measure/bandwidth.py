"""The machine's bandwidth: how many bytes a second it can read from memory at best.

Measured like its peak (see `measure.peak`): a kernel that does nothing but add up an array that no
cache holds, a part of it on each thread.
"""

from __future__ import annotations

import functools

import numpy as np

from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Load
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.measure.peak import best_of
from alpenglow.render.llvm.render import render

NBYTES = 128 << 20
"""What is read: more than caches hold."""

STREAMS = 4
"""Places that a thread reads at by turns: the machine fetches ahead at each of them."""

VECTORS = 4
"""Vectors read at each place in a turn, each added to a sum of its own, so that none waits."""


@functools.cache
def bandwidth(threads: int) -> float:
    """Return the bytes a second that `threads` threads read from memory together at best."""
    target = Target.parse("cpu")
    turns = NBYTES // (4 * target.facts.lanes * VECTORS * STREAMS * threads)
    code = Code.install([assemble(render(sum_kernel(target.facts.lanes, threads, turns)), target)])
    sums = threads * STREAMS * VECTORS * target.facts.lanes
    x, y = np.ones(turns * sums, np.float32), np.zeros(sums, np.float32)
    args = np.array([y.ctypes.data, x.ctypes.data], np.uint64)
    table = np.array([code.address("bandwidth"), args.ctypes.data, threads], np.uint64)
    return x.nbytes / best_of(table.ctypes.data, threads)


def sum_kernel(lanes: int, threads: int, turns: int) -> Kernel:
    """Build the kernel: each thread adds up its part of x, in STREAMS places by turns."""
    b = Builder("bandwidth")
    y = b.buffer("y", "f32", mutable=True)
    x = b.buffer("x", "f32")
    with b.loop(threads, "parallel") as thread:
        sums = [b.var(Const(0.0, "f32", lanes)) for _ in range(STREAMS * VECTORS)]
        with b.loop(turns) as i:
            for k, total in enumerate(sums):
                stream, vector = divmod(k, VECTORS)
                at = ((thread * STREAMS + stream) * turns + i) * VECTORS + vector
                b.set(total, total + Load(x, at * lanes, lanes))
        for k, total in enumerate(sums):
            b.store(y, (thread * len(sums) + k) * lanes, total)
    return b.done()

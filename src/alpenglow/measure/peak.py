"""The machine's peak: how many operations a second it can do at best, on floats or narrow types.

Measured, not looked up: a kernel that does nothing but multiply-adds on registers, written
in the kernel language, compiled as all kernels are, and run by the team that runs all kernels.  So
cores that share their units, or slow down together, show as what they are.
"""

from __future__ import annotations

import functools
import math
import time

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Fma, Load, Splat
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.cpu.assemble import assemble
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.team import Team
from alpenglow.machines.vector.templates.products import products
from alpenglow.render.llvm.render import render

ACCUMULATORS = 12
"""Independent chains: enough to hide the latency of two units, few enough for 16 registers."""

STEPS = 8
"""Fused multiply-adds of each chain in the loop body."""

ROUNDS = 20_000
SECONDS = 0.4
"""The best of as many attempts as fit in this counts.  Others met somebody else's work, or began
when a CPU that had been idle was not yet given a core of its own: on virtual machines that takes
0.1 s."""


@functools.cache
def peak(threads: int, target: Target | None = None, dtype: str = "f32") -> float:
    """Return the operations a second that `threads` threads reach together at best.

    They use the instructions of `target`, by default all that this machine has.  `dtype` is that of
    left operands: f32, bf16, or u8, which is multiplied by i8.
    """
    return peak_now(threads, target, dtype)


def peak_now(threads: int, target: Target | None = None, dtype: str = "f32") -> float:
    """Measure the peak once more: clocks wander."""
    if target is None or target.name == "interpreter":
        target = Target.parse("cpu")
    if not target.is_host_compatible():
        raise UnsupportedError(
            f"measuring the peak of target '{target}' is not supported on this machine"
        )
    if dtype != "f32":
        return _narrow_peak(threads, dtype, target)
    kernel = fma_kernel(target.facts.lanes, threads)
    code = Code.install([assemble(render(kernel, fast=False), target)])
    y = np.zeros(threads * ACCUMULATORS * target.facts.lanes, np.float32)
    x = np.array([0.5, 1.0], np.float32)  # acc = acc / 2 + 1 stays near 2, never denormal
    args = np.array([y.ctypes.data, x.ctypes.data], np.uint64)
    table = np.array([code.address("peak"), args.ctypes.data, threads], np.uint64)
    best = best_of(table.ctypes.data, threads)
    return 2.0 * y.size * STEPS * ROUNDS / best


def _narrow_peak(threads: int, dtype: str, target: Target) -> float:
    kernel = dot_kernel(dtype, target, threads)
    code = Code.install([assemble(render(kernel, fast=False), target)])
    y = np.zeros(threads * ACCUMULATORS * target.facts.lanes, np.int32)
    x = np.zeros(4, np.uint8)
    args = np.array([y.ctypes.data, x.ctypes.data], np.uint64)
    table = np.array([code.address("peak"), args.ctypes.data, threads], np.uint64)
    best = best_of(table.ctypes.data, threads)
    kind = products(dtype, target.facts.lanes, target)
    return 2.0 * y.size * STEPS * ROUNDS * kind.dots / (kind.count - kind.common) / best


def dot_kernel(dtype: str, target: Target, threads: int) -> Kernel:
    """Build the kernel of a narrow type: chains of what its tiles do in a step, on one word."""
    lanes = target.facts.lanes
    kind = products(dtype, lanes, target)
    b = Builder("peak")
    y = b.buffer("y", kind.dtype, mutable=True)
    x = b.buffer("x", dtype)
    with b.loop(threads, "parallel") as thread:
        word = b.let(Splat(kind.word(b, x, Const(0), 1, kind.dots), lanes))
        factor, weight = b.let(kind.factors(word)[0]), b.let(kind.weights(word)[0])
        first = thread * (ACCUMULATORS * lanes)
        chains = [b.var(Load(y, first + i * lanes, lanes)) for i in range(ACCUMULATORS)]
        with b.loop(ROUNDS):
            for _ in range(STEPS):
                for acc in chains:
                    b.set(acc, kind.add(factor, weight, acc))
        for i, acc in enumerate(chains):
            b.store(y, first + i * lanes, acc)
    return b.done()


def fma_kernel(lanes: int, threads: int) -> Kernel:
    """Build the kernel: chains of acc = acc * x[0] + x[1], stored at the end, a set a thread."""
    b = Builder("peak")
    y = b.buffer("y", "f32", mutable=True)
    x = b.buffer("x", "f32")
    with b.loop(threads, "parallel") as thread:
        scale = b.let(Splat(Load(x, Const(0)), lanes))
        shift = b.let(Splat(Load(x, Const(1)), lanes))
        chains = [b.var(Const(float(i), "f32", lanes)) for i in range(ACCUMULATORS)]
        with b.loop(ROUNDS):
            for _ in range(STEPS):
                for acc in chains:
                    b.set(acc, Fma(acc, scale, shift))
        for i, acc in enumerate(chains):
            b.store(y, (thread * ACCUMULATORS + i) * lanes, acc)
    return b.done()


def best_of(table: int, threads: int) -> float:
    """Return the seconds that a table of one kernel takes at best, of attempts for `SECONDS`."""
    best, until = math.inf, time.perf_counter() + SECONDS
    while (begin := time.perf_counter()) < until:
        Team.shared().run(table, 1, threads)
        best = min(best, time.perf_counter() - begin)
    return best

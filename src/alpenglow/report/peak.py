"""The machine's peak: how many floating-point operations a second it can do at best.

Measured, not looked up: a kernel that does nothing but fused multiply-adds on registers, written
in the kernel language and compiled as all kernels are.  One thread is measured; a team of threads
can do so many times as much, where each has a core of its own and clocks do not drop.
"""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable

import numpy as np

from alpenglow.backends.cpu.assemble import assemble
from alpenglow.backends.cpu.jit import Code
from alpenglow.backends.cpu.render import render
from alpenglow.ir.target import Target
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Fma, Kernel, Load, Splat

ACCUMULATORS = 12
"""Independent chains: enough to hide the latency of two units, few enough for 16 registers."""

STEPS = 8
"""Fused multiply-adds of each chain in the loop body."""

ROUNDS = 20_000
ATTEMPTS = 15


@functools.cache
def peak() -> float:
    """Return the f32 operations a second that one thread of this machine reaches at best."""
    target = Target.parse("cpu")
    code = Code.install([assemble(render(fma_kernel(target.lanes), fast=False), target)])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        code.address("peak")
    )
    y = np.zeros(target.lanes * ACCUMULATORS, np.float32)
    x = np.array([0.5, 1.0], np.float32)  # acc = acc / 2 + 1 stays near 2, never denormal
    operands = (ctypes.c_void_p * 2)(y.ctypes.data, x.ctypes.data)
    best = min(_seconds(run, operands) for _ in range(ATTEMPTS))
    return 2.0 * target.lanes * ACCUMULATORS * STEPS * ROUNDS / best


def fma_kernel(lanes: int) -> Kernel:
    """Build the kernel: chains of acc = acc * x[0] + x[1], stored at the end."""
    b = Builder("peak")
    y = b.buffer("y", "f32", mutable=True)
    x = b.buffer("x", "f32")
    scale = b.let(Splat(Load(x, Const(0)), lanes))
    shift = b.let(Splat(Load(x, Const(1)), lanes))
    chains = [b.var(Const(float(i), "f32", lanes)) for i in range(ACCUMULATORS)]
    with b.loop(ROUNDS):
        for _ in range(STEPS):
            for acc in chains:
                b.set(acc, Fma(acc, scale, shift))
    for i, acc in enumerate(chains):
        b.store(y, i * lanes, acc)
    return b.done()


def _seconds(run: Callable[..., None], operands: ctypes.Array[ctypes.c_void_p]) -> float:
    begin = time.perf_counter()
    run(operands, 0, 1)
    return time.perf_counter() - begin

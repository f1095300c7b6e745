"""What an OpenCL device reaches: operations on f32, and bytes copied in its own memory, a second.

Measured as the CPU's are (see `measure.peak`), by the same kernel of nothing but multiply-adds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable

import numpy as np

from alpenglow.base.memory import bytes_of
from alpenglow.ir.target import Target
from alpenglow.machines.api import Artifact, Launch
from alpenglow.machines.opencl.device import Memory, OpenClDevice
from alpenglow.measure.peak import ACCUMULATORS, ROUNDS, SECONDS, STEPS, fma_kernel
from alpenglow.program import Program
from alpenglow.render.opencl.render import render_placed

NBYTES = 256 << 20
"""What is copied: more than caches hold."""

GROUP, GROUPS = 256, 8
"""Threads in a group of a GPU, and how many groups each of its units has at once."""


@functools.cache
def peak(device: OpenClDevice) -> float:
    """Return the operations a second on f32 that a device reaches at best.

    A processor has vectors in a thread for each core, a GPU many threads.
    """
    facts = device.facts
    if facts.kind == "cpu":
        lanes, group, groups = min(facts.lanes, 16), 1, facts.units
    else:
        lanes, group, groups = 1, min(GROUP, facts.most_threads), GROUPS * facts.units
    kernel = fma_kernel(lanes, group * groups)
    count = group * groups * lanes * ACCUMULATORS
    nothing = Program("peak", {}, (), (), ())
    objects = {kernel.name: render_placed(kernel).encode()}
    code = device.install(Artifact(Target.parse("interpreter"), nothing, objects, ()))
    y, x = device.allocate(4 * count), device.allocate(8)
    try:
        device.wait(device.upload(x, 0, bytes_of(np.array([0.5, 1.0], np.float32))))
        launch = Launch(kernel.name, ((y, 0), (x, 0)), (), (groups,), (group,))
        return 2.0 * count * STEPS * ROUNDS / _best(lambda: device.seconds(code, launch))
    finally:
        device.free(y)
        device.free(x)


@functools.cache
def bandwidth(device: OpenClDevice) -> float:
    """Return how many bytes a second a device reads and writes as it copies, both added up."""
    nbytes = min(NBYTES, device.facts.largest_nbytes // 4)
    source, to = device.allocate(nbytes), device.allocate(nbytes)

    def copy(to: Memory = to, source: Memory = source) -> float:
        begin = time.perf_counter()
        device.wait(device.copy((to, 0), (source, 0), nbytes))
        return time.perf_counter() - begin

    try:
        copy()
        copy(source, to)  # memory that nobody has written may not be there yet
        return 2.0 * nbytes / _best(copy)
    finally:
        device.free(source)
        device.free(to)


def _best(attempt: Callable[[], float]) -> float:
    """Return the shortest of as many attempts as fit in the time, and of two at least."""
    until = time.perf_counter() + SECONDS
    best = min(attempt(), attempt())
    while time.perf_counter() < until:
        best = min(best, attempt())
    return best

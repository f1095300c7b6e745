"""The limit after the algorithm's savings: what the kernels of a program cannot take less than.

A kernel does its multiply-adds, as many as its algorithm needs, at the peak of the machine for its
element type at best.  And it reads its weights at least once a run: from memory, if those of the
program together are more than the last cache holds.  The larger of the two is its limit.  What
neither multiplies nor reads weights costs nothing here, so the limit is below what any
implementation of these kernels can reach, and far below where activations do not stay in caches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from alpenglow.ir.target import Target
from alpenglow.measure import reach
from alpenglow.measure.flops import flops_by_type, flops_of
from alpenglow.program import Instr, Program, Region
from alpenglow.runtime.executables.executor import Executable

MEASURED = ("f32", "bf16", "u8")
"""The element types of left operands whose peak is measured; others count as f32."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """Operations a second by element type, bytes a second from memory, bytes of the last cache."""

    peaks: Mapping[str, float]
    bandwidth: float
    cache: float


def roofline(instrs: Sequence[Instr], threads: int, target: Target) -> Roofline:
    """Measure what decides how fast `instrs` can be at best, on so many threads or a device."""
    types = {_measured(t) for i in instrs for t in flops_by_type(i)} | {"f32"}
    peaks = {t: reach.peak_of(target, threads, t) for t in sorted(types)}
    return Roofline(peaks, reach.bandwidth_of(target, threads), reach.cache_of(target))


def limit(exe: Executable, threads: int) -> float | None:
    """Return the seconds that a run cannot take less than; None if extents are left open.

    The machine is measured anew each time: clocks wander, and so do virtual machines.
    """
    reach.forget()
    if len(exe.artifacts) != 1:
        return None
    (artifact,) = exe.artifacts
    instrs = list(artifact.program.instrs())
    if not all(r.type.static for i in instrs for r in (*i.reads(), *i.outs)):
        return None
    return sum(limits(artifact.program, roofline(instrs, threads, exe.target)))


def limits(program: Program, on: Roofline) -> list[float]:
    """Return the seconds that each instruction of a program cannot take less than."""
    instrs = list(program.instrs())
    weights = [weight_bytes(i, program) for i in instrs]
    cold = sum(weights) > on.cache
    return [
        max(_working(i, on), nbytes / on.bandwidth if cold else 0.0)
        for i, nbytes in zip(instrs, weights, strict=True)
    ]


def weight_bytes(i: Instr, program: Program) -> int:
    """Return the bytes of constants that an instruction must read.

    One that does not multiply reads no more than it writes: rows that it gathers, not the table.
    """
    read = sum(touched(r) for r in {*i.reads()} if program.buffers[r.buffer].space == "const")
    return read if flops_of(i) else min(read, sum(map(touched, i.outs)))


def touched(r: Region) -> int:
    """Return the bytes of the elements of a region; those that are repeated are one."""
    distinct = (d for d, s in zip(r.shape, r.strides, strict=True) if s or not d)
    return math.prod(distinct) * r.type.numpy.itemsize


def _working(i: Instr, on: Roofline) -> float:
    return sum(flop / on.peaks[_measured(t)] for t, flop in flops_by_type(i).items())


def _measured(dtype: str) -> str:
    return dtype if dtype in MEASURED else "f32"

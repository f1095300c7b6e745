"""Legalising kernels: what a target lacks is said by what it has, before anything is rendered.

Each law leads from kernels to kernels that do the same, bit by bit; the evaluator is the judge.
Only the bits of NaN are open, and the sign of the smaller or larger of two zeros.  Renderers write
what is left, and know nothing of what a machine lacks.

Operands of f16 and bf16 become operands of u16 where a target has no such type.
"""

from __future__ import annotations

from alpenglow.kernel.legalise.division import without_divisions
from alpenglow.kernel.legalise.floats import without_extremes, without_fma, without_wrapping
from alpenglow.kernel.legalise.groups import without_combined, without_subgroups
from alpenglow.kernel.legalise.halves import without_halves
from alpenglow.kernel.legalise.instructions import without_instructions, without_lookups
from alpenglow.kernel.legalise.lacks import INSTRUCTIONS, Lacks
from alpenglow.kernel.legalise.lanes import without_long_vectors
from alpenglow.kernel.legalise.logic import without_logic
from alpenglow.kernel.legalise.memory import without_atomics, without_copies, without_masks
from alpenglow.kernel.legalise.tiles import without_tiles
from alpenglow.kernel.stmt import Kernel

__all__ = ["INSTRUCTIONS", "Lacks", "legalise"]

LAWS = (
    without_copies,
    without_tiles,  # subgroups share them
    without_subgroups,  # what all threads have is combined as vectors are
    without_combined,
    without_instructions,  # they mean vectors of more lanes, some of them
    without_lookups,
    without_long_vectors,
    without_masks,
    without_atomics,  # they become operations that all the others know
    without_halves,  # their sums and products are those of f32, their fma is one of f64
    without_divisions,
    without_fma,
    without_extremes,
    without_wrapping,
    without_logic,
)
"""The laws in the order in which they apply: none makes what one before it takes away."""


def legalise(kernel: Kernel, lacks: Lacks) -> Kernel:
    """Return a kernel that does the same without what a target lacks; itself if it lacks nothing.

    Raises UnsupportedError if something of it cannot be said otherwise.
    """
    for law in LAWS:
        kernel = law(kernel, lacks)
    return kernel

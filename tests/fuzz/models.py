"""Random models, one a seed, and what to feed them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import (
    recipes_attention,
    recipes_control,
    recipes_data,
    recipes_elementwise,
    recipes_heavy,
    recipes_movement,
    recipes_old,
    recipes_quantized,
    recipes_signal,
    recipes_vision,
)
from .draft import OPSETS, SYMBOLS, Array, Draft, grow, operators

FILES = (
    recipes_elementwise, recipes_movement, recipes_heavy, recipes_quantized, recipes_vision,
    recipes_signal, recipes_attention, recipes_old, recipes_control, recipes_data,
)  # fmt: skip
"""What fills the tables of recipes."""

KINDS = ((False, False), (False, False), (False, False), (True, False), (True, False),
         (False, True), (False, True), (True, True))  # fmt: skip
"""Whether a draft is open, and whether it is staged."""

SIZES = ((19, 5), (1, 2), (0, 1))
"""Other extents for SYMBOLS."""


WEIGHTED = ("Conv", "Resize", "Upsample", "LRN", "RoiAlign", "GridSample", "Deform", "Col2Im",
            "DFT", "STFT", "FusedConv", "QuantizeLinear")  # fmt: skip
"""Operators that may or may not multiply what has the weight 0, or make integers of NaN."""


def draft(seed: int) -> Draft:
    """Return the random model of a seed, of one to seven nodes or a little more."""
    rng = np.random.default_rng(seed)
    d = Draft(rng, int(rng.choice(OPSETS)))
    d.is_open, d.is_staged = KINDS[int(rng.integers(len(KINDS)))]
    if d.is_staged:
        d.opset = max(d.opset, 11)
    grow(d, int(rng.integers(1, 8)))
    return d


def sizes(d: Draft) -> list[dict[str, Array]]:
    """Return feeds for a draft at other extents and with other decisions, fit or not."""
    found = []
    for values in SIZES if d.is_open else ():
        extents = dict(zip(SYMBOLS.values(), values, strict=True))
        found.append({k: _stretched(a, extents) for k, a in d.feeds().items()})
    for name, others in d.controls.items():
        found += [{**d.feeds(), name: other} for other in others if name in d.feeds()]
    return found


def _stretched(array: Array, extents: dict[int, int]) -> Array:
    """Return an array with some extents replaced: elements are repeated, or left out."""
    for axis, old in enumerate(array.shape):
        if old in extents:
            array = np.take(array, np.arange(extents[old]) % old, axis)
    return array


def special(d: Draft, rng: np.random.Generator) -> dict[str, Array]:
    """Return feeds with infinities, NaN, zeros of both signs and the least and largest numbers.

    The largest are such that a few may be multiplied in any order.  Convolutions get finite ones
    only: Winograd's way spreads infinities over a tile, dense blocks over groups.  So does what
    has weights of 0 for its neighbours.
    """
    found = {}
    for name, array in d.feeds().items():
        if name in d.controls:
            found[name] = array
            continue
        a = array.copy()
        flat = a.reshape(-1)
        if a.dtype.kind in "iu":
            limits = np.iinfo(a.dtype)
            strange = np.array([limits.min, limits.max, 0, 1], a.dtype)
        elif a.dtype == np.bool_:
            strange = np.array([True, False])
        else:
            limits = ml_dtypes.finfo(a.dtype)
            numbers = [0.0, -0.0, float(limits.smallest_subnormal), -float(limits.tiny)]
            if not any(op.startswith(WEIGHTED) for op in operators(d.nodes)):
                numbers += [np.nan, np.inf, -np.inf, float(limits.max) ** 0.25]
            strange = np.array(numbers, np.float64).astype(a.dtype)
        spots = rng.random(flat.size) < 0.2
        flat[spots] = rng.choice(strange, int(spots.sum()))
        found[name] = a
    return found

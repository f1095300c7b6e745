"""Random models, one a seed, and what to feed them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from . import recipes_elementwise, recipes_heavy, recipes_movement
from .draft import OPSETS, RECIPES, Array, Declined, Draft

FILES = (recipes_elementwise, recipes_movement, recipes_heavy)
"""What fills the table of recipes."""


def draft(seed: int) -> Draft:
    """Return the random model of a seed, of one to seven nodes."""
    rng = np.random.default_rng(seed)
    d = Draft(rng, int(rng.choice(OPSETS)))
    wanted = int(rng.integers(1, 8))
    names = sorted(RECIPES)
    for _ in range(200):
        if len(d.nodes) >= wanted:
            break
        op = names[int(rng.integers(len(names)))]
        try:
            RECIPES[op](d, op)
        except Declined:
            continue
    return d


def special(d: Draft, rng: np.random.Generator) -> dict[str, Array]:
    """Return feeds with infinities, NaN, zeros of both signs and the least and largest numbers.

    The largest are such that a few may be multiplied in any order.  Convolutions get finite ones
    only: Winograd's way spreads infinities over a tile, dense blocks over groups.
    """
    found = {}
    for name, array in d.feeds().items():
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
            if not any(n.op_type.startswith("Conv") for n in d.nodes):
                numbers += [np.nan, np.inf, -np.inf, float(limits.max) ** 0.25]
            strange = np.array(numbers, np.float64).astype(a.dtype)
        spots = rng.random(flat.size) < 0.2
        flat[spots] = rng.choice(strange, int(spots.sum()))
        found[name] = a
    return found

"""Shapes as NumPy has them, with dynamic dimensions: broadcasting, and limits of size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from alpenglow.base.errors import ModelError
from alpenglow.base.memory import MOST_NBYTES
from alpenglow.frontends.presume import Needed
from alpenglow.ir.dims import Dim, assumed, is_open, known, product
from alpenglow.ir.types import TensorType


def common_shape(what: str, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape that all broadcast to; raise ModelError if there is none.

    A dynamic dimension is taken to equal a number other than 1, or to be 1 if it turns out so.
    Only data decide if two different dynamic dimensions are equal: the import is cut.
    """
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for axis in range(-rank, 0):
        extents = list(dict.fromkeys(s[axis] for s in shapes if len(s) >= -axis))
        if len(extents) == 1:
            out += extents
            continue
        wide = list(dict.fromkeys(d for d in extents if d != 1))
        numbers = [d for d in wide if not is_open(d)]
        if len(wide) > 1 and assumed() is None and len(wide) - len(numbers) > 1 - bool(numbers):
            raise Needed("")
        if any(a != b for a, b in pairwise(wide if assumed() is not None else numbers)):
            found = " and ".join(map(str, shapes))
            raise ModelError(f"{what}: shapes {found} do not broadcast, expected equal sizes or 1")
        out.append(numbers[0] if numbers else wide[0] if wide else 1)
    return tuple(out)


def filled_in(what: str, t: TensorType, wanted: Sequence[Dim]) -> list[Dim]:
    """Return a shape in which -1, of which there is one at most, is what other extents leave."""
    shape = list(wanted)
    if -1 in shape:
        rest, total = product([d for d in shape if d != -1]), product(t.shape)
        if rest == 0 or (known(rest) and known(total) and total % rest):
            found = f"the new shape is {tuple(wanted)}"
            raise ModelError(f"{what}: {found}, expected one that the elements of {t} fill")
        shape[shape.index(-1)] = total // rest
    return shape


def widest(shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape that tensors broadcast to, of which it is known that they do."""
    rank = max(map(len, shapes))
    aligned = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return tuple(next((d for d in extents if not (known(d) and d == 1)), 1) for extents in aligned)


def check_size(what: str, t: TensorType) -> None:
    """Raise ModelError if a tensor has negative extents or is too large for any machine.

    Open extents count as 1, and so do empty ones, for NumPy takes no array that is only saved
    from being too large by an axis of extent 0.
    """
    extents = [d for d in t.shape if known(d)]
    if any(d < 0 for d in extents):
        raise ModelError(f"{what} is {t}, expected dimensions of at least 0")
    if math.prod(max(d, 1) for d in extents) * t.numpy.itemsize > MOST_NBYTES:
        raise ModelError(f"{what} is {t}, expected at most {MOST_NBYTES} bytes")

"""Inputs that last: a session is given them once, and its calls give the others.

The keys and values that a decoder has of its encoder are such, or a prompt's mask.  They are
checked and copied when they are given, so what a caller writes into its arrays later changes no
session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.ir.solve import sources, values_of
from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime.call import feeds
from alpenglow.runtime.session.held import owned


def fitted(types: Mapping[str, TensorType | None], inputs: Mapping[str, Any]) -> dict[str, Array]:
    """Return copies of arrays for inputs of these types.

    Raises FeedError for what does not fit its input or the other arrays, UnsupportedError for an
    input whose type is not known before a call.
    """
    if not isinstance(inputs, Mapping):
        raise FeedError(
            f"inputs is a {type(inputs).__name__}, expected a dict from names of inputs to arrays"
        )
    feeds.check_known(inputs, types)
    arrays: dict[str, Array] = {}
    known: dict[str, TensorType] = {}
    for name, value in inputs.items():
        t = types[name]
        if t is None:
            raise UnsupportedError(
                f"input '{name}' has no type before a call, so no session is given it",
                hint="give it in each call",
            )
        known[name] = t
        arrays[name] = feeds.fitting(name, value, t, t.numpy, None)
    _check_together(known, arrays)
    return owned(arrays)


def _check_together(types: Mapping[str, TensorType], arrays: Mapping[str, Array]) -> None:
    """Raise FeedError unless some values of the open extents allow the shapes of all arrays."""
    shapes = {name: array.shape for name, array in arrays.items()}
    values, unfit = values_of(sources({name: t.shape for name, t in types.items()}), shapes)
    for name, t in types.items():
        meant = t.bind(values)
        if not meant.admits(shapes[name]) or (unfit is not None and unfit.input == name):
            more = "" if meant == t or not t.admits(shapes[name]) else (
                f", where the other inputs make it {meant}"
            )  # fmt: skip
            raise FeedError(f"input '{name}' has shape {shapes[name]}, expected {t}{more}")

"""Shapes for which an Executable is to be ready before it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.dims import is_open
from alpenglow.ir.solve import misshapen, sources, values_of
from alpenglow.ir.types import Array, TensorType

Shapes = Mapping[str, Sequence[int]]


def stand_ins(inputs: Mapping[str, TensorType], shapes: Any) -> list[dict[str, Array]]:
    """Return arrays for the inputs, which take no memory, for each choice of their shapes.

    `shapes` is a dict from names of inputs to shapes, or a list of such.  Inputs whose shapes
    follow from those of others may be left out.  Raises FeedError where shapes do not fit.
    """
    choices = [shapes] if isinstance(shapes, Mapping) else shapes
    if not isinstance(choices, list | tuple) or not all(isinstance(c, Mapping) for c in choices):
        raise FeedError(
            f"shapes is {shapes!r}, expected a dict from names of inputs to shapes, or a list of "
            f"such, for {', '.join(f'{n} : {t}' for n, t in inputs.items())}"
        )
    return [_stand_ins(inputs, choice) for choice in choices]


def _stand_ins(inputs: Mapping[str, TensorType], shapes: Shapes) -> dict[str, Array]:
    for name, shape in shapes.items():
        _check(name, shape, inputs)
    values, unfit = values_of(sources({n: inputs[n].shape for n in shapes}), shapes)
    if unfit is not None:
        t = inputs[unfit.input]
        raise FeedError(misshapen(unfit.input, tuple(shapes[unfit.input]), t.bind(values)))
    arrays = {}
    for name, t in inputs.items():
        extents = shapes[name] if name in shapes else t.bind(values).shape
        if any(is_open(d) for d in extents):
            raise FeedError(
                f"shapes has no shape for input '{name}', expected one for {t}",
                hint=f"add '{name}': (…) to the shapes",
            )
        nothing = np.zeros((), t.numpy)
        arrays[name] = np.broadcast_to(nothing, tuple(int(d) for d in extents))
    return arrays


def _check(name: str, shape: Any, inputs: Mapping[str, TensorType]) -> None:
    """Raise FeedError unless this may be the shape of an input of that name, by itself."""
    if name not in inputs:
        raise FeedError(f"shapes names '{name}', expected inputs: {', '.join(inputs)}")
    t = inputs[name]
    if not isinstance(shape, list | tuple) or not all(isinstance(d, Integral) for d in shape):
        raise FeedError(misshapen(name, shape, f"integers for {t}"))
    pairs = zip(t.shape, shape, strict=False)
    fits = len(shape) == t.rank and all(is_open(want) or want == got for want, got in pairs)
    if not fits or min(shape, default=0) < 0:
        raise FeedError(misshapen(name, tuple(shape), t))

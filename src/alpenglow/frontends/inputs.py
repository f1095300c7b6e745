"""The inputs of a model: their types, and those that have values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.shapes import check_size
from alpenglow.ir.constant_inputs import check_names, constant
from alpenglow.ir.dims import Dim, symbol
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.types import Array, TensorType


def input_types(
    inputs: Iterable[tuple[str, str, Sequence[Dim | None]]],
    shapes: Mapping[str, Sequence[int]] | None,
) -> dict[str, TensorType]:
    """Return the types of inputs, given by name, element type and shape.

    An extent that is None becomes a symbol of its own.  `shapes` binds symbols by input name.
    """
    inputs = list(inputs)
    g = Graph("inputs")
    taken = {str(d) for _, _, shape in inputs for d in shape}
    fresh = (symbol(f"d{n}") for n in count() if f"d{n}" not in taken)
    for name, dtype, shape in inputs:
        if name in g.inputs:
            raise ModelError(f"two inputs are named '{name}', expected different names")
        t = TensorType(dtype, tuple(next(fresh) if d is None else d for d in shape))
        check_size(f"input '{name}'", t)
        g.input(name, t)
    bound = bind_shapes(g, shapes) if shapes else g
    return {name: v.type for name, v in bound.inputs.items()}


def input_arrays(
    constants: Mapping[str, Any], types: Mapping[str, TensorType]
) -> dict[str, Array]:  # fmt: skip
    """Return the values of inputs as arrays; raise OptionError for what does not fit them."""
    check_names(constants, types)
    return {
        # `ascontiguousarray` would make a vector of a scalar.
        name: np.asarray(constant(name, value, types[name].dtype, types[name].shape), order="C")
        for name, value in constants.items()
    }

"""Inputs whose values are told when a model is read or compiled: they become constants.

A flag that chooses one of two decoders in a file is such an input, or a scale that never changes.
What depends on constants alone is computed once, and a branch that they choose is the only one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from alpenglow.base.errors import OptionError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph
from alpenglow.ir.solve import bind_shapes
from alpenglow.ir.structure import without
from alpenglow.ir.types import DTYPES, KINDS, Array

STRING = "string"


def fix(g: Graph, values: Mapping[str, Any]) -> Graph:
    """Return a copy of a graph in which some inputs are constants.

    Their shapes bind the extents of other inputs.  The copy serves no extents that the guards of
    the graph leave out: what imports the model anew for those has all inputs.  Raises OptionError
    for what is no input, and for a value that does not fit one.
    """
    inputs = g.callers_inputs()
    check_names(values, inputs)
    arrays = {n: constant(n, x, inputs[n].type.dtype, inputs[n].type.shape)
              for n, x in values.items()}  # fmt: skip
    shapes = {n: a.shape for n, a in arrays.items() if inputs[n].type.symbols()}
    new = bind_shapes(g, shapes) if shapes else g.copy()
    new.otherwise = None
    for name, array in arrays.items():
        v = new.inputs.pop(name)
        new.replace(v, new.constant(array, name, v.type, copy=False))
    structure = g.metadata.structure
    if structure is not None:
        new.metadata = replace(g.metadata, structure=without(structure, arrays.keys()))
    return new


def check_names(values: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raise OptionError unless values go by the names of inputs."""
    check_mapping(values)
    if unknown := [str(name) for name in values if name not in inputs]:
        raise OptionError(
            f"constants names {', '.join(unknown)}, expected inputs: {', '.join(inputs) or 'none'}"
        )


def check_mapping(values: object) -> None:
    """Raise OptionError unless these may be values by the names of inputs."""
    if not isinstance(values, Mapping):
        raise OptionError(
            f"constants is {values!r}, expected a dict from names of inputs to values",
            hint="constants={'NAME': value}",
        )


def constant(name: str, value: Any, dtype: str, shape: Sequence[Dim | None] | None) -> Array:
    """Return a copy of the value of an input as an array of its type; one number fills its shape.

    An extent that is no number may be any; a shape that is None, too.  Raises OptionError for
    another element type, another shape, and what is no array.
    """
    dims = "…" if shape is None else ",".join("?" if d is None else str(d) for d in shape)
    expected = f"{dtype}[{dims}]"
    try:
        array = _array(value, dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise OptionError(
            f"constant '{name}' cannot be read, expected {expected}: {error}"
        ) from None
    if array.dtype.newbyteorder("=") != (object if dtype == STRING else DTYPES[dtype]):
        raise OptionError(f"constant '{name}' is {array.dtype}, expected {expected}")
    if shape is None:
        return array
    extents = [d if isinstance(d, int) else None for d in shape]
    if array.ndim == 0 and not isinstance(value, np.ndarray) and None not in extents:
        return np.full([d for d in extents if d is not None], array, array.dtype)
    pairs = zip(extents, array.shape, strict=False)
    if array.ndim != len(extents) or any(d is not None and d != n for d, n in pairs):
        raise OptionError(f"constant '{name}' has shape {array.shape}, expected {expected}")
    return array


def _array(value: Any, dtype: str) -> Array:
    """Return a value as an array of its own; numbers of Python take the width of `dtype`."""
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError("it is a masked array, expected an array without a mask")
    if dtype == STRING:
        array = np.array(value, object)
        if not all(isinstance(x, str) for x in array.reshape(-1)):
            raise TypeError("not all elements are strings, expected only strings")
        return array
    array = np.asarray(value)
    if hasattr(value, "dtype") or array.dtype.kind not in KINDS[dtype]:
        return np.array(array, array.dtype.newbyteorder("="), order="C")
    return np.array(value, DTYPES[dtype])

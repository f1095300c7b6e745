"""What is fed to inputs that are no tensors of known rank: checked, and brought into our form.

Arrays stay arrays, sequences become lists, strings arrays of objects; maps are dicts, and an
optional that is empty is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.staged import Kind
from alpenglow.ir.types import DTYPES, Array, TensorType
from alpenglow.ops.host.demand import are_strings
from alpenglow.runtime.call.feeds import as_array, check_unmasked


def value_of(name: str, value: Any, kind: Kind | None) -> Any:
    """Return what is given for an input; raise FeedError if it is of another kind."""
    if type(value) is not np.ndarray:
        check_unmasked(name, value)
    if kind is None:
        return plain(value)
    match kind.what:
        case "tensor":
            return tensor(name, value, kind)
        case "optional":
            return None if value is None else value_of(name, value, kind.of)
        case "sequence":
            if not isinstance(value, list | tuple):
                raise FeedError(f"input '{name}' is {said(value)}, expected a {kind}, as a list")
            return [value_of(f"{name}[{i}]", v, kind.of) for i, v in enumerate(value)]
        case "map":
            if not isinstance(value, dict):
                raise FeedError(f"input '{name}' is {said(value)}, expected a {kind}, as a dict")
            return value
    raise AssertionError(f"no kind of values is called {kind.what}")


def tensor(name: str, value: Any, kind: Kind) -> Array:
    """Return an array of the element type, and of the shape as far as it is said."""
    if kind.dtype == "string":
        array = _strings(name, value, kind)
    else:
        if isinstance(value, dict) or value is None:
            raise FeedError(f"input '{name}' is {said(value)}, expected {kind}")
        dtype = DTYPES[kind.dtype]
        array = as_array(name, value, TensorType(kind.dtype, ()))
        if array.dtype.newbyteorder("=") != dtype:
            raise FeedError(f"input '{name}' is {array.dtype}, expected {dtype} ({kind})")
        array = np.require(array, dtype, ("C", "A"))
    if kind.shape not in (None, array.shape) and not _fits(array.shape, kind.shape):
        raise FeedError(f"input '{name}' has shape {array.shape}, expected {kind}")
    return array


def _fits(shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    if len(shape) != len(wanted):
        return False
    for got, want in zip(shape, wanted, strict=True):
        if want is not None and got != want:
            return False
    return True


def _strings(name: str, value: Any, kind: Kind) -> Array:
    array = np.asarray(value)
    if array.dtype.kind == "O":
        items = array.ravel().tolist()
        if are_strings(items) or all(isinstance(x, str | bytes) for x in items):
            return array.copy()
    elif array.dtype.kind in "US" or not array.size:
        return array.astype(object)
    raise FeedError(f"input '{name}' is {array.dtype}, expected {kind}")


def plain(value: Any) -> Any:
    """Return a value of which nothing is declared: an array, a list, a dict, None."""
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "US" else array


def said(value: Any) -> str:
    """Return what to call a value in a message."""
    if isinstance(value, np.ndarray):
        return f"an array {value.dtype}{list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"

"""What a caller gives: arrays for inputs, places for outputs, and names of the outputs wanted.

All that does not fit is a FeedError, which names the input or output.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, islice
from typing import Any

import numpy as np

from alpenglow.base.errors import AlpenglowError, FeedError
from alpenglow.ir.dims import Guards, holds
from alpenglow.ir.types import DTYPES, KINDS, NAMES, Array, TensorType
from alpenglow.machines.api import Device
from alpenglow.program import Program
from alpenglow.runtime.device.array import DeviceArray


class Unfit(FeedError):
    """What a run has computed or was given does not fit the model; its inputs are not named yet."""


Places = Array | Mapping[str, Array] | Sequence[Array | None]
"""What `out` may be: the array of the only output, arrays by name, or one for each output in order,
None for those that need none."""

MOST_NAMED = 8
"""How many inputs a message describes."""


def given(
    inputs: Mapping[str, Any], arrays: Sequence[Any], by_name: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return what a call is given, by name: the first inputs in order, others by keyword."""
    if len(arrays) > len(inputs) or (len(arrays) < len(inputs) and not by_name):
        names = ", ".join(inputs)
        raise FeedError(f"got {len(arrays)} arrays, expected {len(inputs)}: {names}")
    feeds = dict(zip(inputs, arrays, strict=False))
    if twice := [name for name in by_name if name in feeds]:
        raise FeedError(f"input '{twice[0]}' is already given by position")
    return named({**feeds, **by_name}, inputs)


def named(feeds: Mapping[str, Any], inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the feeds; raise FeedError unless they are for the inputs, by name."""
    if type(feeds) is dict and feeds.keys() == inputs.keys():
        return feeds
    if not isinstance(feeds, Mapping):
        raise FeedError(
            f"feeds are a {type(feeds).__name__}, expected a dict from the names of inputs to "
            f"arrays: {', '.join(inputs)}",
            hint="run({'NAME': array}), or call the Executable itself with arrays in order",
        )
    if feeds.keys() != inputs.keys():
        missing = ", ".join(sorted(inputs.keys() - feeds.keys())) or "nothing"
        unknown = sorted(map(str, feeds.keys() - inputs.keys()))
        raise FeedError(
            f"feeds lack {missing} and hold {', '.join(unknown) or 'nothing'} that is no input; "
            f"the inputs are {', '.join(f'{n} : {t}' for n, t in inputs.items()) or 'none'}",
            hint=_near(unknown, inputs.keys() - feeds.keys()),
        )
    return feeds


def check_known(feeds: Mapping[str, Any], inputs: Mapping[str, Any]) -> None:
    """Raise FeedError for a name that is no input's."""
    if unknown := sorted(map(str, feeds.keys() - inputs.keys())):
        raise FeedError(
            f"feeds hold {', '.join(unknown)}, expected inputs: "
            f"{', '.join(f'{n} : {t}' for n, t in inputs.items()) or 'none'}",
            hint=_near(unknown, inputs),
        )


def unfit(error: AlpenglowError, arrays: Mapping[str, Any]) -> FeedError:
    """Return an error that came up in a run as one of the inputs of that, which it names."""
    first = [f"{n} : {_said(a)}" for n, a in islice(arrays.items(), MOST_NAMED)]
    more = [f"{len(arrays) - len(first)} more"] if len(arrays) > len(first) else []
    return FeedError(
        f"{error.message}; the inputs are {', '.join([*first, *more]) or 'none'}",
        file=error.file,
        node=error.node,
        hint=error.hint,
    )


def _said(value: Any) -> str:
    if isinstance(value, np.ndarray):
        dtype = "string" if value.dtype == object else NAMES.get(value.dtype, value.dtype)
        return f"{dtype}[{','.join(map(str, value.shape))}]"
    return type(value).__name__


def chosen(wanted: Sequence[str] | None, outputs: Iterable[str]) -> list[str]:
    """Return the names of the outputs that a caller wants, in the order in which they are wanted.

    None stands for all.
    """
    known = list(outputs)
    if wanted is None:
        return known
    if isinstance(wanted, str) or not isinstance(wanted, Sequence):
        raise FeedError(
            f"outputs is {wanted!r}, expected a list of names: {', '.join(known)}",
            hint=f"outputs=['{wanted}']" if isinstance(wanted, str) else "",
        )
    if unknown := [name for name in wanted if name not in known]:
        raise FeedError(
            f"outputs names {', '.join(map(str, unknown))}; the outputs are {', '.join(known)}",
            hint=_near(map(str, unknown), known),
        )
    if len(set(wanted)) < len(wanted):
        twice = next(name for k, name in enumerate(wanted) if name in wanted[:k])
        raise FeedError(f"outputs names '{twice}' twice, expected once")
    return list(wanted)


def places(out: Places | None, wanted: Sequence[str], outputs: Iterable[str]) -> dict[str, Any]:
    """Return the caller's places for outputs by name; `wanted` are the outputs, in order.

    What is no array is found when it is written to.
    """
    if out is None:
        return {}
    known = list(outputs)
    if isinstance(out, Mapping):
        if unknown := [name for name in out if name not in known]:
            raise FeedError(
                f"out names {', '.join(sorted(map(str, unknown)))}; outputs are {', '.join(known)}",
                hint=_near(map(str, unknown), known),
            )
        return dict(out)
    one_by_one = isinstance(out, list | tuple)
    row = list(out) if one_by_one else [out]
    if len(row) != len(wanted) or not (one_by_one or isinstance(out, np.ndarray)):
        what = f"{len(row)} places" if one_by_one else f"a {type(out).__name__}"
        expected = "an array" if len(wanted) == 1 else f"a list of {len(wanted)}"
        raise FeedError(
            f"out is {what}, expected {expected}, or arrays by name, for: {', '.join(wanted)}"
        )
    return {name: p for name, p in zip(wanted, row, strict=True) if p is not None}


def _near(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return the known names that look like unknown ones, as a hint; "" if none does."""
    names = list(known)
    matches = [n for name in unknown for n in difflib.get_close_matches(name[:200], names, n=1)]
    return " or ".join(f"'{name}'" for name in dict.fromkeys(matches))


def writeable(name: str, array: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return what the caller gave for an output, if the output can be written there."""
    if not isinstance(array, np.ndarray):
        raise FeedError(f"out['{name}'] is a {type(array).__name__}, expected a NumPy array")
    if array.shape != shape or array.dtype != dtype or not array.flags.writeable:
        kind = "" if array.flags.writeable else "read-only "
        form = f"a {kind}{array.dtype}{array.shape}"
        raise FeedError(f"out['{name}'] is {form}, expected a writeable {dtype}{shape}")
    return array


Form = tuple[np.dtype[Any], tuple[int, ...]]
"""Element type and shape of an array."""


def results(
    program: Program,
    forms: Mapping[str, Form],
    out: Mapping[str, Array],
    inputs: Mapping[str, Array],
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the arrays to hand back, and those that the code writes (mostly the same).

    Both go by the names of buffers, `out` by those of outputs.
    """
    if not out:
        fresh = {name: np.empty(shape, dtype) for name in program.outputs
                 for dtype, shape in (forms[name],)}  # fmt: skip
        return fresh, fresh
    handed, direct = {}, {}
    for name in program.outputs:
        dtype, shape = forms[name]
        if (called := program.names.get(name, name)) not in out:
            handed[name] = direct[name] = np.empty(shape, dtype)
            continue
        array = handed[name] = writeable(called, out[called], dtype, shape)
        dense = array.flags.c_contiguous and array.flags.aligned
        # An output that lies on an input would change it under way.
        if not dense or any(_meet(array, a) for a in inputs.values()):
            array = np.empty(shape, dtype)
        direct[name] = array
    for a, b in combinations(direct, 2):
        if np.may_share_memory(direct[a], direct[b]):
            raise FeedError(f"out['{a}'] and out['{b}'] share memory, expected separate arrays")
    return handed, direct


def _meet(array: Array, other: Any) -> bool:
    return isinstance(other, np.ndarray) and np.may_share_memory(array, other)


def handed_back(
    program: Program, results: Mapping[str, Array], direct: Mapping[str, Array]
) -> dict[str, Array]:
    """Return results as the caller calls them, once those that code wrote are `direct`."""
    for name, array in results.items():
        if array is not direct[name]:
            array[...] = direct[name]
    return {program.names.get(name, name): array for name, array in results.items()}


def unserved(
    inputs: Mapping[str, TensorType],
    arrays: Mapping[str, Array],
    values: Mapping[str, int],
    unfit: str,
    guards: Guards,
    why: str = "",
) -> FeedError:
    """Return the error for extents of which a guard is not true, or that input `unfit` cannot have.

    `values` are those of the extents, as far as the shapes of what is given tell them; `why` says
    what came of importing the model for them.
    """
    because = f": {why}" if why else ""
    extents = ", ".join(f"{name} = {value}" for name, value in values.items())
    if not unfit and why:
        return FeedError(f"dimensions are {extents}, expected some that the model takes: {why}")
    if not unfit:
        broken = next(g for g in guards if not holds([g], values))
        return FeedError(f"dimensions are {extents}, expected {broken[0]} {broken[1]} 0")
    t, shape = inputs[unfit], arrays[unfit].shape
    pairs = zip(t.shape, shape, strict=True)
    fixed = any(isinstance(want, int) and want != got for want, got in pairs)
    bound = t.bind(values)
    more = "" if fixed or bound == t else f", where the other inputs make it {bound}"
    return FeedError(f"input '{unfit}' has shape {shape}, expected {t}{more}{because}")


def written(values: Mapping[str, Any], into: Mapping[str, Any]) -> dict[str, Any]:
    """Return results, of which some have been copied into the caller's places for them."""
    results = dict(values)
    for name, place in into.items():
        value = values[name]
        if not isinstance(value, np.ndarray):
            found = type(value).__name__
            raise FeedError(f"output '{name}' is a {found}, expected an array to copy into out")
        results[name] = writeable(name, place, value.dtype, value.shape)
    for name in into:
        results[name][...] = values[name]
    return results


class Inputs:
    """The inputs that a caller fills: arrays are fitted to them."""

    def __init__(self, types: Mapping[str, TensorType], device: Device | None = None) -> None:
        """Arrays on `device` stay there."""
        self._device = device
        self._types = dict(types)
        self._forms = {n: (t.numpy, None if t.symbols() else t.extents)
                       for n, t in self._types.items()}  # fmt: skip

    def fit(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """Return the arrays for the inputs in order, dense; raise FeedError if one does not fit."""
        by_name = named(arrays, self._types)
        return {n: self._fitting(n, by_name[n], t) for n, t in self._types.items()}

    def _fitting(self, name: str, value: Any, t: TensorType) -> Any:
        if self._device is None or not isinstance(value, DeviceArray):
            return fitting(name, value, t, *self._forms[name])
        if value.device is not self._device:
            raise FeedError(
                f"input '{name}' lies on {value.where}, another device than that which runs this",
                hint="x.numpy() copies it to the host",
            )
        dtype, shape = self._forms[name]
        check_form(name, value, t, dtype, shape)
        return value


def drawn(hidden: Iterable[str]) -> dict[str, Array]:
    """Return random bits for hidden inputs, by name."""
    return {name: np.frombuffer(os.urandom(8), np.uint32) for name in hidden}


def fitting(
    name: str, value: Any, t: TensorType, dtype: np.dtype[Any], shape: tuple[int, ...] | None
) -> Array:
    """Return what is given for an input as a dense array; raise FeedError if it does not fit.

    `shape` is None where some extents are open.
    """
    array = as_array(name, value, t)
    check_form(name, array, t, dtype, shape)
    flags = array.flags
    if array.dtype is dtype and flags.c_contiguous and flags.aligned:
        return array
    return np.require(array, dtype, ("C", "A"))


def check_form(
    name: str, array: Any, t: TensorType, dtype: np.dtype[Any], shape: tuple[int, ...] | None
) -> None:
    """Raise FeedError unless an array has the element type and shape of an input."""
    if array.dtype is not dtype and array.dtype.newbyteorder("=") != dtype:
        raise FeedError(f"input '{name}' is {array.dtype}, expected {dtype} ({t})")
    if shape is None:
        if array.ndim != t.rank:
            raise FeedError(f"input '{name}' has shape {array.shape}, expected {t}")
    elif array.shape != shape:
        raise FeedError(f"input '{name}' has shape {array.shape}, expected {shape}")


def as_array(name: str, value: Any, t: TensorType) -> Array:
    """Return anything array-like as an array, without a copy where there is a protocol for it."""
    if type(value) is np.ndarray:
        return value
    check_unmasked(name, value)
    if isinstance(value, np.ndarray):
        return value
    if value is None or isinstance(value, Mapping):
        what = "None" if value is None else f"a {type(value).__name__}"
        raise FeedError(
            f"input '{name}' is {what}, expected an array of {t.numpy} ({t})",
            hint="" if value is None else "arrays by name go to run(…)",
        )
    torch = sys.modules.get("torch")  # who has a tensor has imported it
    try:
        if torch is not None and isinstance(value, torch.Tensor):
            value = value.detach()
            if value.dtype == torch.bfloat16:  # which NumPy does not know
                return np.asarray(value.view(torch.int16).numpy().view(DTYPES["bf16"]))
        if hasattr(value, "__array_interface__") or hasattr(value, "__array__"):
            return np.asarray(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        array = np.asarray(value)
        # Python's numbers have no width: they take that of the input, if they are of its kind.
        alike = array.dtype.kind in KINDS[t.dtype]
        return np.asarray(value, t.numpy) if alike else array
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        raise FeedError(f"input '{name}': expected an array of {t.numpy} ({t}): {error}") from error


def check_unmasked(name: str, value: Any) -> None:
    """Raise FeedError for a masked array: its masked elements have values that nobody chose."""
    if isinstance(value, np.ma.MaskedArray):
        raise FeedError(
            f"input '{name}' is a masked array, expected one without a mask",
            hint="x.filled(value) for elements that are masked, or x.data to ignore the mask",
        )

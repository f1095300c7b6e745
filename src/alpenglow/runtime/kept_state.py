"""What the variables of a session hold, as a file: an `.npz` that says whose it is."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from alpenglow.base import whole
from alpenglow.base.errors import ModelError, SessionError
from alpenglow.base.memory import bytes_of
from alpenglow.ir.types import DTYPES, NAMES, Array
from alpenglow.runtime.held import Held

OF = "~of"
"""The entry of the file that tells the model."""


def write(path: Path, held: Held, fingerprint: str) -> None:
    """Write what variables hold to a file, whole or not at all."""
    entries: dict[str, Any] = {OF: np.array(fingerprint)}
    for name in (*held.arrays,):
        array = held.kept(name)
        # NumPy's files know no bf16: each array is bytes, and the names say what of.
        entries[f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}] {name}"] = bytes_of(
            np.ascontiguousarray(array)
        )

    def fill(file: BinaryIO) -> None:
        np.savez(file, **entries)

    whole.write(path, fill)


def read(path: Path, held: Held, fingerprint: str) -> None:
    """Give variables, which have their initial values, what a file holds.

    Raises ModelError for a file that `write` has not written, SessionError for another model's or
    for more rows than there is room for.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            entries = dict(file)
        owner = str(entries.pop(OF))
        arrays = dict(_array(title, data) for title, data in entries.items())
    except (ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"this is no state that a session saved: {error}", file=str(path)
        ) from None
    if owner != fingerprint:
        raise SessionError(f"{path} holds the state of another model, or of another version of it")
    if not set(arrays) <= {*held.arrays, *held.growing}:
        raise SessionError(f"{path} holds variables that this model has not")
    for name, array in arrays.items():
        if name not in held.growing:
            held.arrays[name][...] = array
            continue
        axis = held.growing[name]
        rows = array.shape[axis]
        if held.length is None or rows > held.length:
            raise SessionError(f"{path} holds {rows} rows, but there is room for {held.length}")
        room = tuple(held.length if i == axis else d for i, d in enumerate(array.shape))
        held.make_room(name, array.dtype, room)
        held.rows[name] = rows
        held.kept(name)[...] = array


def _array(title: str, data: Array) -> tuple[str, Array]:
    """Return the name and the array of an entry."""
    t, name = title.split(" ", 1)
    dtype, extents = t.rstrip("]").split("[")
    shape = [int(d) for d in extents.split(",") if d]
    return name, data.view(DTYPES[dtype]).reshape(shape)

"""What the variables of a session hold, as a file: an `.npz` that says whose it is."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from alpenglow.base import whole
from alpenglow.base.arrays import readable
from alpenglow.base.errors import NONSENSE, ModelError, SessionError
from alpenglow.base.memory import bytes_of
from alpenglow.ir.types import DTYPES, NAMES, Array, TensorType
from alpenglow.runtime.session.held import Held

OF = "~of"
"""The entry of the file that tells the model, and a hash of the other entries."""


def write(path: Path, held: Held, fingerprint: str) -> None:
    """Write what variables hold to a file, whole or not at all."""
    entries: dict[str, Any] = {}
    for name in held.arrays:
        array = held.kept(name)
        # NumPy's files know no bf16: each array is bytes, and the names say what of.
        entries[f"{NAMES[array.dtype]}[{','.join(map(str, array.shape))}] {name}"] = bytes_of(
            np.ascontiguousarray(array)
        )

    entries[OF] = np.array([fingerprint, _digest(entries)])

    def fill(file: BinaryIO) -> None:
        np.savez(file, **entries)

    whole.write(path, fill)


def read(path: Path, held: Held, fingerprint: str, types: Mapping[str, TensorType]) -> None:
    """Give variables of these types, which have their initial values, what a file holds.

    Raises ModelError for a file that `write` has not written, SessionError for another model's or
    for more rows than there is room for.
    """
    content = io.BytesIO(path.read_bytes())
    try:
        with readable(), np.load(content, allow_pickle=False) as file:
            entries = dict(file)
        owner, digest = map(str, entries.pop(OF))
        if digest != _digest(entries):
            raise ValueError("its checksum is another than expected")
        arrays = dict(_array(title, data) for title, data in entries.items())
    except NONSENSE as error:
        raise ModelError(
            f"expected a state that a session saved: {error}", file=str(path)
        ) from None
    if owner != fingerprint:
        raise SessionError(f"{path} holds the state of another model, expected state of this model")
    for name, array in arrays.items():
        if name not in types or not _fits(array, types[name]):
            t = f"{NAMES[array.dtype]}{list(array.shape)}"
            wanted = str(types[name]) if name in types else "no such variable"
            raise ModelError(f"'{name}' is {t} there, expected {wanted}", file=str(path))
    for name, array in arrays.items():
        if name not in held.growing:
            held.arrays[name][...] = array
            continue
        rows = array.shape[held.growing[name]]
        if held.length is None or rows > held.length:
            raise SessionError(
                f"{path} holds {rows} rows, expected at most {held.length}",
                hint="session(length=…) with more",
            )
        held.put_rows(name, array)


def _fits(array: Array, t: TensorType) -> bool:
    return array.dtype == t.numpy and t.admits(array.shape)


def _digest(entries: Mapping[str, Array]) -> str:
    """Return a hash of all that is kept."""
    digest = hashlib.sha256()
    for title in sorted(entries):
        digest.update(f"{title} {entries[title].nbytes} ".encode())
        digest.update(entries[title].data)
    return digest.hexdigest()


def _array(title: str, data: Array) -> tuple[str, Array]:
    """Return the name and the array of an entry."""
    t, name = title.split(" ", 1)
    dtype, extents = t.rstrip("]").split("[")
    shape = [int(d) for d in extents.split(",") if d]
    return name, data.view(DTYPES[dtype]).reshape(shape)

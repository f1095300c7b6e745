"""Constants as tensors of a model, in it or in a second file, and models as files.

A message of protobuf holds less than 2 GiB: the constants of a larger model are in a file of
their own (ONNX's external data), which is written from the arrays as they lie in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto

from alpenglow.base import whole
from alpenglow.base.memory import bytes_of
from alpenglow.exporters.onnx.elements import CODES
from alpenglow.ir.types import NAMES, Array, width

MOST_BYTES = (1 << 31) - (1 << 24)
"""The most bytes of constants in a model file; the rest of 2 GiB is for all else."""

LARGE = 1 << 10
"""Constants of fewer bytes stay in the model."""

ALIGNMENT = 1 << 16
"""The alignment of constants in a second file, so that they can be mapped."""

Constants = Mapping[str, Array]
"""The constants of a model, by name."""


def save(model: onnx.ModelProto, constants: Constants, path: Path) -> None:
    """Put constants into a model, or into a second file if they are too large, and write it."""
    if sum(a.nbytes for a in constants.values()) <= MOST_BYTES:
        put_in(model, constants)
        whole.write(path, lambda file: _put(file, model.SerializeToString()))
        return
    data = beside(path)
    outside = refer_to(model, constants, data.name)
    whole.write_all({
        data: lambda file: _put_all(file, outside),
        path: lambda file: _put(file, model.SerializeToString()),
    })  # fmt: skip


def beside(path: Path) -> Path:
    """Return the file for the constants of a model that is too large for one file."""
    return path.with_name(path.name + ".data")


def put_in(model: onnx.ModelProto, constants: Constants) -> None:
    """Put constants into a model.

    Each is made where it stands: what is copied into a message may have 2 GiB at most.
    """
    for name, array in constants.items():
        t = model.graph.initializer.add()
        _describe(t, name, array)
        t.raw_data = stored(array).tobytes()


def refer_to(model: onnx.ModelProto, constants: Constants, file: str) -> list[Array]:
    """Put references to a file into a model, and return the arrays of the file, in order."""
    contents, start = [], 0
    for name, array in constants.items():
        if array.nbytes < LARGE:
            put_in(model, {name: array})
            continue
        t, content = model.graph.initializer.add(), stored(array)
        _describe(t, name, array)
        t.data_location = TensorProto.EXTERNAL
        fields = {"location": file, "offset": start, "length": content.nbytes}
        for key, value in fields.items():
            t.external_data.add(key=key, value=str(value))
        contents.append(content)
        start += -(-content.nbytes // ALIGNMENT) * ALIGNMENT
    return contents


def _describe(t: TensorProto, name: str, array: Array) -> None:
    t.name, t.data_type = name, CODES[NAMES[array.dtype]]
    t.dims.extend(array.shape)


def stored(array: Array) -> Array:
    """Return the bytes of a constant; elements of less than a byte are packed, the first low."""
    dense, bits = np.ascontiguousarray(array), width(NAMES[array.dtype])
    if bits >= 8:
        return bytes_of(dense)
    row = np.unpackbits(
        dense.reshape(-1, 1).view(np.uint8), axis=1, count=bits, bitorder="little"
    )  # fmt: skip
    return np.packbits(row, bitorder="little")


def _put(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _put_all(file: BinaryIO, contents: list[Array]) -> None:
    for content in contents:
        file.write(content.data)
        file.write(bytes(-content.nbytes % ALIGNMENT))

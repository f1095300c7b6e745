"""Constants as tensors of a model, and models as files.

A message of protobuf holds less than 2 GiB: of a larger model the constants stand in a file beside
it (ONNX's external data).
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

import numpy as np
import onnx
from onnx import TensorProto

from alpenglow.base import whole
from alpenglow.exporters.onnx.elements import CODES
from alpenglow.ir.types import NAMES, Array, width

MOST_BYTES = (1 << 31) - (1 << 24)
"""What a model file holds at most; the difference to 2 GiB is for all but the constants."""

LARGE = 1 << 10
"""Constants of fewer bytes stay in the model."""

ALIGNMENT = 1 << 16
"""Where constants begin in a file beside a model: at a multiple of this they can be mapped."""


def tensor_of(array: Array, name: str) -> TensorProto:
    """Return a constant; elements of less than a byte are packed, the first in the lowest bits."""
    dtype = NAMES[array.dtype]
    t = TensorProto(name=name, data_type=CODES[dtype])
    t.dims.extend(array.shape)
    bits = width(dtype)
    dense = np.ascontiguousarray(array)
    t.raw_data = (dense if bits >= 8 else _packed(dense, bits)).tobytes()
    return t


def _packed(array: Array, bits: int) -> Array:
    """Return the codes of elements, which lie in the low bits of bytes, as one row of bits."""
    codes = array.reshape(-1, 1).view(np.uint8)
    row = np.unpackbits(codes, axis=1, count=bits, bitorder="little")
    return np.packbits(row, bitorder="little")


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a model, and beside it a file with its constants if it is too large for one."""
    if sum(len(t.raw_data) for t in model.graph.initializer) <= MOST_BYTES:
        whole.write(path, lambda file: _put(file, model.SerializeToString()))
        return
    data = beside(path)
    shell, arrays = _outside(model, data.name)
    whole.write_all({
        data: lambda file: _put_all(file, arrays),
        path: lambda file: _put(file, shell.SerializeToString()),
    })  # fmt: skip


def beside(path: Path) -> Path:
    """Return the file for the constants of a model that is too large for one file."""
    return path.with_name(path.name + ".data")


def _outside(model: onnx.ModelProto, file: str) -> tuple[onnx.ModelProto, list[bytes]]:
    """Return the model with references to a file, and what that holds, in order."""
    shell, contents, start = onnx.ModelProto(), [], 0
    kept = [t.raw_data for t in model.graph.initializer]
    for t in model.graph.initializer:
        if len(t.raw_data) >= LARGE:
            t.ClearField("raw_data")
    shell.CopyFrom(model)
    for t, data in zip(model.graph.initializer, kept, strict=True):
        t.raw_data = data
    for t, data in zip(shell.graph.initializer, kept, strict=True):
        if len(data) < LARGE:
            continue
        t.data_location = TensorProto.EXTERNAL
        fields = {"location": file, "offset": start, "length": len(data)}
        for key, value in fields.items():
            t.external_data.add(key=key, value=str(value))
        gap = -len(data) % ALIGNMENT
        contents += [data, bytes(gap)]
        start += len(data) + gap
    return shell, contents


def _put(file: BinaryIO, content: bytes) -> None:
    file.write(content)


def _put_all(file: BinaryIO, contents: list[bytes]) -> None:
    for content in contents:
        file.write(content)

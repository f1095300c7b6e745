"""Flatbuffers written from dicts, by the layouts that the front end reads them by."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from alpenglow.frontends.flatbuffer import FORMATS, SCALARS
from alpenglow.frontends.tflite.file.schema import (
    BUILTINS,
    LAYOUTS,
    OPTION_2_NUMBERS,
    OPTION_NUMBERS,
    TYPES,
)
from alpenglow.ir.types import NAMES, Array

CODES = {name: number for number, name in enumerate(BUILTINS)}
NUMBERS = {name: number for number, name in TYPES.items()}


def file_of(model: Mapping[str, Any]) -> bytes:
    """Return a model as a file has it.  A union is a pair: its layout, and the fields."""
    out = bytearray(b"\0\0\0\0TFL3")
    _refer(out, 0, _table(out, "Model", model))
    return bytes(out)


def one_op(
    kind: str, operands: Sequence[Array | str], results: Sequence[str], layout: str = "",
    **options: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return a model of one operator; operands are constants, or inputs as ``f32[2,3]``."""
    tensors: list[dict[str, Any]] = []
    buffers: list[dict[str, Any]] = [{}]
    inputs = []
    for i, operand in enumerate(operands):
        if isinstance(operand, str):
            inputs.append(i)
            tensors.append(tensor(f"x{i}", operand))
        else:
            extents = ",".join(map(str, operand.shape))
            t = tensor(f"x{i}", f"{NAMES[operand.dtype]}[{extents}]")
            tensors.append({**t, "buffer": len(buffers)})
            buffers.append({"data": np.frombuffer(operand.tobytes(), np.uint8)})
    outputs = list(range(len(tensors), len(tensors) + len(results)))
    tensors += [tensor(f"y{i}", r) for i, r in enumerate(results)]
    operator: dict[str, Any] = {"inputs": list(range(len(operands))), "outputs": outputs}
    if layout:
        second = layout in OPTION_2_NUMBERS
        number = OPTION_2_NUMBERS[layout] if second else OPTION_NUMBERS[layout]
        field = "builtin_options_2" if second else "builtin_options"
        operator |= {f"{field}_type": number, field: (layout, options)}
    code = CODES[kind]
    return {
        "version": 3,
        "operator_codes": [{"deprecated_builtin_code": min(code, 127), "builtin_code": code}],
        "subgraphs": [{"tensors": tensors, "inputs": inputs, "outputs": outputs,
                       "operators": [operator], "name": "main"}],
        "buffers": buffers,
    }  # fmt: skip


def tensor(name: str, text: str) -> dict[str, Any]:
    """Return a tensor of a type as ``f32[2,?]``, in which ``?`` is an open extent."""
    dtype, _, extents = text.rstrip("]").partition("[")
    words = [e for e in extents.split(",") if e]
    t = {"name": name, "type": NUMBERS[dtype], "has_rank": True,
         "shape": [1 if w == "?" else int(w) for w in words]}  # fmt: skip
    signature = {"shape_signature": [-1 if w == "?" else int(w) for w in words]}
    return {**t, **signature} if "?" in words else t


def _table(out: bytearray, layout: str, values: Mapping[str, Any]) -> int:
    """Append a table, and what it refers to; return where it begins."""
    fields = {name: LAYOUTS[layout][name] for name in values}
    count = max((f.number for f in fields.values()), default=-1) + 1
    offsets = [0] * count
    extent = 4
    for f in sorted(fields.values(), key=lambda f: -_width(f.kind)):
        extent += -extent % _width(f.kind)
        offsets[f.number] = extent
        extent += _width(f.kind)
    vtable = _aligned(out, 2)
    out += struct.pack(f"<{2 + count}H", 4 + 2 * count, extent, *offsets)
    at = _aligned(out, 8)
    out += bytes(extent)
    struct.pack_into("<i", out, at, at - vtable)
    for name, f in fields.items():
        here = at + offsets[f.number]
        if f.kind in SCALARS:
            struct.pack_into(FORMATS[f.kind], out, here, values[name])
        else:
            _refer(out, here, _object(out, f.kind, values[name]))
    return at


def _object(out: bytearray, kind: str, value: Any) -> int:
    """Append a string, vector, table or union; return where it begins."""
    if kind == "str":
        return _vector(out, value.encode(), len(value.encode()), 1)
    if kind == "union":
        return _table(out, *value)
    if not kind.startswith("["):
        return _table(out, kind, value)
    inner = kind[1:-1]
    if inner in SCALARS:
        array = np.asarray(value, SCALARS[inner])
        return _vector(out, array.tobytes(), array.size, array.itemsize)
    at = _vector(out, bytes(4 * len(value)), len(value), 4)
    for i, element in enumerate(value):
        _refer(out, at + 4 + 4 * i, _object(out, inner, element))
    return at


def _vector(out: bytearray, content: bytes, count: int, width: int) -> int:
    _aligned(out, 8, 4 if width > 4 else 0)
    at = len(out)
    out += struct.pack("<I", count) + content + b"\0"
    return at


def _aligned(out: bytearray, to: int, before: int = 0) -> int:
    out += bytes(-(len(out) + before) % to)
    return len(out)


def _refer(out: bytearray, at: int, target: int) -> None:
    struct.pack_into("<I", out, at, target - at)


def _width(kind: str) -> int:
    return SCALARS[kind].itemsize if kind in SCALARS else 4

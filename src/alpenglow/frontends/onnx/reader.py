"""Reading model files: what was given, as a protocol buffer, with its name and folder."""

from __future__ import annotations

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from alpenglow.base.errors import ModelError


def read(model: str | Path | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str, Path | None]:
    """Return the parsed model, what to call it in messages, and its folder (None if no file).

    Raises ModelError if the file does not exist or is no ONNX model.
    """
    if isinstance(model, onnx.ModelProto):
        return checked(model, "model"), "model", None
    if isinstance(model, bytes):
        return checked(parse(model, "model"), "model"), "model", None
    path = Path(model)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}", file=str(path)) from error
    return checked(parse(data, str(path)), str(path)), str(path), path.parent


def parse(data: bytes, file: str) -> onnx.ModelProto:
    """Parse serialised bytes; raise ModelError if they are no protocol buffer of ONNX."""
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError("this is no ONNX model, or it is truncated", file=file) from error
    return proto


def checked(proto: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """Return the model; raise ModelError if it lacks what every model must have."""
    if not proto.HasField("graph") or not proto.opset_import:
        raise ModelError("this is no ONNX model: it has no graph or imports no opset", file=file)
    if proto.functions:
        raise ModelError("models with local functions are not supported", file=file)
    return proto

"""The ONNX front end as the registry of front ends sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx import model as onnx_model
from alpenglow.ir.graph import Graph

FIRST_BYTE = b"\x08"
"""A serialised model begins with its first field, the IR version, a number."""


class OnnxFrontEnd:
    """Reads ONNX models: files, serialised bytes, or `ModelProto`s."""

    name = "onnx"

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return model[:1] == FIRST_BYTE
        if isinstance(model, str | Path):
            return Path(model).suffix == ".onnx" or _head(Path(model)) == FIRST_BYTE
        return isinstance(model, onnx.ModelProto)

    def load(
        self, model: onnx_model.Model, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> Graph:
        return onnx_model.load(model, shapes)


def _head(path: Path) -> bytes:
    """Return the first byte of a file; nothing if there is no such file.

    Raises ModelError if the file cannot be read.
    """
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(1)
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}", file=str(path)) from error

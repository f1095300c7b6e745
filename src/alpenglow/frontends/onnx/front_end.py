"""The ONNX front end as the registry of front ends sees it.

onnx and what reads its models are imported with the first model that is read: a file of which the
compilation is kept needs neither.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from mmap import mmap
from pathlib import Path
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

FIRST_BYTE = b"\x08"
"""A serialised model begins with its first field, the IR version, a number."""

OTHERS = b"TFL3"
"""What stands in bytes 4 to 8 of a model of TFLite, which may begin with the same byte."""

HEAD = 8

ELSEWHERE = b"location"
"""Stands in every file whose weights are in other files (onnx.proto, `external_data`)."""


class OnnxFrontEnd:
    """Reads ONNX models: files, serialised bytes, or `ModelProto`s."""

    name = "onnx"

    @property
    def version(self) -> str:
        return version("onnx")

    def may_read_more(self, content: bytes | mmap) -> bool:
        return content.find(ELSEWHERE) >= 0

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return _is_model(model[:HEAD])
        if isinstance(model, str | Path):
            return Path(model).suffix == ".onnx" or _is_model(_head(Path(model)))
        onnx = sys.modules.get("onnx")  # whoever has an object of onnx has imported it
        return onnx is not None and isinstance(model, onnx.ModelProto)

    def load(
        self, model: Any, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> Graph | StagedModel:
        return self.load_with(model, {}, shapes)

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        read: Graph | StagedModel
        read = import_module("alpenglow.frontends.onnx.model").load(model, shapes, constants)
        return read


def _is_model(head: bytes) -> bool:
    return head[:1] == FIRST_BYTE and head[4:] != OTHERS


def _head(path: Path) -> bytes:
    """Return the first bytes of a file; nothing if there is no such file.

    Raises ModelError if the file cannot be read.
    """
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}", file=str(path)) from error

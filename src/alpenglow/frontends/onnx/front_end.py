"""The ONNX front end as the registry of front ends sees it.

onnx and what reads its models are imported with the first model that is read: a file of which the
compilation is kept needs neither.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head, is_tflite
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

FIRST_BYTE = b"\x08"
"""A serialised model begins with its first field, the IR version, a number."""

ELSEWHERE = b"location"
"""Stands in every file whose weights are in other files (onnx.proto, `external_data`)."""


class OnnxFrontEnd(DecidingFrontEnd):
    """Reads ONNX models: files, serialised bytes, or `ModelProto`s."""

    name = "onnx"

    @property
    def version(self) -> str:
        return version("onnx")

    def may_read_more(self, content: bytes) -> bool:
        return content.find(ELSEWHERE) >= 0

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return model[:1] == FIRST_BYTE and not is_tflite(model, len(model))
        if isinstance(model, str | Path):
            path = Path(model)
            if path.suffix == ".onnx":
                return True
            begin = head(path)
            return begin[:1] == FIRST_BYTE and not is_tflite(begin, path.stat().st_size)
        onnx = sys.modules.get("onnx")  # whoever has an object of onnx has imported it
        return onnx is not None and isinstance(model, onnx.ModelProto)

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        read: Graph | StagedModel
        read = import_module("alpenglow.frontends.onnx.model").load(model, shapes, constants)
        return read

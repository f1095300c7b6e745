"""The ONNX front end as the registry of front ends sees it."""

from __future__ import annotations

import os
import re
import sys
from importlib.metadata import version
from mmap import ACCESS_READ, mmap
from pathlib import Path

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head, is_tflite

FIRST_BYTE = b"\x08"
"""A serialised model begins with its first field, the IR version, a number."""

ELSEWHERE = b"location"
"""Stands in every file whose weights are in other files (onnx.proto, `external_data`)."""

_LOCATION = re.compile(rb"\x0a\x08location\x12([\x00-\x7f]|[\x80-\xff][\x00-\x7f])")
"""A serialised entry of `external_data`: its key, and the length of the path that follows."""


def external_files(path: Path) -> set[Path]:
    """Return the files of external data that the ONNX file at `path` names, without parsing it."""
    if not path.is_file() or path.stat().st_size == 0:
        return set()
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        named = set()
        for match in _LOCATION.finditer(content):
            low, *high = match[1]
            length = (low & 0x7F) + sum(byte << 7 for byte in high)
            named.add(content[match.end() : match.end() + length])
    return {path.parent / os.fsdecode(name) for name in named if b"\0" not in name}


class OnnxFrontEnd(DecidingFrontEnd):
    """Reads ONNX models: files, serialised bytes, or `ModelProto`s."""

    name = "onnx"
    loading = "alpenglow.frontends.onnx.model"

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
        onnx = sys.modules.get("onnx")  # a caller that has an object of onnx has imported it
        return onnx is not None and isinstance(model, onnx.ModelProto)

"""The front end of TFLite as the registry sees it.

What reads its models is imported with the first one: a file of which the compilation is kept does
not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from mmap import mmap
from pathlib import Path
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel

IDENTIFIER = b"TFL3"
HEAD = 8
"""So many bytes hold the offset of the first table, and the identifier behind it."""


class TfliteFrontEnd:
    """Reads TFLite models: files, or their bytes."""

    name = "tflite"
    version = "1"

    def may_read_more(self, content: bytes | mmap) -> bool:
        return False

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return _is_model(model[:HEAD], len(model))
        if not isinstance(model, str | Path):
            return False
        path = Path(model)
        try:
            if not path.is_file():
                return False
            with path.open("rb") as file:
                return _is_model(file.read(HEAD), path.stat().st_size)
        except OSError as error:
            raise ModelError(f"cannot read the model: {error.strerror}", file=str(path)) from error

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
        load = import_module("alpenglow.frontends.tflite.loading").load
        loaded: Graph | StagedModel = load(model, shapes, constants)
        return loaded


def _is_model(head: bytes, nbytes: int) -> bool:
    """Whether a file that begins so is a model: it says so, and its first table is in it."""
    return head[4:8] == IDENTIFIER and int.from_bytes(head[:4], "little") < nbytes

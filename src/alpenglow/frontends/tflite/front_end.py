"""The front end of TFLite as the registry sees it.

What reads its models is imported with the first one: a file of which the compilation is kept does
not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head, is_tflite
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel


class TfliteFrontEnd(DecidingFrontEnd):
    """Reads TFLite models: files, or their bytes."""

    name = "tflite"
    version = "2"
    roundings = ROUNDINGS

    def __init__(self, rounding: str = ROUNDINGS[0]) -> None:
        self._rounding = rounding

    def rounding_as(self, rounding: str) -> TfliteFrontEnd:
        return TfliteFrontEnd(rounding)

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return is_tflite(model, len(model))
        if not isinstance(model, str | Path):
            return False
        begin = head(Path(model))
        return bool(begin) and is_tflite(begin, Path(model).stat().st_size)

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        load = import_module("alpenglow.frontends.tflite.loading").load
        loaded: Graph | StagedModel = load(model, shapes, constants, self._rounding)
        return loaded

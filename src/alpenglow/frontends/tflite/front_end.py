"""The front end of TFLite as the registry sees it."""

from __future__ import annotations

from pathlib import Path

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head, is_tflite
from alpenglow.frontends.tflite.roundings import ROUNDINGS


class TfliteFrontEnd(DecidingFrontEnd):
    """Reads TFLite models: files, or their bytes."""

    name = "tflite"
    loading = "alpenglow.frontends.tflite.loading"
    version = "2"
    roundings = ROUNDINGS

    def __init__(self, rounding: str = ROUNDINGS[0]) -> None:
        self.arguments = (rounding,)

    def rounding_as(self, rounding: str) -> TfliteFrontEnd:
        return TfliteFrontEnd(rounding)

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return is_tflite(model, len(model))
        if not isinstance(model, str | Path):
            return False
        begin = head(Path(model))
        return bool(begin) and is_tflite(begin, Path(model).stat().st_size)

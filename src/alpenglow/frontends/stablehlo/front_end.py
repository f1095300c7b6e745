"""The front end of StableHLO as the registry sees it."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head
from alpenglow.frontends.stablehlo.text.look import LOOK, is_artifact, is_exported, is_program


class StablehloFrontEnd(DecidingFrontEnd):
    """Reads programs of StableHLO: files, their bytes, or what `jax.export` makes."""

    name = "stablehlo"
    loading = "alpenglow.frontends.stablehlo.loading"
    version = "1"

    def accepts(self, model: object) -> bool:
        if isinstance(model, bytes):
            return is_program(model[:LOOK]) or is_artifact(BytesIO(model))
        if not isinstance(model, str | Path):
            return is_exported(model)
        begin = head(Path(model), LOOK)
        if not begin or is_program(begin):
            return bool(begin)
        with Path(model).open("rb") as file:
            return is_artifact(file)

"""The front end of StableHLO as the registry sees it.

What reads its programs is imported with the first one: a file of which the compilation is kept does
not need it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from alpenglow.frontends.deciding import DecidingFrontEnd
from alpenglow.frontends.files import head
from alpenglow.frontends.stablehlo.look import LOOK, is_artifact, is_exported, is_program
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel


class StablehloFrontEnd(DecidingFrontEnd):
    """Reads programs of StableHLO: files, their bytes, or what `jax.export` makes."""

    name = "stablehlo"
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

    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        load = import_module("alpenglow.frontends.stablehlo.loading").load
        loaded: Graph | StagedModel = load(model, shapes, constants)
        return loaded

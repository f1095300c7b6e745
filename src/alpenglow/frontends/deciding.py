"""Front ends whose import depends on which inputs are constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel


class DecidingFrontEnd:
    """A front end (`registry.Deciding`); by itself it reads one file for a model."""

    loading: ClassVar[str] = ""
    """The module whose `load` reads models.  It is imported with the first one: a file of which
    the compilation is kept does not need it."""

    arguments: tuple[Any, ...] = ()
    """The arguments of `load` behind the model, the shapes and the constants."""

    def may_read_more(self, content: bytes) -> bool:
        return False

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
        """Return the graph of a model some inputs of which have these values."""
        load = import_module(self.loading).load
        loaded: Graph | StagedModel = load(model, shapes, constants, *self.arguments)
        return loaded

"""What front ends have in common to which it matters that some inputs are constants."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel


class DecidingFrontEnd(ABC):
    """A front end (`registry.Deciding`); by itself it reads one file for a model."""

    def may_read_more(self, content: bytes) -> bool:
        return False

    def load(
        self, model: Any, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> Graph | StagedModel:
        return self.load_with(model, {}, shapes)

    @abstractmethod
    def load_with(
        self,
        model: Any,
        constants: Mapping[str, Any],
        shapes: Mapping[str, Sequence[int]] | None = None,
    ) -> Graph | StagedModel:
        """Return the graph of a model some inputs of which have these values."""

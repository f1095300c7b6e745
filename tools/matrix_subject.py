"""A model of `matrix.py` with its graph, its inputs and the results that are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import alpenglow as ag
import matrix_models
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel
from matrix_models import Model


class Inapplicable(Exception):
    """A feature has nothing to do with a model; the message says why."""


@dataclass
class Subject:
    """A model from a source, its graph, and the results that are right."""

    model: Model
    folder: Path

    @cached_property
    def loaded(self) -> Any:
        """The graph, or the model in parts."""
        given = self.model.given
        return given if isinstance(given, Graph) else ag.load(given, **self.model.traced)

    @property
    def graph(self) -> Graph:
        """The graph of the whole model, for features that name its values."""
        loaded: Graph | StagedModel = self.loaded
        if isinstance(loaded, StagedModel):
            raise Inapplicable("the graph depends on data, so there is no value of it to name")
        return loaded

    @property
    def path(self) -> Path:
        if not isinstance(self.model.given, Path):
            raise Inapplicable("the command line takes files")
        return self.model.given

    @cached_property
    def feeds(self) -> dict[str, Any]:
        return self.model.feeds(self.loaded, self.extents)

    @cached_property
    def expected(self) -> dict[str, Any]:
        return ag.compile(self.loaded, "interpreter").run(self.feeds)

    @cached_property
    def extents(self) -> dict[str, int]:
        """Numbers for all dynamic dimensions; those that an exporter names are 4."""
        types = filter(None, matrix_models.types(self.loaded).values())
        return {s: self.model.extents.get(s, 4) for t in types for s in t.symbols()}

    def fixed(self) -> Any:
        """Return the graph with fixed dimensions; a model in parts as it is."""
        loaded = self.loaded
        return loaded if isinstance(loaded, StagedModel) else loaded.bind(self.extents)

    def trainable(self) -> Graph:
        """Return the graph with fixed dimensions, in which inputs that are parameters are constants
        and constants are trained."""
        return ag.trainable(self.fixed_parameters(), statistics="running")

    def fixed_parameters(self) -> Any:
        """Return the graph with fixed dimensions, in which parameters are constants."""
        if not self.model.parameters:
            return self.fixed()
        weights = {n: self.feeds[n] for n in self.model.parameters}
        loaded = ag.load(self.model.given, constants=weights)
        return loaded if isinstance(loaded, StagedModel) else loaded.bind(self.extents)

    def inputs(self) -> dict[str, Any]:
        """Return the feeds of `fixed_parameters`."""
        return {n: x for n, x in self.feeds.items() if n not in self.model.parameters}

    def check(self, results: Mapping[str, Any], tolerance: float = 1e-4) -> None:
        """Raise AssertionError unless results by name are those expected."""
        agree(results, self.expected, tolerance)


def agree(
    results: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float = 1e-4
) -> None:
    """Raise AssertionError unless results have the names, shapes and numbers that are expected."""
    assert list(results) == list(expected), f"outputs are {list(results)}"
    for name, wanted in expected.items():
        wanted = np.asarray(wanted, np.float64)
        found = np.asarray(results[name], np.float64)
        assert found.shape == wanted.shape, f"{name} is {found.shape}, expected {wanted.shape}"
        scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * scale)

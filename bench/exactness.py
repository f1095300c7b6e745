"""How far the results of a whole net are from those in f64, ours and another runtime's."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import nets
from alpenglow.debug.exact import distance, exact
from alpenglow.frontends import load
from alpenglow.ir.graph import Graph
from peers import Running

EXACT = tuple(name for name in nets.NETS if "~" not in name and "qdq" not in name)
"""The nets that are measured unless others are asked for: those in f32."""

RUNTIMES = ("alpenglow", "onnxruntime")


def measure(model: Path, feeds: Path, pythons: Mapping[str, Path], cpu: int) -> dict[str, float]:
    """Return the largest error of an output by runtime, as a share of its largest element."""
    with np.load(feeds) as archive:
        arrays = dict(archive)
    graph = load(model, {name: x.shape for name, x in arrays.items()})
    if not isinstance(graph, Graph):
        raise nets.NetError(f"{model.stem} depends on its data: there is no graph of the whole")
    wanted = exact(graph, arrays)
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in RUNTIMES:
            if name != "alpenglow" and name not in pythons:
                continue
            with Running(name, 1, {cpu}, *([pythons[name]] if name in pythons else [])) as one:
                one.load(model, feeds, Path(folder))
                outputs = one.results(Path(folder) / f"{name}.npz")
            found[name] = distance(dict(zip(wanted, outputs, strict=True)), wanted)
    return found

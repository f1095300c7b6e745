"""Glow's models of one operator, with inputs and outputs that TFLite wrote.

They are read where `ALPENGLOW_SUITES` says, or in `.models/suites`.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array

ROOT = Path(__file__).parents[3]
FOLDER = Path(os.environ.get("ALPENGLOW_SUITES", ROOT / ".models" / "suites"))
MODELS = FOLDER / "glow" / "tfliteModels"
CLOSE = 1e-5
"""By how much of the range of a result floats may differ."""

NAMES = sorted(p.stem for p in MODELS.glob("*.tflite")) if MODELS.is_dir() else []
WITHOUT_OUTPUTS = frozenset(n for n in NAMES if not (MODELS / f"{n}.out0").is_file())


def stored(name: str, like: Array) -> Array:
    """Return an array of the suite, behind a first byte that is 0."""
    content = (MODELS / name).read_bytes()[1:]
    return np.frombuffer(content, like.dtype).reshape(like.shape)


pytestmark = pytest.mark.skipif(
    not NAMES, reason=f"no suite in {MODELS}: unpack glow.tar.xz into {FOLDER}"
)


def test_all_models_but_two_have_outputs() -> None:
    assert len(NAMES) == 94
    assert {n.rpartition("_")[0] for n in WITHOUT_OUTPUTS} == {"tflite_detection_post_processing"}


@pytest.mark.parametrize("name", [n for n in NAMES if n not in WITHOUT_OUTPUTS])
def test_a_model_gives_the_outputs_that_are_stored(name: str) -> None:
    graph = ag.load(MODELS / f"{name}.tflite")
    assert isinstance(graph, Graph)
    feeds = []
    for i, v in enumerate(graph.inputs.values()):
        content = np.frombuffer((MODELS / f"{name}.inp{i}").read_bytes()[1:], v.type.numpy)
        feeds.append(content.reshape([d if isinstance(d, int) else -1 for d in v.type.shape]))
    result = ag.compile(MODELS / f"{name}.tflite")(*feeds)
    made = list(result) if isinstance(result, tuple | list) else [result]

    for i, y in enumerate(made):
        wanted = stored(f"{name}.out{i}", y)
        if y.dtype.kind == "f":
            assert np.abs(y - wanted).max() <= CLOSE * max(np.abs(wanted).max(), 1e-30)
        else:
            np.testing.assert_array_equal(y, wanted)

"""The network above 2 GB, made small: its weights lie in a file beside it."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
import models

sys.path.insert(0, str(models.ROOT / "tools"))

import zoo_large
import zoo_models
from public_packages import FetchError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have the network made in a folder of the test, of three narrow layers."""
    monkeypatch.setattr(zoo_models, "ZOO", tmp_path)
    monkeypatch.setattr(zoo_large, "ZOO", tmp_path)
    monkeypatch.setattr(zoo_large, "DATA", tmp_path / "large.data")
    monkeypatch.setattr(zoo_large, "WIDTH", 16)
    monkeypatch.setattr(zoo_large, "LAYERS", 3)


def test_what_is_made_computes_as_its_layers_say(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = [np.array(w) for w in zoo_large._weights()]
    digest = hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()
    monkeypatch.setattr(zoo_large, "LARGE", replace(zoo_large.LARGE, sha256=digest))
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(2, 16)
    expected = x
    for w in weights:
        expected = expected + np.maximum(expected @ w, 0)

    zoo_large.make()
    actual = ag.compile(zoo_large.LARGE.file)(x)

    assert zoo_large.is_here()
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_weights_of_another_generator_are_refused() -> None:
    with pytest.raises(FetchError, match=r"large\.data has SHA-256 .*, expected"):
        zoo_large.make()

    assert not zoo_large.is_here()

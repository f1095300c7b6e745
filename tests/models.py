"""The fetched models: where they are, what to feed them, and what they should answer.

Which models there are is told by the committed files in tests/reference, so tests can be collected
before anything was fetched. The expected outputs are ONNX Runtime's, sampled by
tools/make_references.py.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = Path(__file__).resolve().parent / "reference"
MODELS = Path(os.environ.get("ALPENGLOW_MODELS") or ROOT / ".models")

Array = NDArray[Any]


class NotFetchedError(Exception):
    """A model, its inputs or the data are not where they should be, or are not what they were."""


@dataclass(frozen=True)
class Expected:
    """What is known of one output: its type, its largest magnitude, and some of its elements."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    largest: float
    positions: Array
    values: Array

    def error(self, output: Array) -> float:
        """The largest deviation, relative to the output's largest magnitude; NaN counts as inf."""
        found = output.reshape(-1)[self.positions].astype(np.float64)
        deviations = np.abs(found - self.values)
        largest = np.abs(output.astype(np.float64)).max(initial=0)
        worst = max(deviations.max(initial=0), abs(largest - self.largest))
        return float(worst / (self.largest or 1)) if np.isfinite(worst) else np.inf

    def check(self, output: Array, tolerance: float) -> None:
        """Assert that an output is this one, to a tolerance relative to the largest magnitude."""
        assert (self.name, output.shape) == (self.name, self.shape)
        assert (self.name, output.dtype) == (self.name, self.dtype)
        error = self.error(output)
        assert error <= tolerance, f"{self.name}: {error:.2e} of the largest, allowed {tolerance:g}"


def names() -> list[str]:
    """The names of all models that have a reference."""
    return sorted({name for name, _ in cases()})


def cases() -> list[tuple[str, int]]:
    """Every model with every number of its sets of inputs, as tests are parametrised."""
    stems = (path.stem.rpartition("_") for path in REFERENCE.glob("*.npz"))
    return sorted((name, int(number)) for name, _, number in stems)


def model_path(name: str) -> Path:
    """The ONNX file of a model."""
    return _fetched(MODELS / name / "model.onnx")


def tflite_path(name: str) -> Path:
    """The file of a model of TFLite."""
    return _fetched(MODELS / "tflite" / f"{name}.tflite")


def data_path(name: str) -> Path:
    """A file or folder of the data that is fetched with the models."""
    return _fetched(MODELS / "data" / name)


def inputs(name: str, number: int = 0) -> dict[str, Array]:
    """One set of inputs, an array for each name; they fix the dims that the model leaves open."""
    with np.load(_fetched(MODELS / name / f"inputs_{number}.npz")) as arrays:
        return dict(arrays)


def reference(name: str, number: int = 0) -> list[Expected]:
    """What the model makes of a set of inputs, in the order of the model's outputs."""
    with np.load(REFERENCE / f"{name}_{number}.npz") as fields:
        _check_inputs(name, number, str(fields["inputs"]))
        count = sum(key.endswith(".name") for key in fields)
        return [
            Expected(
                str(fields[f"{output}.name"]),
                tuple(int(dim) for dim in fields[f"{output}.shape"]),
                np.dtype(str(fields[f"{output}.dtype"])),
                float(fields[f"{output}.largest"]),
                fields[f"{output}.positions"],
                fields[f"{output}.values"],
            )
            for output in range(count)
        ]


def _check_inputs(name: str, number: int, fingerprint: str) -> None:
    """Refuse inputs other than those that the reference was made from."""
    arrays = inputs(name, number)
    content = b"".join(arrays[key].tobytes() for key in sorted(arrays))
    if hashlib.sha256(content).hexdigest() != fingerprint:
        raise NotFetchedError(
            f"inputs {number} of {name} are not those of its reference (another Pillow or NumPy?); "
            "run `python tools/fetch_models.py`, and if that does not help, with ONNX Runtime "
            f"installed, `python tools/make_references.py {name}`"
        )


def _fetched(path: Path) -> Path:
    if not path.exists():
        raise NotFetchedError(
            f"{path} is missing; run `python tools/fetch_models.py` to fetch the models, "
            "or `make test-offline` to run the tests that need none"
        )
    return path

"""Record what ONNX Runtime makes of the test models, for the tests to compare with.

    python tools/make_references.py [--models DIR] [NAME ...]

For each model and each of its sets of inputs, tests/reference/NAME_K.npz holds a fingerprint of
the inputs and, for each output J, `J.name`, `J.shape`, `J.dtype`, `J.largest` (the largest
magnitude), `J.positions` (sampled places in the flattened output) and `J.values` (what stands
there). A developer runs this when a model or its inputs change, and commits what it writes.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

import seed_weights
from fetch_models import MODELS, ROOT

REFERENCE = ROOT / "tests" / "reference"
SAMPLES = 2048
SEED = 0

# How far ONNX Runtime may be from the outputs that `onnx` stores, relative to the largest.
STORED_TOLERANCE = 1e-4

Array = NDArray[Any]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Record what ONNX Runtime makes of the models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: every fetched model")
    parser.add_argument("--models", type=Path, metavar="DIR", default=MODELS)
    options = parser.parse_args(arguments)
    fetched = sorted(path.parent.name for path in options.models.glob("*/model.onnx"))
    REFERENCE.mkdir(exist_ok=True)
    for name in options.names or fetched:
        record(name, options.models / name)
    return 0


def record(name: str, folder: Path) -> None:
    """Run a model on each of its sets of inputs and write down the outputs."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 3
    model = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in model.get_outputs()]
    for file in sorted(folder.glob("inputs_*.npz")):
        with np.load(file) as arrays:
            inputs = dict(arrays)
        outputs = [np.asarray(output) for output in model.run(None, inputs)]
        _check(name, names, outputs)
        index = file.stem.removeprefix("inputs_")
        target = REFERENCE / f"{name}_{index}.npz"
        np.savez_compressed(
            target, inputs=fingerprint(inputs), allow_pickle=False, **_summary(names, outputs)
        )
        shapes = ", ".join(f"{output.dtype}{list(output.shape)}" for output in outputs)
        print(f"{target.name}: {shapes}", flush=True)


def fingerprint(inputs: dict[str, Array]) -> str:
    """The SHA-256 of the inputs' elements, in the order of their names."""
    return hashlib.sha256(b"".join(inputs[name].tobytes() for name in sorted(inputs))).hexdigest()


def _check(name: str, names: list[str], outputs: list[Array]) -> None:
    """Refuse outputs that would make a poor reference."""
    for label, output in zip(names, outputs, strict=True):
        assert np.isfinite(output).all(), f"{name}: {label} is not finite"
        constant = not name.startswith("light_") and output.size > 1 and np.ptp(output) == 0
        assert not constant, f"{name}: {label} is constant"
    if name.startswith("seeded_"):
        assert outputs[0].max() < 0.5 or outputs[0].min() < 0, f"{name}: softmax picks one class"
    if name.startswith("light_"):
        stored = seed_weights.light_output(name.removeprefix("light_"))
        error = np.abs(outputs[0] - stored).max() / np.abs(stored).max()
        assert error < STORED_TOLERANCE, f"{name}: {error:.1e} from the output stored in onnx"


def _summary(names: list[str], outputs: list[Array]) -> dict[str, Any]:
    """The fields of each output under its number."""
    rng = np.random.default_rng(SEED)
    fields: dict[str, Any] = {}
    for number, (name, output) in enumerate(zip(names, outputs, strict=True)):
        flat = output.reshape(-1)
        positions = np.arange(flat.size)
        if flat.size > SAMPLES:
            positions = np.sort(rng.choice(flat.size, SAMPLES, replace=False))
        fields |= {
            f"{number}.name": name,
            f"{number}.shape": np.array(output.shape, np.int64),
            f"{number}.dtype": str(output.dtype),
            f"{number}.largest": np.abs(output).max(initial=0),
            f"{number}.positions": positions.astype(np.uint32),
            f"{number}.values": flat[positions],
        }
    return fields


if __name__ == "__main__":
    sys.exit(main())

"""ONNX Runtime, where it is installed: what others make of the same model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.types import Array


@dataclass(frozen=True, slots=True)
class Session:
    """A model in ONNX Runtime."""

    inference: Any
    outputs: tuple[str, ...]

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs by name."""
        results = self.inference.run(None, dict(feeds))
        return dict(zip(self.outputs, results, strict=True))


def installed() -> bool:
    """Whether ONNX Runtime can be imported."""
    return find_spec("onnxruntime") is not None


def reads(model: Path) -> bool:
    """Whether the file is, by its name, of the one format that ONNX Runtime reads."""
    return model.suffix == ".onnx"


def session(model: Path, threads: int | None) -> Session:
    """Load a model into ONNX Runtime; raise UnsupportedError if it is not installed or refuses."""
    if not installed():
        raise UnsupportedError("ONNX Runtime is not installed", hint="pip install onnxruntime")
    # Optional, and slow to import: only when it is asked for.
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        inference = runtime.InferenceSession(
            str(model), options, providers=["CPUExecutionProvider"]
        )
    # Its exceptions have no common root of their own.
    except Exception as error:
        raise UnsupportedError(f"ONNX Runtime cannot load it: {error}", file=str(model)) from error
    return Session(inference, tuple(o.name for o in inference.get_outputs()))

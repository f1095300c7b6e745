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
class PeerSession:
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


def require() -> None:
    """Raise UnsupportedError if ONNX Runtime is not installed."""
    if not installed():
        raise UnsupportedError("ONNX Runtime is not installed", hint="pip install onnxruntime")


def session(model: Path | bytes, threads: int | None) -> PeerSession:
    """Load a model, a file or serialised, into ONNX Runtime.

    Raises UnsupportedError if ONNX Runtime is not installed or refuses the model.
    """
    require()
    # Optional, and slow to import: only when it is asked for.
    runtime = import_module("onnxruntime")
    options = runtime.SessionOptions()
    # What it says of an error comes with the exception.
    options.log_severity_level = 4
    if threads is not None:
        options.intra_op_num_threads = threads
    source = model if isinstance(model, bytes) else str(model)
    try:
        inference = runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    # Its exceptions have no common root of their own.
    except Exception as error:
        file = "" if isinstance(model, bytes) else str(model)
        reason = str(error)
        raise UnsupportedError(f"ONNX Runtime cannot load it: {reason}", file=file) from error
    return PeerSession(inference, tuple(o.name for o in inference.get_outputs()))

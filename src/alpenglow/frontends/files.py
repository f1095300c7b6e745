"""What front ends look at first: how a file begins."""

from __future__ import annotations

from pathlib import Path

from alpenglow.base.errors import ModelError

TFLITE = b"TFL3"
"""What stands in bytes 4 to 8 of a model of TFLite."""

HEAD = 8
"""So many bytes tell models of TFLite from those of ONNX, which may begin alike."""


def head(path: Path, length: int = HEAD) -> bytes:
    """Return the first bytes of a file; nothing if there is no such file.

    Raises ModelError if the file cannot be read.
    """
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(length)
    except OSError as error:
        raise ModelError(f"cannot read the model: {error.strerror}", file=str(path)) from error


def is_tflite(begin: bytes, nbytes: int) -> bool:
    """Whether a file that begins so is a model of TFLite: it says so, and its first table is in it.

    The name of who made a model of ONNX may stand in the same place; but then there is none.
    """
    return begin[4:HEAD] == TFLITE and int.from_bytes(begin[:4], "little") < nbytes

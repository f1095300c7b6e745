"""Files of models: how one begins, what is in it, and errors that name it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alpenglow.base.errors import NONSENSE, AlpenglowError, ModelError

TFLITE = b"TFL3"
"""Bytes 4 to 8 of a model of TFLite."""

HEAD = 8
"""So many bytes separate models of TFLite and ONNX, which may begin alike."""


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
        raise unreadable(error.strerror, path) from error


def unreadable(reason: str | None, path: Path) -> ModelError:
    """Return the error for a path that is not a file that can be read."""
    text = f"cannot read the model: {reason}"
    return ModelError(text, file=str(path), hint="the path of a model file that you may read")


def content_of(model: str | Path | bytes) -> tuple[bytes, str]:
    """Return the bytes of a model and its name in messages; raise ModelError without a file."""
    if isinstance(model, bytes):
        return model, "model"
    path = Path(model)
    try:
        return path.read_bytes(), str(path)
    except OSError as error:
        raise unreadable(error.strerror, path) from error
    except ValueError as error:  # a path with a zero byte
        raise unreadable(str(error), path) from error


@contextmanager
def importing(file: str, format: str) -> Iterator[None]:
    """Let errors name the file; an exception of Python's means that the file makes no sense."""
    try:
        yield
    except AlpenglowError as error:
        raise error.located(file=file) from None
    except NONSENSE as error:
        raise nonsense("the model", format, error, file=file) from error


def nonsense(
    what: str, format: str, error: Exception, *, file: str = "", node: str = ""
) -> ModelError:
    """Return the error for a part of a file for which Python raised one of `NONSENSE`."""
    text = f"{what} breaks the rules of {format}: {type(error).__name__}: {error}"
    hint = f"check the file by another reader of {format}; if that accepts it, report this"
    return ModelError(text, file=file, node=node, hint=hint)


def is_tflite(begin: bytes, nbytes: int) -> bool:
    """Whether a file that begins so is a model of TFLite: it says so, and its first table is in it.

    A model of ONNX may have its producer's name in the same bytes, but then no such table.
    """
    return begin[4:HEAD] == TFLITE and int.from_bytes(begin[:4], "little") < nbytes

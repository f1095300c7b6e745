"""Images: decoding what cameras and painting programs write.

The decoding is Pillow's, an optional dependency.
"""

from __future__ import annotations

import base64
import importlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError, UnsupportedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import refuse

MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""The mode in which Pillow decodes, for each pixel format."""

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that ONNX names, as Pillow calls them; PPM is all of PBM, PGM, PPM and PNM."""


class DecodeImage(Host):
    """The pixels u8[height, width, channels] of an encoded image, given as its bytes.

    `pixels` is RGB, BGR or Grayscale.  What cannot be decoded becomes an image without pixels.
    ONNX ImageDecoder.
    """

    pixels: str = "RGB"

    def reference(self, stream: Array) -> Array:
        if not isinstance(stream, np.ndarray) or stream.dtype != np.uint8 or stream.ndim != 1:
            refuse(self, "stream", stream, "uint8[N], the bytes of a file")
        pillow = decoder()
        channels = 1 if self.pixels == "Grayscale" else 3
        try:
            with pillow.open(io.BytesIO(stream.tobytes()), formats=FORMATS) as image:
                decoded = np.array(image.convert(MODES[self.pixels]), np.uint8)
        except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError):
            return np.zeros((0, 0, channels), np.uint8)
        picture = decoded.reshape(*decoded.shape[:2], channels)
        return picture[:, :, ::-1] if self.pixels == "BGR" else picture

    @classmethod
    def examples(cls) -> Examples:
        dot = (
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAA"
            "AABJRU5ErkJggg=="
        )
        stream = np.frombuffer(base64.b64decode(dot), np.uint8)
        for pixels in MODES:
            yield cls(pixels), stream
        yield cls(), np.zeros(3, np.uint8)
        yield cls("Grayscale"), np.zeros(0, np.uint8)


def pictures(root: Path) -> list[tuple[Path, int | None]]:
    """Return the files below a folder, each with the number of the subfolder it lies in.

    Subfolders are classes, numbered in the order of their names; if there are none, the files of
    the folder itself are returned, without a number.  Hidden files are left out.
    """
    classes = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    parts: list[tuple[int | None, Path]] = [*enumerate(classes)] or [(None, root)]
    return [
        (file, number)
        for number, folder in parts
        for file in sorted(folder.iterdir())
        if file.is_file() and not file.name.startswith(".")
    ]


def picture(file: Path, height: int, width: int, channels: int) -> Array:
    """Return a picture as f32[channels, height, width] from 0 to 1, one channel being grey.

    Raises FeedError if it cannot be read, UnsupportedError without the extra `images`.
    """
    pillow = decoder()
    try:
        with pillow.open(file) as image:
            same = image.convert("L" if channels == 1 else "RGB").resize((width, height))
            pixels = np.asarray(same, np.float32).reshape(height, width, channels)
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise FeedError(f"cannot read image {file}, expected e.g. PNG or JPEG: {error}") from error
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) / 255)


def decoder() -> Any:
    """Return Pillow's module; raise UnsupportedError if it is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise UnsupportedError(
            "decoding images needs Pillow, which is not installed",
            hint="pip install 'alpenglow[images]'",
        ) from error

"""The converter for encoded images, which Pillow decodes if it is installed (extra `images`)."""

from __future__ import annotations

import io
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.types import Array

MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""Pixel formats, as Pillow's modes."""


@on("ImageDecoder", since=20)
def image_decoder(s: Site) -> Made:
    pixels = s.attribute("pixel_format", "RGB")
    if pixels not in MODES:
        raise s.wrong(f"pixel_format is '{pixels}', expected one of: {', '.join(MODES)}")
    stream = s.input(0).type
    if stream.dtype != "u8" or stream.rank != 1:
        raise s.wrong(f"encoded_stream is {stream}, expected u8 of rank 1")
    # The extents of an image are in its stream, which thus must be known.
    return s.g.constant(decoded(s.constant(0).tobytes(), pixels))


def decoded(stream: bytes, pixels: str) -> Array:
    """Return an image as u8[height, width, channels]; raise ModelError if it cannot be read."""
    if find_spec("PIL") is None:
        raise UnsupportedError(
            "ImageDecoder: decoding images needs Pillow, which is not installed",
            hint="pip install alpenglow[images]",
        )
    pillow: Any = import_module("PIL.Image")
    broken = (OSError, ValueError, SyntaxError, EOFError, pillow.DecompressionBombError)
    try:
        with pillow.open(io.BytesIO(stream)) as image:
            array = np.asarray(image.convert(MODES[pixels]))
    except broken as error:
        raise ModelError(f"ImageDecoder: expected an image in encoded_stream: {error}") from error
    if pixels == "Grayscale":
        array = array[:, :, None]
    return np.ascontiguousarray(array[:, :, ::-1] if pixels == "BGR" else array)

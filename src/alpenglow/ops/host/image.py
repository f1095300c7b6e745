"""Images: decoding what cameras and painting programs write.

The decoding is Pillow's, an optional dependency.
"""

from __future__ import annotations

import base64
import importlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from alpenglow.base.errors import FeedError, OptionError, UnsupportedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import refuse

MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}
"""The mode in which Pillow decodes, for each pixel format."""

FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that ONNX names, as Pillow calls them; PPM is all of PBM, PGM, PPM and PNM."""

HIDDEN = ("thumbs.db", "desktop.ini")
"""Names of files, in lower case, that Windows writes into folders of pictures."""

Crop = Literal["none", "center"]


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


@dataclass(frozen=True, slots=True)
class Pictures:
    """How pictures become arrays: (pixel / 255 - mean) / std, in the size of the model's input.

    `mean` and `std` have one number, or one for each channel.  With `crop` "center" the picture
    keeps its aspect ratio and its edges are cut; with "none" both extents are scaled.
    """

    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    crop: Crop = "none"

    def __post_init__(self) -> None:
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if not numbers or not np.isfinite(numbers).all():
                raise OptionError(f"{name} is {numbers}, expected finite numbers")
        if min(self.std) <= 0:
            raise OptionError(f"std is {min(self.std)}, expected numbers above 0")
        if self.crop not in get_args(Crop):
            raise OptionError(f"crop is {self.crop!r}, expected one of {', '.join(get_args(Crop))}")

    @property
    def plain(self) -> bool:
        """True if pixels are only divided by 255."""
        return set(self.mean) == {0.0} and set(self.std) == {1.0}

    def read(self, file: Path, height: int, width: int, channels: int) -> Array:
        """Return a picture as f32[channels, height, width]; one channel is grey.

        Raises FeedError if it cannot be read, OptionError if `mean` or `std` do not fit the
        channels, UnsupportedError without the extra `images`.
        """
        for name, numbers in (("mean", self.mean), ("std", self.std)):
            if len(numbers) not in (1, channels):
                expected = "1" if channels == 1 else f"1 or {channels}"
                raise OptionError(f"{name} has {len(numbers)} numbers, expected {expected}")
        pixels = _pixels(file, height, width, channels, self.crop).transpose(2, 0, 1) / 255
        if not self.plain:
            mean, std = (np.array(n, np.float32)[:, None, None] for n in (self.mean, self.std))
            pixels = (pixels - mean) / std
        return np.ascontiguousarray(pixels)


def pictures(root: Path) -> list[tuple[Path, int | None]]:
    """Return the files below a folder, each with the number of the subfolder it lies in.

    Subfolders are classes, numbered in the order of their names; if there are none, the files of
    the folder itself are returned, without a number.  Hidden files are left out.
    """
    parts: list[tuple[int | None, Path]] = [*enumerate(_classes(root))] or [(None, root)]
    return [
        (file, number)
        for number, folder in parts
        for file in sorted(folder.iterdir())
        if file.is_file() and not _hidden(file)
    ]


def skipped(root: Path) -> list[Path]:
    """Return the files below a folder that `pictures` leaves out: hidden ones, and those that lie
    next to the subfolders of classes."""
    classes = _classes(root)
    files = [file for folder in (root, *classes) for file in sorted(folder.iterdir())]
    return [
        file
        for file in files
        if file.is_file() and (_hidden(file) or (bool(classes) and file.parent == root))
    ]


def _classes(root: Path) -> list[Path]:
    return sorted(p for p in root.iterdir() if p.is_dir() and not _hidden(p))


def _hidden(path: Path) -> bool:
    """Return True for a name that starts with a dot, and for what file managers write."""
    return path.name.startswith(".") or path.name.lower() in HIDDEN


def _pixels(file: Path, height: int, width: int, channels: int, crop: Crop) -> Array:
    """Return a picture as f32[height, width, channels] from 0 to 255."""
    pillow = decoder()
    try:
        with pillow.open(file) as image:
            same = image.convert("L" if channels == 1 else "RGB")
            box = _center(same.size, (width, height)) if crop == "center" else None
            same = same.resize((width, height), box=box)
            return np.asarray(same, np.float32).reshape(height, width, channels)
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise FeedError(
            f"cannot read image {file}, expected a picture, for example PNG or JPEG: {error}",
            hint="move files that are no pictures out of the folder",
        ) from error


def _center(
    picture: tuple[int, int], size: tuple[int, int]
) -> tuple[float, float, float, float]:
    """Return the largest box in the middle of a picture that has the aspect ratio of `size`."""
    scale = min(picture[0] / size[0], picture[1] / size[1])
    left, upper = ((p - scale * s) / 2 for p, s in zip(picture, size, strict=True))
    return left, upper, left + scale * size[0], upper + scale * size[1]


def decoder() -> Any:
    """Return Pillow's module; raise UnsupportedError if it is not installed."""
    try:
        return importlib.import_module("PIL.Image")
    except ImportError as error:
        raise UnsupportedError(
            "decoding images needs Pillow, which is not installed",
            hint="pip install 'alpenglow[images]'",
        ) from error

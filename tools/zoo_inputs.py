"""What the networks of the zoo are fed: sounds, pictures, texts, from a line of text each.

    picture[1,3,H,W](-1,1)

is a kind, a shape and what else the kind wants.  A name stands for a number of the model's `sizes`.
The type is that of the model's input.  All of it is a function of the text and the input's name.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Array = NDArray[Any]
Shape = tuple[int, ...]
Generator = np.random.Generator

WORDS = ("Alpine", "glow", "in", "1874", "the", "evening", "shone", "Matterhorn", "No. 42", "red")

FEED = re.compile(r"(\w+)\[([^\]]*)\](?:\((.*)\))?")


def feed(text: str, name: str, sizes: Mapping[str, int], dtype: np.dtype[Any]) -> Array:
    """Return what a line of text says, for the input called `name`."""
    match = FEED.fullmatch(text)
    assert match, f"the feed of {name} is {text!r}, expected kind[shape](…)"
    kind, shape, rest = match.groups()
    dims = tuple(int(_number(d, sizes)) for d in shape.split(",") if d)
    rng = np.random.default_rng(zlib.crc32(f"{name} {text} {sorted(sizes.items())}".encode()))
    if kind == "words":
        return np.array(rng.choice(rest.split("|"), dims), object)
    arguments = [_number(a, sizes) for a in (rest or "").split(",") if a]
    return np.asarray(KINDS[kind](rng, dims, *arguments)).astype(dtype)


def picture(rng: Generator, shape: Shape, low: float = 0, high: float = 1) -> Array:
    """Return smooth shades with boxes, strokes and a little grain, from `low` to `high`."""
    last = shape[-1] in (1, 3)
    count, channels, height, width = (shape[0], shape[3], shape[1], shape[2]) if last else shape
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j]
    found = np.empty((count, channels, height, width))
    for n, c in np.ndindex(count, channels):
        waves = rng.uniform(0.5, 3, (3, 3))
        found[n, c] = sum(np.sin(2 * np.pi * (a * x + b * y + p)) for a, b, p in waves) / 8 + 0.6
    for n in range(count):
        for _ in range(12):
            top, left = rng.integers(0, height), rng.integers(0, width)
            tall, wide = rng.integers(1, height // 3 + 2), rng.integers(1, width // 4 + 2)
            colour = rng.uniform(0, 1, (channels, 1, 1))
            found[n, :, top : top + tall, left : left + wide] = colour
            found[n, :, top : top + 2, left : left + 3 * wide] = 0.1
    found += 0.01 * rng.standard_normal(found.shape)
    found = low + (high - low) * found.clip(0, 1)
    return found.transpose(0, 2, 3, 1) if last else found


def page(rng: Generator, shape: Shape, low: float = 0, high: float = 1) -> Array:
    """Return lines of printed text, dark on a light page that is a little uneven."""
    count, channels, height, width = shape
    size = min(28, height * 2 // 3)
    found = picture(rng, (count, 1, height, width)) * 0.1 + 0.9
    for sheet in found[:, 0]:
        paper = Image.new("L", (width, height), 255)
        draw = ImageDraw.Draw(paper)
        for top in range(size // 6, height - size, size * 3 // 2):
            words = " ".join(rng.choice(WORDS, 12))
            draw.text((size // 2, top), words, 0, ImageFont.load_default(size))
        sheet *= np.asarray(paper) / 255
    return low + (high - low) * np.repeat(found, channels, 1)


def sound(rng: Generator, shape: Shape, loud: float = 0.5, rate_hz: float = 16000) -> Array:
    """Return hissing vowels that come and go: harmonics of a gliding pitch, under a slow swell."""
    seconds = np.arange(np.prod(shape)) / rate_hz
    pitch_hz = 140 + 30 * np.sin(2 * np.pi * 0.7 * seconds)
    phase = 2 * np.pi * np.cumsum(pitch_hz) / rate_hz
    tones = sum(np.sin(k * phase + rng.uniform(0, 6)) / k for k in range(1, 12))
    swell = np.maximum(0, np.sin(2 * np.pi * 2.3 * seconds + 0.5)) ** 0.5
    hiss = 0.02 * rng.standard_normal(len(seconds))
    return (loud * (0.4 * tones * swell + hiss)).reshape(shape)


def tokens(rng: Generator, shape: Shape, low: float, high: float) -> Array:
    """Return numbers of words, of which the low ones are frequent, as in any text."""
    return low + np.floor((high - low) * rng.random(shape) ** 3)


def integers(rng: Generator, shape: Shape, low: float, high: float) -> Array:
    return rng.integers(int(low), int(high), shape)


def uniform(rng: Generator, shape: Shape, low: float, high: float) -> Array:
    return rng.uniform(low, high, shape)


def features(rng: Generator, shape: Shape, scale: float = 1) -> Array:
    """Return features that change slowly along the axis before the last, as those of frames do."""
    found = rng.standard_normal(shape)
    axis = max(len(shape) - 2, 0)
    steps = np.moveaxis(found, axis, 0)
    for before, here in pairwise(steps):
        here *= 0.6
        here += 0.8 * before
    return scale * found


def mask(rng: Generator, shape: Shape) -> Array:
    """Return ones, but for the ends of the rows after the first: those are padding."""
    found = np.ones(shape)
    for k, row in enumerate(found.reshape(-1, shape[-1])):
        row[max(1, shape[-1] - k % 4) :] = 0
    return found


def onehot(rng: Generator, shape: Shape) -> Array:
    """Return letters, each as a one among zeros."""
    return np.eye(shape[-1])[rng.integers(0, shape[-1], shape[:-1])]


def count(rng: Generator, shape: Shape) -> Array:
    return np.arange(np.prod(shape)).reshape(shape)


def full(rng: Generator, shape: Shape, value: float) -> Array:
    return np.full(shape, value)


def zeros(rng: Generator, shape: Shape) -> Array:
    return np.zeros(shape)


def ones(rng: Generator, shape: Shape) -> Array:
    return np.ones(shape)


KINDS: Mapping[str, Callable[..., Array]] = {
    kind.__name__: kind
    for kind in (
        picture,
        page,
        sound,
        tokens,
        integers,
        uniform,
        features,
        mask,
        onehot,
        count,
        full,
        zeros,
        ones,
    )
}


def _number(text: str, sizes: Mapping[str, int]) -> float:
    """Return a number, or the one that a name stands for."""
    text = text.strip()
    return sizes[text] if text in sizes else float(text)

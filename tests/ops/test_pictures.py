"""Pictures: files of a folder as arrays, in the size and scale of an input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alpenglow.base.errors import FeedError, OptionError
from alpenglow.ops.host.image import Crop, Pictures, pictures, skipped


def picture(file: Path) -> Path:
    """Write a picture of 2 by 6 pixels: two columns each of red, green and blue."""
    pixels = np.zeros((2, 6, 3), np.uint8)
    for channel in range(3):
        pixels[:, 2 * channel : 2 * channel + 2, channel] = 255
    file.parent.mkdir(exist_ok=True)
    Image.fromarray(pixels).save(file)
    return file


def test_a_crop_keeps_the_middle(tmp_path: Path) -> None:
    file = picture(tmp_path / "a.png")
    cut = Pictures(crop="center").read(file, 2, 2, 3)

    np.testing.assert_array_equal(cut, np.float32([0, 1, 0]).reshape(3, 1, 1) * np.ones((3, 2, 2)))
    assert Pictures().read(file, 2, 2, 3)[0].max() > 0


def test_channels_have_a_mean_and_a_deviation(tmp_path: Path) -> None:
    file = picture(tmp_path / "a.png")
    plain = Pictures().read(file, 2, 6, 3)
    scaled = Pictures((0.5, 0.25, 0), (0.5, 2, 4)).read(file, 2, 6, 3)

    assert scaled.dtype == np.float32
    for channel, (mean, std) in enumerate(((0.5, 0.5), (0.25, 2), (0, 4))):
        np.testing.assert_array_equal(scaled[channel], (plain[channel] - mean) / std)


@pytest.mark.parametrize(
    ("mean", "std", "crop", "text"),
    [
        ((0.5, 0.5), (1.0,), "none", "mean has 2 numbers, expected 1 or 3"),
        ((0.5,), (1.0, 0.0), "none", "std is 0.0, expected numbers above 0"),
        ((), (1.0,), "none", "mean is (), expected finite numbers"),
        ((0.0,), (1.0,), "left", "crop is 'left', expected one of none, center"),
    ],
)
def test_mistakes_are_errors(
    tmp_path: Path, mean: tuple[float, ...], std: tuple[float, ...], crop: Crop, text: str
) -> None:
    with pytest.raises(OptionError, match=text.replace("(", r"\(").replace(")", r"\)")):
        Pictures(mean, std, crop).read(picture(tmp_path / "a.png"), 2, 6, 3)


def test_hidden_files_are_skipped(tmp_path: Path) -> None:
    files = [picture(tmp_path / name / "0.png") for name in ("cat", "dog")]
    others = [tmp_path / ".DS_Store", tmp_path / "notes.txt", tmp_path / "cat" / "._0.png"]
    others.append(tmp_path / "dog" / "Thumbs.db")
    for file in others:
        file.write_bytes(b"no picture")

    assert pictures(tmp_path) == [(files[0], 0), (files[1], 1)]
    assert skipped(tmp_path) == others


def test_a_file_that_is_no_picture_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "list.csv"
    file.write_text("no picture")

    with pytest.raises(FeedError, match=r"cannot read image .*list.csv, expected a picture"):
        Pictures().read(file, 2, 2, 3)

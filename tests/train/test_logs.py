"""The curve of the loss: a picture, and a chart in characters, both with axes."""

from __future__ import annotations

import math

import pytest

from alpenglow.train import Epoch
from alpenglow.train.logs import ROWS, chart, curve, ticks


def run(count: int, first: int = 0) -> list[Epoch]:
    """Return epochs whose loss falls."""
    return [
        Epoch(k, 1, 0.0, {"loss": 2 / (k + 1)}, {"loss": 3 / (k + 1)})
        for k in range(first, first + count)
    ]


@pytest.mark.parametrize("width", [20, 80, 160])
@pytest.mark.parametrize("count", [2, 7, 1000])
def test_a_chart_fits_its_width(width: int, count: int) -> None:
    lines = chart(run(count), width)

    assert max(map(len, lines)) <= width or width == 20
    assert len(lines) == ROWS + 3
    assert lines[1].split()[0] == "3" and lines[-1].split()[0] == "0"
    assert any("*" in line for line in lines[1:-2]) and any("o" in line for line in lines[1:-2])


def test_a_chart_has_the_numbers_of_epochs() -> None:
    assert chart(run(5, first=3), 80)[-1].split() == ["3", "4", "5", "6", "7"]


def test_equal_losses_have_a_sign_of_their_own() -> None:
    epochs = [Epoch(k, 1, 0.0, {"loss": 2.0 - k}, {"loss": 2.0 - k}) for k in range(2)]

    assert chart(epochs, 80)[0].endswith("* training, o validation, @ both")


def test_one_epoch_has_no_chart() -> None:
    assert chart(run(1), 80) == []


def test_infinite_losses_are_left_out() -> None:
    epochs = [*run(2), Epoch(2, 1, 0.0, {"loss": math.nan})]

    assert "nan" not in "".join(chart(epochs, 80)) and "nan" not in curve(epochs)


def test_a_curve_has_scales() -> None:
    text = curve(run(5))

    for label in (">0</text>", ">0.75</text>", ">3</text>", ">4</text>", ">epoch</text>"):
        assert label in text
    assert text.count("<polyline") == 2


def test_ticks_are_round() -> None:
    assert ticks(0, 4, 8) == [0, 1, 2, 3, 4]
    assert ticks(0, 99, 5) == [0, 20, 40, 60, 80]
    assert ticks(7, 7, 5) == [7]

"""Options of commands that read pictures: how pixels become the numbers of a model's input."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, get_args

import click

from alpenglow.base.errors import OptionError
from alpenglow.ops.host.image import Crop, Pictures

Function = Callable[..., Any]

_OPTIONS = (
    click.option("--mean", metavar="NUMBERS",
                 help="For pictures: the mean of each channel, which is subtracted from pixels of "
                 "0 to 1, such as 0.485,0.456,0.406.  [default: 0]"),
    click.option("--std", metavar="NUMBERS",
                 help="For pictures: the standard deviation of each channel, by which the "
                 "difference is divided, such as 0.229,0.224,0.225.  [default: 1]"),
    click.option("--crop", type=click.Choice(get_args(Crop)), default="none", show_default=True,
                 help="For pictures of another aspect ratio than the input: center cuts the edges, "
                 "none scales width and height independently."),
)  # fmt: skip


def picture_options(function: Function) -> Function:
    """Give a command the options of pictures; it is called with `pictures`, a Pictures."""

    @functools.wraps(function)
    def call(*args: Any, mean: str | None, std: str | None, crop: Crop, **rest: Any) -> Any:
        read = Pictures(_numbers("--mean", mean, 0.0), _numbers("--std", std, 1.0), crop)
        return function(*args, pictures=read, **rest)

    decorated: Function = call
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _numbers(flag: str, text: str | None, default: float) -> tuple[float, ...]:
    """Return the numbers of an option, parted by commas."""
    if text is None:
        return (default,)
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise OptionError(
            f"{flag} is {text}, expected a number, or one for each channel as 0.5,0.5,0.5"
        ) from None

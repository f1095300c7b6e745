"""Architectures that users of Flax and Equinox have, built small."""

from __future__ import annotations

from collections.abc import Callable

from tests.frontends.stablehlo.jaxlib.nets import (
    attention,
    generative,
    sequences,
    training,
    variants,
    vision,
)
from tests.frontends.stablehlo.jaxlib.nets.made import Case

THEMES = attention, generative, sequences, training, variants, vision


def cases() -> dict[str, Callable[[], Case]]:
    """Return nets by name, each with what makes a function and its arguments."""
    named = [pair for theme in THEMES for pair in theme.NETS.items()]
    assert len({name for name, _ in named}) == len(named), "two nets have one name"
    return dict(named)

"""Loop forms of special functions."""

from alpenglow.extras.special.loops import incomplete

__all__ = ["incomplete"]

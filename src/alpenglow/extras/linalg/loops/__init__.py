"""Loop forms of linear algebra."""

from alpenglow.extras.linalg.loops import inverse, linalg

__all__ = ["inverse", "linalg"]

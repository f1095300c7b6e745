"""Linear algebra: factorizations, inverses, determinants, and solving systems of equations."""

from alpenglow.extras.linalg import (
    factorization,
    indefinite,
    inverse,
    linalg,
    loops,
    reflections,
    solving,
)

__all__ = [
    "factorization",
    "indefinite",
    "inverse",
    "linalg",
    "loops",
    "reflections",
    "solving",
]

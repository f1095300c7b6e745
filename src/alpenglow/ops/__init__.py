"""The operators, one class each, a file a family.  Importing this package registers them all."""

from alpenglow.ops import (
    activation,
    arithmetic,
    blocked,
    contraction,
    fused,
    movement,
    pooling,
)

__all__ = [
    "activation",
    "arithmetic",
    "blocked",
    "contraction",
    "fused",
    "movement",
    "pooling",
]

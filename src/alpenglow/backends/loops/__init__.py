"""Loop forms of all operators, for every backend that renders kernels."""

from alpenglow.backends.loops import (
    contraction,
    gather,
    generate,
    movement,
    normalize,
    order,
    pooling,
    recurrent,
    reduction,
    resize,
)
from alpenglow.backends.loops.form import has_form
from alpenglow.backends.loops.instruction import build

__all__ = [
    "build",
    "contraction",
    "gather",
    "generate",
    "has_form",
    "movement",
    "normalize",
    "order",
    "pooling",
    "recurrent",
    "reduction",
    "resize",
]

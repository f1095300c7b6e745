"""Loop forms of all operators, for every backend that renders kernels."""

from alpenglow.backends.loops import contraction, movement, pooling
from alpenglow.backends.loops.form import build, has_form

__all__ = ["build", "contraction", "has_form", "movement", "pooling"]

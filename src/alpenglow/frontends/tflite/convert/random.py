"""Converters that draw random numbers.

TFLite draws others in each process where both seeds are 0, as we do; numbers of a seed come from
a generator of its own, which is not supported.
"""

from __future__ import annotations

from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ops.random.random import RandomNormal, RandomUniform


@on("RANDOM_UNIFORM", "RandomOptions")
def random_uniform(s: Site) -> Made:
    return s.g(RandomUniform(shape(s)), s.g.random_key())


@on("RANDOM_STANDARD_NORMAL", "RandomOptions")
def random_standard_normal(s: Site) -> Made:
    return s.g(RandomNormal(shape(s)), s.g.random_key())


def shape(s: Site) -> tuple[Dim, ...]:
    """Return the shape that operand 0 says; raise UnsupportedError if a seed is given."""
    if s.option("seed") or s.option("seed2"):
        raise s.unsupported(f"seed {s.option('seed')} with seed2 {s.option('seed2')}", "0 and 0")
    return s.shape(0)

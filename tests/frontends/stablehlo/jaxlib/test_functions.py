"""Functions of `jax.numpy` and its kin beside jaxlib."""

from __future__ import annotations

import pytest
from tests.frontends.stablehlo.jaxlib.exported import agree
from tests.frontends.stablehlo.jaxlib.functions import cases

CASES = cases()


@pytest.mark.sampled(60)
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_function_makes_what_jaxlib_makes(name: str) -> None:
    agree(*CASES[name])

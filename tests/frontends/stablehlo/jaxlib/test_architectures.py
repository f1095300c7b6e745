"""Architectures that users of Flax and Equinox have, and their training, beside jaxlib."""

from __future__ import annotations

import pytest
from tests.frontends.stablehlo.jaxlib.exported import agree
from tests.frontends.stablehlo.jaxlib.nets import cases

CASES = cases()
CLOSE = 1e-4


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(CASES))
def test_a_net_makes_what_jaxlib_makes(name: str) -> None:
    function, args, *close = CASES[name]()

    agree(function, args, *(close or [CLOSE]))

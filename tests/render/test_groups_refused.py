"""What groups of threads do is refused, by name, where a renderer does not write it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import alpenglow.render.c.render as c
import alpenglow.render.llvm.render as llvm
from alpenglow.base.errors import UnsupportedError
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import parse_kernel

BODIES = [
    "y[0] = across.add(y[0])",
    "thread t in 4 {\n  copy a[t] = x[t]\n  commit\n  wait 0\n}",
    "y[0, 4] = x.4x4[0, 4]",
]


@pytest.mark.parametrize("render", [llvm.render, c.render])
@pytest.mark.parametrize("body", BODIES)
def test_what_is_not_rendered_is_refused(render: Callable[[Kernel], str], body: str) -> None:
    kernel = parse_kernel(f"kernel @k(x: f32, y: mut f32) {{\narray a: f32[4] shared\n{body}\n}}")
    with pytest.raises(UnsupportedError, match="kernel k"):
        render(kernel)

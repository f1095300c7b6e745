"""What OpenCL C has to say where C would do without."""

from __future__ import annotations

from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Const, Load
from alpenglow.render.opencl.render import render, render_placed


def limited() -> Builder:
    """Reads no element past the fifth."""
    b = Builder("limited")
    x, y = b.buffer("x", "f32"), b.buffer("y", "f32", mutable=True)
    with b.loop(9) as i:
        b.store(y, i, Load(x, Binary("min", i, Const(5)) * 8))
    return b


def test_numbers_among_long_operands_are_long() -> None:
    assert "min(i0, 5L)" in render(limited().done())


def test_operands_begin_at_an_offset_in_bytes() -> None:
    text = render_placed(limited().done(), frozenset({"x"}))

    assert "__global uchar *x_in" in text and "long x_at" in text
    assert "__global const float *x = (__global const float *)(x_in + x_at);" in text


def test_products_are_kept_apart_from_additions_unless_all_is_fast() -> None:
    assert "FP_CONTRACT OFF" in render_placed(limited().done())
    assert "FP_CONTRACT" not in render_placed(limited().done(), fast=True)

"""What OpenCL C has to say where C would do without."""

from __future__ import annotations

from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Const, Intrinsic, Load
from alpenglow.render.opencl.operations import NEWER
from alpenglow.render.opencl.render import WITH_DOTS, render, render_placed


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


def test_products_of_bytes_are_functions_where_a_device_has_them() -> None:
    b = Builder("dots")
    x, y = b.buffer("x", "i32"), b.buffer("y", "i32", mutable=True)
    with b.loop(9) as i:
        b.store(y, i, Intrinsic("usdot", (Load(y, i), Load(x, i), Const(1, "i32"))))
    kernel = b.done()

    assert "dot_4x8packed_us_int(" in render_placed(kernel, lacks=WITH_DOTS)
    assert render_placed(kernel, lacks=WITH_DOTS).startswith(NEWER)
    assert "dot_4x8packed" not in render_placed(kernel)
    assert not render_placed(kernel).startswith(NEWER)

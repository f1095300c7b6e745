"""Schemas: scales and zero points of ranges, and the rules for ranges that are no range."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import OptionError
from alpenglow.ops.quantized.fake_quantize import SymmetricScale
from alpenglow.quant.schema import (
    SCHEMAS,
    SMALLEST,
    Parameters,
    Schema,
    check_scale,
    limits,
    parameters,
    steps,
    storage,
)

RANGES = [(-1.0, 3.0), (0.0, 5.0), (-7.0, 0.0), (2.0, 9.0), (-3e38, 3e38), (-1e-20, 1e-21)]


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16"])
@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_zero_is_exact_and_the_ends_come_back_within_half_a_step(
    low: float, high: float, schema: Schema, dtype: str
) -> None:
    p = parameters(low, high, dtype, schema)
    x = np.array([0, low, high, (low + high) / 2])
    error = np.abs(p.restored(x) - x)

    assert error[0] == 0
    # Rounding scale and zero point may move each end by another step.
    assert error.max() <= 1.51 * p.scale


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_range_without_width_has_scale_1(schema: Schema) -> None:
    expected = 1.0

    assert expected == parameters(0.0, 0.0, "i8", schema).scale


def test_a_constant_that_is_not_zero_is_stored_exactly_enough() -> None:
    p = parameters(4.0, 4.0, "u8", "asymmetric")

    assert p == Parameters("u8", float(np.float32(4 / 255)), 0)


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("high", [1e-45, 1e-40, SMALLEST])
def test_a_scale_is_never_a_denormal(schema: Schema, high: float) -> None:
    expected = SMALLEST

    assert expected == parameters(0.0, high, "i8", schema).scale


@pytest.mark.parametrize(("low", "high"), [(np.nan, 1), (0, np.inf), (-np.inf, 0), (1.0, -1.0)])
def test_what_is_no_range_is_refused(low: float, high: float) -> None:
    with pytest.raises(OptionError, match="the range is"):
        parameters(low, high, "i8", "symmetric")


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-40, np.nan, np.inf])
def test_scales_of_zero_or_denormal_are_refused(scale: float) -> None:
    with pytest.raises(OptionError, match="is no scale"):
        Parameters("i8", scale, 0)
    with pytest.raises(OptionError, match="is no scale"):
        check_scale([1.0, scale])


@pytest.mark.parametrize(
    ("dtype", "zero"), [("i8", 128), ("u8", -1), ("u8", 256), ("i16", 1 << 15)]
)
def test_zero_points_out_of_range_are_refused(dtype: str, zero: int) -> None:
    with pytest.raises(OptionError, match=f"zero_point is {zero}, expected .* for {dtype}"):
        Parameters(dtype, 1.0, zero)


def test_an_unknown_schema_is_refused_by_name() -> None:
    with pytest.raises(OptionError, match="schema is 'other', expected one of asymmetric"):
        parameters(0, 1, "i8", "other")  # type: ignore[arg-type]


def test_symmetric_schemas_have_the_zero_point_in_the_middle() -> None:
    expected = [0, 0, 128, 128]
    schemas: tuple[Schema, ...] = ("symmetric", "symmetric_power2")
    actual = [parameters(-1, 2, t, s).zero_point for t in ("i8", "u8") for s in schemas]

    assert expected == actual


def test_symmetric_with_uint8_uses_all_steps_for_a_range_without_negatives() -> None:
    assert storage(0.0, "symmetric_uint8") == "u8"
    assert storage(-0.1, "symmetric_uint8") == "i8"
    assert parameters(0, 51, "u8", "symmetric_uint8") == Parameters("u8", float(np.float32(0.2)), 0)


@pytest.mark.parametrize("high", [0.3, 1.0, 127.0, 128.0, 5e9])
def test_scales_of_power_two_are_powers_of_two_that_hold_the_range(high: float) -> None:
    p = parameters(-high / 2, high, "i8", "symmetric_power2")

    assert np.log2(p.scale) == round(np.log2(p.scale))
    assert p.scale * 127 >= high > p.scale * 127 / 2


@pytest.mark.parametrize("dtype", ["i4", "i8", "i16"])
def test_weights_come_back_within_half_a_step(dtype: str) -> None:
    w = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    scales = SymmetricScale(dtype).reference(np.abs(w).max(1, keepdims=True))
    stored = steps(w, scales, dtype).astype(np.float64)

    assert np.abs(stored).max() == limits(dtype)[1]
    assert (np.abs(stored * scales - w) <= 0.5001 * scales).all()


def test_weights_of_zeros_have_scale_1_and_come_back_as_zeros() -> None:
    scales = SymmetricScale("i8").reference(np.float32([[0.0], [1e-44]]))

    assert scales.tolist() == [[1.0], [SMALLEST]]
    assert not steps(np.zeros((2, 3)), scales, "i8").any()


def test_weights_have_powers_of_two_for_scales_if_asked() -> None:
    largest = np.float32([127, 126.9, np.nextafter(np.float32(127), 128), 3e38, 1e-30])
    scales = SymmetricScale("i8", power2=True).reference(largest)
    exponents = np.log2(scales.astype(np.float64))

    assert (exponents == np.round(exponents)).all() and scales[:2].tolist() == [1, 1]
    assert (largest / scales < 127.5).all() and (largest / scales > 63).all()

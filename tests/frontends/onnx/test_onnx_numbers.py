"""Attributes are f32 and i64, whatever the operands are: what those do not hold is not cut off."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from alpenglow.base.errors import ModelError, TypeRuleError, UnsupportedError
from alpenglow.ir.types import DTYPES, INTS, NARROW_INTS, holds
from onnx_node import Array, check, ours, single

MICROSOFT = "com.microsoft"


def refusal(op: str, *inputs: Array | None, opset: int = 1, **attributes: Any) -> str:
    """Return what the error says with which a model of one node is refused."""
    model = single(op, inputs, opset, **attributes)
    with pytest.raises((UnsupportedError, TypeRuleError)) as caught:
        ours(model, inputs)
    return str(caught.value)


@pytest.mark.parametrize("dtype", sorted(INTS | NARROW_INTS))
def test_an_integer_type_holds_whole_numbers_between_its_ends(dtype: str) -> None:
    limits = ml_dtypes.iinfo(DTYPES[dtype])
    low, high = int(limits.min), int(limits.max)

    assert all(holds(dtype, n) for n in (low, low + 1, 0, 1.0, high - 1, high))
    assert not any(holds(dtype, n) for n in (low - 1, high + 1, 0.5, np.inf, -np.inf, np.nan))


IMAGE = np.ones((1, 2, 1, 1), np.int32)
BYTES = np.arange(3, dtype=np.uint8)


@pytest.mark.parametrize(
    ("op", "x", "attributes"),
    [
        ("Scale", IMAGE, {"scale": 0.5}),
        ("Affine", IMAGE, {"beta": 0.5}),
        ("ImageScaler", IMAGE, {"bias": [2.0, 0.5]}),
        ("Affine", IMAGE, {"beta": 3e9}),
        ("Affine", BYTES, {"beta": -1.0}),
        ("Scale", BYTES, {"scale": 256.0}),
    ],
)
def test_a_number_that_integers_do_not_hold_is_refused(
    op: str, x: Array, attributes: dict[str, Any]
) -> None:
    number = next(reversed(np.atleast_1d(*attributes.values()).tolist()))

    said = refusal(op, x, **attributes)

    assert f"is {number}, expected a value of" in said and f"(node {op} 'it'" in said


@pytest.mark.parametrize(("x", "value"), [(IMAGE, 0.5), (BYTES, -1.0), (BYTES > 1, 0.5)])
def test_a_pad_with_what_the_operand_does_not_hold_is_refused(x: Array, value: float) -> None:
    pads = [1] * (2 * x.ndim)
    wanted = f"value is {value}, expected a value of"

    assert wanted in refusal("Pad", x, opset=2, pads=pads, value=value)
    constant = np.asarray(value, np.float32)
    said = refusal("Pad", x, np.array(pads), constant, opset=13, constants=(1, 2))
    assert wanted in said


def test_a_bound_between_integers_is_refused() -> None:
    said = refusal("Clip", IMAGE, opset=6, min=0.5, max=3.0)

    assert "low is 0.5 and high 3.0, expected values of" in said


@pytest.mark.parametrize("value", [-1.0, 300.0, float("inf"), float("nan")])
def test_bytes_outside_of_an_image_are_bytes(value: float) -> None:
    image, roi = np.ones((1, 1, 2, 2), np.uint8), np.array([0, 0, -1, -1, 1, 1, 2, 2], np.float32)
    operands, outside = (image, roi, None, np.array([1, 1, 3, 3])), "tf_crop_and_resize"
    given: dict[str, Any] = {"constants": (1, 3), "coordinate_transformation_mode": outside}

    assert f"extrapolation is {value}, expected a value of u8" in refusal(
        "Resize", *operands, opset=13, extrapolation_value=value, **given
    )
    check("Resize", *operands, opset=13, extrapolation_value=255.0, **given)
    check("Resize", *operands, opset=13, extrapolation_value=1.7, **given)


def encoder(values: Array, **default: Any) -> onnx.ModelProto:
    """Return a model of one LabelEncoder of opset 4 of ai.onnx.ml."""
    keys = numpy_helper.from_array(np.arange(len(values)))
    model = single("LabelEncoder", [np.arange(3)], 13, domain="ai.onnx.ml", keys_tensor=keys,
                   values_tensor=numpy_helper.from_array(values), **default)  # fmt: skip
    model.opset_import.remove(helper.make_opsetid("ai.onnx.ml", 1))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 4))
    return model


def test_the_label_of_what_is_no_key_is_one_of_the_labels() -> None:
    labels = np.array([5, 6], np.int16)

    (y,) = ours(encoder(labels, default_int64=-7), [np.arange(3)])
    assert y.tolist() == [5, 6, -7]
    with pytest.raises(UnsupportedError, match="is 70000, expected a value of i16"):
        ours(encoder(labels, default_int64=70000), [np.arange(3)])
    for wrong in (np.array([7]), np.array([0.5], np.float32), np.array([7, 7], np.int16)):
        with pytest.raises(ModelError, match="expected one element of i16"):
            ours(encoder(labels, default_tensor=numpy_helper.from_array(wrong)), [np.arange(3)])


@pytest.mark.parametrize("number", [2**40, 2**32 + 1, -(2**31) - 1])
def test_an_index_that_no_target_can_be_ignores_nothing(number: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    check("NegativeLogLikelihoodLoss", x, np.array([0, 1], np.int32), opset=13, ignore_index=number)


# ── halves ──


def halves(*numbers: float) -> Array:
    return np.array(numbers, np.float16).reshape(1, -1)


LARGE, SMALL = halves(300, 2), halves(300, 0.5).T
FACTORS = [(0.125, LARGE, SMALL), (1e5, halves(1e-3, 0), SMALL), (1e-6, halves(6e4, 1), SMALL)]
"""Factors, and operands whose product half precision holds only after or before it is scaled."""


@pytest.mark.parametrize(("alpha", "x", "y"), FACTORS)
@pytest.mark.parametrize("constants", [(), (1,)])
def test_products_of_halves_are_scaled_before_they_are_rounded(
    alpha: float, x: Array, y: Array, constants: tuple[int, ...]
) -> None:
    bias = halves(1e-3)

    check("Gemm", x, y, alpha=alpha, constants=constants, rtol=2e-3)
    check("Gemm", x, y, bias, alpha=alpha, beta=1e5, constants=constants, rtol=2e-3)
    for op in ("FusedMatMul", "FusedGemm"):
        named = {"activation": "Relu"} if op == "FusedGemm" else {}
        check(op, x, y, alpha=alpha, constants=constants, rtol=2e-3, domain=MICROSOFT, **named)


def test_halves_are_multiplied_by_what_they_do_not_hold() -> None:
    x = halves(1e-3, -1e-3, 5e-4)

    check("ScaledSiLU", x, alpha=1e5, rtol=2e-3, domain=MICROSOFT)
    for op, attributes in (("Scale", {"scale": 1e5}), ("Affine", {"alpha": 1e8, "beta": -1e5}),
                           ("ScaledTanh", {"alpha": 2.0, "beta": 1e5})):  # fmt: skip
        (wide,) = ours(single(op, [x.astype(np.float32)], 1, **attributes), [x.astype(np.float32)])
        with np.errstate(over="ignore"):
            expected = wide.astype(np.float16)
        (y,) = ours(single(op, [x], 1, **attributes), [x])
        np.testing.assert_array_equal(y, expected)


def test_halves_beside_other_floats_are_still_refused() -> None:
    model = single("Gemm", [LARGE, SMALL.astype(np.float32)], 13, alpha=0.5)

    with pytest.raises(TypeRuleError, match="expected one dtype"):
        ours(model, [LARGE, SMALL.astype(np.float32)])

"""Elementwise ONNX operators, constants and ranges, against ONNX Runtime or onnx.reference."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ops.elementwise.activation import Gelu, Mish, Softplus
from alpenglow.ops.elementwise.arithmetic import Clip
from onnx_node import Array, check, ours, single

SHAPES = [(), (1,), (17,), (0, 3), (3, 5), (2, 1, 3, 1, 2)]
SPECIAL = np.array([0, -0.0, 1, -1, 0.5, -0.5, 20, -20, 100, -100, np.inf, -np.inf, np.nan], "f4")


def draw(shape: tuple[int, ...], dtype: str = "f4", scale: float = 2, shift: float = 0) -> Array:
    rng = np.random.default_rng(sum(shape) + len(shape))
    values = np.asarray(rng.standard_normal(shape) * scale + shift)
    return np.asarray(values > 0) if dtype == "?" else values.astype(dtype)


def reference(model: onnx.ModelProto, *inputs: Array) -> Array:
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    with np.errstate(all="ignore"):
        return np.asarray(ReferenceEvaluator(model).run(None, feeds)[0])


UNARY: dict[str, tuple[int, ...]] = {
    "Abs": (6, 13), "Acos": (7, 22), "Acosh": (9, 22), "Asin": (7, 22), "Asinh": (9, 22),
    "Atan": (7, 22), "Atanh": (9, 22), "Ceil": (6, 13), "Cos": (7, 22), "Cosh": (9, 22),
    "Erf": (9, 13), "Exp": (6, 13), "Floor": (6, 13), "HardSwish": (14, 22), "Log": (6, 13),
    "Mish": (18, 22), "Neg": (6, 13), "Reciprocal": (6, 13), "Relu": (6, 14), "Round": (11, 22),
    "Sigmoid": (6, 13), "Sign": (9, 13), "Sin": (7, 22), "Sinh": (9, 22), "Softplus": (1, 22),
    "Softsign": (1, 22), "Sqrt": (6, 13), "Tan": (7, 22), "Tanh": (6, 13), "Identity": (1, 16),
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
@pytest.mark.sampled(15)
def test_unary_operator_in_every_opset(op: str) -> None:
    for opset in UNARY[op]:
        opset = max(opset, 7)
        for shape in SHAPES:
            check(op, draw(shape, scale=0.6), opset=opset)
            check(op, draw(shape, shift=4), opset=opset)


@pytest.mark.parametrize("op", ["Mish", "Softplus", "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt",
                                "Acosh", "Atanh", "Sign", "Round", "Relu", "Abs"])  # fmt: skip
def test_unary_operator_on_the_edges(op: str) -> None:
    if op == "Mish":  # -inf * 0 is NaN there, the limit 0 in ONNX Runtime
        check(op, SPECIAL[:-3])
    else:
        check(op, SPECIAL)


@pytest.mark.parametrize("op", ["Exp", "Log", "Sin", "Acosh", "Tanh", "Sigmoid"])
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_unary_operator_rounds_other_floats_once(op: str, dtype: Any) -> None:
    x = np.abs(draw((3, 7), "f8", scale=0.8, shift=1)).astype(dtype)
    exact = reference(single(op, [x.astype("f8")], 13), x.astype("f8"))

    (actual,) = ours(single(op, [x], 22), [x])

    assert actual.dtype == dtype
    expected = exact.astype(np.float32).astype(dtype) if x.itemsize == 2 else exact
    np.testing.assert_allclose(actual.astype("f8"), expected.astype("f8"), rtol=1e-12)


TUNED: dict[str, list[dict[str, float]]] = {
    "LeakyRelu": [{}, {"alpha": 0.3}],
    "Elu": [{}, {"alpha": 2.0}],
    "Celu": [{}, {"alpha": 0.5}],
    "Selu": [{}, {"alpha": 2.0, "gamma": 3.0}],
    "HardSigmoid": [{}, {"alpha": 0.5, "beta": 0.25}],
    "ThresholdedRelu": [{}, {"alpha": 0.25}],
    "Shrink": [{}, {"lambd": 1.0, "bias": 0.5}],
}


@pytest.mark.parametrize("op", TUNED)
def test_activation_with_attributes(op: str) -> None:
    for attributes in TUNED[op]:
        for shape in SHAPES:
            check(op, draw(shape), opset=14, **attributes)


def test_shrink_of_integers() -> None:
    check("Shrink", np.arange(-5, 6, dtype=np.int32), opset=9, lambd=1.5, bias=1.0)
    check("Shrink", np.arange(0, 9, dtype=np.uint8), opset=9, lambd=2.0, bias=1.0)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(approximate: str) -> None:
    check("Gelu", SPECIAL[:-3], approximate=approximate)
    check("Gelu", draw((3, 5)), approximate=approximate)


def test_gelu_of_onnx_runtime() -> None:
    x, bias = draw((2, 3, 5)), draw((5,))
    check("Gelu", x, domain="com.microsoft")
    check("BiasGelu", x, bias, domain="com.microsoft")
    check("FastGelu", x, bias, domain="com.microsoft", atol=1e-5)
    check("QuickGelu", x, domain="com.microsoft", alpha=1.5)


def test_swish() -> None:
    x = draw((3, 5))
    model = single("Swish", [x], 24, alpha=1.5)

    np.testing.assert_allclose(ours(model, [x])[0], reference(model, x), rtol=1e-6)


def test_formulas_keep_small_numbers() -> None:
    x = np.array([-30, -80, 0, 30], np.float32)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(Softplus().reference(x), np.log1p(np.exp(wide)), rtol=1e-6)
        expected = wide * np.tanh(np.log1p(np.exp(wide)))
        np.testing.assert_allclose(Mish().reference(x), expected, rtol=1e-6)
        assert np.isnan(Gelu().reference(np.array([np.nan], np.float32)))


PAIRS = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((), (2, 3)), ((0, 3), (1, 3)),
         ((2, 1, 3), (4, 1))]  # fmt: skip
BINARY: dict[str, tuple[str, tuple[int, ...]]] = {
    "Add": ("f4 f8 i4 i8", (7, 14)), "Sub": ("f4 f8 i4 i8", (7, 14)),
    "Mul": ("f4 f8 i4 i8", (7, 14)), "Div": ("f4 f8", (7, 14)), "Pow": ("f4 f8", (7, 15)),
    "Equal": ("? i4 i8", (7, 11)), "Less": ("f4 f8", (7, 9)), "Greater": ("f4 f8", (7, 9)),
    "LessOrEqual": ("f4 f8 i4 i8", (12, 16)), "GreaterOrEqual": ("f4 f8 i4 i8", (12, 16)),
    "And": ("?", (7,)), "Or": ("?", (7,)), "Xor": ("?", (7,)),
    "BitwiseAnd": ("i1 u1 i4 u8", (18,)), "BitwiseOr": ("i2 u4 i8", (18,)),
    "BitwiseXor": ("u2 i4", (18,)),
}  # fmt: skip


@pytest.mark.parametrize("op", BINARY)
def test_binary_operator_broadcasts(op: str) -> None:
    dtypes, opsets = BINARY[op]
    for opset in opsets:
        for dtype in dtypes.split():
            for a, b in PAIRS:
                x = draw(a, dtype) if dtype[0] != "u" else draw(a, "f4", 9, 40).astype(dtype)
                y = draw(b, dtype) if dtype[0] != "u" else draw(b, "f4", 9, 40).astype(dtype)
                check(op, np.asarray(np.abs(x)) if op == "Pow" else x, y, opset=opset)


def test_equal_and_comparison_of_more_types() -> None:
    for op in ("Equal", "Less", "Greater"):
        for dtype in ("f4", "f8", "i1", "i2", "u1", "u2", "u4", "u8"):
            x = np.array([0, 1, 2, 100], dtype)
            check(op, x, x[::-1].copy(), opset=13 if op != "Equal" else 19)
    check("Equal", np.array([np.nan, 1, np.inf], "f4"), np.array([np.nan, 1, np.inf], "f4"))


def test_integer_division_and_remainders() -> None:
    x = np.array([7, -7, 7, -7, 0, 5], np.int32)
    y = np.array([3, 3, -3, -3, 2, 5], np.int32)
    check("Div", x, y, opset=14)
    check("Mod", x, y, opset=13)
    check("Mod", x, y, opset=13, fmod=1)
    for dtype in ("i1", "i8", "u1", "u4", "f4", "f8"):
        check("Mod", np.abs(x).astype(dtype), np.abs(y).astype(dtype), opset=13, fmod=1)
    check("Mod", x.astype("f4") + 0.25, y.astype("f4"), opset=13, fmod=1)


def test_legacy_broadcast_places_the_second_operand() -> None:
    x, y = draw((2, 3, 4)), draw((3,))
    for attributes, shaped in (({"broadcast": 1, "axis": 1}, y.reshape(3, 1)),
                               ({"broadcast": 1, "axis": -2}, y.reshape(3, 1))):  # fmt: skip
        (actual,) = ours(single("Add", [x, y], 6, **attributes), [x, y])

        np.testing.assert_array_equal(actual, x + shaped)
    tail = draw((3, 4))
    (actual,) = ours(single("Mul", [x, tail], 6, broadcast=1), [x, tail])

    np.testing.assert_array_equal(actual, x * tail)
    with pytest.raises(ModelError, match="axis is 3"):
        ours(single("Add", [x, y], 6, broadcast=1, axis=3), [x, y])
    with pytest.raises(TypeRuleError, match="expected equal"):
        ours(single("Add", [x, y], 6), [x, y])


@pytest.mark.parametrize("base", ["f4", "f8", "i4", "i8"])
@pytest.mark.parametrize("exponent", ["f4", "f8", "i4", "i8"])
def test_power_with_an_exponent_of_another_type(base: str, exponent: str) -> None:
    x = np.array([1, 2, 3, 4, 7], base)
    y = np.array([0, 1, 2, 5, 9], exponent)
    check("Pow", x, y, opset=15)
    check("Pow", x, np.array(2, exponent), opset=12)
    check("Pow", -x, np.array(3, exponent), opset=13)


def test_power_of_short_floats_is_rounded_once() -> None:
    x = np.array([1.5, 2.25, 3], np.float16)
    (actual,) = ours(single("Pow", [x, np.array(0.3, "f4")], 15), [x, np.array(0.3, "f4")])

    expected = np.power(x.astype("f4"), np.float32(0.3)).astype(np.float16)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("op", ["Min", "Max", "Sum", "Mean"])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_operator_on_any_number_of_tensors(op: str, count: int) -> None:
    shapes = [(2, 3), (3,), (2, 1), (), (1, 3)]
    check(op, *(draw((2, 3), shift=i) for i in range(count)), opset=8)
    check(op, *(draw(s) for s in shapes[:count]), opset=13)
    if op in ("Min", "Max"):
        check(op, *(draw(s, "i8", 50) for s in shapes[:count]), opset=13)


def test_minimum_propagates_nan() -> None:
    check("Min", SPECIAL, SPECIAL[::-1].copy(), opset=13)
    check("Max", SPECIAL, SPECIAL[::-1].copy(), opset=13)


def test_sum_of_short_floats_is_rounded_once() -> None:
    parts = [np.array([x], np.float16) for x in (2048, 1, 1)]

    assert ours(single("Sum", parts, 13), parts)[0] == 2050
    assert ours(single("Mean", parts, 13), parts)[0] == np.float16(2050 / 3)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_bit_shift(direction: str) -> None:
    for dtype in ("u1", "u4", "u8"):
        x = np.array([1, 200, 255, 16], dtype)
        check("BitShift", x, np.array([0, 1, 7, 3], dtype), opset=11, direction=direction)


def test_not() -> None:
    check("Not", draw((2, 3), "?"), opset=7)
    check("BitwiseNot", np.array([0, 1, -5], np.int16), opset=18)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_and_infinity_are_found(dtype: str) -> None:
    x = SPECIAL.astype(dtype)
    check("IsNaN", x, opset=20)
    for negative in (0, 1):
        for positive in (0, 1):
            check("IsInf", x, opset=20, detect_negative=negative, detect_positive=positive)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "i8", "u1", "?"])
def test_where_broadcasts_all_three(dtype: str) -> None:
    kind = "f4" if dtype == "?" else dtype
    x, y = draw((2, 1, 3), "f4", 9).astype(kind), draw((4, 1), "f4", 9).astype(kind)
    condition = draw((4, 3), "?")
    if dtype == "?":
        model = single("Where", [condition, x > 0, y > 0], 16)
        (actual,) = ours(model, [condition, x > 0, y > 0])
        np.testing.assert_array_equal(actual, np.where(condition, x > 0, y > 0))
    else:
        check("Where", condition, x, y, opset=9)
        check("Where", np.array(True), x, y, opset=16)


NUMPY_TYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@pytest.mark.parametrize("source", NUMPY_TYPES)
def test_cast_from_every_type_to_every_type(source: str) -> None:
    x = np.array([0, 1, 2.75, 100.5], "f8").astype(source)
    for target in NUMPY_TYPES:
        code = helper.np_dtype_to_tensor_dtype(np.dtype(target))
        check("Cast", x, opset=13, to=code)
        check("CastLike", x, np.zeros(2, target), opset=15)


def test_cast_of_bfloat16_and_negative_numbers() -> None:
    x = np.array([0, -1.5, 3.140625, -100.99, 1e-3], "f4")
    for code in (TensorProto.INT8, TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16):
        check("Cast", x, opset=9, to=code)
    short = x.astype(ml_dtypes.bfloat16)
    (actual,) = ours(single("Cast", [x], 13, to=TensorProto.BFLOAT16), [x])
    (back,) = ours(single("Cast", [short], 13, to=TensorProto.INT32), [short])

    np.testing.assert_array_equal(actual, short)
    np.testing.assert_array_equal(back, short.astype("f4").astype("i4"))


def test_cast_by_the_name_of_a_type() -> None:
    x = np.array([1.5, 2], "f4")

    assert ours(single("Cast", [x], 5, to="INT32"), [x])[0].tolist() == [1, 2]
    with pytest.raises(ModelError, match="to is 'NUMBER', expected an element type"):
        ours(single("Cast", [x], 5, to="NUMBER"), [x])


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i4", "i8", "u1", "u8"])
def test_clip_with_bounds_as_operands(dtype: str) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    low, high = np.array(3, dtype), np.array(8, dtype)
    for bounds in ((low, high), (low, None), (None, high), ()):
        inputs = [x, *bounds]
        constants = [i for i in (1, 2) if i < len(inputs) and inputs[i] is not None]
        check("Clip", *inputs, opset=13)
        check("Clip", *inputs, opset=12, constants=constants)
    check("Clip", x, high, low, opset=13)
    check("Clip", x, high, low, opset=13, constants=[1, 2])


def test_clip_with_bounds_as_attributes() -> None:
    for attributes in ({}, {"min": -0.5}, {"max": 0.5}, {"min": -0.25, "max": 1.5}):
        check("Clip", SPECIAL, opset=6, **attributes)


def test_clip_with_constant_bounds_is_one_operator() -> None:
    x = draw((3, 5))
    model = single("Clip", [x, np.float32(0), np.float32(6)], 13, constants=[1, 2])

    assert [n.op for n in load(model).nodes] == [Clip(0.0, 6.0)]


@pytest.mark.parametrize("slope", [(1,), (4, 1, 1), (5,), (3, 4, 1, 5), ()])
def test_prelu_broadcasts_the_slope(slope: tuple[int, ...]) -> None:
    check("PRelu", draw((3, 4, 2, 5)), draw(slope), opset=16)


def test_prelu_with_a_slope_a_channel() -> None:
    x, slope = draw((3, 4, 2, 5)), draw((4,))
    (actual,) = ours(single("PRelu", [x, slope], 6), [x, slope])

    expected = np.where(x < 0, x * slope.reshape(4, 1, 1), x)
    np.testing.assert_array_equal(actual, expected)
    with pytest.raises(TypeRuleError, match="expected a type that broadcasts"):
        ours(single("PRelu", [x, slope], 9), [x, slope])


@pytest.mark.parametrize("opset", [7, 10, 12, 22])
def test_dropout_keeps_everything(opset: int) -> None:
    x = draw((3, 5))
    check("Dropout", x, opset=opset)
    if opset >= 10:
        assert ours(single("Dropout", [x], opset, 2), [x])[1].all()
    if opset >= 12:
        check("Dropout", x, opset=opset, outputs=2)
        check("Dropout", x, np.float32(0.4), np.array(False), opset=opset, constants=[1, 2])


def test_constants() -> None:
    check("Constant", value=onnx.numpy_helper.from_array(draw((2, 3))))
    check("Constant", value_float=1.5)
    check("Constant", value_floats=[1.5, 2.5])
    check("Constant", value_int=7)
    check("Constant", value_ints=[1, 2, 3])
    with pytest.raises(ModelError, match="expected one"):
        load(single("Constant", [], 13, value_int=1, value_float=1.0))


def test_constant_of_shape() -> None:
    five = helper.make_tensor("value", TensorProto.INT32, [1], [5])
    for shape in ([2, 3], [0, 4], []):
        check("ConstantOfShape", np.array(shape, "i8"), constants=[0])
        check("ConstantOfShape", np.array(shape, "i8"), constants=[0], value=five)
    with pytest.raises(ModelError, match="-1"):
        load(single("ConstantOfShape", [np.array([-1])], 9, constants=[0]))


def test_constant_of_a_shape_that_is_an_operand() -> None:
    exe = ag.compile(single("ConstantOfShape", [np.array([1, 1])], 9))
    for shape in ([2, 3], [4, 1], [0, 5]):
        np.testing.assert_array_equal(exe(np.array(shape)), np.zeros(shape, np.float32))
    with pytest.raises(FeedError, match=r"is \(\w+\[0\]=2, \w+\[1\]=-1\), expected .*; the inputs"):
        exe(np.array([2, -1]))


@pytest.mark.parametrize("bounds", [(0, 5, 1), (3, 10, 2), (10, 0, -3), (5, 5, 1), (5, 0, 1)])
@pytest.mark.parametrize("dtype", ["i2", "i4", "i8", "f4", "f8"])
def test_range(bounds: tuple[int, int, int], dtype: str) -> None:
    check("Range", *(np.array(b, dtype) for b in bounds), opset=11, constants=[0, 1, 2])


def test_range_of_fractions() -> None:
    bounds = [np.array(b, np.float32) for b in (-1, 1, 0.3)]
    check("Range", *bounds, opset=11, constants=[0, 1, 2])
    with pytest.raises(ModelError, match="delta is 0"):
        load(single("Range", [bounds[0], bounds[1], np.float32(0)], 11, constants=[0, 1, 2]))
    exe = ag.compile(single("Range", bounds, 11))
    for first, last, delta in ((-1, 1, 0.3), (0, 1, 0.25), (1, 0, -0.1)):
        found = [np.float32(n) for n in (first, last, delta)]
        np.testing.assert_allclose(exe(*found), reference(single("Range", found, 11), *found), 1e-5)


@pytest.mark.parametrize("k", [-2, 0, 1, 9])
def test_eye_like(k: int) -> None:
    for shape in ((3, 4), (4, 2), (0, 3)):
        check("EyeLike", draw(shape), opset=9, k=k)
        check("EyeLike", draw(shape), opset=22, k=k, dtype=TensorProto.INT64)


def test_shape_and_size() -> None:
    for shape in SHAPES:
        check("Shape", draw(shape), opset=13)
        check("Size", draw(shape), opset=13)
    for start, end in ((1, 3), (-2, -1), (0, 9), (-9, 2), (3, 1)):
        check("Shape", draw((2, 3, 4, 5)), opset=15, start=start, end=end)


def test_open_extents_reach_ranges_and_filled_tensors() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1),
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
        helper.make_node("Range", ["zero", "n", "two"], ["steps"]),
        helper.make_node("Range", ["n", "more", "one"], ["later"]),
        helper.make_node("Add", ["n", "five"], ["more"]),
    ]
    constants = [helper.make_tensor(name, TensorProto.INT64, [], [value])
                 for name, value in (("zero", 0), ("one", 1), ("two", 2), ("five", 5))]  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["A", "B"])
    outs = [helper.make_empty_tensor_value_info(n) for n in ("zeros", "steps", "later", "n")]
    graph = helper.make_graph(nodes, "g", [x], outs, constants)
    g = load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)]))

    found = evaluate(g.bind({"A": 2, "B": 3}), {"x": draw((2, 3))})

    assert [str(v.type) for v in g.outputs.values()] == [
        "f32[B]", "i64[((A*B+1)//2)]", "i64[5]", "i64[]",
    ]  # fmt: skip
    assert found["zeros"].tolist() == [0, 0, 0]
    assert found["steps"].tolist() == [0, 2, 4]
    assert found["later"].tolist() == [6, 7, 8, 9, 10]
    assert found["n"] == 6


@pytest.mark.parametrize(
    ("op", "inputs", "opset", "attributes", "error"),
    [
        ("BitShift", [np.ones(2, "u1")] * 2, 11, {"direction": "UP"}, ModelError),
        ("BitShift", [np.ones(2, "u1")] * 2, 11, {}, ModelError),
        ("Gelu", [np.ones(2, "f4")], 20, {"approximate": "erf"}, ModelError),
        ("Celu", [np.ones(2, "f4")], 12, {"alpha": 0.0}, TypeRuleError),
        ("Cast", [np.ones(2, "f4")], 13, {}, ModelError),
        ("Cast", [np.ones(2, "f4")], 13, {"to": 99}, ModelError),
        ("Clip", [np.ones(2, "f4"), np.array(1, "f8")], 13, {}, ModelError),
        ("Clip", [np.ones(2, "f4"), np.ones(2, "f4")], 13, {}, ModelError),
        ("Add", [np.ones(2, "f4"), np.ones(3, "f4")], 13, {}, ModelError),
        ("Add", [np.ones(2, "f4"), np.ones(2, "i4")], 13, {}, TypeRuleError),
        ("Add", [np.ones(2, "f4")], 13, {}, ModelError),
        ("Where", [np.ones(2, "f4")] * 3, 13, {}, TypeRuleError),
        ("And", [np.ones(2, "f4")] * 2, 7, {}, TypeRuleError),
        ("Max", [], 13, {}, ModelError),
        ("EyeLike", [np.ones(2, "f4")], 9, {}, ModelError),
    ],
)
def test_what_breaks_the_rules_is_refused(
    op: str, inputs: list[Array], opset: int, attributes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"node \w+ 'it'"):
        load(single(op, inputs, opset, **attributes))

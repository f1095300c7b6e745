"""The reader of MLIR's text: forms of operations, constants, and what it says of mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.stablehlo.loading import load
from alpenglow.frontends.stablehlo.module import (
    ConvDims,
    DotDims,
    Operation,
    Quantized,
    Tensor,
    every,
)
from alpenglow.frontends.stablehlo.text.text import read_text
from alpenglow.ir.types import Array


def one(line: str, arguments: str = "%a: tensor<2x3xf32>, %b: tensor<2x3xf32>") -> Operation:
    """Return the first operation of a function."""
    module = read_text(f"func.func @main({arguments}) {{\n  {line}\n  return\n}}")
    return module.functions["main"].body.operations[0]


def constant(text: str, t: str) -> Array:
    value = one(f"%0 = stablehlo.constant dense<{text}> : tensor<{t}>").attributes["value"]
    assert isinstance(value, np.ndarray)
    return value


def test_an_operation_has_one_type_for_all() -> None:
    o = one("%0 = stablehlo.add %a, %b : tensor<2x3xf32>")

    assert (o.name, o.operands, o.results) == ("stablehlo.add", ("a", "b"), ("0",))
    assert o.types == (Tensor("f32", (2, 3)),)
    assert o.place == "line 2"


def test_the_generic_form_and_a_form_of_its_own_say_the_same() -> None:
    own = one("%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>")
    generic = one(
        '%0 = "stablehlo.transpose"(%a) <{permutation = array<i64: 1, 0>}> : '
        "(tensor<2x3xf32>) -> tensor<3x2xf32>"
    )

    assert (own.name, own.types) == (generic.name, generic.types)
    assert own.attributes == generic.attributes == {"permutation": (1, 0)}


def test_axes_of_products_and_convolutions_are_read() -> None:
    dot = one(
        "%0 = stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [1] x [1]"
        ", precision = [DEFAULT, HIGH] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2xf32>"
    )
    conv = one(
        "%0 = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, f]x[0, i, o]->[b, f, 0], "
        "window = {stride = [2], pad = [[1, 0]]} {feature_group_count = 1 : i64} : "
        "(tensor<2x3x1xf32>, tensor<2x1x3xf32>) -> tensor<2x3x1xf32>",
        "%a: tensor<2x3x1xf32>, %b: tensor<2x1x3xf32>",
    )

    assert dot.attributes["dot_dimension_numbers"] == DotDims((0,), (0,), (1,), (1,))
    assert dot.attributes["precision_config"] == ("DEFAULT", "HIGH")
    assert conv.attributes["dimension_numbers"] == ConvDims((0, 2, 1), (2, 1, 0), (0, 1, 2))
    assert conv.attributes["window_strides"] == (2,)
    assert conv.attributes["padding"].tolist() == [[1, 0]]


def test_regions_may_use_names_again_that_others_use() -> None:
    body = "{\n ^bb0(%x: tensor<f32>):\n stablehlo.return %x : tensor<f32>\n }"
    o = one(f'"stablehlo.test"() ({body}, {body}) : () -> ()')

    names = [region.arguments[0][0] for region in o.regions]
    assert len(set(names)) == 2
    assert [region.results for region in o.regions] == [(name,) for name in names]


def test_a_reduction_may_name_its_operation() -> None:
    o = one(
        "%0 = stablehlo.reduce(%a init: %c) applies stablehlo.maximum across dimensions = [0] : "
        "(tensor<2x3xf32>, tensor<f32>) -> tensor<3xf32>",
        "%a: tensor<2x3xf32>, %c: tensor<f32>",
    )

    assert [inner.name for inner in every(o.regions[0])] == [
        "stablehlo.maximum",
        "stablehlo.return",
    ]


@pytest.mark.parametrize(
    ("text", "t", "elements"),
    [
        ("[1, -2]", "2xi8", [1, -2]),
        ("255", "2xui8", [255, 255]),
        ("[[1.5, 0x7F800000]]", "1x2xf32", [[1.5, np.inf]]),
        ('"0x0000803F000000C0"', "2xf32", [1.0, -2.0]),
        ("[true, false]", "2xi1", [True, False]),
        ("(1.0, -2.0)", "complex<f32>", 1 - 2j),
        ("", "0x3xf32", np.zeros((0, 3)).tolist()),
        ('"0x05"', "3xi1", [True, False, True]),
    ],
)
def test_constants_are_read(text: str, t: str, elements: object) -> None:
    assert constant(text, t).tolist() == elements


def test_a_constant_of_one_element_takes_the_memory_of_one() -> None:
    assert constant("0.0", "1000000x1000xf32").strides == (0, 0)


def test_quantised_types_are_read() -> None:
    o = one(
        "%0 = stablehlo.uniform_quantize %a : (tensor<2x3xf32>) -> "
        "tensor<2x3x!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25:3, 1.0}>>"
    )

    kind = Quantized("i8", "f32", (0.5, 0.25, 1.0), (0, 3, 0), 1, -127, 127)
    assert o.types == (Tensor(kind, (2, 3)),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%0 = stablehlo.constant dense<300> : tensor<i8>", "is 300, expected -128 to 255"),
        ("%0 = stablehlo.constant dense<[1, 2, 3]> : tensor<2xi32>", r"\(3,\), expected \(2,\)"),
        ('%0 = stablehlo.constant dense<"0x0102"> : tensor<3xi8>', "2 bytes, expected 3"),
        ("%0 = stablehlo.constant dense<[[1], [2, 3]]> : tensor<2x2xi32>", "lists of numbers"),
        ("%0 = stablehlo.add %a, %c : tensor<2x3xf32>", "%c is undefined, expected"),
        ("%a = stablehlo.add %a, %b : tensor<2x3xf32>", "%a is defined twice"),
        ("%0 = tosa.add %a, %b : tensor<2x3xf32>", "dialect of 'tosa.add' is not supported"),
        ('%0 = "stablehlo.add"(%a, %b', r"found '.*', expected '\,'"),
        ('%0 = stablehlo.composite "x', "expected a token of MLIR"),
        ("%0 = stablehlo.abs %a : tensor<2x3xf33>", "found 'f33', expected an element type"),
        ("%0:2 = stablehlo.abs %a : tensor<2x3xf32>", "has 2 names for results, expected 1"),
        ("%0 = stablehlo.iota size = 2 : tensor<2xi32>", "has an attribute 'size', expected dim"),
    ],
)
def test_a_mistake_is_told_with_its_line(line: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"line [23].*{message}"):
        one(line)


@pytest.mark.parametrize("deep", ["tuple<" * 5000, "[" * 5000, "{a = " * 5000])
def test_what_is_nested_too_deep_is_an_error(deep: str) -> None:
    with pytest.raises(ModelError, match="nested 65 deep, expected at most 64"):
        one(f'"stablehlo.test"() {{x = {deep}')


def test_regions_that_are_nested_too_deep_are_an_error() -> None:
    with pytest.raises(ModelError, match="nested 65 deep, expected at most 64"):
        one('"stablehlo.test"() ({' * 1000)


def test_elements_that_no_array_holds_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="dtype f8E3M4 is not supported"):
        constant("1.0", "2xf8E3M4")


def test_a_resource_stands_at_the_end() -> None:
    module = read_text(
        "func.func @main() {\n"
        "  %0 = stablehlo.constant dense_resource<w> : tensor<2xf32>\n  return\n}\n"
        '{-# dialect_resources: { builtin: { w: "0x040000000000803F000000C0" } } #-}'
    )

    value = module.functions["main"].body.operations[0].attributes["value"]
    assert value.tolist() == [1.0, -2.0]


@pytest.mark.parametrize(
    "places, names",
    [
        (('loc("x")', "loc(#loc1)"), ["x", "params.w.0"]),  # which is told behind the module
        (('loc("x")', 'loc("x")'), ["arg0", "arg1"]),
        (('loc("x")', 'loc("f.py":3:4)'), ["x", "arg1"]),
        (("", ""), ["arg0", "arg1"]),
    ],
)
def test_inputs_are_called_as_locations_say(places: tuple[str, str], names: list[str]) -> None:
    first, second = places
    graph = load(f"""module @jit_f {{
      func.func @main(%arg0: tensor<2xf32> {first},
                      %arg1: tensor<2xf32> {second}) -> tensor<2xf32> {{
        %0 = stablehlo.add %arg0, %arg1 : tensor<2xf32> loc("add")
        return %0 : tensor<2xf32>
      }} loc(#loc)
    }}
    #loc = loc(unknown)
    #loc1 = loc("params['w'][0]")
    """.encode())  # fmt: skip

    assert (graph.name, list(graph.inputs)) == ("jit_f", names)

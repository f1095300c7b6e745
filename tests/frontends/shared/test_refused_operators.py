"""All operators of a model that cannot be converted are listed in one error."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from tests.frontends.tflite.flat import CODES, file_of, tensor

import alpenglow as ag
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.frontends import refusals
from alpenglow.frontends.refusals import MOST_LISTED, unknown
from alpenglow.ir.staged import StagedModel


def onnx_of(nodes: str, declared: str = "", signature: str = "(int32[2,2] x) => (int32[2,2] y)",
            ) -> onnx.ModelProto:  # fmt: skip
    """Return a model of nodes as text, whose values have the types that `declared` lists."""
    opsets = '<ir_version: 8, opset_import: ["" : 13, "wock" : 1]>'
    between = f"<{declared}>" if declared else ""
    return onnx.parser.parse_model(f"{opsets} g {signature} {between} {{{nodes}}}")


def tflite_of(operators: list[tuple[str, list[int], list[int]]], *types: str) -> bytes:
    """Return a model of operators on numbered tensors; the first is the input, the last is made."""
    kinds = list(dict.fromkeys(kind for kind, *_ in operators))
    codes: list[dict[str, Any]] = [
        {"builtin_code": CODES[k]} if k in CODES else {"builtin_code": 32, "custom_code": k}
        for k in kinds
    ]
    listed = [{"opcode_index": kinds.index(k), "inputs": i, "outputs": o} for k, i, o in operators]
    tensors = [tensor(f"t{i}", t) for i, t in enumerate(types)]
    subgraph = {"tensors": tensors, "inputs": [0], "outputs": [len(types) - 1],
                "operators": listed, "name": "main"}  # fmt: skip
    return file_of(
        {"version": 3, "operator_codes": codes, "subgraphs": [subgraph], "buffers": [{}]}
    )


def stablehlo_of(lines: str) -> bytes:
    """Return a program on complex numbers, in whose text `c` is their type."""
    text = f"""
    func.func @main(%x: c, %p: tensor<i1>) -> c {{
      {lines}
    }}"""
    return text.replace(": c", ": tensor<2xcomplex<f32>>").replace(
        "-> c", "-> tensor<2xcomplex<f32>>"
    ).replace("(c", "(tensor<2xcomplex<f32>>").encode()  # fmt: skip


def refused(model: object) -> str:
    """Return the message of the error that loading a model raises."""
    with pytest.raises(UnsupportedError) as caught:
        ag.load(model)
    assert caught.value.file == "model"
    return caught.value.message


# ── several refusals ──


def test_onnx_nodes_behind_refused_ones_are_listed_too() -> None:
    model = onnx_of(
        """a = Frobnicate(x)
           b = Gemm <alpha = 0.5> (a, x)
           c = Frobnicate(b)
           d = wock.Jabber(c)
           y = Gemm <alpha = 0.5> (b, b)""",
        "int32[2,2] a, int32[2,2] b, int32[2,2] c",
    )

    assert refused(model) == (
        "3 operators cannot be converted: "
        "Frobnicate (2 nodes at 'a', 'c'): there is no converter; "
        "wock:Jabber (1 node at 'd'): there is no converter; "
        "Gemm (2 nodes at 'b', 'y'): an attribute is 0.5, expected a value of i32"
    )


def test_tflite_operators_are_listed_by_number_and_subgraph() -> None:
    model = tflite_of(
        [("Mine", [0], [1]), ("CAST", [1], [2]), ("ABS", [1], [3]), ("Mine", [3], [4])],
        "f32[3]", "f32[3]", "string[3]", "f32[3]", "f32[3]",
    )  # fmt: skip

    assert refused(model) == (
        "2 operators cannot be converted: "
        "custom Mine (2 nodes at operator 0 of subgraph 'main', operator 3 of subgraph 'main'): "
        "there is no converter; "
        "CAST (1 node at operator 1 of subgraph 'main'): result dtype string is not supported; "
        "supported: bool, integer, float and complex dtypes"
    )


def test_stablehlo_operations_are_listed_by_line() -> None:
    program = stablehlo_of("""%0 = "chlo.mystery"(%x) : (c) -> c
      %1 = stablehlo.remainder %0, %x : c
      %2 = "chlo.mystery"(%1) : (c) -> c
      %3 = stablehlo.cbrt %2 : c
      return %3 : c""")

    assert refused(program) == (
        "3 operators cannot be converted: "
        "chlo.mystery (2 nodes at line 3, line 5): there is no converter; "
        "stablehlo.remainder (1 node at line 4): dtype c64 is not supported; "
        "supported: integers and floats; "
        "stablehlo.cbrt (1 node at line 6): dtype c64 is not supported; supported: floats"
    )


def test_a_single_refusal_of_a_converter_is_raised_as_it_is() -> None:
    with pytest.raises(UnsupportedError) as caught:
        ag.load(onnx_of("y = Gemm <alpha = 0.5> (x, x)"))

    why = "an attribute is 0.5, expected a value of i32"
    assert str(caught.value) == f"{why}   (node Gemm 'y', model)"


def test_what_is_behind_a_value_of_unknown_type_is_not_looked_at() -> None:
    model = onnx_of("""a = Frobnicate(x)
                       b = Gemm <alpha = 0.5> (a, x)
                       y = Gemm <alpha = 0.5> (x, x)""")

    text = refused(model)

    assert "Gemm (1 node at 'y'): an attribute is 0.5, expected" in text and "'b'" not in text


def test_a_wrong_declaration_behind_a_refusal_is_not_blamed() -> None:
    nodes = "a = Frobnicate(x) b = MatMul(a, x) y = Neg(b)"

    text = refused(onnx_of(nodes, "int32[2,3] a"))

    assert text == (
        "1 operator cannot be converted: Frobnicate (1 node at 'a'): there is no converter"
    )


def test_damage_elsewhere_is_raised_at_once() -> None:
    nodes = "a = Frobnicate(x) b = MatMul(x, w) y = Neg(b)"
    model = onnx_of(nodes, signature="(int32[2,2] x, int32[3,3] w) => (int32[2,2] y)")

    with pytest.raises(TypeRuleError, match="mat_mul: operands are"):
        ag.load(model)


def test_long_lists_end_with_a_count() -> None:
    kinds = [unknown(f"Op{i}", "'a'") for i in range(MOST_LISTED + 2)]

    text = str(refusals.refused(kinds))

    assert text.startswith("12 operators cannot be converted: Op0 (1 node at 'a')")
    assert text.endswith(f"; and 2 more\n  try: {refusals.ELSEWHERE}")


def test_a_shape_that_a_refused_node_makes_is_waited_for() -> None:
    nodes = """s = Frobnicate(x)
               b = Reshape(x, s)
               y = Gemm <alpha = 0.5> (b, b)"""
    model = onnx_of(nodes, "int64[2] s")

    text = refused(model)

    assert text == (
        "1 operator cannot be converted: Frobnicate (1 node at 's'): there is no converter"
    )


# ── branches ──

IF = """y = If (c) <
    then_branch = t () => (int32[2,2] a) {{ a = {taken} }},
    else_branch = e () => (int32[2,2] b) {{ b = Neg(x) }}>"""


@pytest.mark.parametrize(
    "taken", ["Gemm <alpha = 0.5> (x, x)", "Neg(x)"], ids=["refused", "valid"]
)
def test_a_refusal_in_a_short_branch_leaves_the_choice_to_the_call(taken: str) -> None:
    model = onnx_of(IF.format(taken=taken),
                    signature="(bool c, int32[2,2] x) => (int32[2,2] y)")  # fmt: skip
    valid = taken == "Neg(x)"
    loaded = ag.load(model)
    x = np.arange(4, dtype=np.int32).reshape(2, 2)
    exe = ag.compile(model, target="interpreter")

    assert isinstance(loaded, ag.Graph if valid else StagedModel)
    assert exe(np.array(False), x).tolist() == (-x).tolist()
    if not valid:
        with pytest.raises(UnsupportedError, match=r"is 0\.5, expected a value of i32"):
            exe(np.array(True), x)


def test_a_refusal_beside_a_branch_that_is_refused_is_the_only_one() -> None:
    text = IF.format(taken="Gemm <alpha = 0.5> (x, x)") + " z = Gemm <alpha = 0.25> (x, x)"
    model = onnx_of(text, signature="(bool c, int32[2,2] x) => (int32[2,2] y, int32[2,2] z)")

    assert refused(model) == "an attribute is 0.25, expected a value of i32"


def test_a_short_branch_of_stablehlo_that_is_refused_is_taken_by_the_call() -> None:
    program = stablehlo_of("""%0 = "stablehlo.if"(%p) ({
        %1 = stablehlo.remainder %x, %x : c
        stablehlo.return %1 : c
      }, {
        %2 = stablehlo.add %x, %x : c
        stablehlo.return %2 : c
      }) : (tensor<i1>) -> c
      return %0 : c""")
    exe = ag.compile(program, target="interpreter")
    x = np.array([1 + 2j, 3], np.complex64)

    assert isinstance(ag.load(program), StagedModel)
    assert exe(x, np.array(False)).tolist() == [2 + 4j, 6]
    with pytest.raises(UnsupportedError, match="dtype c64 is not supported"):
        exe(x, np.array(True))

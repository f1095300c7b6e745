"""Programs of StableHLO from text to results: what the suites do not ask."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError, ModelError, TypeRuleError, UnsupportedError
from alpenglow.frontends.stablehlo.front_end import StablehloFrontEnd
from alpenglow.frontends.stablehlo.loading import load
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array
from alpenglow.ops.control.branch import If

ADD = """
func.func @main(%x: tensor<3xf32>, %y: tensor<3xf32>) -> tensor<3xf32> {
  %0 = stablehlo.add %x, %y : tensor<3xf32>
  return %0 : tensor<3xf32>
}
"""


def run(text: str, **feeds: Any) -> list[Array]:
    """Return what a program makes of arrays, compiled."""
    return list(ag.compile(load(text.encode())).run(feeds).values())


def test_inputs_have_the_names_of_arguments() -> None:
    graph = load(ADD.encode())

    assert isinstance(graph, Graph)
    assert list(graph.inputs) == ["x", "y"]
    assert list(graph.outputs) == ["result"]


def test_programs_are_known_by_their_structure(tmp_path: Path) -> None:
    front_end = StablehloFrontEnd()
    file = tmp_path / "program"
    file.write_text(ADD)

    assert front_end.accepts(ADD.encode())
    assert front_end.accepts(b"// RUN: x\n\nmodule @m {\n" + ADD.encode() + b"}")
    assert front_end.accepts(file)
    assert front_end.accepts(b"ML\xefR\x0d")
    for other in (b"", b"\x08\x07", b"module", b"\x00\x00\x00\x00TFL3", b"PK\x03\x04", ADD, 3):
        assert not front_end.accepts(other)


def test_what_is_missing_is_told_all_at_once() -> None:
    text = """
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = call @inner(%x) : (tensor<3xf32>) -> tensor<3xf32>
      %1 = stablehlo.custom_call @lapack(%0) : (tensor<3xf32>) -> tensor<3xf32>
      %2 = stablehlo.custom_call @lapack(%1) : (tensor<3xf32>) -> tensor<3xf32>
      return %2 : tensor<3xf32>
    }
    func.func private @inner(%x: tensor<3xf32>) -> tensor<3xf32> {
      %0 = "stablehlo.all_reduce"(%x) : (tensor<3xf32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    """
    wanted = r"custom call 'lapack' \(2 nodes at line 4, line 5\): .*; stablehlo\.all_reduce"
    with pytest.raises(UnsupportedError, match=wanted):
        load(text.encode())


def test_a_function_that_calls_itself_is_an_error() -> None:
    text = ADD.replace("stablehlo.add %x, %y : t", "call @main(%x, %y) : (t, t) -> t")
    text = text.replace("(t, t) -> tensor", "(tensor<3xf32>, tensor<3xf32>) -> tensor")
    with pytest.raises(ModelError, match="'main' calls itself"):
        load(text.encode())


def test_functions_that_call_two_of_the_next_end_in_an_error() -> None:
    body = """
    func.func private @f{i}(%x: tensor<f32>) -> tensor<f32> {{
      %0 = call @f{j}(%x) : (tensor<f32>) -> tensor<f32>
      %1 = call @f{j}(%0) : (tensor<f32>) -> tensor<f32>
      return %1 : tensor<f32>
    }}"""
    last = "func.func private @f60(%x: tensor<f32>) -> tensor<f32> {\n return %x : tensor<f32>\n}"
    text = "".join(body.format(i=i, j=i + 1) for i in range(60)) + last
    text = text.replace("private @f0(", "public @main(")

    begin = time.monotonic()
    with pytest.raises(UnsupportedError, match="expands to at least"):
        load(text.encode())
    assert time.monotonic() - begin < 5


def test_a_result_is_held_to_its_declared_type() -> None:
    text = ADD.replace("%0 = stablehlo.add %x, %y : tensor<3xf32>",
                       '%0 = "stablehlo.add"(%x, %y) : (tensor<3xf32>, tensor<3xf32>) -> '
                       "tensor<4xf32>")  # fmt: skip
    with pytest.raises(TypeRuleError, match=r"declared as f32\[4\], expected f32\[3\].*line 3"):
        load(text.encode())


def test_what_is_written_out_of_range_is_left_out_and_what_is_read_is_moved_inside() -> None:
    scatter = """
    func.func @main(%x: tensor<4xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<4xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<4xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<4xf32>
      return %0 : tensor<4xf32>
    }
    """
    gather = """
    func.func @main(%x: tensor<4xf32>, %i: tensor<3x1xi32>) -> tensor<3xf32> {
      %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1>}> : (tensor<4xf32>, tensor<3x1xi32>) -> tensor<3xf32>
      return %0 : tensor<3xf32>
    }
    """
    x, i = np.arange(4, dtype=np.float32), np.array([[-1], [2], [9]], np.int32)

    (written,) = run(scatter, x=x, i=i, u=np.ones(3, np.float32))
    (read,) = run(gather, x=x, i=i)

    assert written.tolist() == [0, 1, 3, 3]
    assert read.tolist() == [0, 2, 3]


def test_updates_of_one_place_come_together_by_any_body_in_order() -> None:
    text = """
    func.func @main(%x: tensor<2xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.subtract %b, %a : tensor<f32>
        stablehlo.return %s : tensor<f32>
      }) : (tensor<2xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }
    """
    feeds = {"x": np.array([10, 1], np.float32), "i": np.array([[0], [0], [1]], np.int32)}

    (y,) = run(text, **feeds, u=np.array([1, 2, 3], np.float32))

    assert y.tolist() == [2 - (1 - 10), 3 - 1]


INTEGERS = """
func.func @main(%x: tensor<5xi32>, %y: tensor<5xi32>) -> (tensor<5xi32>, tensor<5xi32>,
    tensor<5xi32>, tensor<5xi32>, tensor<5xi32>) {
  %0 = stablehlo.divide %x, %y : tensor<5xi32>
  %1 = stablehlo.remainder %x, %y : tensor<5xi32>
  %2 = stablehlo.shift_left %x, %y : tensor<5xi32>
  %3 = stablehlo.shift_right_logical %x, %y : tensor<5xi32>
  %4 = stablehlo.shift_right_arithmetic %x, %y : tensor<5xi32>
  return %0, %1, %2, %3, %4 : tensor<5xi32>, tensor<5xi32>, tensor<5xi32>, tensor<5xi32>,
    tensor<5xi32>
}
"""


def test_integers_at_their_limits() -> None:
    least = np.iinfo(np.int32).min
    x, y = np.array([7, -7, least, 5, -8], np.int32), np.array([0, 2, -1, 40, 1], np.int32)

    divided, rest, left, logical, arithmetic = (v.tolist() for v in run(INTEGERS, x=x, y=y))

    assert divided == [-1, -3, least, 0, -8]
    assert rest == [7, -1, 0, 5, 0]
    assert left == [7, -28, 0, 0, -16]
    assert logical == [7, (2**32 - 7) >> 2, 0, 0, (2**32 - 8) >> 1]
    assert arithmetic == [7, -2, -1, 0, -4]


def test_floats_at_their_limits() -> None:
    text = """
    func.func @main(%x: tensor<5xf32>) -> (tensor<5xi8>, tensor<5xf32>, tensor<5xf32>,
        tensor<5xi1>) {
      %0 = stablehlo.convert %x : (tensor<5xf32>) -> tensor<5xi8>
      %1 = stablehlo.round_nearest_even %x : tensor<5xf32>
      %2 = stablehlo.round_nearest_afz %x : tensor<5xf32>
      %z = stablehlo.constant dense<0.0> : tensor<5xf32>
      %3 = stablehlo.compare LT, %x, %z, TOTALORDER : (tensor<5xf32>, tensor<5xf32>) -> tensor<5xi1>
      return %0, %1, %2, %3 : tensor<5xi8>, tensor<5xf32>, tensor<5xf32>, tensor<5xi1>
    }
    """
    x = np.array([np.nan, 300, -300, 2.5, -0.0], np.float32)

    whole, even, away, below = run(text, x=x)

    assert whole.tolist() == [0, 127, -128, 2, 0]
    assert even[1:].tolist() == [300, -300, 2, 0]
    assert away[1:].tolist() == [300, -300, 3, 0]
    assert below.tolist() == [False, False, True, False, True]
    assert np.signbit(even[4]) and np.signbit(away[4])


CHOICE = """
func.func @main(%p: tensor<i1>, %x: tensor<3xf32>) -> tensor<3xf32> {{
  %0 = "stablehlo.if"(%p) ({{
    %1 = stablehlo.negate %x : tensor<3xf32>
    stablehlo.return %1 : tensor<3xf32>
  }}, {{
    {loop}
    stablehlo.return %2 : tensor<3xf32>
  }}) : (tensor<i1>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}}
"""


def test_short_branches_are_both_computed_and_of_long_ones_one_runs() -> None:
    short = CHOICE.format(loop="%2 = stablehlo.add %x, %x : tensor<3xf32>")
    long = CHOICE.format(
        loop="""
    %2 = stablehlo.while(%c = %x) : tensor<3xf32> cond {
      %n = stablehlo.constant dense<false> : tensor<i1>
      stablehlo.return %n : tensor<i1>
    } do {
      stablehlo.return %c : tensor<3xf32>
    }"""
    )
    x = np.arange(3, dtype=np.float32)

    kinds = []
    for text in (short, long):
        g = load(text.encode())
        assert isinstance(g, Graph)
        kinds.append([type(n.op) for n in g.nodes])
    assert If not in kinds[0] and If in kinds[1]
    for text, otherwise in ((short, x + x), (long, x)):
        assert run(text, p=np.array(True), x=x)[0].tolist() == (-x).tolist()
        assert run(text, p=np.array(False), x=x)[0].tolist() == otherwise.tolist()


def test_a_loop_reads_what_stands_outside() -> None:
    text = """
    func.func @main(%x: tensor<f32>, %most: tensor<f32>) -> (tensor<f32>, tensor<i32>) {
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %0:2 = stablehlo.while(%a = %x, %n = %zero) : tensor<f32>, tensor<i32> cond {
        %p = stablehlo.compare LT, %a, %most : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %one = stablehlo.constant dense<1> : tensor<i32>
        %b = stablehlo.add %a, %x : tensor<f32>
        %m = stablehlo.add %n, %one : tensor<i32>
        stablehlo.return %b, %m : tensor<f32>, tensor<i32>
      }
      return %0#0, %0#1 : tensor<f32>, tensor<i32>
    }
    """
    assert run(text, x=np.float32(2), most=np.float32(9)) == [10, 4]
    assert run(text, x=np.float32(2), most=np.float32(1)) == [2, 0]


def test_open_extents_are_symbols() -> None:
    text = """
    func.func @main(%x: tensor<?x2xf32>) -> tensor<?xf32> {
      %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x2xf32>) -> tensor<i32>
      %two = stablehlo.constant dense<2> : tensor<i32>
      %m = stablehlo.multiply %n, %two : tensor<i32>
      %s = stablehlo.reshape %m : (tensor<i32>) -> tensor<1xi32>
      %0 = stablehlo.dynamic_reshape %x, %s : (tensor<?x2xf32>, tensor<1xi32>) -> tensor<?xf32>
      return %0 : tensor<?xf32>
    }
    """
    graph = load(text.encode())

    assert isinstance(graph, Graph)
    assert str(graph.outputs["result"].type) == "f32[2*d0]"
    exe = ag.compile(graph)
    for n in (1, 3):
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        assert exe.run({"x": x})["result"].tolist() == x.reshape(-1).tolist()


def test_inputs_may_be_constants() -> None:
    graph = load(ADD.encode(), None, {"y": 2.0})

    assert isinstance(graph, Graph)
    assert list(graph.inputs) == ["x"]
    assert ag.compile(graph).run({"x": np.ones(3, np.float32)})["result"].tolist() == [3, 3, 3]


def test_an_output_is_not_called_as_an_input_is() -> None:
    graph = load(ADD.replace("%y", "%result").encode())

    assert isinstance(graph, Graph)
    assert list(graph.inputs) == ["x", "result"]
    assert list(graph.outputs) == ["result_"]
    assert not graph.initial


SORT = """
func.func @main(%x: tensor<{n}xf32>, %i: tensor<{n}xi32>) -> (tensor<{n}xf32>, tensor<{n}xi32>) {{
  %0:2 = "stablehlo.sort"(%x, %i) <{{dimension = 0 : i64, is_stable = true}}> ({{
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %j: tensor<i32>, %k: tensor<i32>):
    {comparator}
    stablehlo.return %p : tensor<i1>
  }}) : (tensor<{n}xf32>, tensor<{n}xi32>) -> (tensor<{n}xf32>, tensor<{n}xi32>)
  return %0#0, %0#1 : tensor<{n}xf32>, tensor<{n}xi32>
}}
"""
ORDERED = """%p = stablehlo.compare {}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>"""
LESS = """
    %d = stablehlo.subtract %a, %b : tensor<f32>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %p = stablehlo.compare LT, %d, %z : (tensor<f32>, tensor<f32>) -> tensor<i1>"""


@pytest.mark.parametrize("n", [2, 3, 7, 16, 33])
@pytest.mark.parametrize(
    ("comparator", "falls"),
    [(ORDERED.format("LT"), False), (ORDERED.format("GT"), True), (LESS, False)],
    ids=["rising", "falling", "by difference"],
)
def test_any_comparator_sorts_and_equals_keep_their_order(
    n: int, comparator: str, falls: bool
) -> None:
    x = np.random.default_rng(n).integers(0, 5, n).astype(np.float32)
    text = SORT.format(n=n, comparator=comparator)
    exe = ag.compile(load(text.encode()), target="interpreter")

    values, order = exe.run({"x": x, "i": np.arange(n, dtype=np.int32)}).values()

    wanted = np.argsort(-x if falls else x, kind="stable")
    assert order.tolist() == wanted.tolist()
    assert values.tolist() == x[wanted].tolist()


ARGMAX = """
func.func @main(%x: tensor<5xf32>) -> (tensor<f32>, tensor<i32>) {{
  %i = stablehlo.iota dim = 0 : tensor<5xi32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %z = stablehlo.constant dense<0> : tensor<i32>
  %0:2 = stablehlo.reduce(%x init: %l), (%i init: %z) across dimensions = [0] :
    (tensor<5xf32>, tensor<5xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {{
    %gt = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    {better}
    %eq = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %lt = stablehlo.compare LT, %j, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %and = stablehlo.and %eq, %lt : tensor<i1>
    %or = stablehlo.or %g, %and : tensor<i1>
    %v = stablehlo.select %g, %a, %b : tensor<i1>, tensor<f32>
    %w = stablehlo.select %or, %j, %k : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }}
  return %0#0, %0#1 : tensor<f32>, tensor<i32>
}}
"""
WITH_NAN = """%ne = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %g = stablehlo.or %gt, %ne : tensor<i1>"""
WITHOUT = "%g = stablehlo.or %gt, %gt : tensor<i1>"


def test_the_largest_element_is_known_by_the_form_of_its_body() -> None:
    known, other = (load(ARGMAX.format(better=b).encode()) for b in (WITH_NAN, WITHOUT))

    assert isinstance(known, Graph) and isinstance(other, Graph)
    assert [n.op.name for n in known.nodes].count("arg_max") == 1
    assert [n.op.name for n in other.nodes].count("arg_max") == 0
    for text in (WITH_NAN, WITHOUT):
        values = run(ARGMAX.format(better=text), x=np.array([1, 7, 3, 7, 2], np.float32))
        assert [v.tolist() for v in values] == [7, 1]
    x = np.array([1, 7, np.nan, 7, np.nan], np.float32)
    largest, where = run(ARGMAX.format(better=WITH_NAN), x=x)
    assert np.isnan(largest) and where == 2


ASSERTED = """
func.func @main(%x: tensor<{n}xf32>) -> tensor<{n}xf32> {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<{n}xf32>) -> tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %rest = stablehlo.remainder %n, %two : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %p = stablehlo.compare EQ, %rest, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
  stablehlo.custom_call @shape_assertion(%p) {{error_message = "x is odd"}} : (tensor<i1>) -> ()
  return %x : tensor<{n}xf32>
}}
"""


def test_what_is_asserted_of_extents_is_checked_where_they_are_known() -> None:
    load(ASSERTED.format(n=4).encode())

    with pytest.raises(FeedError, match="x is odd"):
        load(ASSERTED.format(n=3).encode())


def test_a_scalar_input_may_be_a_constant(tmp_path: Path) -> None:
    path = tmp_path / "m.mlir"
    path.write_text(
        """module @m {
  func.func public @main(%k: tensor<i32>, %x: tensor<3xi32>) -> tensor<3xi32> {
    %b = stablehlo.broadcast_in_dim %k, dims = [] : (tensor<i32>) -> tensor<3xi32>
    %y = stablehlo.add %x, %b : tensor<3xi32>
    return %y : tensor<3xi32>
  }
}
"""
    )

    (y,) = ag.compile(path, target="interpreter", constants={"k": 4}).run(
        {"x": np.arange(3, dtype=np.int32)}
    ).values()

    assert y.tolist() == [4, 5, 6]


def windows(operation: str, init: str, size: int, edges: tuple[int, int], count: int) -> str:
    """Return a program that reduces windows of three elements."""
    return f"""
    func.func @main(%x: tensor<3xf32>) -> tensor<{count}xf32> {{
      %i = stablehlo.constant dense<{init}> : tensor<f32>
      %0 = "stablehlo.reduce_window"(%x, %i) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %1 = stablehlo.{operation} %a, %b : tensor<f32>
        stablehlo.return %1 : tensor<f32>
      }}) {{window_dimensions = array<i64: {size}>,
           padding = dense<[[{edges[0]}, {edges[1]}]]> : tensor<1x2xi64>}}
        : (tensor<3xf32>, tensor<f32>) -> tensor<{count}xf32>
      return %0 : tensor<{count}xf32>
    }}"""


@pytest.mark.parametrize(("operation", "init", "expected"), [
    ("add", "5.0", [9, 6, 10, 13]), ("maximum", "0.0", [0, 2, 3, 3]),
    ("multiply", "2.0", [-4, -4, 12, 12]), ("add", "0.0", [-1, 1, 5, 3]),
])  # fmt: skip
def test_padding_of_windows_is_what_reductions_begin_with(
    operation: str, init: str, expected: list[float]
) -> None:
    x = np.array([-1, 2, 3], np.float32)

    (y,) = run(windows(operation, init, 2, (1, 1), 4), x=x)

    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("operation", "init"), [("add", "0.0"), ("maximum", "0xFF800000")])
def test_windows_that_do_not_fit_make_no_elements(operation: str, init: str) -> None:
    (y,) = run(windows(operation, init, 6, (1, 1), 0), x=np.ones(3, np.float32))

    assert y.shape == (0,)

"""Graphs and programs as text: what is printed reads back; what is wrong is named with its line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from alpenglow.base.errors import GraphError, ParseError, TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.text import (
    Lines,
    literal,
    parse_graph,
    parse_literal,
    print_graph,
    side_weights,
)
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul
from alpenglow.ops.fused import Fused
from alpenglow.ops.random.random import RandomUniform
from alpenglow.ops.tensor.movement import Reshape, Transpose
from alpenglow.ops.tensor.order import TopK
from alpenglow.program import eliminate_copies, mark_lifetimes, plan, schedule, share
from alpenglow.program.interpret import interpret
from alpenglow.program.text import parse_program, print_program
from alpenglow.program.text import side_weights as program_weights

NAMES = [
    "a b",
    'say "x"',
    "back\\slash",
    "a  # b",
    "a] = relu(%x)",
    "a = b",
    "a, b",
    ") {",
    "}",
    "",
    "tab\tline\nend",
    "grüße/λ:0",
    "%x",
    "none",
    "x called y",
    "input",
]


def one_node(name: str) -> Graph:
    """Return a graph in which everything is called `name`; only an input must have one."""
    g = Graph(name)
    x = g.input(name or "x", "f32[2,3]")
    w = g.constant(np.float32([[1, 2, 3], [4, 5, 6]]), name)
    y = g(Add(), x, w, name=name)
    g.output(name + "'", y)
    g.output("twice", g(Mul(), y, y, name=name))
    return g


def check(g: Graph) -> Graph:
    """Assert that a graph reads back from its text, and return what was read."""
    expected = print_graph(g)
    again = parse_graph(expected, side_weights(g))

    assert expected == print_graph(again)
    return again


# ── what is printed reads back ──


@pytest.mark.parametrize("name", NAMES)
def test_any_name_reads_back(name: str) -> None:
    again = check(one_node(name))

    assert name == again.name
    assert [name or "x"] == list(again.inputs)
    assert [name + "'", "twice"] == list(again.outputs)


@pytest.mark.parametrize("name", NAMES)
def test_any_name_reads_back_in_a_program(name: str) -> None:
    g = one_node(name)
    given = {name or "x": np.float32([[1, -1, 2], [0, 3, 4]])}
    program = plan(mark_lifetimes(share(eliminate_copies(schedule(g)))))
    expected = print_program(program)
    again = parse_program(expected, program_weights(program))
    called = dict(zip(program.inputs, g.inputs, strict=True))
    feeds = {buffer: given[key] for buffer, key in called.items()}

    assert expected == print_program(again)
    assert name == program.name == again.name
    for key, array in evaluate(g, given).items():
        np.testing.assert_array_equal(interpret(again, feeds)[key], array)


@pytest.mark.parametrize(
    ("op", "text"),
    [
        (Clip(), "clip(%x)"),
        (Clip(high=6.0), "clip(%x, high=6.0)"),
        (Clip(low=float("inf")), "clip(%x, low=inf)"),
        (Clip(low=-2.5, high=float("-inf")), "clip(%x, low=-2.5, high=-inf)"),
        (Clip(low=float("nan")), "clip(%x, low=nan)"),
        (Clip(low=1e-30, high=1e30), "clip(%x, low=1e-30, high=1e+30)"),
        (Reshape((6,)), "reshape(%x, shape=(6,))"),
        (Reshape((3, -2 + 4)), "reshape(%x, shape=(3, 2))"),
        (Transpose((1, 0)), "transpose(%x, perm=(1, 0))"),
    ],
)
def test_attributes_read_back(op: Op, text: str) -> None:
    g = Graph("f")
    g.output("y", g(op, g.input("x", "f32[2,3]")))
    again = check(g)

    assert text in print_graph(g)
    assert [repr(op)] == [repr(n.op) for n in again.nodes]


@pytest.mark.parametrize("text", ["  #", "a  # b", " #", "'  #\"", "\\  #"])
def test_no_comment_begins_in_a_string(text: str) -> None:
    assert parse_literal(Lines(literal((text, "x"))).take()) == (text, "x")


def test_extents_are_open_in_what_is_known_around_a_graph() -> None:
    text = "graph @g {\n  %y : f32[N] = range(count=N, dtype='f32')\n  output y = %y\n}"
    with pytest.raises(GraphError, match="names N, expected dimensions of inputs"):
        parse_graph(text)

    assert str(parse_graph(text, around={"N"}).outputs["y"].type) == "f32[N]"


def test_symbolic_extents_read_back_in_types_and_attributes() -> None:
    g = parse_graph("""
    graph @f {
      input %x : f32[N,3,(H//2)]
      %y : f32[N,3*(H//2)] = reshape(%x, shape=(N, 3*(H//2)))
      output "y" = %y
    }""")
    again = check(g)
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)

    assert [v.type for v in g.outputs.values()] == [v.type for v in again.outputs.values()]
    np.testing.assert_array_equal(
        evaluate(again.bind({"N": 2, "H": 5}), {"x": x})["y"], x.reshape(2, 6)
    )


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.float32(0.1), "f32[] = 0.1"),
        (np.float32([np.nan, np.inf, -np.inf, -0.0]), "f32[4] = [nan, inf, -inf, -0.0]"),
        (np.int64([[1, -1]]), "i64[1,2] = [[1, -1]]"),
        (np.array([True, False]), "bool[2] = [True, False]"),
        (np.zeros((0, 3), np.float32), "f32[0,3] = []"),
        (np.uint64([2**64 - 1]), "u64[1] = [18446744073709551615]"),
        (np.float16([0.1]), "f16[1] = [0.1]"),
    ],
)
def test_small_constants_stand_inline(array: np.ndarray, text: str) -> None:
    g = Graph("f")
    g.output("y", g.constant(array, "k"))
    again = check(g).outputs["y"].array

    assert f"const @k : {text}" in print_graph(g)
    assert again is not None and again.dtype == array.dtype
    assert again.tobytes() == array.tobytes()


def test_large_constants_stand_beside_the_text() -> None:
    g = Graph("f")
    array = np.arange(17, dtype=np.float32)
    g.output("y", g(Relu(), g.constant(array, "w")))
    kept = side_weights(g)
    (again,) = check(g).constants()

    assert re.search(r"const @w : f32\[17\] sha256:[0-9a-f]{64}\n", print_graph(g))
    assert len(kept) == 1
    np.testing.assert_array_equal(again.array, array)


def fused() -> Graph:
    """Return a graph with a region that has a large constant in it."""
    body = Graph("region")
    p = body.input("p", "f32[20]")
    body.output("q", body(Add(), body(Clip(0.0), p), body.constant(np.arange(20, dtype="f4"), "c")))
    g = Graph("f")
    node = g.add(Fused(), [g.input("x", "f32[20]")], [body])
    g.output("y", node.output)
    return g


def values_of(g: Graph) -> list[Value]:
    """Return the values of a graph and its regions."""
    made = [v for n in g.nodes for v in n.results]
    inner = [v for n in g.nodes for r in n.regions for v in values_of(r)]
    return [*g.inputs.values(), *g.constants(), *made, *g.outputs.values(), *inner]


def state(g: Graph) -> tuple[object, ...]:
    """Return what printing might change: which values, keys and nodes there are, and names."""
    names = [(id(v), v.name) for v in values_of(g)]
    return names, list(g.inputs), list(g.outputs), list(g.nodes)


@pytest.mark.parametrize("name", ["", "x", "y", "%x"])
def test_printing_a_graph_leaves_it_as_it_is(name: str) -> None:
    for g in (one_node(name), fused()):
        for v in values_of(g):
            v.name = name
        expected = state(g)
        print_graph(g)
        actual = state(g)

        assert expected == actual


def test_a_hidden_input_reads_back_in_a_graph_and_a_program() -> None:
    g = Graph("draw")
    g.output("y", g(RandomUniform((3,)), g.random_key()))
    g.output("z", g.input("~x", "u32[2]"))
    again = check(g)
    program = schedule(g)
    read = parse_program(print_program(program))

    assert "  hidden %random_key0 : u32[2]" in print_graph(g).splitlines()
    assert list(again.callers_inputs()) == ["~x"]
    assert print_program(program) == print_program(read)
    assert program.hidden == read.hidden == ("random_key0",)


def test_an_input_is_printed_by_the_name_that_callers_know() -> None:
    g = one_node("x")
    expected = print_graph(g)
    g.inputs["x"].name = "another"
    actual = print_graph(g)

    assert expected == actual


def test_regions_read_back_with_their_constants() -> None:
    g = fused()
    x = np.linspace(-3, 3, 20, dtype=np.float32)
    again = check(g)

    assert len(side_weights(g)) == 1
    np.testing.assert_array_equal(evaluate(again, {"x": x})["y"], evaluate(g, {"x": x})["y"])


def test_regions_of_programs_read_back_with_their_constants() -> None:
    g = fused()
    program = plan(mark_lifetimes(schedule(g)))
    again = parse_program(print_program(program), program_weights(program))
    x = np.linspace(-3, 3, 20, dtype=np.float32)

    assert print_program(program) == print_program(again)
    np.testing.assert_array_equal(interpret(again, {"x": x})["y"], evaluate(g, {"x": x})["y"])


def test_several_results_and_absent_operands_read_back() -> None:
    g = parse_graph(
        """
    graph @f {
      input %x : f32[5]
      %v : f32[2], %i : i64[2] = top_k(%x, k=2, axis=0)   # the largest two
      %c : f32[2] = clip(%v, high=1.0)  # a comment

      output "v" = %c
      output "i" = %i
    }""".replace("   # the largest two", "")
    )
    (first, _) = check(g).nodes

    assert isinstance(first.op, TopK)
    assert [str(v.type) for v in first.results] == ["f32[2]", "i64[2]"]


# ── what is wrong is said with its line ──

GRAPH = """\
graph @f {
  input %x : f32[2,3]
  const @w : f32[2,3] = [[1, 2, 3], [4, 5, 6]]
  %y : f32[2,3] = add(%x, @w)
  %z : f32[3,2] = transpose(%y, perm=(1, 0))
  output "z" = %z
}"""
HASH = "0" * 64


def assert_refused(
    parse: Callable[[str], object], text: str, old: str, new: str, line: int, says: str
) -> None:
    """Assert that a text with one piece replaced is refused, at that line and in these words."""
    assert old in text
    with pytest.raises(ParseError) as caught:
        parse(text.replace(old, new, 1))

    assert str(caught.value).startswith(f"line {line}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("graph @f {", "grph @f {", 1, "expected graph @NAME {, found: grph @f {"),
        ("graph @f {", "graph @a b {", 1, "expected graph @NAME {"),
        ("input %x :", "input x :", 2, "expected input %NAME : TYPE, found: input x"),
        ("%x : f32[2,3]", "%x : f31[2,3]", 2, "type is 'f31[2,3]', expected DTYPE[DIMENSIONS]"),
        ("%x : f32[2,3]", "%x : f32[2,N+]", 2, "dimension is 'N+', expected an expression"),
        ("%x : f32[2,3]", "%x : f32[2,3//0]", 2, "dimension '3 // 0' divides by 0"),
        ("[[1, 2, 3], [4, 5, 6]]", "[[1, 2, 3], [4, 5]]", 3, "expected elements of f32"),
        ("[[1, 2, 3], [4, 5, 6]]", "[1, 2]", 3, "2 elements for f32"),
        ("[[1, 2, 3], [4, 5, 6]]", "[[1, 2", 3, "expected a Python literal, found: [[1, 2"),
        ("[[1, 2, 3], [4, 5, 6]]", "open('x')", 3, "expected a Python literal, found: open"),
        ("f32[2,3] = [[", "f32[N,3] = [[", 3, "6 elements for f32"),
        ("= [[1, 2, 3], [4, 5, 6]]", f"sha256:{HASH}", 3, "one of the weights given"),
        ("= [[1, 2, 3], [4, 5, 6]]", "", 3, "expected TYPE = CONTENTS or TYPE sha256:HASH"),
        (
            "const @w :",
            "input %x : f32[]\n  const @w :",
            3,
            "already has an input called 'x', found: input",
        ),
        ("const @w :", 'const @"w" : i8[] = 0\n  const @w :', 4, "already defined, found: @w"),
        ("const @w :", 'input %"" : f32[]\n', 3, "graph f: input is '', expected a name, found: "),
        ("const @w :", r'const @"\q" :', 3, "expected const @NAME : TYPE"),
        ("%y : f32[2,3] =", "%x : f32[2,3] =", 4, "already defined, found: %x"),
        ("%z : f32[3,2] =", "%y : f32[3,2] =", 5, "already defined, found: %y"),
        ('output "z"', 'output z = %y\n  output "z"', 7, "already has an output called 'z'"),
        ("const @w :", "const %w :", 3, "expected const @NAME : TYPE"),
        ("= add(", "= ad(", 4, "expected an operator, not 'ad', found: %x, @w"),
        (
            "%y : f32[2,3] =",
            "%y : f32[2,4] =",
            4,
            "add: expected results f32[2,3], found: %y : f32[2,4] =",
        ),
        ("%y : f32[2,3] =", "%y : i32[2,3] =", 4, "add: expected results f32[2,3]"),
        ("%y : f32[2,3] =", "%y : f33[2,3] =", 4, "type is 'f33[2,3]'"),
        ("%y : f32[2,3] =", "%y : f32[2,3], %v : f32[] =", 4, "add: expected results f32[2,3]"),
        ("add(%x, @w)", "add(%x, @v)", 4, "defined before its use, found: @v"),
        ("add(%x, @w)", "add(%x, %z)", 4, "defined before its use, found: %z"),
        ("add(%x, @w)", "add(%x, @w", 4, "expected %NAME : TYPE = OPERATOR(…)"),
        ("add(%x, @w)", "add(%x, @w, 7)", 4, "expected operands, then ATTRIBUTE=VALUE"),
        ("add(%x, @w)", "add(%x, @w, **7)", 4, "expected operands, then ATTRIBUTE=VALUE"),
        ("add(%x, @w)", "add(%x @w)", 4, "expected attributes that are Python literals"),
        ("%y : f32[2,3] = ", "garbage ", 4, "expected %NAME : TYPE = OPERATOR(…), found: garb"),
        ("perm=(1, 0)", "per=(1, 0)", 5, "transpose has no attribute per"),
        ("perm=(1, 0)", "perm=(1, 0", 5, "expected attributes that are Python literals"),
        (
            "perm=(1, 0)",
            "perm=open('x')",
            5,
            "dimension is 'open('x')', expected an integer expression",
        ),
        (", perm=(1, 0)", "", 5, "transpose: "),
        ('"z" = %z', '"z" = %q', 6, "defined before its use, found: %q"),
        ('"z" = %z', '"z" = 3', 6, "expected output NAME = %VALUE"),
        ("\n}", "", 7, "expected %NAME : TYPE = OPERATOR(…), found: nothing more"),
        ("\n}", "\n}\nmore", 8, "expected the end, found: more"),
    ],
)
def test_text_that_is_no_graph_is_refused(old: str, new: str, line: int, says: str) -> None:
    assert_refused(parse_graph, GRAPH, old, new, line, says)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("add(%x, @w)", "add(%x)", "add: got 1 operands, expected 2 (x, y)"),
        ("add(%x, @w)", "add(none, @w)", "add: operand x is missing"),
        (
            "perm=(1, 0)",
            "perm=(1, 1)",
            "transpose: perm is (1, 1), expected each axis of f32[2,3] once, counted from 0",
        ),
        (
            "%x : f32[2,3]",
            "%x : f32[2,4]",
            "add: operands are f32[2,4] and f32[2,3], expected equal",
        ),
    ],
)
def test_an_ill_typed_node_is_refused_and_shown(old: str, new: str, says: str) -> None:
    assert old in GRAPH
    with pytest.raises(TypeRuleError) as caught:
        parse_graph(GRAPH.replace(old, new, 1))

    assert caught.value.message == says
    assert caught.value.node.startswith("%")


def test_an_error_in_a_region_names_its_own_line() -> None:
    text = print_graph(fused()).splitlines()
    place = next(i for i, line in enumerate(text) if "clip(" in line)
    text[place] = text[place].replace("clip(", "clop(")
    with pytest.raises(ParseError, match=f"line {place + 1}: expected an operator, not 'clop'"):
        parse_graph("\n".join(text), side_weights(fused()))


def test_a_value_defined_twice_before_a_region_names_its_own_line() -> None:
    g = fused()
    text = re.sub(r"%\S+ : f32\[20\] = fused", "%x : f32[20] = fused", print_graph(g))
    with pytest.raises(ParseError, match="line 3: this value is already defined, found: %x"):
        parse_graph(text, side_weights(g))


def test_a_wrong_type_before_a_region_names_its_own_line() -> None:
    g = fused()
    text = print_graph(g).replace(" : f32[20] = fused", " : f32[21] = fused")
    with pytest.raises(ParseError, match="line 3: fused: expected results"):
        parse_graph(text, side_weights(g))


PROGRAM = """\
program @f arena=64 bound=64 {
  input %x : f32[2,3]
  output %z : f32[3,2] called "the end"
  const @w : f32[2,3] = [[1, 2, 3], [4, 5, 6]]
  arena %y : 24 @ 0
  alloc %y
  %y f32[2,3] = add(%x f32[2,3], @w f32[2,3])
  %z f32[3,2] = copy(%y f32[3,2] +0 (1, 3))
  free %y
}"""


def test_a_program_written_by_hand_runs() -> None:
    program = parse_program(PROGRAM)
    x = np.float32([[1, 1, 1], [2, 2, 2]])
    expected = x + np.float32([[1, 2, 3], [4, 5, 6]])

    assert PROGRAM.replace("[[1, 2, 3], [4, 5, 6]]", "[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]") == (
        print_program(program)
    )
    np.testing.assert_array_equal(interpret(program, {"x": x})["the end"], expected.T)


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("arena=64", "arena=many", 1, "expected program @NAME arena=N … {"),
        ("%x : f32[2,3]", "%x : f31[2,3]", 2, "type is 'f31[2,3]'"),
        (
            "%x : f32[2,3]",
            "%x : f32[N,3]",
            2,
            "expected a buffer type without dynamic dimensions, found: f32[N,3]",
        ),
        ("output %z :", "output z :", 3, "expected SPACE %NAME : …"),
        ("= [[1, 2, 3], [4, 5, 6]]", f"sha256:{HASH}", 4, "one of the weights given"),
        ("const @w :", "const @x :", 4, "buffer 'x' is already declared, found: const @x"),
        ("arena %y :", 'arena %"z" :', 5, "buffer 'z' is already declared, found: arena"),
        ("24 @ 0", "24 bytes", 5, "expected arena %NAME : BYTES @ OFFSET"),
        ("alloc %y", "alloc %q", 6, "expected a declared buffer, 'q' is not"),
        ("alloc %y", "alloc y", 6, "expected alloc %NAME"),
        ("= add(", "= ad(", 7, "expected an operator, not 'ad'"),
        ("%y f32[2,3] = add", "%y = add", 7, "expected REGION = OPERATOR(REGION…)"),
        ("@w f32[2,3])", "@w)", 7, "expected a region: a buffer, then its type, found: @w"),
        ("@w f32[2,3])", "@v f32[2,3])", 7, "expected declared buffers, 'v' is not"),
        ("@w f32[2,3])", "@w f32[2,M])", 7, "expected a buffer type without dynamic dimensions"),
        ("@w f32[2,3])", "@w f32[2,3], axis=1)", 7, "add has no attribute axis"),
        ("%y f32[2,3] =", "what is this", 7, "expected REGION = OPERATOR(REGION…), found: what"),
        ("+0 (1, 3)", "+0 (1,)", 8, "expected 2 strides, one per axis"),
        ("+0 (1, 3)", "+0 (1, q)", 8, "expected integer strides"),
        ("\n}", "", 10, "expected REGION = OPERATOR(REGION…), found: nothing more"),
        ("\n}", "\n}\nmore", 11, "expected the end, found: more"),
    ],
)
def test_text_that_is_no_program_is_refused(old: str, new: str, line: int, says: str) -> None:
    assert_refused(parse_program, PROGRAM, old, new, line, says)


def test_constants_of_programs_stand_beside_the_text() -> None:
    g = Graph("f")
    x = g.input("x", "f32[20]")
    g.output("y", g(Add(), x, g.constant(np.arange(20, dtype="f4"), "w")))
    program = schedule(g)
    text = print_program(program)
    with pytest.raises(
        ParseError, match="line 4: expected the SHA-256 hash of one of the weights given"
    ):
        parse_program(text)
    again = parse_program(text, program_weights(program))

    assert "const @w : f32[20] sha256:" in text
    assert replace(again, buffers={}).inputs == program.inputs
    np.testing.assert_array_equal(again.buffers["w"].array, np.arange(20, dtype="f4"))

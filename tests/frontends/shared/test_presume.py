"""What an import presumes of open extents is a guard: calls that break it are right, too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, TypeRuleError, UnsupportedError
from alpenglow.frontends.presume import at_least_0, is_0, natural, presuming
from alpenglow.ir.dims import parse
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.tensor.movement import Concat
from open_cases import Array, ints, model
from open_cases import helper as onnx_helper

END = 2**62

pytestmark = pytest.mark.usefixtures("own_cache")


def made(
    nodes: Sequence[tuple[Any, ...]],
    inputs: dict[str, Sequence[int | str]],
    constants: dict[str, Array] | None = None,
) -> Any:
    """Return a model of (operator, operands, results, attributes)."""
    built = [
        onnx_helper.make_node(op, operands.split(), results.split(), **dict(*rest))
        for op, operands, results, *rest in nodes
    ]
    return model(built, inputs, constants, list(built[-1].output))


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# ── slices ──


@pytest.mark.parametrize("step", [1, 2, -1, -3])
@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 10), (-5, END), (1, -1), (3, 5), (-5, -2), (END, -END), (-2, 1), (8, 2), (-END, -3)],
)
@pytest.mark.sampled(6)
def test_slices_of_open_axes_are_clamped_at_every_size(start: int, end: int, step: int) -> None:
    constants = {"b": ints(start), "e": ints(end), "a": ints(1), "s": ints(step)}
    exe = ag.compile(made([("Slice", "x b e a s", "y")], {"x": ("M", "N")}, constants))
    for n in (20, 12, 0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 33):
        x = floats(2, n)
        last = None if end == -END and step < 0 else end

        np.testing.assert_array_equal(x[:, start:last:step], exe(x), str(n))
    # One for long axes, and one for each way in which an axis can be too short.
    assert len(exe.artifacts) <= 6


def test_ends_that_follow_an_extent_are_clamped_too() -> None:
    nodes = [("Shape", "x", "n"), ("Slice", "c zero n", "y")]
    table = np.arange(10, dtype=np.float32)
    exe = ag.compile(made(nodes, {"x": ("N",)}, {"zero": ints(0), "c": table}))
    for n in (4, 10, 12, 30):
        np.testing.assert_array_equal(table[:n], exe(floats(n)))


def test_parts_of_an_axis_that_does_not_divide_are_as_onnx_says() -> None:
    exe = ag.compile(made([("Split", "x", "y z", {"num_outputs": 2})], {"x": ("N",)}))
    for n in (8, 7, 2, 9):
        first, second = exe(np.arange(n, dtype=np.float32))

        assert (first.size, second.size) == (-(-n // 2), n - -(-n // 2))


# ── decisions ──


def test_a_branch_that_an_empty_tensor_takes_is_taken() -> None:
    branches = {
        f"{name}_branch": onnx_helper.make_graph(
            [onnx_helper.make_node("Add", ["x", c], [c + "y"])],
            name,
            [],
            [onnx_helper.make_empty_tensor_value_info(c + "y")],
        )
        for name, c in (("then", "zero"), ("else", "row"))
    }
    nodes = [
        ("Shape", "x", "n", {"end": 1}),
        ("Greater", "n none", "some"),
        ("If", "some", "y", branches),
    ]
    constants = {"none": ints(0), "zero": np.zeros(1, np.float32), "row": floats(1, 3)}
    exe = ag.compile(made(nodes, {"x": ("N", 1)}, constants))

    assert [exe(floats(n, 1)).shape for n in (4, 0, 2, 0)] == [(4, 1), (0, 3), (2, 1), (0, 3)]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([("Greater", "n zero", "c"), ("Cast", "c", "y", {"to": 7})], lambda n: int(n > 0)),
        ([("Equal", "n zero", "c"), ("Cast", "c", "y", {"to": 7})], lambda n: int(n == 0)),
        ([("Sub", "n one", "d"), ("Abs", "d", "y")], lambda n: abs(n - 1)),
        ([("Sub", "n five", "d"), ("Div", "d two", "y")], lambda n: int((n - 5) / 2)),
        ([("Div", "five n", "d"), ("Max", "d n", "y")], lambda n: max(5 // n if n else 0, n)),
        ([("Sub", "n five", "d"), ("Mod", "d two", "y")], lambda n: (n - 5) % 2),
        ([("Range", "three first one", "r"), ("Size", "r", "y")], lambda n: max(n - 3, 0)),
    ],
    ids=lambda nodes: nodes[0][0] if isinstance(nodes, list) else "",
)
def test_arithmetic_on_extents_is_exact_for_every_size(nodes: Any, expected: Any) -> None:
    count = [("Shape", "x", "n"), ("Squeeze", "n", "first"), *nodes]
    scalars = {"three": np.array(3), "one": np.array(1)}
    vectors = {"zero": ints(0), "two": ints(2), "five": ints(5)}
    if nodes[0][0] == "Sub":
        scalars["one"] = ints(1)
    exe = ag.compile(made(count, {"x": ("N",)}, scalars | vectors))
    for n in (9, 0, 1, 4, 5, 6, 30):
        assert np.ravel(exe(floats(n))).tolist() == [expected(n)], n


def test_axes_that_turn_out_to_be_one_are_squeezed() -> None:
    exe = ag.compile(made([("Squeeze", "x", "y")], {"x": ("N", 1, "M")}))

    shapes = [exe(floats(n, 1, m)).shape for n, m in ((3, 4), (1, 4), (3, 1), (1, 1), (0, 2))]
    assert shapes == [(3, 4), (4,), (3,), (), (0, 2)]


def test_only_what_is_certain_of_all_extents_needs_no_guard() -> None:
    with presuming() as kept:
        assert at_least_0(parse("N+M//2"))
        assert not is_0(parse("N+1"))
        assert not at_least_0(parse("-N-1"))
        assert kept.guards == {}
        assert at_least_0(parse("N*M-1"))
        assert not is_0(parse("2*N"))
    assert [f"{x} {relation} 0" for x, relation in kept.guards] == ["M-1 >= 0", "N-1 >= 0"]
    assert natural(parse("N%3")) and not natural(parse("N-M"))


# ── graphs with guards ──


def cropped() -> Any:
    constants = {"b": ints(0), "e": ints(4)}
    return made([("Slice", "x b e", "y")], {"x": ("N",)}, constants)


def test_guards_are_part_of_the_text_and_of_bound_graphs() -> None:
    g = ag.load(cropped())
    text = print_graph(g)

    assert "  given N-4 >= 0\n" in text
    assert print_graph(parse_graph(text)) == text
    assert g.bind({"N": 4}).guards == ()
    with pytest.raises(TypeRuleError, match=r"imported for N-4 >= 0, which is not so with N = 3"):
        g.bind({"N": 3})


def test_a_graph_without_its_model_refuses_what_its_guards_exclude() -> None:
    exe = ag.compile(parse_graph(print_graph(ag.load(cropped()))))

    assert exe(floats(9)).shape == (4,)
    with pytest.raises(FeedError, match="N-4 >= 0"):
        exe(floats(3))


def test_results_of_the_other_import_go_where_the_caller_wants_them() -> None:
    exe = ag.compile(cropped())
    exe(floats(9))
    place = np.zeros(3, np.float32)
    x = floats(3)

    assert exe.run({"x": x}, out={"y": place})["y"] is place
    np.testing.assert_array_equal(place, x)
    with pytest.raises(FeedError, match="expected a writeable"):
        exe.run({"x": x}, out={"y": np.zeros(4, np.float32)})


# ── what extents are called ──


def test_labels_that_differ_are_different_extents() -> None:
    inputs = {"x": ("a-b", 1), "y": ("a_b",), "z": ("x_0", 1), "x ": ("", 1)}
    nodes = [("Mul", "x y", "t"), ("Mul", "z y", "u"), ("Concat", "t u", "v", {"axis": 0})]
    exe = ag.compile(made(nodes, {k: v for k, v in inputs.items() if k != "x "}))

    assert exe(floats(3, 1), floats(4), floats(2, 1)).shape == (5, 4)
    assert len({str(d) for t in exe.inputs.values() for d in t.shape if d != 1}) == 3


@pytest.mark.parametrize(
    ("inputs", "says", "shapes"),
    [
        ({"x": ("N",), "y": ("2*N",)}, "f32[2*N]", [(3, 6), (5, 10), (0, 0), (1, 2)]),
        ({"x": ("S",), "p": ("P",), "y": ("P + S",)}, "f32[P+S]", [(3, 2, 5), (1, 9, 10)]),
        ({"x": ("N//2",), "y": ("N",)}, "f32[N]", [(3, 6), (3, 7), (1, 2)]),
        ({"x": ("2*N+1",), "p": ("N",), "y": ("N * 2 + 1",)}, "f32[2*N+1]", [(5, 2, 5)]),
    ],
)
def test_labels_that_are_arithmetic_say_what_they_say(
    inputs: Any, says: str, shapes: Sequence[Sequence[int]]
) -> None:
    nodes = [(op, n, n + "_") for n in inputs for op in ("Relu",)]
    nodes += [("Concat", " ".join(f"{n}_" for n in inputs), "z", {"axis": 0})]
    exe = ag.compile(made(nodes, inputs))

    assert str(exe.inputs["y"]) == says
    for lengths in shapes:
        assert exe(*(floats(n) for n in lengths)).shape == (sum(lengths),)
    # ONNX takes a label for no more than a name.
    assert exe(*(floats(5) for _ in inputs)).shape == (5 * len(inputs),)


def test_one_symbol_follows_from_a_multiple_of_it() -> None:
    g = ag.Graph("twice")
    x, y = g.input("x", "f32[2*N+1]"), g.input("y", "f32[N]")
    g.output("z", g(Concat(0), x, y))
    h = ag.Graph("alone")
    h.output("z", h(Relu(), h.input("x", "f32[3*N]")))
    exe = ag.compile(h)

    assert ag.compile(g)(floats(7), floats(3)).shape == (10,)
    assert exe(floats(12)).shape == (12,)
    with pytest.raises(FeedError, match=r"input 'x' has shape \(7,\), expected f32\[3\*N\]"):
        exe(floats(7))
    assert ag.compile(h, shapes={"x": (6,)}).inputs["x"].shape == (6,)


def test_extents_that_no_shape_tells_are_refused() -> None:
    g = ag.Graph("half")
    a, b = g.input("a", "f32[N//2]"), g.input("b", "f32[N//2]")
    g.output("c", g(Add(), a, b))
    with pytest.raises(UnsupportedError, match="N do not follow from the shapes of the inputs a f"):
        ag.compile(g)


@pytest.mark.parametrize(
    "label", ["N//M", "N//0", "N%0", "1//N", "N**2", "N(", "lambda", "__debug__", "é", "x__0", "-"]
)
def test_labels_that_are_odd_are_names(label: str) -> None:
    exe = ag.compile(made([("Concat", "x m n", "y", {"axis": 0})],
                          {"x": (label,), "m": ("M",), "n": ("N",)}))  # fmt: skip

    assert exe(floats(3), floats(0), floats(2)).shape == (5,)


def test_shapes_of_one_input_bind_the_extents_of_others() -> None:
    nodes = [("Add", "x y", "s"), ("Concat", "s z", "t", {"axis": 0})]
    m = made(nodes, {"x": ("N",), "y": ("N",), "z": ("2*N",)})
    exe = ag.compile(m, shapes={"x": (3,)})

    assert [t.shape for t in exe.inputs.values()] == [(3,), (3,), (6,)]


def test_a_guard_is_no_way_around_other_mistakes() -> None:
    exe = ag.compile(cropped())
    with pytest.raises(AlpenglowError, match="input 'x'"):
        exe(np.zeros(3, np.float64))


def test_extents_are_tried_in_the_order_of_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The symbols of a type are a set: its order is another in each process."""
    tried: list[list[str]] = []

    def recorded(symbols: Iterable[str]) -> Any:
        tried.append(list(symbols))
        return presuming(tried[-1])

    monkeypatch.setattr("alpenglow.frontends.stepped.presuming", recorded)
    names = [f"d{i}" for i in range(8)]
    ag.load(made([("Relu", "x", "y")], {"x": names[::-1]}))

    assert tried == [names]

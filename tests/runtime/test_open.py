"""Models with open extents: compiled once for all that behave alike, right for every extent."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, FeedError, ModelError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.machines.api import CONVENTION
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum, SumBytes
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.runtime.archive import archive
from alpenglow.runtime.executables.open_extents import OpenExecutable
from alpenglow.runtime.memory import layout
from open_cases import CASES, Case, case, chain, feeds, ints, model, symbols, weights

NAMES = "NMKBHWLT"

ORDINARY = (
    (5, 7, 9, 2, 11, 13, 10, 6),
    (6, 6, 6, 3, 16, 16, 16, 3),
    (20, 33, 17, 4, 24, 9, 40, 8),
    (3, 12, 5, 7, 10, 32, 5, 12),
    (64, 8, 24, 16, 40, 8, 8, 5),
    (13, 16, 4, 12, 7, 21, 4, 4),
)
"""Extents of more than 1, some of them equal to others and to those of weights."""

SPECIAL = (
    (1, 1, 1, 1, 1, 1, 3, 1),
    (1, 7, 2, 2, 5, 1, 4, 2),
    (4, 1, 8, 1, 3, 8, 5, 1),
    (0, 4, 4, 0, 8, 8, 3, 0),
    (2, 0, 3, 2, 2, 2, 3, 3),
    (8, 3, 0, 3, 4, 4, 6, 2),
    (2, 2, 2, 2, 2, 2, 3, 2),
    (3, 3, 3, 3, 3, 3, 3, 3),
)

pytestmark = pytest.mark.usefixtures("own_cache")


def extents(case: Case, g: Graph, rows: Any) -> Iterator[dict[str, int]]:
    """Yield values of the open extents of a graph that the case allows."""
    least = case.least or {}
    for row in rows:
        given = dict(zip(NAMES, row, strict=True))
        yield {n: max(given[n], least.get(n, 0)) for n in symbols(g)}


def assert_agrees(g: Graph, exe: ag.Executable, values: dict[str, int]) -> None:
    """Assert that an Executable gives what the interpreter does where the extents are bound."""
    given = feeds(g, values)
    expected = evaluate(g.bind(values), given)
    actual = exe.run(given)

    assert list(expected) == list(actual)
    for name, want in expected.items():
        got = actual[name]
        assert (got.shape, got.dtype) == (want.shape, want.dtype), f"{name} at {values}"
        np.testing.assert_allclose(got, want, 1e-4, 1e-5, err_msg=f"{name} at {values}")


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(6)
def test_open_extents_compile_once_and_run_at_any_size(case: Case, target: str) -> None:
    g = case.make()
    exe = ag.compile(g, target=target)
    for values in extents(case, g, ORDINARY):
        assert_agrees(g, exe, values)
    compiled = len(exe.artifacts)
    for values in extents(case, g, SPECIAL):
        assert_agrees(g, exe, values)

    assert compiled <= case.compilations
    assert isinstance(g, ag.Graph)
    if target == "cpu":
        assert all(entry.kernel for a in exe.artifacts for entry in a.table)


@pytest.mark.parametrize("first", SPECIAL, ids=str)
@pytest.mark.sampled(1)
def test_code_made_for_special_extents_is_not_used_for_others(first: tuple[int, ...]) -> None:
    case = next(c for c in CASES if c.name == "attention")
    g = case.make()
    exe = ag.compile(g)
    for values in extents(case, g, (first, *ORDINARY[:3], first, *SPECIAL)):
        assert_agrees(g, exe, values)


def test_every_length_up_to_some_is_right() -> None:
    case = next(c for c in CASES if c.name == "perceptron")
    g = case.make()
    exe = ag.compile(g)
    for n in range(40):
        assert_agrees(g, exe, {"N": n})

    # None at all, and some.
    assert len(exe.artifacts) == 2


def test_extents_in_any_order_share_an_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MOST_CONTEXTS", 3)
    case = next(c for c in CASES if c.name == "perceptron")
    g = case.make()
    exe = ag.compile(g, threads=1)
    for n in np.random.default_rng(0).integers(1, 12, 60).tolist():
        assert_agrees(g, exe, {"N": n})
    (code,) = exe._layouts
    (room,) = code._rooms
    assert all(np.may_share_memory(c.arena, room.arena) for c in room.contexts.values())
    assert len(room.contexts) <= 3

    bound = next(iter(room.contexts))
    first = code.take(bound)
    code.give_back(bound, first)
    assert code.take(bound) is first


ROWS = (0, 1, 2, 3, 5, 6, 7, 8, 13, 64, 201)
"""None, few, about as many as a tile of any target has, and many."""


def few_or_many() -> dict[str, Case]:
    """Return products whose rows are open: of floats, of bytes, and of a batch of one row each."""
    w = {"w": weights(24, 150)}
    bytes_ = {"w": np.arange(24 * 150).reshape(24, 150).astype(np.uint8)}
    return {
        "floats": case("MatMul", ("N", 24), constants=w),
        "one row of each sample": case("MatMul", ("N", 1, 24), constants=w),
        "bytes": case("MatMulInteger", ("N", 24), constants=bytes_, codes=[TensorProto.UINT8]),
    }


@pytest.mark.parametrize("target", ["cpu", "x86-64-v3"])
@pytest.mark.parametrize("first", [2, 5, 201])
@pytest.mark.parametrize("name", list(few_or_many()))
@pytest.mark.sampled(3)
def test_a_product_of_few_rows_serves_many_and_the_other_way_round(
    name: str, first: int, target: str
) -> None:
    g = few_or_many()[name].make()
    exe = ag.compile(g, target=target)
    assert_agrees(g, exe, {"N": first})
    for n in (n for n in ROWS if n > 1):
        assert_agrees(g, exe, {"N": n})

    assert len(exe.artifacts) == 1
    for n in ROWS:
        assert_agrees(g, exe, {"N": n})


def test_weights_that_an_open_batch_repeats_are_summed_when_they_are_compiled() -> None:
    steps = np.arange(24 * 150).reshape(24, 150).astype(np.int8)
    constants = {"w": steps, "zero": np.array(7, np.uint8)}
    rows = case("MatMulInteger", ("N", 3, 24), constants=constants, codes=[TensorProto.UINT8])
    g = rows.make()
    exe = ag.compile(g)
    for n in (0, 1, 2, 5):
        assert_agrees(g, exe, {"N": n})

    kinds = {instr.op.name for made in exe.artifacts for instr in made.program.instrs()}
    assert "sum_bytes" not in kinds


# ── graphs built by hand ──


def by_hand() -> dict[str, Graph]:
    rows = Graph("rows")
    x, y = rows.input("x", "f32[N,4]"), rows.input("y", "f32[M,4]")
    joined = rows(Concat(0), x, y)
    n = joined.type.shape[0]
    flat = rows(Reshape((n * 4,)), joined)
    rows.output("flat", flat)
    rows.output("sum", rows(ReduceSum((0,), False), joined))
    rows.output("twice", rows(Add(), joined, joined))

    sizes = Graph("sizes")
    z = sizes.input("z", "f32[N,M,2*M+2]")
    n, m = z.type.shape[:2]
    sizes.output("counted", sizes(Range(n * m + 1)))
    turned = sizes(Transpose((1, 0, 2)), z)
    sizes.output("turned", sizes(Reshape((m * n, 2 * (m + 1))), turned))

    square = Graph("square")
    a = square.input("a", "f32[N,N]")
    bias = square(Broadcast(a.type.shape), square.constant(np.float32(0.5)))
    square.output("y", square(Add(), square(MatMul(), a, a), bias))
    return {g.name: g for g in (rows, sizes, square)}


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", list(by_hand()))
@pytest.mark.sampled(3)
def test_graphs_built_by_hand_have_open_extents_too(name: str, target: str) -> None:
    g = by_hand()[name]
    exe = ag.compile(g, target=target)
    for n, m in ((5, 7), (6, 6), (3, 17), (33, 4)):
        assert_agrees(g, exe, {s: v for s, v in {"N": n, "M": m}.items() if s in symbols(g)})
    compiled = len(exe.artifacts)
    for n, m in ((1, 1), (0, 5), (5, 0), (1, 0), (2, 1)):
        assert_agrees(g, exe, {s: v for s, v in {"N": n, "M": m}.items() if s in symbols(g)})

    assert compiled == 1


# ── calls ──


def perceptron() -> Graph:
    return next(c for c in CASES if c.name == "perceptron").make()


def test_shapes_bind_extents_ahead() -> None:
    g = perceptron()
    exe = ag.compile(g, shapes={"x": (4, 16)})
    given = feeds(g, {"N": 4})

    assert exe.inputs["x"].shape == (4, 16)
    np.testing.assert_array_equal(exe.run(given)["y"], exe(given["x"]))
    with pytest.raises(FeedError, match=r"shape \(5, 16\), expected \(4, 16\)"):
        exe(np.zeros((5, 16), np.float32))
    with pytest.raises(ModelError, match=r"is \(4, 15\), expected f32"):
        ag.compile(g, shapes={"x": (4, 15)})


def test_types_of_an_open_executable_name_the_extents() -> None:
    exe = ag.compile(perceptron())

    assert [str(t) for t in exe.inputs.values()] == ["f32[N,16]"]
    assert [str(t) for t in exe.outputs.values()] == ["f32[N,10]"]
    assert exe.artifacts == []


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        ((3, 5), (4,), "the other inputs make it"),
        ((3, 5), (5, 1), "expected f32"),
        ((3,), (5,), "expected f32"),
    ],
)
def test_inputs_that_disagree_are_refused(
    x: tuple[int, ...], y: tuple[int, ...], says: str
) -> None:
    case = chain("sum", [("Add", "x y", "z")], {"x": ("N", "M"), "y": ("M",)})
    exe = ag.compile(case.make())
    with pytest.raises(FeedError) as caught:
        exe(np.zeros(x, np.float32), np.zeros(y, np.float32))

    assert says in str(caught.value)


def test_fixed_extents_of_open_inputs_are_checked() -> None:
    exe = ag.compile(perceptron())
    with pytest.raises(FeedError, match="input 'x'"):
        exe(np.zeros((3, 17), np.float32))


def test_extents_that_an_operator_does_not_allow_are_refused() -> None:
    case = chain(
        "fold",
        [("Reshape", "x s", "y")],
        {"x": ("N",)},
        {"s": np.array([2, -1])},
    )
    exe = ag.compile(case.make())
    exe(np.zeros(8, np.float32))
    with pytest.raises(AlpenglowError, match=r"[Rr]eshape"):
        exe(np.zeros(7, np.float32))

    assert exe(np.arange(4, dtype=np.float32)).tolist() == [[0, 1], [2, 3]]


def test_outputs_may_be_given_places() -> None:
    g = perceptron()
    exe = ag.compile(g)
    for n in (3, 8):
        given = feeds(g, {"N": n})
        expected = exe.run(given)["y"]
        place = np.full((n, 10), np.nan, np.float32)
        actual = exe.run(given, {"y": place})["y"]

        assert actual is place
        np.testing.assert_array_equal(expected, actual)
    with pytest.raises(FeedError, match=r"expected a writeable float32\(8, 10\)"):
        exe.run(feeds(g, {"N": 8}), {"y": np.zeros((3, 10), np.float32)})


def test_results_of_earlier_calls_keep_their_memory() -> None:
    g = perceptron()
    exe = ag.compile(g)
    kept = [(n, exe.run(feeds(g, {"N": n}))["y"]) for n in (9, 4, 64, 5, 9)]
    for n, actual in kept:
        expected = evaluate(g.bind({"N": n}), feeds(g, {"N": n}))["y"]

        np.testing.assert_allclose(expected, actual, 1e-4, 1e-5)


def test_what_is_left_of_a_constant_may_begin_where_an_extent_says() -> None:
    """Behind one row, all that remains of [x; w] is w, from 1 - N on."""
    g = Graph("tail")
    x, w = g.input("x", "f32[N,4]"), g.constant(weights(1, 4))
    g.output("y", g(Slice((1, 0), (x.type.shape[0], 4), (1, 1)), g(Concat(0), x, w)))
    exe = ag.compile(g)
    for n in (1, 3, 1, 2):
        assert_agrees(g, exe, {"N": n})


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.sampled(5)
def test_an_open_executable_is_saved_with_its_code_and_makes_more(
    case: Case, tmp_path: Path
) -> None:
    g, path = case.make(), tmp_path / "x.ago"
    exe = ag.compile(g, threads=1)
    before = list(extents(case, g, ORDINARY[:2]))
    results = [exe.run(feeds(g, values)) for values in before]
    exe.save(path)
    again = ag.open(path, threads=1)

    assert len(again.artifacts) == len(exe.artifacts)
    for values, expected in zip(before, results, strict=True):
        for name, y in again.run(feeds(g, values)).items():
            np.testing.assert_array_equal(expected[name], y)
    assert len(again.artifacts) == len(exe.artifacts), "what was compiled is not compiled again"
    for values in extents(case, g, SPECIAL[:3]):
        assert_agrees(g, again, values)


def test_an_open_archive_is_run_without_a_front_end(tmp_path: Path) -> None:
    """In a process of its own, at extents that were met before and at others."""
    exe = ag.compile(perceptron(), threads=1)
    (x,) = feeds(perceptron(), {"N": 5}).values()
    expected = exe(x)
    exe.save(tmp_path / "x.ago")
    np.save(tmp_path / "x.npy", x)
    source = """
import sys, numpy as np, alpenglow as ag
exe, x = ag.open("x.ago", threads=1), np.load("x.npy")
np.save("y.npy", exe(x))
many = exe(np.repeat(x, 40, 0))
assert (many[::40] - np.load("y.npy") == 0).all()
assert not [m for m in sys.modules if m == "onnx" or m.startswith("alpenglow.frontends.onnx.")]
"""
    subprocess.run([sys.executable, "-c", source], cwd=tmp_path, check=True)

    np.testing.assert_array_equal(expected, np.load(tmp_path / "y.npy"))


@pytest.mark.parametrize(
    ("guards", "said"),
    [
        ([["N", "??"]], "the relation is"),
        ([["import os", ">="]], "expected an expression"),
    ],
)
def test_conditions_that_are_none_are_damage(
    guards: list[list[str]], said: str, tmp_path: Path
) -> None:
    exe = ag.compile(perceptron(), threads=1)
    exe(*feeds(perceptron(), {"N": 3}).values())
    exe.save(tmp_path / "x.ago")
    data = (tmp_path / "x.ago").read_bytes()
    size = archive.PREFIX.unpack(data[: archive.PREFIX.size])[3]
    end = archive.PREFIX.size + size
    fields = json.loads(data[archive.PREFIX.size : end])
    fields["artifacts"][0]["guards"] = guards
    header = json.dumps(fields).encode().ljust(size)
    digest = hashlib.sha256(header).digest()
    prefix = archive.PREFIX.pack(archive.MAGIC, archive.FORMAT, CONVENTION, size, digest)
    with pytest.raises(ModelError, match=said):
        ag.open(prefix + header + data[end:])


def test_passes_of_the_caller_are_in_no_archive(tmp_path: Path) -> None:
    mine = ag.Pass("mine", lambda g, target: g, "does nothing", after="fuse")
    exe = ag.compile(perceptron(), options=ag.Options(passes=(mine,)))
    with pytest.raises(UnsupportedError, match="compiled with passes=… cannot be saved") as caught:
        exe.save(tmp_path / "x.ago")

    assert "shapes=" in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_strict_numerics_and_checks_work_on_open_extents() -> None:
    g = perceptron()
    exe = ag.compile(g, options=ag.Options(numerics="strict", check=True))
    for n in (3, 17, 1):
        assert_agrees(g, exe, {"N": n})


def test_bits_do_not_depend_on_threads_or_on_how_extents_are_known() -> None:
    g = chain(
        "product", [("MatMul", "x w", "y")], {"x": ("N", 32)}, {"w": weights(32, 48)}
    ).make()  # fmt: skip
    given = feeds(g, {"N": 50})
    results = [ag.compile(g, threads=n).run(given)["y"] for n in (1, 2, 3)]

    for actual in results:
        np.testing.assert_array_equal(results[0], actual)


# ── windows ──

SAME = (
    ("MaxPool", "SAME_UPPER", 2, 2, {}),
    ("MaxPool", "SAME_UPPER", 2, 3, {}),
    ("MaxPool", "SAME_LOWER", 1, 2, {}),
    ("AveragePool", "SAME_UPPER", 4, 2, {"count_include_pad": 1}),
    ("AveragePool", "SAME_UPPER", 4, 2, {"count_include_pad": 0}),
    ("LpPool", "SAME_UPPER", 2, 2, {}),
    ("Conv", "SAME_UPPER", 4, 2, {}),
    ("Conv", "SAME_LOWER", 3, 1, {}),
)


@pytest.mark.parametrize(("op", "mode", "window", "stride", "more"), SAME, ids=str)
@pytest.mark.sampled(4)
def test_windows_over_the_end_of_an_axis_serve_even_and_odd_extents(
    op: str, mode: str, window: int, stride: int, more: dict[str, int]
) -> None:
    kernel = weights(4, 3, window, window)
    node = helper.make_node(
        op, ["x", "w"] if op == "Conv" else ["x"], ["y"], auto_pad=mode, strides=[stride] * 2,
        **({} if op == "Conv" else {"kernel_shape": [window] * 2}), **more,
    )  # fmt: skip
    made = model([node], {"x": ("N", 3, "H", "W")}, {"w": kernel} if op == "Conv" else None)
    exe = ag.compile(made)
    for h, w in ((8, 9), (5, 6), (7, 7), (16, 10), (2, 17), (33, 64)):
        x = feeds(ag.load(made), {"N": 2, "H": h, "W": w})["x"]
        exact = ag.compile(made, shapes={"x": x.shape}, target="interpreter")

        np.testing.assert_allclose(exe(x), exact(x), 1e-5, 1e-5)

    assert isinstance(exe, OpenExecutable)
    assert len(exe.artifacts) == 1


# ── extents that are tied to others ──


def halved_and_doubled() -> Case:
    """Return an image beside what is left of it when it was halved, its first two axes swapped."""
    return chain(
        "tied",
        [("MaxPool", "x", "small", {"kernel_shape": [2, 2], "strides": [2, 2]}),
         ("Resize", "small none f", "large", {"mode": "nearest"}), ("Add", "x large", "sum"),
         ("Transpose", "sum", "y", {"perm": [1, 0, 2, 3]})],
        {"x": ("B", 2, "H", "W")},
        {"f": np.array([1, 1, 2, 2], np.float32), "none": weights(0)},
    )  # fmt: skip


def test_a_batch_is_no_number_where_other_extents_are_tied() -> None:
    g = halved_and_doubled().make()
    assert g.guards
    exe = ag.compile(g)
    # A batch of 2 happens to be as many as there are channels.
    for b, h, w in ((2, 4, 6), (3, 4, 6), (5, 16, 2), (17, 34, 8), (2, 64, 62)):
        assert_agrees(g, exe, {"B": b, "H": h, "W": w})

    assert len(exe.artifacts) == 1


TIED = {
    "to a weight": ([("Add", "x c", "y")], {"x": ("N",)}, {"c": weights(4)}, {"N": 4}),
    "to each other": ([("Add", "x z", "y")], {"x": ("N",), "z": ("M",)}, {}, {"N": 7, "M": 7}),
}


@pytest.mark.parametrize("how", TIED)
def test_an_archive_of_a_graph_whose_extents_are_tied_is_opened(how: str, tmp_path: Path) -> None:
    """A model of a file is imported anew for other extents; its graph is of these alone."""
    nodes, inputs, constants, extents = TIED[how]
    g = chain("tied", nodes, inputs, constants).make()
    text = print_graph(g)
    assert g.guards and print_graph(parse_graph(text)) == text
    exe = ag.compile(g)
    assert_agrees(g, exe, extents)
    exe.save(tmp_path / "tied.ago")
    opened = ag.open(tmp_path / "tied.ago")

    assert_agrees(g, opened, extents)
    with pytest.raises(FeedError, match=r"dimensions are .*, expected"):
        opened.run(feeds(g, {n: 3 + i for i, n in enumerate(extents)}))


# ── graphs that depend on data ──


def chosen_and_padded() -> ag.Executable:
    """Return what keeps positive elements, pads them to 100, and adds 3 from an open Expand."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["at"]),
        helper.make_node("Squeeze", ["at", "zero"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["kept"]),
        helper.make_node("Shape", ["kept"], ["count"]),
        helper.make_node("Expand", ["three", "count"], ["threes"]),
        helper.make_node("Add", ["rows", "threes"], ["moved"]),
        helper.make_node("Sub", ["hundred", "count"], ["more"]),
        helper.make_node("Concat", ["zero", "more"], ["pads"], axis=0),
        helper.make_node("Pad", ["kept", "pads"], ["long"]),
        helper.make_node("Pad", ["moved", "pads", "seven"], ["indices"]),
    ]
    numbers = {"zero": ints(0), "three": ints(3), "hundred": ints(100), "seven": np.array(7)}
    return ag.compile(model(nodes, {"x": ("N",)}, numbers, ("long", "indices")))


@pytest.mark.parametrize("first", [2, 16, 99])
def test_parts_that_data_lead_to_serve_other_counts(first: int) -> None:
    exe = chosen_and_padded()

    def assert_right(count: int) -> None:
        x = np.zeros(2 * count + 3, np.float32)
        at = np.random.default_rng(count).permutation(len(x))[:count]
        x[at] = np.arange(1, count + 1)
        rows = np.sort(at)
        more = 100 - count
        cut = slice(0, None if more >= 0 else more)
        long, indices = exe(x)

        np.testing.assert_array_equal(long, np.pad(x[rows], (0, max(more, 0)))[cut])
        padded = np.pad(rows + 3, (0, max(more, 0)), constant_values=7)
        np.testing.assert_array_equal(indices, padded[cut])

    assert_right(first)
    compiled = len(exe.artifacts)
    for count in (3, 7, 8, 15, 16, 17, 33, 64, 65, 98):
        assert_right(count)

    assert len(exe.artifacts) == compiled
    for count in (0, 1, 2, 99, 100, 101, 130):
        assert_right(count)


def products_and_sums() -> ag.Executable:
    """Return y = x times weights and z, the sums of its rows, in other order than they are made."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("ReduceSum", ["y", "one"], ["z"], keepdims=0),
    ]
    constants = {"w": np.arange(12, dtype=np.float32).reshape(4, 3), "one": ints(1)}
    return ag.compile(model(nodes, {"x": ("N", 4)}, constants, ("z", "y")), threads=1)


def test_calls_of_shapes_that_have_been_met_give_the_same() -> None:
    exe = products_and_sums()
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    rng = np.random.default_rng(0)
    kept = []
    for rows in (3, 8, 3, 3, 1, 8, 0, 3, 1, 0, *range(90), 3):
        x = rng.integers(-9, 9, (rows, 4)).astype(np.float32)
        for given in (x, np.asfortranarray(x), x[::-1][::-1], x.tolist() if rows else x):
            found = exe.run({"x": given})
            kept.append((x @ w, found["y"]))
            assert list(found) == ["z", "y"]
            np.testing.assert_array_equal(found["z"], (x @ w).sum(1))
        z, y = exe(x)
        np.testing.assert_array_equal(y, x @ w)
        np.testing.assert_array_equal(z, (x @ w).sum(1))
    for expected, y in kept:  # no call wrote over what an earlier one had returned
        np.testing.assert_array_equal(y, expected)


def test_what_does_not_fit_is_refused_after_calls_that_did() -> None:
    exe = products_and_sums()
    x = np.ones((5, 4), np.float32)
    for _ in range(3):
        exe(x)
    for wrong in (x.astype(np.float64), x[:, :3], x[0], x.astype(">f4")[:, :2], "x", None):
        with pytest.raises(FeedError):
            exe(wrong)
        with pytest.raises(FeedError):
            exe.run({"x": wrong})
    with pytest.raises(FeedError):
        exe.run({"w": x})
    with pytest.raises(FeedError):
        exe(x, x)
    np.testing.assert_array_equal(exe(x)[0], exe.run({"x": x.astype(">f4")})["z"])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_weights_of_bytes_are_summed_up_once_whatever_the_batch_is(dtype: str) -> None:
    rng = np.random.default_rng(0)
    w = rng.integers(*((-128, 128) if dtype == "int8" else (0, 256)), (16, 24)).astype(dtype)
    constants = {"w": w, "a": np.array(7, np.uint8), "b": np.array(3, dtype)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "a", "b"], ["y"])]
    made = model(nodes, {"x": ("N", "M", 16)}, constants, ("y",), {"x": TensorProto.UINT8})
    exe = ag.compile(made, threads=1)
    for batch, rows in ((3, 5), (2, 2), (7, 9), (1, 4), (4, 1), (0, 3)):
        x = rng.integers(0, 256, (batch, rows, 16)).astype(np.uint8)
        expected = (x.astype(np.int64) - 7) @ (w.astype(np.int64) - 3)
        np.testing.assert_array_equal(exe(x), expected)
    for artifact in exe.artifacts:
        sums = [i for i in artifact.program.instrs() if isinstance(i.op, SumBytes)]
        assert all(r.buffer == "x" for i in sums for r in i.ins)

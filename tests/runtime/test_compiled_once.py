"""A call compiles nothing that an earlier call with the same shapes compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from alpenglow.driver import journal
from loop_cases import compiled, looping
from staged_cases import BOOL, I64, count, info, node, numbers

pytestmark = pytest.mark.usefixtures("own_cache", "loops_in_parts")

ROWS, WIDTH = 40, 3


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Yield the names of the graphs that are compiled."""
    names: list[str] = []
    original = journal.compiled

    def compiled_(name: str, *given: Any) -> Any:
        names.append(name)
        return original(name, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(journal, "compiled", compiled_)
        yield names


COUNTER = {"one": np.array([1]), "zero": np.array([0]), "axis": np.array([0]), "step": np.array(1)}

NEXT = [node("Add", ["k", "one"], ["k2"]), node("Tanh", ["s"], ["s2"])]
"""The counter moves on, and so does the state, which is a row to write."""

NEXT_IN_FLOATS = [
    node("Cast", ["k"], ["kf"], to=onnx.TensorProto.FLOAT),
    node("Constant", [], ["onef"], value_floats=[1.0]),
    node("Add", ["kf", "onef"], ["kf2"]),
    node("Cast", ["kf2"], ["k2"], to=I64),
    NEXT[1],
]

BY_SCATTER = [
    *NEXT, node("Unsqueeze", ["k", "zero"], ["at"]), node("ScatterND", ["t", "at", "s2"], ["t2"]),
]  # fmt: skip

BY_TWO_SCATTERS = [
    *BY_SCATTER[:-1], node("ScatterND", ["t", "at", "s"], ["t1"]),
    node("ScatterND", ["t1", "at", "s2"], ["t2"], reduction="add"),
]  # fmt: skip

BY_RANGE = [
    *NEXT_IN_FLOATS,
    node("Shape", ["t"], ["size"]), node("Gather", ["size", "zero"], ["rows"]),
    node("Min", ["rows", "k2"], ["end"]), node("Slice", ["t", "k", "end", "axis"], ["part"]),
    node("Shape", ["part"], ["part_size"]), node("Expand", ["s2", "part_size"], ["update"]),
    node("Squeeze", ["k"], ["from"]), node("Squeeze", ["end"], ["to"]),
    node("Range", ["from", "to", "step"], ["range"]),
    node("Constant", [], ["column"], value_ints=[-1, 1]),
    node("Reshape", ["range", "column"], ["places"]),
    node("Expand", ["places", "part_size"], ["index"]),
    node("ScatterElements", ["t", "index", "update"], ["t2"], axis=0),
]  # fmt: skip

BY_CONCAT = [
    *NEXT, node("Slice", ["t", "zero", "k", "axis"], ["before"]),
    node("Shape", ["t"], ["size"]), node("Gather", ["size", "zero"], ["rows"]),
    node("Slice", ["t", "k2", "rows", "axis"], ["behind"]),
    node("Concat", ["before", "s2", "behind"], ["t2"], axis=0),
]  # fmt: skip


def writing(nodes: list[Any]) -> onnx.ModelProto:
    """Return a loop that writes a state into row after row of a table."""
    carried = [info("k", [1], I64), info("t", ["R", WIDTH]), info("s", [1, WIDTH])]
    return looping(nodes, carried, [info("k2", None, I64), "t2", "s2"], COUNTER)


def writes(trips: int, rows: int = ROWS, first: int = 0) -> dict[str, Any]:
    return {"n": count(trips), "a0": np.array([first]), "a1": numbers(rows, WIDTH),
            "a2": numbers(1, WIDTH, seed=1)}  # fmt: skip


def peer(made: onnx.ModelProto, feeds: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    result: list[Any] = session.run(None, feeds)
    return result


@pytest.mark.parametrize(
    "nodes", [BY_SCATTER, BY_TWO_SCATTERS, BY_RANGE, BY_CONCAT],
    ids=["scatter", "two scatters", "range", "concat"],
)  # fmt: skip
def test_a_loop_that_writes_rows_is_compiled_in_its_first_call(nodes: list[Any]) -> None:
    made = writing(nodes)
    exe = compiled(made, threads=1)
    exe.run(writes(ROWS))
    calls = [writes(ROWS), writes(ROWS - 9, first=9), writes(5, first=2), writes(ROWS)]
    with compilations() as names:
        results = [exe.run(feeds) for feeds in calls]

    for feeds, got in zip(calls, results, strict=True):
        for want, array in zip(peer(made, feeds), got.values(), strict=True):
            np.testing.assert_allclose(array, want, rtol=1e-6, atol=1e-6)
    assert names == []


def reading_while_written(nodes: list[Any], more: list[str]) -> onnx.ModelProto:
    carried = [info("k", [1], I64), info("t", ["R", WIDTH]), info("s", [1, WIDTH])]
    results = [info("k2", None, I64), "t2", "s2", *more]
    return looping(nodes, carried, results, COUNTER, collected=len(more))


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("nodes", [BY_SCATTER, BY_TWO_SCATTERS, BY_CONCAT])
def test_what_reads_a_table_sees_it_before_it_is_written(nodes: list[Any], late: bool) -> None:
    """The old table is collected, or sums of it and of the new one are."""
    reads = [node("Sub", ["t2", "t"], ["changes"])] if late else [node("Neg", ["t"], ["changes"])]
    made = reading_while_written([*nodes, *reads], ["changes"])
    exe = compiled(made, threads=1)
    for feeds in (writes(7), writes(7), writes(4, first=3)):
        got = exe.run(feeds)
        for want, array in zip(peer(made, feeds), got.values(), strict=True):
            np.testing.assert_allclose(array, want, rtol=1e-6, atol=1e-6)


def counting_floats(limit: float) -> onnx.ModelProto:
    """Return a loop until a computed sum is large enough."""
    nodes = [
        node("Add", ["x", "x"], ["x2"]), node("ReduceSum", ["x2"], ["sum"], keepdims=0),
        node("Less", ["sum", "limit"], ["goes"]),
    ]  # fmt: skip
    return looping(nodes, [info("x", ["K"])], ["x2"], {"limit": np.float32(limit)}, goes=None)


def reading() -> onnx.ModelProto:
    """Return a loop that goes through a captured table by a counter of its own."""
    nodes = [
        node("Add", ["k", "one"], ["k2"]), node("Slice", ["x", "k", "k2", "axis"], ["row"]),
        node("Add", ["s", "row"], ["s2"]),
    ]  # fmt: skip
    carried = [info("k", [1], I64), info("s", [1, WIDTH])]
    table = [info("x", ["R", WIDTH])]
    return looping(nodes, carried, [info("k2", None, I64), "s2"], COUNTER, inputs=table)


def decoding() -> onnx.ModelProto:
    """Return a loop that ends by its counter, as Paddle2ONNX writes one, its weights in nodes."""
    weights = onnx.numpy_helper.from_array(numbers(WIDTH, WIDTH))
    nodes = [
        *BY_RANGE, node("MatMul", ["s2", "w"], ["s3"]), node("Less", ["k2", "last"], ["less"]),
        node("Cast", ["less"], ["number"], to=I64), node("Add", ["number", "zero"], ["sum"]),
        node("Squeeze", ["zero"], ["scalar"]), node("Cast", ["sum"], ["goes1"], to=BOOL),
        node("Squeeze", ["goes1"], ["goes"]),
    ]  # fmt: skip
    carried = [info("k", [1], I64), info("t", ["R", WIDTH]), info("s", [1, WIDTH])]
    made = looping(nodes, carried, [info("k2", None, I64), "t2", "s3"], COUNTER, goes=None)
    made.graph.node.insert(0, node("Constant", [], ["w"], value=weights))
    made.graph.node.insert(0, node("Constant", [], ["last"], value_ints=[ROWS - 5]))
    return made


def test_the_last_turn_is_no_other_code_and_weights_in_nodes_are_constants() -> None:
    made = decoding()
    exe = compiled(made, threads=1)
    got = exe.run(writes(ROWS))
    with compilations() as names:
        exe.run(writes(ROWS))

    for want, array in zip(peer(made, writes(ROWS)), got.values(), strict=True):
        np.testing.assert_allclose(array, want, rtol=1e-5, atol=1e-6)
    assert int(got["y0"][0]) == ROWS - 5
    assert names == []
    assert all("w" not in part.program.inputs for part in exe.artifacts)
    with compilations() as names:
        again = copy.deepcopy(exe).run(writes(ROWS))  # by way of an archive
    assert names == []
    assert all(np.array_equal(want, again[name]) for name, want in got.items())


OTHERS: dict[str, tuple[Callable[[], onnx.ModelProto], list[dict[str, Any]]]] = {
    "while": (
        lambda: counting_floats(1e6),
        [{"n": count(100), "a0": np.full(4, v, np.float32)} for v in (1, 0.01, 30)],
    ),
    "reading": (
        reading,
        [{"n": count(n), "a0": np.array([0]), "a1": numbers(1, WIDTH), "x": numbers(9, WIDTH)}
         for n in (3, 9, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_compile_nothing_for_other_numbers_of_turns(name: str) -> None:
    make, calls = OTHERS[name]
    made = make()
    exe = compiled(made, threads=1)
    exe.run(calls[0])
    with compilations() as names:
        results = [exe.run(feeds) for feeds in calls]

    assert names == []
    for feeds, got in zip(calls, results, strict=True):
        for want, array in zip(peer(made, feeds), got.values(), strict=True):
            np.testing.assert_allclose(array, want, rtol=1e-5, atol=1e-6)

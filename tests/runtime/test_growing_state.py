"""Variables that grow: caches of keys and values that a session keeps in place."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import alpenglow as ag
from alpenglow.base.errors import (
    FeedError,
    ModelError,
    OptionError,
    SessionError,
    TypeRuleError,
)
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Concat
from alpenglow.program import print_program
from alpenglow.runtime.session.session import Session
from growing_cases import decoder, ragged, rows, stopped

Array = NDArray[Any]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.sampled(2)
def test_a_session_answers_as_with_caches_that_are_handed_on(target: str, last: bool) -> None:
    plain = ag.compile(decoder(last), target=target)
    session = ag.compile(decoder(last), target=target, state=True).session(length=40)
    past = {n: np.zeros((2, 0, 8), np.float32) for n in ("past.0.key", "past.0.value")}
    for step, count in enumerate((7, 1, 1, 4, 1, 17, 1)):
        x = rows(count, 2, step)
        expected = plain.run({"x": x, **past})
        past = {n: expected[n.replace("past", "present")] for n in past}

        np.testing.assert_array_equal(session.run({"x": x})["y"], expected["y"])
    assert session.rows == 32
    np.testing.assert_array_equal(session.variables["past.0.key"], past["past.0.key"])


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_of_the_last_row_alone_no_other_is_computed(target: str) -> None:
    whole = ag.compile(decoder(), target=target, state=True).session(length=40)
    exe = ag.compile(decoder(), target=target, state=True, last=["y"])
    session = exe.session(length=40)
    for step, count in enumerate((7, 1, 4, 30)):
        if step == 3:
            whole.reset(), session.reset()
        x = rows(count, 2, step)
        y = session.run({"x": x})["y"]

        assert y.shape == (2, 1, 8)
        np.testing.assert_allclose(y, whole.run({"x": x})["y"][:, -1:], rtol=1e-5)
    assert session.rows == whole.rows == 30
    rows_of_products = [
        {r.type.shape[-2] for i in artifact.program.instrs() for r in i.outs
         if any(isinstance(op, MatMul) for op in i.operators())}
        for artifact in exe.artifacts
    ]  # fmt: skip
    assert {1} in rows_of_products


def test_last_wants_state_and_an_output_with_the_rows_of_a_call() -> None:
    with pytest.raises(OptionError, match="which only state tells"):
        ag.compile(decoder(), last=["y"])
    with pytest.raises(OptionError, match="output is 'z', expected one of y"):
        ag.compile(decoder(), state=True, last=["z"])
    with pytest.raises(OptionError, match="expected a list"):
        ag.compile(decoder(), state=True, last="y")
    g = decoder()
    g.output("constant", g.constant(np.zeros(3, np.float32)))
    with pytest.raises(OptionError, match=r"has 0 axes of S, the rows of a call"):
        ag.compile(g, state=True, last=["constant"])


def test_only_new_rows_are_written() -> None:
    exe = ag.compile(decoder(), state=True)
    exe.session(length=9)(rows(2))
    program = exe.artifacts[0].program
    copies = [i for i in program.instrs() if isinstance(i.op, Copy)]

    assert len(copies) == 2
    assert all(str(i.outs[0].type.shape[1]) == "S" for i in copies), print_program(program)


def test_another_length_plans_and_compiles_nothing() -> None:
    exe = ag.compile(decoder(), state=True)
    first, second = exe.session(length=20), exe.session(length=33)
    for session in (first, second):
        for count in (3, 1, 1):
            y = session(rows(count))

    assert len(exe.artifacts) <= 3
    np.testing.assert_array_equal(first(rows(1)), second(rows(1)))
    assert y.shape == (1, 1, 8)


def test_trim_and_fork_go_back_and_part() -> None:
    session = ag.compile(decoder(), state=True).session(length=10)
    session(rows(4))
    other = session.fork()
    expected = session(rows(1, seed=1))
    session(rows(3, seed=2))
    session.trim(4)

    assert (session.rows, other.rows) == (4, 4)
    np.testing.assert_array_equal(session(rows(1, seed=1)), expected)
    np.testing.assert_array_equal(other(rows(1, seed=1)), expected)


def test_state_is_saved_and_loaded_with_other_lengths_and_from_an_archive(tmp_path: Path) -> None:
    exe = ag.compile(decoder(), state=True)
    session = exe.session(length=10)
    session(rows(4))
    session.save(tmp_path / "state.npz")
    expected = session(rows(1, seed=1))
    exe.save(tmp_path / "decoder.ago")
    other = ag.open(tmp_path / "decoder.ago").session(length=64)
    other.load(tmp_path / "state.npz")

    assert other.rows == 4
    np.testing.assert_array_equal(other(rows(1, seed=1)), expected)


def test_more_rows_than_there_is_room_for_are_refused_and_change_nothing() -> None:
    session = ag.compile(decoder(), state=True).session(length=5)
    session(rows(4))
    twin = session.fork()

    with pytest.raises(FeedError, match="needs 6 rows of state, but the session has room for 5"):
        session(rows(2))
    np.testing.assert_array_equal(session(rows(1)), twin(rows(1)))


def test_what_is_no_number_of_rows_is_refused(tmp_path: Path) -> None:
    exe = ag.compile(decoder(), state=True)
    session = exe.session(length=5)
    session(rows(3))
    session.save(tmp_path / "state.npz")
    (tmp_path / "other.npz").write_bytes(b"PK\x03\x04 nothing")
    another = decoder()
    another.name = "another"

    for wrong in (-1, 4, True, 1.0):
        with pytest.raises(SessionError, match="expected 0 to 3"):
            session.trim(wrong)  # type: ignore[arg-type]
    for length in (None, 0, -3, True):
        with pytest.raises(OptionError, match="the most rows of its state"):
            exe.session(length)
    with pytest.raises(OptionError, match="no variable of decoder grows"):
        ag.compile(decoder()).session(length=3)
    with pytest.raises(SessionError, match="holds 3 rows, expected at most 2"):
        exe.session(length=2).load(tmp_path / "state.npz")
    with pytest.raises(ModelError, match="expected a state"):
        session.load(tmp_path / "other.npz")
    with pytest.raises(SessionError, match="another model"):
        ag.compile(another, state=True).session(length=5).load(tmp_path / "state.npz")
    with pytest.raises(FeedError, match="room for"):
        session(rows(1, batch=2))
    assert session.rows == 3


def test_inputs_and_outputs_are_paired_by_name_or_as_said() -> None:
    g = decoder()
    named = {"past.0.value": "present.0.value"}
    exe = ag.compile(g, state=named)

    assert list(exe.inputs) == ["x", "past.0.key"]
    assert list(exe.outputs) == ["y", "present.0.key"]
    for wrong, why in (
        ({"past.0.key": "y"}, "grown along one dynamic dimension"),
        ({"nothing": "y"}, "input is 'nothing', expected one of"),
        ({"past.0.key": "nothing"}, "output is 'nothing', expected one of"),
    ):
        with pytest.raises(OptionError, match=why):
            ag.compile(g, state=wrong)
    plain = ag.Graph("plain")
    plain.output("y", plain.input("x", "f32[N]"))
    with pytest.raises(OptionError, match="no input of plain has a name that pairs it"):
        ag.compile(plain, state=True)


def test_an_input_and_an_output_of_one_name_are_a_pair() -> None:
    g = decoder()
    for name in ("past.0.key", "past.0.value"):
        g.outputs[name] = g.outputs.pop(name.replace("past", "present"))
    exe = ag.compile(g, state=True)
    session = exe.session(length=4)
    session(rows(2))

    assert list(exe.inputs) == ["x"] and list(exe.outputs) == ["y"]
    assert session.rows == 2


def test_the_first_nan_is_told_once() -> None:
    session = ag.compile(decoder(), state=True).session(length=10)
    session(rows(1))
    x = rows(1)
    x[0, 0, 3] = np.nan

    with pytest.warns(RuntimeWarning, match=r"output 'y' of decoder is NaN at .* in call 2"):
        session(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(rows(1))


def test_a_graph_with_a_variable_that_grows_is_text() -> None:
    g = ag.Graph("cache")
    x = g.input("x", "f32[S,4]")
    g.assign("kept", g(Concat(0), g.growing_variable("kept", "f32[P,4]", 0), x))

    text = print_graph(g)
    assert "variable %kept : f32[P,4] grows along 0" in text
    assert print_graph(parse_graph(text)) == text
    with pytest.raises(TypeRuleError, match="cannot grow"):
        g.growing_variable("other", "f32[3,4]", 0)
    with pytest.raises(TypeRuleError, match="is assigned"):
        other = ag.Graph("other")
        other.growing_variable("kept", "f32[P,4]", 0)
        other.assign("kept", other.input("x", "f32[S,5]"))


def test_rows_at_positions_that_are_data_are_written_in_place() -> None:
    plain = ag.compile(ragged())
    exe = ag.compile(ragged(), state=True)
    session = exe.session(length=16)
    past = np.zeros((2, 0, 8), np.float32)
    for step, (count, starts) in enumerate([(5, [0, 0]), (1, [5, 3]), (1, [6, 4]), (2, [7, 5])]):
        feeds = {"x": rows(count, 2, step), "start": np.array(starts)}
        expected = plain.run({**feeds, "past.0.key": past})
        past = expected["present.0.key"]

        np.testing.assert_array_equal(session.run(feeds)["y"], expected["y"])
    np.testing.assert_array_equal(session.variables["past.0.key"], past)
    arena = [b.type for b in exe.artifacts[0].program.buffers.values() if b.space == "arena"]
    assert not any(t is not None and t.rank == 3 and "P" in str(t.shape[1]) for t in arena)


def test_a_call_that_fails_loses_nothing_that_was_only_added_to() -> None:
    session = ag.compile(stopped(decoder()), state=True).session(length=9)
    good = {"row": np.array([0])}
    session.run({"x": rows(3), **good})
    twin = session.fork()

    with pytest.raises(FeedError, match="expected 0 to 0"):
        session.run({"x": rows(2, seed=1), "row": np.array([1])})
    answers = [s.run({"x": rows(1, seed=2), **good})["y"] for s in (session, twin)]
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize("make", [lambda: decoder(last=True), ragged])
def test_a_call_that_fails_loses_what_may_be_written_over(make: Any) -> None:
    session = ag.compile(stopped(make()), state=True).session(length=9)
    feeds = {"x": rows(3, 2), "start": np.zeros(2, np.int64), "row": np.array([0])}
    feeds = {name: x for name, x in feeds.items() if name in session.inputs}
    session.run(feeds)

    with pytest.raises(FeedError):
        session.run({**feeds, "row": np.array([1])})
    with pytest.raises(SessionError, match="may have changed in place"):
        session.run(feeds)
    session.reset()
    assert session.run(feeds)["y"].shape[0] == 2


def test_damaged_states_are_refused_and_change_nothing(tmp_path: Path) -> None:
    session = ag.compile(decoder(), state=True).session(length=9)
    session(rows(4))
    path = tmp_path / "state.npz"
    session.save(path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for turn in range(300):
        damaged = bytearray(whole)
        if turn % 3:
            for place in rng.integers(0, len(whole), 1 + turn % 4):
                damaged[place] ^= int(rng.integers(1, 256))
        else:
            del damaged[int(rng.integers(0, len(whole))) :]
        path.write_bytes(damaged)
        try:
            session.load(path)
        except (ModelError, SessionError):
            assert session.rows == 4


def test_instructions_of_a_decoder_are_timed() -> None:
    exe = ag.compile(decoder(), state=True)

    assert "mat_mul" in str(exe.timings({"x": rows(3)}, rounds=1))


def test_an_output_is_one_input_of_the_next_call() -> None:
    twice = {"past.0.key": "present.0.key", "past.0.value": "present.0.key"}
    with pytest.raises(OptionError, match="share an output"):
        ag.compile(decoder(), state=twice)
    with pytest.raises(OptionError, match="expected True"):
        ag.compile(decoder(), state="past.0.key")  # type: ignore[arg-type]


# ── caches of which a window is read ──


def windowed(window: int) -> onnx.ModelProto:
    """Return attention of new rows over the last `window` rows, as exporters write it."""
    make, number = helper.make_node, TensorProto.FLOAT
    bounds = {"from": [-window], "to": [2**31 - 1], "axis": [1]}
    nodes = [
        make("Concat", ["past", "x"], ["present"], axis=1),
        make("Slice", ["present", *bounds], ["keys"]),
        make("Transpose", ["keys"], ["turned"], perm=[0, 2, 1]),
        make("MatMul", ["x", "turned"], ["scores"]),
        make("Softmax", ["scores"], ["shares"], axis=-1),
        make("MatMul", ["shares", "keys"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info(n, number, [1, r, 8]) for n, r in ("xS", ("past", "P"))]
    outputs = [helper.make_tensor_value_info("y", number, None),
               helper.make_tensor_value_info("present", number, [1, "Q", 8])]  # fmt: skip
    initial = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in bounds.items()]
    graph = helper.make_graph(nodes, "windowed", inputs, outputs, initial)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def attended(x: Array, keys: Array) -> Array:
    scores = np.exp(x @ keys.transpose(0, 2, 1))
    return scores / scores.sum(-1, keepdims=True) @ keys


@pytest.mark.parametrize(("window", "counts"), [(1, (1, 1, 2)), (4, (1, 1, 3, 1, 5)), (4, (6, 1))])
def test_a_decoder_begins_with_fewer_rows_than_it_reads(
    tmp_path: Path, window: int, counts: tuple[int, ...]
) -> None:
    """The import takes for granted that the window is full."""
    exe = ag.compile(windowed(window), threads=1, state={"past": "present"})

    def follow(session: Session) -> None:
        past = np.empty((1, 0, 8), np.float32)
        for seed, count in enumerate(counts):
            x = rows(count, seed=seed)
            past = np.concatenate([past, x], 1)
            expected = attended(x, past[:, -window:])
            np.testing.assert_allclose(session.run({"x": x})["y"], expected, 1e-5, 1e-5)

    session = exe.session(16)
    follow(session)
    session.reset()
    follow(session)
    exe.save(tmp_path / "m.ago")
    follow(ag.open(tmp_path / "m.ago", threads=1).session(16))  # of what calls had led to

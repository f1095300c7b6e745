"""Decoders behind an encoder: what another model computed begins a session, and what stays is given
once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import FeedError, SessionError, UnsupportedError
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.tensor.movement import Concat
from encoder_decoder_cases import DECODER, ENCODER, feeds, first, later, merged, past
from growing_cases import decoder, rows

Array = NDArray[Any]
BRANCH, MASK, TOKEN = "use_cache_branch", "encoder_attention_mask", "input_ids"


def begun(exe: ag.Executable, fed: dict[str, Array], began: dict[str, Array]) -> ag.Session:
    """Return a session of later steps that goes on from what a first step returned."""
    lasting = {MASK: fed[MASK], **past(began, ENCODER)}
    session = exe.session(length=32, inputs=lasting)
    session.variables.update(past(began, DECODER))
    return session


@pytest.mark.rest
@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.sampled(0, "1-cpu")
def test_twenty_steps_equal_those_with_caches_that_are_handed_on(target: str, batch: int) -> None:
    fed = feeds(3, batch)
    began = ag.compile(first(), target=target).run(fed)
    plain = ag.compile(later(), target=target)
    session = begun(ag.compile(later(), target=target, state=True), fed, began)
    given = {MASK: fed[MASK], **past(began, ENCODER), **past(began, DECODER)}
    for step in range(20):
        token = {TOKEN: np.full((batch, 1), step % 11)}
        expected = plain.run({**token, **given})
        given |= past(expected, DECODER)

        np.testing.assert_array_equal(session.run(token)["logits"], expected["logits"])
    assert session.rows == 23
    key = "past_key_values.1.decoder.key"
    np.testing.assert_array_equal(session.variables[key], given[key])


@pytest.mark.rest
def test_twenty_steps_equal_those_of_both_decoders_in_one_model() -> None:
    fed = feeds(3)
    staged = ag.compile(merged())
    nothing = {n: np.zeros((1, 2, 0, 4), np.float32)
               for n in staged.inputs if n.startswith("past_key_values")}  # fmt: skip
    expected = staged.run({**fed, **nothing, BRANCH: np.array([False])})
    began = ag.compile(merged(), constants={BRANCH: False}).run(fed)
    session = begun(ag.compile(merged(), constants={BRANCH: True}, state=True), fed, began)
    given = {**fed, **past(began, ENCODER), **past(began, DECODER), BRANCH: np.array([True])}
    assert list(session.inputs) == [TOKEN]
    for step in range(20):
        for name in began if step == 0 else ():
            np.testing.assert_array_equal(began[name], expected[name])
        given[TOKEN] = np.array([[step % 11]])
        expected = staged.run(given)
        given |= past(expected, DECODER)

        np.testing.assert_array_equal(session(given[TOKEN]), expected["logits"])


@pytest.mark.rest
def test_forks_share_what_lasts_and_a_reset_keeps_it(tmp_path: Path) -> None:
    fed = feeds(3)
    began = ag.compile(first()).run(fed)
    exe = ag.compile(later(), state=True)
    session = begun(exe, fed, began)
    session.save(tmp_path / "state.npz")
    other = exe.session(length=40, inputs={MASK: fed[MASK], **past(began, ENCODER)})
    other.load(tmp_path / "state.npz")
    sessions = [session, session.fork(), other]
    first_answer, *others = [s(np.array([[4]])) for s in sessions]
    session.reset()
    session.variables.update(past(began, DECODER))

    for answer in (*others, session(np.array([[4]]))):
        np.testing.assert_array_equal(answer, first_answer)
    assert f"given {MASK}, past_key_values.0.encoder.key" in repr(session)


def test_what_lasts_is_copied_when_it_is_given() -> None:
    g = ag.Graph("sum")
    a, b = g.input("a", "f32[N]"), g.input("b", "f32[N]")
    g.output("y", g(Add(), a, b))
    lasting = np.ones(3, np.float32)
    session = ag.compile(g).session(inputs={"a": lasting})
    lasting[:] = 7

    np.testing.assert_array_equal(session(np.zeros(3, np.float32)), np.ones(3))
    np.testing.assert_array_equal(session(b=np.ones(3, np.float32)), 2 * np.ones(3))


@pytest.mark.rest
def test_what_lasts_and_does_not_fit_is_refused() -> None:
    fed = feeds(3)
    began = ag.compile(first()).run(fed)
    exe = ag.compile(later(), state=True)
    lasting = {MASK: fed[MASK], **past(began, ENCODER)}
    key = "past_key_values.1.encoder.key"
    for wrong, why in (
        ({"nothing": fed[MASK]}, "feeds hold nothing, expected inputs"),
        ({key: began["present.1.encoder.key"].astype(np.float64)}, "is float64, expected float32"),
        ({key: began["present.1.encoder.key"][:, :1]}, r"shape \(1, 1, 5, 4\), expected"),
        ({key: began["present.1.encoder.key"][:, :, :4]}, "where the other inputs make it"),
        ({"past_key_values.1.decoder.key": fed[MASK]}, "expected inputs"),
    ):
        with pytest.raises(FeedError, match=why):
            exe.session(length=9, inputs={**lasting, **wrong})
    with pytest.raises(FeedError, match="inputs is a list"):
        exe.session(length=9, inputs=[fed[MASK]])  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="no type before a call"):
        ranked = merged()
        ranked.graph.input[0].type.tensor_type.ClearField("shape")
        ag.compile(ranked).session(inputs={TOKEN: fed[TOKEN]})


@pytest.mark.rest
def test_what_lasts_is_not_given_again() -> None:
    fed = feeds(3)
    session = begun(ag.compile(later(), state=True), fed, ag.compile(first()).run(fed))
    token = np.array([[1]])

    with pytest.raises(FeedError, match=f"'{MASK}' was given to this session"):
        session.run({TOKEN: token, MASK: fed[MASK]})
    with pytest.raises(FeedError, match=f"'{MASK}' was given to this session"):
        session(token, **{MASK: fed[MASK]})
    with pytest.raises(FeedError, match="got 2 arrays, expected 1: input_ids"):
        session(token, fed[MASK])
    with pytest.raises(FeedError, match="feeds are a list"):
        session.run([token])  # type: ignore[arg-type]
    with pytest.raises(FeedError, match="feeds lack input_ids"):
        session.run({})
    assert session.rows == 3


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_rows_that_are_set_are_those_of_the_next_call(target: str) -> None:
    plain = ag.compile(decoder(), target=target)
    session = ag.compile(decoder(), target=target, state=True).session(length=6)
    session(rows(5, 2))
    keys, values = rows(3, 2, seed=1), np.asfortranarray(rows(3, 2, seed=2))
    before = {"past.0.key": keys, "past.0.value": values}
    for name, array in before.items():
        session.variables[name] = array
    x = rows(1, 2, seed=3)

    np.testing.assert_array_equal(session(x), plain.run({"x": x, **before})["y"])
    np.testing.assert_array_equal(session.variables["past.0.key"][:, :3], keys)
    assert session.rows == 4


def test_rows_are_set_together() -> None:
    session = ag.compile(decoder(), state=True).session(length=6)
    session(rows(5))
    kept = dict(session.variables)
    differ = {"past.0.key": rows(3), "past.0.value": rows(2)}

    with pytest.raises(SessionError, match="grow together, but have 3 and 2 rows"):
        session.variables.update(differ)
    with pytest.raises(SessionError, match="grow together, but have 3 and 5 rows"):
        session.variables.update({"past.0.key": rows(3)})
    with pytest.raises(FeedError, match="variable is 'past"):
        session.variables.update({"past.0.key": rows(5, seed=3), "past.1.key": rows(5)})
    np.testing.assert_array_equal(session.variables["past.0.key"], kept["past.0.key"])

    session.variables["past.0.key"] = rows(3)
    with pytest.raises(SessionError, match="grow together, but have 3 and 5 rows"):
        session(rows(1))
    session.variables["past.0.value"] = rows(3)
    session(rows(1))


def test_rows_that_do_not_fit_are_refused_and_change_nothing() -> None:
    session = ag.compile(decoder(), state=True).session(length=6)
    session(rows(5, seed=1))
    twin = session.fork()
    for wrong, why in (
        (rows(7), "room for 6"),
        (rows(2).astype(np.float16), "is float16, expected float32"),
        (rows(2)[0], "has shape"),
        (rows(2)[:, :, :7], r"is set to shape \(1, 2, 7\), expected f32\[B,P,8\]"),
    ):
        with pytest.raises(FeedError, match=why):
            session.variables["past.0.key"] = wrong
    np.testing.assert_array_equal(session(rows(1)), twin(rows(1)))


def test_a_session_whose_variables_do_not_go_together_says_so() -> None:
    session = ag.compile(decoder(), state=True).session(length=6)
    session.variables.update({"past.0.key": rows(2, 2), "past.0.value": rows(2, 1)})
    with pytest.raises(FeedError, match="has room for"):
        session(rows(1, 2))
    g = ag.Graph("pairs")
    x, kept = g.input("x", "f32[2*S]"), g.growing_variable("kept", "f32[2*P]", 0)
    g.output("y", g(Add(), x, x))
    g.assign("kept", g(Concat(0), kept, x))
    pairs = ag.compile(g).session(length=8)
    pairs(np.ones(2, np.float32))

    pairs.variables["kept"] = np.ones(3, np.float32)
    with pytest.raises(SessionError, match="variable 'kept' has 3 rows, expected another"):
        pairs(np.ones(2, np.float32))

"""State in bundles that bring their own calls: sessions of wheels, and loaded WebAssembly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from growing_cases import decoder, ragged, rows, stopped
from test_bundle_state import STEP, keeping, masked
from test_bundle_wasm import script
from test_bundle_wheel import imported, wheel

TWIN = "x86-64-v2"
"""The target whose kernels compute what those of wasm32 do."""


def bias(count: int) -> Any:
    return np.linspace(-3, 3, count, dtype=np.float32)[None]


def stateful(g: ag.Graph, folder: Path, **options: Any) -> Any:
    settings = {"entry": "net", "state": True, "shapes": STEP, **options}
    return imported(wheel(g, folder / "out", **settings))


def test_a_session_of_a_wheel_goes_on_from_call_to_call(tmp_path: Path) -> None:
    net = stateful(masked(), tmp_path, length=6)
    session, other = net.session(), net.session()
    expected = ag.compile(masked(), threads=1, shapes=STEP, state=True).session(length=6)
    assert net.__all__ == ["session"] and "mask: float32[1,rows+1]" in repr(session)
    for step in range(6):
        x = rows(1, 1, step)
        y = session(x, mask=bias(step + 1))
        assert y.tobytes() == expected(x, bias(step + 1)).tobytes()

    assert (session.rows, session.length, other.rows) == (6, 6, 0)
    with pytest.raises(RuntimeError, match="the state is full, expected at most 6 rows"):
        session(x, bias(7))
    with pytest.raises(ValueError, match=r"shape \(1, 3\), expected \(1, 1\)"):
        other(x, bias(3))
    for wrong in (-1, 7, True, 1.0):
        with pytest.raises(ValueError, match="expected 0 to 6"):
            session.trim(wrong)
    session.trim(5)
    assert session(x, bias(6)).tobytes() == y.tobytes()
    session.reset()
    assert session.rows == 0


def test_a_session_takes_the_entry_point_that_fits(tmp_path: Path) -> None:
    variants = {"prompt": {"x": (1, 4, 8)}, "step": STEP}
    net = stateful(decoder(), tmp_path, length=9, shapes=None, variants=variants)
    session, singly = net.session(), net.session()
    x = rows(6)
    session(x[:, :4])
    each = [singly(x[:, [k]]) for k in range(6)]

    np.testing.assert_allclose(session(x[:, [4]]), each[4], rtol=0, atol=1e-5)
    assert session.rows == 5
    with pytest.raises(ValueError, match="shapes are"):
        session(x[:, :3])


def test_a_session_whose_state_was_lost_says_so(tmp_path: Path) -> None:
    net = stateful(stopped(ragged()), tmp_path, length=4, shapes={"x": (2, 1, 8)})
    session = net.session()
    feeds = {"x": rows(1, 2), "start": np.zeros(2, np.int64)}
    session(**feeds, row=np.array([0]))
    with pytest.raises(IndexError, match="index is 3, expected one within its axis"):
        session(**feeds, row=np.array([3]))

    with pytest.raises(RuntimeError, match="lost the state"):
        session(**feeds, row=np.array([0]))
    session.reset()
    assert session(**feeds, row=np.array([0]))[0].shape == (2, 1, 1)


def test_a_session_of_a_wheel_keeps_variables_of_fixed_size(tmp_path: Path) -> None:
    session = stateful(keeping(), tmp_path, state=False, shapes=None).session()
    expected = ag.compile(keeping(), threads=1).session()
    for turn in range(4):
        x, i = np.full((3, 3), turn, np.float32), np.array([turn % 2])
        for actual, wanted in zip(session(x, i), expected(x, i), strict=True):
            assert actual.tobytes() == wanted.tobytes()
    with pytest.raises(ValueError, match="expected 0 to 0"):
        session.trim(1)


@pytest.mark.cross
def test_a_loaded_module_keeps_state(tmp_path: Path) -> None:
    made = ag.bundle(masked(), tmp_path / "out", entry="net", target="wasm32", format="wasm",
                     state=True, length=6, shapes=STEP)  # fmt: skip
    x, y = rows(1).reshape(-1), []
    session = ag.compile(masked(), TWIN, 1, shapes=STEP, state=True).session(length=6)
    for step in range(6):
        y.append(session(x.reshape(1, 1, 8), bias(step + 1)).reshape(-1).tolist())
    text = script(
        made,
        f"""
        const x = new Float32Array({x.tolist()});
        const masks = {[bias(n + 1)[0].tolist() for n in range(7)]};
        const step = (n) => net.run({{ x, mask: new Float32Array(masks[n]) }}).y;
        const said = (f) => {{ try {{ f(); return ""; }} catch (e) {{ return e.message; }} }};
        const all = [0, 1, 2, 3, 4, 5].map((n) => [...step(n).data]);
        const refused = [() => step(6), () => net.trim(-1), () => net.trim(7)].map(said);
        net.trim(5);
        const last = [...step(5).data], counts = [net.rows(), net.length];
        net.reset();
        refused.push(said(() => step(3)));
        console.log(JSON.stringify({{ all, refused, last, counts, reset: net.rows() }}));
    """,
    )
    found = json.loads(text)

    assert (found["all"], found["last"]) == (y, y[5])
    assert (found["counts"], found["reset"]) == ([6, 6], 0)
    refusals = ("the state is full", "expected 0 to 6", "expected 0 to 6", "expected 1 elem")
    for said, expected in zip(found["refused"], refusals, strict=True):
        assert expected in said


@pytest.mark.cross
def test_a_loaded_module_keeps_variables_of_fixed_size(tmp_path: Path) -> None:
    made = ag.bundle(keeping(), tmp_path / "out", entry="net", target="wasm32", format="wasm")
    session = ag.compile(keeping(), TWIN, 1).session()
    x = np.full((3, 3), 2, np.float32)
    expected = [session(x, np.array([0]))[1].reshape(-1).tolist() for _ in range(3)]
    text = script(
        made,
        """
        const feeds = { x: new Float32Array(9).fill(2), i: new BigInt64Array(1) };
        const ys = [0, 1, 2].map(() => [...net.run(feeds).y.data]);
        net.reset();
        console.log(JSON.stringify([...ys, [...net.run(feeds).y.data]]));
    """,
    )

    assert json.loads(text) == [*expected, expected[0]]

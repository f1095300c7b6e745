"""Arrays that a caller gave and writes later: graphs and executables stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.memory import ALIGNMENT, aligned_bytes, copied
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.train import SGD, Trainer


class Lent:
    """An array that is there by DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self.__dlpack__ = array.__dlpack__
        self.__dlpack_device__ = array.__dlpack_device__


def arrays() -> dict[str, Any]:
    """Return a weight that is aligned, so that nothing has to move it, and smaller arrays."""
    random = np.random.default_rng(0)
    w = aligned_bytes(4 * 64 * 64).view(np.float32).reshape(64, 64)
    w[...] = random.standard_normal((64, 64)) / 8
    return {"w": w, "bias": random.standard_normal((1, 64)).astype(np.float32),
            "state": np.ones((1, 64), np.float32)}  # fmt: skip


def graph(given: dict[str, Any], rows: str) -> ag.Graph:
    g = ag.Graph("owned")
    x = g.input("x", f"f32[{rows},64]")
    w, bias = g.constant(given["w"], "w"), g.constant(given["bias"], "bias")
    state = g.variable("state", given["state"])
    total = g(Add(), g(MatMul(), state, w), bias)
    g.assign("state", total)
    ones = g.constant(np.broadcast_to(np.float32(1), (64, 64)))
    g.output("y", g(MatMul(), g(MatMul(), x, w), ones))
    g.output("z", g(Mul(), total, bias))
    return g


@pytest.mark.parametrize("rows", ["3", "n"])
@pytest.mark.parametrize("when", ["built", "compiled", "begun"])
def test_what_is_written_later_into_arrays_of_a_graph_changes_nothing(
    rows: str, when: str
) -> None:  # fmt: skip
    x = np.ones((3, 64), np.float32)

    def results(write: Callable[[str], None]) -> list[Any]:
        g = graph(given, rows)
        write("built")
        exe = ag.compile(g)
        write("compiled")
        session = exe.session()
        got = [session.run({"x": x})]
        write("begun")
        got += [session.run({"x": x}), exe.run({"x": x}), exe.session().run({"x": x})]
        return [y for one in got for y in one.values()]

    def write(now: str) -> None:
        if now == when:
            for array in given.values():
                array.fill(np.nan)

    given = arrays()
    expected = results(lambda now: None)
    got = results(write)

    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("lend", [np.asarray, Lent])
def test_constants_and_what_a_session_is_given_are_copied(lend: Callable[[Any], Any]) -> None:
    g = ag.Graph("given")
    x, y = g.input("x", "f32[64,64]"), g.input("y", "f32[64,64]")
    before = g.variable("v", np.zeros((64, 64), np.float32))
    g.assign("v", g(Add(), before, x))
    g.output("z", g(Add(), g(MatMul(), x, y), before))
    one, two, three = (arrays()["w"] * n for n in (1, 2, 3))
    expected = one @ two + three
    session = ag.compile(g, constants={"x": one}).session(inputs={"y": lend(two)})
    session.variables["v"] = lend(three)
    for array in (one, two, three):
        array.fill(np.nan)

    np.testing.assert_allclose(session(), expected, rtol=1e-5, atol=1e-5)


def test_parameters_are_trained_from_what_was_given() -> None:
    def trained(write: Callable[[], None]) -> Any:
        g = ag.Graph("trained")
        x, w = g.input("x", "f32[2,64]"), g.variable("w", given["w"])
        g.output("loss", g(Reshape(()), g(ReduceMean((0, 1)), g(MatMul(), x, w))))
        trainer = Trainer(g, "loss", SGD(0.1))
        write()
        return [trainer.step({"x": np.ones((2, 64), np.float32)})["loss"] for _ in range(2)]

    given = arrays()
    expected = trained(lambda: None)
    got = trained(lambda: given["w"].fill(np.nan))

    assert got == expected


def test_a_copy_repeats_what_its_array_repeats() -> None:
    row = np.arange(3000.0)
    for array in (row, np.broadcast_to(row, (5, 2, 3000)), row[::-1], row.reshape(30, 100).T,
                  np.float32(3), np.empty((0, 4)), np.array(["a", "b"], object)):  # fmt: skip
        copy = copied(np.asarray(array))

        np.testing.assert_array_equal(copy, array)
        assert not np.shares_memory(copy, array)
        assert (0 in copy.strides) == (0 in np.asarray(array).strides)
    assert copied(row).ctypes.data % ALIGNMENT == 0

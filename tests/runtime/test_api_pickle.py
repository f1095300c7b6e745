"""Executables as bytes: opened from memory, pickled, copied, and sent to other processes."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import (
    FeedError,
    IncompatibleError,
    ModelError,
    OptionError,
    UnsupportedError,
)
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from open_cases import helper, model, weights
from staged_cases import CASES

pytestmark = pytest.mark.usefixtures("no_cache")

X = np.arange(12, dtype=np.float32).reshape(2, 6)
FOREIGN = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"


def dense(target: str = "cpu", threads: int | None = 1) -> ag.Executable:
    g = ag.Graph("dense")
    w = g.constant(np.linspace(-1, 1, 6 * 40, dtype=np.float32).reshape(6, 40))
    y = g(MatMul(), g.input("x", "f32[2,6]"), w)
    g.output("y", g(Add(), y, y))
    return ag.compile(g, target, threads=threads)


def open_extents() -> ag.Executable:
    return ag.compile(model([helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": ("N", 8)},
                            {"w": weights(8, 4)}))  # fmt: skip


def content(tmp_path: Path) -> bytes:
    dense().save(tmp_path / "m.ago")
    return (tmp_path / "m.ago").read_bytes()


FORMS = {
    "bytes": bytes,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "every other": lambda b: memoryview(b"".join(bytes((c, 0)) for c in b))[::2],
    "of numbers": lambda b: memoryview(b + bytes(-len(b) % 8)).cast("q"),
}


@pytest.mark.parametrize("form", FORMS)
def test_bytes_open_as_the_file_does(tmp_path: Path, form: str) -> None:
    again = ag.open(FORMS[form](content(tmp_path)), threads=1)

    np.testing.assert_array_equal(dense()(X), again(X))


def test_bytes_may_change_once_they_are_open(tmp_path: Path) -> None:
    memory = bytearray(content(tmp_path))
    again = ag.open(memory, threads=1)
    memory[:] = bytes(len(memory))

    np.testing.assert_array_equal(dense()(X), again(X))


@pytest.mark.parametrize("wrong", [b"", b"\x08\x07", bytearray(64), memoryview(b"ALPENGO\n")])
def test_bytes_of_no_archive_are_refused(wrong: Any) -> None:
    with pytest.raises(ModelError, match="archive"):
        ag.open(wrong)


def test_damage_is_found_in_bytes(tmp_path: Path) -> None:
    memory = bytearray(content(tmp_path))
    # Between sections there are zeros that mean nothing.
    at = next(i for i in range(len(memory) // 2, len(memory)) if memory[i])
    memory[at] ^= 1
    with pytest.raises(ModelError, match="damaged"):
        ag.open(memory)


def test_what_is_neither_a_path_nor_bytes_is_refused(tmp_path: Path) -> None:
    for wrong in (1, None, np.zeros(4, np.uint8), [b"x"]):
        with pytest.raises(OptionError, match="expected the path of a file, or its bytes"):
            ag.open(wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="mmap is True"):
        ag.open(content(tmp_path), mmap=True)


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda exe: pickle.loads(pickle.dumps(exe))]
)
def test_copies_compute_the_same(again: Any, target: str) -> None:
    exe = dense(target, threads=2)
    other = again(exe)
    expected = exe(X)
    del exe

    assert (other.threads, other.name) == (2, "dense")
    np.testing.assert_array_equal(expected, other(X))


def test_processes_that_are_spawned_run_it() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        exe = dense()
        found = list(pool.map(exe, [X, 2 * X]))
        with pytest.raises(FeedError, match="input 'x' is float64"):
            pool.submit(exe, X.astype(float)).result()

    np.testing.assert_array_equal(exe(X), found[0])
    np.testing.assert_array_equal(exe(2 * X), found[1])


def test_what_compiles_as_it_runs_is_pickled_with_what_it_has_compiled() -> None:
    exe, x = open_extents(), np.ones((3, 8), np.float32)
    expected = exe(x)
    for again in (pickle.loads(pickle.dumps(exe)), copy.deepcopy(exe)):
        assert len(again.artifacts) == 1
        np.testing.assert_array_equal(expected, again(x))
        np.testing.assert_array_equal(exe(x[:1]), again(x[:1]))


def test_what_is_compiled_in_parts_is_pickled_once_it_was_called() -> None:
    case = CASES["branches"]
    exe, feeds = ag.compile(case.model()), case.calls()[0]
    for act in (pickle.dumps, copy.deepcopy):
        with pytest.raises(UnsupportedError, match="only the parts that calls reached are pickled"):
            act(exe)
    expected = exe.run(feeds)
    again = pickle.loads(pickle.dumps(exe))

    np.testing.assert_array_equal(expected["z"], again.run(feeds)["z"])


def test_code_for_another_machine_is_not_unpickled_here() -> None:
    data = pickle.dumps(dense(FOREIGN))
    with pytest.raises(IncompatibleError, match=FOREIGN):
        pickle.loads(data)

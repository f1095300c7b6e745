"""Executables: what they take, what they give back, and that calls do not disturb each other."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import FeedError, OptionError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.types import DTYPES, NUMBERS
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.elementwise.transcendental import Exp, Log
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Transpose

Array = NDArray[Any]
TARGETS = ("cpu", "interpreter")
RNG = np.random.default_rng(0)
FOREIGN = "x86-64" if ag.Target.parse("cpu").architecture == "aarch64" else "aarch64"

pytestmark = pytest.mark.usefixtures("no_cache")


def negated(shape: str = "f32[4,6]", target: str = "cpu", threads: int = 1) -> ag.Executable:
    """Return y = -x."""
    g = ag.Graph("negated")
    g.output("y", g(Neg(), g.input("x", shape)))
    return ag.compile(g, target, threads=threads)


def doubled(shape: str, target: str = "cpu") -> ag.Executable:
    """Return y = x + x."""
    g = ag.Graph("doubled")
    x = g.input("x", shape)
    g.output("y", g(Add(), x, x))
    return ag.compile(g, target, threads=1)


def turned(shape: str, target: str = "cpu") -> ag.Executable:
    """Return y = x transposed."""
    g = ag.Graph("turned")
    g.output("y", g(Transpose((1, 0)), g.input("x", shape)))
    return ag.compile(g, target, threads=1)


def sum_and_product(target: str = "cpu") -> ag.Executable:
    g = ag.Graph("two")
    a, b = g.input("a", "f32[5]"), g.input("b", "f32[5]")
    g.output("sum", g(Add(), a, b))
    g.output("product", g(Mul(), a, b))
    return ag.compile(g, target, threads=1)


def layers(target: str, threads: int) -> tuple[ag.Executable, Array]:
    """Return a product, a sum and a transpose, and the weights."""
    w = RNG.standard_normal((64, 96), np.float32)
    g = ag.Graph("layers")
    x = g.input("x", "f32[32,64]")
    y = g(MatMul(), x, g.constant(w))
    g.output("y", g(Transpose((1, 0)), g(Add(), y, y)))
    return ag.compile(g, target, threads=threads), w


def numbers(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


class WithDLPack:
    """An array of somebody else's, known by DLPack alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __dlpack__(self, **wanted: Any) -> Any:
        return self.array.__dlpack__(**wanted)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class WithInterface:
    """An array of somebody else's, known by its interface alone."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


def unaligned(array: Array) -> Array:
    raw = np.empty(array.nbytes + 1, np.uint8)
    place = raw[1:].view(array.dtype).reshape(array.shape)
    place[...] = array
    assert not place.flags.aligned
    return place


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "plain": lambda a: a,
    "unaligned": unaligned,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "column-major": np.asfortranarray,
    "read-only": read_only,
    "foreign byte order": lambda a: a.astype(">f4"),
    "DLPack": WithDLPack,
    "array interface": WithInterface,
    "lists": lambda a: a.tolist(),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_input_may_come_in_many_forms(form: str) -> None:
    x = numbers(4, 6)

    np.testing.assert_array_equal(-x, negated()(FORMS[form](x)))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", sorted(DTYPES.keys()))
@pytest.mark.sampled(27)
def test_every_element_type_goes_in_and_comes_out(dtype: str, target: str) -> None:
    x = RNG.integers(0, 2, (3, 5)).astype(DTYPES[dtype])
    y = turned(f"{dtype}[3,5]", target)(x)

    assert y.dtype == x.dtype
    assert np.ascontiguousarray(x.T).tobytes() == y.tobytes()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", sorted(NUMBERS))
def test_every_type_of_number_adds(dtype: str, target: str) -> None:
    x = RNG.integers(0, 9, (3, 5)).astype(DTYPES[dtype])
    y = doubled(f"{dtype}[3,5]", target)(x)

    assert y.dtype == x.dtype
    np.testing.assert_array_equal(x + x, y)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        (np.ones((4, 6), np.int32), "int32"),
        (np.ones((4, 6), np.float64), "float64"),
        (np.ones((4, 6), ">f8"), "float64|>f8"),
        (np.ones((4, 6), ml_dtypes.bfloat16), "bfloat16"),
        ([[1] * 6] * 4, "int64"),
        (None, "None"),
        ("word", "<U4"),
        ([[1.0], [1.0, 2.0]], "inhomogeneous"),
    ],
    ids=lambda value: str(getattr(value, "dtype", type(value).__name__)),
)
def test_other_elements_are_refused(wrong: Any, found: str) -> None:
    with pytest.raises(FeedError, match=rf"input 'x'.*({found})") as raised:
        negated()(wrong)

    assert "float32" in str(raised.value)


@pytest.mark.parametrize("wrong", [300, -1, 2**70])
def test_a_number_that_the_input_cannot_hold_is_refused(wrong: int) -> None:
    with pytest.raises(FeedError, match=r"input 'x'.*uint8"):
        doubled("u8[]")(wrong)


def test_another_shape_is_refused() -> None:
    with pytest.raises(FeedError, match=r"'x' has shape \(6, 4\), expected \(4, 6\)"):
        negated()(numbers(6, 4))


def test_wrong_names_are_refused() -> None:
    exe = sum_and_product()
    x = numbers(5)
    with pytest.raises(FeedError, match="lack b and hold c that"):
        exe.run({"a": x, "c": x})
    with pytest.raises(FeedError, match="got 1 arrays, expected 2: a, b"):
        exe(x)
    with pytest.raises(FeedError, match="out names difference; outputs are sum, product"):
        exe.run({"a": x, "b": x}, out={"difference": x})


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_not_changed_by_a_later_call(target: str) -> None:
    exe, w = layers(target, 1)
    xs = [numbers(32, 64) for _ in range(4)]
    results = [exe(x) for x in xs]
    kept = [y.copy() for y in results]
    for x in reversed(xs):
        exe(x)[...] = 0

    for x, y, first in zip(xs, results, kept, strict=True):
        np.testing.assert_array_equal(first, y)
        np.testing.assert_allclose(2 * (x @ w).T, y, rtol=1e-4, atol=1e-4)
        assert y.base is None and y.flags.writeable


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("form", ["plain", "strided", "unaligned", "column-major"])
def test_outputs_are_written_where_the_caller_wants_them(form: str, target: str) -> None:
    x = numbers(4, 6)
    place = FORMS[form](np.zeros((4, 6), np.float32))
    results = negated(target=target).run({"x": x}, out={"y": place})

    assert results["y"] is place
    np.testing.assert_array_equal(-x, place)


@pytest.mark.parametrize("target", TARGETS)
def test_some_outputs_may_be_given_places(target: str) -> None:
    a, b = numbers(5), numbers(5)
    place = np.zeros(5, np.float32)
    results = sum_and_product(target).run({"a": a, "b": b}, out={"product": place})

    assert list(results) == ["sum", "product"] and results["product"] is place
    np.testing.assert_array_equal(a * b, place)
    np.testing.assert_array_equal(a + b, results["sum"])


@pytest.mark.parametrize("place", [read_only(np.zeros((4, 6), np.float32)), np.zeros((4, 6)),
                                   np.zeros((6, 4), np.float32), [[0.0] * 6] * 4])  # fmt: skip
def test_a_place_that_an_output_cannot_have_is_refused(place: Any) -> None:
    with pytest.raises(FeedError, match="out\\['y'\\] is a"):
        negated().run({"x": numbers(4, 6)}, out={"y": place})


def test_two_outputs_in_one_place_are_refused() -> None:
    place = np.zeros(8, np.float32)
    feeds = {"a": numbers(5), "b": numbers(5)}
    with pytest.raises(FeedError, match="share memory"):
        sum_and_product().run(feeds, out={"sum": place[:5], "product": place[3:]})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shift", [-7, -1, 0, 1, 7])
def test_an_output_may_lie_on_an_input(shift: int, target: str) -> None:
    g = ag.Graph("reversed")
    x = g.input("x", "f32[8,8]")
    g.output("y", g(Transpose((1, 0)), x))
    memory = numbers(80)
    given = memory[8:72].reshape(8, 8)
    place = memory[8 + shift : 72 + shift].reshape(8, 8)
    expected = given.T.copy()
    ag.compile(g, target, threads=1).run({"x": given}, out={"y": place})

    np.testing.assert_array_equal(expected, place)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 2])
def test_calls_from_many_threads_do_not_disturb_each_other(threads: int, target: str) -> None:
    exe, _ = layers(target, threads)
    xs = [numbers(32, 64) for _ in range(8)]
    expected = [exe(x) for x in xs]
    wrong: list[int] = []
    start = threading.Barrier(8)

    def call(i: int) -> None:
        start.wait()
        if not all(np.array_equal(expected[i], exe(xs[i])) for _ in range(50)):
            wrong.append(i)

    callers = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert wrong == []


def test_four_executables_serve_four_callers_each() -> None:
    exes = [layers("cpu", 2)[0] for _ in range(4)]
    xs = [numbers(32, 64) for _ in range(4)]
    expected = [[exe(x) for x in xs] for exe in exes]
    right: list[bool] = []
    start = threading.Barrier(16)

    def call(e: int, i: int) -> None:
        start.wait()
        right.append(all(np.array_equal(expected[e][i], exes[e](xs[i])) for _ in range(50)))

    callers = [threading.Thread(target=call, args=(n // 4, n % 4)) for n in range(16)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert right == [True] * 16


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    g = ag.Graph("product")
    x, w = g.input("x", "f32[70,130]"), g.input("w", "f32[130,200]")
    g.output("y", g(MatMul(), x, w))
    arrays = numbers(70, 130), numbers(130, 200)
    alone, together = (ag.compile(g, threads=n)(*arrays) for n in (1, 2))

    np.testing.assert_array_equal(alone.view(np.uint32), together.view(np.uint32))


@pytest.mark.parametrize("threads", [0, -1])
def test_there_is_at_least_one_thread(threads: int) -> None:
    with pytest.raises(OptionError, match=f"threads is {threads}"):
        negated(threads=threads)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(0,), (3, 0, 2), ()])
def test_empty_and_scalar_inputs(shape: tuple[int, ...], target: str) -> None:
    x = numbers(*shape)
    y = negated(f"f32[{','.join(map(str, shape))}]", target)(x)

    assert y.shape == shape and isinstance(y, np.ndarray)
    np.testing.assert_array_equal(-np.asarray(x), y)


def test_a_python_number_is_a_scalar_input() -> None:
    assert negated("f32[]")(1.5) == -1.5
    assert negated("i64[]")(np.int64(3)) == -3


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_may_be_inputs_constants_and_each_other(target: str) -> None:
    weights = numbers(3, 20)
    g = ag.Graph("passes")
    x = g.input("x", "f32[2,3]")
    y = g(Neg(), x)
    w = g.constant(weights)
    for name, value in {"given": x, "same": x, "w": w, "y": y, "again": y}.items():
        g.output(name, value)
    given = numbers(2, 3)
    exe = ag.compile(g, target, threads=1)
    results = exe.run({"x": given})
    expected = {"given": given, "same": given, "w": weights, "y": -given, "again": -given}

    assert list(expected) == list(results)
    for name, array in results.items():
        np.testing.assert_array_equal(expected[name], array)
    assert not any(np.shares_memory(given, array) for array in results.values())
    assert not np.shares_memory(results["y"], results["again"])
    results["w"][...] = 0
    np.testing.assert_array_equal(weights, exe.run({"x": given})["w"])


def test_code_for_another_machine_is_not_called() -> None:
    exe = negated(target=FOREIGN)
    with pytest.raises(UnsupportedError, match=f"target '{FOREIGN}' does not run"):
        exe(numbers(4, 6))


def test_a_failed_call_leaves_the_executable_usable() -> None:
    exe = negated()
    x = numbers(4, 6)
    with pytest.raises(FeedError):
        exe(x.astype(np.float64))

    np.testing.assert_array_equal(-x, exe(x))


@pytest.mark.parametrize("target", TARGETS)
def test_the_callers_arrays_are_not_held_on_to(target: str) -> None:
    exe = negated(target=target)
    x = numbers(4, 6)
    y = exe(x)
    given, result = weakref.ref(x), weakref.ref(y)
    del x, y

    assert given() is None and result() is None


def test_strictly_halves_are_rounded_after_each_operator() -> None:
    g = ag.Graph("f")
    g.output("y", g(Log(), g(Exp(), g.input("x", "f16[3]"))))
    x = np.array([5, 10, 14], np.float16)
    exe = ag.compile(g, options=ag.Options(numerics="strict"))

    np.testing.assert_array_equal(exe(x), evaluate(g, {"x": x})["y"])
    assert np.isinf(exe(x)[2])  # exp(14) is no f16

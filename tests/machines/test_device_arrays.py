"""Arrays that stay on a device: returned, fed, handed on, and refused elsewhere."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import FeedError, OptionError
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.runtime.device import dlpack
from alpenglow.runtime.executables.installed import Installed
from devices import Chip, on_chip

X = np.arange(32, dtype=np.float32).reshape(4, 8)


def network() -> ag.Graph:
    """A sum that a chip may compute, and a softmax of it."""
    g = ag.Graph("network")
    x = g.input("x", "f32[4,8]")
    total = g(Add(), x, x)
    g.output("total", total)
    g.output("shares", g(Softmax(axis=1), total))
    return g


@pytest.mark.parametrize("ops", [(Add, Softmax), (Add,), (Softmax,), ()])
def test_results_stay_on_the_device(ops: tuple[type, ...]) -> None:
    chip = Chip()
    exe = on_chip(network(), chip, *ops)
    expected = exe.run({"x": X})
    results = exe.run({"x": X}, device=True, outputs=["shares", "total"])

    assert list(results) == ["shares", "total"]
    for name, array in results.items():
        assert (array.shape, array.dtype, array.ndim) == ((4, 8), np.float32, 2)
        np.testing.assert_array_equal(array.numpy(), expected[name])
        np.testing.assert_array_equal(np.asarray(array), expected[name])
        np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), expected[name])


def test_arrays_of_calls_in_a_row_are_their_own() -> None:
    exe = on_chip(network(), Chip(), Add, Softmax)
    results = [exe.run({"x": X + i}, device=True)["total"] for i in range(5)]

    for i, array in enumerate(results):
        np.testing.assert_array_equal(array.numpy(), 2 * (X + i))


def test_what_lies_on_the_device_is_fed_without_the_host() -> None:
    chip = Chip()
    first, second = (on_chip(network(), chip, Add, Softmax) for _ in range(2))
    between = first.run({"x": X}, device=True)["total"]
    chip.copied.clear()
    result = second.run({"x": between}, device=True)["total"]

    assert chip.copied == []
    np.testing.assert_array_equal(result.numpy(), 4 * X)


def test_inputs_are_copied_while_the_call_before_has_not_run() -> None:
    chip = Chip()
    exe = on_chip(network(), chip, Add, Softmax)
    first = exe.run({"x": X}, device=True)["total"]
    x = X.copy()
    second = exe.run({"x": x + 1}, device=True)["total"]
    x[...] = 0  # the caller's again

    assert first.ready.work is not None
    np.testing.assert_array_equal(second.numpy(), 2 * (X + 1))
    np.testing.assert_array_equal(first.numpy(), 2 * X)


def test_memory_of_arrays_is_given_back() -> None:
    chip = Chip()
    exe = on_chip(network(), chip, Add, Softmax)
    exe.run({"x": X})
    exe.run({"x": X})
    held = chip.held
    results = exe.run({"x": X}, device=True)
    more = chip.held
    del results
    gc.collect()

    assert more == held + 2 * X.nbytes
    assert chip.held == held


def test_arrays_of_another_device_are_refused() -> None:
    array = on_chip(network(), Chip(), Add).run({"x": X}, device=True)["total"]
    exe = on_chip(network(), Chip(), Add)

    with pytest.raises(FeedError, match="another device"):
        exe.run({"x": array})
    np.testing.assert_array_equal(exe.run({"x": array.numpy()})["total"], 4 * X)


def test_arrays_of_other_shapes_are_refused() -> None:
    chip = Chip()
    array = on_chip(network(), chip, Add).run({"x": X}, device=True)["total"]
    g = ag.Graph("narrow")
    g.output("y", g(Mul(), g.input("x", "f32[2,8]"), g.constant(np.ones((2, 8), np.float32))))

    with pytest.raises(FeedError, match=r"input 'x' has shape \(4, 8\), expected \(2, 8\)"):
        on_chip(g, chip, Mul).run({"x": array})


def test_a_process_has_no_arrays_on_a_device_but_reads_them() -> None:
    array = on_chip(network(), Chip(), Add).run({"x": X}, device=True)["total"]
    exe = ag.compile(network())

    with pytest.raises(OptionError, match="device=True is not supported for target"):
        exe.run({"x": X}, device=True)
    np.testing.assert_array_equal(exe.run({"x": array})["total"], 4 * X)


def test_dlpack_hands_on_the_memory_of_the_device() -> None:
    chip = Chip()
    array = on_chip(network(), chip, Add).run({"x": X}, device=True)["total"]
    capsule = array.__dlpack__()
    kind = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    get: Any = kind(("PyCapsule_GetPointer", ctypes.pythonapi))
    tensor = dlpack.ManagedTensor.from_address(get(capsule, b"dltensor")).tensor

    assert array.__dlpack_device__() == chip.dlpack
    assert (tensor.device.type, tensor.device.id) == chip.dlpack
    assert (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (2, 32, 1)
    assert [tensor.shape[i] for i in range(tensor.ndim)] == [4, 8]
    seen = np.ctypeslib.as_array((ctypes.c_float * 32).from_address(tensor.data))
    np.testing.assert_array_equal(seen.reshape(4, 8), 2 * X)


def test_a_capsule_keeps_memory_until_it_is_dropped() -> None:
    chip = Chip()
    exe = on_chip(network(), chip, Add)
    array = exe.run({"x": X}, device=True)["total"]
    held = chip.held
    capsule = array.__dlpack__()
    del array
    gc.collect()
    kept = chip.held
    del capsule
    gc.collect()

    assert (kept, chip.held) == (held, held - X.nbytes)


def test_an_executable_on_a_chip_is_installed() -> None:
    assert isinstance(on_chip(network(), Chip(), Add), Installed)

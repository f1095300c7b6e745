"""Bytes and halves are packed and unpacked in registers, also where vectors have no masks."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import DTYPES, TensorType
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.ops.elementwise.arithmetic import Add

SHAPES = [(1, 16, 3, 33), (2, 11, 8), (1, 5, 2, 9), (1, 8, 4, 7), (3, 20, 2, 2, 23)]
"""Whole and partial blocks of channels; rows of a vector, a little more, less, and several."""


def there_and_back(dtype: str, shape: tuple[int, ...], lanes: int) -> Graph:
    g = Graph("there and back")
    packed = g(Pack(lanes), g.input("x", TensorType(dtype, shape)))
    g.output("packed", packed)
    g.output("plain", g(Unpack(shape[1]), g.input("y", packed.type)))
    return g


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["u8", "i8", "f16", "bf16"])
@pytest.mark.sampled(15)
@pytest.mark.parametrize(("target", "lanes"), [("cpu", 8), ("x86-64-v3", 8), ("x86-64-v2", 4)])
def test_blocks_hold_what_rows_hold(
    target: str, lanes: int, dtype: str, shape: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).integers(-99, 99, shape).astype(DTYPES[dtype])
    packed = Pack(lanes).reference(x)
    exe = ag.compile(there_and_back(dtype, shape, lanes), target=ag.Target.parse(target))

    got = exe.run({"x": x, "y": packed})

    np.testing.assert_array_equal(got["packed"], packed)
    np.testing.assert_array_equal(got["plain"], x)


@pytest.mark.parametrize(("extent", "turned"), [(8, True), (33, True), (7, False)])
@pytest.mark.parametrize("dtype", ["u8", "f16"])
def test_rows_of_a_vector_and_more_are_turned_over(dtype: str, extent: int, turned: bool) -> None:
    target = ag.Target.parse("x86-64-v3")
    exe = ag.compile(there_and_back(dtype, (1, 16, 3, extent), 8), target=target)

    texts = [print_kernel(kernel) for _, kernel in kernels(exe.artifact.program, exe.target)]

    assert len(texts) == 2
    assert [("blend" in text) for text in texts] == [turned, turned]


def test_what_is_added_as_bytes_are_packed_is_added_once() -> None:
    g = Graph("sum")
    packed = g(Pack(8), g.input("x", "u8[1,16,3,33]"))
    other = g(Pack(8), g.input("z", "u8[1,16,3,33]"))
    g.output("y", g(Add(), packed, other))
    x, z = np.random.default_rng(0).integers(0, 99, (2, 1, 16, 3, 33)).astype(np.uint8)

    got = ag.compile(g, target=ag.Target.parse("x86-64-v3")).run({"x": x, "z": z})["y"]

    np.testing.assert_array_equal(got, Pack(8).reference(x + z))

"""Rare operators of com.microsoft, beside ONNX Runtime, which defines them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from onnx_domains import assert_close, check, one_node, runtime

Array = NDArray[Any]
MS = "com.microsoft"


def rand(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(0, 1, shape).astype(np.float32)


def whole(*shape: int, high: int = 256, seed: int = 0, dtype: type = np.uint8) -> Array:
    return np.random.default_rng([seed, *shape]).integers(0, high, shape).astype(dtype)


@pytest.mark.parametrize("kind", [0, 1], ids=["fp4", "nf4"])
@pytest.mark.parametrize(("rows", "columns", "block"), [(5, 32, 16), (3, 20, 16), (8, 64, 32)])
def test_mat_mul_of_codes_of_four_bits(kind: int, rows: int, columns: int, block: int) -> None:
    count = rows * columns
    given = {"N": rows, "K": columns, "block_size": block, "quant_type": kind}
    packed, largest = whole((count + 1) // 2), np.abs(rand(-(-count // block)))

    check(MS, "MatMulBnb4", rand(4, columns), packed, largest, constants=(1, 2), **given)


@pytest.mark.parametrize("masked", [False, True])
def test_embeddings_in_bytes(masked: bool) -> None:
    ids = whole(2, 5, high=7, dtype=np.int32)
    segments = whole(2, 5, high=2, dtype=np.int32)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32) if masked else None
    tables = [whole(7, 8), whole(6, 8, seed=1), whole(2, 8, seed=2), whole(8), whole(8, seed=3)]
    scales = [np.array(v, np.float32) for v in (0.01, 0.02, 0.03, 0.01, 0.02)]
    zeros = [np.array(v, np.uint8) for v in (128, 120, 100, 3, 110)]
    check(MS, "QEmbedLayerNormalization", ids, segments, *tables, mask, *scales, *zeros,
          outputs=2)  # fmt: skip


def test_values_in_the_order_in_which_they_come() -> None:
    x = np.array([2, 1, 1, 3, 4, 3, 2], np.float32)
    made = one_node(MS, "Unique", [x], 3)

    assert_close(runtime(made, {"x0": x}), list(ag.compile(made)(x)), 0, 0)


@pytest.mark.parametrize(("axis", "size", "step"), [(-1, 3, 1), (1, 2, 2), (0, 2, 1)])
def test_windows_along_an_axis(axis: int, size: int, step: int) -> None:
    check(MS, "UnfoldTensor", rand(3, 4, 7), dim=axis, size=size, step=step)


def test_swish_of_what_is_scaled() -> None:
    check(MS, "ScaledSiLU", rand(3, 4), alpha=0.5)


def test_addition_through_a_gate() -> None:
    check(MS, "GatedAdd", rand(2, 3, 4), rand(2, 3, 4, seed=1), rand(2, 3, 1))

"""Weights of gigabytes are packed a few rows at a time, and let go as they are read."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base import knobs, memory
from alpenglow.base.memory import forget
from alpenglow.compiler.pipeline import run_stages
from alpenglow.driver import artifact_cache
from alpenglow.machines.vector.operators.blocked import MatMulPacked
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor import packing
from alpenglow.ops.tensor.packing import PackMatrix
from onnx_node import single


@pytest.mark.parametrize("dots", [1, 2, 4])
@pytest.mark.parametrize("shape", [(37, 70), (64, 64), (1, 1), (0, 5), (3, 0)])
def test_packing_a_few_rows_at_a_time_makes_what_packing_all_does(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], dots: int
) -> None:
    w = np.arange(1, 1 + shape[0] * shape[1], dtype=np.int32).reshape(shape)
    whole = PackMatrix(16, dots).reference(w)
    monkeypatch.setattr(packing, "CHUNK", 1000)
    k, n = shape
    rows, columns = np.indices(shape)

    packed = PackMatrix(16, dots).reference(w)

    np.testing.assert_array_equal(packed, whole)
    full = packed.reshape(*whole.shape[:2], 16, dots)
    np.testing.assert_array_equal(full[columns // 16, rows // dots, columns % 16, rows % dots], w)
    assert np.count_nonzero(full) == k * n


def test_packing_takes_little_more_memory_than_what_it_makes() -> None:
    w = np.ones((4096, 4000), np.float32)
    tracemalloc.start()
    packed = PackMatrix(64).reference(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < packed.nbytes + 3 * packing.CHUNK


def test_memory_in_small_pages_is_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "LARGE_NBYTES", 1)
    for nbytes in (1, 4095, 100_000):
        made = memory.aligned_bytes(nbytes)
        made[:] = 7

        assert made.ctypes.data % memory.ALIGNMENT == 0 and made.sum() == 7 * nbytes


def test_weights_that_are_too_large_to_keep_are_not_hashed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    x, w = np.ones((1, 8), np.float32), np.ones((8, 16), np.float32)
    model = tmp_path / "m.onnx"
    model.write_bytes(single("MatMul", [x, w], 13, constants=[1]).SerializeToString())
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")  # which hashes to compare
    monkeypatch.setattr(knobs, "cache_folder", lambda: tmp_path / "store")
    monkeypatch.setattr(artifact_cache, "LARGEST_NBYTES", w.nbytes - 1)
    exe = ag.compile(model, threads=1)
    buffers = exe.artifact.program.buffers.values()
    constants = [b.constant for b in buffers if b.constant is not None]

    np.testing.assert_array_equal(exe(x), x @ w)
    assert constants and not any(v._digest for v in constants)
    monkeypatch.setattr(artifact_cache, "LARGEST_NBYTES", 1 << 20)
    (constant,) = [
        b.constant for b in ag.compile(model, threads=1).artifact.program.buffers.values()
        if b.constant is not None
    ]  # fmt: skip
    assert constant._digest


@pytest.mark.parametrize("mode", ["r", "c", "r+"])
def test_an_array_that_is_forgotten_reads_as_before(tmp_path: Path, mode: str) -> None:
    content = np.arange(100_000, dtype=np.float32)
    content.tofile(tmp_path / "w.bin")
    mapped = np.memmap(tmp_path / "w.bin", np.float32, mode, 0, (99_999,))
    if mode != "r":
        mapped[5] = -1
    before = np.array(mapped)

    forget(mapped[1:])
    forget(mapped[50_000:50_001])

    np.testing.assert_array_equal(mapped, before)


def test_weights_that_several_layers_read_are_packed_once() -> None:
    g = ag.Graph("shared")
    x = g.input("x", "f32[8,64]")
    w = g.constant(np.random.default_rng(0).standard_normal((64, 64), np.float32))
    g.output("y", g(MatMul(), g(Tanh(), g(MatMul(), x, w)), w))
    target = ag.Target.parse("cpu")

    made = next(ir for p, ir in run_stages(g, target, ag.Options()) if p.name == "prepare")

    packed = [n.inputs[1] for n in made.nodes if isinstance(n.op, MatMulPacked)]
    assert len(packed) == 2 and packed[0] is packed[1]

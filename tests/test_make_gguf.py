"""Decoders as GGUF: the weights are those of the ONNX file, where llama.cpp expects them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import models

sys.path.insert(0, str(models.ROOT / "tools"))

import make_decoder
import make_gguf

SIZE = make_decoder.Size(
    layers=1, width=64, inner=96, heads=4, groups=2, vocabulary=40, positions=32
)


def reals(blocks: np.ndarray) -> np.ndarray:
    """Return what blocks of Q4_0 or Q8_0 stand for, a row of the matrix a row."""
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    stored = blocks[..., 2:]
    if stored.shape[-1] == 16:
        numbers = np.concatenate([stored & 15, stored >> 4], axis=-1).astype(np.float32) - 8
    else:
        numbers = stored.view(np.int8).astype(np.float32)
    return (scales * numbers).reshape(len(blocks), -1)


@pytest.mark.parametrize("bits", [4, 8])
def test_a_block_stands_for_the_numbers_of_matmul_nbits(bits: int) -> None:
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (5, 3, 4 * bits), np.uint8)
    scales = rng.uniform(0.5, 1, (5, 3)).astype(np.float16).astype(np.float32)
    steps = np.stack([packed & 15, packed >> 4], -1).reshape(5, 3, 32) if bits == 4 else packed
    expected = (steps.astype(np.float32) - (1 << (bits - 1))) * scales[..., None]
    actual = reals(make_gguf.blocks(packed, scales, bits))

    np.testing.assert_array_equal(actual, expected.reshape(5, 96))


def test_rows_that_turn_together_become_neighbours() -> None:
    rows = np.arange(2 * 8).reshape(16, 1)

    actual = make_gguf.interleaved(rows, 2).ravel().tolist()

    assert actual == [0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15]


def test_a_file_ends_with_its_last_tensor(tmp_path: Path) -> None:
    path = make_gguf.convert(make_decoder.write(tmp_path, SIZE).parent)
    stored = path.read_bytes()
    graph = onnx.load(tmp_path / "model.onnx").graph
    (head,) = (numpy_helper.to_array(t) for t in graph.initializer if t.name == "lm_head.qweight")
    blocks = np.frombuffer(stored[-40 * 2 * 18 :], np.uint8).reshape(40, 2, 18)

    assert stored[:4] == b"GGUF" and len(stored) % make_gguf.PAGE == 0
    np.testing.assert_array_equal(blocks[..., 2] & 15, head[..., 0] & 15)


def test_groups_of_another_length_are_refused(tmp_path: Path) -> None:
    make_decoder.write(tmp_path, make_decoder.replace(SIZE, block=16))

    with pytest.raises(ValueError, match="has groups of 16, expected 32"):
        make_gguf.convert(tmp_path)

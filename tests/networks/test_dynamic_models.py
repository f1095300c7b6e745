"""Real networks without a word about shapes: one Executable for all that a model may be fed."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models
from command import alpenglow

sys.path.insert(0, str(models.ROOT / "tools"))

import seeded_decoder

Array = NDArray[Any]
Feeds = dict[str, Array]

TOLERANCE = 1e-4
"""Sums in another order, through some fifty layers."""

SIZES = ((96, 128), (75, 141), (128, 64))
SILERO = (
    "silero_vad", "silero_vad_16k_op15", "silero_vad_16k_sequence", "silero_vad_half",
    "silero_vad_op18_ifless",
)  # fmt: skip


def runtime(model: Path | onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def assert_close(got: Mapping[str, Array], names: list[str], expected: list[Array]) -> None:
    assert list(got) == names
    for (name, y), wanted in zip(got.items(), expected, strict=True):
        assert (name, y.shape, y.dtype) == (name, wanted.shape, wanted.dtype)
        np.testing.assert_allclose(y, wanted, 0, TOLERANCE * np.abs(wanted).max(initial=0))


def assert_agrees(exe: ag.Executable, peer: onnxruntime.InferenceSession, feeds: Feeds) -> None:
    names = [output.name for output in peer.get_outputs()]
    assert_close(exe.run(feeds), names, peer.run(None, feeds))


@pytest.mark.models
@pytest.mark.rest
def test_minilm_is_compiled_once_for_sentences_of_any_length() -> None:
    path = models.model_path("minilm_l6_int8w")
    exe, peer = ag.compile(path), runtime(path)
    for count, length in ((1, 19), (2, 50), (1, 33)):
        tokens = np.random.default_rng(length).integers(1000, 20000, (count, length))
        kinds = np.zeros_like(tokens)
        feeds = {"input_ids": tokens, "attention_mask": kinds + 1, "token_type_ids": kinds}
        assert_agrees(exe, peer, feeds)

    assert len(exe.artifacts) == 2  # a batch of one, and larger ones


@pytest.mark.models
@pytest.mark.parametrize("name", ["mtcnn_pnet", "style26"])
@pytest.mark.rest
def test_pictures_of_any_size_share_what_was_compiled(name: str) -> None:
    path = models.model_path(name)
    exe, peer = ag.compile(path), runtime(path)
    random = np.random.default_rng(0)
    first, *others = peer.get_inputs()
    for size in SIZES:
        feeds = {first.name: random.random((1, 3, *size), np.float32)}
        feeds |= {x.name: np.eye(x.shape[0], dtype=np.float32)[0] for x in others}
        assert_agrees(exe, peer, feeds)

    assert len(exe.artifacts) == 1


@pytest.mark.models
@pytest.mark.parametrize("name", SILERO)
@pytest.mark.sampled(0, "silero_vad_16k_op15")
def test_a_network_with_branches_answers_like_onnx_runtime(name: str) -> None:
    exe = ag.compile(models.model_path(name))
    numbers = [number for known, number in models.cases() if known == name]
    for number in numbers:
        outputs = exe.run(models.inputs(name, number))
        expected = models.reference(name, number)

        assert list(outputs) == [e.name for e in expected]
        for e, output in zip(expected, outputs.values(), strict=True):
            e.check(output, TOLERANCE)


@pytest.mark.models
@pytest.mark.parametrize("name", SILERO)
@pytest.mark.sampled(0, "silero_vad_half")
def test_a_network_with_branches_is_saved_with_those_that_were_taken(name: str) -> None:
    exe = ag.compile(models.model_path(name))
    every = [models.inputs(name, number) for known, number in models.cases() if known == name]
    expected = [exe.run(feeds) for feeds in every]
    again = copy.deepcopy(exe)

    for feeds, outputs in zip(every, expected, strict=True):
        for output, y in again.run(feeds).items():
            np.testing.assert_array_equal(outputs[output], y)
    assert len(again.artifacts) == len(exe.artifacts)


@pytest.mark.models
def test_batches_of_sound_share_what_was_compiled() -> None:
    path = models.model_path("silero_vad_16k_op15")
    exe, peer = ag.compile(path), runtime(path)
    random = np.random.default_rng(0)
    for count in (9, 12, 31):
        sound = np.float32(0.1) * random.standard_normal((count, 576), np.float32)
        state = np.float32(0.1) * random.standard_normal((2, count, 128), np.float32)
        feeds = {"input": sound, "state": state, "sr": np.array(16000)}
        assert_agrees(exe, peer, feeds)

    assert len(exe.artifacts) == 1


def test_a_decoder_is_not_compiled_for_each_token() -> None:
    size = seeded_decoder.Size(layers=2, heads=4, head=16, vocabulary=300, positions=64)
    model = seeded_decoder.decoder(size)
    exe, peer = ag.compile(model), runtime(model)
    past, token = size.past(), np.array([[7]])
    for _ in range(20):
        feeds = {"token": token, **past}
        assert_agrees(exe, peer, feeds)
        made = exe.run(feeds)
        token = made["logits"].argmax(-1)
        past = {name: made[name.replace("past", "present")] for name in past}

    assert len(exe.artifacts) == 2  # for no past, and for any


def test_a_decoder_is_compiled_with_its_caches_as_state(tmp_path: Path) -> None:
    model, archive = tmp_path / "decoder.onnx", tmp_path / "decoder.ago"
    size = seeded_decoder.Size(layers=1, heads=2, head=4, vocabulary=11, positions=16)
    onnx.save(seeded_decoder.decoder(size), model)
    alpenglow(f"compile {model} -o {archive} --state")
    session = ag.open(archive).session(length=4)

    assert session.run({"token": [[3]]})["logits"].shape == (1, 1, 11)
    assert session.rows == 1
    alpenglow(f"compile {model} -o {archive} --state --input token=random", 2)

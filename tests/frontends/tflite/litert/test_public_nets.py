"""Nets that people use, of four packages, beside LiteRT."""

from __future__ import annotations

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

import alpenglow as ag
import models

SAMPLES = 1760
"""Of sound, where a net takes any number."""

NETS = ("basic_pitch", "open_alexa", "open_hey_rhasspy", "open_embedding_model",
        "open_melspectrogram", "face_detection_back", "face_detection_full_range",
        "face_detection_full_range_sparse", "face_detection_short_range", "face_landmark",
        "iris_landmark")  # fmt: skip
CLOSE = 1e-4


@pytest.mark.models
@pytest.mark.parametrize("name", NETS)
@pytest.mark.sampled(4)
def test_a_net_makes_what_litert_makes(name: str, no_cache: None) -> None:
    path = models.tflite_path(name)
    peer = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    (said,) = peer.get_input_details()
    shape = [SAMPLES if name == "open_melspectrogram" and i else int(d)
             for i, d in enumerate(said["shape"])]  # fmt: skip
    peer.resize_tensor_input(said["index"], shape)
    peer.allocate_tensors()
    x = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    peer.set_tensor(said["index"], x)
    peer.invoke()
    wanted = [peer.get_tensor(d["index"]) for d in peer.get_output_details()]

    (given,) = ag.load(path).inputs
    made = ag.compile(path, shapes={given: tuple(shape)}).run({given: x})

    for y, w in zip(made.values(), wanted, strict=True):
        assert y.shape == w.shape
        assert np.abs(y - w).max() <= CLOSE * np.abs(w).max()

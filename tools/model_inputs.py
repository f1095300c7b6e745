"""Realistic inputs for the test models: pictures, chords, digits, sentences.

An input that a network was made for exercises it as its users do: activations take their true
range, a classifier picks a class, a detector detects. Everything here is a function of fixed files
and seeds.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from public_packages import members, read

Array = NDArray[Any]
Inputs = dict[str, Array]
Archives = Mapping[str, Path]  # the archive of each package, by the package's name

SAMPLES = "foolbox/data/"

# The mean colour of ImageNet's pictures, in the order in which SqueezeNet's weights expect it: BGR.
MEAN_BGR = np.array([103.939, 116.779, 123.68], np.float32)

CHORD_HZ = (220.0, 277.18, 329.63)  # A major

# Token numbers of the uncased BERT vocabulary.
SENTENCES = (
    (101, 1996, 4248, 2829, 4419, 14523, 2058, 1996, 13971, 3899, 1012, 102),
    (101, 7592, 2088, 102),
)


def image_files(archives: Archives) -> list[str]:
    """The names of the 20 sample pictures inside foolbox, `imagenet_NUMBER_LABEL.jpg`."""
    return members(archives["foolbox"], f"{SAMPLES}imagenet_", ".jpg")


def pixels(content: bytes, height: int, width: int) -> Array:
    """The middle square of a picture, resized: f32[1, height, width, 3], RGB from 0 to 255."""
    picture = Image.open(io.BytesIO(content)).convert("RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    square = picture.crop((left, top, left + side, top + side))
    resized = square.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(resized, np.float32)[np.newaxis]


def sample(archives: Archives, index: int, height: int, width: int) -> Array:
    """One of foolbox's sample pictures, as `pixels` gives it."""
    return pixels(read(archives["foolbox"], image_files(archives)[index]), height, width)


def channels_first(picture: Array) -> Array:
    return np.ascontiguousarray(picture.transpose(0, 3, 1, 2), np.float32)


def squeezenet_input(content: bytes) -> Array:
    """What SqueezeNet wants of a picture: f32[1, 3, 227, 227], BGR less the mean colour."""
    return channels_first(pixels(content, 227, 227)[..., ::-1] - MEAN_BGR)


def squeezenet11(archives: Archives) -> list[Inputs]:
    files = image_files(archives)[:2]
    return [{"x": squeezenet_input(read(archives["foolbox"], file))} for file in files]


def mnist8(archives: Archives) -> list[Inputs]:
    found = []
    for file in members(archives["foolbox"], f"{SAMPLES}mnist_", ".png")[:2]:
        digit = Image.open(io.BytesIO(read(archives["foolbox"], file)))
        found.append({"Input3": np.asarray(digit, np.float32).reshape(1, 1, 28, 28)})
    return found


def espcn_x2_nn(archives: Archives) -> list[Inputs]:
    return [{"onnx::Relu_0": channels_first(sample(archives, 0, 128, 128) / 255)}]


def espcn_x3(archives: Archives) -> list[Inputs]:
    return [{"input": channels_first(sample(archives, k, 4, 4) / 255)} for k in range(2)]


def mtcnn_pnet(archives: Archives) -> list[Inputs]:
    """Two sizes of picture, since this net takes any."""
    widths = (160, 153)
    return [
        {"x": channels_first((sample(archives, k, 120, width) - 127.5) / 128)}
        for k, width in enumerate(widths)
    ]


def mtcnn_rnet(archives: Archives) -> list[Inputs]:
    return [{"x": _cut_outs(archives, 24, count)} for count in (3, 4)]


def mtcnn_onet(archives: Archives) -> list[Inputs]:
    return [{"x": _cut_outs(archives, 48, count)} for count in (2, 3)]


def style_predict_qdq(archives: Archives) -> list[Inputs]:
    return [{"style_image": sample(archives, k, 256, 256) / 255} for k in range(2)]


def style_transform_qdq(archives: Archives) -> list[Inputs]:
    """A picture, and a style: numbers that spread as those that style_predict_qdq makes."""
    style = np.random.default_rng(0).standard_normal((1, 1, 1, 100), np.float32)
    picture = sample(archives, 0, 384, 384) / 255
    return [{"content_image": picture, "mobilenet_conv/Conv/BiasAdd": style * np.float32(0.75)}]


def style26(archives: Archives) -> list[Inputs]:
    """One of the 26 styles, on two sizes of picture."""
    weights = np.zeros(26, np.float32)
    weights[19] = 1
    return [
        {
            "image": channels_first(sample(archives, k, height, width) / 255),
            "style_weights": weights,
        }
        for k, (height, width) in enumerate([(256, 256), (160, 128)])
    ]


def basic_pitch(archives: Archives) -> list[Inputs]:
    return [{"serving_default_input_2:0": chord(43844, 22050).reshape(1, -1, 1)}]


def silero_vad_openvino_16k(archives: Archives) -> list[Inputs]:
    """A chord from a fresh state, and a louder one from a state in the middle of something."""
    found = []
    for k in range(2):
        rng = np.random.default_rng(k)
        hiss = np.float32(0.01) * rng.standard_normal((1, 576), np.float32)
        state = np.float32(0.1 * k) * rng.standard_normal((2, 1, 128), np.float32)
        found.append({"input": (k + 1) * (chord(576, 16000) + hiss), "state": state})
    return found


def silero_vad(archives: Archives) -> list[Inputs]:
    """One sound at 16 kHz, and three at once at 8 kHz: the two halves of the network."""
    return [_sounds(1, 576, 16000), _sounds(3, 288, 8000)]


def silero_vad_16k_op15(archives: Archives) -> list[Inputs]:
    return [_sounds(1, 576, 16000), _sounds(3, 576, 16000)]


def silero_vad_half(archives: Archives) -> list[Inputs]:
    """What `silero_vad_16k_op15` takes, but for the rate, which is no input here."""
    sets = silero_vad_16k_op15(archives)
    return [{name: x for name, x in inputs.items() if name != "sr"} for inputs in sets]


def silero_vad_op18_ifless(archives: Archives) -> list[Inputs]:
    """As `silero_vad`, and a longer stretch of sound."""
    return [*silero_vad(archives), _sounds(1, 1088, 16000)]


def silero_vad_16k_sequence(archives: Archives) -> list[Inputs]:
    """One piece of sound, and seven that follow each other."""
    found = []
    for count in (1, 7):
        h, c = _sounds(1, 576, 16000)["state"][:, np.newaxis]
        found.append({"input": _sounds(count, 576, 16000)["input"], "h": h, "c": c})
    return found


def _sounds(count: int, samples: int, rate_hz: int) -> Inputs:
    """Successive pieces of a hissing chord, and a state in the middle of something."""
    rng = np.random.default_rng(count)
    hiss = np.float32(0.01) * rng.standard_normal((count, samples), np.float32)
    state = np.float32(0.1) * rng.standard_normal((2, count, 128), np.float32)
    pieces = chord(count * samples, rate_hz).reshape(count, samples)
    return {"input": pieces + hiss, "state": state, "sr": np.array(rate_hz, np.int64)}


def minilm_l6_int8w(archives: Archives) -> list[Inputs]:
    """A batch of two sentences, the shorter padded; and 128 tokens without padding."""
    longest = max(map(len, SENTENCES))
    padded = np.zeros((len(SENTENCES), longest + 4), np.int64)
    for row, sentence in zip(padded, SENTENCES, strict=True):
        row[: len(sentence)] = sentence
    long = np.resize(np.array(SENTENCES[0][1:-1], np.int64), (1, 128))
    return [
        {
            "input_ids": tokens,
            "attention_mask": (tokens != 0).astype(np.int64),
            "token_type_ids": np.zeros_like(tokens),
        }
        for tokens in (padded, long)
    ]


def chord(count: int, rate_hz: int) -> Array:
    """So many samples of a chord with a few overtones, swelling three times a second."""
    seconds = np.arange(count) / rate_hz
    tones = sum(
        np.sin(2 * np.pi * overtone * hertz * seconds) / overtone
        for hertz in CHORD_HZ
        for overtone in (1, 2, 3)
    )
    swell = 0.6 + 0.4 * np.sin(2 * np.pi * 3 * seconds)
    return np.asarray(0.12 * tones * swell, np.float32)


def _cut_outs(archives: Archives, size: int, count: int) -> Array:
    pictures = [sample(archives, k, size, size) for k in range(count)]
    return channels_first((np.concatenate(pictures) - 127.5) / 128)

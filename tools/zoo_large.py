"""A network above 2 GB, made here: its weights lie in a file beside it, as protobuf holds less.

It is a stack of residual layers, x + relu(x @ w), of random weights so small that numbers stay near
those of the input.  No package has it, and no test needs it: `tools/zoo.py fetch --large` makes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from public_packages import FetchError, Package
from zoo_models import ZOO, Network

SEED, WIDTH, LAYERS, OPSET = 0, 4096, 33, 21

LARGE = Network(
    name="large",
    package=Package("tools/zoo_large.py", f"seed {SEED}", "", "", ""),
    registry="made",
    member="–",
    sha256="b8b9ef13f08586367effa7594be21f4af54ec857ffc0083b05b2e94a52602b89",
    exporter="made",
    weights="float",
    sizes=({"B": 1}, {"B": 4}, {"B": 5}),
    feeds={"x": f"features[B,{WIDTH}]"},
    note="weights are random, in an external file",
)
DATA = LARGE.file.with_suffix(".data")


def make() -> None:
    """Write the network and its weights, unless they are here."""
    if is_here():
        return
    ZOO.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    aside = DATA.with_suffix(".part")
    with aside.open("wb") as file:
        for layer in _weights():
            file.write(layer.data)
            digest.update(layer.data)
    if digest.hexdigest() != LARGE.sha256:
        raise FetchError(f"{DATA.name} has SHA-256 {digest.hexdigest()}, expected {LARGE.sha256}")
    onnx.save(_network(), LARGE.file)
    aside.rename(DATA)


def is_here() -> bool:
    """If the network and all its weights were written."""
    whole = LAYERS * _nbytes()
    return LARGE.file.is_file() and DATA.is_file() and DATA.stat().st_size == whole


def _weights() -> Iterator[NDArray[np.float32]]:
    rng = np.random.default_rng(SEED)
    for _ in range(LAYERS):
        weights = rng.random((WIDTH, WIDTH), np.float32)
        weights -= np.float32(0.5)
        weights *= np.float32((WIDTH * LAYERS) ** -0.5)
        yield weights


def _network() -> onnx.ModelProto:
    nodes = []
    x = "x"
    for k in range(LAYERS):
        nodes.append(helper.make_node("MatMul", [x, f"w{k}"], [f"product{k}"]))
        nodes.append(helper.make_node("Relu", [f"product{k}"], [f"positive{k}"]))
        nodes.append(helper.make_node("Add", [x, f"positive{k}"], [f"x{k}"]))
        x = f"x{k}"
    graph = helper.make_graph(
        nodes,
        LARGE.name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["B", WIDTH])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["B", WIDTH])],
        [_external(k) for k in range(LAYERS)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


def _external(k: int) -> TensorProto:
    """Return the weights of a layer as a place in the file."""
    tensor = TensorProto(name=f"w{k}", data_type=TensorProto.FLOAT, dims=[WIDTH, WIDTH])
    tensor.data_location = TensorProto.EXTERNAL
    place = {"location": DATA.name, "offset": k * _nbytes(), "length": _nbytes()}
    for key, value in place.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _nbytes() -> int:
    """Return how many bytes the weights of a layer are."""
    return WIDTH * WIDTH * np.dtype(np.float32).itemsize

"""Give the `onnx` package's light networks random weights of a realistic scale.

The package carries nine well-known image networks without their weights: nearly all are filled with one
constant, so that their outputs say little. Here each parameter is drawn by its role, from a fixed seed:
kernels normal with He's scale, statistics and gains near one, so that activations stay finite and
varied from the first layer to the last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

SEED = 20240229
IR_VERSION = 8  # from 4 on, an initializer need not be listed as an input

Array = NDArray[Any]
Role = tuple[str, int]  # the operator that uses a parameter, and as which operand

# The scale of the last layer's weights in units of He's, chosen so that the logits spread by about 2:
# softmax then neither picks one class nor hands out equal shares.
HEAD_GAINS: dict[str, float] = {}

# A gain that ends in a sum, so that a chain of residual blocks does not grow without bound.
BRANCH_GAIN = 0.5

_LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"


def networks() -> list[str]:
    """The names of the light networks in the installed `onnx` package, without `light_`."""
    return sorted(path.stem.removeprefix("light_") for path in _LIGHT.glob("light_*.onnx"))


def light_model(network: str) -> onnx.ModelProto:
    """The network as it is in the package."""
    return onnx.load(str(_LIGHT / f"light_{network}.onnx"))


def light_output(network: str) -> Array:
    """What the package says that the light network makes of `ramp`."""
    tensor = TensorProto()
    tensor.ParseFromString((_LIGHT / f"light_{network}_output_0.pb").read_bytes())
    return numpy_helper.to_array(tensor)


def ramp(model: onnx.ModelProto) -> dict[str, Array]:
    """The input that the package's stored outputs belong to: 0 to 1 in equal steps."""
    name, shape = _input(model)
    count = math.prod(shape)
    return {name: (np.arange(count).reshape(shape) / count).astype(np.float32)}


def noise(model: onnx.ModelProto) -> dict[str, Array]:
    """A normal input from the fixed seed."""
    name, shape = _input(model)
    return {name: np.random.default_rng(SEED).standard_normal(shape, np.float32)}


def seeded_model(network: str) -> onnx.ModelProto:
    """The network with its float parameters drawn anew, as initializers."""
    return seed(light_model(network), HEAD_GAINS.get(network, 1.0))


def seed(model: onnx.ModelProto, head_gain: float) -> onnx.ModelProto:
    """Draw each float parameter of a model by its role; fillers become initializers."""
    graph = model.graph
    shapes = _parameter_shapes(graph)
    rng = np.random.default_rng(SEED)
    roles = _roles(graph)
    last = [node.input[1] for node in graph.node if node.op_type in ("Conv", "Gemm")][-1]
    head = next(name for name in shapes if last in (name, *_forwarded(graph, name)))
    weights = []
    for name in sorted(shapes):
        gain = head_gain if name == head else BRANCH_GAIN if _ends_in_sum(graph, name) else 1.0
        drawn = _DRAW[roles[name]](rng, shapes[name]) * np.float32(gain)
        weights.append(numpy_helper.from_array(drawn, name))
    return _with_weights(model, weights)


def _input(model: onnx.ModelProto) -> tuple[str, list[int]]:
    """The one input that no initializer fills."""
    given = {weight.name for weight in model.graph.initializer}
    (value,) = [value for value in model.graph.input if value.name not in given]
    return value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _parameter_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """The shape of every float parameter that a node uses, stored or made by ConstantOfShape."""
    stored = {weight.name: weight for weight in graph.initializer}
    used = {operand for node in graph.node for operand in node.input}
    shapes = {
        name: tuple(weight.dims)
        for name, weight in stored.items()
        if weight.data_type == TensorProto.FLOAT and name in used
    }
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(dim) for dim in shape)
    return shapes


def _users(graph: onnx.GraphProto) -> Mapping[str, list[tuple[onnx.NodeProto, int]]]:
    users = defaultdict(list)
    for node in graph.node:
        for position, operand in enumerate(node.input):
            users[operand].append((node, position))
    return users


def _forwarded(graph: onnx.GraphProto, name: str) -> list[str]:
    """The values that are this parameter in another shape."""
    return [
        node.output[0]
        for node, position in _users(graph)[name]
        if node.op_type in ("Reshape", "Unsqueeze") and position == 0
    ]

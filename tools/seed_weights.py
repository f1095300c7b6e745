"""Give the `onnx` package's light networks random weights of a realistic scale.

The package carries nine well-known image networks without their weights: nearly all are filled
with one constant, so that their outputs say little. Here each parameter is drawn by its role, from
a fixed seed: kernels normal with He's scale, statistics and gains near one, so that activations
stay finite and varied from the first layer to the last.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

SEED = 20240229
IR_VERSION = 8  # from 4 on, an initializer need not be listed as an input

Array = NDArray[Any]

# The scale of the last layer's weights in units of He's, chosen so that the logits spread by about
# 2: softmax then neither picks one class nor hands out equal shares.
HEAD_GAINS = {
    "bvlc_alexnet": 0.4,
    "inception_v1": 0.5,
    "inception_v2": 0.25,
    "resnet50": 0.15,
    "shufflenet": 0.012,
    "squeezenet": 0.2,
    "vgg19": 0.55,
}

# The gain of what ends in a sum, so that a chain of residual blocks does not grow without bound.
BRANCH_GAIN = 0.25

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
    return np.asarray(numpy_helper.to_array(tensor))


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
    rng = np.random.default_rng(SEED)
    weights = []
    for parameter in _parameters(model.graph):
        gain = np.float32(head_gain if parameter.is_head else 1.0)
        if parameter.ends_in_sum:
            gain = np.float32(BRANCH_GAIN)
        drawn = _draw(rng, parameter) * gain
        weights.append(numpy_helper.from_array(drawn, parameter.name))
    return _with_weights(model, weights)


def _input(model: onnx.ModelProto) -> tuple[str, list[int]]:
    """The name and shape of the one input that no initializer fills."""
    given = {weight.name for weight in model.graph.initializer}
    (value,) = [value for value in model.graph.input if value.name not in given]
    return value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim]


@dataclass(frozen=True)
class _Parameter:
    """A float parameter, and which operand of which operator it is."""

    name: str
    shape: tuple[int, ...]
    op: str
    position: int
    is_head: bool
    ends_in_sum: bool


def _parameters(graph: onnx.GraphProto) -> list[_Parameter]:
    """The float parameters that nodes use, in the order of their names."""
    users: dict[str, list[tuple[onnx.NodeProto, int]]] = defaultdict(list)
    for node in graph.node:
        for position, operand in enumerate(node.input):
            users[operand].append((node, position))
    heavy = [node for node in graph.node if node.op_type in ("Conv", "Gemm")]
    found = []
    for name, shape in sorted(_shapes(graph).items()):
        if name not in users:
            continue
        node, position = users[name][0]
        while node.op_type in ("Reshape", "Unsqueeze"):
            node, position = users[node.output[0]][0]
        is_head = node is heavy[-1] and position == 1
        ends_in_sum = any(user.op_type == "Sum" for user, _ in users[node.output[0]])
        found.append(_Parameter(name, shape, node.op_type, position, is_head, ends_in_sum))
    return found


def _shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """The shape of every float parameter, stored or made by ConstantOfShape."""
    stored = {weight.name: weight for weight in graph.initializer}
    shapes = {
        name: tuple(weight.dims)
        for name, weight in stored.items()
        if weight.data_type == TensorProto.FLOAT
    }
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            shape = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(dim) for dim in shape)
    return shapes


def _draw(rng: np.random.Generator, parameter: _Parameter) -> Array:
    """Values fit for a parameter's role."""
    shape = parameter.shape
    match parameter.op, parameter.position:
        case "Conv", 1:
            return _normal(rng, shape, math.sqrt(2 / math.prod(shape[1:])))
        case "Gemm", 1:
            return _normal(rng, shape, math.sqrt(2 / shape[-1]))  # all are [out, in]
        case (("Conv" | "Gemm"), 2):
            return _normal(rng, shape, 0.05)
        case ("BatchNormalization", 1) | ("Mul", _):
            return _around_one(rng, shape, 0.2)
        case ("BatchNormalization", 2 | 3) | ("Add", _):
            return _normal(rng, shape, 0.1)
        case "BatchNormalization", 4:
            return _around_one(rng, shape, 0.5)
    raise AssertionError(f"no rule for operand {parameter.position} of {parameter.op}")


def _normal(rng: np.random.Generator, shape: tuple[int, ...], deviation: float) -> Array:
    return rng.standard_normal(shape, np.float32) * np.float32(deviation)


def _around_one(rng: np.random.Generator, shape: tuple[int, ...], spread: float) -> Array:
    return np.float32(1) + np.float32(spread) * (2 * rng.random(shape, np.float32) - 1)


def _with_weights(model: onnx.ModelProto, weights: list[onnx.TensorProto]) -> onnx.ModelProto:
    """The model with these parameters stored, no fillers, and no parameter among its inputs."""
    graph = model.graph
    nodes = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    drawn = {weight.name for weight in weights}
    used = {operand for node in nodes for operand in node.input}
    kept = [w for w in graph.initializer if w.name in used and w.name not in drawn]
    name, _ = _input(model)
    (x,) = [value for value in graph.input if value.name == name]
    rewritten = helper.make_graph(nodes, graph.name, [x], graph.output, [*kept, *weights])
    return helper.make_model(rewritten, opset_imports=model.opset_import, ir_version=IR_VERSION)

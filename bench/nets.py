"""The nets of the benchmark: seeded ones built here, and those that the tests fetch.

Any folder of fetched models is a net, too, and so is what tools/export_transformers.py exports of
PyTorch's libraries: `vit_s`, `whisper_tiny_encoder`, `unet`.  A name of one on pictures may end in
what it is run on: `resnet50@160` (a side of the picture), `resnet50@333x250`, `resnet50*8` (a batch
of pictures), `bert_base@64` (tokens).  Behind it may stand how numbers are stored: `resnet50~int8`
(QDQ, calibrated on noise), `bert_base~dynamic` (weights in int8, activations quantized as it runs),
`resnet50~bf16` (the same net, of which runtimes are asked that).  All shapes in a net that is
written are fixed, so that every runtime knows them.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from alpenglow import QuantOptions, load, profile_ranges
from alpenglow.frontends.onnx.export import export
from alpenglow.quant.plan import plan
from resize import resize

Array = NDArray[Any]

OPSET = 17
VOCABULARY = 30522


@dataclass(frozen=True)
class Size:
    """What a net is run on: `extent` is the height and width of pictures, or (tokens,)."""

    batch: int
    extent: tuple[int, ...]


@dataclass
class Net:
    """An ONNX graph that grows: each method appends nodes and returns the name of its result.

    `shapes` holds the extents of what has been made, as far as the builders need them.
    """

    rng: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def weight(self, array: Array | np.float32) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def normal(self, *shape: int, scale: float) -> str:
        return self.weight(self.rng.standard_normal(shape, np.float32) * np.float32(scale))

    def conv(
        self, x: str, outputs: int, kernel: int, stride: int = 1, group: int = 1,
        pad: int | None = None, gain: float = 1.0,
    ) -> str:  # fmt: skip
        """A convolution with bias, as exporters write it: batch normalisation is in the weights."""
        n, channels, *sides = self.shapes[x]
        pad = kernel // 2 if pad is None else pad
        fan = channels // group * kernel**2
        w = self.normal(outputs, channels // group, kernel, kernel, scale=gain * (2 / fan) ** 0.5)
        b = self.normal(outputs, scale=0.1)
        y = self.add("Conv", x, w, b, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                     pads=[pad] * 4, group=group)  # fmt: skip
        self.shapes[y] = n, outputs, *((s + 2 * pad - kernel) // stride + 1 for s in sides)
        return y

    def alike(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """A node whose result has the shape of its first input."""
        y = self.add(kind, *inputs, **attributes)
        self.shapes[y] = self.shapes[inputs[0]]
        return y

    def relu6(self, x: str) -> str:
        return self.alike("Clip", x, self.weight(np.float32(0)), self.weight(np.float32(6)))

    def max_pool(self, x: str, kernel: int, stride: int, pad: int = 0) -> str:
        y = self.add("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        n, channels, *sides = self.shapes[x]
        self.shapes[y] = n, channels, *((s + 2 * pad - kernel) // stride + 1 for s in sides)
        return y

    def dense(self, x: str, outputs: int) -> str:
        """A fully connected layer on rows."""
        rows, features = self.shapes[x]
        w = self.normal(outputs, features, scale=features**-0.5)
        y = self.add("Gemm", x, w, self.normal(outputs, scale=0.1), transB=1)
        self.shapes[y] = rows, outputs
        return y

    def flat(self, x: str) -> str:
        y = self.add("Flatten", x, axis=1)
        n, *rest = self.shapes[x]
        self.shapes[y] = n, int(np.prod(rest))
        return y

    def pooled(self, x: str) -> str:
        """The mean of each picture's channels, as rows."""
        y = self.add("GlobalAveragePool", x)
        self.shapes[y] = *self.shapes[x][:2], 1, 1
        return self.flat(y)

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """A product with a matrix and a bias, on the last axis."""
        product = self.add("MatMul", x, self.normal(inputs, outputs, scale=inputs**-0.5))
        return self.add("Add", product, self.normal(outputs, scale=0.1))

    def norm(self, x: str, width: int) -> str:
        gain = self.weight(1 + self.rng.standard_normal(width, np.float32) * np.float32(0.1))
        shift = self.normal(width, scale=0.1)
        return self.add("LayerNormalization", x, gain, shift, axis=-1, epsilon=1e-12)

    def ints(self, *values: int) -> str:
        return self.weight(np.array(values, np.int64))


# ── the nets ──


def resnet50(net: Net, x: str) -> str:
    x = net.max_pool(net.alike("Relu", net.conv(x, 64, 7, 2)), 3, 2, 1)
    for depth, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for k in range(depth):
            stride = first if k == 0 else 1
            y = net.alike("Relu", net.conv(x, width, 1))
            y = net.alike("Relu", net.conv(y, width, 3, stride))
            y = net.conv(y, 4 * width, 1, gain=0.25)
            side = net.conv(x, 4 * width, 1, stride, gain=0.7) if k == 0 else x
            x = net.alike("Relu", net.alike("Add", y, side))
    return net.dense(net.pooled(x), 1000)


def vgg19(net: Net, x: str) -> str:
    for depth, width in ((2, 64), (2, 128), (4, 256), (4, 512), (4, 512)):
        for _ in range(depth):
            x = net.alike("Relu", net.conv(x, width, 3))
        x = net.max_pool(x, 2, 2)
    x = net.flat(x)
    for width in (4096, 4096):
        x = net.alike("Relu", net.dense(x, width))
    return net.dense(x, 1000)


def mobilenetv2(net: Net, x: str) -> str:
    x = net.relu6(net.conv(x, 32, 3, 2))
    for expansion, width, depth, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for k in range(depth):
            stride = first if k == 0 else 1
            channels = net.shapes[x][1]
            inner = channels * expansion
            y = net.relu6(net.conv(x, inner, 1)) if expansion > 1 else x
            y = net.relu6(net.conv(y, inner, 3, stride, group=inner))
            y = net.conv(y, width, 1, gain=0.5)
            x = net.alike("Add", x, y) if stride == 1 and channels == width else y
    return net.dense(net.pooled(net.relu6(net.conv(x, 1280, 1))), 1000)


def squeezenet11(net: Net, x: str) -> str:
    x = net.max_pool(net.alike("Relu", net.conv(x, 64, 3, 2, pad=0)), 3, 2)
    for i, (narrow, wide) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if i in (2, 4):
            x = net.max_pool(x, 3, 2)
        y = net.alike("Relu", net.conv(x, narrow, 1))
        sides = [net.alike("Relu", net.conv(y, wide, kernel)) for kernel in (1, 3)]
        x = net.add("Concat", *sides, axis=1)
        n, _, *extent = net.shapes[y]
        net.shapes[x] = n, 2 * wide, *extent
    return net.pooled(net.alike("Relu", net.conv(x, 1000, 1)))


def transformer(layers: int, width: int, heads: int) -> Callable[[Net, str], str]:
    """Return what builds an encoder on token numbers."""

    def build(net: Net, ids: str) -> str:
        batch, tokens = net.shapes[ids]
        part = width // heads
        split = net.ints(batch, tokens, heads, part)
        merged = net.ints(batch, tokens, width)
        scale = net.weight(np.float32(part**0.5))
        root = net.weight(np.float32(2**0.5))
        one, half = net.weight(np.float32(1)), net.weight(np.float32(0.5))

        def headed(x: str, perm: list[int]) -> str:
            y = net.add("Reshape", net.linear(x, width, width), split)
            return net.add("Transpose", y, perm=perm)

        x = net.add("Gather", net.normal(VOCABULARY, width, scale=0.5), ids)
        x = net.norm(net.add("Add", x, net.normal(1, tokens, width, scale=0.5)), width)
        for _ in range(layers):
            q, v = headed(x, [0, 2, 1, 3]), headed(x, [0, 2, 1, 3])
            scores = net.add("Div", net.add("MatMul", q, headed(x, [0, 2, 3, 1])), scale)
            mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
            y = net.add("Reshape", net.add("Transpose", mixed, perm=[0, 2, 1, 3]), merged)
            x = net.norm(net.add("Add", net.linear(y, width, width), x), width)
            y = net.linear(x, width, 4 * width)
            bell = net.add("Add", net.add("Erf", net.add("Div", y, root)), one)
            y = net.add("Mul", net.add("Mul", y, bell), half)
            x = net.norm(net.add("Add", net.linear(y, 4 * width, width), x), width)
        return x

    return build


@dataclass(frozen=True)
class Built:
    """A net that is built here, on pictures or on token numbers."""

    build: Callable[[Net, str], str]
    extent: tuple[int, ...] = (224, 224)

    def make(self, size: Size) -> tuple[onnx.ModelProto, dict[str, Array]]:
        rng = np.random.default_rng(1)
        feeds: Array
        if len(size.extent) == 1:
            feeds = rng.integers(0, VOCABULARY, (size.batch, *size.extent))
            kind = TensorProto.INT64
        else:
            feeds = rng.standard_normal((size.batch, 3, *size.extent), np.float32)
            kind = TensorProto.FLOAT
        net = Net(np.random.default_rng(0))
        net.shapes["x"] = feeds.shape
        last = self.build(net, "x")
        net.nodes[-1].output[0] = "y"
        assert last == net.nodes[-1].name, "the last node makes the result"
        graph = helper.make_graph(
            net.nodes,
            "net",
            [helper.make_tensor_value_info("x", kind, feeds.shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            net.weights,
        )
        opset = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opset, ir_version=8), {"x": feeds}


@dataclass(frozen=True)
class Fetched:
    """A net of the tests: its folder among the fetched models, and the shapes it is run on."""

    folder: str
    tokens: int = 0

    def load(self, models: Path) -> tuple[onnx.ModelProto, dict[str, Array]]:
        model = onnx.load(models / self.folder / "model.onnx")
        with np.load(models / self.folder / "inputs_0.npz") as archive:
            feeds = dict(archive)
        if self.tokens:
            rng = np.random.default_rng(1)
            shape = (1, self.tokens)
            drawn = {
                "input_ids": rng.integers(1000, 20000, shape),
                "attention_mask": np.ones(shape),
            }
            feeds = {n: drawn.get(n, np.zeros(shape)).astype(x.dtype) for n, x in feeds.items()}
        return model, feeds


BUILT: Mapping[str, Built] = {
    "resnet50": Built(resnet50),
    "vgg19": Built(vgg19),
    "mobilenetv2": Built(mobilenetv2),
    "squeezenet11": Built(squeezenet11),
    "bert_base": Built(transformer(12, 768, 12), (128,)),
    "minilm_l6": Built(transformer(6, 384, 12), (128,)),
}

FETCHED: Mapping[str, Fetched] = {
    "minilm_l6_int8w": Fetched("minilm_l6_int8w", tokens=128),
    "densenet121": Fetched("seeded_densenet121"),
    "inception_v1": Fetched("seeded_inception_v1"),
    "inception_v2": Fetched("seeded_inception_v2"),
    "shufflenet": Fetched("seeded_shufflenet"),
    "silero_vad": Fetched("silero_vad_16k_op15"),
    "style26": Fetched("style26"),
    "espcn_x2": Fetched("espcn_x2_nn"),
    "espcn_x3": Fetched("espcn_x3"),
    "squeezenet11_qdq": Fetched("squeezenet11_qdq"),
    "style_predict_qdq": Fetched("style_predict_qdq"),
    "style_transform_qdq": Fetched("style_transform_qdq"),
}

NETS = ("resnet50", "resnet50*8", "vgg19", "mobilenetv2", "squeezenet11", "bert_base", "minilm_l6",
        "minilm_l6_int8w", "densenet121", "inception_v1", "inception_v2", "shufflenet",
        "silero_vad", "style26", "espcn_x2", "espcn_x3", "resnet50~int8", "mobilenetv2~int8",
        "squeezenet11_qdq", "style_predict_qdq", "style_transform_qdq", "minilm_l6~dynamic",
        "bert_base~dynamic", "resnet50~bf16", "bert_base~bf16")  # fmt: skip
"""What is measured unless something else is asked for."""


class NetError(Exception):
    """A net cannot be made: its name, or the fetched models, are not there."""


def make(name: str, folder: Path, models: Path) -> tuple[Path, Path]:
    """Return the files of a net's model and inputs in `folder`; they are made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"\W", "_", name)
    model, feeds = folder / f"{stem}.onnx", folder / f"{stem}.npz"
    if not (model.exists() and feeds.exists()):
        made, arrays = _made(name, models)
        np.savez(feeds, **arrays)  # type: ignore[arg-type]
        onnx.save(stored(fixed(made, arrays), arrays, storage(name)), model)
    return model, feeds


def storage(name: str) -> str:
    """Return how the numbers of a net are stored, as its name says; "" if it does not."""
    return name.partition("~")[2]


def precision(name: str) -> str:
    """Return what runtimes are asked to compute in."""
    return "bf16" if storage(name) == "bf16" else "f32"


def stored(model: onnx.ModelProto, feeds: Mapping[str, Array], storage: str) -> onnx.ModelProto:
    """Return the model with its numbers stored in another way."""
    match storage:
        case "" | "bf16":
            return model
        case "int8":
            g = load(model)
            random = np.random.default_rng(2)
            samples = [{n: random.standard_normal(x.shape, np.float32) for n, x in feeds.items()}
                       for _ in range(4)]  # fmt: skip
            profile = profile_ranges(g, samples, threads=1)
            return export(model, plan(g, profile, QuantOptions())).model
        case "dynamic":
            quantization = import_module("onnxruntime.quantization")
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "dynamic.onnx"
                quantization.quantize_dynamic(model, path, per_channel=True)
                return onnx.load(path)
    raise NetError(f"'~{storage}' is none of ~int8, ~dynamic and ~bf16")


def _made(name: str, models: Path) -> tuple[onnx.ModelProto, dict[str, Array]]:
    found = re.fullmatch(r"(\w+?)(?:@(\d+)(?:x(\d+))?)?(?:\*(\d+))?(?:~\w+)?", name)
    if found is None:
        raise NetError(f"'{name}' is no name of a net")
    base, first, second, batch = found.groups()
    if base in BUILT:
        net = BUILT[base]
        extent = net.extent
        if first is not None:
            extent = (int(first), int(second or first))[: len(extent)]
        return net.make(Size(int(batch or 1), extent))
    fetched = FETCHED.get(base) or Fetched(_folder(base, models))
    if not (models / fetched.folder / "model.onnx").exists():
        raise NetError(
            f"'{name}' is none of {', '.join(BUILT)}, and not in {models}: run `make models`, or "
            f"`python tools/export_transformers.py {base}` where PyTorch is"
        )
    model, feeds = fetched.load(models)
    if first or batch:
        ((key, x),) = feeds.items()
        sides = (int(first), int(second or first)) if first else x.shape[2:]
        shape = (int(batch or 1), x.shape[1], *sides)
        try:
            model = resize(model, key, shape)
        except ValueError as error:
            raise NetError(f"'{name}': {error}") from error
        feeds = {key: np.random.default_rng(1).standard_normal(shape, np.float32)}
    return model, feeds


def _folder(base: str, models: Path) -> str:
    """Return where a net is that has no other name: among what was exported if it is there."""
    return f"exported/{base}" if (models / "exported" / base).exists() else base


def fixed(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> onnx.ModelProto:
    """Return the model with the shapes of its inputs written down, and types of all that follows.

    Inputs that nobody feeds are constants: they are no inputs any more.
    """
    graph = model.graph
    inputs = [
        helper.make_tensor_value_info(i.name, i.type.tensor_type.elem_type, feeds[i.name].shape)
        for i in graph.input
        if i.name in feeds
    ]
    del graph.input[:], graph.value_info[:]
    graph.input.extend(inputs)
    for output in graph.output:
        output.type.tensor_type.ClearField("shape")
    return onnx.shape_inference.infer_shapes(model)

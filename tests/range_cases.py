"""Nodes of every operator that reads or writes where data says, and who can run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as refusals

import alpenglow as ag
from alpenglow.base.errors import FeedError
from alpenglow.frontends.onnx import load

Array = NDArray[Any]

LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "interpreter")
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@dataclass(frozen=True)
class Case:
    """One node; operand `at` holds indices, of which the last is tried around `extent`."""

    op_type: str
    inputs: Sequence[Array | None]
    at: int
    extent: int
    outputs: int = 1
    opset: int = 21
    domain: str = ""
    types: tuple[str, ...] = ("int32", "int64")
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    """Indices that ONNX Runtime takes though nothing says what they mean."""

    def __str__(self) -> str:
        more = "-".join(str(v) for v in self.attributes.values() if isinstance(v, str))
        return "-".join(filter(None, [self.op_type, str(self.at), more]))


def case(op_type: str, *inputs: Array | None, at: int, extent: int, **more: Any) -> Case:
    known = {n: more.pop(n) for n in list(more) if n in Case.__dataclass_fields__}
    return Case(op_type, inputs, at, extent, attributes=more, **known)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.int64)


def cases() -> Iterator[Case]:
    """Yield a case of every operator, with indices that are all 0."""
    x, wide = floats(5, 3), ("int64",)
    yield case("Gather", x, zeros(2, 4), at=1, extent=5)
    yield case("Gather", x, zeros(17), at=1, extent=3, axis=1)
    yield case("Gather", floats(19), zeros(33), at=1, extent=19)
    yield case("GatherElements", x, zeros(5, 17), at=1, extent=3, axis=1)
    yield case("GatherElements", x, zeros(3, 3), at=1, extent=5, axis=0)
    yield case("GatherND", x, zeros(4, 1), at=1, extent=5, types=wide)
    yield case("GatherND", x, zeros(4, 2), at=1, extent=3, types=wide)
    yield case(
        "GatherND", floats(2, 5, 3), zeros(2, 4, 1), at=1, extent=5, types=wide, batch_dims=1
    )
    yield case("GatherND", floats(4, 4), zeros(9, 2), at=1, extent=4, types=wide)
    for axis, extent in ((0, 5), (1, 3)):
        yield case("ScatterElements", x, zeros(2, 3), floats(2, 3), at=1, extent=extent, axis=axis)
    yield case("ScatterElements", x, zeros(2, 3), floats(2, 3), at=1, extent=5, reduction="add")
    yield case("Scatter", x, zeros(2, 3), floats(2, 3), at=1, extent=5, opset=9)
    yield case("ScatterND", x, zeros(2, 1), floats(2, 3), at=1, extent=5, types=wide)
    yield case("ScatterND", x, zeros(2, 2), floats(2), at=1, extent=3, types=wide)
    yield case("ScatterND", x, zeros(2, 2), floats(2), at=1, extent=3, types=wide, reduction="max")
    yield case("OneHot", zeros(4), np.array([5]), np.array([0, 1], np.float32), at=0, extent=5,
               types=wide, constants=(1,))  # fmt: skip
    yield from regions_and_windows()
    yield from sequences()
    yield from positions()


def regions_and_windows() -> Iterator[Case]:
    image, wide = floats(2, 1, 4, 4), ("int64",)
    boxes = np.array([[0, 0, 2, 2]] * 3, np.float32)
    yield case("RoiAlign", image, boxes, zeros(3), at=2, extent=2, types=wide,
               output_height=2, output_width=2)  # fmt: skip
    yield case("CropAndResize", image, boxes[:1] / 4, zeros(1), np.array([2, 2], np.int32), at=2,
               extent=2, types=("int32",), domain=MICROSOFT, constants=(3,))  # fmt: skip
    yield case("MaxUnpool", floats(1, 1, 2, 2), np.arange(4).reshape(1, 1, 2, 2), at=1,
               extent=16, types=wide, kernel_shape=[2, 2], strides=[2, 2])  # fmt: skip


def sequences() -> Iterator[Case]:
    """Yield cases of lengths: the extent itself is one, too."""
    yield case("ReverseSequence", floats(3, 5), zeros(3), at=1, extent=5, types=("int64",),
               batch_axis=0, time_axis=1)  # fmt: skip
    for op, gates, states in (("RNN", 1, 1), ("GRU", 3, 1), ("LSTM", 4, 2)):
        yield case(op, floats(3, 2, 2), floats(1, gates, 2), floats(1, gates, 1), None, zeros(2),
                   at=4, extent=3, types=("int32",), outputs=1 + states, hidden_size=1)  # fmt: skip
    q, k = floats(2, 1, 1, 2), floats(2, 1, 3, 2)
    yield case("Attention", q, k, k, None, None, None, zeros(2), at=6, extent=3, opset=24,
               types=("int64",))  # fmt: skip
    for mode in ("linear", "circular"):
        yield case("TensorScatter", floats(2, 1, 4, 1), floats(2, 1, 2, 1), zeros(2), at=2,
                   extent=3, opset=24, types=("int64",), mode=mode)  # fmt: skip


def positions() -> Iterator[Case]:
    """Yield cases of tables: of positions, tokens and classes."""
    cache, x = floats(4, 2), floats(1, 2, 1, 4)
    yield case("RotaryEmbedding", x, cache, cache, zeros(1, 1), at=3, extent=4, opset=23,
               types=("int64",))  # fmt: skip
    yield case("RotaryEmbedding", x, zeros(1, 1), cache, cache, at=1, extent=4, types=("int64",),
               domain=MICROSOFT)  # fmt: skip
    yield case("ArrayFeatureExtractor", floats(2, 3), zeros(1, 4), at=1, extent=3,
               types=("int64",), domain="ai.onnx.ml")  # fmt: skip
    ids, one = np.zeros((1, 2), np.int32), floats(4)
    operands = [ids, ids, floats(4, 4), floats(3, 4), floats(2, 4), one, one, None, ids]
    for at, extent in ((0, 4), (1, 2), (8, 3)):
        yield case("EmbedLayerNormalization", *operands, at=at, extent=extent, outputs=2,
                   types=("int32",), domain=MICROSOFT)  # fmt: skip
    packed = np.zeros((4, 16), np.uint8)
    yield case("GatherBlockQuantized", packed, zeros(3), floats(4, 2), at=1, extent=4,
               domain=MICROSOFT, gather_axis=0, quantize_axis=1, block_size=16, bits=4,
               accepted=(4, 5, 255, -5, -(1 << 31), (1 << 31) - 1, -(1 << 63), (1 << 63) - 1),
               )  # fmt: skip
    yield case("MatMulNBits", floats(1, 32), np.zeros((1, 2, 8), np.uint8), floats(2), None,
               zeros(32), at=4, extent=2, types=("int32",), domain=MICROSOFT, K=32, N=1, bits=4,
               block_size=16)  # fmt: skip
    for ignored in ((), (-3,), (255,)):
        more = {"ignore_index": ignored[0]} if ignored else {}
        weights = [None, floats(3) + 9] if ignored else [None]
        for w in weights:
            for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"):
                yield case(op, floats(2, 3), zeros(2), *([] if w is None else [w]), at=1,
                           extent=3, opset=13, types=("int64",), **more)  # fmt: skip


def edges(extent: int, dtype: np.dtype[Any]) -> list[int]:
    """Return indices around both ends of an axis, and of a type."""
    limits = np.iinfo(dtype)
    near = (-extent - 1, -extent, -1, 0, 1, extent - 1, extent, extent + 1, 255)
    return sorted({*near, int(limits.min), int(limits.max)})


def outcome(run: Callable[[dict[str, Array]], Any], feeds: dict[str, Array]) -> list[Array] | None:
    """Return what a runtime makes of arrays; None if it refuses them."""
    try:
        return [np.asarray(y) for y in run(feeds)]
    except (FeedError, refusals.Fail, refusals.InvalidArgument, refusals.RuntimeException):
        return None


def session(model: onnx.ModelProto) -> Callable[[dict[str, Array]], Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    found = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return lambda feeds: found.run(None, feeds)


def compiled(model: onnx.ModelProto, target: str) -> Callable[[dict[str, Array]], Any]:
    exe = ag.compile(load(model), target, threads=1)
    return lambda feeds: exe.run(feeds).values()

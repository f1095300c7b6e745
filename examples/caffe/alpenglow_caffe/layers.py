"""The layers of Caffe as operators of Alpenglow.

The signature of a converter is the schema of its layer: operands are bottoms, keywords parameters,
with Caffe's names, types and defaults.  `Literal` lists what is supported, a tuple is repeated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from inspect import signature
from itertools import pairwise
from operator import index
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.ir.graph import Graph
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise import activation, arithmetic, transcendental
from alpenglow.ops.expression import Expression, one
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction import normalize, reduction, softmax
from alpenglow.ops.tensor import movement
from alpenglow.ops.window import pooling
from alpenglow.ops.window.conv_transpose import ConvTranspose
from alpenglow_caffe.protobuf import Message

Blob = Expression  # as Caffe calls tensors
Ints = tuple[int, ...]
Hints = Mapping[str, Any]
Region = Literal["ACROSS_CHANNELS", "WITHIN_CHANNEL"]
Shapes = Mapping[str, Sequence[int]]
Convert = Callable[..., Blob | list[Blob]]

OF_TRAINING = {
    "engine", "weight_filler", "bias_filler", "filler", "force_nd_im2col", "stable_prod_grad",
    "dropout_ratio", "moving_average_fraction", "loss_weight", "propagate_down", "force_backward",
}  # fmt: skip
"""Fields that change nothing in the results of a trained network."""

OLD_NAMES = {"concat_dim": "axis", "slice_dim": "axis"}
_SIDES = {f"{name}_{side}": int for name in ("kernel", "stride", "pad") for side in "hw"}
TABLE: dict[str, tuple[Convert, str, Hints]] = {}
"""By type of layers: a converter, the field that holds its parameters, and their types."""


def on(kind: str, field: str = "") -> Callable[[Convert], Convert]:
    """Register the converter of a type of layers."""

    def register(convert: Convert) -> Convert:
        hints, parameters = get_type_hints(convert), signature(convert).parameters.values()
        keywords = {p.name: hints[p.name] for p in parameters if p.kind is p.KEYWORD_ONLY}
        TABLE[kind] = convert, field, keywords | (_SIDES if "sides" in hints else {})
        return convert

    return register


def decode(message: Message, hints: Hints) -> dict[str, Any]:
    """Return the values of fields by name; raise an error for one that does not fit its type."""
    values: dict[str, Any] = {}
    for spelled, found in message.items():
        name = OLD_NAMES.get(spelled, spelled)
        hint, is_list = hints.get(name), get_origin(hints.get(name)) is tuple
        choices = get_args(hint) if get_origin(hint) is Literal else ()
        kind: Any = type(choices[0]) if choices else get_args(hint)[0] if is_list else hint
        if hint is None:
            if name not in OF_TRAINING:
                raise UnsupportedError(f"field {spelled} is not supported")
            continue
        fits = all(isinstance(v, int | float if kind is float else kind) for v in found)
        if not fits or name in values or (len(found) != 1 and not is_list):
            raise ModelError(f"{spelled} is {found}, expected {kind.__name__}")
        if choices and found[0] not in choices:
            raise UnsupportedError(f"{spelled} is {found[0]}, supported: {choices}")
        values[name] = tuple(found) if is_list else found[0]
    return values


@dataclass
class Layer:
    """A layer, a graph to build in, the shapes of inputs; each converter is a method."""

    graph: Graph
    shapes: Shapes
    kind: str
    tops: Sequence[str]
    arrays: Sequence[Array]

    def weights(self, *shapes: Ints) -> list[Blob]:
        """Take the weights, which have these shapes, or four axes in files of before 2014."""
        arrays, self.arrays = self.arrays, ()
        found, fours = [a.shape for a in arrays], [(1,) * (4 - len(s)) + s for s in shapes]
        if found not in ([*shapes], fours):
            raise ModelError(f"the .caffemodel has the weights {found}, expected {[*shapes]}")
        shaped = (a.reshape(s) for a, s in zip(arrays, shapes, strict=True))
        return [Blob(self.graph, self.graph.constant(a)) for a in shaped]

    @on("Input", "input_param")
    def inputs(self, *, shape: tuple[Message, ...] = ()) -> list[Blob]:
        """Return the inputs; a shape is of all, or there is one of each, or the caller gives it."""
        blobs = []
        for i, top in enumerate(self.tops):
            declared = shape[i % len(shape)]["dim"] if shape else ()
            dims = tuple(map(index, self.shapes.get(top, declared)))
            if not dims or min(dims) < 1 or len(shape) not in (0, 1, len(self.tops)):
                raise ModelError(f"input '{top}' has shape {dims}", hint=f"shapes={{'{top}': (…)}}")
            blobs.append(Blob(self.graph, self.graph.input(top, TensorType("f32", dims))))
        return blobs

    @on("Concat", "concat_param")
    def concat(self, *xs: Blob, axis: int = 1) -> Blob:
        return one(movement.Concat(_axis(xs[0], axis)), *xs)

    @on("Slice", "slice_param")
    def slice(self, x: Blob, *, axis: int = 1, slice_point: Ints = ()) -> list[Blob]:
        at, count = _axis(x, axis), len(self.tops)
        extent = x.type.extents[at]
        if not slice_point and extent % count == 0:
            slice_point = tuple(extent // count * i for i in range(1, count))
        ends = (0, *slice_point, extent)
        if len(ends) != count + 1 or sorted(set(ends)) != list(ends):
            raise ModelError(f"an axis of {extent} is cut at {slice_point} into {count} tops")
        return [_cut(x, {at: (start, end - start)}) for start, end in pairwise(ends)]

    @on("Crop", "crop_param")
    def crop(self, x: Blob, like: Blob, *, axis: int = 2, offset: Ints = ()) -> Blob:
        at, rank = _axis(x, axis), x.type.rank
        starts = offset if len(offset) > 1 else (offset or (0,)) * (rank - at)
        return _cut(x, dict(enumerate(zip(starts, like.type.extents[at:rank], strict=True), at)))

    @on("Flatten", "flatten_param")
    def flatten(self, x: Blob, *, axis: int = 1, end_axis: int = -1) -> Blob:
        first, end, shape = _axis(x, axis), _axis(x, end_axis) + 1, x.type.extents
        return one(movement.Reshape((*shape[:first], math.prod(shape[first:end]), *shape[end:])), x)

    @on("Reshape", "reshape_param")
    def reshape(self, x: Blob, *, shape: Message, axis: int = 0, num_axes: int = -1) -> Blob:
        old, rank = x.type.extents, x.type.rank
        first = axis if axis >= 0 else axis + 1 + rank
        end = rank if num_axes == -1 else first + num_axes
        dims = [old[first + i] if d == 0 else d for i, d in enumerate(map(index, shape["dim"]))]
        if not 0 <= first <= end <= rank or dims.count(-1) > 1 or min(dims, default=1) < -1:
            raise ModelError(f"{x.type} cannot have axes {first} to {end} replaced by {dims}")
        rest = math.prod([*old[:first], *(d for d in dims if d != -1), *old[end:]])
        dims = [x.type.size // rest if d == -1 else d for d in dims]
        return one(movement.Reshape((*old[:first], *dims, *old[end:])), x)

    @on("Convolution", "convolution_param")
    @on("Deconvolution", "convolution_param")
    def convolve(self, x: Blob, *, num_output: int, bias_term: bool = True, group: int = 1,
                 kernel_size: Ints = (), stride: Ints = (), pad: Ints = (), dilation: Ints = (),
                 axis: Literal[1] = 1, **sides: int) -> Blob:  # fmt: skip
        rank, channels = x.type.rank - 2, x.type.extents[1]
        kernel = _window("kernel", rank, kernel_size, sides, 0)
        strides = _window("stride", rank, stride, sides, 1)
        pads = _window("pad", rank, pad, sides, 0) * 2
        dilations = _window("dilation", rank, dilation, sides, 1)
        if min(group, num_output) < 1 or channels % group or num_output % group:
            raise ModelError(f"{channels} channels and {num_output} outputs in {group} groups")
        back, bias = self.kind == "Deconvolution", [(num_output,)] * bias_term
        ends = (channels, num_output // group) if back else (num_output, channels // group)
        weights = self.weights((*ends, *kernel), *bias)
        if back:
            return one(ConvTranspose(strides, pads, dilations, (0,) * rank, group), x, *weights)
        return one(Conv(strides, pads, dilations, group), x, *weights)

    @on("InnerProduct", "inner_product_param")
    def product(self, x: Blob, *, num_output: int, bias_term: bool = True, axis: int = 1,
                transpose: bool = False) -> Blob:  # fmt: skip
        at, shape = _axis(x, axis), x.type.extents
        inner = math.prod(shape[at:])
        stored = (inner, num_output) if transpose else (num_output, inner)
        matrix, *bias = self.weights(stored, *[(num_output,)] * bias_term)
        matrix = matrix if transpose else one(movement.Transpose((1, 0)), matrix)
        y = one(movement.Reshape((math.prod(shape[:at]), inner)), x) @ matrix
        return one(movement.Reshape((*shape[:at], num_output)), y + bias[0] if bias else y)

    @on("BatchNorm", "batch_norm_param")
    def norm(self, x: Blob, *, eps: float = 1e-5, use_global_stats: Literal[True] = True) -> Blob:
        """The statistics are sums; the third array is what they are divided by, or 0."""
        shape = x.type.extents[1:2]
        mean, spread, n = (np.asarray(v.value.array) for v in self.weights(shape, shape, (1,)))
        scale, ones = np.float32(1 / n[0] if n[0] else 0), np.ones(shape, np.float32)
        return one(normalize.BatchNorm(eps), x, ones, 0 * ones, mean * scale, spread * scale)

    @on("Scale", "scale_param")
    def scale(self, x: Blob, factor: Blob | None = None, *, axis: int = 1, num_axes: int = 1,
              bias_term: bool = False) -> Blob:  # fmt: skip
        shape = _part(x, axis, num_axes) if factor is None else factor.type.extents
        stored = self.weights(*[shape] * ((factor is None) + bias_term))
        y = x * _along(x, stored[0] if factor is None else factor, axis)
        return y + _along(x, stored[-1], axis) if bias_term else y

    @on("Bias", "bias_param")
    def bias(self, x: Blob, *terms: Blob, axis: int = 1, num_axes: int = 1) -> Blob:
        return x + _along(x, (terms or self.weights(_part(x, axis, num_axes)))[0], axis)

    @on("PReLU", "prelu_param")
    def prelu(self, x: Blob, *, channel_shared: bool = False) -> Blob:
        (slope,) = self.weights(() if channel_shared else x.type.extents[1:2])
        return one(activation.PRelu(), x, _along(x, slope, 1))

    @on("Pooling", "pooling_param")
    def pool(self, x: Blob, *, pool: Literal["MAX", "AVE"] = "MAX", global_pooling: bool = False,
             kernel_size: Ints = (), stride: Ints = (), pad: Ints = (),
             round_mode: Literal["CEIL", "FLOOR"] = "CEIL", **sides: int) -> Blob:  # fmt: skip
        """Pool as ONNX does with ceil_mode and count_include_pad, but for windows behind all."""
        image, ceil = x.type.extents[2:], round_mode == "CEIL"
        kernel_size = image + kernel_size if global_pooling else kernel_size
        kernel = _window("kernel", 2, kernel_size, sides, 0)
        strides, pads = _window("stride", 2, stride, sides, 1), _window("pad", 2, pad, sides, 0)
        for extent, size, step, before in zip(image, kernel, strides, pads, strict=True):
            if before >= size or (global_pooling and (before > 0 or step > 1)):
                raise ModelError(f"windows of {kernel} are {strides} apart, padded by {pads}")
            last = -((size - extent) // step) * step
            if ceil and not any(pads) and last >= extent:
                raise UnsupportedError(f"a window begins at {last}, behind an axis of {extent}")
        if pool == "MAX":
            return one(pooling.MaxPool(kernel, strides, pads * 2, (1, 1), ceil), x)
        return one(pooling.AveragePool(kernel, strides, pads * 2, (1, 1), ceil, True), x)

    @on("LRN", "lrn_param")
    def lrn(self, x: Blob, *, local_size: int = 5, alpha: float = 1, beta: float = 0.75,
            k: float = 1, norm_region: Region = "ACROSS_CHANNELS") -> Blob:
        """Divide by the squares of neighbours.  Within a channel Caffe takes 1 for any k."""
        if local_size % 2 == 0 or x.type.rank != 4:
            raise ModelError(f"local_size is {local_size}, expected it odd; {x.type}, of 4 axes")
        if norm_region == "ACROSS_CHANNELS":
            return one(normalize.LocalResponseNorm(local_size, alpha, beta, k), x)
        window, pads = (local_size,) * 2, (local_size // 2,) * 4
        mean = one(pooling.AveragePool(window, (1, 1), pads, (1, 1), count_pads=True), x * x)
        return x * (mean * alpha + 1) ** -beta

    @on("Reduction", "reduction_param")
    def reduction(self, x: Blob, *, operation: Literal["SUM", "ASUM", "SUMSQ", "MEAN"] = "SUM",
                  axis: int = 0, coeff: float = 1) -> Blob:  # fmt: skip
        axes = tuple(range(_axis(x, axis), x.type.rank))
        count = math.prod(x.type.extents[axes[0] :]) if operation == "MEAN" else 1
        if operation in ("ASUM", "SUMSQ"):
            x = one(arithmetic.Abs(), x) if operation == "ASUM" else x * x
        return one(reduction.ReduceSum(axes, keepdims=False), x) * (coeff / count)

    @on("Softmax", "softmax_param")
    def softmax(self, x: Blob, *, axis: int = 1) -> Blob:
        return one(softmax.Softmax(_axis(x, axis)), x)

    @on("Eltwise", "eltwise_param")
    def eltwise(self, *xs: Blob, operation: Literal["SUM", "PROD", "MAX"] = "SUM",
                coeff: tuple[float, ...] = ()) -> Blob:  # fmt: skip
        if len({v.type for v in xs}) != 1 or len(xs) < 2 or (coeff and operation != "SUM"):
            raise ModelError(f"{operation} of {[str(v.type) for v in xs]}, coefficients: {coeff}")
        op = {"SUM": arithmetic.Add, "PROD": arithmetic.Mul, "MAX": arithmetic.Maximum}[operation]()
        terms = [v * c for v, c in zip(xs, coeff, strict=True)] if coeff else xs
        return reduce(lambda total, term: one(op, total, term), terms)

    @on("ReLU", "relu_param")
    def relu(self, x: Blob, *, negative_slope: float = 0) -> Blob:
        return one(activation.LeakyRelu(negative_slope) if negative_slope else activation.Relu(), x)

    @on("ELU", "elu_param")
    def elu(self, x: Blob, *, alpha: float = 1) -> Blob:
        return one(activation.Elu(alpha), x)

    @on("Power", "power_param")
    def power(self, x: Blob, *, power: float = 1, scale: float = 1, shift: float = 0) -> Blob:
        if power * scale == 0:  # Caffe does not look at x then, which may be infinite
            x = Blob(self.graph, self.graph.constant(np.zeros(x.type.extents, np.float32)))
        return x * scale + shift if power == 1 else (x * scale + shift) ** power

    @on("Exp", "exp_param")
    def exp(self, x: Blob, *, base: float = -1, scale: float = 1, shift: float = 0) -> Blob:
        rate = 1.0 if base == -1 else math.log(base)
        return one(transcendental.Exp(), x * (rate * scale)) * math.exp(rate * shift)

    @on("Log", "log_param")
    def log(self, x: Blob, *, base: float = -1, scale: float = 1, shift: float = 0) -> Blob:
        y = one(transcendental.Log(), x * scale + shift)
        return y if base == -1 else y * (1 / math.log(base))


on("AbsVal")(lambda layer, x: one(arithmetic.Abs(), x))
on("BNLL")(lambda layer, x: one(activation.Softplus(), x))
on("Dropout", "dropout_param")(lambda layer, x: x)
on("Sigmoid", "sigmoid_param")(lambda layer, x: one(activation.Sigmoid(), x))
on("Split")(lambda layer, x: [x] * len(layer.tops))
on("TanH", "tanh_param")(lambda layer, x: one(activation.Tanh(), x))


def _axis(x: Blob, axis: int) -> int:
    """Return an axis, which may count from the end; raise ModelError if there is none."""
    if not -x.type.rank <= axis < x.type.rank:
        raise ModelError(f"axis is {axis}, but the bottom is {x.type}")
    return axis % x.type.rank


def _part(x: Blob, axis: int, num_axes: int) -> Ints:
    """Return the extents of so many axes from `axis` on; -1 means all."""
    return x.type.extents[_axis(x, axis) :][: num_axes if num_axes >= 0 else None]


def _window(name: str, rank: int, sizes: Ints, sides: Mapping[str, int], default: int) -> Ints:
    """Return a number for each axis of a window: given once, by axis, or as height and width."""
    pair = tuple(sides.get(f"{name}_{side}", 0) for side in "hw")
    has_pair = any(f"{name}_{side}" in sides for side in "hw")
    if len(sizes) not in (0, 1, rank) or (has_pair and (sizes or rank != 2)):
        raise ModelError(f"{name} is {sizes}, by height and width {pair}, of {rank} axes")
    return pair if has_pair else sizes if len(sizes) == rank else (sizes or (default,)) * rank


def _cut(x: Blob, parts: Mapping[int, tuple[int, int]]) -> Blob:
    """Return a part of x: from where on, and how many elements, by axis."""
    whole = [parts.get(i, (0, extent)) for i, extent in enumerate(x.type.extents)]
    starts, sizes = zip(*whole, strict=True)
    return one(movement.Slice(starts, sizes, (1,) * len(whole)), x)


def _along(x: Blob, v: Blob, axis: int) -> Blob:
    """Reshape v so that its axes meet the axes of x from `axis` on, and it broadcasts to x."""
    first, shape = _axis(x, axis), v.type.extents
    if x.type.extents[first : first + len(shape)] != shape:
        raise ModelError(f"{v.type} does not fit to {x.type} from axis {axis} on")
    return one(movement.Reshape((*shape, *[1] * (x.type.rank - first - len(shape)))), v)

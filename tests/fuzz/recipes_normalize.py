"""Recipes for normalisation."""

from __future__ import annotations

from math import prod

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, Shape
from .inference import Declined, allowed
from .recipe import recipe
from .recipes_movement import front, some_axes
from .windows import divisor, image

EPSILONS = (1e-5, 1e-3, 1e-6, 0.1, 1e-12)


def positive(d: Draft, kind: str, shape: Shape, constant: bool = True) -> Var:
    numbers = np.abs(d.contents(kind, shape).astype(np.float64)) + 0.5
    return d.given(numbers.astype(DTYPES[kind]), constant)


@recipe("BatchNormalization")
def batch(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 5, empty=False)
    second = allowed(op, d.opset, 1)
    kind = x.dtype if x.dtype in second and d.chance(0.8) else d.dtype(second)
    moment = kind if d.opset < 15 or d.chance(0.7) else d.dtype(allowed(op, d.opset, 3))
    if d.opset < 15:
        kind = moment = x.dtype
    more = d.some(op, epsilon=EPSILONS[:4], momentum=(0.9, 0.5), consumed_inputs=([0] * 5,))
    shape: Shape = (x.shape[1],)
    if d.has(op, "spatial") and d.chance(0.3) and not d.is_open:
        more["spatial"] = d.one_of((0, 1))
        shape = x.shape[1:] if not more["spatial"] else shape
    if d.has(op, "is_test"):
        more["is_test"] = 1
    scale, bias = (d.fresh(kind, shape, True if d.chance(0.7) else None) for _ in range(2))
    mean = d.fresh(moment, shape, True if d.chance(0.7) else None)
    given = [x, scale, bias, mean, positive(d, moment, shape)]
    types = [(x.dtype, x.shape)]
    if d.opset < 14 and d.chance(0.2) and more.get("spatial", 1) and prod(x.shape) > x.shape[1]:
        # In training: the statistics of the batch, which is what the other results say.
        types += [(x.dtype, shape)] * 4
        more |= {"is_test": 0} if d.has(op, "is_test") else {}
    d.node(op, given, outputs=len(types), types=types, **more)


@recipe("InstanceNormalization")
def instance(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), d.one_of((1, 2, 2, 3)))
    each = [d.fresh(x.dtype, (x.shape[1],)) for _ in range(2)]
    more = d.some(op, epsilon=EPSILONS, consumed_inputs=([0] * 3,))
    d.node(op, [x, *each], types=[(x.dtype, x.shape)], **more)


@recipe("GroupNormalization")
def group(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 3, 5, empty=False)
    groups = divisor(d, x.shape[1])
    count = groups if d.opset < 21 else x.shape[1]
    each = [d.fresh(x.dtype, (count,)) for _ in range(2)]
    more = d.some(op, epsilon=EPSILONS, stash_type=(1,))
    d.node(op, [x, *each], types=[(x.dtype, x.shape)], num_groups=groups, **more)


@recipe("MeanVarianceNormalization")
def mean_variance(d: Draft, op: str) -> None:
    if d.opset < 9:
        x = d.pick(["float"], 4, 4, empty=False)
        flags = {k: d.number(0, 1) for k in ("across_channels", "normalize_variance")
                 if d.chance(0.6)}  # fmt: skip
        d.node(op, [x], types=[(x.dtype, x.shape)], **flags)
        return
    x = d.pick(allowed(op, d.opset), 1, 5, empty=False)
    axes = front(some_axes(d, x.rank), x.rank)
    if x.rank != 4 or d.chance(0.6):
        d.node(op, [x], types=[(x.dtype, x.shape)], axes=axes)
    else:
        d.node(op, [x], types=[(x.dtype, x.shape)])


@recipe("LRN")
def local(d: Draft, op: str) -> None:
    x = image(d, allowed(op, d.opset), d.one_of((1, 2, 2, 3)))
    size = d.one_of((1, 2, 3, 4, 5, 7, 2 * x.shape[1] + 1))
    more = d.some(op, alpha=(1e-4, 0.1, 1.0), beta=(0.75, 0.5, 1.0), bias=(1.0, 2.0))
    d.node(op, [x], types=[(x.dtype, x.shape)], size=size, **more)


@recipe("LayerNormalization", "RMSNormalization")
def normalize(d: Draft, op: str) -> None:
    layer = op == "LayerNormalization"
    x = d.pick(allowed(op, d.opset), 1, 5, empty=False)
    axis = d.number(0, x.rank - 1)
    inner = x.shape[axis:]
    kind = x.dtype  # the scale of another type: ONNX does not say which one the result has

    def factor() -> Var:
        shape = inner if d.chance(0.7) else tuple(1 if d.chance(0.4) else e for e in inner)
        shape = shape[d.number(0, len(shape) - 1) :] if d.chance(0.2) else shape
        return d.fresh(kind, shape)

    more = {} if axis == x.rank - 1 and d.chance(0.5) else {
        "axis": axis if d.chance(0.5) else axis - x.rank}  # fmt: skip
    more |= d.some(op, epsilon=EPSILONS)
    if d.chance(0.2):
        more["stash_type"] = 1
    if kind == "double" and more.get("stash_type"):
        more.pop("stash_type")
    bias = factor() if layer and d.chance(0.6) else None
    types = [(x.dtype, x.shape)]
    if layer and d.chance(0.25):
        moments = (*x.shape[:axis], *(1 for _ in inner))
        types += [("float" if x.dtype != "double" else "double", moments)] * 2
    if layer and len(types) > 1 and x.dtype not in ("float", "double"):
        types[1:] = [("float", types[1][1])] * 2
    if layer and len(types) > 1 and x.dtype == "double":
        raise Declined  # what their type is nobody agrees on
    d.node(op, [x, factor(), bias], outputs=len(types), types=types, **more)


@recipe("SimplifiedLayerNormalization")
def simplified(d: Draft, op: str) -> None:
    """A form of RMSNormalization that exporters wrote before ONNX had it."""
    x = d.pick(["float", "float", "float16", "double"], 1, 5, empty=False)
    axis = d.number(0, x.rank - 1)
    scale = d.fresh(x.dtype, x.shape[axis:])
    d.node(op, [x, scale], types=[(x.dtype, x.shape)], axis=axis - x.rank * d.number(0, 1),
           epsilon=d.one_of(EPSILONS), stash_type=1)  # fmt: skip

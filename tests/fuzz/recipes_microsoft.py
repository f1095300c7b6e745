"""Recipes for ONNX Runtime's own products and windows, and for what moves."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, FLOATS, INTS, ORDINARY, Shape
from .inference import Declined
from .recipe import STAGED, recipe
from .recipes_control import loosen
from .recipes_gather import places, where_from
from .recipes_movement import paddings
from .windows import divisor, features, image, image_shape, window

MICROSOFT = "com.microsoft"
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Clip")
NUMBERS = {"LeakyRelu": (0.1,), "HardSigmoid": (0.25, 0.4), "Clip": (-0.5, 1.5)}


def add(
    d: Draft, op: str, given: list[Var | None], *types: tuple[str, Shape], **attributes: Any
) -> list[Var]:
    """Add a node of ONNX Runtime's own; its name may have the domain in front."""
    return d.node(op.rpartition(":")[2], given, len(types), MICROSOFT, types, **attributes)


def real(d: Draft, double: bool = False) -> str:
    """Return a float type: most often what ONNX Runtime has kernels for."""
    if d.chance(0.75):
        return "float"
    return str(d.one_of(("float16", "double") if double else ("float16", "bfloat16")))


def options(d: Draft, **choices: tuple[Any, ...]) -> dict[str, Any]:
    return {k: d.one_of(v) for k, v in choices.items() if d.chance(0.6)}


# ── products ──


@recipe("com.microsoft:FusedMatMul", "com.microsoft:TransposeMatMul",
        "com.microsoft:FusedMatMulActivation")  # fmt: skip
def fused_matmul(d: Draft, op: str) -> None:
    x = d.pick([real(d, True)], 2, 4, empty=False)
    flips = options(d, transA=(0, 1), transB=(0, 1), alpha=(1.0, 0.5, -2.0, 0.0))
    batch = not op.endswith("TransposeMatMul") and x.rank > 2 and d.chance(0.25)
    rows, k = x.shape[-2:][:: -1 if flips.get("transA") else 1]
    lead = x.shape[:-2]
    if batch:  # rows stand in front, and what is now in front of them next to the columns
        flips["transBatchA"] = 1
        *lead_, rows, k = turned(x.shape, bool(flips.get("transA")))
        lead = tuple(lead_)
    n = d.extent(max(min(4096 // k, 130), 1))
    other = [*lead, k, n] if d.chance(0.6) or batch else [k, n]
    if flips.get("transB"):
        other[-2:] = n, k
    if batch and len(other) > 2 and d.chance(0.5):
        flips["transBatchB"] = 1
        other = [other[-2], *other[:-2], other[-1]]
        other = unturned((*lead, k, n), bool(flips.get("transB")))
    if prod(other) > 8192:
        raise Declined
    y = d.fresh(x.dtype, tuple(other))
    more = activation(d) if op.endswith("Activation") else {}
    add(d, op, [x, y], (x.dtype, (*lead, rows, n)), **flips, **more)


def turned(shape: Shape, flip: bool) -> list[int]:
    """Return the shape of an operand once its rows, which stand in front, are where they belong."""
    out = [*shape[1:-1], shape[0], shape[-1]]
    if flip:
        out[-2:] = out[-1], out[-2]
    return out


def unturned(shape: Shape, flip: bool) -> list[int]:
    """Return the shape that `turned` makes this one of."""
    out = list(shape)
    if flip:
        out[-2:] = out[-1], out[-2]
    return [out[-2], *out[:-2], out[-1]]


def activation(d: Draft) -> dict[str, Any]:
    """Return an activation and its numbers, each an attribute of its own."""
    name = d.one_of(ACTIVATIONS)
    names = ("activation_alpha", "activation_beta")
    return {"activation": name} | dict(zip(names, NUMBERS.get(name, ()), strict=False))


@recipe("com.microsoft:FusedGemm")
def fused_gemm(d: Draft, op: str) -> None:
    x = d.pick([real(d, True)], 2, 2, empty=False)
    more = options(d, transA=(0, 1), transB=(0, 1), alpha=(1.0, 0.5), beta=(1.0, 2.0))
    m, k = x.shape[::-1] if more.get("transA") else x.shape
    n = d.extent(max(min(4096 // k, 130), 1))
    w = d.fresh(x.dtype, (n, k) if more.get("transB") else (k, n))
    bias = d.fresh(x.dtype, d.one_of(((n,), (1, n), (m, n), (m, 1)))) if d.chance(0.7) else None
    add(d, op, [x, w, bias], (x.dtype, (m, n)), **more, **(activation(d) if d.chance(0.9) else {}))


@recipe("com.microsoft:CDist")
def distances(d: Draft, op: str) -> None:
    x = d.pick(["float", "double"], 2, 2, empty=False)
    y = d.fresh(x.dtype, (d.extent(33), x.shape[1]))
    add(d, op, [x, y], (x.dtype, (x.shape[0], y.shape[0])),
        **options(d, metric=("euclidean", "sqeuclidean")))  # fmt: skip


@recipe("com.microsoft:Inverse")
def inverse(d: Draft, op: str) -> None:
    """Matrices with a heavy diagonal: those of others depend on every rounding."""
    n = d.one_of((1, 2, 3, 4, 5, 8))
    shape = (*d.shape(0, 2, empty=False)[:2], n, n)
    if prod(shape) > 2048:
        raise Declined
    kind = d.one_of(("float", "double"))
    array = d.rng.standard_normal(shape) * 0.3 + np.eye(n) * d.one_of((2.0, -3.0))
    add(d, op, [d.given(array.astype(DTYPES[kind]), True)], (kind, shape))


# ── windows ──


@recipe("com.microsoft:FusedConv", "com.microsoft:NhwcConv", "com.microsoft:NhwcFusedConv")
def fused_conv(d: Draft, op: str) -> None:
    last, fused = ":Nhwc" in op, "Fused" in op
    spatial = d.one_of((1, 2, 2, 2)) if not last else 2
    x = image(d, ["float"], spatial)
    inner = x.shape if not last else (x.shape[0], x.shape[3], x.shape[1], x.shape[2])
    w = window(d, "Conv", spatial)
    out = w.extents(inner[2:])
    group = divisor(d, inner[1])
    each = inner[1] // group * prod(w.kernel)
    count = features(d, group, each)
    weights = d.fresh(x.dtype, (count, inner[1] // group, *w.kernel), True)
    bias = d.fresh(x.dtype, (count,), True) if d.chance(0.6) else None
    shape = (inner[0], *out, count) if last else (inner[0], count, *out)
    given = [x, weights, bias]
    more = {} if group == 1 and d.chance(0.5) else {"group": group}
    if fused:
        given.append(d.fresh(x.dtype, shape) if d.chance(0.4) else None)
        name = d.one_of(ACTIVATIONS)
        more["activation"] = name
        if name in NUMBERS:
            more["activation_params"] = list(NUMBERS[name])
    add(d, op, given, (x.dtype, shape), **more, **w.attributes)


@recipe("com.microsoft:NhwcMaxPool")
def channels_last_pool(d: Draft, op: str) -> None:
    x = d.pick(["uint8", "int8"], 4, 4, empty=False, shape=lambda: last_image(d, 2))
    w = window(d, "MaxPool", 2, pooling=True)
    if d.chance(0.3):
        w.ceil = True
        w.attributes["ceil_mode"] = 1
    add(d, op, [x], (x.dtype, (x.shape[0], *w.extents(x.shape[1:3]), x.shape[3])), **w.attributes)


def last_image(d: Draft, spatial: int) -> Shape:
    batch, channels, *extents = image_shape(d, spatial)
    return (batch, *extents, channels)


@recipe("com.microsoft:ConvTransposeWithDynamicPads")
def transposed(d: Draft, op: str) -> None:
    x = d.pick(["float"], 4, 4, empty=False, shape=lambda: image_shape(d, 2, 600))
    w = window(d, "ConvTranspose", 2)
    group = divisor(d, x.shape[1])
    each = d.one_of((1, 2, 3))
    if w.same or "auto_pad" in w.attributes or each * x.shape[1] * prod(w.kernel) > 6144:
        raise Declined
    w.attributes.pop("pads", None)
    out = [(e - 1) * w.strides[i] + w.reach(i) - w.pads[i] - w.pads[i + 2]
           for i, e in enumerate(x.shape[2:])]  # fmt: skip
    if min(out) < 1:
        raise Declined
    weights = d.fresh(x.dtype, (x.shape[1], each, *w.kernel), True)
    pads = d.known(np.array(w.pads, np.int64)) if any(w.pads) or d.chance(0.5) else None
    bias = d.fresh(x.dtype, (each * group,)) if d.chance(0.5) else None
    add(d, op, [x, weights, pads, bias], (x.dtype, (x.shape[0], each * group, *out)),
        group=group, **w.attributes)  # fmt: skip


# ── movement ──


@recipe("com.microsoft:ExpandDims")
def expand_dims(d: Draft, op: str) -> None:
    x = d.pick([k for k in ORDINARY if k != "bfloat16"], 0, 5)
    axis = d.number(-x.rank - 1, x.rank)
    at = axis % (x.rank + 1)
    add(d, op, [x, d.known(np.array(axis, np.int32))], (x.dtype, (*x.shape[:at], 1, *x.shape[at:])))


@recipe("com.microsoft:Pad")
def pad(d: Draft, op: str) -> None:
    x = d.pick(["float", "double"], 1, 4, empty=False)
    mode = d.one_of(("constant", "edge", "reflect"))
    pads = [max(paddings(d, mode, e, prod(x.shape) > 500), 0) for e in (*x.shape, *x.shape)]
    shape = tuple(e + pads[i] + pads[i + x.rank] for i, e in enumerate(x.shape))
    value = d.fresh(x.dtype, (1,), True) if mode == "constant" and d.chance(0.5) else None
    more = {"mode": mode} if mode != "constant" or d.chance(0.5) else {}
    add(d, op, [x, d.ints(pads), value], (x.dtype, shape), **more)


@recipe("com.microsoft:Trilu")
def trilu(d: Draft, op: str) -> None:
    x = d.pick([*FLOATS, "int32", "int64", "bool"], 2, 4)
    k = d.known(np.array(d.number(-5, 5), np.int64)) if d.chance(0.6) else None
    add(d, op, [x, k], (x.dtype, x.shape), **options(d, upper=(0, 1)))


@recipe("com.microsoft:GatherND")
def gather_nd(d: Draft, op: str) -> None:
    x = d.pick(["float", "int64", "int32"], 1, 4, empty=False)
    deep = d.number(1, x.rank)
    lead = d.shape(1, 2, empty=False)[:1]
    columns = [np.abs(places(d, x.shape[i], lead, "int64")) % x.shape[i] for i in range(deep)]
    add(d, op, [x, where_from(d, np.stack(columns, -1))], (x.dtype, (*lead, *x.shape[deep:])))


@recipe("com.microsoft:GridSample")
def grid_sample(d: Draft, op: str) -> None:
    x = d.pick(["float"], 4, 4, empty=False, shape=lambda: image_shape(d, 2, 600))
    out = (d.extent(9), d.extent(9))
    spots = d.rng.uniform(-1.3, 1.3, (x.shape[0], *out, 2)).astype(np.float32)
    add(d, op, [x, d.given(spots, True)], (x.dtype, (*x.shape[:2], *out)),
        **options(d, mode=("bilinear", "nearest", "bicubic"), align_corners=(0, 1),
                  padding_mode=("zeros", "border", "reflection")))  # fmt: skip


@recipe("com.microsoft:Range")
def count(d: Draft, op: str) -> None:
    kind = DTYPES[d.one_of(("int64", "int32", "float", "double", "int16"))]
    begin, end, step = d.number(-5, 5), d.number(-9, 30), d.one_of((1, 2, 3, -1))
    size = max(-(-(end - begin) // step), 0)
    one = step == 1 and d.chance(0.5)
    given = [d.given(np.array(n).astype(kind), True) for n in (begin, end, step)]
    add(d, op, given[: 2 if one else 3], (given[0].dtype, (size,)))


@recipe("com.microsoft:UnfoldTensor")
def unfold(d: Draft, op: str) -> None:
    x = d.pick([k for k in ORDINARY if k != "bool"], 1, 4, empty=False)
    axis = d.number(-x.rank, x.rank - 1)
    extent = x.shape[axis]
    size = d.number(1, extent)
    step = d.number(1, 4)
    shape = list(x.shape)
    shape[axis] = (extent - size) // step + 1
    if prod(shape) * size > 8192:
        raise Declined
    more = {} if axis == -1 and d.chance(0.5) else {"dim": axis}
    more |= {} if step == 1 and d.chance(0.5) else {"step": step}
    add(d, op, [x], (x.dtype, (*shape, size)), size=size, **more)


@recipe("com.microsoft:Unique", table=STAGED)
def unique(d: Draft, op: str) -> None:
    x = d.pick([*INTS[:4], "float"], 1, 1, empty=False)
    types = [(x.dtype, (1,)), ("int64", x.shape), ("int64", (1,))]
    y, _, counts = add(d, op, [x], *types)
    for v in (counts, y):
        loosen(d, v)

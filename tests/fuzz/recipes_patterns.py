"""Recipes for what stands together in many networks: convolutions with what surrounds them,
attention, functions that are written out, moves that undo each other.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, Shape, code
from .inference import Declined
from .recipe import PATTERNS, recipe
from .recipes_elementwise import far
from .recipes_normalize import positive
from .windows import divisor, features, image_shape, window

BLOCKS = (4, 8, 15, 16, 17, 20, 31, 32, 33, 48)
"""Numbers of channels that fill blocks, or nearly."""


def number(d: Draft, kind: str, value: float, shape: Shape = ()) -> Var:
    """Return a stored number to compute with: up to opset 6 nothing is stretched by itself."""
    if d.opset < 7:
        raise Declined
    return d.given(np.full(shape, value).astype(DTYPES[kind]), True)


def images(d: Draft, shape: Callable[[], Shape] | None = None, most: int = 6000) -> Var:
    return d.pick(["float"], 4, 4, empty=False, shape=shape or (lambda: image_shape(d, 2)),
                  where=lambda v: prod(v.shape) <= most)  # fmt: skip


def convolved(d: Draft, x: Var, count: int = 0, kernel: list[int] | None = None) -> Var:
    """Return x after a convolution with constant weights."""
    w = window(d, "Conv", x.rank - 2, kernel=kernel)
    out = w.extents(x.shape[2:])
    group = 1 if count else divisor(d, x.shape[1])
    each = x.shape[1] // group
    count = count or features(d, group, each * prod(w.kernel))
    if count * each * prod(w.kernel) > 40000 or prod(out) * count * x.shape[0] > 16384:
        raise Declined
    weights = d.given(d.contents(x.dtype, (count, each, *w.kernel)), True)
    bias = d.fresh(x.dtype, (count,), True) if d.chance(0.5) else None
    shape = (x.shape[0], count, *out)
    return d.node("Conv", [x, weights, bias], types=[(x.dtype, shape)], group=group,
                  **w.attributes)[0]  # fmt: skip


def normalised(d: Draft, x: Var) -> Var:
    each = (x.shape[1],)
    given = [d.fresh(x.dtype, each, True) for _ in range(3)]
    return d.node("BatchNormalization", [x, *given, positive(d, x.dtype, each)],
                  types=[(x.dtype, x.shape)])[0]  # fmt: skip


def activated(d: Draft, x: Var) -> Var:
    op = d.one_of(("Relu", "Relu", "LeakyRelu", "Sigmoid", "Clip", "HardSwish", "PRelu", "Tanh",
                   "silu", "none"))  # fmt: skip
    if op == "none":
        return x
    if op == "silu":
        return d.node("Mul", [x, d.node("Sigmoid", [x])[0]])[0]
    if op == "Clip":
        if d.opset < 11:
            return d.node(op, [x], types=[(x.dtype, x.shape)], min=0.0, max=6.0)[0]
        return d.node(op, [x, number(d, x.dtype, 0), number(d, x.dtype, 6)])[0]
    if op == "PRelu":
        ones = (1,) * (x.rank - 2)
        return d.node(op, [x, d.fresh(x.dtype, (x.shape[1], *ones), True)])[0]
    return d.node(op, [x], types=[(x.dtype, x.shape)])[0]


def pooled(d: Draft, x: Var) -> Var:
    op = d.one_of(("MaxPool", "AveragePool", "GlobalAveragePool", "none"))
    if op == "none":
        return x
    if op[0] == "G":
        return d.node(op, [x], types=[(x.dtype, (*x.shape[:2], 1, 1))])[0]
    w = window(d, op, 2, pooling=True)
    shape = (*x.shape[:2], *w.extents(x.shape[2:]))
    return d.node(op, [x], types=[(x.dtype, shape)], **w.attributes)[0]


def added(d: Draft, x: Var, y: Var) -> Var:
    return d.node("Add", [x, y] if d.chance(0.5) else [y, x])[0]


# ── convolutions ──


@recipe("conv, norm, activation, pool", table=PATTERNS)
def layer(d: Draft, op: str) -> None:
    x = convolved(d, images(d))
    x = normalised(d, x) if d.chance(0.5) else x
    pooled(d, activated(d, x))


@recipe("many channels", "many channels of large images", table=PATTERNS)
def blocks(d: Draft, op: str) -> None:
    """Convolutions of 3 by 3 or 1 by 1 with whole blocks of channels, one after the other.

    On large images those of 3 by 3 are computed otherwise, block by block.
    """
    large = op.endswith("images")
    table = (8, 15, 16, 17, 31, 32, 33, 48) if large else BLOCKS
    channels, side = d.one_of(table), d.one_of((9, 13, 14, 15, 17) if large else (6, 8, 9, 12, 14))
    x = images(d, lambda: (d.one_of((1, 1, 2)), channels, side, side + d.one_of((0, 0, 1, 3))),
               16384)  # fmt: skip
    for _ in range(d.number(1, 2 if large else 3)):
        shape = (d.one_of(table), x.shape[1], *((3, 3) if large else d.one_of(((3, 3), (1, 1)))))
        weights = d.given(d.contents("float", shape), True)
        if weights.shape[0] * x.shape[1] * weights.shape[2] ** 2 > 24000:
            raise Declined
        pads = [weights.shape[2] // 2] * 4
        if large and d.chance(0.4):
            pads = [d.number(0, 2) for _ in range(4)]
        if any(x.shape[2 + i] + pads[i] + pads[2 + i] < weights.shape[2 + i] for i in (0, 1)):
            raise Declined
        x = activated(d, d.node("Conv", [x, weights], pads=pads)[0])


@recipe("pad, then a window", table=PATTERNS)
def padded(d: Draft, op: str) -> None:
    x = images(d)
    mode = d.one_of(("constant", "constant", "reflect", "reflect", "edge"))
    most = [3 if mode != "reflect" else min(e - 1, 3) for e in x.shape[2:]]
    pads = [0, 0, *(d.number(0, p) for p in most), 0, 0, *(d.number(0, p) for p in most)]
    value = d.one_of((0.0, 0.0, 1.0, -np.inf))
    shape = tuple(e + pads[i] + pads[i + 4] for i, e in enumerate(x.shape))
    if d.opset < 11:
        more: dict[str, Any] = {"value": value} if mode == "constant" and value != 0 else {}
        y = d.node("Pad", [x], types=[(x.dtype, shape)], mode=mode, pads=pads, **more)[0]
    else:
        given = number(d, x.dtype, value) if mode == "constant" and d.chance(0.7) else None
        y = d.node("Pad", [x, d.ints(pads), given], types=[(x.dtype, shape)], mode=mode)[0]
    if value == 0.0 or mode != "constant":
        (convolved if d.chance(0.6) else pooled)(d, y)
    else:
        pooled(d, y)


@recipe("a residual", table=PATTERNS)
def residual(d: Draft, op: str) -> None:
    x = images(d)
    y = activated(d, convolved(d, x, x.shape[1], [1, 1]))
    if y.shape != x.shape:
        raise Declined
    activated(d, added(d, x, y))


@recipe("branches, joined", table=PATTERNS)
def branches(d: Draft, op: str) -> None:
    """Parts of one convolution, some of them processed, some twice, concatenated."""
    x = convolved(d, images(d))
    channels = x.shape[1]
    cut = d.number(0, channels)
    if 0 < cut < channels and d.chance(0.6):
        kind = (x.shape[0], *x.shape[2:])
        types = [(x.dtype, (kind[0], n, *kind[1:])) for n in (cut, channels - cut)]
        if d.opset >= 13:
            parts = d.node("Split", [x, d.ints([cut, channels - cut])], 2, types=types, axis=1)
        else:
            parts = d.node("Split", [x], 2, types=types, axis=1, split=[cut, channels - cut])
    else:
        parts = [x, activated(d, x)]
    if d.chance(0.5):
        parts.append(activated(d, parts[d.number(0, 1)]))
    if d.chance(0.5):
        parts.append(d.one_of(parts))
    order = [parts[i] for i in d.rng.permutation(len(parts))]
    y = d.node("Concat", order, axis=1)[0]
    if d.chance(0.6):
        convolved(d, y)


@recipe("a layer beside constants", table=PATTERNS)
def beside(d: Draft, op: str) -> None:
    """A convolution, then arithmetic with a number, or with one a channel, on either side."""
    x = convolved(d, images(d))
    for _ in range(d.number(1, 3)):
        how = d.one_of(("Add", "Sub", "Sub", "Mul", "Div"))
        shape = d.one_of(((), (1,), (x.shape[1], 1, 1), (1, x.shape[1], 1, 1)))
        if how == "Div":
            x = d.node(how, [x, number(d, x.dtype, d.one_of((0.5, -1.5, 4.0)), shape)])[0]
            continue
        c = d.given(d.contents(x.dtype, shape), True)
        x = d.node(how, [x, c] if d.chance(0.5) else [c, x])[0]


@recipe("depthwise, then pointwise", table=PATTERNS)
def separable(d: Draft, op: str) -> None:
    x = images(d)
    k = d.one_of((3, 3, 5))
    pads, stride = [k // 2] * 4, d.one_of((1, 1, 2))
    weights = d.given(d.contents(x.dtype, (x.shape[1], 1, k, k)), True)
    y = d.node("Conv", [x, weights], group=x.shape[1], pads=pads, strides=[stride, stride])[0]
    convolved(d, activated(d, y), d.one_of(BLOCKS), [1, 1])


@recipe("squeeze and excite", table=PATTERNS)
def excited(d: Draft, op: str) -> None:
    x = images(d)
    y = d.node("GlobalAveragePool", [x], types=[(x.dtype, (*x.shape[:2], 1, 1))])[0]
    y = activated(d, convolved(d, y, d.one_of((1, 4, 8)), [1, 1]))
    y = d.node("Sigmoid", [convolved(d, y, x.shape[1], [1, 1])])[0]
    d.node("Mul", [x, y])


@recipe("channels shuffled", table=PATTERNS)
def shuffled(d: Draft, op: str) -> None:
    x = images(d)
    groups = d.one_of([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
    n, c, *spatial = x.shape
    split = [n, groups, c // groups, *spatial]
    y = d.node("Reshape", [x, d.ints(split)], types=[(x.dtype, tuple(split))])[0]
    y = d.node("Transpose", [y], perm=[0, 2, 1, 3, 4])[0]
    y = d.node("Reshape", [y, d.ints(x.shape)], types=[(x.dtype, x.shape)])[0]
    convolved(d, y)


@recipe("larger, joined with another", table=PATTERNS)
def upsampled(d: Draft, op: str) -> None:
    x = images(d, lambda: image_shape(d, 2, 500))
    if d.opset < 11 or prod(x.shape) > 1000:
        raise Declined
    scales = d.given(np.array([1, 1, 2, 2], np.float32), True)
    empty = d.given(np.zeros(0, np.float32), True) if d.opset < 13 else None
    n, c, h, w = x.shape
    more = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"}
    types = [(x.dtype, (n, c, 2 * h, 2 * w))]
    y = d.node("Resize", [x, empty, scales], types=types, nearest_mode="floor", **more)[0]
    z = d.fresh(x.dtype, (n, d.extent(17), 2 * h, 2 * w))
    convolved(d, d.node("Concat", [y, z], axis=1)[0])


# ── matrices ──


@recipe("attention written out", table=PATTERNS)
def attention(d: Draft, op: str) -> None:
    batch, length, heads = d.number(1, 2), d.extent(17), d.number(1, 3)
    size = d.one_of((1, 4, 8, 16))
    x = d.pick(["float"], 3, 3, empty=False, shape=lambda: (batch, length, heads * size),
               where=lambda v: prod(v.shape) < 2000 and v.shape[2] % heads == 0)  # fmt: skip
    batch, length, width = x.shape
    split = [batch, length, heads, width // heads]

    def projected() -> Var:
        y = x
        if d.chance(0.7):
            y = d.node("MatMul", [x, d.fresh("float", (width, width), True)])[0]
        return d.node("Reshape", [y, d.ints(split)], types=[("float", tuple(split))])[0]

    q, k, v = (projected() for _ in range(3))
    turned = [d.node("Transpose", [p], perm=perm)[0] for p, perm in
              ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3]))]  # fmt: skip
    scores = d.node("MatMul", turned[:2])[0]
    factor = number(d, "float", (width // heads) ** -0.5)
    how = d.one_of(("Mul", "Div", "none"))
    if how != "none":
        scores = d.node(how, [scores, factor])[0]
    if d.chance(0.4):
        scores = added(d, scores, d.fresh("float", (length, length), True))
    mixed = d.node("MatMul", [softmax(d, scores), turned[2]])[0]
    y = d.node("Transpose", [mixed], perm=[0, 2, 1, 3])[0]
    d.node("Reshape", [y, d.ints(x.shape)], types=[("float", x.shape)])


def softmax(d: Draft, x: Var) -> Var:
    """Return the softmax of the last axis, as an operator or written out."""
    if d.chance(0.6) or d.opset < 13:
        more = {"axis": x.rank - 1} if d.opset < 13 else {"axis": -1}
        return d.node("Softmax", [x], types=[(x.dtype, x.shape)], **more)[0]
    if d.chance(0.7):
        x = d.node("Sub", [x, reduced(d, "ReduceMax", x, x.rank - 1)])[0]
    e = d.node("Exp", [x])[0]
    return d.node("Div", [e, reduced(d, "ReduceSum", e, x.rank - 1)])[0]


def reduced(d: Draft, op: str, x: Var, axis: int) -> Var:
    shape = tuple(1 if i == axis else e for i, e in enumerate(x.shape))
    if d.opset >= (13 if op == "ReduceSum" else 18):
        axes = d.given(np.array([axis], np.int64), True)
        return d.node(op, [x, axes], types=[(x.dtype, shape)], keepdims=1)[0]
    return d.node(op, [x], types=[(x.dtype, shape)], axes=[axis], keepdims=1)[0]


@recipe("a function written out", table=PATTERNS)
def written(d: Draft, op: str) -> None:
    x = d.pick(["float", "float", "float16", "double"], 1, 4, empty=False)
    if d.chance(0.6):
        far(d, x)
    how = d.one_of(("gelu", "tanh gelu", "silu", "softmax", "layer norm", "rms", "hard swish",
                    "mish", "mish"))  # fmt: skip
    if how == "softmax":
        softmax(d, x)
    elif how in ("layer norm", "rms"):
        norm(d, x, how == "rms")
    elif how == "silu":
        d.node("Mul", [x, d.node("Sigmoid", [x])[0]])
    elif how == "mish":
        d.node("Mul", [x, d.node("Tanh", d.node("Softplus", [x]))[0]])
    elif how == "hard swish":
        y = d.node("Add", [x, number(d, x.dtype, 3)])[0]
        if d.opset < 12:
            raise Declined
        y = d.node("Clip", [y, number(d, x.dtype, 0), number(d, x.dtype, 6)])[0]
        d.node("Mul", [x, d.node("Div", [y, number(d, x.dtype, 6)])[0]])
    else:
        gelu(d, x, how[0] == "t")


def gelu(d: Draft, x: Var, tanh: bool) -> None:
    kind = x.dtype
    if tanh:
        cube = d.node("Pow", [x, number(d, kind, 3)])[0]
        inner = d.node("Add", [x, d.node("Mul", [cube, number(d, kind, 0.044715)])[0]])[0]
        y = d.node("Tanh", d.node("Mul", [inner, number(d, kind, (2 / np.pi) ** 0.5)]))[0]
    else:
        y = d.node("Erf", d.node("Div", [x, number(d, kind, 2**0.5)]))[0]
    y = d.node("Add", [y, number(d, kind, 1)])[0]
    if d.chance(0.5):
        d.node("Mul", [d.node("Mul", [x, y])[0], number(d, kind, 0.5)])
    else:
        d.node("Mul", [d.node("Mul", [x, number(d, kind, 0.5)])[0], y])


def norm(d: Draft, x: Var, rms: bool) -> None:
    last = x.rank - 1
    if not rms:
        x = d.node("Sub", [x, reduced(d, "ReduceMean", x, last)])[0]
    square = (
        d.node("Mul", [x, x])[0] if d.chance(0.5)
        else d.node("Pow", [x, number(d, x.dtype, 2)])[0]
    )  # fmt: skip
    variance = d.node("Add", [reduced(d, "ReduceMean", square, last), number(d, x.dtype, 1e-3)])[0]
    y = d.node("Div", [x, d.node("Sqrt", [variance])[0]])[0]
    y = d.node("Mul", [y, d.fresh(x.dtype, x.shape[-1:], True)])[0]
    if d.chance(0.6):
        d.node("Add", [y, d.fresh(x.dtype, x.shape[-1:], True)])


@recipe("a stack of products", table=PATTERNS)
def perceptron(d: Draft, op: str) -> None:
    x = d.pick(["float"], 2, 3, empty=False, where=lambda v: v.shape[-1] <= 300)
    for _ in range(d.number(1, 3)):
        n = d.extent(max(min(8192 // x.shape[-1], 300), 1))
        if x.rank == 2 and d.chance(0.5):
            turned = d.number(0, 1)
            shape = (n, x.shape[1]) if turned else (x.shape[1], n)
            given = [x, d.fresh("float", shape, True), d.fresh("float", (n,), True)]
            x = d.node("Gemm", given, types=[("float", (x.shape[0], n))], transB=turned)[0]
        else:
            x = d.node("MatMul", [x, d.fresh("float", (x.shape[-1], n), True)])[0]
            x = added(d, x, d.fresh("float", (n,), True)) if d.chance(0.6) else x
        x = d.node(d.one_of(("Relu", "Sigmoid", "Tanh")), [x])[0] if d.chance(0.6) else x


@recipe("a product of a view", table=PATTERNS)
def stretched(d: Draft, op: str) -> None:
    """A product with an operand that is stretched, turned or cut before."""
    k, n, m = d.extent(33), d.extent(33), d.extent(17)
    x = d.pick(["float"], 2, 2, shape=lambda: (m, k), where=lambda v: v.shape == (m, k))
    thin = d.one_of(((k, 1), (1, n), (1, 1), (n,)))
    if d.opset < 8:
        raise Declined
    y = d.node("Expand", [d.fresh("float", thin), d.ints([k, n])], types=[("float", (k, n))])[0]
    if d.chance(0.3):
        y = d.node("Transpose", [y], perm=[1, 0])[0]
        d.node("MatMul", [y, d.node("Transpose", [x], perm=[1, 0])[0]])
    else:
        d.node("MatMul", [x, y])


# ── scalars ──


@recipe("scalars and casts", table=PATTERNS)
def scalars(d: Draft, op: str) -> None:
    x = d.pick(["float", "float", "float16", "double", "int32", "int64"], 0, 5)
    for _ in range(d.number(1, 4)):
        how = d.one_of(("Add", "Sub", "Mul", "Div", "Cast", "Neg", "Max", "Min"))
        if how == "Cast":
            to = d.one_of(("float", "float", "double", "float16"))
            x = d.node("Cast", [x], to=code(to))[0] if d.opset >= 6 else x
            continue
        if how == "Neg":
            x = d.node(how, [x], types=[(x.dtype, x.shape)])[0]
            continue
        value = (
            d.one_of((0, 1, 2, 3, -1))
            if x.dtype[0] == "i"
            else d.one_of((0.0, 1.0, 0.5, 2.0, -1.5))
        )
        if how == "Div" and not value:
            continue
        one = number(d, x.dtype, value, d.one_of(((), (1,))))
        x = d.node(how, [one, x] if d.chance(0.3) and how != "Div" else [x, one])[0]

"""Recipes for what computes with small integers, and for networks that were quantised."""

from __future__ import annotations

import numpy as np

from .draft import DTYPES, Array, Declined, Draft, Var, recipe
from .recipes_heavy import check_fit, divisor, image, windowed
from .recipes_movement import some_axes

BYTES = ("uint8", "int8")
MICROSOFT = "com.microsoft"


def steps(d: Draft, count: int) -> list[Var]:
    """Return scales that are powers of two, so that ties are frequent and exact."""
    return [d.given(np.float32(2.0 ** -d.number(0, 5)), True) for _ in range(count)]


def zeros(d: Draft, dtype: str, count: int) -> list[Var]:
    return [d.given(extreme(d, dtype, ()), True) for _ in range(count)]


def extreme(d: Draft, dtype: str, shape: tuple[int, ...]) -> Array:
    """Return elements from the whole range of a type, or moderate ones."""
    if d.chance(0.5):
        return d.contents(dtype, shape)
    limits = np.iinfo(DTYPES[dtype])
    return np.asarray(d.rng.integers(limits.min, limits.max + 1, shape)).astype(DTYPES[dtype])


def bytes_of(d: Draft, least: int, most: int) -> Var:
    """Return a value of bytes: one that was made before, or one that uses their whole range."""
    x = d.pick(BYTES, least, most, empty=False)
    if x.name in d.made or d.chance(0.3):
        return x
    return d.given(extreme(d, x.dtype, x.shape), False)


# ── to integers and back ──


@recipe("QuantizeLinear")
def quantize(d: Draft, op: str) -> None:
    x = d.pick(["float", "float16"], 1)
    axis, scale, zero = scales(d, x, d.one_of(BYTES))
    if d.opset >= 19:
        scale = d.given((d.weights | d.inputs)[scale.name].astype(DTYPES[x.dtype]), True)
    elif x.dtype != "float":
        raise Declined
    d.node(op, [x, scale, zero if d.opset < 13 or d.chance(0.9) else None], **axis)


@recipe("DequantizeLinear")
def dequantize(d: Draft, op: str) -> None:
    x = d.pick(["int8", "uint8", "int32"], 1)
    axis, scale, zero = scales(d, x, x.dtype)
    d.node(op, [x, scale, None if x.dtype == "int32" else zero], **axis)


def scales(d: Draft, x: Var, dtype: str) -> tuple[dict[str, int], Var, Var]:
    """Return the axis, scale and zero point to quantize x by: one for all, or one a slice."""
    axis = d.number(-x.rank, x.rank - 1)
    shape = (x.shape[axis],) if d.chance(0.4) and d.opset >= 13 else ()
    scale = d.given(np.asarray(2.0 ** d.rng.integers(-4, 1, shape), np.float32), True)
    zero = d.given(d.contents(dtype, shape), True)
    return ({"axis": axis} if shape else {}), scale, zero


@recipe("DynamicQuantizeLinear")
def dynamic(d: Draft, op: str) -> None:
    d.node(op, [d.pick(["float"], empty=False)], outputs=3)


def through(d: Draft, x: Var) -> Var:
    """Return x quantised and dequantised, as exporters write it."""
    if d.opset < 13:
        raise Declined
    kind = d.one_of(BYTES)
    scale, zero = steps(d, 1)[0], zeros(d, kind, 1)[0]
    return d.node("DequantizeLinear", [d.node("QuantizeLinear", [x, scale, zero])[0], scale, zero])[
        0
    ]


def stored(d: Draft, shape: tuple[int, ...], axis: int) -> Var:
    """Return weights that are stored as i8 and dequantised, by channel or as a whole."""
    if d.opset < 13:
        raise Declined
    each = d.chance(0.6)
    scale = 2.0 ** d.rng.integers(-6, -2, shape[axis : axis + 1] if each else ())
    given = [d.given(extreme(d, "int8", shape), True), d.given(np.asarray(scale, np.float32), True)]
    if d.chance(0.6):
        given.append(d.given(np.zeros(scale.shape if each else (), np.int8), True))
    return d.node("DequantizeLinear", given, **({"axis": axis} if each else {}))[0]


@recipe("qdq:Conv")
def qdq_conv(d: Draft, op: str) -> None:
    """A convolution between quantisations, perhaps with Relu, Add or a pool, as QDQ models have."""
    x = through(d, image(d, ["float"], 2))
    window = windowed(d, 2, False)
    kernel = window.pop("kernel")
    assert isinstance(kernel, list)
    check_fit(x, kernel, window)
    group = d.one_of((1, divisor(d, x.shape[1])))
    each = d.number(1, 9)
    w = stored(d, (each * group, x.shape[1] // group, *kernel), 0)
    bias = None
    if d.chance(0.6):
        bias = d.given(np.round(d.contents("float", (each * group,))), True)
    y = d.node("Conv", [x, w, bias], group=group, **window)[0]
    if d.chance(0.5):
        y = d.node("Relu", [y])[0]
    y = through(d, y)
    if d.chance(0.3):
        y = through(d, d.node("Add", [y, through(d, d.fresh("float", y.shape))])[0])
    if d.chance(0.3):
        through(d, d.node("GlobalAveragePool", [y])[0])


@recipe("qdq:MatMul", "qdq:Gemm")
def qdq_matmul(d: Draft, op: str) -> None:
    op = op.partition(":")[2]
    x = through(d, d.pick(["float"], 2, 2 if op == "Gemm" else 4, empty=False))
    n = d.number(1, 40)
    turned = op == "Gemm" and d.chance(0.5)
    w = stored(d, (n, x.shape[-1]) if turned else (x.shape[-1], n), 0 if turned else 1)
    if op == "Gemm":
        bias = d.given(np.round(d.contents("float", (n,))), True)
        y = d.node(op, [x, w, bias], transB=int(turned))[0]
    else:
        y = d.node(op, [x, w])[0]
    through(d, y)


# ── products ──


@recipe("MatMulInteger")
def matmul_integer(d: Draft, op: str) -> None:
    x = bytes_of(d, 2, 4)  # not empty: ONNX Runtime adds up what is not there
    n = d.number(1, 40)
    w = d.given(extreme(d, d.one_of(BYTES), (x.shape[-1], n)), d.chance(0.8))
    x_zero = zeros(d, x.dtype, 1)[0] if d.chance(0.6) else None
    w_zero = None
    if d.chance(0.6):
        w_zero = d.given(extreme(d, w.dtype, (n,) if d.chance(0.3) else ()), True)
    d.node(op, [x, w, x_zero, w_zero])


@recipe("ConvInteger", "QLinearConv")
def conv(d: Draft, op: str) -> None:
    x = image(d, list(BYTES), d.one_of((1, 2, 2, 2, 3)) if op == "ConvInteger" else 2)
    window = windowed(d, x.rank - 2, False)
    kernel = window.pop("kernel")
    assert isinstance(kernel, list)
    if d.chance(0.2):
        window["dilations"] = [d.number(1, 2) for _ in kernel]
    check_fit(x, kernel, window)
    channels = x.shape[1]
    group = divisor(d, channels)
    shape = (d.number(1, 9) * group, channels // group, *kernel)
    w = d.given(extreme(d, d.one_of(BYTES) if op == "ConvInteger" else x.dtype, shape), True)
    if op == "ConvInteger":
        w_zero = zeros(d, w.dtype, 1)[0] if d.chance(0.3) else None
        x_zero = zeros(d, x.dtype, 1)[0] if w_zero or d.chance(0.5) else None
        d.node(op, [x, w, x_zero, w_zero], group=group, **window)
        return
    x_step, y_step = steps(d, 2)
    each = d.chance(0.4)
    w_step = d.given(
        np.asarray(2.0 ** d.rng.integers(-8, -2, shape[:1] if each else ()), np.float32), True
    )
    w_zero = d.given(np.zeros(shape[:1] if each else (), DTYPES[w.dtype]), True)
    x_zero, y_zero = zeros(d, x.dtype, 2)
    bias = None
    if d.chance(0.6):
        bias = d.given(d.rng.integers(-999, 999, shape[0]).astype(np.int32), True)
    d.node(op, [x, x_step, x_zero, w, w_step, w_zero, y_step, y_zero, bias], group=group, **window)


@recipe("QLinearMatMul")
def q_matmul(d: Draft, op: str) -> None:
    x = bytes_of(d, 2, 4)
    w = d.given(extreme(d, x.dtype, (x.shape[-1], d.number(1, 30))), True)
    a, b, c = steps(d, 3)
    p, q, r = zeros(d, x.dtype, 3)
    d.node(op, [x, a, p, w, b, q, c, r])


@recipe("com.microsoft:QGemm")
def q_gemm(d: Draft, op: str) -> None:
    x = bytes_of(d, 2, 2)
    n = d.number(1, 30)
    turned = d.number(0, 1)
    w = d.given(extreme(d, x.dtype, (n, x.shape[1]) if turned else (x.shape[1], n)), True)
    a, b, c = steps(d, 3)
    p, q, r = zeros(d, x.dtype, 3)
    bias = d.given(d.rng.integers(-999, 999, n).astype(np.int32), True)
    d.node("QGemm", [x, a, p, w, b, q, bias, c, r], domain=MICROSOFT, transB=turned,
           types=[(x.dtype, (x.shape[0], n))])  # fmt: skip


@recipe("com.microsoft:MatMulIntegerToFloat", "com.microsoft:DynamicQuantizeMatMul")
def to_float(d: Draft, op: str) -> None:
    """Products of bytes, times scales."""
    op = op.partition(":")[2]
    x = d.pick(["float"], 2, 3, empty=False) if op[0] == "D" else bytes_of(d, 2, 3)
    n = d.number(1, 30)
    w = d.given(extreme(d, d.one_of(BYTES), (x.shape[-1], n)), True)
    each = (n,) if d.chance(0.4) else ()
    step = d.given(np.asarray(2.0 ** d.rng.integers(-6, 0, each), np.float32), True)
    zero = d.given(extreme(d, w.dtype, each), True) if d.chance(0.5) else None
    bias = d.fresh("float", (n,), True) if d.chance(0.5) else None
    if op[0] == "D":
        given = [x, w, step, zero, bias]
    else:
        x_zero = zeros(d, x.dtype, 1)[0] if d.chance(0.5) else None
        given = [x, w, steps(d, 1)[0], step, x_zero, zero, bias]
    d.node(op, given, domain=MICROSOFT, types=[("float", (*x.shape[:-1], n))])


# ── element by element, and windows ──


@recipe("com.microsoft:QLinearAdd", "com.microsoft:QLinearMul")
def binary(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    y = d.fresh(x.dtype, x.shape)
    a, b, c = steps(d, 3)
    p, q, r = zeros(d, x.dtype, 3)
    d.node(op.partition(":")[2], [x, a, p, y, b, q, c, r], domain=MICROSOFT,
           types=[(x.dtype, x.shape)])  # fmt: skip


@recipe("com.microsoft:QLinearSigmoid", "com.microsoft:QLinearLeakyRelu")
def unary(d: Draft, op: str) -> None:
    x = d.pick(["int8", "uint8"], 1, 4, empty=False)
    scale, zero = d.given(np.float32(0.25), True), zeros(d, x.dtype, 1)[0]
    result = d.given(np.float32(2.0**-7), True)
    d.node(op.partition(":")[2], [x, scale, zero, result, zero], domain=MICROSOFT,
           types=[(x.dtype, x.shape)])  # fmt: skip


@recipe("com.microsoft:QLinearConcat")
def concat(d: Draft, op: str) -> None:
    x = bytes_of(d, 1, 4)
    axis = d.number(0, x.rank - 1)
    shape = list(x.shape)
    shape[axis] = d.number(1, 4)
    y = d.fresh(x.dtype, tuple(shape))
    a, b, c = steps(d, 3)
    p, q, r = zeros(d, x.dtype, 3)
    shape[axis] += x.shape[axis]
    d.node("QLinearConcat", [c, r, x, a, p, y, b, q], domain=MICROSOFT, axis=axis,
           types=[(x.dtype, tuple(shape))])  # fmt: skip


@recipe("com.microsoft:QLinearGlobalAveragePool", "com.microsoft:QLinearReduceMean")
def mean(d: Draft, op: str) -> None:
    x = bytes_of(d, 3, 4)
    a, b = steps(d, 2)
    p, q = zeros(d, x.dtype, 2)
    if op.endswith("Pool"):
        shape = x.shape[:2] + (1,) * (x.rank - 2)
        attributes: dict[str, object] = {"channels_last": 0}
    else:
        axes = some_axes(d, x.rank)
        attributes = {"axes": axes, "keepdims": 1}
        gone = {a % x.rank for a in axes}
        shape = tuple(1 if i in gone else e for i, e in enumerate(x.shape))
    d.node(op.partition(":")[2], [x, a, p, b, q], domain=MICROSOFT, types=[(x.dtype, shape)],
           **attributes)  # fmt: skip

"""Converters that make many elements one: sums, extremes, norms, softmax, running sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.frontends.nhwc import channels_first, channels_last
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.file.schema import WindowFunction
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.frontends.windows import over_windows
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Minimum, Mul
from alpenglow.ops.elementwise.logic import BitAnd, BitOr
from alpenglow.ops.elementwise.transcendental import Sqrt
from alpenglow.ops.reduction.normalize import LocalResponseNorm
from alpenglow.ops.reduction.reduction import (
    ArgMax,
    ArgMin,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.reduction.softmax import LogSoftmax, Softmax
from alpenglow.ops.tensor.movement import stretch

Reduce = type[ReduceSum] | type[ReduceProd] | type[ReduceMax] | type[ReduceMin]

REDUCTIONS: dict[str, Reduce] = {
    "SUM": ReduceSum,
    "REDUCE_PROD": ReduceProd,
    "REDUCE_MAX": ReduceMax,
    "REDUCE_MIN": ReduceMin,
    "REDUCE_ANY": ReduceMax,
    "REDUCE_ALL": ReduceMin,
}


def reduction(op: Reduce) -> Callable[[Site], Made]:
    """Return the converter for a reduction along the axes that operand 1 lists."""
    return lambda s: s.g(op(axes_of(s), s.option("keep_dims")), s.input(0))


for _name, _op in REDUCTIONS.items():
    moving = _op in (ReduceMax, ReduceMin)
    on(_name, "ReducerOptions", moves=moving)(reduction(_op))


@on("MEAN", "ReducerOptions")
def mean(s: Site) -> Made:
    """Means of integers are sums over counts, without their fractions."""
    x, axes, keep = s.input(0), axes_of(s), s.option("keep_dims")
    if x.type.dtype in FLOATS:
        return s.g(ReduceMean(axes, keep), x)
    count = fixed(product([x.type.shape[a] for a in axes]))
    total = s.g(ReduceSum(axes, keep), s.cast(x, "i64"))
    return s.cast(s.g(Div(), total, s.filled(int(count), total)), x.type.dtype)


def axes_of(s: Site) -> tuple[int, ...]:
    """Return the axes that operand 1 lists, counted from the front."""
    return s.axes(s.ints(1), s.input(0).type.rank)


@on("ARG_MAX", moves=True)
@on("ARG_MIN", moves=True)
def arg_extreme(s: Site) -> Made:
    x, make = s.input(0), ArgMax if s.kind == "ARG_MAX" else ArgMin
    return s.cast(s.g(make(s.axis(s.number(1), x.type.rank), False), x), s.output().dtype)


@on("CUMSUM", "CumsumOptions")
def cumsum(s: Site) -> Made:
    x = s.input(0)
    axis = s.axis(s.number(1), x.type.rank)
    return s.g(CumSum(axis, s.option("exclusive"), s.option("reverse")), x)


@on("SOFTMAX", "SoftmaxOptions")
def softmax(s: Site) -> Made:
    x, beta = s.input(0), s.option("beta")
    scaled = x if beta == 1 else s.g(Mul(), x, s.filled(beta, x))
    return s.g(Softmax(s.axis(-1, x.type.rank)), scaled)


@on("LOG_SOFTMAX")
def log_softmax(s: Site) -> Made:
    x = s.input(0)
    return s.g(LogSoftmax(s.axis(-1, x.type.rank)), x)


@on("L2_NORMALIZATION", "L2NormOptions")
def l2_normalization(s: Site) -> Made:
    """Rows over their lengths, which count as 1e-6 where they are less."""
    x = s.input(0)
    image = x.type.rank == 4
    rows = channels_first(s.g, x) if image else x
    axis = 1 if image else s.axis(-1, x.type.rank)
    length = s.g(Sqrt(), s.g(ReduceSum((axis,)), s.g(Mul(), rows, rows)))
    least = s.g(Maximum(), length, s.filled(1e-6, length))
    y = s.g(Div(), rows, stretch(s.g, least, rows.type.shape))
    return activated(s, channels_last(s.g, y) if image else y)


@on("LOCAL_RESPONSE_NORMALIZATION", "LocalResponseNormalizationOptions")
def local_response_normalization(s: Site) -> Made:
    x, size = s.rank(0, 4), 2 * s.option("radius") + 1
    op = LocalResponseNorm(size, s.option("alpha") * size, s.option("beta"), s.option("bias"))
    return channels_last(s.g, s.g(op, channels_first(s.g, x)))


WINDOWS: dict[int, type[Op]] = {1: Add, 2: Mul, 3: Minimum, 4: Maximum, 5: BitAnd, 6: BitOr}
"""The operators of `ReduceWindowFunction` by number."""


@on("REDUCE_WINDOW", "ReduceWindowOptions")
def reduce_window(s: Site) -> Made:
    """Windows that lie within the operand; each begins with operand 1.

    The operands behind it are the windows' extents, their strides and how far their elements are
    apart, numbers for each axis.
    """
    x, number = s.input(0), s.option("reduce_function")
    size, strides, spread = s.ints(2), s.ints(3), s.ints(4)
    if any(len(v) != x.type.rank or min(v, default=1) < 1 for v in (size, strides, spread)):
        raise s.wrong(
            f"window_shape is {size}, window_strides {strides} and window_dilations {spread}, "
            f"expected {x.type.rank} entries of at least 1 in each for {x.type}"
        )
    if number not in WINDOWS:
        raise s.wrong(f"reduce_function is {number}, expected 1 (ADD) to 6 (ANY)")
    op = WINDOWS[number]()
    if (x.type.dtype == "bool") != isinstance(op, BitAnd | BitOr):
        raise s.unsupported(f"reduce_function {WindowFunction(number).name} of {x.type.dtype}",
                            "ALL and ANY of bool, others of numbers")  # fmt: skip

    def combine(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        return [s.g(op, a, b) for a, b in zip(left, right, strict=True)]

    (made,) = over_windows(s.g, [x], size, strides, spread, combine)
    return s.apply(op, s.scalar(1), made)

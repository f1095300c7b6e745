"""Operators on elements of any kind: truth values, integers and complex numbers as well as floats.

Formats apply one operator to more kinds of elements than the operators of graphs take: they add
truth values and convolve complex numbers.  `apply` builds the operators that compute the same of
such a kind, chosen by three tables from operators to functions that build in a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.windows import taps
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, HALVES, INTS, UNSIGNED
from alpenglow.ops.elementwise import (
    activation,
    arithmetic,
    comparison,
    complex,
    complex_functions,
    logarithm,
    logic,
    transcendental,
)
from alpenglow.ops.elementwise.arithmetic import Add, Sub
from alpenglow.ops.elementwise.complex import Pair, ViewAsComplex, ViewAsReal, bare_parts, joined
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction import reduction
from alpenglow.ops.reduction.reduction import ReduceMean, ReduceSum, filled
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.gather import ScatterElements, ScatterNd
from alpenglow.ops.tensor.movement import (
    Concat,
    Pad,
    Reshape,
    Slice,
    Transpose,
    append_axes,
    stretch,
)
from alpenglow.ops.window.conv_transpose import ConvTranspose, Dilate

Build = Callable[..., Value]
"""A function of a graph, an operator and its operands that builds the result."""


def apply(g: Graph, op: Op, *xs: Value | None) -> Value:
    """Apply an operator to operands; the element type of the first one decides how it is built.

    Raises UnsupportedError for complex numbers if there is no such operator on them.
    """
    x, kind = xs[0], type(op)
    assert x is not None, "the first operand is there"
    dtype = x.type.dtype
    if dtype in COMPLEX:
        if kind not in OF_COMPLEX:
            raise UnsupportedError(f"{op.name}: {dtype} is not supported; supported: real dtypes")
        return OF_COMPLEX[kind](g, op, *xs)
    if dtype == "bool" and kind in OF_TRUTHS:
        return OF_TRUTHS[kind](g, op, *xs)
    if dtype in INTS and kind in OF_INTEGERS:
        return OF_INTEGERS[kind](g, op, *xs)
    return g(op, *xs)


def wide(dtype: str) -> str:
    """Return the element type that a chain of operators is computed in: f32 for short floats."""
    return "f32" if dtype in HALVES else dtype


# ── complex numbers ──


def parts_of(g: Graph, x: Value) -> Pair:
    """Return the real and the imaginary parts of complex numbers, in their shape."""
    real, imaginary = bare_parts(g, x)
    return real, imaginary


def of_parts(g: Graph, real: Value, imaginary: Value) -> Value:
    """Return the complex numbers of these parts."""
    return joined(g, append_axes(g, real, 1), append_axes(g, imaginary, 1))


def as_complex(g: Graph, real: Value) -> Value:
    """Return complex numbers without imaginary parts."""
    pairs = append_axes(g, real, 1)
    return joined(g, pairs, filled(g, 0, pairs))


def _by(other: Op) -> Build:
    """Build another operator in place of one."""
    return lambda g, op, *xs: g(other, *xs)


def _by_part(both: Op) -> Build:
    """Build a test of real parts and one of imaginary parts, and join the outcomes."""

    def build(g: Graph, op: Op, *xs: Value) -> Value:
        return g(both, *(g(op, *parts) for parts in zip(*(bare_parts(g, x) for x in xs),
                                                        strict=True)))  # fmt: skip

    return build


def _in_pairs(g: Graph, op: ReduceSum | ReduceMean | CumSum, x: Value) -> Value:
    axes = (op.axis,) if isinstance(op, CumSum) else op.axes
    assert min(axes, default=0) >= 0, "axes count from the front, for pairs have one more behind"
    return g(ViewAsComplex(), g(op, g(ViewAsReal(), x)))


def _scattered_parts(
    g: Graph, op: ScatterNd | ScatterElements, x: Value, at: Value, updates: Value
) -> Value:
    if op.reduction == "none":
        return g(op, x, at, updates)
    if op.reduction != "add":
        found = f"reduction '{op.reduction}' of {x.type.dtype}"
        raise UnsupportedError(f"{op.name}: {found} is not supported; supported: 'none' and 'add'")
    if isinstance(op, ScatterNd):
        pairs, more = (g(ViewAsReal(), v) for v in (x, updates))
        return g(ViewAsComplex(), g(op, pairs, at, more))
    parts = zip(parts_of(g, x), parts_of(g, updates), strict=True)
    real, imaginary = (g(op, part, at, more) for part, more in parts)
    return of_parts(g, real, imaginary)


def _complex_convolution(
    g: Graph, op: Conv | ConvTranspose, x: Value, w: Value, bias: Value | None = None
) -> Value:
    """Build four convolutions of parts."""
    (a, b), (c, d) = parts_of(g, x), parts_of(g, w)
    real = g(Sub(), g(op, a, c, None), g(op, b, d, None))
    imaginary = g(Add(), g(op, a, d, None), g(op, b, c, None))
    if bias is not None:
        more = (_by_channel(g, v, real) for v in parts_of(g, bias))
        real, imaginary = (g(Add(), *v) for v in zip((real, imaginary), more, strict=True))
    return of_parts(g, real, imaginary)


def _by_channel(g: Graph, bias: Value, y: Value) -> Value:
    """Return a bias stretched to the result of a convolution."""
    return stretch(g, append_axes(g, bias, y.type.rank - 2), y.type.shape)


OF_COMPLEX: Mapping[type[Op], Build] = {
    Add: _by(complex.ComplexAdd()),
    Sub: _by(complex.ComplexSub()),
    arithmetic.Mul: _by(complex.ComplexMul()),
    arithmetic.Div: _by(complex.ComplexDiv()),
    arithmetic.Pow: _by(complex.ComplexPow()),
    arithmetic.Reciprocal: lambda g, op, x: g(complex.ComplexDiv(), filled(g, 1, x), x),
    arithmetic.Neg: _by(complex.ComplexNeg()),
    arithmetic.Abs: _by(complex.ComplexAbs()),
    transcendental.Exp: _by(complex.ComplexExp()),
    transcendental.Log: _by(complex.ComplexLog()),
    MatMul: _by(complex.ComplexMatMul()),
    transcendental.Sin: _by(complex_functions.ComplexSin()),
    transcendental.Cos: _by(complex_functions.ComplexCos()),
    transcendental.Tan: _by(complex_functions.ComplexTan()),
    transcendental.Sinh: _by(complex_functions.ComplexSinh()),
    transcendental.Cosh: _by(complex_functions.ComplexCosh()),
    activation.Tanh: _by(complex_functions.ComplexTanh()),
    transcendental.Sqrt: _by(complex_functions.ComplexSqrt()),
    transcendental.Asin: _by(complex_functions.ComplexAsin()),
    transcendental.Acos: _by(complex_functions.ComplexAcos()),
    transcendental.Atan: _by(complex_functions.ComplexAtan()),
    transcendental.Asinh: _by(complex_functions.ComplexAsinh()),
    transcendental.Acosh: _by(complex_functions.ComplexAcosh()),
    transcendental.Atanh: _by(complex_functions.ComplexAtanh()),
    logarithm.Log2: _by(complex_functions.ComplexLog2()),
    logarithm.Log10: _by(complex_functions.ComplexLog10()),
    logarithm.Log1p: _by(complex_functions.ComplexLog1p()),
    logarithm.Exp2: _by(complex_functions.ComplexExp2()),
    logarithm.Expm1: _by(complex_functions.ComplexExpm1()),
    activation.Sigmoid: _by(complex_functions.ComplexSigmoid()),
    comparison.Equal: _by_part(logic.BitAnd()),
    comparison.IsNaN: _by_part(logic.BitOr()),
    comparison.IsInf: _by_part(logic.BitOr()),
    ReduceSum: _in_pairs,
    ReduceMean: _in_pairs,
    CumSum: _in_pairs,
    ScatterNd: _scattered_parts,
    ScatterElements: _scattered_parts,
    Conv: _complex_convolution,
    ConvTranspose: _complex_convolution,
}


# ── truth values ──


def _as_bytes(g: Graph, op: Op, *xs: Value) -> Value:
    return g(op, *(g(Cast("u8"), x) for x in xs))


def _scattered_truths(
    g: Graph, op: ScatterNd | ScatterElements, x: Value, at: Value, updates: Value
) -> Value:
    """Truth values are combined as bytes: a sum is the larger one, a product the smaller one."""
    if op.reduction == "none":
        return g(op, x, at, updates)
    how = {"add": "max", "mul": "min"}.get(op.reduction, op.reduction)
    values = [g(Cast("u8"), v) for v in (x, updates)]
    return g(Cast("bool"), g(replace(op, reduction=how), values[0], at, values[1]))


OF_TRUTHS: Mapping[type[Op], Build] = {
    Add: _by(logic.BitOr()),
    arithmetic.Mul: _by(logic.BitAnd()),
    arithmetic.Maximum: _by(logic.BitOr()),
    arithmetic.Minimum: _by(logic.BitAnd()),
    comparison.Less: _as_bytes,
    comparison.LessOrEqual: _as_bytes,
    comparison.Greater: _as_bytes,
    comparison.GreaterOrEqual: _as_bytes,
    ReduceSum: lambda g, op, x: g(reduction.ReduceMax(op.axes, op.keepdims), x),
    reduction.ReduceProd: lambda g, op, x: g(reduction.ReduceMin(op.axes, op.keepdims), x),
    ScatterNd: _scattered_truths,
    ScatterElements: _scattered_truths,
}


# ── integers ──


def _negative(g: Graph, op: arithmetic.Neg, x: Value) -> Value:
    return g(Sub(), filled(g, 0, x), x) if x.type.dtype in UNSIGNED else g(op, x)


def _integer_product(g: Graph, op: MatMul, x: Value, y: Value) -> Value:
    """Return a product of integers in their own type.  Products of bytes are i32 and wrap."""
    z = g(op, x, y)
    return z if z.type.dtype == x.type.dtype else g(Cast(x.type.dtype), z)


def _integer_convolution(
    g: Graph, op: Conv | ConvTranspose, x: Value, w: Value, bias: Value | None = None
) -> Value:
    """Build one product of matrices, whose sums wrap as integers do."""
    if isinstance(op, ConvTranspose):
        op, x, w = _straightened(g, op, x, w)
    kernel, (outputs, channels) = tuple(map(fixed, w.type.shape[2:])), w.type.shape[:2]
    batch, *image = op.infer(*(v.type.with_dtype("f32") for v in (x, w))).shape
    del image[0]
    pads, steps, apart = op.window(len(kernel))
    padded = g(Pad((0, 0, *pads[: len(kernel)]), (0, 0, *pads[len(kernel) :])), x)
    seen = [_reshaped(g, tap, (batch, op.group, channels, product(image)))
            for tap in taps(g, padded, kernel, steps, apart, image)]  # fmt: skip
    rows = (op.group, outputs // op.group)
    per_group = _reshaped(g, w, (*rows, channels, len(seen)))
    matrix = _reshaped(g, g(Transpose((0, 1, 3, 2)), per_group), (*rows, len(seen) * channels))
    left = stretch(g, matrix, (batch, *matrix.type.shape))
    y = _integer_product(g, MatMul(), left, g(Concat(2), *seen))
    y = _reshaped(g, y, (batch, outputs, *image))
    return y if bias is None else g(Add(), y, _by_channel(g, bias, y))


def _straightened(
    g: Graph, op: ConvTranspose, x: Value, w: Value
) -> tuple[Conv, Value, Value]:  # fmt: skip
    """Return a convolution equal to a transposed one: zeros between the elements of x, and the
    weights reversed."""
    kernel, group = tuple(map(fixed, w.type.shape[2:])), op.group
    n, (inputs, outputs) = len(kernel), w.type.shape[:2]
    reach = [(k - 1) * d for k, d in zip(kernel, op.dilations, strict=True)]
    before = [r - p for r, p in zip(reach, op.pads[:n], strict=True)]
    after = [r - p + q for r, p, q in
             zip(reach, op.pads[n:], op.output_padding, strict=True)]  # fmt: skip
    ends = (0, 0, *[k - 1 for k in kernel])
    backwards = g(Slice(ends, w.type.shape, (1, 1, *[-1] * n)), w)
    split = _reshaped(g, backwards, (group, inputs // group, outputs, *kernel))
    turned = g(Transpose((0, 2, 1, *range(3, 3 + n))), split)
    weights = _reshaped(g, turned, (group * outputs, inputs // group, *kernel))
    return (Conv((1,) * n, (*before, *after), op.dilations, group),
            g(Dilate((1, 1, *op.strides)), x), weights)  # fmt: skip


def _reshaped(g: Graph, x: Value, shape: tuple[Dim, ...]) -> Value:
    return x if x.type.shape == shape else g(Reshape(shape), x)


OF_INTEGERS: Mapping[type[Op], Build] = {
    arithmetic.Neg: _negative,
    MatMul: _integer_product,
    Conv: _integer_convolution,
    ConvTranspose: _integer_convolution,
}
"""How operators on integers are built; a result has the element type of the operands."""

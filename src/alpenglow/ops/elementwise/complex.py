"""Complex numbers: computed with as pairs of reals, the real part and the imaginary one.

Two primitives read memory of complex numbers as pairs on a last axis of 2, and such pairs as
complex numbers; nothing moves.  All arithmetic stands between these and is that of reals, so what
compiles a graph knows complex elements as something to move, no more.

Results are NumPy's where those are finite.  An infinite or undefined part may be NaN where C99, and
NumPy with it, has an infinity: a product is four products of reals, and inf - inf is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    SHAPES,
    Composite,
    Elementwise,
    Examples,
    Op,
    Primitive,
    check_dtype,
    check_rank,
    normal_axis,
    of_one_type,
)
from alpenglow.ir.types import COMPLEX, DTYPES, FLOATS, NAMES, PARTS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, GreaterOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Atan2, Cos, Exp, Hypot, LogHypot, Sin
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import filled
from alpenglow.ops.sequence.signal import Dft
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice

WHOLE = {part: whole for whole, part in PARTS.items()}
"""The complex numbers that have parts of an element type."""


class ViewAsReal(Primitive):
    """The parts of complex x[…] as reals […, 2], the same bytes.  PyTorch view_as_real."""

    moves = True

    def infer(self, x: TensorType) -> TensorType:
        return pairs_of(self, x)

    def reference(self, x: Array) -> Array:
        # NumPy has no view of an array without axes, or of one with strides, with smaller elements.
        flat = np.ascontiguousarray(x).reshape(-1)
        return flat.view(DTYPES[PARTS[NAMES[x.dtype]]]).reshape(*x.shape, 2)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(ViewAsComplex(), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), COMPLEX)


class ViewAsComplex(Primitive):
    """Reals x[…, 2], f32 or f64, as complex […], the same bytes.  PyTorch view_as_complex."""

    moves = True

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, frozenset(WHOLE))
        check_rank(self, "x", x, 1)
        last = x.shape[-1]
        if not known(last) or last != 2:
            raise TypeRuleError(f"view_as_complex: x is {x}, expected a last axis of 2")
        return TensorType(WHOLE[x.dtype], x.shape[:-1])

    def reference(self, x: Array) -> Array:
        whole = DTYPES[WHOLE[NAMES[x.dtype]]]
        return np.ascontiguousarray(x).reshape(-1).view(whole).reshape(x.shape[:-1])

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(ViewAsReal(), dy)

    @classmethod
    def examples(cls) -> Examples:
        for shape in SHAPES:
            yield cls(), f"f32[{','.join(filter(None, (shape, '2')))}]"
        yield cls(), "f64[3,7,2]"


# ── arithmetic ──


class ComplexUnary(Composite, kind=True):
    """A function of a complex tensor; unless `infer` is overridden, the result has its type."""

    def infer(self, x: TensorType) -> TensorType:
        return alike(self, x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), COMPLEX)


class ComplexBinary(Composite, kind=True):
    """A function of two complex tensors of one type; the result has the same type."""

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        return alike(self, x, y)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), COMPLEX)


class ComplexAdd(ComplexBinary):
    """x + y of complex numbers."""

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        return b(ViewAsComplex(), b(Add(), b(ViewAsReal(), x), b(ViewAsReal(), y)))


class ComplexSub(ComplexBinary):
    """x - y of complex numbers."""

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        return b(ViewAsComplex(), b(Sub(), b(ViewAsReal(), x), b(ViewAsReal(), y)))


class ComplexNeg(ComplexUnary):
    """-x of complex numbers."""

    def lower(self, b: Graph, x: Value) -> Value:
        return b(ViewAsComplex(), b(Neg(), b(ViewAsReal(), x)))


class Conjugate(ComplexUnary):
    """Complex x with the sign of its imaginary part turned."""

    def lower(self, b: Graph, x: Value) -> Value:
        real, imaginary = parts(b, x)
        return joined(b, real, b(Neg(), imaginary))


class ComplexMul(ComplexBinary):
    """x * y of complex numbers: (ac - bd) + (ad + bc)i."""

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        return joined(b, *product(b, parts(b, x), parts(b, y)))


class RealQuotient(Elementwise):
    """The real part of (a + bi) / (c + di).  That of (b - ai) / (c + di) is the imaginary one.

    By the method of Smith (Algorithm 116, 1962): what is divided by first is the larger of c and d,
    so that no square over- or underflows.  Division by 0 is that of a by 0.
    """

    dtypes = FLOATS

    def scalar(self, m: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        first = m.ge(m.abs(c), m.abs(d))
        large, small = m.where(first, c, d), m.where(first, d, c)
        ratio = m.div(small, m.where(m.eq(large, 0.0), 1.0, large))
        along, across = m.where(first, a, b), m.where(first, b, a)
        divisor = m.add(large, m.mul(small, ratio))
        return m.div(m.add(along, m.mul(across, ratio)), divisor)


class ComplexDiv(ComplexBinary):
    """x / y of complex numbers, by the method of Smith: y may be as large or small as its parts.

    x / 0 has parts that are infinite or NaN, as those of x divided by 0 are.
    """

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        (p, q), (r, s) = parts(b, x), parts(b, y)
        real = b(RealQuotient(), p, q, r, s)
        return joined(b, real, b(RealQuotient(), q, b(Neg(), p), r, s))

    def gradient(self, b: Graph, dz: Value, x: Value, y: Value) -> tuple[Value, Value]:
        """Divide dz by conj(y), and the product of that and conj(x / y): y² may overflow."""
        dx = b(ComplexDiv(), dz, b(Conjugate(), y))
        quotient = b(Conjugate(), b(ComplexDiv(), x, y))
        return dx, b(ComplexNeg(), b(ComplexMul(), dx, quotient))


class ComplexAbs(ComplexUnary):
    """|x| of complex numbers, a real, which neither over- nor underflows on the way."""

    def infer(self, x: TensorType) -> TensorType:
        return real_of(self, x)

    def lower(self, b: Graph, x: Value) -> Value:
        return b(Hypot(), *bare_parts(b, x))


class Angle(ComplexUnary):
    """The angle of complex x from -pi to pi, a real; 0 for 0, pi for -0.  NumPy angle."""

    def infer(self, x: TensorType) -> TensorType:
        return real_of(self, x)

    def lower(self, b: Graph, x: Value) -> Value:
        real, imaginary = bare_parts(b, x)
        return b(Atan2(), imaginary, real)


# ── functions ──


def of_some_shapes(op: Op) -> Examples:
    """Yield few applications, as the kernels of functions are long."""
    for t in ("c64[]", "c64[0,3]", "c64[17]", "c128[]"):
        yield op, *[t] * len(op.operands)


class ComplexExp(ComplexUnary):
    """e raised to complex x."""

    def lower(self, b: Graph, x: Value) -> Value:
        return joined(b, *exponential(b, parts(b, x)))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_some_shapes(cls())


class ComplexLog(ComplexUnary):
    """The natural logarithm of complex x, cut along the negative reals.  That of 0 is -inf."""

    def lower(self, b: Graph, x: Value) -> Value:
        return joined(b, *logarithm(b, parts(b, x)))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(ComplexDiv(), dy, b(Conjugate(), x))

    @classmethod
    def examples(cls) -> Examples:
        yield from of_some_shapes(cls())


class ComplexPow(ComplexBinary):
    """Complex x raised to complex y: e raised to y log(x).

    0 raised to y is 1 where y is 0, 0 where the real part of y is positive, and otherwise NaN.
    The error is that of y log(x) as an angle: it grows with |y|.
    """

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        base, exponent = parts(b, x), parts(b, y)
        real, imaginary = exponential(b, product(b, exponent, logarithm(b, base)))
        zero, one, nan = (filled(b, c, real) for c in (0.0, 1.0, float("nan")))
        nothing = b(BitAnd(), *(b(Equal(), v, zero) for v in base))
        once = b(BitAnd(), *(b(Equal(), v, zero) for v in exponent))
        positive = b(Greater(), exponent[0], zero)
        undefined = b(Where(), b(BitAnd(), nothing, positive), zero, nan)
        of_zero = b(Where(), once, one, undefined)
        rest = b(Where(), once, zero, undefined)
        return joined(b, b(Where(), nothing, of_zero, real), b(Where(), nothing, rest, imaginary))

    def gradient(self, b: Graph, dz: Value, x: Value, y: Value) -> tuple[Value, Value]:
        """The derivatives are y x^(y-1), 0 where y is 0, and x^y log(x), 0 where x is 0 and y is a
        real of at least 0.
        """
        zero, one = filled(b, 0, x), filled(b, 1, x)
        less = b(ComplexPow(), x, b(ComplexSub(), y, one))
        by_x = b(Where(), is_zero(b, y), zero, b(ComplexMul(), y, less))
        real, imaginary = bare_parts(b, y)
        none = filled(b, 0, real)
        along = b(BitAnd(), b(GreaterOrEqual(), real, none), b(Equal(), imaginary, none))
        flat = b(BitAnd(), is_zero(b, x), along)
        # log(1) = 0 takes the place of log(0), so that no gradient of the gradient is NaN.
        log = b(ComplexLog(), b(Where(), flat, one, x))
        by_y = b(ComplexMul(), b(ComplexPow(), x, y), log)
        dx, dy = (b(ComplexMul(), dz, b(Conjugate(), slope)) for slope in (by_x, by_y))
        return dx, dy

    @classmethod
    def examples(cls) -> Examples:
        yield from of_some_shapes(cls())


# ── sums of products ──


class ComplexMatMul(Composite):
    """Complex x[…, M, K] times y[…, K, N], the leading axes equal.

    It is one product of reals: the pairs of x as they lie, [M, 2K], times the matrix [2K, 2N] of
    y and of y turned by i in alternate rows, which makes the pairs of the result as they lie.
    """

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        same_dtype(self, x, y)
        real = MatMul().infer(*(t.with_dtype(PARTS[t.dtype]) for t in (x, y)))
        return real.with_dtype(x.dtype)

    def lower(self, b: Graph, x: Value, y: Value) -> Value:
        (*outer, rows, inner), columns = x.type.shape, y.type.shape[-1]
        left = b(Reshape((*outer, rows, inner * 2)), b(ViewAsReal(), x))
        pairs = b(Reshape((*outer, inner, 1, columns, 2)), b(ViewAsReal(), y))
        real, imaginary = halves(b, pairs)
        turned = b(Concat(-1), b(Neg(), imaginary), real)
        both = b(Concat(len(outer) + 1), pairs, turned)
        right = b(Reshape((*outer, inner * 2, columns * 2)), both)
        y = b(MatMul(), left, right)
        return b(ViewAsComplex(), b(Reshape((*outer, rows, columns, 2)), y))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "c64[3,4]", "c64[4,5]"
        yield cls(), "c64[1,40]", "c64[40,17]"
        yield cls(), "c64[2,3,17,9]", "c64[2,3,9,33]"
        yield cls(), "c64[0,4]", "c64[4,5]"
        yield cls(), "c64[3,0]", "c64[0,5]"
        yield cls(), "c128[2,3,4]", "c128[2,4,5]"


class ComplexFft(Composite):
    """The discrete Fourier transform of complex x along `axis`, of the first `length` elements or
    with zeros behind them.

    With `inverse` the signs of the exponents turn, and the result is divided by the length: NumPy's
    fft and ifft with norm="backward".
    """

    axis: int
    length: Dim
    inverse: bool = False

    def infer(self, x: TensorType) -> TensorType:
        pairs = pairs_of(self, x)
        check_rank(self, "x", x, 1)
        spectrum = self._of_pairs(x.rank).infer(pairs)
        return x.with_shape(spectrum.shape[:-1])

    def lower(self, b: Graph, x: Value) -> Value:
        return b(ViewAsComplex(), b(self._of_pairs(x.type.rank), b(ViewAsReal(), x)))

    def _of_pairs(self, rank: int) -> Dft:
        """Return the transform of the pairs of a tensor of this rank."""
        return Dft(normal_axis(self, self.axis, rank), self.length, self.inverse)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0, 8), "c64[8]"
        yield cls(1, 7), "c64[3,5]"
        yield cls(-2, 4, True), "c64[2,5,3]"
        yield cls(1, 1), "c64[2,1]"
        yield cls(1, 4), "c64[0,4]"
        yield cls(1, 1024, True), "c64[1,900]"
        yield cls(1, 521), "c64[2,521]"
        yield cls(0, 6), "c128[6,2]"


# ── types ──


def alike(op: Op, *xs: TensorType) -> TensorType:
    """Return the type that all operands have; raise TypeRuleError unless it is one, and complex."""
    for x in xs:
        pairs_of(op, x)
        if x != xs[0]:
            raise TypeRuleError(f"{op.name}: operands are {xs[0]} and {x}, expected equal types")
    return xs[0]


def same_dtype(op: Op, x: TensorType, y: TensorType) -> None:
    """Raise TypeRuleError unless both operands are of one complex element type."""
    for t in (x, y):
        pairs_of(op, t)
    if x.dtype != y.dtype:
        raise TypeRuleError(f"{op.name}: operands are {x} and {y}, expected one dtype")


def pairs_of(op: Op, x: TensorType) -> TensorType:
    """Return the type of the pairs of complex x; raise TypeRuleError unless it is complex."""
    check_dtype(op, "x", x, COMPLEX)
    return TensorType(PARTS[x.dtype], (*x.shape, 2))


def real_of(op: Op, x: TensorType) -> TensorType:
    """Return the type of the real parts of complex x; raise TypeRuleError unless it is complex."""
    return x.with_dtype(pairs_of(op, x).dtype)


# ── parts ──

Pair = tuple[Value, Value]
"""The real parts and the imaginary ones, each with a last axis of 1."""


def parts(b: Graph, x: Value) -> Pair:
    """Return the parts of complex x."""
    return halves(b, b(ViewAsReal(), x))


def halves(b: Graph, pairs: Value) -> Pair:
    """Return the parts of pairs on a last axis of 2."""
    *outer, _ = pairs.type.shape
    starts, steps = (0,) * len(outer), (1,) * (len(outer) + 1)
    real, imaginary = (b(Slice((*starts, i), (*outer, 1), steps), pairs) for i in (0, 1))
    return real, imaginary


def bare_parts(b: Graph, x: Value) -> Sequence[Value]:
    """Return the parts of complex x in the shape of x."""
    return [b(Reshape(x.type.shape), part) for part in parts(b, x)]


def is_zero(b: Graph, x: Value) -> Value:
    """Return a mask of the elements of complex x whose parts are both 0."""
    real, imaginary = (b(Equal(), v, filled(b, 0, v)) for v in bare_parts(b, x))
    return b(BitAnd(), real, imaginary)


def joined(b: Graph, real: Value, imaginary: Value) -> Value:
    """Return the complex numbers of these parts."""
    return b(ViewAsComplex(), b(Concat(-1), real, imaginary))


def product(b: Graph, x: Pair, y: Pair) -> Pair:
    """Return the parts of x * y."""
    real = b(Sub(), b(Mul(), x[0], y[0]), b(Mul(), x[1], y[1]))
    return real, b(Add(), b(Mul(), x[0], y[1]), b(Mul(), x[1], y[0]))


def exponential(b: Graph, x: Pair) -> Pair:
    """Return the parts of e raised to x.

    e raised to the real part may overflow where its products with sine and cosine do not: they are
    multiplied by its root, twice.
    """
    real, imaginary = x
    root = b(Exp(), b(Mul(), real, filled(b, 0.5, real)))
    cosine, sine = (b(Mul(), root, b(f, imaginary)) for f in (Cos(), Sin()))
    return b(Mul(), cosine, root), b(Mul(), sine, root)


def logarithm(b: Graph, x: Pair) -> Pair:
    """Return the parts of the natural logarithm of x."""
    real, imaginary = x
    return b(LogHypot(), real, imaginary), b(Atan2(), imaginary, real)

"""Spectra: discrete Fourier transforms of any length, windows, and frames of a signal.

A complex number is two neighbours on a last axis of 2.  A short transform is a product with its
matrix; a longer one splits into two by a factor of its length (Cooley and Tukey), and where the
factors are large primes it is a convolution in a transform of a power of two (Bluestein).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.words import FIX_DIMENSIONS
from alpenglow.ir.dims import Dim, ceil_div, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import (
    Composite,
    Examples,
    Primitive,
    check_choice,
    check_dtype,
    check_natural,
    check_rank,
    normal_axis,
)
from alpenglow.ir.types import ALL, FLOATS, NUMBERS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import as_type, in_floats
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.unpooling import OverlapAdd

DENSE = 512
"""The longest transform that is a product with its matrix."""

SHORT = 128
"""One of complex numbers that is longer splits, if its length has factors."""


class Dft(Composite):
    """The discrete Fourier transform along `axis`, of the first `length` elements or with zeros.

    x has a last axis of 1, real, or 2, complex; so has the result, of 2.  With `inverse` the signs
    of the exponents turn, and the result is divided by the length.  With `onesided` the result is
    the first half of the spectrum, length // 2 + 1 elements; the inverse of that takes these and
    makes a real signal.  ONNX DFT.
    """

    axis: int
    length: Dim
    inverse: bool = False
    onesided: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 2)
        axis = normal_axis(self, self.axis, x.rank)
        if x.shape[-1] not in (1, 2) or axis == x.rank - 1:
            raise TypeRuleError(
                f"dft: x is {x} and axis {axis}, expected an axis before the last, and a last "
                "axis of 1 or 2"
            )
        if known(self.length) and self.length < 1:
            raise TypeRuleError(f"dft: the length is {self.length}, expected at least 1")
        real = self.inverse and self.onesided
        extent = self.length // 2 + 1 if self.onesided and not real else self.length
        shape = (*x.shape[:axis], extent, *x.shape[axis + 1 : -1], 1 if real else 2)
        return x.with_shape(shape)

    def lower(self, b: Graph, x: Value) -> Value:
        n = int(self.length)
        axis, rank = self.axis % x.type.rank, x.type.rank
        perm = tuple(a for a in range(rank - 1) if a != axis)
        moved = b(Transpose((*perm, axis, rank - 1)), in_floats(b, x))
        *outer, extent, parts = moved.type.shape
        rows = b(Reshape((product(outer), extent, parts)), moved)
        real = self.inverse and self.onesided
        y = inverse_real(b, rows, n) if real else self._spectrum(b, rows, n)
        back = b(Reshape((*outer, *y.type.shape[1:])), y)
        order = [*perm, axis, rank - 1]
        y = b(Transpose(tuple(order.index(a) for a in range(rank))), back)
        return as_type(b, y, x.type.dtype)

    def _spectrum(self, b: Graph, x: Value, n: int) -> Value:
        """Return the spectrum of rows."""
        bins = n // 2 + 1 if self.onesided else n
        rows = sized(b, x, n)
        if n == 1:
            return complex_of(b, rows)
        is_real = x.type.shape[2] == 1
        if is_real and n <= DENSE:
            return dense(b, rows, n, bins, self.inverse, 1 / n if self.inverse else 1.0)
        if is_real and n % 2 == 0:
            y = sized(b, of_real(b, rows, n, self.inverse), bins)
        else:
            y = sized(b, transform(b, complex_of(b, rows), n, self.inverse), bins)
        return scaled(b, y, 1 / n) if self.inverse else y

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1, 8), "f32[2,8,1]"
        yield cls(0, 7), "f32[5,3,2]"
        yield cls(-2, 4, True), "f32[2,3,5,2]"
        yield cls(1, 9, onesided=True), "f32[2,9,3,1]"
        yield cls(1, 9, True, True), "f32[2,5,2]"
        yield cls(1, 8, True, True), "f32[2,5,2]"
        yield cls(0, 1), "f32[1,1]"
        yield cls(1, 4), "f32[0,4,1]"
        yield cls(1, 520), "f32[2,520,1]"
        yield cls(1, 1024, True), "f32[1,900,2]"
        yield cls(1, 521, onesided=True), "f32[2,521,1]"
        yield cls(1, 514, True, True), "f32[1,258,2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(1, 6), f"{dtype}[2,6,2]"


def sized(b: Graph, x: Value, n: int) -> Value:
    """Return x[R, …, C] with n elements on axis 1: the first ones, or with zeros after them."""
    extent = int(x.type.shape[1])
    if extent == n:
        return x
    if extent > n:
        return b(Slice((0, 0, 0), (x.type.shape[0], n, x.type.shape[2]), (1, 1, 1)), x)
    return b(Pad((0, 0, 0), (0, n - extent, 0)), x)


def complex_of(b: Graph, x: Value) -> Value:
    """Return x[R, n, 1 or 2] as complex numbers."""
    return x if x.type.shape[2] == 2 else b(Pad((0, 0, 0), (0, 0, 1)), x)


def scaled(b: Graph, x: Value, factor: float) -> Value:
    return b(Mul(), x, b(Broadcast(x.type.shape), b.constant(np.asarray(factor, x.type.numpy))))


def roots(n: int, powers: Array, inverse: bool) -> Array:
    """Return the n-th roots of unity with these exponents, negative ones unless inverse."""
    angle = (powers % n) * (2 * np.pi / n)
    return np.asarray(np.exp(angle * (1j if inverse else -1j)))


def pairs(numbers: Array) -> Array:
    """Return complex numbers as pairs on a new last axis."""
    return np.stack([numbers.real, numbers.imag], axis=-1)


def dense(b: Graph, x: Value, n: int, bins: int, inverse: bool, factor: float = 1.0) -> Value:
    """Return the first `bins` elements of the spectrum of x[R, n, 1 or 2], times `factor`."""
    rows, _, parts = x.type.shape
    w = roots(n, np.outer(np.arange(n), np.arange(bins)), inverse) * factor
    matrix = np.stack([pairs(w), pairs(w * 1j)], axis=1)[:, : 1 if parts == 1 else 2]
    weights = b.constant(matrix.reshape(-1, 2 * bins).astype(x.type.numpy))
    flat = b(Reshape((rows, matrix.shape[0] * matrix.shape[1])), x)
    return b(Reshape((rows, bins, 2)), b(MatMul(), flat, weights))


def inverse_real(b: Graph, x: Value, n: int) -> Value:
    """Return the real signal [R, n, 1] of the first half of its spectrum."""
    bins = n // 2 + 1
    half = sized(b, complex_of(b, x), bins)
    rows = half.type.shape[0]
    twice = 2 - np.isin(np.arange(bins), (0, n / 2))  # a bin counts for its mirror image, too
    if n <= DENSE:
        w = roots(n, np.outer(np.arange(bins), np.arange(n)), True) * (twice / n)[:, None]
        matrix = np.stack([w.real, -w.imag], axis=1).reshape(2 * bins, n)
        flat = b(Reshape((rows, 2 * bins)), half)
        y = b(MatMul(), flat, b.constant(matrix.astype(x.type.numpy)))
        return b(Reshape((rows, n, 1)), y)
    double = np.broadcast_to((twice / n)[:, None], (bins, 2)).astype(x.type.numpy)
    weighted = b(Mul(), half, b(Broadcast(half.type.shape), b.constant(double)))
    # The real part of a sum over half the spectrum, each element counted with its mirror image.
    full = transform(b, sized(b, weighted, n), n, True)
    return b(Slice((0, 0, 0), (rows, n, 1), (1, 1, 1)), full)


def of_real(b: Graph, x: Value, n: int, inverse: bool) -> Value:
    """Return the spectrum of real x[R, n, 1], not scaled, for an even n: [R, n, 2].

    Neighbours are taken for a complex number, so half the length is transformed, and the spectra of
    the even and the odd elements are separated by their symmetry.
    """
    rows, half = x.type.shape[0], n // 2
    z = transform(b, b(Reshape((rows, half, 2)), x), half, inverse)
    z = b(Concat(1), z, sized(b, z, 1))  # it is periodic
    back = b(Slice((0, half, 0), z.type.shape, (1, -1, 1)), z)
    signs = np.array([1, -1], x.type.numpy)
    mirrored = b(Mul(), back, b(Broadcast(z.type.shape), b.constant(signs)))
    even = scaled(b, b(Add(), z, mirrored), 0.5)
    turns = roots(n, np.arange(half + 1), inverse) * -0.5j
    first = b(Add(), even, times(b, b(Sub(), z, mirrored), turns))
    if half == 1:
        return first
    inner = b(Slice((0, half - 1, 0), (rows, half - 1, 2), (1, -1, 1)), first)
    rest = b(Mul(), inner, b(Broadcast(inner.type.shape), b.constant(signs)))
    return b(Concat(1), first, rest)


def transform(b: Graph, x: Value, n: int, inverse: bool) -> Value:
    """Return the spectrum of x[R, n, 2], not scaled."""
    factors = [d for d in range(2, min(DENSE, n // 2) + 1) if n % d == 0]
    if n <= (SHORT if factors else DENSE):
        return dense(b, x, n, n, inverse)
    if not factors:
        return convolved(b, x, n, inverse)
    first = min(factors, key=lambda d: d + n // d)
    return split(b, x, first, n // first, inverse)


def split(b: Graph, x: Value, n: int, m: int, inverse: bool) -> Value:
    """Return the spectrum of x[R, n·m, 2] by transforms of length n and of length m."""
    rows = x.type.shape[0]
    table = b(Transpose((0, 2, 1, 3)), b(Reshape((rows, n, m, 2)), x))
    short = transform(b, b(Reshape((rows * m, n, 2)), table), n, inverse)
    turns = roots(n * m, np.outer(np.arange(m), np.arange(n)), inverse)
    turned = times(b, b(Reshape((rows, m, n, 2)), short), turns)
    columns = b(Reshape((rows * n, m, 2)), b(Transpose((0, 2, 1, 3)), turned))
    y = b(Reshape((rows, n, m, 2)), transform(b, columns, m, inverse))
    return b(Reshape((rows, n * m, 2)), b(Transpose((0, 2, 1, 3)), y))


def times(b: Graph, x: Value, numbers: Array) -> Value:
    """Return complex x[R, …, 2] times complex constants."""
    t = x.type
    real = np.repeat(numbers.real[..., None], 2, axis=-1).astype(t.numpy)
    cross = np.stack([-numbers.imag, numbers.imag], axis=-1).astype(t.numpy)
    starts = (0,) * (t.rank - 1)
    swapped = b(Slice((*starts, 1), t.shape, (*[1] * (t.rank - 1), -1)), x)
    along, across = (b(Broadcast(t.shape), b.constant(a)) for a in (real, cross))
    return b(Add(), b(Mul(), x, along), b(Mul(), swapped, across))


def convolved(b: Graph, x: Value, n: int, inverse: bool) -> Value:
    """Return the spectrum of x[R, n, 2] as a convolution with a chirp."""
    length = 1 << (2 * n - 2).bit_length()
    squares = np.array([j * j % (2 * n) for j in range(n)])
    chirp = roots(2 * n, squares, inverse)
    kernel = np.zeros(length, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[length - n + 1 :] = chirp[:0:-1].conj()
    front = transform(b, sized(b, times(b, x, chirp), length), length, False)
    both = times(b, front, np.fft.fft(kernel) / length)
    back = sized(b, transform(b, both, length, True), n)
    return times(b, back, chirp)


class Frames(Primitive):
    """Pieces of `length` elements of `axis`, `step` apart, on a new axis before it."""

    axis: int
    length: Dim
    step: int

    def infer(self, x: TensorType) -> TensorType:
        check_rank(self, "x", x, 1)
        axis = normal_axis(self, self.axis, x.rank)
        rest = x.shape[axis] - self.length
        if self.step < 1 or (known(self.length) and self.length < 1):
            raise TypeRuleError(
                f"frames: length is {self.length} and step {self.step}, expected 1 or more"
            )
        if known(rest) and rest < 0:
            raise TypeRuleError(
                f"frames: length is {self.length}, expected at most {x.shape[axis]} on axis {axis}"
            )
        count = rest // self.step + 1
        return x.with_shape((*x.shape[:axis], count, self.length, *x.shape[axis + 1 :]))

    def reference(self, x: Array) -> Array:
        axis, length = self.axis % x.ndim, int(self.length)
        starts = np.arange(0, x.shape[axis] - length + 1, self.step)
        return np.asarray(np.take(x, starts[:, None] + np.arange(length), axis=axis))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Add frames up where they lie, in blocks of a step.

        Block m of frame f lies on block f + m of x; `OverlapAdd` looks at blocks, not at elements.
        """
        if not known(self.length):
            raise UnsupportedError(
                "gradient: frames of a dynamic length is not supported", hint=FIX_DIMENSIONS
            )
        axis, rank, step = self.axis % x.type.rank, x.type.rank, self.step
        blocks = ceil_div(self.length, step)
        after = (*[0] * (axis + 1), blocks * step - self.length, *[0] * (rank - axis - 1))
        full = b(Pad((0,) * (rank + 1), after), dy)
        outer, inner = x.type.shape[:axis], x.type.shape[axis + 1 :]
        count = dy.type.shape[axis]
        split = b(Reshape((product(outer), count, blocks, step, product(inner))), full)
        moved = b(Transpose((0, 3, 4, 2, 1)), split)
        rows = b(Reshape((product(outer), step * product(inner), blocks, count)), moved)
        total = b(OverlapAdd((count + blocks - 1,), (1,), (0, 0), (1,)), rows)
        covered = (count + blocks - 1) * step
        apart = b(Reshape((product(outer), step, product(inner), count + blocks - 1)), total)
        line = b(Reshape((*outer, covered, *inner)), b(Transpose((0, 3, 1, 2)), apart))
        # Less than a step of x lies behind the last frame, or blocks reach as far beyond x.
        more = tuple(step if i == axis else 0 for i in range(rank))
        whole = b(Pad((0,) * rank, more), line)
        return b(Slice((0,) * rank, x.type.shape, (1,) * rank), whole)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1, 4, 3), "f32[2,17]"
        yield cls(0, 5, 1), "f32[5,3]"
        yield cls(-2, 20, 7), "f32[2,50,2]"
        yield cls(1, 4, 3), "f32[0,17]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0, 3, 2), f"{dtype}[8]"


def transformed(g: Graph, pairs: Value, axes: Sequence[int], inverse: bool) -> Value:
    """Return the Fourier transform of pairs along axes."""
    for axis in axes:
        pairs = g(Dft(axis, pairs.type.shape[axis], inverse), pairs)
    return pairs


class Stft(Composite):
    """Spectra of the frames of a signal[B, L, 1 or 2], times a window[length]: [B, frames, …, 2].

    Frames begin `step` apart; with `onesided` only the first half of each spectrum is made.  ONNX
    STFT.
    """

    length: Dim
    step: int
    onesided: bool = True

    def infer(self, x: TensorType, window: TensorType | None = None) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 3, 3)
        if window is not None and window != x.with_shape((self.length,)):
            raise TypeRuleError(f"stft: the window is {window}, expected {x.dtype}[{self.length}]")
        frames = Frames(1, self.length, self.step).infer(x)
        return Dft(2, self.length, onesided=self.onesided).infer(frames)

    def lower(self, b: Graph, x: Value, window: Value | None = None) -> Value:
        frames = b(Frames(1, self.length, self.step), in_floats(b, x))
        if window is not None:
            column = b(Reshape((self.length, 1)), in_floats(b, window))
            frames = b(Mul(), frames, b(Broadcast(frames.type.shape), column))
        y = b(Dft(2, self.length, onesided=self.onesided), frames)
        return as_type(b, y, x.type.dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(8, 3), "f32[2,30,1]", "f32[8]"
        yield cls(7, 7, False), "f32[2,30,2]", "f32[7]"
        yield cls(16, 4), "f32[1,64,1]", None
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(8, 3), f"{dtype}[1,20,1]", f"{dtype}[8]"


class CosineWindow(Composite):
    """`size` elements c0 - c1 cos(t) + c2 cos(2t) - …, t from 0 to 2π.  ONNX HannWindow and kin.

    A `periodic` window leaves out the last element, which is the first of its next period.
    """

    size: Dim
    coefficients: tuple[float, ...]
    periodic: bool = True
    dtype: str = "f32"

    def infer(self) -> TensorType:
        check_choice(self, NUMBERS, dtype=self.dtype)
        if not self.coefficients:
            raise TypeRuleError("cosine_window: coefficients is empty, expected at least one")
        check_natural(self, size=self.size)
        return TensorType(self.dtype, (self.size,))

    def lower(self, b: Graph) -> Value:
        size = int(self.size)
        steps = max(size if self.periodic else size - 1, 1)
        t = np.arange(size) * (2 * math.pi / steps)
        y = sum((c * (-1) ** i * np.cos(i * t) for i, c in enumerate(self.coefficients)), 0 * t)
        return b.constant(np.asarray(y).astype(TensorType(self.dtype, ()).numpy))

    @classmethod
    def examples(cls) -> Examples:
        for size in (0, 1, 7, 16):
            yield (cls(size, (0.5, 0.5)),)
            yield (cls(size, (0.42, 0.5, 0.08), False),)
        for dtype in sorted(NUMBERS - {"f32"}):
            yield (cls(10, (0.5, 0.5), dtype=dtype),)


def mel_weights(bins: int, length: int, rate: int, lowest: float, highest: float) -> Array:
    """Return triangles that add a spectrum up to mel bands: [length // 2 + 1, bins].

    The corners are equally spaced on the mel scale and lie on elements of the spectrum.
    """
    low, high = (2595 * math.log10(1 + f / 700) for f in (lowest, highest))
    mels = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    corners = ((length + 1) * (700 * (10 ** (mels / 2595) - 1)) // rate).astype(np.int64)
    left, centre, right = (corners[i : i + bins] for i in range(3))
    at = np.arange(length // 2 + 1)[:, None]
    with np.errstate(all="ignore"):
        up, down = (at - left) / (centre - left), (right - at) / (right - centre)
    rising = (left <= at) & (at <= centre)
    falling = (centre <= at) & (at < right)
    alone = (left == centre) & (at == centre)
    y = np.where(rising & (left < centre), up, np.where(alone, 1.0, 0.0))
    return np.asarray(np.where(falling, down, y))

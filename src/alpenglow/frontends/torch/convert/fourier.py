"""Converters for discrete Fourier transforms, and for complex numbers as pairs of reals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpenglow.frontends.torch.table import Made, Site, axis_of, dynamic, on
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Value
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.complex import Conjugate, ViewAsComplex, ViewAsReal
from alpenglow.ops.sequence.signal import Dft, transformed

NONE, BY_ROOT = 0, 1
"""How PyTorch says that a result is not divided, or by the root of the number of elements."""


@on("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(s: Site, x: Value) -> Made:
    return s.g(ViewAsReal(), x)


@on("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(s: Site, x: Value) -> Made:
    return s.g(ViewAsComplex(), x)


@on("aten._conj.default", "aten._conj_copy.default", "aten._conj_physical.default",
    "prims.conj.default", "prims.conj_physical.default")  # fmt: skip
def conjugate(s: Site, x: Value) -> Made:
    return s.g(Conjugate(), x) if x.type.dtype in COMPLEX else x


@on("aten._fft_r2c.default")
def of_reals(s: Site, x: Value, dim: Sequence[int], normalization: int, onesided: bool) -> Made:
    *others, last = axes(dim, x.type.rank)
    lengths = [x.type.shape[axis] for axis in (*others, last)]
    y = s.g(Dft(last, lengths[-1], onesided=onesided), s.reshaped(x, (*x.type.shape, 1)))
    y = transformed(s.g, y, others, False)
    return s.g(ViewAsComplex(), scaled(s, y, lengths, normalization, False))


@on("aten._fft_c2c.default")
def of_complex(s: Site, x: Value, dim: Sequence[int], normalization: int, forward: bool) -> Made:
    listed = axes(dim, x.type.rank)
    lengths = [x.type.shape[axis] for axis in listed]
    y = transformed(s.g, s.g(ViewAsReal(), x), listed, not forward)
    return s.g(ViewAsComplex(), scaled(s, y, lengths, normalization, not forward))


@on("aten._fft_c2r.default")
def to_reals(s: Site, x: Value, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> Made:
    *others, last = axes(dim, x.type.rank)
    lengths = [*(x.type.shape[axis] for axis in others), last_dim_size]
    y = transformed(s.g, s.g(ViewAsReal(), x), others, True)
    y = s.g(Dft(last, last_dim_size, True, True), y)
    return s.reshaped(scaled(s, y, lengths, normalization, True), s.result.shape)


def axes(dim: Sequence[int], rank: int) -> list[int]:
    return [axis_of(d, rank) for d in dim]


def scaled(
    s: Site, x: Value, lengths: Sequence[Dim], normalization: int, divided: bool
) -> Value:  # fmt: skip
    """Return a transform by its normalization; `divided` says if it is by the lengths already."""
    if normalization == (NONE if not divided else BY_ROOT + 1):
        return x
    if not all(map(known, lengths)):
        raise dynamic(f"normalization {normalization}")
    count = math.prod(int(n) for n in lengths)
    wanted = 1.0 if normalization == NONE else count ** (-0.5 if normalization == BY_ROOT else -1.0)
    return s.g(Mul(), x, s.filled(wanted * (count if divided else 1), x.type))

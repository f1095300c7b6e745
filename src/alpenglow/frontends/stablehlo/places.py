"""Computed indices, and the row-major positions in a tensor that they address."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import INTS
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Minimum, Mul
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Slice, Transpose, stretch


def as_index(s: Site, v: Value) -> Value:
    """Return integers as i64; what that does not hold becomes its largest element."""
    if v.type.dtype not in INTS:
        raise s.wrong(f"indices are {v.type}, expected integers")
    if v.type.dtype == "u64":
        v = s.g(Minimum(), v, s.filled((1 << 63) - 1, v))
    return s.cast(v, "i64")


def clamped(s: Site, v: Value, most: Dim) -> Value:
    """Return indices limited to the range from 0 to the largest one allowed."""
    least = s.filled(0, v)
    limit = s.filled(max(fixed(most), 0), v)
    return s.g(Minimum(), s.g(Maximum(), v, least), limit)


def known_number(s: Site, i: int) -> int | None:
    """Return operand i, which has one element, if that is known."""
    v = s.input(i)
    elements = v.array if v.array is not None else s.importer.contents(v)
    if elements is None or elements.size != 1:
        return None
    element = elements.reshape(-1)[0]
    return int(element) if known(element) else None


def index_vectors(s: Site, indices: Value, axis: int) -> Value:
    """Return indices as i64 with the numbers of one index along the last axis."""
    rank = indices.type.rank
    if not 0 <= axis <= rank:
        raise s.wrong(f"index_vector_dim is {axis}, expected 0 to {rank} for {indices.type}")
    indices = as_index(s, indices)
    if axis == rank:
        return s.reshaped(indices, (*indices.type.shape, 1))
    return s.g(Transpose((*(i for i in range(rank) if i != axis), axis)), indices)


def column(s: Site, vectors: Value, i: int) -> Value:
    """Return number i of each index."""
    *outer, _ = vectors.type.shape
    starts = (*[0] * len(outer), i)
    one = s.g(Slice(starts, (*outer, 1), (1,) * vectors.type.rank), vectors)
    return s.reshaped(one, tuple(outer))


def counted(s: Site, extent: Dim, axis: int, shape: Sequence[Dim]) -> Value:
    """Return the index along an axis of each element of a tensor in which nothing else matters."""
    narrow = tuple(extent if i == axis else 1 for i in range(len(shape)))
    return stretch(s.g, s.g(Iota(narrow, axis)), tuple(shape))


def strides_of(s: Site, shape: Sequence[Dim]) -> list[int]:
    """Return how far apart neighbours along each axis lie in row-major order."""
    return [fixed(product(shape[i + 1 :])) for i in range(len(shape))]


def linear(s: Site, parts: Sequence[Value], strides: Sequence[int]) -> Value:
    """Return row-major places from indices along each axis, all of one shape."""
    total: Value | None = None
    for index, stride in zip(parts, strides, strict=True):
        term = index if stride == 1 else s.g(Mul(), index, s.filled(stride, index))
        total = term if total is None else s.g(Add(), total, term)
    assert total is not None, "there is an axis"
    return total

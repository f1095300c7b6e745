"""The blocked layout (NCHWc), and the operators that convert a tensor to it and back.

A blocked tensor keeps the elements of axis 1 in groups of a fixed number of lanes, which form
the last axis: ``f32[1,50/16,56,56,16]`` holds 50 channels in 4 groups of 16.  The lanes past
the logical extent hold *unspecified* values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.base.errors import ParseError, TypeRuleError
from alpenglow.ir import dims
from alpenglow.ir.dims import Dim, Sym, ceil_div, known
from alpenglow.ir.layout import Layout, Shape
from alpenglow.ir.op import Examples, Primitive, check_positive, check_rank
from alpenglow.ir.rows import SAME, Rows
from alpenglow.ir.types import ALL, Array, TensorType


@dataclass(frozen=True)
class Blocked(Layout):
    """Axis 1 is `channels` long, in groups of as many lanes as the last axis has."""

    channels: Dim

    def __post_init__(self) -> None:
        is_number = type(self.channels) is int and self.channels >= 0
        if not is_number and not isinstance(self.channels, Sym):
            raise TypeRuleError(f"blocked is {self.channels!r}, expected a number of channels")

    def __str__(self) -> str:
        return f"blocked={self.channels}"

    @classmethod
    def parse(cls, extents: Sequence[str]) -> tuple[Layout, Shape] | None:
        block = re.fullmatch(r"(.*[^/])/([^/].*)", extents[1]) if len(extents) > 2 else None
        if block is None:
            return None
        channels, lanes = dims.parse(block[1]), dims.parse(block[2])
        if lanes != dims.parse(extents[-1]) or (isinstance(lanes, int) and lanes < 1):
            raise ParseError(
                f"'[{','.join(extents)}]' has blocks of {lanes}, expected its last dimension"
            )
        n, _, *rest = extents
        return cls(channels), (dims.parse(n), ceil_div(channels, lanes), *map(dims.parse, rest))

    def extents(self, shape: Shape) -> list[str]:
        n, _, *rest = map(str, shape)
        return [n, f"{self.channels}/{rest[-1]}", *rest]

    def check(self, shape: Shape) -> None:
        fits = len(shape) > 2 and not (known(shape[-1]) and shape[-1] < 1)
        if not fits or shape[1] != ceil_div(self.channels, shape[-1]):
            raise TypeRuleError(
                f"shape is {shape}, expected [N, blocks, …, lanes] for {self.channels} channels"
            )

    def held(self, rank: int) -> tuple[int, ...]:
        return 1, rank - 1

    def logical(self, shape: Shape) -> Shape:
        return (shape[0], self.channels, *shape[2:-1])

    def specified(self, array: NDArray[Any]) -> NDArray[Any]:
        return Unpack(self.channels).reference(array)

    def bind(self, values: Mapping[str, Dim]) -> Layout:
        return Blocked(dims.bind(self.channels, values))

    def joined(self, other: Layout, shape: Shape, axis: int) -> Layout:
        if axis != 1 or not isinstance(other, Blocked):
            return super().joined(other, shape, axis)
        if self.channels != ceil_div(self.channels, shape[-1]) * shape[-1]:
            raise TypeRuleError(
                f"cannot join after {self.channels} channels, expected a multiple of {shape[-1]}"
            )
        return Blocked(self.channels + other.channels)


def channels(t: TensorType) -> int:
    """Return the logical extent of axis 1, which is a number."""
    extent = t.logical[1]
    assert isinstance(extent, int), f"{t} has open extents"
    return extent


def logical_size(t: TensorType) -> int:
    """Return the number of elements of a static blocked type, padding lanes left out."""
    return t.extents[0] * channels(t) * math.prod(t.extents[2:-1])


class Pack(Primitive):
    """x[N, C, …] with the channels in groups of `lanes`, innermost: [N, C/lanes, …, lanes]."""

    sample_axes = 0, 0

    lanes: int

    def infer(self, x: TensorType) -> TensorType:
        check_rank(self, "x", x, 2)
        check_positive(self, lanes=self.lanes)
        shape = (x.shape[0], ceil_div(x.shape[1], self.lanes), *x.shape[2:], self.lanes)
        return TensorType(x.dtype, shape, Blocked(x.shape[1]))

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        return SAME

    def reference(self, x: Array) -> Array:
        n, c, *rest = x.shape
        groups = -(-c // self.lanes)
        full = np.zeros((n, groups * self.lanes, *rest), x.dtype)
        full[:, :c] = x
        return np.moveaxis(full.reshape(n, groups, self.lanes, *rest), 2, -1)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(16), "f32[2,20,3,5]"
        yield cls(8), "f32[1,16,7]"
        yield cls(16), "f32[0,20,3]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(4), f"{dtype}[2,6,3]"


class Unpack(Primitive):
    """The logical `channels` of a blocked x: [N, C/lanes, …, lanes] as [N, C, …]."""

    sample_axes = 0, 0
    layouts = "first"

    channels: Dim

    def infer(self, x: TensorType) -> TensorType:
        if x.layout != Blocked(self.channels):
            raise TypeRuleError(f"unpack: x is {x}, expected {self.channels} channels in blocks")
        return x.with_shape((x.shape[0], self.channels, *x.shape[2:-1]))

    def rows_of(self, ins: Sequence[TensorType | None]) -> Rows | None:
        return SAME

    def reference(self, x: Array) -> Array:
        assert known(self.channels)
        n, groups, *rest, lanes = x.shape
        return np.moveaxis(x, -1, 2).reshape(n, groups * lanes, *rest)[:, : self.channels]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(20), "f32[2,20/16,3,5,16]"
        yield cls(16), "f32[1,16/8,7,8]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(6), f"{dtype}[2,6/4,3,4]"

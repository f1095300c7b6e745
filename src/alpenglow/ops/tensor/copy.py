"""Operators that only fill memory, or leave it as it is."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from alpenglow.ir.dims import Dim
from alpenglow.ir.op import Elementwise, Examples, Primitive
from alpenglow.ir.types import DTYPES, EVERY, Array, TensorType


class Copy(Elementwise):
    """x, in memory of its own."""

    dtypes = EVERY

    def scalar(self, m: Any, x: Any) -> Any:
        return x


class Filled(Primitive, kind=True):
    """A primitive without operands whose result has the given type."""

    dtype: str
    shape: tuple[Dim, ...]

    def infer(self) -> TensorType:
        return TensorType(self.dtype, self.shape)


class Fill(Filled):
    """A tensor of the given type with `value` everywhere."""

    moves = True

    value: float = 0.0

    def reference(self) -> Array:
        return np.full(
            cast("tuple[int, ...]", self.shape), np.asarray(self.value).astype(DTYPES[self.dtype])
        )

    @classmethod
    def examples(cls) -> Examples:
        yield (cls("f32", (2, 3), 1.5),)
        yield (cls("i64", (0, 3)),)
        yield (cls("bf16", ()),)
        yield (cls("f8e4m3fn", (5,), 1.5),)
        yield (cls("i4", (5,), -3),)


class Empty(Filled):
    """A tensor of the given type that holds anything: each element is written before it is read.

    `number` tells those apart that are alive together.  NumPy empty.
    """

    number: int = 0

    def reference(self) -> Array:
        return np.zeros(cast("tuple[int, ...]", self.shape), DTYPES[self.dtype])

    @classmethod
    def examples(cls) -> Examples:
        yield (cls("f32", (2, 0), 1),)
        yield (cls("i64", (0,)),)

"""Comparisons and tests, element by element: the results are bool (ONNX Equal, Less, IsNaN, …)."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.ir.op import Elementwise, Examples, of_one_type
from alpenglow.ir.types import ALL, DTYPES, FLOATS, NUMBERS


class Equal(Elementwise):
    """Whether x = y; NaN equals nothing.  ONNX Equal."""

    dtypes = ALL
    result = "bool"

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.eq(x, y)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), ALL)
        yield cls(), np.array([1, 2, np.nan], np.float32), np.array([1, 3, np.nan], np.float32)


class Less(Elementwise):
    """Whether x < y; not so where either is NaN.  ONNX Less."""

    dtypes = NUMBERS
    result = "bool"

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.lt(x, y)


class LessOrEqual(Elementwise):
    """Whether x <= y; not so where either is NaN.  ONNX LessOrEqual."""

    dtypes = NUMBERS
    result = "bool"

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.le(x, y)


class Greater(Elementwise):
    """Whether x > y; not so where either is NaN.  ONNX Greater."""

    dtypes = NUMBERS
    result = "bool"

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.gt(x, y)


class GreaterOrEqual(Elementwise):
    """Whether x >= y; not so where either is NaN.  ONNX GreaterOrEqual."""

    dtypes = NUMBERS
    result = "bool"

    def scalar(self, m: Any, x: Any, y: Any) -> Any:
        return m.ge(x, y)


class IsNaN(Elementwise):
    """Whether x is NaN.  ONNX IsNaN."""

    dtypes = FLOATS
    result = "bool"

    def scalar(self, m: Any, x: Any) -> Any:
        return m.isnan(x)

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        for dtype in sorted(FLOATS):
            yield cls(), np.array([np.nan, 1, np.inf, -np.nan]).astype(DTYPES[dtype])


class IsInf(Elementwise):
    """Whether x is infinite, counting only the asked-for signs.  ONNX IsInf."""

    negative: bool = True
    positive: bool = True
    dtypes = FLOATS
    result = "bool"

    def scalar(self, m: Any, x: Any) -> Any:
        if self.negative and self.positive:
            return m.isinf(x)
        if self.negative or self.positive:
            return m.eq(x, float("inf") if self.positive else float("-inf"))
        return m.lt(x, x)  # never so

    @classmethod
    def examples(cls) -> Examples:
        yield from of_one_type(cls(), FLOATS)
        edges = np.array([np.inf, 1, -np.inf, np.nan])
        for dtype in sorted(FLOATS):
            yield cls(), edges.astype(DTYPES[dtype])
        for negative, positive in ((True, False), (False, True), (False, False)):
            yield cls(negative, positive), edges.astype(np.float32)

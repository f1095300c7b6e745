"""Functions that are computed in turns, as many as each element takes: polynomials, divisors.

Such an operator gives scalar formulas in the vocabulary: what the state is at first, whether a
turn is taken, what a turn makes of the state, and the result.  Floats are computed in f64, integers
in their own type.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype
from alpenglow.ir.types import DTYPES, FLOATS, INTS, NAMES, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.series import dtype_of

State = tuple[Any, ...]


class Iterated(Primitive, ABC, kind=True):
    """A primitive given by formulas that are repeated, element by element.

    A number of Python's in the first state stands for an f64.
    """

    @abstractmethod
    def first(self, m: Any, *xs: Any) -> State:
        """Return the state before the first turn."""

    @abstractmethod
    def goes_on(self, m: Any, state: State) -> Any:
        """Whether a turn is taken."""

    @abstractmethod
    def turn(self, m: Any, state: State) -> State:
        """Return the state after an iteration."""

    @abstractmethod
    def last(self, m: Any, state: State) -> Any:
        """Return the result, of floats as f64."""

    def reference(self, *xs: Array) -> Array:
        with np.errstate(all="ignore"):
            state = tuple(np.broadcast_to(np.asarray(v), xs[0].shape)
                          for v in self.first(NUMPY, *xs))  # fmt: skip
            while np.any(going := self.goes_on(NUMPY, state)):
                after = self.turn(NUMPY, state)
                state = tuple(np.where(going, b, a) for a, b in zip(state, after, strict=True))
            narrow = DTYPES[narrowed(NAMES[xs[0].dtype])]
            return np.asarray(self.last(NUMPY, state)).astype(narrow).astype(xs[0].dtype)


def narrowed(dtype: str) -> str:
    """Return the type that a result is rounded to before it is cast to the operands' type."""
    return dtype if dtype in INTS or dtype == "f64" else "f32"


class Gcd(Iterated):
    """The greatest common divisor of the sizes of integers, by Euclid's remainders; 0 of 0 and 0.

    The least integer has no size, and is taken for it.
    """

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        check_dtype(self, "x", x, INTS)
        if x != y:
            raise TypeRuleError(f"gcd: operands are {x} and {y}, expected equal types")
        return x

    def first(self, m: Any, *xs: Any) -> State:
        return tuple(m.abs(x) for x in xs)

    def goes_on(self, m: Any, state: State) -> Any:
        return m.ne(state[0], 0)

    def turn(self, m: Any, state: State) -> State:
        x, y = state
        return m.fmod(y, x), x

    def last(self, m: Any, state: State) -> Any:
        return state[1]

    @classmethod
    def examples(cls) -> Examples:
        x = np.array([0, 0, 12, -12, 7, 89, 100, 1], np.int8)
        for dtype in sorted(INTS):
            yield cls(), x.astype(DTYPES[dtype]), np.array([0, 5, 18, 8, 0, 55, 75, 3]).astype(
                DTYPES[dtype])  # fmt: skip
        far = np.array([-(2**63), 2**62, 7540113804746346429])
        yield cls(), far, np.array([6, -6, 4660046610375530309])
        yield cls(), "i64[0]", "i64[0]"
        yield cls(), np.array(4), np.array(6)


class Orthogonal(Iterated):
    """The polynomial of degree n of a family, at x; 0 where n is negative.

    The families are those of Chebyshev of the four kinds, t u v w, also `shifted` (of 2x - 1),
    those of Hermite, h and he, of Laguerre, l, and of Legendre, p.  Each is computed from the two
    before it.  That of Hermite is NaN beyond degree 512, of f32 and less beyond 128.

    With `order` it is the derivative by x of this order, by the recurrence differentiated.
    """

    family: str
    shifted: bool = False
    order: int = 0
    families: ClassVar[tuple[str, ...]] = ("t", "u", "v", "w", "h", "he", "l", "p")

    def infer(self, x: TensorType, n: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        if self.family not in self.families or (self.shifted and self.family not in "tuvw"):
            raise TypeRuleError(
                f"orthogonal: family is '{self.family}' and shifted {self.shifted}, expected one "
                f"of {', '.join(self.families)}; shifted: t, u, v, w"
            )
        if self.order < 0:
            raise TypeRuleError(f"orthogonal: order is {self.order}, expected 0 or more")
        if n != x.with_dtype("i64"):
            raise TypeRuleError(f"orthogonal: n is {n}, expected {x.with_dtype('i64')}")
        return x

    def first(self, m: Any, *xs: Any) -> State:
        x, n = m.cast(xs[0], "f64"), m.cast(xs[1], "f64")
        x = m.sub(m.add(x, x), 1.0) if self.shifted else x
        twice = m.add(x, x)
        one, slope = {
            "t": (x, 1.0), "u": (twice, 2.0), "v": (m.sub(twice, 1.0), 2.0),
            "w": (m.add(twice, 1.0), 2.0), "h": (twice, 2.0), "he": (x, 1.0),
            "l": (m.sub(1.0, x), -1.0), "p": (x, 1.0),
        }[self.family]  # fmt: skip
        if self.family in ("h", "he"):
            most = 512.0 if dtype_of(xs[0]) == "f64" else 128.0
            n = m.where(m.gt(n, most), math.nan, n)
        higher = [0.0] * self.order
        return x, n, 0.0, 1.0, *higher, *[one, slope, *higher][: self.order + 1]

    def goes_on(self, m: Any, state: State) -> Any:
        _, n, k, *_ = state
        return m.lt(k, n)

    def turn(self, m: Any, state: State) -> State:
        """Return the state with two neighbours, and their derivatives, of the next degree."""
        x, n, before, *both = state
        k, count = m.add(before, 1.0), self.order + 1
        ps, qs = both[:count], both[count:]
        following = [self._after(m, x, k, p, q) for p, q in zip(ps, qs, strict=True)]
        for i in range(1, count):
            lower = m.mul(m.mul(qs[i - 1], self._slope(m, k)), float(i))
            following[i] = m.add(following[i], lower)
        return x, n, k, *qs, *following

    def _after(self, m: Any, x: Any, k: Any, p: Any, q: Any) -> Any:
        """Return the polynomial after p and q, which have degrees k - 1 and k."""
        line = m.mul(m.add(x, x), q)
        match self.family:
            case "h":
                return m.sub(line, m.mul(m.add(k, k), p))
            case "he":
                return m.sub(m.mul(x, q), m.mul(k, p))
            case "l":
                factor = m.sub(m.add(m.add(k, k), 1.0), x)
                return m.div(m.sub(m.mul(factor, q), m.mul(k, p)), m.add(k, 1.0))
            case "p":
                factor = m.mul(m.add(m.add(k, k), 1.0), x)
                return m.div(m.sub(m.mul(factor, q), m.mul(k, p)), m.add(k, 1.0))
        return m.sub(line, p)

    def _slope(self, m: Any, k: Any) -> Any:
        """Return what the factor of q in `_after` changes by with x."""
        match self.family:
            case "he":
                return 1.0
            case "l":
                return m.div(-1.0, m.add(k, 1.0))
            case "p":
                return m.div(m.add(m.add(k, k), 1.0), m.add(k, 1.0))
        return 2.0

    def last(self, m: Any, state: State) -> Any:
        _, n, _, *both = state
        y = both[self.order]
        if self.shifted and self.order:
            y = m.mul(y, 2.0**self.order)
        return m.where(m.lt(n, 0.0), 0.0, m.where(m.isnan(n), math.nan, y))

    def gradient(self, b: Graph, dy: Value, x: Value, n: Value) -> tuple[Value, None]:
        slope = b(Orthogonal(self.family, self.shifted, self.order + 1), x, n)
        return b(Mul(), dy, slope), None

    @classmethod
    def examples(cls) -> Examples:
        x = np.array([-1.5, -1, -0.25, 0, 0.5, 1, 2, np.nan], np.float32)
        for family in cls.families:
            yield cls(family), x, np.array([5, 6, 7, 8, 9, 1, 0, 3])
            yield cls(family, order=1), x, np.array([5, 6, 7, 8, 9, 1, 0, 3])
        for family in "tuvw":
            yield cls(family, True), x, np.array([2, 3, 12, -1, 4, 1, 0, 3])
            yield cls(family, True, 2), x, np.array([2, 3, 12, -1, 4, 1, 0, 3])
        yield cls("h"), np.array([0, 1, 2], np.float64), np.array([600, 3, 150])
        yield cls("he"), np.array([0, 1, 2], np.float32), np.array([600, 3, 150])
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls("p"), f"{dtype}[2,3]", np.array([[0, 1, 2], [3, 4, 5]])
        yield cls("t"), "f32[0]", "i64[0]"
        yield cls("t"), "f32[]", np.array(4)

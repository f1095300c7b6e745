"""Random numbers (ONNX RandomNormal, RandomUniform and what is made of them).

The generator is a function: element i of a result is Threefry-2x32 of i under a key, which is an
operand.  So there is no state, no order among elements, and any machine with any number of
threads draws the same numbers.  Two draws under one key are the same draw; what is to be
independent needs keys of its own.

Threefry: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.op import Examples, Op, Primitive, check_choice, check_dtype, check_rank
from alpenglow.ir.types import DTYPES, FLOATS, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY

KEY = TensorType("u32", (2,))
ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20

Words = tuple[Any, Any]
"""Two u32, as arrays or as kernel expressions."""


class RandomUniform(Primitive):
    """Numbers evenly spread from `low` to `high`, drawn under a key u32[2]."""

    shape: tuple[Dim, ...]
    low: float = 0.0
    high: float = 1.0
    dtype: str = "f32"
    pure = False

    def infer(self, key: TensorType) -> TensorType:
        return drawn_type(self, self.shape, self.dtype, key)

    def element(self, m: Any, key: Words, index: Words) -> Any:
        """Return the number at an index, which is given by its low and its high 32 bits."""
        share = unit(m, threefry(m, key, index), self.dtype)
        return m.add(m.mul(share, self.high - self.low), self.low)

    def reference(self, key: Array) -> Array:
        return drawn(self, self.shape, self.dtype, key)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 5)), np.array([1, 2], np.uint32)
        yield cls((257,), -3.0, 5.0), "u32[2]"
        yield cls(()), "u32[2]"
        yield cls((2, 0)), "u32[2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((2, 17), -1.0, 1.0, dtype), "u32[2]"


class RandomNormal(Primitive):
    """Normally distributed numbers of a `mean` and standard deviation `scale`, under a key u32[2].

    By Box and Muller: sqrt(-2 log u) cos(2 pi v) of two even numbers.
    """

    shape: tuple[Dim, ...]
    mean: float = 0.0
    scale: float = 1.0
    dtype: str = "f32"
    pure = False

    def infer(self, key: TensorType) -> TensorType:
        return drawn_type(self, self.shape, self.dtype, key)

    def element(self, m: Any, key: Words, index: Words) -> Any:
        """Return the number at an index, which is given by its low and its high 32 bits."""
        words = threefry(m, key, index)
        if self.dtype == "f64":
            # A second draw, at an index that no tensor reaches.
            other = threefry(m, key, (index[0], m.bit_or(index[1], 1 << 31)))
        else:
            words, other = (words[0], words[0]), (words[1], words[1])
        # From 1 down to where the logarithm is still a number.
        u = m.sub(1.0, unit(m, words, self.dtype))
        radius = m.sqrt(m.mul(m.log(u), -2.0))
        turn = m.cos(m.mul(unit(m, other, self.dtype), 2 * math.pi))
        return m.add(m.mul(m.mul(radius, turn), self.scale), self.mean)

    def reference(self, key: Array) -> Array:
        return drawn(self, self.shape, self.dtype, key)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 5)), np.array([1, 2], np.uint32)
        yield cls((257,), 3.0, 0.5), "u32[2]"
        yield cls(()), "u32[2]"
        yield cls((2, 0)), "u32[2]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((2, 17), 1.0, 2.0, dtype), "u32[2]"


class Choose(Primitive):
    """For each number u from 0 to 1 the class that it falls to: the first c of the row with
    totals[row, c] > u * totals[row, -1], or the last one.

    `totals` are [rows, classes], the running totals of weights, `u` is [rows, draws].
    """

    dtype: str = "i64"

    def infer(self, totals: TensorType, u: TensorType) -> TensorType:
        check_dtype(self, "totals", totals, FLOATS)
        check_rank(self, "totals", totals, 2, 2)
        if u.rank != 2 or (u.dtype, u.shape[0]) != (totals.dtype, totals.shape[0]):
            raise TypeRuleError(f"choose: u is {u}, expected a row for each row of {totals}")
        if totals.shape[1] == 0:
            raise TypeRuleError(f"choose: totals is {totals}, expected at least one class")
        check_choice(self, ("i32", "i64"), dtype=self.dtype)
        return u.with_dtype(self.dtype)

    def reference(self, totals: Array, u: Array) -> Array:
        wide = totals.astype(np.result_type(totals.dtype, np.float32))
        limit = u.astype(wide.dtype) * wide[:, -1:]
        # Halving finds a class even where totals do not rise.
        low, high = np.zeros(u.shape, np.int64), np.full(u.shape, totals.shape[1] - 1)
        rows = np.arange(len(u))[:, None]
        for _ in range(steps(totals.shape[1])):
            middle = (low + high) >> 1
            above = wide[rows, middle] > limit
            low, high = np.where(above, low, np.minimum(middle + 1, high)), np.where(
                above, middle, high)  # fmt: skip
        return low.astype(DTYPES[self.dtype])

    @classmethod
    def examples(cls) -> Examples:
        weights = np.random.default_rng(0).uniform(0, 1, (3, 17)).astype(np.float32)
        shares = np.linspace(0, 1, 60, dtype=np.float32).reshape(3, 20)
        yield cls(), weights.cumsum(1), shares
        yield cls("i32"), "f32[2,5]", "f32[2,7]"
        yield cls(), "f32[2,1]", "f32[2,3]"
        yield cls(), "f32[2,4]", "f32[2,0]"
        yield cls(), np.array([[0, 0, 2, 2]], np.float32), np.array([[0, 0.5, 1]], np.float32)
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls(), f"{dtype}[2,9]", f"{dtype}[2,3]"


def threefry(m: Any, key: Words, counter: Words) -> Words:
    """Return the two words that Threefry-2x32 of 20 rounds makes of a counter under a key."""
    keys = (*key, m.bit_xor(m.bit_xor(key[0], key[1]), PARITY))
    x, y = m.add(counter[0], keys[0]), m.add(counter[1], keys[1])
    for i in range(ROUNDS):
        distance = ROTATIONS[i % len(ROTATIONS)]
        x = m.add(x, y)
        y = m.bit_or(m.shift_left(y, distance), m.shift_right(y, 32 - distance))
        y = m.bit_xor(y, x)
        if i % 4 == 3:
            turn = i // 4 + 1
            x = m.add(x, keys[turn % 3])
            y = m.add(m.add(y, keys[(turn + 1) % 3]), turn)
    return x, y


def unit(m: Any, words: Words, dtype: str) -> Any:
    """Return a number from 0 to below 1, a multiple of 2^-24 (of 2^-53 if f64)."""
    if dtype != "f64":
        return m.mul(m.cast(m.cast(m.shift_right(words[0], 8), "i32"), "f32"), 2.0**-24)
    high = m.cast(m.cast(m.shift_right(words[0], 5), "i32"), "f64")
    low = m.cast(m.cast(m.shift_right(words[1], 6), "i32"), "f64")
    return m.mul(m.add(m.mul(high, 2.0**26), low), 2.0**-53)


def steps(classes: Dim) -> int:
    """Return how often a row of classes can be halved."""
    return (int(classes) - 1).bit_length()


def drawn(
    op: RandomUniform | RandomNormal, shape: tuple[Dim, ...], dtype: str, key: Array
) -> Array:
    """Return all elements of a random tensor."""
    size = product(shape)
    assert known(size), f"{op} is open"
    index = np.arange(size)
    words = (index.astype(np.uint32), (index >> 32).astype(np.uint32))
    with np.errstate(all="ignore"):
        elements = op.element(NUMPY, (key[:1], key[1:]), words)
    return np.asarray(elements.astype(DTYPES[dtype]).reshape(shape))


def drawn_type(op: Op, shape: tuple[Dim, ...], dtype: str, key: TensorType) -> TensorType:
    """Return the type of a random tensor; raise TypeRuleError if there is none."""
    if key != KEY:
        raise TypeRuleError(f"{op.name}: key is {key}, expected {KEY}")
    check_choice(op, FLOATS, dtype=dtype)
    return TensorType(dtype, shape)

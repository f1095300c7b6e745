"""Random numbers of a Mersenne Twister whose state is a value: those that PyTorch draws on a CPU.

The state is an operand, and its successor a result, so a graph draws the same numbers as often as
it is given the same state.  A state is u32[628]: 624 words, how many of them are drawn, and a
normal number that is left of a pair: 1 if there is one, and its bits as f64.

There is no kernel for these: the words come one after the other, and NumPy's generator makes them.
Matsumoto and Nishimura, "Mersenne Twister: a 623-dimensionally equidistributed uniform
pseudo-random number generator", 1998.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.op import Examples, Op, Primitive
from alpenglow.ir.types import DTYPES, Array, TensorType

WORDS = 624
STATE = TensorType("u32", (WORDS + 4,))
BLOCK = 16
"""So many normal numbers are made of as many uniform ones at once."""

WIDE_RANGE = 1 << 28
"""Integers of fewer values are made of one word each, others of two."""


@dataclass(slots=True)
class Twister:
    """A generator on its way: NumPy's, and a normal number left of a pair."""

    words: np.random.MT19937
    left: float | None

    @classmethod
    def of(cls, state: Array) -> Twister:
        """Return the generator of a state."""
        words = np.random.MT19937(0)
        position = min(int(state[WORDS]), WORDS)
        words.state = {"bit_generator": "MT19937",
                       "state": {"key": state[:WORDS].copy(), "pos": position}}  # fmt: skip
        left = float(state[WORDS + 2 :].copy().view(np.float64)[0]) if state[WORDS + 1] else None
        return cls(words, left)

    def state(self) -> Array:
        """Return the state that this has come to."""
        inner: Any = self.words.state["state"]
        left = np.array([self.left or 0.0]).view(np.uint32)
        rest = np.array([inner["pos"], self.left is not None], np.uint32)
        return np.concatenate([inner["key"].astype(np.uint32), rest, left])

    def raw(self, count: int) -> Array:
        """Return words of 32 bits, as u64."""
        return np.asarray(self.words.random_raw(count), np.uint64)

    def raw_pairs(self, count: int) -> Array:
        """Return u64 of two words each, the first the higher."""
        raw = self.raw(2 * count)
        return np.asarray((raw[::2] << np.uint64(32)) | raw[1::2])

    def uniform(self, count: int, dtype: Any) -> Array:
        """Return numbers from 0 up to 1: f32 of 24 bits, or f64 of 53."""
        if dtype == np.float64:
            return np.asarray((self.raw_pairs(count) & np.uint64((1 << 53) - 1)) * 2.0**-53)
        bits = self.raw(count) & np.uint64((1 << 24) - 1)
        return bits.astype(np.float32) * np.float32(2.0**-24)

    def normal(self, count: int, dtype: Any, redrawn: bool) -> Array:
        """Return normal numbers, made by Box and Muller in blocks; the last block may overlap."""
        whole = count // BLOCK * BLOCK
        flat = np.zeros(count, dtype)
        flat[:whole] = blocks(self.uniform(count if redrawn else whole, dtype)[:whole])
        if whole < count:
            flat[-BLOCK:] = blocks(self.uniform(BLOCK, dtype))
        return flat

    def normal_pairs(self, count: int) -> Array:
        """Return normal numbers as f64, made in pairs, of which one may be left."""
        out = [] if self.left is None or not count else [self.left]
        self.left = None if out else self.left
        u = self.uniform((count - len(out) + 1) // 2 * 2, np.float64)
        radius, angle = np.sqrt(-2 * np.log1p(-u[1::2])), 2 * np.pi * u[::2]
        pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1).reshape(-1)
        out += pairs.tolist()
        if len(out) > count:
            self.left = out.pop()
        return np.array(out)


def blocks(u: Array) -> Array:
    """Return as many normal numbers as uniform ones, in blocks of 16."""
    halves = u.reshape(-1, 2, BLOCK // 2)
    radius = np.sqrt(-2 * np.log(1 - halves[:, 0]))
    angle = u.dtype.type(2 * np.pi) * halves[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1).reshape(-1)


class MersenneUniform(Primitive):
    """Numbers from 0 up to 1, f32 or f64, and the next state."""

    shape: tuple[Dim, ...]
    dtype: str = "f32"

    def infer(self, state: TensorType) -> tuple[TensorType, TensorType]:
        return drawn(self, state, self.shape, self.dtype)

    def reference(self, state: Array) -> tuple[Array, Array]:
        twister, shape = Twister.of(state), numbers(self.shape)
        values = twister.uniform(int(np.prod(shape)), DTYPES[self.dtype])
        return values.reshape(shape), twister.state()

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 5)), seeded(0)
        yield cls((1000,), "f64"), seeded(1)
        yield cls(()), seeded(2)
        yield cls((2, 0)), seeded(3)


class MersenneUniformWhere(Primitive):
    """A number from 0 up to 1 for each element of `mask` that is true, in order, 0 for the others.

    f64, and the next state: as many words are drawn as there are numbers.
    """

    def infer(self, state: TensorType, mask: TensorType) -> tuple[TensorType, TensorType]:
        if mask.dtype != "bool":
            raise TypeRuleError(f"mersenne_uniform_where: mask is {mask}, expected bool")
        return drawn(self, state, mask.shape, "f64")

    def reference(self, state: Array, mask: Array) -> tuple[Array, Array]:
        twister, values = Twister.of(state), np.zeros(mask.shape)
        values[mask] = twister.uniform(int(mask.sum()), np.dtype(np.float64))
        return values, twister.state()

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), seeded(0), np.array([[True, False, True], [False, False, True]])
        yield cls(), seeded(1), np.zeros((2, 2), bool)
        yield cls(), seeded(2), np.array(True)


class MersenneNormal(Primitive):
    """Normal numbers of mean 0 and deviation 1, f32 or f64, and the next state.

    They are made in blocks of 16, or in `pairs` as f64.  Where the last block is not whole, it
    reaches back over others; if it is `redrawn`, words were drawn in vain for what is behind these.
    """

    shape: tuple[Dim, ...]
    dtype: str = "f32"
    pairs: bool = False
    redrawn: bool = True

    def infer(self, state: TensorType) -> tuple[TensorType, TensorType]:
        if self.pairs and self.dtype != "f64":
            raise TypeRuleError(f"mersenne_normal: dtype is {self.dtype}, expected f64 for pairs")
        count = product(self.shape)
        if not self.pairs and known(count) and 0 < count < BLOCK:
            raise TypeRuleError(
                f"mersenne_normal: {count} numbers, expected {BLOCK} or more without pairs"
            )
        return drawn(self, state, self.shape, self.dtype)

    def reference(self, state: Array) -> tuple[Array, Array]:
        twister, shape = Twister.of(state), numbers(self.shape)
        count = int(np.prod(shape))
        if self.pairs:
            values = twister.normal_pairs(count)
        else:
            values = twister.normal(count, DTYPES[self.dtype], self.redrawn)
        return values.reshape(shape), twister.state()

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 16)), seeded(0)
        yield cls((37,), "f64"), seeded(1)
        yield cls((37,), redrawn=False), seeded(1)
        yield cls((), "f64", True), seeded(2)
        yield cls((5,), "f64", True), Twister(np.random.MT19937(3), 0.5).state()
        yield cls((0,)), seeded(3)


class MersenneInteger(Primitive):
    """i64 from `low` up to `high`, which is left out, and the next state."""

    shape: tuple[Dim, ...]
    low: int
    high: int

    def infer(self, state: TensorType) -> tuple[TensorType, TensorType]:
        if not -(1 << 63) <= self.low < self.high <= (1 << 63) - 1:
            raise TypeRuleError(
                f"mersenne_integer: low is {self.low} and high {self.high}, expected low < high in "
                "i64"
            )
        return drawn(self, state, self.shape, "i64")

    def reference(self, state: Array) -> tuple[Array, Array]:
        twister, shape = Twister.of(state), numbers(self.shape)
        count, span = int(np.prod(shape)), self.high - self.low
        raw = twister.raw(count) if span < WIDE_RANGE else twister.raw_pairs(count)
        steps = raw % np.uint64(span)
        values = (steps + np.uint64(self.low % (1 << 64))).view(np.int64)
        return values.reshape(shape), twister.state()

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 5), 0, 10), seeded(0)
        yield cls((7,), -(1 << 40), 1 << 40), seeded(1)
        yield cls((), -(1 << 63), (1 << 63) - 1), seeded(2)


class MersennePermutation(Primitive):
    """The i64 from 0 up to `count` in random order, and the next state."""

    count: Dim

    def infer(self, state: TensorType) -> tuple[TensorType, TensorType]:
        return drawn(self, state, (self.count,), "i64")

    def reference(self, state: Array) -> tuple[Array, Array]:
        (count,) = numbers((self.count,))
        twister, out = Twister.of(state), np.arange(count)
        for i, word in enumerate(twister.raw(max(count - 1, 0)).tolist()):
            j = i + word % (count - i)
            out[i], out[j] = out[j], out[i]
        return out, twister.state()

    @classmethod
    def examples(cls) -> Examples:
        yield cls(7), seeded(0)
        yield cls(0), seeded(1)


def numbers(shape: tuple[Dim, ...]) -> tuple[int, ...]:
    """Return a shape that is known, as it is where something runs."""
    return tuple(d for d in shape if known(d))


def seeded(seed: int) -> Array:
    """Return a state, for examples."""
    return Twister(np.random.MT19937(seed), None).state()


def drawn(
    op: Op, state: TensorType, shape: tuple[Dim, ...], dtype: str
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Return the types of numbers and of a state; raise TypeRuleError if there are none such."""
    if state != STATE:
        raise TypeRuleError(f"{op.name}: the state is {state}, expected {STATE}")
    if dtype not in ("f32", "f64", "i64"):
        raise TypeRuleError(f"{op.name}: dtype is {dtype}, expected f32 or f64")
    if any(known(d) and d < 0 for d in shape):
        raise TypeRuleError(f"{op.name}: shape is {shape}, expected extents of 0 or more")
    return TensorType(dtype, shape), STATE

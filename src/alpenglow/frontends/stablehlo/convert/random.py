"""The converter of random bits, which are those that XLA draws from the same state.

Both generators are functions of a counter under a key (Salmon, Moraes, Dror and Shaw, "Parallel
random numbers: as easy as 1, 2, 3", 2011); what XLA adds is which element gets which number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from alpenglow.autodiff.formula import OPERATORS
from alpenglow.frontends.movement import part
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import INTS, width
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import BitCast, Where
from alpenglow.ops.random.random import threefry
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Concat

FACTORS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_ROUNDS = 10


@on("stablehlo.rng_bit_generator")
def rng_bit_generator(s: Site) -> Made:
    """The state is u64: the key, and the counter behind it.  The default is what XLA's CPU has."""
    (state,), dtype = s.required(1), s.dtype(1)
    if state.type.dtype != "u64" or state.type.shape not in ((2,), (3,)) or dtype not in INTS:
        raise s.refuse(
            f"initial_state is {state.type}, expected u64[2] or u64[3]; "
            f"the result is {dtype}, expected an integer dtype"
        )
    algorithm = s.choice("rng_algorithm", "DEFAULT", "PHILOX", "THREE_FRY")
    if algorithm == "THREE_FRY" and state.type.shape != (2,):
        raise s.refuse(f"initial_state of {algorithm} is {state.type}, expected u64[2]")
    draw = _threefry if algorithm == "THREE_FRY" else _philox
    bits = width(dtype)
    after, made = draw(s, state, [fixed(d) for d in s.extents(1)], max(bits, 32))
    made = s.cast(made, f"u{bits}")
    return after, made if made.type.dtype == dtype else s.g(BitCast(dtype), made)


class Words:
    """Arithmetic of unsigned words in a graph, with the names that `ops.random.random` uses."""

    def __init__(self, s: Site) -> None:
        self.s = s

    def __getattr__(self, name: str) -> Callable[[Value, Value | int], Value]:
        return partial(self._made, OPERATORS[name])

    def _made(self, op: Op, x: Value, y: Value | int) -> Value:
        other = y if isinstance(y, Value) else self.s.filled(y, x)
        return self.s.apply(op, x, other)

    def halves(self, x: Value) -> tuple[Value, Value]:
        """Return the low and the high words of u64."""
        return self.s.cast(x, "u32"), self.s.cast(self.shift_right(x, 32), "u32")

    def whole(self, low: Value, high: Value) -> Value:
        """Return u64 of low and high words."""
        return self.bit_or(self.s.cast(low, "u64"), self.shift_left(self.s.cast(high, "u64"), 32))


def _counted(s: Site, counter: Value, count: int) -> Value:
    """Return a counter of one element and those that follow it."""
    return s.apply(Add(), s.cast(s.g(Iota((count,), 0)), "u64"), counter)


def _threefry(s: Site, state: Value, shape: list[int], bits: int) -> tuple[Value, Value]:
    """Each counter makes two words: an element of 64 bits, or two that stand side by side along
    the first even axis, without one along the longest."""
    w = Words(s)
    key, counter = (part(s.g, state, 0, i, 1) for i in (0, 1))
    whole = shape or [1]
    even = (i for i, d in enumerate(whole) if d % 2 == 0)
    axis = next(even, whole.index(max(whole)))
    half = list(whole)
    if bits == 32:
        half[axis] = (whole[axis] + 1) // 2
    count = math.prod(half)
    low, high = threefry(w, w.halves(key), w.halves(_counted(s, counter, count)))
    after = s.g(Concat(0), key, w.add(counter, count))
    if bits == 64:
        return after, s.reshaped(w.whole(low, high), shape)
    apart = [*half[: axis + 1], 1, *half[axis + 1 :]]
    both = s.g(Concat(axis + 1), s.reshaped(low, apart), s.reshaped(high, apart))
    both = s.reshaped(both, [*half[:axis], 2 * half[axis], *half[axis + 1 :]])
    return after, s.reshaped(part(s.g, both, axis, 0, whole[axis]), shape)


def _philox(s: Site, state: Value, shape: list[int], bits: int) -> tuple[Value, Value]:
    """Each counter, of 128 bits, makes four words, which are elements one after the other.

    A state of two is the key, which is the upper half of the counter, too.
    """
    w = Words(s)
    key = part(s.g, state, 0, 0, 1)
    low, high = (1, 2) if state.type.shape == (3,) else (1, 0)
    low_half, high_half = (part(s.g, state, 0, i, 1) for i in (low, high))

    def further(by: Value) -> tuple[Value, Value]:
        moved = s.apply(Add(), by, low_half)
        over = s.apply(Less(), moved, low_half)
        return moved, s.apply(Where(), over, w.add(high_half, 1), high_half)

    size = math.prod(shape)
    count = -(-size * bits // 128)
    counters = further(s.cast(s.g(Iota((count,), 0)), "u64"))
    words = _philox_words(w, [*w.halves(counters[0]), *w.halves(counters[1])], w.halves(key))
    if bits == 64:
        words = [w.whole(*words[:2]), w.whole(*words[2:])]
    rows = s.g(Concat(1), *(s.reshaped(v, (count, 1)) for v in words))
    flat = s.reshaped(rows, (count * len(words),))
    ends = further(s.full(count, "u64", (1,)))
    after = s.g(Concat(0), key, *ends[: int(state.type.shape[0]) - 1])
    return after, s.reshaped(part(s.g, flat, 0, 0, size), shape)


def _philox_words(w: Words, counter: Sequence[Value], key: Sequence[Value]) -> list[Value]:
    """Return the four words that Philox-4x32 of ten rounds makes of counters under a key."""
    words, keys = list(counter), list(key)
    for _ in range(PHILOX_ROUNDS):
        (low0, high0), (low1, high1) = (
            w.halves(w.mul(w.s.cast(words[i], "u64"), factor))
            for i, factor in zip((0, 2), FACTORS, strict=True)
        )
        words = [w.bit_xor(w.bit_xor(high1, words[1]), keys[0]), low1,
                 w.bit_xor(w.bit_xor(high0, words[3]), keys[1]), low0]  # fmt: skip
        keys = [w.add(k, step) for k, step in zip(keys, KEY_STEPS, strict=True)]
    return words

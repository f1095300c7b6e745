"""LLVM IR for integer arithmetic, written with Python's operators.

What a bundle brings along where a machine has no instruction (software floats, long division) is
written as straight-line integer arithmetic on values of this kind: `a + b`, `a << n`, `x.where(y)`.
All are unsigned; signs are asked for by name.  A number stands for the constant of the other
operand's width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


class Function:
    """Collects the instructions of one function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.label = "entry"

    def emit(self, text: str) -> str:
        """Add an instruction; returns the name of its value."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {text}")
        return f"%v{self.count}"

    def word(self, value: int, bits: int) -> Word:
        """Return a constant."""
        return Word(self, str(value % (1 << bits)), bits)

    def repeat(
        self,
        count: Word | int,
        state: Sequence[Word],
        step: Callable[[list[Word]], Sequence[Word]],
    ) -> list[Word]:
        """Apply `step` to the state `count` times, at least once."""
        self.count += 1
        loop, done, before = f"loop{self.count}", f"done{self.count}", self.label
        self.lines += [f"  br label %{loop}", f"{loop}:"]
        slot, self.label = len(self.lines), loop
        names = [f"%s{self.count}.{i}" for i in range(len(state) + 1)]
        words = [Word(self, n, w.bits) for n, w in zip(names, state, strict=False)]
        number = Word(self, names[-1], 32)
        stepped = step(words)
        following = number + 1
        phis = [
            f"  {n} = phi i{w.bits} [{w.name}, %{before}], [{m.name}, %{loop}]"
            for n, w, m in zip(names, state, stepped, strict=False)
        ]
        phis.append(f"  {number.name} = phi i32 [0, %{before}], [{following.name}, %{loop}]")
        self.lines[slot:slot] = phis
        more = following < count
        self.lines += [f"  br i1 {more.name}, label %{loop}, label %{done}", f"{done}:"]
        self.label = done
        return list(stepped)


@dataclass(frozen=True, slots=True, eq=False)
class Word:
    """An integer of `bits` bits; of one bit, a condition."""

    of: Function
    name: str
    bits: int

    def _with(self, op: str, other: Word | int) -> Word:
        y = self.like(other)
        assert y.bits == self.bits, f"{op} of {self.bits} and {y.bits} bits"
        return Word(self.of, self.of.emit(f"{op} i{self.bits} {self.name}, {y.name}"), self.bits)

    def like(self, other: Word | int) -> Word:
        return self.of.word(other, self.bits) if isinstance(other, int) else other

    def __add__(self, other: Word | int) -> Word:
        return self._with("add", other)

    def __sub__(self, other: Word | int) -> Word:
        return self._with("sub", other)

    def __rsub__(self, other: int) -> Word:
        return self.like(other) - self

    def __mul__(self, other: Word | int) -> Word:
        return self._with("mul", other)

    def __and__(self, other: Word | int) -> Word:
        return self._with("and", other)

    def __or__(self, other: Word | int) -> Word:
        return self._with("or", other)

    def __xor__(self, other: Word | int) -> Word:
        return self._with("xor", other)

    def __lshift__(self, other: Word | int) -> Word:
        return self._with("shl", other)

    def __rshift__(self, other: Word | int) -> Word:
        return self._with("lshr", other)

    def __invert__(self) -> Word:
        return self ^ -1

    def _compare(self, op: str, other: Word | int) -> Word:
        y = self.like(other)
        return Word(self.of, self.of.emit(f"icmp {op} i{self.bits} {self.name}, {y.name}"), 1)

    def __lt__(self, other: Word | int) -> Word:
        return self._compare("ult", other)

    def __ge__(self, other: Word | int) -> Word:
        return self._compare("uge", other)

    def __gt__(self, other: Word | int) -> Word:
        return self._compare("ugt", other)

    def __le__(self, other: Word | int) -> Word:
        return self._compare("ule", other)

    def equals(self, other: Word | int) -> Word:
        return self._compare("eq", other)

    def less(self, other: Word | int) -> Word:
        """Compare signed."""
        return self._compare("slt", other)

    @property
    def negative(self) -> Word:
        return self.less(0)

    def where(self, x: Word | int, y: Word | int) -> Word:
        """Return x where this condition holds, else y."""
        a = x if isinstance(x, Word) else y.like(x) if isinstance(y, Word) else None
        assert a is not None, "one of two choices is no mere number"
        b = a.like(y)
        kind = f"i{a.bits}"
        text = f"select i1 {self.name}, {kind} {a.name}, {kind} {b.name}"
        return Word(self.of, self.of.emit(text), a.bits)

    def wide(self, bits: int) -> Word:
        """Return the number in another width, cut off or with zeros above."""
        if bits == self.bits:
            return self
        op = "zext" if bits > self.bits else "trunc"
        text = f"{op} i{self.bits} {self.name} to i{bits}"
        return Word(self.of, self.of.emit(text), bits)

    def zeros(self) -> Word:
        """Return how many zeros there are above the highest one."""
        text = f"call i{self.bits} @llvm.ctlz.i{self.bits}(i{self.bits} {self.name}, i1 false)"
        return Word(self.of, self.of.emit(text), self.bits)

    def least(self, other: Word | int) -> Word:
        return (self < other).where(self, other)


def divide(x: Word, y: Word, signed: bool) -> tuple[Word, Word]:
    """Return quotient and remainder, cut off towards zero; y is not 0."""
    if signed:
        below, over = x.negative, y.negative
        quotient, rest = divide(below.where(0 - x, x), over.where(0 - y, y), False)
        return (below ^ over).where(0 - quotient, quotient), below.where(0 - rest, rest)
    # The first digits of the quotient are zeros as long as the divisor is longer.
    ahead = (y > x).where(0, y.zeros() - x.zeros())

    def step(state: list[Word]) -> Sequence[Word]:
        rest, quotient, divisor = state
        fits = rest >= divisor
        rest = fits.where(rest - divisor, rest)
        return [rest, quotient << 1 | fits.wide(x.bits), divisor >> 1]

    state = [x, x.like(0), y << ahead]
    rest, quotient, _ = x.of.repeat(ahead.wide(32) + 1, state, step)
    return quotient, rest

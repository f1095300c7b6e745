"""Operators on the characters of strings: joining, splitting, normalising, matching, numbers.

A tensor of strings is an array of dtype object whose elements are str.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.extras.strings.regex import translate
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import ALL, DTYPES, FLOATS, NAMES, NARROW_FLOATS, Array
from alpenglow.ops.host.demand import common, refuse, strings, tensor, text, words

WHOLE = re.compile(r"\s*[+-]?[0-9]+\s*")
NUMBER = re.compile(
    r"\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?|inf|infinity|nan)\s*", re.IGNORECASE
)

CASES: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper}


class StringConstant(Host):
    """A tensor of given strings.  ONNX Constant."""

    forms_follow = True
    elements: tuple[str, ...]
    shape: tuple[int, ...]

    def reference(self) -> Array:
        return text(self.elements, self.shape)

    @classmethod
    def examples(cls) -> Examples:
        yield (cls(("a", "", "ü"), (3,)),)
        yield (cls(("a",), ()),)
        yield (cls((), (0, 2)),)


class StringConcat(Host):
    """Strings of x followed by strings of y; shapes are broadcast.  ONNX StringConcat."""

    forms_follow = True

    def reference(self, x: Array, y: Array) -> Array:
        a, b = common(self, strings(self, "x", x), strings(self, "y", y))
        return text((s + t for s, t in zip(a.flat, b.flat, strict=True)), a.shape)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), text(["a", "b"]), text(["ä", ""])
        yield cls(), text(["a", "b"], (2, 1)), text(["x", "y", "z"])
        yield cls(), text(["a"], ()), text(["b"], ())
        yield cls(), text([]), text(["b"])


class StringSplit(Host):
    """The parts of each string between delimiters, along a new last axis, and their numbers.

    Shorter lists of parts are filled with empty strings.  Without a delimiter, strings are split at
    runs of white space, and that at their ends is dropped.  At most `maxsplit` splits are made, if
    it is not negative.  ONNX StringSplit.
    """

    delimiter: str = ""
    maxsplit: int = -1

    def reference(self, x: Array) -> tuple[Array, Array]:
        x = strings(self, "x", x)
        parts = [s.split(self.delimiter or None, self.maxsplit) for s in x.flat]
        if not self.delimiter and self.maxsplit >= 0:
            parts = [[p.rstrip() for p in pieces] for pieces in parts]
        most = max(map(len, parts), default=0)
        filled = [p for pieces in parts for p in (*pieces, *[""] * (most - len(pieces)))]
        numbers = np.array(list(map(len, parts)), np.int64).reshape(x.shape)
        return text(filled, (*x.shape, most)), numbers

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), text([" a  b ", "c", "", "d e f"], (2, 2))
        yield cls(maxsplit=1), text([" a  b  c ", "c"])
        yield cls("-"), text(["a--b-", ""])
        yield cls(", ", 1), text(["a, b, c"], ())
        yield cls(), text([])


class StringNormalizer(Host):
    """The strings of x without `stopwords`, in the case `case`: none, lower or upper.

    x is a list, or one row of a matrix.  Stop words are taken out first, no matter their case
    unless `sensitive`.  If no string is left the result is one empty string.  Case follows
    Unicode, not a locale: the letter I has no special forms in Turkish.  ONNX StringNormalizer.
    """

    case: str = "none"
    sensitive: bool = False
    stopwords: tuple[str, ...] = ()

    def reference(self, x: Array) -> Array:
        return self.prepared()(x)

    def prepared(self) -> Callable[[Array], Array]:
        change = CASES.get(self.case)
        stop = set(self.stopwords if self.sensitive else map(str.lower, self.stopwords))

        def normalized(x: Array) -> Array:
            kept = words(self, "x", x)
            if x.ndim != 1 and (x.ndim != 2 or x.shape[0] != 1):
                refuse(self, "x", x, "string[N] or string[1,N]")
            if stop:
                seen = kept if self.sensitive else list(map(str.lower, kept))
                if not stop.isdisjoint(seen):
                    kept = [s for s, word in zip(kept, seen, strict=True) if word not in stop]
            if change is not None:
                kept = list(map(change, kept))
            y = text(kept or [""])
            return y if x.ndim == 1 else y.reshape(1, -1)

        return normalized

    @classmethod
    def examples(cls) -> Examples:
        days = text(["Monday", "tuesday", "", "Ärger"])
        yield cls(), days
        yield cls("upper", False, ("MONDAY",)), days
        yield cls("lower", True, ("monday", "tuesday")), days.reshape(1, 4)
        yield cls("lower", False, ("x",)), text(["x", "X"])


class RegexFullMatch(Host):
    """Whether the whole of each string matches `pattern`, in the syntax of RE2.

    ONNX RegexFullMatch.
    """

    forms_follow = True
    pattern: str

    def reference(self, x: Array) -> Array:
        x = strings(self, "x", x)
        match = re.compile(translate(self.pattern)).fullmatch
        return np.array([match(s) is not None for s in x.flat], bool).reshape(x.shape)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(r"www\.[\w.-]+\.\bcom\b"), text(["www.google.com", "www.facebook.com.ch"])
        yield cls("a|ab"), text(["ab", "abb"], (2, 1))
        yield cls(r"\d*"), text([])


class ParseNumbers(Host):
    """The numbers that strings spell, as elements of type `dtype`.

    Decimal and scientific notation, and infinities and NaN in any case.  For integers a fraction
    is cut off; for bool a number stands for whether it is not zero.  ONNX Cast from strings.
    """

    forms_follow = True
    dtype: str

    def reference(self, x: Array) -> Array:
        x = strings(self, "x", x)
        if self.dtype in FLOATS | NARROW_FLOATS:
            numbers = np.array([self.number(s) for s in x.flat], np.float64)
            with np.errstate(over="ignore"):  # beyond the largest number lies infinity
                return numbers.astype(DTYPES[self.dtype]).reshape(x.shape)
        if self.dtype == "bool":
            return np.array([self.number(s) != 0 for s in x.flat], bool).reshape(x.shape)
        return self.whole(x)

    def whole(self, x: Array) -> Array:
        """Return the integers that strings spell."""
        integers = [self.integer(s) for s in x.flat]
        wide = np.uint64 if self.dtype == "u64" else np.int64
        try:
            numbers = np.array(integers, wide)
        except OverflowError as error:
            raise FeedError(f"{self.name}: an integer is out of range, "
                            f"expected {self.dtype}") from error  # fmt: skip
        narrow = numbers.astype(DTYPES[self.dtype])
        if bad := [int(n) for n in numbers[narrow.astype(wide) != numbers]]:
            raise FeedError(f"{self.name}: x holds {bad[0]}, expected a number of {self.dtype}")
        return narrow.reshape(x.shape)

    def number(self, s: str) -> float:
        """Return the number that a string spells."""
        if NUMBER.fullmatch(s) is None:
            raise FeedError(f"{self.name}: x holds '{s}', expected a number")
        return float(s)

    def integer(self, s: str) -> int:
        """Return the integer that a string spells; digits past the point are cut off."""
        try:
            return int(s) if WHOLE.fullmatch(s) else int(self.number(s))
        except (ValueError, OverflowError) as error:  # NaN, an infinity, or thousands of digits
            start = s[:40]
            raise FeedError(f"{self.name}: x holds '{start}', expected {self.dtype}") from error

    @classmethod
    def examples(cls) -> Examples:
        for dtype in sorted(ALL):
            yield cls(dtype), text(["1", " 0 ", "100.5", "1e1"], (2, 2))
        yield cls("f32"), text(["-INF", "+inf", "NaN", "1e50", "-0"])
        yield cls("u64"), text([str(2**64 - 1)])
        yield cls("i64"), text([])


class FormatNumbers(Host):
    """The numbers of x as strings, in the fewest digits that read back as the same number.

    Whole numbers have no point, true is 1 and false is 0; what is no number is NaN, INF or -INF.
    ONNX Cast to strings.
    """

    forms_follow = True

    def reference(self, x: Array) -> Array:
        x = tensor(self, "x", x)
        if x.dtype.kind in "OU":
            return strings(self, "x", x)
        if x.dtype.kind == "c":
            refuse(self, "x", x, "real numbers or booleans")
        return text(map(spelled, x.flat), x.shape)

    @classmethod
    def examples(cls) -> Examples:
        for dtype in sorted(ALL):
            yield cls(), np.array([[0, 1], [3, 7]]).astype(DTYPES[dtype])
        yield cls(), np.array([0.1, 314.15926, 1e-5, 1e10, -0.0, np.nan, np.inf, -np.inf], "f")
        yield cls(), text(["a"])


class CastLike(Host):
    """x with elements of the type of `like`, where one of them holds strings.  ONNX CastLike."""

    forms_follow = True

    def reference(self, x: Array, like: Array) -> Array:
        if tensor(self, "like", like).dtype.kind in "OU":
            return FormatNumbers().reference(x)
        if like.dtype not in NAMES or like.dtype.kind == "c":
            refuse(self, "like", like, "real numbers, booleans or strings")
        return ParseNumbers(NAMES[like.dtype]).reference(x)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), text(["1.5"]), np.zeros(0, np.float16)
        yield cls(), np.array([1.5]), text(["a"])


def spelled(x: np.generic) -> str:
    """Return how ONNX writes an element of a tensor of numbers."""
    number = x.item()
    if isinstance(number, bool | int):
        return str(int(number))
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "INF" if number > 0 else "-INF"
    return str(x).removesuffix(".0")

"""The lines of kernels in text: tokens, words, numbers and types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar, get_args

from alpenglow.base.errors import ParseError
from alpenglow.ir.text import unquote
from alpenglow.ir.types import DTYPES
from alpenglow.kernel.expr import Expr, Shape
from alpenglow.kernel.stmt import Kind

T = TypeVar("T")

KINDS: dict[str, Kind] = {("for" if k == "serial" else k): k for k in get_args(Kind)}
"""The keywords that begin loops."""

RESERVED = {
    *KINDS, "if", "else", "while", "in", "array", "barrier", "atomic", "prefetch", "lanes",
    "true", "false", "inf", "nan",
}  # fmt: skip
"""Words that are names only in quotes."""

COLUMNS = re.compile(r"x[1-9]\d*", re.ASCII)
"""The columns of a shape such as 16x8, behind its rows."""

_TOKEN = re.compile(
    r"""\s*("(?:[^"\\]|\\.)*" | \d+(?:\.\d+)?(?:e[+-]?\d+)? | [A-Za-z_]\w*
        | <<|>>|<=|>=|==|!= | [-+*/%&|^<>=()\[\]{},:.@])""",
    re.VERBOSE | re.ASCII,
)


class Lines:
    """Reads one line at a time; `tokens[at]` is the next token of the present line."""

    def __init__(self, text: str) -> None:
        self.lines = text.splitlines()
        self.number = 0
        self.tokens: list[str] = []
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def ahead(self) -> str:
        """Return what stands behind the next token."""
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else ""

    def next(self) -> str:
        if self.at == len(self.tokens):
            raise self.error("expected more before the end of the line")
        self.at += 1
        return self.tokens[self.at - 1]

    def take(self, word: str) -> bool:
        matches = self.peek() == word
        self.at += matches
        return matches

    def expect(self, word: str) -> None:
        if not self.take(word):
            raise self.error(f"expected '{word}', found '{self.peek() or 'the end of the line'}'")

    def open(self) -> None:
        self.expect("{")
        self.end_line()

    def end_line(self, last: bool = False) -> None:
        """Check that the line is read to its end, and go to the next (to none, after the last)."""
        if self.at < len(self.tokens):
            raise self.error(f"expected the end of the line, found '{self.peek()}'")
        if not last:
            self.next_line()
        elif any(map(self.tokenize, self.lines[self.number :])):
            self.next_line()
            raise self.error("expected the end of the text")

    def next_line(self) -> None:
        """Go to the next line that holds anything."""
        self.tokens, self.at = [], 0
        while not self.tokens:
            if self.number == len(self.lines):
                raise self.error("expected more lines before the end of the text")
            self.number += 1
            self.tokens = self.tokenize(self.lines[self.number - 1])

    def tokenize(self, line: str) -> list[str]:
        tokens, at = [], 0
        while (m := _TOKEN.match(line, at)) is not None:
            tokens.append(m[1])
            at = m.end()
        left = line[at:].strip()
        if left and not left.startswith("#"):
            raise self.error(f"expected a token, not '{left}'")
        return tokens

    def error(self, message: str) -> ParseError:
        line = self.lines[self.number - 1].strip() if self.number else ""
        return ParseError(f"line {self.number}: {message}, in: {line}")

    # Words and numbers.

    def choice(self, words: Iterable[str]) -> str:
        """Read a dot and one of `words`."""
        self.expect(".")
        word = self.next()
        if word not in words:
            raise self.error(f"expected one of {', '.join(words)}, found '{word}'")
        return word

    def width(self) -> int:
        self.expect(".")
        return self.integer()

    def integer(self) -> int:
        word = self.next()
        if not word.isdecimal():
            raise self.error(f"expected a whole number, found '{word}'")
        return int(word)

    def decimal(self) -> float:
        sign, word = (-1, self.next()) if self.take("-") else (1, self.next())
        try:
            return sign * float(word)
        except ValueError as mistake:
            raise self.error(f"expected a number, found '{word}'") from mistake

    def align(self) -> int:
        return self.integer() if self.take("align") else 0

    def dtype(self) -> str:
        dtype, lanes = self.type()
        if lanes != 1:
            raise self.error("expected a scalar dtype of a buffer")
        return dtype

    def type(self) -> tuple[str, int]:
        word = self.next()
        m = re.fullmatch(r"([a-z]\w*?)(?:x(\d+))?", word)
        if m is None or m[1] not in DTYPES:
            raise self.error(f"'{word}' is no type; expected one of {' '.join(DTYPES)}, or f32x16")
        return m[1], int(m[2] or 1)

    def value_type(self) -> tuple[str, int, Shape | None]:
        """Read a type, such as f32x16, or f32[16x16] of a fragment."""
        dtype, lanes = self.type()
        if not self.take("["):
            return dtype, lanes, None
        rows = self.integer()
        columns = self.columns()
        self.expect("]")
        return dtype, rows * columns, (rows, columns)

    def name(self) -> str:
        word = self.next()
        if word in RESERVED or not (word[0].isalpha() or word[0] in '_"'):
            raise self.error(f"expected a name, found '{word}'")
        return unquote(word)

    def rest(self, read: Callable[[], T], end: str = ")") -> Iterator[T]:
        """Yield what follows the first element of a list, up to its end."""
        while not self.take(end):
            self.expect(",")
            yield read()

    def close(self, e: Expr) -> Expr:
        self.expect(")")
        return e

    def columns(self) -> int:
        """Read what follows the rows of a shape, as in 16x8."""
        word = self.next()
        if not COLUMNS.fullmatch(word):
            raise self.error(f"expected rows and columns such as 16x8, found '{word}'")
        return int(word[1:])

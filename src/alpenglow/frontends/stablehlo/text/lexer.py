"""Words of MLIR: a text is read forwards, and an error says in which line it is."""

from __future__ import annotations

import re

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stablehlo.module import DEEPEST

_BLANK = re.compile(r"(?:\s+|//[^\n]*)*")
_WORD = re.compile(
    r"""(?P<string>"[^"\\\n]*(?:\\.[^"\\\n]*)*")
      | (?P<value>%[A-Za-z0-9_$.-]+)
      | (?P<block>\^[A-Za-z0-9_$.-]+)
      | (?P<symbol>@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*"))
      | (?P<alias>[\#!][A-Za-z_][A-Za-z0-9_$.]*)
      | (?P<number>[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|0x[0-9a-fA-F]+|[0-9]+)
      | (?P<name>[A-Za-z_](?:[A-Za-z0-9_$.]|-(?=[a-z]))*)
      | (?P<mark>->|::|\{-\#|\#-\}|[-+*/\[\](){}<>=,:?\#])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r'\\([0-9A-Fa-f]{2}|[nt"\\])')
_PLAIN = {"n": "\n", "t": "\t", '"': '"', "\\": "\\"}


class Lexer:
    """A position in a text: `kind` and `word` describe the token there, both "" at the end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0
        self.kind = self.word = ""
        self._depth = 0
        self._counted = (0, 1)  # a place, and the number of its line
        self.next()

    def next(self) -> str:
        """Advance by a word and return the word before."""
        word = self.word
        blank = _BLANK.match(self.text, self.end)
        self.start = blank.end() if blank else self.end
        match = _WORD.match(self.text, self.start)
        if match is not None and match.lastgroup:
            self.end, self.kind, self.word = match.end(), match.lastgroup, match[0]
            return word
        if self.start < len(self.text):
            found = self.text[self.start : self.start + 20]
            raise self.error(f"found {found!r}, expected a token of MLIR")
        self.end, self.kind, self.word = self.start, "", ""
        return word

    @property
    def place(self) -> str:
        """The line of this position, for messages."""
        return f"line {self._line()}"

    def _line(self) -> int:
        """Return the number of this line, counted on from the last one that was asked for."""
        at, line = self._counted
        line += self.text.count("\n", at, self.start)
        self._counted = self.start, line
        return line

    def error(self, message: str, hint: str = "") -> ModelError:
        """Return the error for the text at this line and column."""
        line = self._line()
        column = self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1
        return ModelError(f"line {line}, column {column}: {message}", hint=hint)

    def expected(self, what: str) -> ModelError:
        """Return the error that names the word here and what is expected instead."""
        here = f"found {self.word[:40]!r}" if self.word else "the text ends"
        return self.error(f"{here}, expected {what}")

    def take(self, word: str) -> bool:
        """Return True and advance if this is the next word."""
        if self.word != word or self.kind == "string":
            return False
        self.next()
        return True

    def want(self, word: str) -> None:
        """Advance by this word; raise ModelError if the next word is another."""
        if not self.take(word):
            raise self.expected(f"'{word}'")

    def want_kind(self, kind: str, what: str) -> str:
        """Go on by a word of a kind, and return it; raise ModelError if it is of another."""
        if self.kind != kind:
            raise self.expected(what)
        return self.next()

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Go on past what matches a pattern from the beginning of this word."""
        match = pattern.match(self.text, self.start)
        if match is not None:
            self.end = match.end()
            self.next()
        return match

    def integer(self) -> int:
        """Return an integer, perhaps with a sign."""
        negative = self.take("-")
        word = self.want_kind("number", "an integer")
        if "." in word:
            raise self.error(f"found {word}, expected an integer")
        number = int(word, 16 if word.startswith("0x") else 10) if len(word) < 64 else 1 << 200
        if number >= 1 << 64:
            raise self.error(f"an integer is {word[:40]}, expected less than 2^64")
        return -number if negative else number

    def string(self) -> str:
        """Return the text in quotes."""
        return unquoted(self.want_kind("string", "a string"))

    def enter(self) -> None:
        """Enter a nested construct; raise ModelError if it is nested too deeply."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(f"the text is nested {self._depth} deep, expected at most {DEEPEST}")

    def leave(self) -> None:
        self._depth -= 1

    def skip(self, opening: str, closing: str) -> str:
        """Go on past what stands between a pair of marks, and return it."""
        if self.word != opening:
            raise self.expected(f"'{opening}'")
        begin, depth = self.end, 0
        while self.kind:
            depth += (self.word == opening) - (self.word == closing)
            if not depth:
                inside = self.text[begin : self.start]
                self.next()
                return inside
            self.next()
        raise self.expected(f"'{closing}'")


def unquoted(word: str) -> str:
    """Return the text of a string in quotes."""
    if "\\" not in word:
        return word[1:-1]
    return _ESCAPE.sub(lambda m: _PLAIN.get(m[1]) or chr(int(m[1], 16)), word[1:-1])

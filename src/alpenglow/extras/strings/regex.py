"""Regular expressions of RE2, translated for Python's `re`.

The two disagree on more than they seem to: what a digit or a word is, where ``$`` is, classes such
as ``[[:alpha:]]`` and ``\\pL``, flags amid a pattern, quoting; and Python knows what RE2 refuses
(backreferences, looking around).  So a pattern is read as RE2 reads it, and written anew.  Only
whether a whole string matches is asked for: groups are not captured, and greed makes no difference.

Not there: ``\\C``, for strings are characters here, and Unicode scripts (``\\p{Greek}``), for which
Python has no table.  And where RE2 takes time linear in the string, Python may take exponential
time for nested repetitions such as ``(a+)+``.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from functools import cache
from typing import Never

from alpenglow.base.errors import ModelError, UnsupportedError

MOST_REPEATS = 1000

PERL = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
EMPTY = {"A": r"\A", "z": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}
REPEAT = re.compile(r"\*|\+|\?|\{([0-9]+)(?:(,)([0-9]*))?\}")
GROUP = re.compile(r"\((?:\?(?:P?<(\w+)>|([imsU]*)(?:-([imsU]+))?([:)])))?")
CODE = re.compile(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
UNICODE = re.compile(r"([pP])(?:\{(\^?)(\w+)\}|(\w))")
ANY = "\\x00-\\U0010ffff"

Flags = frozenset[str]


@cache
def translate(pattern: str) -> str:
    """Return the pattern of Python's `re` that matches the same whole strings.

    Raises ModelError if RE2 refuses the pattern, UnsupportedError for what is not there.
    """
    reader = _Reader(pattern)
    expression = reader.alternatives(frozenset())
    if reader.at < len(pattern):
        reader.refuse("found ), expected the end of the pattern")
    return expression


class _Reader:
    """A pattern, and how far it has been read."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def refuse(self, why: str) -> Never:
        raise ModelError(f"'{self.pattern}' is not supported by the syntax of RE2: {why}")

    def take(self, syntax: re.Pattern[str]) -> re.Match[str] | None:
        """Return the match of `syntax` at the current position, and step over it."""
        m = syntax.match(self.pattern, self.at)
        if m is not None:
            self.at = m.end()
        return m

    def starts(self, prefix: str) -> bool:
        return self.pattern.startswith(prefix, self.at)

    def alternatives(self, flags: Flags) -> str:
        """Read up to the end of the group, or of the pattern."""
        done = ""
        branch: list[str] = []
        while self.at < len(self.pattern) and not self.starts(")"):
            if self.starts("|"):
                self.at += 1
                done += "".join(branch) + "|"
                branch = []
            elif m := self.take(REPEAT):
                self.repeat(branch, m)
            elif self.starts("("):
                flags = self.group(branch, flags)
            elif self.starts(r"\Q"):
                end = self.pattern.find(r"\E", self.at + 2)
                stop = len(self.pattern) if end < 0 else end
                branch += [literal(c, flags) for c in self.pattern[self.at + 2 : stop]]
                self.at = min(stop + 2, len(self.pattern))
            else:
                branch.append(self.atom(flags))
        return done + "".join(branch)

    def repeat(self, branch: list[str], m: re.Match[str]) -> None:
        """Repeat the last atom as `m` says."""
        if not branch:
            self.refuse(f"nothing to repeat before {m[0]}, expected an atom")
        if max(int(n) for n in (m[1] or 0, m[3] or 0)) > MOST_REPEATS:
            self.refuse(f"{m[0]} repeats too often, expected at most {MOST_REPEATS}")
        if m[3] and int(m[1]) > int(m[3]):
            self.refuse(f"{m[0]} is empty, expected the lower number first")
        if self.starts("?"):
            self.at += 1
        again = REPEAT.match(self.pattern, self.at)
        if again is not None:
            self.refuse(f"{m[0]} is followed by {again[0]}, expected one repetition")
        branch[-1] = f"(?:{branch[-1]}){m[0]}"

    def group(self, branch: list[str], flags: Flags) -> Flags:
        """Read a group; return the flags that hold behind it."""
        m = self.take(GROUP)
        assert m is not None, "a parenthesis opens a group"
        if m[0] == "(" and self.starts("?"):
            self.refuse(f"{self.pattern[self.at - 1 : self.at + 3]} is unknown, expected a group")
        inside = (flags | set(m[2] or "")) - set(m[3] or "")
        if m[4] == ")":
            return inside
        body = self.alternatives(inside)
        if not self.starts(")"):
            self.refuse("missing )")
        self.at += 1
        branch.append(f"(?:{body})")
        return flags

    def atom(self, flags: Flags) -> str:
        """Read one character, class or place."""
        c = self.pattern[self.at]
        if c == "[":
            return folded(self.bracket(), flags)
        self.at += 1
        if c == ".":
            return r"[\s\S]" if "s" in flags else r"[^\n]"
        if c == "^":
            return "(?m:^)" if "m" in flags else r"\A"
        if c == "$":
            return "(?m:$)" if "m" in flags else r"\Z"
        if c != "\\":
            return literal(c, flags)
        kind = self.pattern[self.at : self.at + 1]
        if kind in EMPTY and kind:
            self.at += 1
            return EMPTY[kind]
        if (members := self.shorthand()) is not None:
            return folded(f"[{members}]", flags)
        return literal(self.escaped(), flags)

    def shorthand(self) -> str | None:
        r"""Read a class such as \d or \pL behind its backslash; None if it is none."""
        kind = self.pattern[self.at : self.at + 1]
        if kind and kind.lower() in PERL:
            self.at += 1
            members = PERL[kind.lower()]
            return members if kind.islower() else complement(members)
        m = self.take(UNICODE)
        if m is None:
            return None
        members = self.category(m[3] or m[4])
        return complement(members) if (m[1] == "P") != bool(m[2]) else members

    def category(self, name: str) -> str:
        if name == "Any":
            return ANY
        members = category(name)
        if not members:
            raise UnsupportedError(
                f"'{self.pattern}': \\p{{{name}}} is not a general category of Unicode; "
                "scripts are not supported"
            )
        return members

    def escaped(self) -> str:
        """Return the character that follows a backslash."""
        if m := self.take(CODE):
            code = int(m[3], 8) if m[3] else int(m[1] or m[2], 16)
            if code > sys.maxunicode:
                self.refuse(f"\\{m[0]} is out of range, expected up to {sys.maxunicode:x}")
            return chr(code)
        c = self.pattern[self.at : self.at + 1]
        self.at += 1
        if c == "C":
            raise UnsupportedError(f"'{self.pattern}': \\C (one byte) is not supported")
        if c in CONTROL and c:
            return CONTROL[c]
        if not c or c == "_" or c.isalnum() or ord(c) > 127:
            self.refuse(f"\\{c} is unknown, expected an escape of RE2")
        return c

    def bracket(self) -> str:
        """Read a class in brackets."""
        start = self.at
        self.at += 1
        inverse = self.starts("^")
        self.at += inverse
        members = ""
        first = True
        while first or not self.starts("]"):
            if self.at >= len(self.pattern):
                self.refuse(f"missing ] behind {self.pattern[start:]}")
            members += self.member()
            first = False
        self.at += 1
        return f"[{'^' if inverse else ''}{members}]"

    def member(self) -> str:
        """Read a character, a range or a class in brackets."""
        if self.starts("[:") and (end := self.pattern.find(":]", self.at)) > 0:
            name = self.pattern[self.at + 2 : end]
            if name.removeprefix("^") not in POSIX:
                self.refuse(f"[:{name}:] is unknown, expected one of {', '.join(POSIX)}")
            self.at = end + 2
            members = POSIX[name.removeprefix("^")]
            return complement(members) if name.startswith("^") else members
        if self.starts("\\"):
            self.at += 1
            if (members_or_none := self.shorthand()) is not None:
                return members_or_none
            low = self.escaped()
        else:
            low = self.pattern[self.at]
            self.at += 1
        rest = self.pattern[self.at : self.at + 2]
        if len(rest) < 2 or rest[0] != "-" or rest[1] == "]":
            return re.escape(low)
        self.at += 1
        high = self.last()
        if high < low:
            self.refuse(f"the range {low}-{high} is empty, expected the lower end first")
        return f"{re.escape(low)}-{re.escape(high)}"

    def last(self) -> str:
        """Read the character that ends a range."""
        c = self.pattern[self.at]
        self.at += 1
        return self.escaped() if c == "\\" else c


def literal(c: str, flags: Flags) -> str:
    return folded(re.escape(c), flags)


def folded(atom: str, flags: Flags) -> str:
    """Return an atom that disregards case if the flags say so."""
    return f"(?i:{atom})" if "i" in flags else atom


def complement(members: str) -> str:
    """Return the members of the class of all other characters."""
    inside = re.compile(f"[{members}]")
    return ranges([not inside.match(chr(i)) for i in range(sys.maxunicode + 1)])


@cache
def category(name: str) -> str:
    """Return the characters of a general category of Unicode, or of those with one first letter."""
    return ranges(
        [unicodedata.category(chr(i)).startswith(name) for i in range(sys.maxunicode + 1)]
    )


def ranges(inside: list[bool]) -> str:
    """Return the members of the class of the characters that are `inside`."""
    members = []
    start = -1
    for i, there in enumerate([*inside, False]):
        if there and start < 0:
            start = i
        elif not there and start >= 0:
            members.append(f"\\U{start:08x}-\\U{i - 1:08x}")
            start = -1
    return "".join(members)

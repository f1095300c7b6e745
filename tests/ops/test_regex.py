"""Patterns of RE2: what they match, and what is refused."""

from __future__ import annotations

import pytest

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.extras.strings import strings
from alpenglow.extras.strings.regex import translate
from alpenglow.ops.host.demand import text
from onnx_host import of


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"(?i)abc", ["ABC"], ["ABD"]),
        (r"a$", ["a"], ["a\n"]),
        (r"a$\n", [], ["a\n"]),
        (r"(?m)^a$\n^b$", ["a\nb"], ["ab"]),
        (r"\d+", ["12"], ["\u0661"]),
        (r"[\W]+", ["-é"], ["a"]),
        (r"[[:alpha:]\d]+", ["a1"], ["_"]),
        (r"[^[:alpha:]]", ["1", "\n"], ["a"]),
        (r"[[:^digit:]]", ["a"], ["1"]),
        (r"\pL+", ["äb"], ["1"]),
        (r"\P{Lu}+", ["ab1"], ["A"]),
        (r"\p{^Lu}+", ["ab1"], ["A"]),
        (r"\p{Any}", ["\n"], ["ab"]),
        (r"\Qa.b\E+", ["a.bb"], ["axb"]),
        (r"\Qa*", ["a*"], ["aa"]),
        (r"x{2}", ["xx"], ["x"]),
        (r"x{1,2}?", ["x", "xx"], [""]),
        (r"x{", ["x{"], ["x"]),
        (r"x{,2}", ["x{,2}"], ["x"]),
        (r"(?P<n>a|b)*?", ["abab", ""], ["c"]),
        (r"(?i:a)b", ["Ab"], ["AB"]),
        (r"(a)(?i)b|c", ["aB", "C"], ["AB"]),
        (r"(?i)a(?-i)b", ["Ab"], ["AB"]),
        (r"[]a]+", ["]a"], ["b"]),
        (r"[a-\x63-]", ["c", "-"], ["d"]),
        (r"\x{1F600}\x41\101", ["\U0001f600AA"], [""]),
        (r".", ["a"], ["\n"]),
        (r"(?s).", ["\n"], [""]),
        (r"\bab\b", ["ab"], ["a"]),
        (r"\Aab\z", ["ab"], ["ab\n"]),
        ("", [""], ["a"]),
        ("a|", ["a", ""], ["b"]),
    ],
)
@pytest.mark.sampled(13)
def test_a_pattern_matches_what_re2_matches(
    pattern: str, matching: list[str], other: list[str]
) -> None:
    made = strings.RegexFullMatch(pattern).reference(text([*matching, *other]))

    assert made.tolist() == [True] * len(matching) + [False] * len(other)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "missing \\)"),
        ("a)", "found \\), expected the end"),
        ("*a", "nothing to repeat"),
        ("a**", "followed by"),
        ("a{2}{3}", "followed by"),
        ("a{2,1}", "is empty"),
        ("a{1001}", "at most 1000"),
        ("(?=a)", "unknown"),
        ("(?<=a)b", "unknown"),
        (r"(a)\1", "unknown"),
        ("[a", "missing \\]"),
        ("[b-a]", "is empty"),
        ("[a-", "missing \\]"),
        ("[[:foo:]]", "unknown"),
        (r"\y", "unknown"),
        ("\\", "unknown"),
        (r"\x{110000}", "out of range"),
    ],
)
def test_a_pattern_that_re2_refuses_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(ModelError, match=why):
        of("RegexFullMatch", pattern=pattern)


@pytest.mark.parametrize("pattern", [r"\p{Greek}", r"\C"])
def test_a_pattern_that_is_not_supported_says_so(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="not supported"):
        translate(pattern)

"""The table that `alpenglow profile` prints."""

from __future__ import annotations

from dataclasses import replace

from alpenglow.cli.profile import lines
from alpenglow.measure.profile import InstrTime, RunProfile

FILL = InstrTime(0, "fill", ("pad",), True, 1e-6, 0, 1000, 0.0, (), ())
CONV = replace(FILL, number=1, kind="conv", sources=("c",), seconds=91e-6, flop=1000)


def table(parts: list[InstrTime], top: int = 20) -> list[str]:
    numbered = [replace(p, number=number) for number, p in enumerate(parts)]
    return lines(RunProfile(tuple(numbered), 110e-6), top, 1e9, 1e9)


def test_small_kernels_of_a_kind_share_a_line() -> None:
    head, conv, fills, *_ = table([CONV, *[FILL] * 4, replace(FILL, sources=("other",))])

    assert head.split()[0] == "µs"
    assert conv.split()[0] == "91.000" and conv.split()[-2:] == ["conv", "c"]
    assert fills.split()[0] == "5.000" and fills.endswith("5 fill  pad, other")


def test_what_is_large_or_multiplies_has_a_line_of_its_own() -> None:
    small = replace(CONV, seconds=1e-6)
    text = table([CONV, FILL, small, small, replace(FILL, seconds=9e-6)])

    assert [line.split()[0] for line in text[1:6]] == ["91.000", "9.000", "1.000", "1.000", "1.000"]


def test_kernels_are_counted_one_by_one() -> None:
    text = table([CONV, *[FILL] * 8], top=1)

    assert text[2] == "8 more kernels take 8.00 µs"
    assert text[3].startswith("9 kernels take 99.0 µs, a run 0.110 ms")
    assert table([CONV])[2].startswith("1 kernel takes 91.0 µs")


def test_long_kernels_are_told_in_milliseconds() -> None:
    head, conv, *_ = table([replace(CONV, seconds=2e-3)])

    assert head.split()[0] == "ms" and conv.split()[0] == "2.000"

"""What tests/conftest.py does to all tests: which run, and what is validated in them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import conftest
from alpenglow.base import knobs


@pytest.mark.parametrize("number", range(7))
def test_one_of_many_cases(number: int) -> None:
    assert 0 <= number < 7


@pytest.mark.parametrize("letter", "ab")
@pytest.mark.parametrize("number", range(6))
@pytest.mark.sampled(3, "5-a")
def test_a_sample_of_many_numbers(number: int, letter: str) -> None:
    assert f"{number}-{letter}" in ALL


ALL = [f"{number}-{letter}" for number in range(6) for letter in "ab"]
KEPT = ["0-a", "2-a", "4-b", "5-a"]
"""The named one, and of each third of the others one: the first, the second, the third."""


def collected(*options: str, of: str = "") -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options, __file__ + of]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return re.findall(r"::(\S+)", done.stdout)


def test_cases_are_spread_over_all_of_a_test() -> None:
    few = collected("--cases", "3")

    assert [name for name in few if "many_cases" in name] == [
        f"test_one_of_many_cases[{number}]" for number in (0, 2, 4)
    ]
    assert {n.partition("[")[0] for n in few} == {n.partition("[")[0] for n in collected()}
    assert max(Counter(n.partition("[")[0] for n in few).values()) == 3


def test_cases_are_counted_among_those_that_are_chosen() -> None:
    chosen = collected("--cases", "1", "-k", "many_cases and not 0")

    assert chosen == ["test_one_of_many_cases[1]"]


def test_half_a_case_is_one_of_every_other_test() -> None:
    all_tests = {name.partition("[")[0] for name in collected()}
    half = collected("--cases", "0.5")

    assert len(half) == len({n.partition("[")[0] for n in half})
    assert 0 < len(half) < len(all_tests)
    assert half == collected("--cases", "0.5")


def sample(*options: str) -> list[str]:
    """Return the chosen cases of the test of which there is a sample."""
    names = collected(*options, of="::test_a_sample_of_many_numbers")
    return [name.partition("[")[2].rstrip("]") for name in names]


def test_a_sample_stays_and_all_other_cases_are_slow() -> None:
    assert sample("-m", "not slow") == KEPT
    assert sample("-m", "slow") == sample("-m", "rest") == [c for c in ALL if c not in KEPT]
    assert sample() == ALL


def test_a_sample_is_the_same_whatever_is_chosen_of_it() -> None:
    of = "::test_a_sample_of_many_numbers"

    assert sample("-m", "not slow", "-k", "4-b or 3-b") == ["4-b"]
    assert collected("-m", "not slow", of=f"{of}[1-a]") == []
    assert collected("-m", "not slow", of=f"{of}[2-a]") == ["test_a_sample_of_many_numbers[2-a]"]
    assert sample("-m", "not slow", "--cases", "2") == ["0-a", "4-b"]


def test_each_part_of_many_gives_one() -> None:
    assert list(conftest._spread(12, 4)) == [0, 4, 8, 9]
    assert list(conftest._spread(7, 3)) == [0, 3, 6]
    assert list(conftest._spread(2, 5)) == [0, 1]
    assert list(conftest._spread(5, 0)) == []


CHECK = pytest.mark.skipif(conftest.CHECK_IS_SAID, reason="ALPENGLOW_CHECK is set from outside")


@CHECK
def test_passes_are_not_validated_where_tests_are_about_something_else() -> None:
    assert not knobs.check()


@CHECK
@pytest.mark.slow
def test_passes_are_not_validated_where_that_takes_long() -> None:
    assert not knobs.check()


@CHECK
@pytest.mark.rest
def test_passes_are_validated_in_the_rest() -> None:
    assert knobs.check()


def test_the_home_of_the_user_is_not_seen() -> None:
    folder = knobs.cache_folder()

    assert folder is not None and "alpenglow-home-" in str(folder)
    assert Path.home() in folder.parents


def test_no_process_writes_bytecode() -> None:
    with pytest.raises(AssertionError, match="would write bytecode"):
        subprocess.run([sys.executable, "-c", ""], env={}, check=True)


@pytest.mark.rest
def test_a_share_of_the_rest_is_always_the_same() -> None:
    whole, half, none = (collected("-m", "rest", "--rest", share) for share in ("1", "0.5", "0"))

    assert not none
    assert set(half) < set(whole) and half == collected("-m", "rest", "--rest", "0.5")
    assert 1 < len(half) < len(whole) - 1
    assert collected("-m", "not slow", "--rest", "0") == collected("-m", "not slow")

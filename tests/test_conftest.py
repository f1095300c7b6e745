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


def collected(*options: str) -> list[str]:
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *options, __file__]
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


CHECK = pytest.mark.skipif(conftest.CHECK_IS_SAID, reason="ALPENGLOW_CHECK is set from outside")


@CHECK
def test_passes_are_validated() -> None:
    assert knobs.check()


@CHECK
@pytest.mark.slow
def test_passes_are_not_validated_where_that_takes_long() -> None:
    assert not knobs.check()


def test_the_home_of_the_user_is_not_seen() -> None:
    folder = knobs.cache_folder()

    assert folder is not None and "alpenglow-home-" in str(folder)
    assert Path.home() in folder.parents


def test_no_process_writes_bytecode() -> None:
    with pytest.raises(AssertionError, match="would write bytecode"):
        subprocess.run([sys.executable, "-c", ""], env={}, check=True)

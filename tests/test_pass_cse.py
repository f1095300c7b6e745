"""The pass `cse`, by the cases in tests/golden/passes/cse.txt."""

from __future__ import annotations

import pytest

from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.passes.cse import cse
from pass_cases import Case, cases, check_meaning, check_text


def test_the_cases_become_what_their_file_says(bless: bool) -> None:
    check_text("cse", cse, bless)


@pytest.mark.parametrize("case", cases("cse"), ids=lambda c: c.name)
def test_a_case_means_the_same_afterwards(case: Case) -> None:
    check_meaning(case, cse, 0)


@pytest.mark.parametrize("case", cases("cse"), ids=lambda c: c.name)
def test_a_second_pass_changes_nothing(case: Case) -> None:
    once = cse(parse_graph(case.before))
    expected = print_graph(once)
    actual = print_graph(cse(once))

    assert expected == actual

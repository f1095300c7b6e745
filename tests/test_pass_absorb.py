"""The pass `absorb`, by the cases in tests/golden/passes/absorb.txt."""

from __future__ import annotations

import pytest

from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.passes.absorb import absorb, rules
from pass_cases import Case, cases, check_meaning, check_text, fired

TOLERANCE = 1e-4
"""Constants are combined before they meet the data, so sums round differently."""


def test_the_cases_become_what_their_file_says(bless: bool) -> None:
    check_text("absorb", absorb, bless)


@pytest.mark.parametrize("case", cases("absorb"), ids=lambda c: c.name)
def test_a_case_means_the_same_afterwards(case: Case) -> None:
    check_meaning(case, absorb, TOLERANCE)


@pytest.mark.parametrize("case", cases("absorb"), ids=lambda c: c.name)
def test_a_second_pass_changes_nothing(case: Case) -> None:
    once = absorb(parse_graph(case.before))
    expected = print_graph(once)
    actual = print_graph(absorb(once))

    assert expected == actual


def test_every_rule_is_exercised_by_a_case() -> None:
    expected = {rule.__name__ for rule in rules.rules()}
    actual = fired(rules, "absorb")

    assert expected == actual


def test_every_rule_states_its_law() -> None:
    lawless = [rule.__name__ for rule in rules.rules() if "=>" not in (rule.__doc__ or "")]

    assert lawless == []

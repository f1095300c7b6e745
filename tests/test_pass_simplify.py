"""The pass `simplify`, by the cases in tests/golden/passes/simplify.txt."""

from __future__ import annotations

import pytest

from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.passes.simplify import rules, simplify
from pass_cases import Case, cases, check_meaning, check_text, fired


def test_the_cases_become_what_their_file_says(bless: bool) -> None:
    check_text("simplify", simplify, bless)


@pytest.mark.parametrize("case", cases("simplify"), ids=lambda c: c.name)
def test_a_case_means_the_same_afterwards(case: Case) -> None:
    check_meaning(case, simplify, 0)


@pytest.mark.parametrize("case", cases("simplify"), ids=lambda c: c.name)
def test_a_second_pass_changes_nothing(case: Case) -> None:
    once = simplify(parse_graph(case.before))
    expected = print_graph(once)
    actual = print_graph(simplify(once))

    assert expected == actual


def test_every_rule_is_exercised_by_a_case() -> None:
    expected = {rule.__name__ for rule in rules.rules()}
    actual = fired(rules, "simplify")

    assert expected == actual


def test_every_rule_states_its_law() -> None:
    lawless = [rule.__name__ for rule in rules.rules() if "=>" not in (rule.__doc__ or "")]

    assert lawless == []

"""The pass `quantized`, by the cases in tests/golden/passes/quantized.txt."""

from __future__ import annotations

import numpy as np
import pytest

from alpenglow.evaluate import evaluate
from alpenglow.ir.rewrite import Rules
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.passes import pointwise, quantized, tables, unsigned
from alpenglow.passes.quantized import integers
from pass_cases import Case, cases, check_text, drawn, fired


def every_rule() -> Rules:
    found = Rules()
    for part in (quantized, unsigned, pointwise, tables):
        for root, group in part.rules.by_root.items():
            for rule in group:
                found.on(root)(rule)
    return found


def test_the_cases_become_what_their_file_says(bless: bool) -> None:
    check_text("quantized", integers, bless)


@pytest.mark.parametrize("case", cases("quantized"), ids=lambda c: c.name)
def test_a_case_is_at_most_one_step_off_afterwards(case: Case) -> None:
    before, after = parse_graph(case.before), integers(parse_graph(case.before))
    feeds = drawn(before, finite="finite" in case.says)
    with np.errstate(all="ignore"):
        expected, actual = evaluate(before, feeds), evaluate(after, feeds)

    assert list(expected) == list(actual)
    for name, array in expected.items():
        assert array.dtype == actual[name].dtype
        if array.dtype.kind in "iu":
            assert np.abs(array.astype(np.int64) - actual[name]).max() <= 1
        else:
            np.testing.assert_allclose(actual[name], array, 1e-6, 1e-6)


@pytest.mark.parametrize("case", cases("quantized"), ids=lambda c: c.name)
def test_a_second_pass_changes_nothing(case: Case) -> None:
    once = integers(parse_graph(case.before))
    expected = print_graph(once)
    actual = print_graph(integers(once))

    assert expected == actual


def test_every_rule_is_exercised_by_a_case() -> None:
    expected = {rule.__name__ for rule in every_rule().rules()}
    actual = fired(every_rule(), "quantized")

    assert expected == actual


def test_a_network_of_bytes_has_no_floats_but_multipliers() -> None:
    (case,) = [c for c in cases("quantized") if c.name == "conv_of_integers"]
    g = integers(parse_graph(case.before))
    floats = [n for n in g.nodes if n.output.type.dtype == "f32" and n.op.name != "broadcast"]

    assert floats == []

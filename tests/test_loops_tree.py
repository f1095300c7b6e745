"""Loop forms of trees, lookups, coupled probabilities and inverses.

As in `test_loops_gather` the kernel evaluator, which refuses to read or write outside of a buffer,
and code for this machine are compared with the reference; here also for ensembles that make no
sense, on which a form must neither run on for ever nor leave its buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.ir.op import Primitive
from alpenglow.ops.inverse import Inverse
from alpenglow.ops.lookup import Find
from alpenglow.ops.probability import Couple
from alpenglow.ops.tree import TreeEnsemble
from loop_forms import check

OPERATORS: tuple[type[Primitive], ...] = (TreeEnsemble, Find, Couple, Inverse)


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
def test_the_examples_agree_with_the_reference(cls: type[Primitive]) -> None:
    for op, *given in cls.examples():
        check(op, *given)


@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("listed", [False, True])
def test_senseless_trees_end_and_stay_in_bounds(listed: bool, targets: int) -> None:
    random = np.random.default_rng(targets)
    far = np.iinfo(np.int32)

    def wild(*shape: int) -> Any:
        return random.integers(far.min, far.max, shape).astype(np.int32)

    children = np.concatenate([wild(5, 2), random.integers(-3, 5, (7, 2))]).astype(np.int32)
    first = np.sort(random.integers(-2, 9, 4)).astype(np.int32) if listed else None
    threshold = random.normal(0, 1, 12).astype(np.float32)
    roots, weight = np.arange(-4, 15, dtype=np.int32), np.arange(6, dtype=np.float32)
    op = TreeEnsemble(targets, 6)
    check(op, "f32[4,3]", wild(12), threshold, children, roots, wild(6), weight, first)


def test_large_key_lists_are_searched() -> None:
    keys = np.unique(np.random.default_rng(0).integers(-9999, 9999, 3000))
    check(Find(), np.arange(-10000, 10000), keys, small=False)

"""Loop forms of trees, lookups, coupled probabilities and inverses.

As in `test_loops_gather` the kernel evaluator, which refuses to read or write outside of a buffer,
and code for this machine are compared with the reference; here also for ensembles that make no
sense, on which a form must neither run on for ever nor leave its buffers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.extras.linalg.inverse import Inverse
from alpenglow.extras.ml.probability import Couple
from alpenglow.extras.ml.tree import TreeEnsemble
from alpenglow.ir.op import Primitive
from alpenglow.ops.tensor.lookup import Find
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

    thresholds = random.normal(0, 1, 12).astype(np.float32).view(np.int32)
    wide = np.iinfo(np.int64)
    words = np.concatenate([
        random.integers(wide.min, wide.max, 5), random.integers(0, 15, 7) + (1 << 33)
    ])  # fmt: skip
    nodes = np.stack([thresholds.astype(np.int64), words], axis=1)
    first = np.sort(random.integers(-2, 9, 4)).astype(np.int32) if listed else None
    op = TreeEnsemble(targets, 11, 6)
    check(op, "f32[4,3]", nodes, wild(6), np.arange(6, dtype=np.float32), first)


def test_large_key_lists_are_searched() -> None:
    keys = np.unique(np.random.default_rng(0).integers(-9999, 9999, 3000))
    check(Find(), np.arange(-10000, 10000), keys, small=False)

"""Loop forms of sampling, regions, frames, windows put back, and elimination.

As in test_loops_gather, every example is run by the kernel evaluator, which refuses to read or
write outside of a buffer, and compiled for this machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from alpenglow.extras.linalg.linalg import Eliminate
from alpenglow.ir.op import Primitive
from alpenglow.ops.image.regions import (
    MaxRoiPool,
    MaxRoiPoolIndex,
    RoiAlign,
    RoiAlignIndex,
    RoiAlignSlope,
    RoiAlignSpread,
)
from alpenglow.ops.image.sampling import MODES, PADDINGS, Sample, SampleSlope, Spread
from alpenglow.ops.sequence.signal import Frames
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.ops.window.unpooling import OverlapAdd
from loop_forms import check

OPERATORS: tuple[type[Primitive], ...] = (
    Sample, Spread, SampleSlope, RoiAlign, RoiAlignSpread, RoiAlignSlope, RoiAlignIndex, MaxRoiPool,
    MaxRoiPoolIndex, OverlapAdd, Frames, SumAt, Eliminate,
)  # fmt: skip

BOXES = np.random.default_rng(0).uniform(-5, 30, (40, 5)).astype(np.float32)

LARGER: list[tuple[Any, ...]] = [
    (Sample("linear", "zeros"), "f32[2,5,17,30]", "f32[2,700,2]"),
    (Sample("cubic", "reflection"), "f32[1,3,9,8,7]", "f32[1,300,3]"),
    (Spread(extents=(17, 30)), "f32[2,37,700]", "f32[2,700,2]"),
    (SampleSlope("cubic", "border"), "f32[2,5,700]", "f32[2,5,17,30]", "f32[2,700,2]"),
    (SumAt(1, 40), "f32[2,90,700]", np.arange(90)[None] * 7 % 40, None),
    (RoiAlign(7, 7, 0.5), "f32[2,9,20,25]", BOXES[:, 1:], np.arange(40) % 2),
    (RoiAlignSpread((2, 20, 25), 0.5), "f32[40,19,7,7]", BOXES[:, 1:], np.arange(40) % 2),
    (RoiAlignSlope(0.5), "f32[40,9,7,7]", "f32[2,9,20,25]", BOXES[:, 1:], np.arange(40) % 2),
    (RoiAlignIndex(7, 7, 0.5), "f32[2,9,20,25]", BOXES[:, 1:], np.arange(40) % 2),
    (MaxRoiPool(7, 7, 0.5), "f32[2,9,20,25]", BOXES),
    (MaxRoiPoolIndex(7, 7, 0.5), "f32[2,9,20,25]", BOXES),
    (OverlapAdd((40, 50), (2, 1), (1,) * 4, (1, 1)), "f32[2,7,3,3,20,50]"),
    (Frames(1, 400, 160), "f32[3,16000]"),
    (Eliminate(), "f64[9,30,30]"),
]


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda c: c.name)
@pytest.mark.sampled(0, "roi_align")
def test_the_examples_agree_with_the_reference(cls: type[Primitive]) -> None:
    for op, *given in cls.examples():
        check(op, *given)


@pytest.mark.parametrize("case", LARGER, ids=lambda c: c[0].name)
@pytest.mark.sampled(7)
def test_larger_tensors_agree_with_the_reference(case: tuple[Any, ...]) -> None:
    check(*case, small=False)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.sampled(4)
def test_places_that_are_no_numbers_read_nothing_outside(mode: str, padding: str) -> None:
    # Where a place far outside is mirrored to depends on the last bit.
    far = [] if padding == "reflection" else [3e38, -3e38, 1e10]
    bad = np.array([np.nan, np.inf, -np.inf, 1.5, *far], np.float32)
    at = np.stack(np.meshgrid(bad, bad), axis=-1).reshape(1, -1, 2)

    with np.errstate(all="ignore"):
        check(Sample(mode, padding), "f32[1,2,4,5]", at)
        check(Spread(mode, padding, extents=(4, 5)), f"f32[1,2,{at.shape[1]}]", at)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38, -3e38])
def test_regions_that_are_no_numbers_read_nothing_outside(bad: float) -> None:
    rois = np.array([[0, bad, 0, 3, 3], [bad, 0, 0, 3, 3], [0, 0, bad, bad, 3]], np.float32)
    images = np.array([0, -(1 << 40), 1 << 40])

    with np.errstate(all="ignore"):
        check(MaxRoiPool(2, 2), "f32[2,2,4,5]", rois)
        check(RoiAlign(2, 2, 1.0, 2), "f32[2,2,4,5]", rois[:, 1:], images)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_an_image_holds_is_nothing_outside(mode: str, bad: float) -> None:
    """Of four samples of each bin, none, two and all lie beside an image that is no number."""
    op = RoiAlign(1, 1, 1.0, 2, mode)
    x = np.full((1, 1, 2, 3), bad, np.float32)
    rois = np.array([[9, 9, 20, 20], [-2, 0, 2, 1], [0, 0, 1, 1]], np.float32)
    with np.errstate(all="ignore"):
        y = op.reference(x, rois, np.zeros(3, np.int64))
        check(op, x, rois, np.zeros(3, np.int64))

    assert np.isfinite(y.ravel()).tolist() == [True, False, False]
    assert y[0] == 0

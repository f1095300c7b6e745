"""Gradients of what reads or writes at places that are data.

Examples are checked in `test_gradients`; here are repeated places, ties, zeros and edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from test_gradients import Array, check, of_example, slope_at, weighted_sum

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType, type_of
from alpenglow.ops.elementwise.floating import Fraction, NextAfter
from alpenglow.ops.image.regions import MaxRoiPool, RoiAlign
from alpenglow.ops.image.resize import Interpolate, Resize
from alpenglow.ops.image.sampling import GridSample, Sample, SampleSlope, Spread
from alpenglow.ops.sequence.signal import Frames
from alpenglow.ops.tensor.gather import (
    REDUCTIONS,
    Gather,
    GatherElements,
    GatherNd,
    OneHot,
    ScatterElements,
    ScatterNd,
)
from alpenglow.ops.tensor.lookup import Lookup
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.ops.window.deform import DeformConv
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.ops.window.unpooling import MaxUnpool

AT = np.array([[2, 0, -1, 9], [2, 2, 1, -9]])
"""Indices of 3 elements: repeated, from the end, and out of range."""

TAPS = np.array([[0, 1, 2, -1], [1, 2, 9, 0]], np.int32)
SHARES = np.array([[0.25, 1, 0.5, -0.5], [0.75, 0, 0.5, 1.5]], np.float32)

BYTES = np.array([[3, 250, 3], [0, 255, 3]], np.uint8)

BOXES = np.array([[1.3, 0.4, 7.1, 5.2], [-3.2, 2.7, 4.6, 3.3], [2, 2.1, 2.2, 2.3], [5, 6, 30, 40]])
BOXES = BOXES.astype(np.float32)
IMAGES = np.array([0, 1, 1, 9])

ALIGNED = {
    f"roi_align {scale} {samples} {half}": (
        RoiAlign(3, 2, scale, samples, "avg", half),
        "f32[2,3,6,7]",
        BOXES,
        IMAGES,
    )
    for scale, samples, half in ((0.5, 2, True), (0.9, 0, True), (1.1, 1, False), (0.2, 0, False))
}

WHOLE = (1, 2, 6, 9)
"""Extents that an image of 5 by 4 is resized to."""

CASES: dict[str, tuple[Any, ...]] = {
    "gather": (Gather(1), "f32[2,3,5]", AT),
    "gather of rows": (Gather(0), "f32[3,40]", AT),
    "gather of numbers": (Gather(0), "f32[3]", AT),
    "gather of none": (Gather(0), "f32[3,2]", np.zeros((0, 2), np.int64)),
    "gather_elements": (GatherElements(1), "f32[2,3]", AT),
    "gather_nd": (GatherNd(1), "f32[2,3,5]", AT[..., None]),
    "sum_at": (SumAt(-2, 3), "f32[2,4,5]", AT, None),
    "interpolate": (Interpolate(1, "f32"), "f32[2,3,5]", TAPS, SHARES),
    "lookup": (Lookup(), BYTES, "f32[256]"),
    "lookup of negatives": (Lookup(), BYTES.view(np.int8), "f32[256]"),
    "one_hot": (OneHot(3, 0), AT, "f32[2]"),
    "frames": (Frames(1, 5, 2), "f32[2,12,3]"),
    "frames apart": (Frames(0, 3, 5), "f32[17]"),
    "frames to the end": (Frames(0, 4, 4), "f32[12,2]"),
    "frames of one": (Frames(0, 1, 1), "f32[4]"),
    "grid_sample": (GridSample(), "f32[2,3,4,5]", "f32[2,3,7,2]"),
    "grid_sample cubic": (GridSample("cubic", "reflection", True), "f32[2,3,4,5]", "f32[2,9,1,2]"),
    "grid_sample nearest": (GridSample("nearest", "border"), "f32[2,3,4,5]", "f32[2,9,1,2]"),
    "deform_conv": (
        DeformConv((2, 1), (1, 0, 0, 1), (1, 2), 2, 2),
        "f32[2,4,5,6]",
        "f32[6,2,3,2]",
        "f32[2,24,2,5]",
        "f32[6]",
        "f32[2,12,2,5]",
    ),
    **ALIGNED,
    "max_unpool": (MaxUnpool((2, 3)), "f32[2,4]", AT),
    "max_pool": (MaxPool((3, 2), (1, 2), (1, 0, 1, 1), (2, 1), True), "f32[2,3,7,6]"),
    "max_pool of none": (MaxPool((2,), (2,), (0, 0), (1,)), "f32[0,3,6]"),
    **{
        f"scatter_elements {r}": (ScatterElements(1, r), "f32[2,3]", AT, "f32[2,4]")
        for r in REDUCTIONS
    },
    **{
        f"scatter_nd {r}": (ScatterNd(r), "f32[3,2]", AT[..., None], "f32[2,4,2]")
        for r in REDUCTIONS
    },
    **{
        f"resize {m}": (Resize(WHOLE, mode=m), "f32[1,2,5,4]")
        for m in ("nearest", "linear", "cubic")
    },
}


def operands_of(operands: Sequence[Any]) -> list[Array | None]:
    """Return arrays for the operands of a case, with random floats."""
    random = np.random.default_rng(7)
    return [
        random.uniform(-2, 2, TensorType.parse(x).extents).astype(np.float32)
        if isinstance(x, str)
        else x
        for x in operands
    ]


@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_gradients_agree_with_differences(name: str) -> None:
    op, *operands = CASES[name]
    # Weights of f32 have gradients of their own, which differences are too coarse for.
    g, y, feeds = of_example(op, operands) if name != "interpolate" else interpolated()

    check(g, y, feeds)


def interpolated() -> tuple[Graph, Any, dict[str, Array]]:
    g = Graph("interpolated")
    x = g.input("x", "f64[2,3,5]")
    y = g(Interpolate(1, "f64"), x, g.constant(TAPS), g.constant(SHARES))
    return g, weighted_sum(g, [y]), {"x": np.random.default_rng(0).standard_normal((2, 3, 5))}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", CASES)
def test_compiled_gradients_agree_with_evaluated_ones(name: str) -> None:
    op, *operands = CASES[name]
    assert_compiled(op, operands_of(operands))


def assert_compiled(op: Op, operands: Sequence[Array | None], second: bool = False) -> None:
    """Assert that gradients by all floats are compiled, and are what they are evaluated to.

    With `second` they are those of the gradients.
    """
    g = Graph("step")
    xs = [None if x is None else g.input(f"x{i}", type_of(x)) for i, x in enumerate(operands)]
    leaves = [v for v in g.inputs.values() if v.type.dtype in ("f32", "f64")]
    results = [v for v in g.add(op, xs).results if v.type.dtype == "f32"]
    total = weighted_sum(g, results)
    if second:
        total = weighted_sum(g, gradients(g, total, leaves))
    for v, dv in zip(leaves, gradients(g, total, leaves), strict=True):
        g.output(f"d{v.name}", dv)
    g.prune()
    feeds = {f"x{i}": x for i, x in enumerate(operands) if x is not None}
    exe = ag.compile(g, threads=1)
    with np.errstate(all="ignore"):
        expected = evaluate(g, feeds)
    actual = exe.run(feeds)

    assert all(entry.kernel for entry in exe.artifact.table)
    for key, value in expected.items():
        np.testing.assert_allclose(actual[key], value, 1e-4, 1e-4, err_msg=key)


@pytest.mark.parametrize("op", [ScatterElements(0, "mul"), ScatterNd("mul")])
def test_zeros_do_no_harm_to_products(op: Op) -> None:
    at = np.array([0, 0, 1, 1, 1, 2, 3])
    at = at if isinstance(op, ScatterElements) else at[:, None]
    g = Graph("products")
    x, u = g.input("x", "f64[5]"), g.input("u", "f64[7]")
    feeds = {"x": np.array([2.0, 0, 0, 0, 0]), "u": np.array([3.0, 0, 0, 0, 5, 7, 0])}
    y = weighted_sum(g, [g(op, x, g.constant(at), u)])
    by_x, by_u = gradients(g, y, [x, u])
    slopes = weighted_sum(g, [by_x, by_u])
    g.output("by x", by_x)
    g.output("by u", by_u)
    found = evaluate(g, feeds)

    assert (found["by x"] != 0).tolist() == [False, False, True, False, True]
    assert (found["by u"] != 0).tolist() == [False, True, *[False] * 5]
    check(g, slopes, feeds)  # what is 0 of a gradient changes nevertheless


@pytest.mark.parametrize("reduction", ["min", "max"])
def test_equal_extremes_share_a_gradient(reduction: str) -> None:
    g = Graph("ties")
    x, u = g.input("x", "f64[3]"), g.input("u", "f64[4]")
    at = g.constant(np.array([0, 0, 0, 2]))
    y = g(ScatterElements(0, reduction), x, at, u)
    for name, v in zip(
        "xu", gradients(g, y, [x, u], dy=g.constant(np.array([6.0, 1, 8]))), strict=True
    ):
        g.output(name, v)
    far = np.array([5.0, 5, 0, 7]) * (1 if reduction == "max" else -1)
    found = evaluate(g, {"x": np.full(3, far[0]), "u": far})

    assert found["x"].tolist() == [2, 1, 0]
    assert found["u"].tolist() == [2, 2, 0, 8]


def test_the_last_update_of_a_place_arrives_whatever_their_number() -> None:
    g = Graph("open")
    x, u, at = g.input("x", "f32[3]"), g.input("u", "f32[N]"), g.input("at", "i64[N]")
    y = g(ScatterElements(0), x, at, u)
    for name, v in zip(("dx", "du"), gradients(g, y, [x, u]), strict=True):
        g.output(name, v)
    g.prune()
    exe = ag.compile(g, threads=1)
    for places, arrive, stay in (([0], [1], [0, 1, 1]), ([1, 2, 1, -1], [0, 0, 1, 1], [1, 0, 0])):
        u_feed = np.ones(len(places), np.float32)
        found = exe.run({"x": np.zeros(3, np.float32), "u": u_feed, "at": np.array(places)})

        assert (found["du"].tolist(), found["dx"].tolist()) == (arrive, stay)


def test_frames_of_open_signals_are_put_back() -> None:
    g = Graph("open")
    x = g.input("x", "f32[N,2]")
    g.output("dx", gradients(g, g(Frames(0, 5, 2), x), [x])[0])
    g.prune()
    exe = ag.compile(g, threads=1)
    for n in (5, 6, 12):
        starts = np.arange(0, n - 4, 2)
        expected = np.bincount((starts[:, None] + np.arange(5)).reshape(-1), minlength=n)

        assert exe(np.ones((n, 2), np.float32))[:, 1].tolist() == expected.tolist()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_images_of_open_extents_are_resized_and_back(mode: str) -> None:
    g = Graph("open")
    x = g.input("x", "f32[1,2,H,W]")
    *outer, h, w = x.type.shape
    g.output("dx", gradients(g, g(Resize((*outer, h * 2, w * 2), mode=mode), x), [x])[0])
    exe = ag.compile(g, threads=1)
    for h, w in ((3, 4), (8, 8)):
        found = exe(np.zeros((1, 2, h, w), np.float32))

        np.testing.assert_allclose(found.sum(), 2 * 4 * h * w, 1e-5)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_halves_are_added_up_in_single_precision(dtype: str) -> None:
    """Where 4000 ones meet, halves of their own would stay at 2048 or at 256."""
    numpy = TensorType(dtype, ()).numpy
    rows, ones, at = np.zeros((2, 3), numpy), np.ones((1, 1, 4000), numpy), np.zeros(4000, np.int64)

    assert slope_at(Gather(0), rows, at)[0].tolist() == [4000] * 3
    assert slope_at(GatherElements(0), rows[0], at)[0] == 4000
    assert slope_at(GatherNd(), rows, at[:, None])[0].tolist() == [4000] * 3
    ramp = np.arange(4000).astype(numpy)[None, None]
    pooled = MaxPool((4000,), (1,), (3999, 3999), (1,))
    assert (
        slope_at(pooled, np.where(np.arange(4000) == 9, numpy.type(9999), ramp * 0))[0, 0, 9]
        == 4000
    )
    assert ones.shape == ramp.shape


def test_weights_of_interpolation_have_gradients() -> None:
    g = Graph("weights")
    x, w = g.input("x", "f32[2,3,5]"), g.input("w", "f32[2,4]")
    y = weighted_sum(g, [g(Interpolate(1, "f32"), x, g.constant(TAPS), w)])
    g.output("y", y)
    g.output("dw", gradients(g, y, [w])[0])
    feeds = {
        "x": np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32),
        "w": SHARES,
    }
    way = np.float32(np.arange(8).reshape(2, 4))
    before, after = evaluate(g, feeds), evaluate(g, feeds | {"w": SHARES + way})

    np.testing.assert_allclose(after["y"] - before["y"], np.sum(before["dw"] * way), 1e-4)


def test_fractions_are_divided_by_a_power_of_two() -> None:
    x = np.array([0, -0.0, 1, -3, 0.75, 1e-40, 3e38, 1e-30], np.float32)
    slopes = slope_at(Fraction(), x)

    assert slopes[[0, 1, 2, 3, 4]].tolist() == [1, 1, 0.5, 0.25, 1]
    np.testing.assert_allclose(slopes[[6, 7]] * x[[6, 7]], np.frexp(x[[6, 7]])[0], 1e-5)
    assert np.isinf(slopes[5])  # 2 raised to 132


def test_steps_of_rounding_have_no_gradient() -> None:
    with pytest.raises(UnsupportedError, match="next_after is not supported"):
        slope_at(NextAfter(), np.ones(1), np.ones(1))


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_what_is_read_at_an_end_does_not_change_with_the_place(padding: str) -> None:
    g = Graph("ends")
    x, at = g.input("x", "f64[1,1,3]"), g.input("at", "f64[1,5,1]")
    y = g(Sample("linear", padding, True), x, at)
    g.output("slope", gradients(g, y, [at])[0])
    places = np.array([0, 2, 0.5, 1, -0.5]).reshape(1, 5, 1)
    found = evaluate(g, {"x": np.array([[[0.0, 1, 3]]]), "at": places})

    beyond = 0 if padding == "border" else -1
    assert found["slope"].reshape(-1).tolist() == [0, 0, 1, 2, beyond]


@pytest.mark.parametrize("op", [Sample("cubic", "border"), Sample("linear", "zeros", False, True)])
def test_gradients_of_sampled_gradients_are_compiled(op: Op) -> None:
    assert_compiled(op, operands_of(["f32[2,3,4,5]", "f32[2,6,2]"]), second=True)


def test_what_is_flat_is_not_asked_for_its_slope() -> None:
    slopes = slope_at(Spread("nearest", extents=(4,)), np.ones((1, 2, 3)), np.zeros((1, 3, 1)))

    assert slopes.tolist() == np.ones((1, 2, 3)).tolist()
    with pytest.raises(TypeRuleError, match="expected linear or cubic"):
        g = Graph("flat")
        operands = [g.input(n, "f32[1,1,1]") for n in ("y", "x", "at")]
        g(SampleSlope("nearest"), *operands)


REGIONS = np.concatenate([IMAGES[:, None], BOXES], axis=1).astype(np.float32)

POOLED: dict[str, tuple[Any, ...]] = {
    "largest part": (RoiAlign(3, 2, 0.9, 2, "max"), BOXES, IMAGES),
    "largest of a sample an element": (
        RoiAlign(2, 3, 0.61, 0, "max", False),
        BOXES,
        IMAGES,
    ),
    "largest element": (MaxRoiPool(3, 2, 0.7), REGIONS),
    "largest of small bins": (MaxRoiPool(2, 17, 0.7), REGIONS),
}


@pytest.mark.parametrize("name", POOLED)
def test_the_largest_of_a_region_gets_its_gradient(name: str) -> None:
    op, regions, *batch = POOLED[name]
    for dtype in ("f64", "f32"):
        numpy = TensorType(dtype, ()).numpy
        g = Graph("largest")
        x = g.input("x", f"{dtype}[2,3,6,7]")
        y = weighted_sum(g, [g(op, x, *map(g.constant, (regions.astype(numpy), *batch)))])
        feeds = {"x": np.random.default_rng(0).standard_normal((2, 3, 6, 7)).astype(numpy)}
        if dtype == "f64":
            check(g, y, feeds)
            continue
        g.output("dx", gradients(g, y, [x])[0])
        exe = ag.compile(g, threads=1)
        expected = evaluate(g, feeds)["dx"]

        assert all(entry.kernel for entry in exe.artifact.table)
        np.testing.assert_allclose(exe.run(feeds)["dx"], expected, 1e-4, 1e-5)


def test_regions_move_means_and_not_the_largest_elements() -> None:
    image = np.ones((1, 1, 4, 4))
    slopes = slope_at(MaxRoiPool(2, 2), image, np.array([[0.0, 0, 0, 3, 3]]))

    assert slopes.sum() == 4
    g = Graph("regions")
    x, rois, batch = g.input("x", "f64[1,1,4,4]"), g.input("r", "f64[1,4]"), g.input("b", "i64[1]")
    y = g(RoiAlign(2, 2, mode="max"), x, rois, batch)
    gradients(g, y, [x])
    with pytest.raises(UnsupportedError, match="by rois is not supported"):
        gradients(g, y, [rois])


@pytest.mark.parametrize(("extent", "size"), [(6, 13), (13, 6), (40, 6)])
def test_infinite_gradients_of_resizing_reach_what_was_read_alone(extent: int, size: int) -> None:
    """Compiled, each element reads its addends from a table; what some lack is no NaN."""
    g = Graph("infinite")
    x, dy = g.input("x", f"f32[8,{extent}]"), g.input("dy", f"f32[8,{size}]")
    y = g(Resize((8, size), mode="linear"), x)
    g.output("dx", gradients(g, y, [x], [], dy)[0])
    feeds = {"x": np.zeros((8, extent), np.float32), "dy": np.ones((8, size), np.float32)}
    feeds["dy"][:, [0, -1]] = np.inf
    expected = evaluate(g, feeds)["dx"]
    dx = ag.compile(g).run(feeds)["dx"]

    known = ~np.isnan(expected)  # the reference multiplies infinities by weights of 0
    assert np.isinf(dx).any() and np.isfinite(dx).any() and not np.isnan(dx).any()
    np.testing.assert_allclose(dx[known], expected[known], rtol=1e-6)

"""Resize and Upsample of ONNX, against ONNX Runtime and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.evaluate import evaluate
from alpenglow.frontends.onnx import load
from alpenglow.ir.dims import Dim, symbol
from alpenglow.ir.graph import Graph
from alpenglow.ops.image.resize import NEAREST, Interpolate, Resize
from alpenglow.passes.lower import lower
from onnx_node import Array, assert_close, node_model, ours, references, runtimes

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).uniform(-9, 9, shape).astype(np.float32)


def floats(*values: float) -> Array:
    return np.array(values, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


EMPTY = {"roi": floats(), "scales": floats()}


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
@pytest.mark.parametrize("sizes", [(8, 10), (3, 4), (1, 9), (5, 5)])
def test_nearest_agrees_in_all_modes(
    coordinates: str, nearest: str, sizes: tuple[int, int]
) -> None:
    feeds = {"x": drawn(1, 2, 4, 5)}
    model = node_model(
        "Resize", feeds, {**EMPTY, "sizes": ints(1, 2, *sizes)}, opset=13, mode="nearest",
        coordinate_transformation_mode=coordinates, nearest_mode=nearest,
    )  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("sizes", [(8, 10), (3, 4), (1, 9), (7, 3)])
def test_interpolation_agrees(mode: str, coordinates: str, sizes: tuple[int, int]) -> None:
    feeds = {"x": drawn(1, 2, 4, 5)}
    model = node_model(
        "Resize", feeds, {**EMPTY, "sizes": ints(1, 2, *sizes)}, opset=13, mode=mode,
        coordinate_transformation_mode=coordinates,
    )  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("scales", [(2.0, 3.0), (0.6, 1.5), (0.5, 0.8)])
@pytest.mark.parametrize(
    ("mode", "attributes"),
    [
        ("nearest", {}),
        ("linear", {}),
        ("cubic", {"cubic_coeff_a": -0.5}),
        ("cubic", {"exclude_outside": 1}),
        ("nearest", {"coordinate_transformation_mode": "half_pixel_symmetric"}),
        ("linear", {"coordinate_transformation_mode": "half_pixel_symmetric"}),
    ],
)
def test_scales_agree(scales: tuple[float, float], mode: str, attributes: dict[str, Any]) -> None:
    feeds = {"x": drawn(1, 2, 4, 10)}
    constants = {"roi": floats(), "scales": floats(1, 1, *scales)}
    model = node_model("Resize", feeds, constants, opset=19, mode=mode, **attributes)

    assert_close(references(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("sizes", [(3, 4), (5, 20)])
def test_antialiasing_agrees_with_the_reference(mode: str, sizes: tuple[int, int]) -> None:
    feeds = {"x": drawn(1, 1, 8, 11)}
    constants = {**EMPTY, "sizes": ints(1, 1, *sizes)}
    model = node_model("Resize", feeds, constants, opset=18, mode=mode, antialias=1)

    assert_close(references(model, feeds), ours(model, feeds), 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_region_is_cropped_and_extrapolated(mode: str) -> None:
    feeds = {"x": drawn(1, 1, 4, 6)}
    roi = floats(0, 0, 0.4, -0.3, 1, 1, 1.2, 0.8)
    constants = {"roi": roi, "scales": floats(), "sizes": ints(1, 1, 5, 7)}
    model = node_model(
        "Resize", feeds, constants, opset=13, mode=mode, extrapolation_value=3.5,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("policy", ["stretch", "not_larger", "not_smaller"])
def test_the_aspect_ratio_is_kept(policy: str) -> None:
    feeds = {"x": drawn(1, 1, 4, 6)}
    constants = {**EMPTY, "sizes": ints(9, 7)}
    model = node_model(
        "Resize", feeds, constants, opset=18, mode="linear", axes=[3, 2],
        keep_aspect_ratio_policy=policy,
    )  # fmt: skip

    assert_close(references(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(("op", "opset"), [("Upsample", 7), ("Upsample", 9), ("Resize", 10)])
def test_old_forms_agree(op: str, opset: int, mode: str) -> None:
    feeds = {"x": drawn(1, 2, 3, 4)}
    scales = [1.0, 1.0, 2.0, 1.5]
    constants = {} if opset == 7 else {"scales": floats(*scales)}
    attributes = {"scales": scales} if opset == 7 else {}
    model = node_model(op, feeds, constants, opset=opset, mode=mode, **attributes)

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


@pytest.mark.parametrize("dtype", ["uint8", "int32", "float16"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_other_element_types_are_resampled(dtype: str, mode: str) -> None:
    feeds = {"x": np.random.default_rng(0).integers(0, 50, (1, 1, 4, 5)).astype(dtype)}
    constants = {**EMPTY, "sizes": ints(1, 1, 8, 10)}
    model = node_model("Resize", feeds, constants, opset=13, mode=mode)
    peer = references if dtype == "float16" else runtimes

    assert_close(peer(model, feeds), ours(model, feeds), 2e-3)


@pytest.mark.parametrize("scale", [1 / 3, 2 / 3, 0.1, 1.2])
def test_positions_are_rounded_to_single_precision(scale: float) -> None:
    feeds = {"x": drawn(60)}
    constants = {"roi": floats(), "scales": floats(scale)}
    model = node_model(
        "Resize", feeds, constants, opset=11, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip

    assert_close(runtimes(model, feeds), ours(model, feeds), 0)


def test_an_extent_is_scaled_in_single_precision() -> None:
    feeds = {"x": drawn(1, 1, 1, 10)}
    constants = {"roi": floats(), "scales": floats(1, 1, 1, 0.7)}
    model = node_model("Resize", feeds, constants, opset=13, mode="linear")

    assert_close(runtimes(model, feeds), ours(model, feeds), 1e-5)


def test_open_extents_are_scaled_and_bound_later() -> None:
    feeds = {"x": drawn(1, 1, 3, 5)}
    constants = {"roi": floats(), "scales": floats(1, 1, 2, 0.5)}
    model = node_model("Resize", feeds, constants, opset=13, mode="linear")
    expected = runtimes(model, feeds)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    dims[2].dim_param, dims[3].dim_param = "H", "W"
    g = load(model)
    found = evaluate(g.bind({"H": 3, "W": 5}), feeds)

    assert g.outputs["y"].type.shape[2:] == (symbol("H") * 2, symbol("W") // 2)
    assert_close(expected, list(found.values()), 1e-5)


def test_a_blocked_tensor_stays_blocked() -> None:
    g = Graph()
    x = g.input("x", "f32[1,20/16,3,4,16]")

    assert str(g(Resize((1, 2, 6, 8, 16)), x).type) == "f32[1,20/16,6,8,16]"


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"mode": "sharp"}, "sharp"),
        ({"coordinate_transformation_mode": "centre"}, "centre"),
        ({"nearest_mode": "odd"}, "odd"),
    ],
)
def test_unknown_modes_are_reported(attributes: dict[str, Any], message: str) -> None:
    constants = {**EMPTY, "sizes": ints(1, 1, 8, 10)}
    model = node_model("Resize", {"x": drawn(1, 1, 4, 5)}, constants, opset=13, **attributes)

    with pytest.raises(TypeRuleError, match=message):
        load(model)


def test_scales_that_do_not_fit_are_reported() -> None:
    constants = {"scales": floats(1, -2)}
    model = node_model("Upsample", {"x": drawn(4, 5)}, constants, opset=9)

    with pytest.raises(ModelError, match="expected finite numbers above 0"):
        load(model)


SETTINGS: list[dict[str, Any]] = [
    {"mode": mode, "coordinates": coordinates}
    for mode in ("nearest", "linear", "cubic")
    for coordinates in (*COORDINATES, "half_pixel_symmetric")
]
SETTINGS += [{"mode": "nearest", "nearest": rule} for rule in NEAREST]
SETTINGS += [{"mode": mode, "exclude_outside": True} for mode in ("linear", "cubic")]


def resized_to(sizes: tuple[Dim, ...], scales: tuple[float, ...], **settings: Any) -> Graph:
    g = Graph()
    x = g.input("x", "f32[1,2,H,W]")
    g.input("like", "f32[A,B]")
    g.output("y", g(Resize(sizes, scales, **settings), x))
    return g


def assert_one_compilation_serves(g: Graph, extents: list[tuple[int, int, int, int]]) -> None:
    exe = ag.compile(g, threads=1)
    for h, w, a, b in extents:
        feeds = {"x": drawn(1, 2, h, w), "like": drawn(a, b)}
        expected = evaluate(g.bind({"H": h, "W": w, "A": a, "B": b}), feeds)
        assert_close(list(expected.values()), list(exe.run(feeds).values()), 1e-5)

    assert len(exe.artifacts) == 1


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.sampled(4)
def test_open_extents_resized_to_others_compile_once(settings: dict[str, Any]) -> None:
    g = resized_to((1, 2, symbol("A"), symbol("B")), (), **settings)

    assert_one_compilation_serves(g, [(5, 7, 9, 6), (12, 33, 11, 40), (3, 9, 2, 2), (6, 8, 6, 8)])


@pytest.mark.parametrize("settings", [*SETTINGS, {"mode": "linear", "antialias": True}], ids=str)
@pytest.mark.sampled(4)
def test_open_extents_resized_by_scales_compile_once(settings: dict[str, Any]) -> None:
    sizes = (1, 2, symbol("H") * 5 // 2, symbol("W") * 2 // 3)
    g = resized_to(sizes, (1.0, 1.0, 2.5, float(np.float32(2 / 3))), **settings)

    assert_one_compilation_serves(g, [(5, 7, 2, 2), (12, 33, 2, 2), (4, 6, 2, 2)])


def test_an_open_batch_does_not_hinder_lowering() -> None:
    g = Graph()
    x = g.input("x", "f32[N,2,3,4]")
    op = Resize((*x.type.shape[:2], 6, 8), mode="linear")

    assert str(op.lower(g, x).type) == "f32[N,2,6,8]"


@pytest.mark.parametrize(("size", "axes"), [(4, [2, 3]), (16, [3, 2])])
def test_few_rows_are_resized_along_the_last_axis(size: int, axes: list[int]) -> None:
    """Rows are added up before if they get fewer by that, and after if they get more."""
    g = resized_to((1, 2, size, size), (), mode="linear")
    lowered = lower(g.bind({"H": 8, "W": 8, "A": 1, "B": 1}))

    assert [n.op.axis for n in lowered.nodes if isinstance(n.op, Interpolate)] == axes

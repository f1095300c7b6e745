"""Sampling, regions of interest, unpooling, determinants and images, against ONNX's node tests and
ONNX Runtime."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from PIL import Image

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, ModelError, TypeRuleError
from alpenglow.frontends.onnx import load
from alpenglow.frontends.onnx.convert import image as convert_image
from node_cases import cases, check_cases
from onnx_node import Array, assert_close, ours, runtimes, single

CONSTANTS = {
    "AffineGrid": (1,),
    "Col2Im": (1, 2),
    "DeformConv": (),
    "Det": (),
    "GridSample": (),
    "MaxUnpool": (2,),
    "RoiAlign": (),
}
"""Operators, and which of their operands must be known."""

DISPUTED = {"test_maxunpool_export_with_output_shape"}
"""Cases whose indices count in another tensor than the one that was pooled (onnx issue 2398)."""


def drawn(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def agree(
    op: str, inputs: Sequence[Array | None], opset: int, constants: Sequence[int] = (),
    tolerance: float = 1e-4, **attributes: Any,
) -> None:  # fmt: skip
    """Assert that the interpreter and compiled code agree with ONNX Runtime on one node."""
    model = single(op, inputs, opset, 1, constants, **attributes)
    expected = runtimes(model, inputs)
    exe = ag.compile(model, threads=1)
    feeds = [x for i, x in enumerate(inputs) if x is not None and i not in constants]

    assert_close(expected, ours(model, inputs), tolerance)
    assert_close(expected, [exe(*feeds)], tolerance)
    assert all(entry.kernel for entry in exe.artifact.table)


@pytest.mark.parametrize("op", CONSTANTS)
@pytest.mark.sampled(4)
def test_the_node_tests_pass(op: str) -> None:
    check_cases([c for c in cases(op, CONSTANTS[op]) if c.name not in DISPUTED])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize(
    ("opset", "mode"),
    [(16, "bilinear"), (16, "bicubic"), (16, "nearest"), (20, "linear"), (22, "cubic")],
)
@pytest.mark.sampled(10)
def test_grids_are_sampled_as_onnx_runtime_does(
    opset: int, mode: str, padding: str, align: int
) -> None:
    grid = np.random.default_rng(1).uniform(-1.4, 1.4, (2, 4, 6, 2)).astype(np.float32)
    agree("GridSample", [drawn(2, 3, 5, 7), grid], opset, mode=mode, padding_mode=padding,
          align_corners=align)  # fmt: skip


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_volumes_are_sampled(mode: str, padding: str) -> None:
    grid = np.random.default_rng(1).uniform(-1.4, 1.4, (1, 2, 3, 4, 3)).astype(np.float32)
    agree("GridSample", [drawn(1, 2, 3, 4, 5), grid], 20, mode=mode, padding_mode=padding)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("samples", [0, 2])
@pytest.mark.parametrize("coordinates", ["", "half_pixel", "output_half_pixel"])
@pytest.mark.sampled(6)
def test_regions_are_aligned(mode: str, samples: int, coordinates: str) -> None:
    rois = np.random.default_rng(1).uniform(0, 20, (6, 4)).astype(np.float32)
    rois[:, 2:] += rois[:, :2]
    images = np.array([0, 1, 0, 1, 1, 0])
    where = {"coordinate_transformation_mode": coordinates} if coordinates else {}
    agree("RoiAlign", [drawn(2, 3, 12, 15), rois, images], 16 if where else 10, mode=mode,
          sampling_ratio=samples, spatial_scale=0.31, output_height=3, output_width=5,
          **where)  # fmt: skip


@pytest.mark.parametrize("scale", [1.0, 0.5, 0.33])
def test_regions_are_pooled(scale: float) -> None:
    rois = np.array(
        [[0, 1, 2, 9, 8], [1, 30, 30, 40, 40], [1, -5, -5, 3, 3], [0, 6.5, 3.5, 1, 1]], np.float32
    )
    agree("MaxRoiPool", [drawn(2, 3, 12, 15), rois], 1, pooled_shape=[3, 4], spatial_scale=scale)


@pytest.mark.parametrize(
    ("offset_group", "group", "masked", "biased"),
    [(1, 1, False, False), (2, 1, True, True), (2, 2, True, False), (1, 2, False, True)],
)
def test_convolutions_are_deformed(
    offset_group: int, group: int, masked: bool, biased: bool
) -> None:
    inputs = [drawn(2, 4, 7, 8), drawn(6, 4 // group, 3, 2), drawn(2, offset_group * 12, 4, 7),
              drawn(6) if biased else None,
              drawn(2, offset_group * 6, 4, 7) if masked else None]  # fmt: skip
    agree("DeformConv", inputs, 19, strides=[2, 1], pads=[1, 0, 1, 1], dilations=[1, 2],
          group=group, offset_group=offset_group)  # fmt: skip


def test_columns_become_an_image() -> None:
    inputs = [drawn(2, 18, 16), np.array([7, 8]), np.array([2, 3])]
    agree("Col2Im", inputs, 18, (1, 2), strides=[2, 3], pads=[0, 1, 1, 3])


@pytest.mark.parametrize("shape", [None, (2, 3, 5, 7)])
def test_what_was_pooled_is_put_back(shape: tuple[int, ...] | None) -> None:
    x = drawn(2, 3, 5, 7) if shape else drawn(2, 3, 4, 6)
    pool = single("MaxPool", [x], 12, outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    best, index = runtimes(pool, [x])
    wanted = [] if shape is None else [np.array(shape)]
    agree("MaxUnpool", [best, index, *wanted], 11, (2,), kernel_shape=[2, 2], strides=[2, 2])


@pytest.mark.parametrize("n", [1, 2, 5, 20])
def test_determinants_agree(n: int) -> None:
    agree("Det", [drawn(3, n, n)], 11, tolerance=1e-3)


@pytest.mark.parametrize("align", [0, 1])
def test_affine_grids_agree(align: int) -> None:
    agree("AffineGrid", [drawn(2, 3, 4), np.array([2, 1, 4, 5, 6])], 20, (1,), align_corners=align)


def test_open_extents_in_different_symbols_are_taken_to_be_equal() -> None:
    x, grid = drawn(2, 3, 5, 7), drawn(2, 4, 6, 2) / 3
    model = single("GridSample", [x, grid], 20)
    expected = runtimes(model, [x, grid])
    for k, i in enumerate(model.graph.input):
        i.type.tensor_type.shape.dim[0].dim_param = f"batch_{k}"
        i.type.tensor_type.shape.dim[2].dim_param = f"height_{k}"

    assert_close(expected, [ag.compile(model, threads=1)(x, grid)], 1e-5)


@pytest.mark.parametrize("pixels", ["RGB", "BGR", "Grayscale"])
@pytest.mark.parametrize("form", ["png", "bmp", "tiff", "ppm", "gif"])
def test_images_are_decoded(form: str, pixels: str) -> None:
    image = np.arange(4 * 5 * 3, dtype=np.uint8).reshape(4, 5, 3) * 4
    stream = encoded(image, form)
    model = single("ImageDecoder", [stream], 20, constants=[0], pixel_format=pixels)
    grey = np.asarray(Image.fromarray(image).convert("L"))[:, :, None]
    expected = {"RGB": image, "BGR": image[:, :, ::-1], "Grayscale": grey}[pixels]

    assert_close([expected], ours(model, []), 0)


def encoded(image: Array, form: str) -> Array:
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, form)
    return np.frombuffer(stream.getvalue(), np.uint8)


def test_the_node_tests_of_images_pass() -> None:
    check_cases(cases("ImageDecoder", (0,)))


def test_a_stream_that_is_no_image_is_reported() -> None:
    with pytest.raises(ModelError, match="expected an image in encoded_stream"):
        load(single("ImageDecoder", [np.arange(99, dtype=np.uint8)], 20, constants=[0]))


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert_image, "find_spec", lambda name: None)

    with pytest.raises(AlpenglowError, match="Pillow"):
        load(single("ImageDecoder", [np.arange(9, dtype=np.uint8)], 20, constants=[0]))


@pytest.mark.parametrize(
    ("op", "inputs", "constants", "attributes", "message"),
    [
        ("GridSample", [drawn(1, 2, 3, 3), drawn(1, 2, 2, 3)], (), {}, "positions, 2"),
        ("GridSample", [drawn(1, 2, 3, 3), drawn(1, 2, 2, 2)], (), {"mode": "far"}, "far"),
        ("RoiAlign", [drawn(1, 2, 3, 3), drawn(2, 5), np.zeros(2, np.int64)], (), {}, "rois"),
        ("Col2Im", [drawn(1, 7, 4), np.array([3, 3]), np.array([2, 2])], (1, 2), {}, "multiples"),
        ("Det", [drawn(2, 3)], (), {}, "square"),
        ("AffineGrid", [drawn(1, 2, 3), np.array([1, 2, 3])], (1,), {}, "size"),
        ("DeformConv", [drawn(1, 1, 3, 3), drawn(1, 1, 2, 2), drawn(1, 7, 2, 2)], (), {}, "offset"),
    ],
)
def test_what_does_not_fit_is_reported(
    op: str, inputs: list[Array], constants: Sequence[int], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises((ModelError, TypeRuleError), match=message):
        load(single(op, inputs, 20, constants=constants, **attributes))

"""Converters for reading images between their elements, for regions of interest, and for windows
that are put back.
"""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import FLOATS
from alpenglow.ops.image.regions import MaxRoiPool, RoiAlign
from alpenglow.ops.image.sampling import AffineGrid, GridSample
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.movement import Concat, Reshape, Slice
from alpenglow.ops.window.deform import DeformConv
from alpenglow.ops.window.unpooling import MaxUnpool, OverlapAdd
from alpenglow.ops.window.window import conv_extent

OLD_MODES = {"bilinear": "linear", "bicubic": "cubic"}
"""Modes of GridSample before opset 20."""


@on("GridSample", since=16)
def grid_sample(s: Site) -> Made:
    mode = s.attribute("mode", "linear")
    aligned = bool(s.attribute("align_corners", 0))
    op = GridSample(OLD_MODES.get(mode, mode), s.attribute("padding_mode", "zeros"), aligned)
    x, grid = s.input(0), s.input(1)
    return s.g(op, x, matched(s, grid, (*x.type.shape[:1], *grid.type.shape[1:])))


def matched(s: Site, v: Value, shape: tuple[Dim, ...]) -> Value:
    """Return v in the shape that it must have, where open extents say that in other symbols."""
    pairs = list(zip(v.type.shape, shape, strict=False))
    same = all(a == b for a, b in pairs)
    apart = any(known(a) and known(b) and a != b for a, b in pairs)
    return v if same or apart or len(shape) != v.type.rank else s.g(Reshape(shape), v)


@on("AffineGrid", since=20)
def affine_grid(s: Site) -> Made:
    theta, size = s.input(0), s.dims(1)
    if len(size) not in (4, 5):
        raise s.wrong(f"size has {len(size)} elements, expected 4 or 5")
    batch = theta.type.shape[0]
    if known(size[0]) and known(batch) and batch != size[0]:
        raise s.wrong(f"size is {size}, expected batch {batch} as theta {theta.type}")
    return s.g(AffineGrid(size[2:], bool(s.attribute("align_corners", 0))), theta)


@on("DeformConv", since=19)
def deform_conv(s: Site) -> Made:
    x, w = s.input(0), s.input(1)
    spatial = x.type.rank - 2
    op = DeformConv(
        s.attribute("strides", (1,) * spatial),
        s.attribute("pads", (0,) * (2 * spatial)),
        s.attribute("dilations", (1,) * spatial),
        s.attribute("group", 1),
        s.attribute("offset_group", 1),
    )
    out = Conv(op.strides, op.pads, op.dilations, op.group).infer(x.type, w.type).shape[2:]
    taps = product(w.type.shape[2:]) * op.offset_group
    offset = matched(s, s.input(2), (x.type.shape[0], taps * spatial, *out))
    mask = s.optional(4)
    if mask is not None:
        mask = matched(s, mask, (x.type.shape[0], taps, *out))
    return s.g(op, x, w, offset, s.optional(3), mask)


@on("RoiAlign", since=10)
def roi_align_whole(s: Site) -> Made:
    return aligned_regions(s, False)


@on("RoiAlign", since=16)
def roi_align(s: Site) -> Made:
    mode = s.attribute("coordinate_transformation_mode", "half_pixel")
    if mode not in ("half_pixel", "output_half_pixel"):
        raise s.wrong(
            f"coordinate_transformation_mode is '{mode}', expected half_pixel or output_half_pixel"
        )
    return aligned_regions(s, mode == "half_pixel")


def aligned_regions(s: Site, half_pixel: bool) -> Value:
    op = RoiAlign(
        s.attribute("output_height", 1),
        s.attribute("output_width", 1),
        s.attribute("spatial_scale", 1.0),
        s.attribute("sampling_ratio", 0),
        s.attribute("mode", "avg").lower(),
        half_pixel,
    )
    rois = s.input(1)
    x, batch = s.input(0), matched(s, s.input(2), rois.type.shape[:1])
    return s.g(op, x, rois, s.within(batch, 0, x.type.shape[0] - 1, "a batch index"))


@on("MaxRoiPool")
def max_roi_pool(s: Site) -> Made:
    bins = s.needed("pooled_shape")
    if len(bins) != 2:
        raise s.wrong(f"pooled_shape is {bins}, expected two extents")
    op = MaxRoiPool(bins[0], bins[1], s.attribute("spatial_scale", 1.0))
    x, rois = s.input(0), s.input(1)
    if rois.type.rank != 2 or rois.type.shape[1] != 5 or rois.type.dtype not in FLOATS:
        return s.g(op, x, rois)  # its type rule says what is wrong
    count = rois.type.shape[0]
    batch = s.cast(s.g(Slice((0, 0), (count, 1), (1, 1)), rois), "i64")
    batch = s.within(batch, 0, x.type.shape[0] - 1, "a batch index")
    box = s.g(Slice((0, 1), (count, 4), (1, 1)), rois)
    return s.g(op, x, s.g(Concat(1), s.cast(batch, rois.type.dtype), box))


@on("Col2Im", since=18)
def col2im(s: Site) -> Made:
    x, image, block = s.input(0), s.dims(1), s.ints(2)
    rank = len(block)
    if x.type.rank != 3 or len(image) != rank or not rank:
        raise s.wrong(
            f"input is {x.type}, image_shape {image} and block_shape {block}, expected rank 3 and "
            "as many image axes as block axes"
        )
    ones = (1,) * rank
    pads = s.attribute("pads", (0,) * (2 * rank))
    op = OverlapAdd(image, s.attribute("strides", ones), pads, s.attribute("dilations", ones))
    for what, values in (("strides", op.strides), ("dilations", op.dilations), ("pads", pads[::2])):
        if len(values) != rank:
            raise s.wrong(f"{len(values)} {what} given, expected {rank}")
    taps = product(block)
    channels = x.type.shape[1]
    if not known(taps) or taps < 1 or (known(channels) and channels % taps):
        raise s.wrong(f"input is {x.type}, expected axis 1 in multiples of block_shape {block}")
    places = tuple(
        conv_extent(op, d, block[i], op.strides[i], pads[i], pads[rank + i], op.dilations[i])
        for i, d in enumerate(image)
    )
    shape = (x.type.shape[0], channels // taps, *block, *places)
    return s.g(op, s.g(Reshape(shape), x))


@on("MaxUnpool", since=9)
def max_unpool(s: Site) -> Made:
    x = s.input(0)
    indices = matched(s, s.input(1), x.type.shape)
    kernel = s.needed("kernel_shape")
    rank = len(kernel)
    strides, pads = s.attribute("strides", (1,) * rank), s.attribute("pads", (0,) * (2 * rank))
    if x.type.rank != rank + 2 or len(strides) != rank or len(pads) != 2 * rank:
        raise s.wrong(
            f"kernel_shape is {kernel}, strides {strides} and pads {pads}, expected one, one and "
            f"two numbers for each spatial axis of {x.type}"
        )
    if s.optional(2) is not None:
        # The indices count in the tensor that was pooled, and that is the one asked for.
        return unpooled(s, s.dims(2), x, indices)
    extents: list[Dim] = [
        (d - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i]
        for i, d in enumerate(x.type.shape[2:])
    ]
    return unpooled(s, (*x.type.shape[:2], *extents), x, indices)


def unpooled(s: Site, shape: tuple[Dim, ...], x: Value, indices: Value) -> Value:
    """Return zeros of a shape with the elements of x at the indices."""
    indices = s.within(indices, 0, product(shape) - 1, "an index")
    return s.g(MaxUnpool(shape), x, indices)

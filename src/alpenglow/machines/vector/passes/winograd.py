"""Winograd: 3×3 convolutions with many channels become F(m×m, 3×3) where that does less work.

Filters may be constants or computed, as in training; so are their gradients.  This rounds
differently from the operations as written, so it runs under numerics="fast" only.  The larger the
blocks, the fewer multiplications and the larger the error, which `error` tells.
"""

from __future__ import annotations

import math

from alpenglow.ir.dims import ceil_div, estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.layout import Pack
from alpenglow.machines.vector.operators.winograd import (
    POINTS,
    WinogradFilter,
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)
from alpenglow.machines.vector.operators.winograd_back import (
    WinogradBlocks,
    WinogradFilterBack,
    WinogradSums,
)
from alpenglow.machines.vector.passes.layout import (
    padded,
    panel_width,
    unpacked,
    unpacked_filters,
)
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.packing import PackConv
from alpenglow.ops.window.conv_filter import ConvFilter
from alpenglow.passes.choices import Problem

READS = 5
"""Reading the filters from memory costs as much as the products of this many tiles."""

WRITES = 24
"""What writing filters that are computed in each run costs, as products of so many tiles."""

TOUCH = 12
"""What moving one element through a transform costs, in multiply-adds of the products."""

ERROR = {2: 3e-7, 4: 5e-6, 6: 9e-6}
"""The largest error with 16 channels, by the size of blocks: of N(0, 1) data, beside f64, as a
share of the largest element of the result."""

TOLERATED = 6e-5
"""The error from which on blocks are too large."""

LEARNT = 2e-6
"""The same for filters that are computed: what is trained sums gradients up that cancel."""

FEW = 7
"""Up to so many tiles of an image are multiplied together with those of the next."""

DIRECT = 0
"""The size of blocks that stands for direct convolution."""


def winograd(g: Graph, target: Target) -> Graph:
    """Rewrite the convolutions for which it pays."""
    nodes = len(g.nodes)
    for node in list(g.nodes):
        match node:
            case Node(Conv() as op, [x, w, *rest]) if x is not None and w is not None:
                if not x.type.static or {x.type.dtype, w.type.dtype} != {"f32"}:
                    continue
                result = node.output.type.extents
                if not winograd_fits(op, w.type.extents, result, target.facts.lanes):
                    continue
                problem = Problem(op, x.type, w.type, target)
                best = best_block(w.type.extents, result, 1.0, w.array is not None)
                block = problem.choose("winograd", best, DIRECT, *POINTS)
                if block != DIRECT:
                    y = _blocks(g, problem, x, w, result, block)
                    bias = rest[0] if rest else None
                    g.replace(node.output, unpacked(g, y, bias, target.facts.lanes))
            case Node(ConvFilter() as op, [Value() as x, Value() as dy]) if x.type.dtype == "f32":
                taps, lanes = node.output.type, target.facts.lanes
                if x.type.static and winograd_fits(op.conv, taps.extents, dy.type.extents, lanes):
                    block = best_block(taps.extents, dy.type.extents, is_constant=False)
                    if block != DIRECT:
                        dw = _sums(g, op, x, dy, taps.extents, block, lanes)
                        g.replace(node.output, unpacked_filters(g, dw, taps))
    if len(g.nodes) > nodes:
        g.prune()
    return g


def winograd_fits(op: Conv, filters: tuple[int, ...], result: tuple[int, ...], lanes: int) -> bool:
    """Whether a convolution can be computed by F(m×m, 3×3), with enough channels for vectors."""
    plain = set(op.strides) <= {1} and set(op.dilations) <= {1} and filters[2:] == (3, 3)
    return plain and op.group == 1 and 0 not in result and min(filters[:2]) >= lanes


def best_block(
    filters: tuple[int, ...], result: tuple[int, ...], direct_speed: float = 1.0,
    is_constant: bool = True,
) -> int:  # fmt: skip
    """Return the size of blocks that costs least, by an estimate in multiply-adds.

    `DIRECT` stands for none, whose multiply-adds go `direct_speed` times as fast.  It needs no
    memory for transforms, so blocks must save a fifth, and larger ones a tenth of what smaller
    ones cost: their filters take more room, and they round worse, though never by `TOLERATED`.
    """
    n, outputs, height, width = map(estimate, result)
    channels = estimate(filters[1])
    best = DIRECT
    bound = 0.8 * 9 * n * height * width * channels * outputs / direct_speed
    for block in sorted(POINTS):
        cost = winograd_cost(block, filters, result, is_constant)
        if cost < bound and error(block, channels) < (TOLERATED if is_constant else LEARNT):
            best, bound = block, 0.9 * cost
    return best


def error(block: int, channels: int) -> float:
    """Return what F(block×block, 3×3) is off by, as a share of the largest element.

    Errors of single products add up like a random walk.
    """
    return ERROR[block] * math.sqrt(channels / 16)


def winograd_cost(
    block: int, filters: tuple[int, ...], result: tuple[int, ...], is_constant: bool = True
) -> int:  # fmt: skip
    """Return what F(block×block, 3×3) costs.

    The transforms touch every channel of a patch; what they cost must be small beside what the
    products save.  Filters grow by (block + 2)² / 9 and are read once a run, so there must be
    enough tiles to use them on; more if they are not constant, for then each run transforms them.
    """
    n, outputs, height, width = map(estimate, result)
    channels = estimate(filters[1])
    points = (block + 2) ** 2
    tiles = n * ceil_div(height, block) * ceil_div(width, block)
    filters_cost = READS + (0 if is_constant else WRITES)
    products = points * (tiles + filters_cost) * channels * outputs
    return products + points * tiles * (channels + outputs) * TOUCH


def _blocks(
    g: Graph, problem: Problem, x: Value, w: Value, result: tuple[int, ...], block: int
) -> Value:
    """Return the blocked result of the convolution, without its bias."""
    _, outputs, height, width = result
    op, lanes = problem.op, problem.target.facts.lanes
    assert isinstance(op, Conv)
    tiles = ceil_div(height, block) * ceil_div(width, block)
    patches = _patches(g, op, x, (height, width), block, lanes)
    row = estimate(tiles) * (estimate(x.type.shape[0]) if estimate(tiles) <= FEW else 1)
    panel = panel_width(problem, outputs, row, alone=True)
    filters = g(WinogradFilter(block), g(PackConv(lanes, panel), w))
    products = g(WinogradProduct(w.type.extents[1], outputs), patches, filters)
    return g(WinogradOutput(outputs, height, width), products)


def _patches(g: Graph, op: Conv, x: Value, image: tuple[int, ...], block: int, lanes: int) -> Value:
    """Return the transformed patches of x of which an image of this height and width is made."""
    pads, _, _ = op.window(2)
    lacking = _lacking(image, block)
    # Patches need whole blocks and a border: the pad grows by what the last ones lack.
    grown = (*pads[:2], pads[2] + lacking[0], pads[3] + lacking[1])
    return g(WinogradInput(block), padded(g, g(Pack(lanes), x), grown))


def _sums(
    g: Graph, op: ConvFilter, x: Value, dy: Value, filters: tuple[int, ...], block: int, lanes: int
) -> Value:
    """Return the gradient of filters, as PackConv has them."""
    outputs, inputs, *_ = filters
    image = dy.type.extents[2:]
    patches = _patches(g, op.conv, x, image, block, lanes)
    whole = padded(g, g(Pack(lanes), dy), (0, 0, *_lacking(image, block)))
    blocks = g(WinogradBlocks(block), whole)
    return g(WinogradFilterBack(), g(WinogradSums(outputs, inputs), patches, blocks))


def _lacking(image: tuple[int, ...], block: int) -> list[int]:
    """Return how many rows and columns the last blocks of an image lack."""
    return [ceil_div(d, block) * block - d for d in image]

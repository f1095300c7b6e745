"""Winograd: 3×3 convolutions with many channels become F(4×4, 3×3) where that does less work.

This rounds differently from the operations as written, so it runs under numerics="fast" only.
"""

from __future__ import annotations

from alpenglow.ir.dims import ceil_div, estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.target import Target
from alpenglow.ops.contraction import Conv
from alpenglow.ops.movement import Pack
from alpenglow.ops.winograd import (
    BLOCK,
    PATCH,
    WinogradFilter,
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)
from alpenglow.passes.choices import Problem
from alpenglow.passes.layout import padded, panel_width, unpacked

READS = 8
"""Below this many tiles reading the filters from memory costs as much as the products."""

TOUCH = 12
"""What moving one element through a transform costs, in multiply-adds of the products."""


def winograd(g: Graph, target: Target) -> Graph:
    """Rewrite the convolutions for which it pays."""
    for node in list(g.nodes):
        match node:
            case Node(Conv() as op, [x, w, *rest]) if x is not None and w is not None:
                if not x.type.static or w.array is None or x.type.dtype != "f32":
                    continue
                result = node.output.type.extents
                if not winograd_fits(op, w.type.extents, result, target.lanes):
                    continue
                problem = Problem(op, x.type, w.type, target)
                pays = winograd_pays(w.type.extents, result)
                if problem.choose("winograd", int(pays), int(not pays)):
                    y = _blocks(g, problem, x, w, result)
                    bias = rest[0] if rest else None
                    g.replace(node.output, unpacked(g, y, bias, target.lanes))
    g.prune()
    return g


def winograd_fits(op: Conv, filters: tuple[int, ...], result: tuple[int, ...], lanes: int) -> bool:
    """Whether a convolution can be computed by F(4×4, 3×3), with enough channels for vectors."""
    plain = set(op.strides) <= {1} and set(op.dilations) <= {1} and filters[2:] == (3, 3)
    return plain and op.group == 1 and 0 not in result and min(filters[:2]) >= lanes


def winograd_pays(
    filters: tuple[int, ...], result: tuple[int, ...], direct_speed: float = 1.0
) -> bool:
    """Whether F(4×4, 3×3) beats direct convolution, by an estimate in multiply-adds.

    Direct convolution does `direct_speed` times as many multiply-adds in the same time.

    The transforms touch every channel of a patch; what they cost must be small beside what the
    products save.  Filters grow fourfold and are read once a run, so there must be enough tiles
    to use them on.
    """
    n, outputs, height, width = map(estimate, result)
    channels = filters[1]
    tiles = n * _ceil(height, BLOCK) * _ceil(width, BLOCK)
    direct = 9 * n * height * width * channels * outputs
    products = PATCH * PATCH * max(tiles, READS) * channels * outputs
    transforms = PATCH * PATCH * tiles * (channels + outputs) * TOUCH
    return products + transforms < 0.8 * direct / direct_speed


def _blocks(g: Graph, problem: Problem, x: Value, w: Value, result: tuple[int, ...]) -> Value:
    """Return the blocked result of the convolution, without its bias."""
    _, outputs, height, width = result
    op, lanes = problem.op, problem.target.lanes
    assert isinstance(op, Conv)
    pads, _, _ = op.window(2)
    tall, wide = ceil_div(height, BLOCK), ceil_div(width, BLOCK)
    tiles = tall * wide
    # Patches need whole blocks and a border: the pad grows by what the last ones lack.
    grown = (*pads[:2], pads[2] + tall * BLOCK - height, pads[3] + wide * BLOCK - width)
    patches = g(WinogradInput(), padded(g, g(Pack(lanes), x), grown))
    filters = g(WinogradFilter(lanes, panel_width(problem, outputs, estimate(tiles))), w)
    products = g(WinogradProduct(w.type.extents[1], outputs), patches, filters)
    return g(WinogradOutput(outputs, height, width), products)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)

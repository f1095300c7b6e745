"""Converters for reductions and running totals.

The axes were an attribute first and became an operand later, ReduceSum's in opset 13 and the
others' in opset 18.
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.op import Op
from alpenglow.ops.reduction import reduction, scan

Build = Callable[[tuple[int, ...], bool], Op]


def reduces(name: str, build: Build, *, operand_since: int = 18) -> None:
    """Register a reduction, built from axes and keepdims; axes became an operand in some opset."""

    @on(name)
    def from_attribute(s: Site) -> Made:
        op = build(axes_of(s, s.attribute("axes", ())), bool(s.attribute("keepdims", 1)))
        return s.g(op, s.input(0))

    @on(name, since=operand_since)
    def from_operand(s: Site) -> Made:
        axes = s.optional(1)
        numbers = () if axes is None or axes.type.shape == (0,) else s.ints(1)
        op = build(axes_of(s, numbers), bool(s.attribute("keepdims", 1)))
        return s.g(op, s.input(0))


def axes_of(s: Site, numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the axes of input 0 that `numbers` name, sorted; all if it is empty, unless noop."""
    rank = s.input(0).type.rank
    if not numbers:
        return () if s.attribute("noop_with_empty_axes", 0) else tuple(range(rank))
    return s.axes(numbers, rank)


reduces("ReduceSum", reduction.ReduceSum, operand_since=13)
reduces("ReduceMean", reduction.ReduceMean)
reduces("ReduceProd", reduction.ReduceProd)
reduces("ReduceMax", reduction.ReduceMax)
reduces("ReduceMin", reduction.ReduceMin)
reduces("ReduceL1", reduction.ReduceL1)
reduces("ReduceL2", reduction.ReduceL2)
reduces("ReduceSumSquare", reduction.ReduceSumSquare)
reduces("ReduceLogSum", reduction.ReduceLogSum)
reduces("ReduceLogSumExp", reduction.ReduceLogSumExp)


def position(name: str, make: type[reduction.ArgReduction]) -> None:
    """Register where an extreme lies along an axis."""

    @on(name)
    def convert(s: Site) -> Made:
        last = bool(s.attribute("select_last_index", 0))
        return s.g(make(s.named_axis(0), bool(s.attribute("keepdims", 1)), last), s.input(0))


position("ArgMax", reduction.ArgMax)
position("ArgMin", reduction.ArgMin)


@on("CumSum")
def cum_sum(s: Site) -> Made:
    return s.g(scan.CumSum(*order(s)), s.input(0))


@on("CumProd")
def cum_prod(s: Site) -> Made:
    return s.g(scan.CumProd(*order(s)), s.input(0))


def order(s: Site) -> tuple[int, bool, bool]:
    """Return the axis, exclusive and reverse of a CumSum or CumProd."""
    axis = s.axis(s.single(1, s.ints(1)), s.input(0).type.rank)
    exclusive, reverse = bool(s.attribute("exclusive", 0)), bool(s.attribute("reverse", 0))
    return axis, exclusive, reverse

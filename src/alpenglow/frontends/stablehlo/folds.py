"""Reductions by bodies of any kind: pairs of neighbours in turn, so that many are done at once.

A body is applied in order, and its grouping is ours to choose, as StableHLO says of reductions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stablehlo.bodies import apply_body, single
from alpenglow.frontends.stablehlo.module import Block
from alpenglow.frontends.stablehlo.table import Site, fixed
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ops.movement import Concat, Slice, stretch

Combine = Callable[[Sequence[Value], Sequence[Value]], list[Value]]
"""From values of two elements each to those of one."""


def combining(s: Site, block: Block) -> Combine:
    """Return what applies a body to pairs of tensors."""

    def combine(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        return apply_body(s, block, [*left, *right])

    return combine


def part(s: Site, x: Value, axis: int, start: int, size: int, step: int = 1) -> Value:
    """Return elements of x along an axis."""
    if start == 0 and step == 1 and size == x.type.shape[axis]:
        return x
    starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
    sizes = tuple(size if i == axis else d for i, d in enumerate(x.type.shape))
    steps = tuple(step if i == axis else 1 for i in range(x.type.rank))
    return s.g(Slice(starts, sizes, steps), x)


def extent(s: Site, x: Value, axis: int) -> int:
    """Return an extent, which must be known."""
    return fixed(x.type.shape[axis])


def folded(s: Site, xs: Sequence[Value], axis: int, combine: Combine) -> list[Value]:
    """Return tensors with an axis reduced to one element, of which there is at least one."""
    values, n = list(xs), extent(s, xs[0], axis)
    while n > 1:
        half = n // 2
        left = [part(s, v, axis, 0, half, 2) for v in values]
        right = [part(s, v, axis, 1, half, 2) for v in values]
        made = combine(left, right)
        if n % 2:
            last = [part(s, v, axis, n - 1, 1) for v in values]
            made = [s.g(Concat(axis), a, b) for a, b in zip(made, last, strict=True)]
        values, n = made, half + n % 2
    return values


def windowed(
    s: Site, xs: Sequence[Value], axis: int, size: int, dilation: int, combine: Combine
) -> list[Value]:
    """Return, for each place along an axis, what `size` elements from there on come to.

    Runs of 1, 2, 4, … elements are put together from two of half the length.
    """
    n = extent(s, xs[0], axis)
    places = n - (size - 1) * dilation
    runs, length = list(xs), 1
    total: list[Value] | None = None
    done = 0
    while True:
        if size & length:
            ready = [part(s, v, axis, done * dilation, places) for v in runs]
            total = ready if total is None else combine(total, ready)
            done += length
        if done == size:
            assert total is not None, "a window has elements"
            return total
        count = extent(s, runs[0], axis) - length * dilation
        ahead = [part(s, v, axis, length * dilation, count) for v in runs]
        runs = combine([part(s, v, axis, 0, count) for v in runs], ahead)
        length *= 2


def begun(s: Site, block: Block, inits: Sequence[Value], xs: Sequence[Value]) -> list[Value]:
    """Return what a body makes of what stands at the beginning, and reductions."""
    if len(xs) == 1 and is_neutral(single(block), inits[0]):
        return list(xs)
    starts = [stretch(s.g, init, x.type.shape) for init, x in zip(inits, xs, strict=True)]
    return combining(s, block)(starts, xs)


def is_neutral(operation: str, init: Value) -> bool:
    """Whether a scalar is known to change nothing beside another value."""
    array = init.array
    if array is None or array.size != 1:
        return False
    element = array.reshape(-1)[0]
    if operation in ("stablehlo.maximum", "stablehlo.minimum"):
        larger = operation == "stablehlo.maximum"
        if array.dtype.kind == "b":
            return bool(element) != larger
        if array.dtype.kind in "iu":
            limits = np.iinfo(array.dtype)
            return int(element) == (limits.min if larger else limits.max)
        return array.dtype.kind != "c" and bool(element == (-np.inf if larger else np.inf))
    if operation == "stablehlo.multiply":
        return bool(element == 1)
    if operation in ("stablehlo.add", "stablehlo.or"):
        return bool(element == 0)
    if operation == "stablehlo.and":
        return bool(element == np.array(-1).astype(array.dtype))
    return False


def operands_and_inits(s: Site) -> tuple[list[Value], list[Value]]:
    """Return what is reduced, all of one shape, and the scalars that reductions begin with."""
    values = s.required()
    if not values or len(values) % 2:
        raise ModelError(f"{s.kind} has {len(values)} operands, expected pairs")
    xs, inits = values[: len(values) // 2], values[len(values) // 2 :]
    for x, init in zip(xs, inits, strict=True):
        if init.type.rank or x.type.rank != xs[0].type.rank:
            raise ModelError(f"{s.kind}: {x.type} begins with {init.type}, {xs[0].type}")
        same = zip(x.type.shape, xs[0].type.shape, strict=True)
        if any(known(a) and known(b) and a != b for a, b in same):
            raise ModelError(f"{s.kind}: {x.type} and {xs[0].type} have different shapes")
        if init.type.dtype != x.type.dtype:
            raise ModelError(f"{s.kind}: {x.type} begins with {init.type}")
    return xs, inits

"""Initial values and bodies of reductions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.frontends.stablehlo.bodies import apply_body, single
from alpenglow.frontends.stablehlo.module import Block
from alpenglow.frontends.stablehlo.table import Site
from alpenglow.frontends.windows import Combine
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Value
from alpenglow.ops.tensor.movement import stretch


def combining(s: Site, block: Block) -> Combine:
    """Return a function that applies a body to pairs of tensors."""

    def combine(left: Sequence[Value], right: Sequence[Value]) -> list[Value]:
        return apply_body(s, block, [*left, *right])

    return combine


def begun(s: Site, block: Block, inits: Sequence[Value], xs: Sequence[Value]) -> list[Value]:
    """Return the results of a body on initial values and reductions."""
    if len(xs) == 1 and is_neutral(single(block), inits[0]):
        return list(xs)
    starts = [stretch(s.g, init, x.type.shape) for init, x in zip(inits, xs, strict=True)]
    return combining(s, block)(starts, xs)


def is_neutral(operation: str, init: Value) -> bool:
    """Return True if a scalar is known to be neutral for an operation: x op scalar is x."""
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
    """Return the operands of a reduction, all of one shape, and their initial values."""
    values = s.required()
    if not values or len(values) % 2:
        raise ModelError(f"{s.kind} has {len(values)} operands, expected an even number")
    xs, inits = values[: len(values) // 2], values[len(values) // 2 :]
    for x, init in zip(xs, inits, strict=True):
        if init.type.rank or init.type.dtype != x.type.dtype:
            raise s.wrong(f"an initial value is {init.type}, expected a scalar of {x.type.dtype}")
        if x.type.rank != xs[0].type.rank or any(
            known(a) and known(b) and a != b
            for a, b in zip(x.type.shape, xs[0].type.shape, strict=True)
        ):
            raise s.wrong(f"operands are {xs[0].type} and {x.type}, expected the same shape")
    return xs, inits

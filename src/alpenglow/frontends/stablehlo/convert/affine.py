"""Quantized operands: an operation is applied to their dequantized values.

As StableHLO says, operands are dequantized, the operation is applied, and its result is quantized.
Operations that only move elements of one type move them as they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.base.words import some
from alpenglow.frontends.operands import Importing
from alpenglow.frontends.stablehlo.convert.compare import converted
from alpenglow.frontends.stablehlo.module import Operation, Quantized, Tensor, Type
from alpenglow.frontends.stablehlo.table import Made, Site
from alpenglow.ir.graph import Value
from alpenglow.ir.types import DTYPES, FLOATS, Array, width
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Minimum, Mul, Round, Sub
from alpenglow.ops.tensor.movement import stretch

MOVES = frozenset(
    {f"stablehlo.{name}" for name in (
        "broadcast_in_dim", "concatenate", "dynamic_broadcast_in_dim", "dynamic_reshape",
        "dynamic_slice", "dynamic_update_slice", "gather", "pad", "reshape", "reverse", "select",
        "slice", "transpose", "real_dynamic_slice", "dynamic_gather", "dynamic_pad",
    )}
)  # fmt: skip
"""Operations that move elements, of one type."""

THEIRS = frozenset({"stablehlo.uniform_quantize", "stablehlo.uniform_dequantize",
                    "stablehlo.bitcast_convert"})  # fmt: skip
"""Operations on quantized elements themselves, or on the bits of any."""


class Real:
    """Operands of an operation with real elements in place of quantized ones."""

    def __init__(self, importer: Importing, values: dict[str, Value]) -> None:
        self.importer, self.values = importer, values

    def find(self, name: str) -> Value:
        return self.values[name] if name in self.values else self.importer.find(name)

    def contents(self, v: Value) -> Array | None:
        return self.importer.contents(v)

    def elements(self, name: str) -> Array | None:
        return self.importer.elements(name)


def of_type(t: Type) -> Quantized | None:
    """Return the quantization of the elements of a type; None if they are not quantized."""
    return t.dtype if isinstance(t, Tensor) and isinstance(t.dtype, Quantized) else None


def is_quantized(o: Operation) -> bool:
    """Return True if an operation must be applied to dequantized operands."""
    kinds = [of_type(t) for t in (*o.operand_types, *o.types)]
    if o.name in THEIRS or not any(kinds):
        return False
    same = len({k for k in kinds if k is not None}) == 1
    return not (same and o.name in MOVES)


def as_real(s: Site, names: Sequence[str]) -> tuple[Operation, Real]:
    """Return the operation on real elements, and where its operands are found."""
    values = {}
    for name, t in zip(names, s.operation.operand_types, strict=True):
        kind = of_type(t)
        if kind is not None:
            values[name] = dequantized(s, s.importer.find(name), kind)
    if s.operation.regions:
        raise s.refuse("quantized operands are not supported; supported: real operands")
    types = tuple(_expressed(t) for t in s.operation.types)
    read = tuple(_expressed(t) for t in s.operation.operand_types)
    return replace(s.operation, types=types, operand_types=read), Real(s.importer, values)


def _expressed(t: Type) -> Type:
    kind = of_type(t)
    return Tensor(kind.expressed, t.shape) if kind and isinstance(t, Tensor) else t


def requantized(s: Site, made: Made) -> list[Value]:
    """Return results, quantized as their types declare."""
    results = [made] if isinstance(made, Value) else list(made)
    kinds = [of_type(t) for t in s.operation.types]
    if len(kinds) != len(results):
        return results
    return [v if k is None else quantized(s, v, k) for v, k in zip(results, kinds, strict=True)]


def dequantized(s: Site, x: Value, kind: Quantized) -> Value:
    """Return the dequantized values of x."""
    check(kind)
    if kind.expressed not in FLOATS:
        floats = ", ".join(sorted(FLOATS))
        raise s.refuse(f"expressed type {kind.expressed} is not supported; supported: {floats}")
    wide = "i64" if width(kind.storage) == 32 else "i32"
    zero = _by_axis(s, kind, np.array(kind.zero_points), wide, x)
    steps = s.g(Sub(), converted(s, x, wide), zero)
    scale = _by_axis(s, kind, np.array(kind.scales), kind.expressed, x)
    return s.g(Mul(), converted(s, steps, kind.expressed), scale)


def quantized(s: Site, x: Value, kind: Quantized) -> Value:
    """Return real numbers in steps of a scale, to the nearest, halves to even, limited."""
    check(kind)
    if x.type.dtype not in FLOATS:
        raise s.wrong(f"the operand is {x.type}, expected floats")
    scale = _by_axis(s, kind, np.array(kind.scales), x.type.dtype, x)
    zero = _by_axis(s, kind, np.array(kind.zero_points), x.type.dtype, x)
    steps = s.g(Add(), s.g(Div(), x, scale), zero)
    limited = s.g(Minimum(), s.g(Maximum(), s.filled(kind.low, x), steps), s.filled(kind.high, x))
    return converted(s, s.g(Round(), limited), kind.storage)


def check(kind: Quantized) -> None:
    """Raise ModelError unless scales are positive numbers, and zero points are stored."""
    if len(kind.scales) != len(kind.zero_points) or not kind.scales:
        raise ModelError(
            f"{kind} has {len(kind.scales)} scales and {len(kind.zero_points)} zero points, "
            "expected the same number, at least 1"
        )
    if kind.storage not in DTYPES or not all(0 < x < np.inf for x in kind.scales):
        scales = some(map(str, kind.scales))
        raise ModelError(f"{kind} has scales {scales}, expected integers and finite scales above 0")
    if not all(kind.low <= z <= kind.high for z in kind.zero_points):
        zeros = some(map(str, kind.zero_points))
        raise ModelError(f"{kind} has zero points {zeros}, expected {kind.low} to {kind.high}")


def _by_axis(s: Site, kind: Quantized, numbers: Array, dtype: str, like: Value) -> Value:
    """Return numbers for the slices along the axis of a type, stretched to a tensor."""
    array = numbers.astype(np.float64).astype(DTYPES[dtype])
    if kind.axis is None:
        return stretch(s.g, s.g.constant(array.reshape(())), like.type.shape)
    axis = s.axis(kind.axis, like.type.rank, "the quantized axis")
    if like.type.shape[axis] != len(array):
        count = like.type.shape[axis]
        raise s.wrong(f"{kind} has {len(array)} scales, expected {count} for {like.type}")
    narrow = tuple(len(array) if i == axis else 1 for i in range(like.type.rank))
    return stretch(s.g, s.g.constant(array.reshape(narrow)), like.type.shape)

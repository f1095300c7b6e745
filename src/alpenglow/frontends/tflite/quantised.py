"""Scales, zero points and rounding, for all converters of quantized operators.

Kernels of TFLite do not agree on how a sum becomes a step of its result.  Those of XNNPACK, which
users run, multiply in f32 and round halves to even.  The reference kernels, firmware's, multiply by
31 bits of an integer and shift (`Requantize`); what XNNPACK does not have they do for both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alpenglow.frontends.tflite.file.model import Grid, Tensor
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.table import Site
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Maximum, Minimum, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.quantized.quantize import Dequantize, Requantize, bounds
from alpenglow.ops.tensor.movement import stretch


def is_reference(s: Site) -> bool:
    """Whether an operator rounds as reference kernels do: XNNPACK has no i16."""
    dtypes = {s.declared(0).dtype, s.output().dtype}
    return s.rounding == "reference" or "i16" in dtypes


def grid(s: Site, i: int) -> Grid:
    """Return the scales and zero points of operand i."""
    return _said(s, s.declared(i), f"{s.operand} {i}")


def result_grid(s: Site, i: int = 0) -> Grid:
    """Return the scales and zero points of result i."""
    return _said(s, s.output(i), f"result {i}")


def _said(s: Site, tensor: Tensor, what: str) -> Grid:
    if tensor.grid is None:
        raise s.wrong(f"{what} is {tensor} without a scale, expected a quantized tensor")
    return tensor.grid


def one(s: Site, g: Grid) -> tuple[float, int]:
    """Return the scale and zero point of a grid; raise UnsupportedError if it has several."""
    if not g.uniform:
        raise s.unsupported(f"a tensor with {len(g.scales)} scales", "one scale")
    if not g.scales[0]:
        raise s.wrong("a scale is 0, expected more than 0")
    return g.scales[0], g.zeros[0]


def spread(s: Site, numbers: Array, like: Value, axis: int) -> Value:
    """Return numbers stretched to the shape of a value: one, or one an index of `axis`."""
    shape = [1] * like.type.rank
    if numbers.size > 1:
        if numbers.size != like.type.shape[axis]:
            raise s.wrong(f"axis {axis} of {like.type} has {numbers.size} scales or zero points, "
                          f"expected {like.type.shape[axis]}")  # fmt: skip
        shape[axis] = numbers.size
    return stretch(s.g, s.g.constant(numbers.reshape(shape)), like.type.shape)


def zeros_of(s: Site, g: Grid, x: Value, axis: int) -> Value:
    """Return the zero points of x, in its type and shape."""
    zeros = np.array(g.zeros if len(set(g.zeros)) > 1 else g.zeros[:1], x.type.numpy)
    return spread(s, zeros, x, axis)


def real(s: Site, i: int) -> Value:
    """Return operand i dequantized to f32."""
    x, g = s.input(i), grid(s, i)
    scales = np.array(g.scales, np.float32)
    return s.g(Dequantize("f32"), x, spread(s, scales, x, g.axis), zeros_of(s, g, x, g.axis))


def fixed(ratios: Array, short: bool = False) -> Array:
    """Return multipliers in f64 as 31 bits hold them, or the first 15 of these.

    TFLite's `QuantizeMultiplier`."""
    digits, exponents = np.frexp(ratios)
    held = np.floor(np.ldexp(digits, 31) + 0.5)
    if short:
        held = np.minimum(np.floor((held + (1 << 15)) / (1 << 16)), 0x7FFF) * (1 << 16)
    return np.where(exponents < -31, 0.0, np.ldexp(held, exponents - 31))


def limits(s: Site, activation: bool = False, reference: bool = False) -> tuple[int, int]:
    """Return the least and greatest integer of the result, as an activation limits them.

    With `reference` they are as reference kernels round them: XNNPACK does not take the operator.
    """
    low, high = map(int, bounds(s.output().dtype))
    which = s.activation(Activation.NONE, *REALS) if activation else Activation.NONE
    if which == Activation.NONE:
        return low, high
    scale, zero = one(s, result_grid(s))
    away = reference or is_reference(s)
    least, most = (None if b is None else step(np.float32(b) / np.float32(scale), zero, away)
                   for b in REALS[which])  # fmt: skip
    low = low if least is None else min(max(low, least), high)
    return low, high if most is None else max(min(high, most), low)


REALS = {Activation.RELU: (0.0, None), Activation.RELU_N1_TO_1: (-1.0, 1.0),
         Activation.RELU6: (0.0, 6.0)}  # fmt: skip


def step(quotient: np.float32, zero: int, away: bool) -> int:
    """Return the integer next to a quotient and a zero point.

    Halves go away from zero, before the zero point is added, or after that to even."""
    if away:
        return zero + int(np.trunc(quotient + np.copysign(np.float32(0.5), quotient)))
    return int(np.rint(quotient + np.float32(zero)))


def requantised(
    s: Site, sums: Value, parts: Sequence[Sequence[float]], rounding: str = "double",
    axis: int = -1, activation: bool = False, short: bool = False, reference: bool = False,
) -> Value:  # fmt: skip
    """Return sums as integers of the result.

    `parts` are scales whose product, divided by the scale of the result, is the multiplier: one, or
    one an index of `axis`.  The reference kernel rounds by `rounding`, and its multiplier may be
    short; with `reference` XNNPACK has no kernel of its own.
    """
    scale = one(s, result_grid(s))[0]
    if reference or is_reference(s):
        ratios = np.ones((), np.float64)
        for part in parts:
            ratios = ratios * np.array(part, np.float64)
        multipliers = fixed(ratios / scale, short)
    else:
        rounding = "even"
        ratios = np.ones((), np.float32)
        for part in parts:
            ratios = ratios * np.array(part, np.float32)
        multipliers = ratios / np.float32(scale)
    return multiplied(s, sums, multipliers, rounding, axis, activation, reference)


def multiplied(
    s: Site, sums: Value, multipliers: Array, rounding: str, axis: int = -1,
    activation: bool = False, reference: bool = True,
) -> Value:  # fmt: skip
    """Return sums times multipliers, one or one an index of `axis`, as integers of the result.

    With `reference` the bounds are as reference kernels round them.
    """
    zero = one(s, result_grid(s))[1]
    check_ratio(s, float(multipliers.max(initial=0)), rounding)
    op = Requantize(s.output().dtype, *limits(s, activation, reference), rounding=rounding)
    at = axis % sums.type.rank if sums.type.rank else 0
    offset = spread(s, np.array(zero, DTYPES[op.dtype]), sums, 0)
    return s.g(op, sums, spread(s, multipliers, sums, at), offset)


def check_ratio(s: Site, ratio: float, rounding: str) -> None:
    """Raise UnsupportedError unless a way of rounding allows this multiplier."""
    if not ratio < GREATEST[rounding]:
        raise s.refuse(f"scales of the operands are {ratio:g} times the scale of the result, "
                       f"expected less than {GREATEST[rounding]:g}")  # fmt: skip


def check_symmetric(s: Site, *grids: Grid) -> None:
    """Raise ModelError unless zero points are 0, as kernels of i16 need them."""
    zeros = sorted({z for g in grids for z in g.zeros})
    if any(zeros):
        raise s.wrong(f"zero points of its tensors are {zeros}, expected 0 for i16")


def check_weights(s: Site, i: int, *dtypes: str) -> None:
    """Raise UnsupportedError unless LiteRT multiplies float rows with these weights as stored."""
    dtype, zero = s.declared(i).dtype, max(grid(s, i).zeros, key=abs)
    if dtype not in dtypes or zero:
        raise s.unsupported(f"float input with weights of dtype {dtype} and zero point {zero}",
                            f"weights of dtype {' or '.join(dtypes)} and zero point 0")  # fmt: skip


GREATEST = {"even": np.inf, "double": 2.0**30, "double_up": 2.0**30, "single": 2.0**14,
            "single_away": 2.0**30}
"""Upper bounds of multipliers, exclusive: see `Requantize`."""


def less_zero(s: Site, i: int) -> Value:
    """Return operand i less its zero point, in i32."""
    x, (_, zero) = s.g(Cast("i32"), s.input(i)), one(s, grid(s, i))
    return s.g(Sub(), x, s.filled(zero, x)) if zero else x


def narrowed(s: Site, steps: Value, activation: bool = False, reference: bool = False) -> Value:
    """Return integers of the result, limited to what it holds, or an activation leaves."""
    low, high = limits(s, activation, reference)
    above = s.g(Maximum(), steps, s.filled(low, steps))
    return s.g(Cast(s.output().dtype), s.g(Minimum(), above, s.filled(high, steps)))


def rounded(s: Site, steps: Value) -> Value:
    """Return reals plus the zero point of the result, rounded, halves away from zero."""
    zero = one(s, result_grid(s))[1]
    near = whole(s, s.g(Clip(-(2.0**20), 2.0**20), steps))
    return narrowed(s, s.g(Add(), near, s.filled(zero, near)))


def whole(s: Site, x: Value) -> Value:
    """Return the i32 next to a float, halves away from zero.

    It adds the largest number below 0.5, which rounds up no number below a half.
    """
    less = float(np.nextafter(x.type.numpy.type(0.5), x.type.numpy.type(0)))
    half = s.g(Where(), s.g(Less(), x, s.filled(0, x)), s.filled(-less, x), s.filled(less, x))
    return s.g(Cast("i32"), s.g(Add(), x, half))


def alike(s: Site, *dtypes: str, operands: Sequence[int] | None = None) -> str:
    """Return the type of operands, or of all, and of the result; raise an error unless it is one.

    It is one of `dtypes`, those that kernels of TFLite know."""
    listed = s.given() if operands is None else operands
    types = [*(s.declared(i).dtype for i in listed), s.output().dtype]
    if len(set(types)) > 1:
        raise s.wrong(f"operands and result have dtypes {', '.join(types)}, expected one dtype")
    if types[0] not in dtypes:
        raise s.unsupported(f"quantized dtype {types[0]}", *dtypes)
    return types[0]


def scales_of(s: Site, *operands: int) -> list[np.float32]:
    """Return the scales of operands, and the scale of the result."""
    grids = [*(grid(s, i) for i in operands), result_grid(s)]
    return [np.float32(one(s, g)[0]) for g in grids]


def power_of_two(scale: np.floating) -> int | None:
    """Return the power of two that a scale is, or nearly is, or None, TFLite's `CheckedLog2`."""
    exact = float(np.float32(np.log(scale)) * (np.float32(1) / np.log(np.float32(2))))
    power = int(np.trunc(exact + np.copysign(0.5, exact)))
    return power if abs(exact - power) < 1e-3 else None


def once(s: Site, op: Op, x: Value, y: Value) -> Value:
    """Return an operator of f32, rounded on its own: compiled code may contract two operators.

    Arithmetic in f64, rounded to f32, has the bits of f32.  Factors are constants: a product of two
    casts would become a product in f32 again.
    """
    return s.cast(s.g(op, s.cast(x, "f64"), s.cast(y, "f64")), "f32")

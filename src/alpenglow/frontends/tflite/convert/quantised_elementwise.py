"""Converters for elementwise arithmetic and comparisons of quantized tensors.

XNNPACK adds and subtracts with multipliers of 21 bits, shifts once, and multiplies in f32.  The
reference kernels move terms up, scale them to half of the greater scale, and scale the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from alpenglow.frontends.nhwc import by_channel, channels_first, channels_last
from alpenglow.frontends.tflite.gemmlowp import (
    between,
    divided,
    limited,
    multiplier,
    product,
    reciprocal,
    times,
)
from alpenglow.frontends.tflite.quantised import (
    alike,
    check_symmetric,
    fixed,
    grid,
    is_reference,
    less_zero,
    limits,
    multiplied,
    narrowed,
    one,
    power_of_two,
    requantised,
    result_grid,
    scales_of,
)
from alpenglow.frontends.tflite.table import Converter, Made, Site, on_quantised
from alpenglow.frontends.tflite.tabulated import looked_up
from alpenglow.frontends.tflite.wide import Wide, bit_length, maximum, where
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitNot, ShiftRight
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.quantized.quantize import bounds


def stretched(s: Site, values: Sequence[Value], build: Callable[..., Value]) -> Value:
    """Return `build` of values stretched to their common shape."""
    if by_channel(values):
        turned = s.broadcast(*(channels_first(s.g, v) for v in values))
        return channels_last(s.g, build(*turned))
    return build(*s.broadcast(*values))


@on_quantised("ADD")
def add(s: Site) -> Made:
    return _sum(s, Add())


@on_quantised("SUB")
def sub(s: Site) -> Made:
    return _sum(s, Sub())


def _sum(s: Site, op: Op) -> Value:
    dtype = alike(s, "i8", "u8", "i16")
    a, b, c = scales_of(s, 0, 1)
    fits = all(2.0**-10 <= r < 2.0**8 for r in (a / c, b / c))
    if not is_reference(s) and fits:
        return _sum_shifted_once(s, op, a / c, b / c)
    if dtype != "i16":
        return _sum_shifted_up(s, op, 20)
    check_symmetric(s, grid(s, 0), grid(s, 1), result_grid(s))
    powers = [power_of_two(r) for r in (a, b, c)]
    if s.option("pot_scale_int16") and None not in powers:
        return _sum_of_powers(s, op, [p for p in powers if p is not None])
    return _sum_shifted_up(s, op, 15)


def _sum_shifted_up(s: Site, op: Op, bits: int) -> Value:
    """Return a sum of terms moved up, as the reference kernels make it."""
    terms, twice = _terms(s, bits)
    return _combined(s, terms, op, _ratio(s, twice, bits))


def _sum_shifted_once(s: Site, op: Op, a: np.float32, b: np.float32) -> Value:
    """Return a sum as XNNPACK makes it: the greater multiplier has 21 bits."""
    shift = 21 - int(np.frexp(max(a, b))[1])

    def build(*terms: Value) -> Value:
        sums = s.g(op, *terms)
        half = s.filled(1 << (shift - 1), sums)
        steps = s.g(ShiftRight(), s.g(Add(), sums, half), s.filled(shift, sums))
        moved = s.g(Add(), steps, s.filled(one(s, result_grid(s))[1], steps))
        return narrowed(s, moved, activation=True)

    factors = [int(np.rint(np.ldexp(r, shift))) for r in (a, b)]
    x, y = (less_zero(s, i) for i in (0, 1))
    terms = [s.g(Mul(), v, s.filled(f, v)) for v, f in zip((x, y), factors, strict=True)]
    return stretched(s, terms, build)


def _ratio(s: Site, scale: float, bits: int) -> Array:
    """Return the multiplier for sums of terms that were moved up; raise if it is too great."""
    given = one(s, result_grid(s))[0]
    ratio = scale / (2.0**bits * given)
    if ratio >= 1:
        least = scale / 2.0**bits
        raise s.refuse(f"scale of the result is {given:g}, expected more than {least:g}")
    return fixed(np.array(ratio))


def _moved(s: Site, i: int, bits: int, share: tuple[int, int]) -> Value:
    """Return operand i less its zero point, moved up by bits and multiplied, in i32."""
    zero = one(s, grid(s, i))[1]
    if s.declared(i).dtype == "i16":
        return times((Wide.of(s.g, s.input(i)) - zero) << bits, *share).narrow("i32")
    low, high = map(int, bounds(s.declared(i).dtype))
    return looked_up(s, i, times((between(low, high) - zero) << bits, *share).astype(np.int32))


def _terms(s: Site, bits: int) -> tuple[list[Value], float]:
    """Return the operands moved up by bits, in steps of twice the greater scale, and that."""
    a, b, _ = scales_of(s, 0, 1)
    twice = 2 * float(max(a, b))
    return [_moved(s, i, bits, multiplier(float(r) / twice)) for i, r in enumerate((a, b))], twice


def _sum_of_powers(s: Site, op: Op, powers: Sequence[int]) -> Value:
    """Return a sum of i16 with powers of two as scales; the result has the greater one."""
    down = [powers[2] - p for p in powers[:2]]
    if min(down) != 0:
        raise s.refuse(f"scale of the result is 2^{powers[2]}, expected 2^{max(powers[:2])}, the "
                       "greater scale of the operands, for pot_scale_int16")  # fmt: skip
    x, y = s.required()
    if isinstance(op, Add) and x.type.shape != y.type.shape:
        raise s.unsupported("broadcasting with pot_scale_int16", "operands of one shape")
    terms = [divided(Wide.of(s.g, v), n).narrow("i32") for v, n in zip((x, y), down, strict=True)]
    return stretched(s, terms, lambda *v: narrowed(s, s.g(op, *v), activation=True))


@on_quantised("MUL")
def mul(s: Site) -> Made:
    dtype = alike(s, "i8", "u8", "i16")
    a, b, c = scales_of(s, 0, 1)
    if dtype == "i16":
        check_symmetric(s, grid(s, 0), grid(s, 1), result_grid(s))
    terms = [less_zero(s, i) for i in (0, 1)]
    if not is_reference(s) and 2.0**-16 <= a * b / c < 2.0**8:
        parts = [[float(a)], [float(b)]]
        return stretched(
            s, terms, lambda *v: requantised(s, s.g(Mul(), *v), parts, activation=True)
        )
    return _combined(s, terms, Mul(), fixed(np.array(a * b / c, np.float64)))


def _combined(s: Site, terms: Sequence[Value], op: Op, ratio: Array) -> Value:
    """Return two terms combined and multiplied, as the reference kernels do."""
    return stretched(
        s, terms, lambda *v: multiplied(s, s.g(op, *v), ratio, "double", activation=True)
    )


@on_quantised("DIV")
def div(s: Site) -> Made:
    """The dividend is moved up as far as it goes, and multiplied by a reciprocal.

    If TFLite's kernels would shift 32 bits by more than 31, processors do not agree; here the
    quotient is 0.  A divisor whose real value is 0 ends the call.
    """
    dtype = alike(s, "i8", "u8", "i16")
    a, b, c = scales_of(s, 0, 1)
    if dtype == "i16":
        check_symmetric(s, grid(s, 0), grid(s, 1), result_grid(s))
    held, exponent = multiplier(float(a / (b * c)))
    if exponent > (most := 15 if dtype == "i16" else 23):
        raise s.refuse(f"scale of the result is {c:g}, expected more than {a / b / 2**most:g}")
    low, high = limits(s, activation=True, reference=True)
    zero = one(s, result_grid(s))[1]

    def build(*values: Value) -> Value:
        x, y = (Wide.of(s.g, v) for v in values)
        x, y = where(y < 0, -x, x), maximum(y, -y)
        inverse, down = reciprocal(y, 31)
        room = 31 - bit_length(maximum(x, -x - 1))
        quotient = product(product(x << room, inverse), held)
        steps = divided(quotient, down + room - exponent)
        return limited(steps + zero, low, high).narrow(dtype)

    return stretched(s, [less_zero(s, 0), _nonzero(s, less_zero(s, 1))], build)


def _nonzero(s: Site, y: Value) -> Value:
    """Return divisors; if one is 0, the call ends in an error."""
    zeros = s.g(Cast("i32"), s.g(Equal(), y, s.filled(0, y)))
    return s.g(Add(), y, s.within(zeros, 0, 0, "the count of zeros in a divisor"))


@on_quantised("SQUARED_DIFFERENCE")
def squared_difference(s: Site) -> Made:
    alike(s, "i8")
    terms, twice = _terms(s, 7)
    ratio = _ratio(s, twice * twice, 14)

    def build(*v: Value) -> Value:
        difference = s.g(Sub(), *v)
        return multiplied(s, s.g(Mul(), difference, difference), ratio, "double")

    return stretched(s, terms, build)


@on_quantised("PRELU")
def prelu(s: Site) -> Made:
    """With input of i16, alpha is of i8."""
    dtypes = [s.declared(i).dtype for i in (0, 1)] + [s.output().dtype]
    if dtypes not in (["i8"] * 3, ["u8"] * 3, ["i16", "i8", "i16"]):
        raise s.unsupported(f"{', '.join(dtypes)} as dtypes of input, alpha and result",
                            "i8 for all", "u8 for all", "i16 with alpha of i8")  # fmt: skip
    a, slope, b = scales_of(s, 0, 1)
    above, below = (fixed(np.array(r, np.float64)) for r in (a / b, a * slope / b))

    def build(x: Value, y: Value) -> Value:
        up = multiplied(s, x, above, "double")
        down = multiplied(s, s.g(Mul(), x, y), below, "double")
        return s.g(Where(), s.g(Less(), x, s.filled(0, x)), down, up)

    return stretched(s, [less_zero(s, 0), less_zero(s, 1)], build)


def compared(op: Op, negated: bool = False) -> Converter:
    """Return the converter for a comparison of both operands, scaled to reals over 2^8."""

    def convert(s: Site) -> Made:
        dtypes, grids = {s.declared(i).dtype for i in (0, 1)}, [grid(s, i) for i in (0, 1)]
        if len(dtypes) > 1 or not dtypes <= {"i8", "u8", "i16"}:
            raise s.unsupported(f"comparison of {' with '.join(sorted(dtypes))}",
                                "operands of one dtype, i8, u8 or i16")  # fmt: skip
        scales = [one(s, g)[0] for g in grids]
        if dtypes == {"i16"} and not isinstance(op, Equal):
            if scales[0] != scales[1]:
                raise s.unsupported(f"comparison of i16 with scales {scales}", "equal scales")
            return s.apply(op, s.input(0), s.input(1))
        if max(scales) >= 1:
            raise s.refuse(f"scales of the operands are {scales}, expected less than 1")
        terms = [_moved(s, i, 8, multiplier(scale)) for i, scale in enumerate(scales)]
        both = stretched(s, terms, lambda *v: s.g(op, *v))
        return s.g(BitNot(), both) if negated else both

    return convert


for _name, _op in {"LESS": Less(), "LESS_EQUAL": LessOrEqual(), "GREATER": Greater(),
                   "GREATER_EQUAL": GreaterOrEqual(), "EQUAL": Equal()}.items():  # fmt: skip
    on_quantised(_name)(compared(_op))
on_quantised("NOT_EQUAL")(compared(Equal(), negated=True))

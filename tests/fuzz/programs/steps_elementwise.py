"""Steps that compute each element by itself."""

from __future__ import annotations

from ..elements import FLOATS, INTS
from .program import Draw, recipe

UNARY = (
    "abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "celu", "ceil", "cos", "cosh",
    "deg2rad", "digamma", "elu", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "frac",
    "gelu", "gelu_tanh", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "i0", "isfinite",
    "isinf", "isnan", "isneginf", "isposinf", "leaky_relu", "lgamma", "log", "log10", "log1p",
    "log2",
    "log_sigmoid", "logical_not", "logit", "mish", "nan_to_num", "neg", "not", "popcount", "clz",
    "positive", "rad2deg", "reciprocal", "relu", "relu6", "round", "rsqrt", "selu", "sigmoid",
    "sign",
    "signbit", "silu", "sin", "sinc", "sinh", "softplus", "softshrink", "softsign", "sqrt",
    "square",
    "tan", "tanh", "tanhshrink", "trunc", "threshold", "real", "imag", "conj", "angle", "is_zero",
)  # fmt: skip

BINARY = (
    "add", "and", "atan2", "copysign", "div", "eq", "floor_div", "fmax", "fmin", "fmod", "gcd",
    "ge",
    "gt", "heaviside", "hypot", "lcm", "ldexp", "le", "logaddexp", "logaddexp2", "logical_and",
    "logical_or", "logical_xor", "lt", "max", "min", "mul", "ne", "nextafter", "or", "pow",
    "remainder",
    "shl", "shr", "shr_logical", "sub", "trunc_div", "xlog1py", "xlogy", "xor", "prelu",
    "squared_difference", "complex", "polar",
)  # fmt: skip

SHIFTS = ("shl", "shr", "shr_logical", "ldexp")


@recipe(*UNARY)
def unary(d: Draw, op: str) -> None:
    d.step(op, d.pick())


@recipe(*BINARY)
def binary(d: Draw, op: str) -> None:
    x = d.pick()
    if op in SHIFTS and x.dtype in INTS:
        amount = d.indices(x.shape if d.chance(0.5) else (), d.one_of([3, 7, 40]))
        if amount.dtype != x.dtype:
            (amount,) = d.step("cast", amount, dtype=x.dtype)
        d.step(op, x, amount)
        return
    # Types may be mixed: formats with promotion promote, and others decline.
    y = d.beside(x, d.dtype(d.writer.dtypes) if d.chance(0.15) else "")
    d.step(op, *((x, y) if d.chance(0.7) else (y, x)))


@recipe("add_scalar", "mul_scalar", "sub_scalar", "div_scalar", "pow_scalar", "from_scalar",
        "over_scalar", "remainder_scalar", "max_scalar", "lt_scalar", "eq_scalar",
        "scalar_pow", "floor_div_scalar")  # fmt: skip
def scalar(d: Draw, op: str) -> None:
    x = d.pick()
    numbers = [0, 1, 2, 3, -1, -2, -3, 7, 10, 127, 128, 255, 256]
    if x.dtype in FLOATS or d.chance(0.2):
        numbers += [0.5, -0.5, 1.5, 0.1, -1.0, 2.0, 3.0, 1e-3, 0.25, 1e4, -2.5]
    d.step(op, x, c=d.one_of(numbers))


@recipe("where", "masked_fill")
def choose(d: Draw, op: str) -> None:
    x = d.pick()
    condition = d.like(x, x.shape, "bool") if d.chance(0.6) else d.beside(x, "bool")
    if op == "masked_fill":
        d.step(op, x, condition, c=d.one_of([0, 1, -1, 2, 100]))
        return
    y = d.beside(x)
    d.step(op, condition, *((x, y) if d.chance(0.5) else (y, x)))


@recipe("where_scalar")
def choose_scalar(d: Draw, op: str) -> None:
    x = d.pick()
    d.step(op, d.like(x, x.shape, "bool"), x, c=d.one_of([0, 1, -1, 0.5, 2]))


@recipe("clamp", "clamp_min", "clamp_max")
def clamp(d: Draw, op: str) -> None:
    low = d.number(-3, 2)
    d.step(op, d.pick(), low=low, high=low + d.one_of([0, 1, 2, 5, -1]))


@recipe("clamp_values", "lerp", "addcmul", "addcdiv", "fma")
def three(d: Draw, op: str) -> None:
    x = d.pick()
    d.step(op, x, d.beside(x), d.beside(x), c=d.one_of([1, 2, -1, 0.5, 3]))


@recipe("cast", "cast_saturated")
def cast(d: Draw, op: str) -> None:
    # Floats that no integer of the type stands for are undefined: they are clamped before.
    x, to = d.pick(), d.dtype(d.writer.dtypes)
    if x.dtype in FLOATS and to in INTS and op == "cast":
        low = 0 if to.startswith("uint") else -128
        (x,) = d.step("clamp", x, low=low, high=127)
        (x,) = d.step("nan_to_num", x)
    d.step(op, x, dtype=to)


@recipe("bitcast")
def bitcast(d: Draw, op: str) -> None:
    d.step(op, d.pick(), dtype=d.dtype([t for t in d.writer.dtypes if t != "bool"]))

"""Recipes for operators that work element by element, and for types."""

from __future__ import annotations

import numpy as np

from .draft import COMMON, DTYPES, FLOATS, Declined, Draft, Var, allowed, code, recipe

NUMERIC = tuple(d for d in DTYPES if d != "bool")
UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh",
    "Erf", "Exp", "Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not",
    "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Tan", "Tanh", "Shape", "Size", "GlobalLpPool",
)  # fmt: skip
BINARY = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Greater", "GreaterOrEqual",
    "Less", "LessOrEqual", "Mul", "Or", "Sub", "Xor", "PRelu",
)  # fmt: skip


@recipe(*(op for op in UNARY if op != "GlobalLpPool"))
def unary(d: Draft, op: str) -> None:
    d.node(op, [d.pick(allowed(op, d.opset))])


@recipe(*BINARY)
def binary(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    y = d.beside(x)
    one_way = op == "PRelu"
    d.node(op, [x, y] if one_way or d.chance(0.6) else [y, x])


@recipe("Div", "Mod")
def divide(d: Draft, op: str) -> None:
    """Divisors are not 0: ONNX Runtime dies of that.  Zeros have tests of their own."""
    x = d.pick(allowed(op, d.opset))
    y = d.contents(x.dtype, tuple(1 if d.chance(0.2) else e for e in x.shape))
    if x.dtype not in FLOATS or d.chance(0.7):
        y = np.where(y == 0, np.ones_like(y), y)
    fmod = {"fmod": 1} if op == "Mod" and (x.dtype in FLOATS or d.chance(0.3)) else {}
    # A weight, so that no feed of strange numbers brings zeros.
    d.node(op, [x, d.given(y, True)], **fmod)


@recipe("Pow")
def power(d: Draft, op: str) -> None:
    x = d.pick([t for t in allowed(op, d.opset) if t != "bfloat16"])
    if d.chance(0.4):
        exponent = d.given(np.array(d.one_of((2, 3, 0, 1)), DTYPES[x.dtype]), True)
    else:
        exponent = d.beside(x, x.dtype if d.chance(0.7) else d.dtype(("float", "int32", "int64")))
        if exponent.dtype not in FLOATS and x.dtype not in FLOATS:
            raise Declined  # negative powers of integers: no two runtimes agree
    d.node(op, [x, exponent])


@recipe("Max", "Min", "Sum", "Mean")
def variadic(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    d.node(op, [x, *(d.beside(x) for _ in range(d.number(0, 3)))])


@recipe("BitShift")
def shift(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    distance = d.rng.integers(0, DTYPES[x.dtype].itemsize * 8, x.shape).astype(DTYPES[x.dtype])
    d.node(op, [x, d.given(distance)], direction=d.one_of(("LEFT", "RIGHT")))


@recipe("Where")
def where(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset, 1))
    d.node(op, [d.beside(x, "bool"), x, d.beside(x)])


@recipe("Clip")
def clip(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    kind = DTYPES[x.dtype]
    low = d.given(np.array(1, kind)) if d.chance(0.7) else None
    high = d.given(np.array(d.one_of((2, 5)), kind)) if low is None or d.chance(0.7) else None
    d.node(op, [x, low, high])


@recipe("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu", "Swish", "Gelu",
        "Shrink", "IsInf")  # fmt: skip
def tuned(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    floats = {"Celu": ("alpha",), "Elu": ("alpha",), "HardSigmoid": ("alpha", "beta"),
              "LeakyRelu": ("alpha",), "Selu": ("alpha", "gamma"), "ThresholdedRelu": ("alpha",),
              "Swish": ("alpha",), "Shrink": ("lambd", "bias")}.get(op, ())  # fmt: skip
    given: dict[str, object] = {k: d.one_of((0.25, 0.5, 1.5)) for k in floats if d.chance(0.6)}
    if op == "Gelu" and d.chance(0.5):
        given["approximate"] = "tanh"
    if op == "IsInf":
        given |= {k: 0 for k in ("detect_negative", "detect_positive") if d.chance(0.3)}
    d.node(op, [x], **given)


@recipe("Cast")
def cast(d: Draft, op: str) -> None:
    x = d.pick(DTYPES)
    d.node(op, [x], to=code(target(d, x)))


@recipe("CastLike")
def cast_like(d: Draft, op: str) -> None:
    x = d.pick(DTYPES)
    d.node(op, [x, d.fresh(target(d, x), (1,))])


def target(d: Draft, x: Var) -> str:
    """Return a type to cast to; fractions to unsigned numbers are anyone's guess."""
    to = d.dtype(DTYPES if d.chance(0.5) else COMMON)
    if x.dtype in FLOATS and to.startswith("uint"):
        raise Declined
    return to


@recipe("Dropout")
def dropout(d: Draft, op: str) -> None:
    # What the mask of old forms holds where nothing is dropped is not said.
    d.node(op, [d.pick(allowed(op, d.opset))], outputs=d.number(1, 2) if d.opset >= 12 else 1)


@recipe("com.microsoft:Gelu", "com.microsoft:QuickGelu")
def gelu(d: Draft, op: str) -> None:
    x = d.pick(["float"])
    d.node(op.partition(":")[2], [x], domain="com.microsoft", types=[(x.dtype, x.shape)])


@recipe("com.microsoft:BiasGelu", "com.microsoft:FastGelu")
def bias_gelu(d: Draft, op: str) -> None:
    x = d.pick(["float"], 1, empty=False)
    bias = d.fresh(x.dtype, x.shape[-1:])
    d.node(op.partition(":")[2], [x, bias], domain="com.microsoft", types=[(x.dtype, x.shape)])

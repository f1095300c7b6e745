"""Recipes for operators that work element by element."""

from __future__ import annotations

from typing import Any

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, FLOATS, Shape
from .inference import Declined, allowed
from .recipe import PATTERNS, recipe

UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh",
    "Erf", "Exp", "Floor", "HardSwish", "Identity", "IsNaN", "Log", "Mish", "Neg", "Not",
    "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign",
    "Sqrt", "Tan", "Tanh",
)  # fmt: skip
FUNCTIONS = (
    "Asinh", "Atan", "Celu", "Cosh", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish",
    "LeakyRelu", "Log", "Mish", "Reciprocal", "Selu", "Shrink", "Sigmoid", "Sinh", "Softplus",
    "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
)  # fmt: skip
"""Functions of one number that have attributes at most, with defaults."""
COMPARING = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
BINARY = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", *COMPARING, "Mul", "Or", "Sub", "Xor",
)  # fmt: skip
ALPHAS = (0.25, 0.5, 1.0, 1.5, 0.01, 3.0)


def far(d: Draft, x: Var) -> None:
    """Feed numbers from 10^-4 to 1000 of both signs: there functions end, or become lines."""
    array = d.inputs.get(x.name)
    if array is not None and x.dtype in FLOATS and x.name not in d.controls:
        signs = np.where(d.rng.random(x.shape) < 0.5, -1.0, 1.0)
        d.inputs[x.name] = (signs * 10.0 ** d.rng.uniform(-4, 3, x.shape)).astype(array.dtype)


@recipe(*UNARY)
def unary(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    array = d.array(x)
    narrow = op in ("Log", "Sqrt", "Acosh", "Atanh") and x.dtype in FLOATS
    if narrow and array is not None and x.name in d.inputs and d.chance(0.5):
        inside = np.tanh(array) if op == "Atanh" else np.abs(array) + (op == "Acosh")
        d.inputs[x.name] = inside.astype(array.dtype)
    elif d.chance(0.5):
        far(d, x)
    kind = "bool" if op in ("IsNaN", "Not") else x.dtype
    d.node(op, [x], types=[(kind, x.shape)], **d.some(op, consumed_inputs=([0],)))


@recipe("functions of one tensor", table=PATTERNS)
def functions(d: Draft, op: str) -> None:
    """Several functions of the same elements, as far out as `far` goes."""
    x = d.pick(["float", "float", "float", "float16", "double"], empty=False)
    far(d, x)
    count = 0
    for name in map(str, d.rng.permutation(FUNCTIONS)):
        if d.schema(name) is not None and x.dtype in allowed(name, d.opset):
            d.node(name, [x], types=[(x.dtype, x.shape)])
            count += 1
        if count == 12:
            return


def across(d: Draft, x: Var) -> Var:
    """Return a value that stretches x: larger where x is 1, or of more axes."""
    shape = [d.extent(9) if e == 1 and d.chance(0.7) else e for e in x.shape]
    if x.rank < 6 and d.chance(0.3):
        shape.insert(0, d.extent(5))
    shape = [1 if e > 1 and d.chance(0.1) else e for e in shape]
    return d.fresh(x.dtype, tuple(shape))


def other(d: Draft, x: Var) -> Var:
    """Return a second operand that fits x: of its shape, smaller, larger, or x itself."""
    return across(d, x) if d.chance(0.25) else d.beside(x)


def stretched(d: Draft, op: str, x: Var) -> tuple[Var, dict[str, Any]]:
    """Return a second operand and the attributes that say how, up to opset 6, it is stretched."""
    if d.chance(0.4) or not x.rank:
        return d.fresh(x.dtype, x.shape), d.some(op, broadcast=(0,))
    first = d.number(0, x.rank)
    last = d.number(first, x.rank)
    axis = {} if last == x.rank and d.chance(0.5) else {"axis": d.one_of((first, first - x.rank))}
    if first == x.rank or (axis.get("axis", 0) < 0 and d.chance(0.5)):
        axis = {} if last == x.rank else {"axis": first}
    return d.fresh(x.dtype, x.shape[first:last]), {"broadcast": 1, **axis}


@recipe(*BINARY)
def binary(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    if d.has(op, "broadcast"):
        y, more = stretched(d, op, x)
        more |= d.some(op, consumed_inputs=([0, 0],))
        d.node(op, [x, y], types=[("bool" if op in COMPARING else x.dtype, x.shape)], **more)
        return
    y = other(d, x)
    d.node(op, [x, y] if d.chance(0.6) else [y, x])


@recipe("PRelu")
def prelu(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    if d.opset < 7:
        if x.rank < 2:
            raise Declined
        slope = d.fresh(x.dtype, d.one_of(((x.shape[1],), (1,))))
    elif d.opset < 9 or d.chance(0.4):
        channels = (x.shape[1], *(1 for _ in x.shape[2:])) if x.rank > 1 else x.shape
        slope = d.fresh(x.dtype, d.one_of((channels, (1,) * min(x.rank, 1), x.shape)))
    else:
        slope = d.beside(x)
    d.node(op, [x, slope], types=[(x.dtype, x.shape)], **d.some(op, consumed_inputs=([0, 0],)))


@recipe("Div", "Mod")
def divide(d: Draft, op: str) -> None:
    """Whole divisors are not 0: ONNX Runtime dies of that.  Zeros have tests of their own."""
    x = d.pick(allowed(op, d.opset))
    more = {}
    if op == "Mod":
        more = {"fmod": 1} if x.dtype in FLOATS else d.some(op, fmod=(0, 1))
    if d.has(op, "broadcast"):
        y, more = stretched(d, op, x)
        whole = x.shape
    else:
        y = other(d, x)
        whole = np.broadcast_shapes(x.shape, y.shape)
    if x.dtype not in FLOATS or d.chance(0.4):
        array = d.contents(y.dtype, y.shape)
        # A weight, so that no feed of strange numbers brings zeros.
        y = d.given(np.where(array == 0, np.ones_like(array), array), True)
    d.node(op, [x, y], types=[(x.dtype, whole)], **more)


EXPONENTS = (2, 3, 0, 1, 4, 5, 8, 10)
FRACTIONS = (0.5, -1, -2, -0.5, 1.5, 2.5, -3, 0.25, 1 / 3)


@recipe("Pow")
def power(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    if d.has(op, "broadcast"):
        y, more = stretched(d, op, x)
        d.node(op, [x, y], types=[(x.dtype, x.shape)], **more)
        return
    kinds = allowed(op, d.opset, 1) if d.opset >= 12 else [x.dtype]
    kind = x.dtype if d.chance(0.6) else d.dtype(kinds)
    if kind not in kinds:
        raise Declined
    if d.chance(0.5):
        number = d.one_of(EXPONENTS if kind not in FLOATS else EXPONENTS + FRACTIONS)
        shape: Shape = d.one_of(((), (), (1,), x.shape))
        exponent = d.given(np.full(shape, number).astype(DTYPES[kind]), d.chance(0.8))
    else:
        exponent = other(d, x) if kind == x.dtype else d.beside(x, kind)
    if exponent.dtype not in FLOATS and x.dtype not in FLOATS:
        # Negative powers of integers: no two runtimes agree.
        small = d.rng.integers(0, 4, exponent.shape).astype(DTYPES[kind])
        exponent = d.given(small, True)
    d.node(op, [x, exponent])


@recipe("Max", "Min", "Sum", "Mean")
def variadic(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    count = d.number(0, 3) if d.chance(0.9) else 7
    if d.opset < 8:
        more = [x if d.chance(0.15) else d.fresh(x.dtype, x.shape) for _ in range(count)]
        given = d.some(op, consumed_inputs=([0] * (count + 1),))
        d.node(op, [x, *more], types=[(x.dtype, x.shape)], **given)
        return
    parts = [x]
    shape = x.shape
    for _ in range(count):
        parts.append(other(d, Var("", x.dtype, shape)) if d.chance(0.7) else d.beside(x))
        try:
            shape = np.broadcast_shapes(shape, parts[-1].shape)
        except ValueError:
            raise Declined from None
    d.node(op, [p if p.name else x for p in parts])


@recipe("BitShift")
def shift(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    bits = DTYPES[x.dtype].itemsize * 8
    shape = d.one_of((x.shape, (), tuple(1 if d.chance(0.3) else e for e in x.shape)))
    distance = d.rng.integers(0, d.one_of((bits, min(bits, 8), 2)), shape).astype(DTYPES[x.dtype])
    d.node(op, [x, d.given(distance, True)], direction=d.one_of(("LEFT", "RIGHT")))


@recipe("Where")
def where(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset, 1))
    y = other(d, x)
    whole = Var("", x.dtype, np.broadcast_shapes(x.shape, y.shape))
    condition = d.beside(whole, "bool") if d.chance(0.8) else d.fresh("bool", across(d, x).shape)
    d.node(op, [condition, x, y] if d.chance(0.6) else [condition, y, x])


@recipe("Clip")
def clip(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    low, high = sorted(d.one_of([(-1, 1), (0, 6), (1, 2), (2, 2), (0, 127), (1, 5)]))
    if d.chance(0.1):
        low, high = high, low
    if d.has(op, "min"):
        bounds = d.some(op, min=(float(low), -0.5), max=(float(high), 6.0))
        more = d.some(op, consumed_inputs=([0],))
        d.node(op, [x], types=[(x.dtype, x.shape)], **bounds, **more)
        return
    if x.dtype.startswith("u"):
        low, high = max(low, 0), max(high, 0)

    def bound(number: float) -> Var | None:
        if d.chance(0.3):
            return None
        if x.name and d.chance(0.05):
            number = float(np.inf) if x.dtype in FLOATS and number > 1 else number
        return d.given(np.array(number, DTYPES[x.dtype]), d.chance(0.6))

    d.node(op, [x, bound(low), bound(high)])


@recipe("Celu", "Elu", "HardSigmoid", "LeakyRelu", "Selu", "ThresholdedRelu", "Swish", "Gelu",
        "Shrink", "IsInf")  # fmt: skip
def tuned(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset))
    more = d.some(
        op, consumed_inputs=([0],), alpha=ALPHAS if op == "Celu" else (*ALPHAS, -0.5, 0.0),
        beta=(0.5, 0.0, 1.0, -0.25), gamma=ALPHAS, lambd=(0.25, 0.5, 1.5, 0.0),
        bias=(0.0, 0.5, -1.0), approximate=("none", "tanh"), detect_negative=(0, 1),
        detect_positive=(0, 1),
    )  # fmt: skip
    if op == "ThresholdedRelu" and more.get("alpha", 1.0) < 0:
        raise Declined
    array = d.array(x)
    if op == "IsInf" and array is not None and array.size and x.name in d.inputs:
        spots = d.rng.random(array.shape) < 0.3
        signs = np.where(d.rng.random(array.shape) < 0.5, -np.inf, np.inf)
        d.inputs[x.name] = np.where(spots, signs, array.astype(np.float64)).astype(array.dtype)
    d.node(op, [x], types=[("bool" if op == "IsInf" else x.dtype, x.shape)], **more)


@recipe("Dropout")
def dropout(d: Draft, op: str) -> None:
    """In training it is random: there `recipes_random` has it."""
    x = d.pick(allowed(op, d.opset))
    if d.opset < 12:
        more = d.some(op, consumed_inputs=([0],), is_test=(1,), ratio=(0.0, 0.25, 0.5))
        if d.has(op, "is_test"):
            more["is_test"] = 1
        # What the mask of old forms holds where nothing is dropped is not said.
        d.node(op, [x], types=[(x.dtype, x.shape)], **more)
        return
    share = np.array(d.one_of((0.0, 0.5, 0.25)), DTYPES[d.one_of(allowed(op, d.opset, 1))])
    ratio = d.given(share, True) if d.chance(0.5) else None
    training = d.given(np.array(False), True) if d.chance(0.5) else None
    d.node(op, [x, ratio, training], outputs=d.number(1, 2), **d.some(op, seed=(0, 7)))


# ── on trial before opset 10, and then dropped ──


@recipe("Affine", "Scale", "ParametricSoftplus", "ScaledTanh")
def scaled(d: Draft, op: str) -> None:
    if d.opset > 9:
        raise Declined
    x = d.pick(["float"])
    names = {"Affine": ("alpha", "beta"), "Scale": ("scale",)}.get(op, ("alpha", "beta"))
    more = {name: d.one_of((0.5, 1.0, 2.0, -1.5, 0.0)) for name in names if d.chance(0.7)}
    d.node(op, [x], types=[(x.dtype, x.shape)], **more)

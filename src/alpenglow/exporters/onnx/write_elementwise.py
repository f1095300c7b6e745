"""Writers of elementwise operators: one node where ONNX has the operator, else the formula.

Operands that were stretched to a common shape are written as they were before: operators of ONNX
stretch operands by themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from alpenglow.exporters.onnx.elements import CODES, EIGHT_BITS, schema_of
from alpenglow.exporters.onnx.formula import OnnxMath, is_number, number
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import FLOATS, HALVES, INTS, NARROW, NARROW_INTS
from alpenglow.ops.elementwise.activation import (
    Celu,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    PRelu,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    Tanh,
    ThresholdedRelu,
)
from alpenglow.ops.elementwise.arithmetic import (
    Abs,
    Add,
    Ceil,
    Clip,
    Floor,
    Maximum,
    Minimum,
    Mul,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sub,
)
from alpenglow.ops.elementwise.comparison import (
    Equal,
    Greater,
    GreaterOrEqual,
    IsInf,
    IsNaN,
    Less,
    LessOrEqual,
)
from alpenglow.ops.elementwise.select import BitCast, Cast, Where
from alpenglow.ops.elementwise.transcendental import (
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Cos,
    Cosh,
    Erf,
    Exp,
    Log,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import unstretched

SAME: dict[type[Op], str] = {
    Add: "Add", Sub: "Sub", Mul: "Mul", Minimum: "Min", Maximum: "Max",
    Abs: "Abs", Sign: "Sign", Reciprocal: "Reciprocal",
    Floor: "Floor", Ceil: "Ceil", Round: "Round",
    Relu: "Relu", Sigmoid: "Sigmoid", Tanh: "Tanh", HardSwish: "HardSwish", Softplus: "Softplus",
    Softsign: "Softsign", Mish: "Mish",
    Exp: "Exp", Log: "Log", Sqrt: "Sqrt", Sin: "Sin", Cos: "Cos", Tan: "Tan", Asin: "Asin",
    Acos: "Acos", Atan: "Atan", Sinh: "Sinh", Cosh: "Cosh", Asinh: "Asinh", Acosh: "Acosh",
    Atanh: "Atanh", Erf: "Erf",
    Equal: "Equal", Less: "Less", LessOrEqual: "LessOrEqual", Greater: "Greater",
    GreaterOrEqual: "GreaterOrEqual", IsNaN: "IsNaN", Where: "Where",
}  # fmt: skip
"""The operators that ONNX has as they stand."""

PARAMETERS: dict[type[Op], tuple[str, dict[str, str]]] = {
    LeakyRelu: ("LeakyRelu", {"alpha": "alpha"}),
    Elu: ("Elu", {"alpha": "alpha"}),
    Celu: ("Celu", {"alpha": "alpha"}),
    Selu: ("Selu", {"alpha": "alpha", "gamma": "gamma"}),
    HardSigmoid: ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    ThresholdedRelu: ("ThresholdedRelu", {"alpha": "alpha"}),
    Shrink: ("Shrink", {"lambd": "lambd", "bias": "bias"}),
    Swish: ("Swish", {"alpha": "alpha"}),
}
"""The operators with numbers that ONNX has, and what it calls these."""


RELUS = FLOATS | {"i8", "i16", "i32"}
"""The types that runtimes have a Relu for, be it a wider one."""


def _has_node(opset: int, node: Node) -> bool:
    """Return True if ONNX has an operator of this name, for the numbers and types of a node."""
    (x, *_) = node.inputs
    assert x is not None, "elementwise operators have operands"
    op, dtype = node.op, x.type.dtype
    if isinstance(op, Relu):
        return dtype in RELUS
    name = SAME[type(op)] if type(op) in SAME else PARAMETERS[type(op)][0]
    # An attribute is an f32, which an f64 may not be; and runtimes lack all but f32 here.
    whole = type(op) in SAME or dtype != "f64"
    return whole and schema_of(name, opset) is not None


@on(*SAME, when=_has_node)
def same(w: Writer, op: Op, *operands: Value) -> Tensor:
    return w(SAME[type(op)], *stretched(operands))


@on(*PARAMETERS, when=_has_node)
def with_numbers(w: Writer, op: Op, x: Value) -> Tensor:
    name, numbers = PARAMETERS[type(op)]
    attributes: dict[str, Any] = {
        theirs: float(getattr(op, ours)) for ours, theirs in numbers.items()
    }
    return w(name, x, **attributes)


@on(Neg)
def negative(w: Writer, op: Neg, x: Value) -> Tensor:
    return w("Neg", x)


@on(Gelu, when=lambda opset, node: opset >= 20 and node.results[0].type.dtype != "f64")
def gelu(w: Writer, op: Gelu, x: Value) -> Tensor:
    return w("Gelu", x, approximate="tanh" if op.tanh else "none")


@on(PRelu, when=lambda opset, node: node.results[0].type.dtype in FLOATS - {"f64"})
def prelu(w: Writer, op: PRelu, x: Value, slope: Value) -> Tensor:
    """Only the slope is stretched."""
    return w("PRelu", x, stretched([x, slope])[1])


@on(Clip)
def clip(w: Writer, op: Clip, x: Value) -> Tensor:
    """Write what is open at one end as an extreme: to Clip it ends at the largest number there."""
    low, high = (None if math.isinf(b) else number(b, x.type.dtype) for b in (op.low, op.high))
    if low is not None and high is not None:
        return w("Clip", x, low, high)
    if low is not None:
        return w("Relu", x) if low == 0 and x.type.dtype in RELUS else w("Max", x, low)
    return w.tensor(x) if high is None else w("Min", x, high)


@on(IsInf, when=lambda opset, node: node.op.negative or node.op.positive)  # type: ignore[attr-defined]
def is_inf(w: Writer, op: IsInf, x: Value) -> Tensor:
    return w("IsInf", x, detect_negative=int(op.negative), detect_positive=int(op.positive))


@on(Copy)
def copy(w: Writer, op: Copy, x: Value) -> Tensor:
    return w.tensor(x)


@on(Cast)
def cast(w: Writer, op: Cast, x: Value) -> Tensor:
    if x.type.dtype == op.dtype:
        return w.tensor(x)
    source = w.tensor(x)
    if {source.dtype, op.dtype} <= NARROW:
        source = w.cast(source, "f32")
    if op.dtype in NARROW_INTS and source.dtype in FLOATS:
        source = w.cast(source, "i32")  # which truncates, everywhere
    attributes: dict[str, Any] = {}
    if op.dtype in EIGHT_BITS:
        attributes["saturate"] = int(op.saturate)
    if op.dtype == "f8e8m0":
        attributes["round_mode"] = op.rounding
    return w("Cast", source, makes=op.dtype, to=CODES[op.dtype], **attributes)


@on(BitCast)
def bit_cast(w: Writer, op: BitCast, x: Value) -> Tensor:
    """Read integers as others of their width by converting them: they wrap around."""
    kinds = {x.type.dtype, op.dtype}
    if x.type.dtype == op.dtype:
        return w.tensor(x)
    if kinds <= INTS or kinds <= NARROW_INTS:
        return w.cast(x, op.dtype)
    return OnnxMath(w).bits(w.tensor(x), op.dtype)


def formula(w: Writer, node: Node) -> Tensor:
    """Write an elementwise operator by its formula, in f32 where it is of half precision."""
    op, (out,) = node.op, node.results
    assert isinstance(op, Elementwise), f"{op.name} has no formula"
    m = OnnxMath(w)
    wide = [m.cast(x, "f32") if w.dtype(x) in HALVES else x for x in terms(w, node.inputs)]
    y = op.scalar(m, *wide)
    return w.cast(y if not is_number(y) else number(y, out.type.dtype), out.type.dtype)


def terms(w: Writer, operands: Sequence[Value | None]) -> list[Any]:
    """Return operands as a formula takes them: constants as arrays, which may rule cases out."""
    return [w.tensor(v) if v.array is None else v.array
            for v in stretched(operands) if v is not None]  # fmt: skip


def stretched(operands: Sequence[Value | None]) -> list[Value | None]:
    """Return operands of one shape as they were before they were stretched to it.

    The first operand gets the part of the shape that no operand has.
    """
    narrow = [None if v is None else unstretched(v) for v in operands]
    shapes = [v.type.shape for v in narrow if v is not None]
    assert operands[0] is not None, "elementwise operators have operands"
    shape = operands[0].type.shape
    return narrow if _common(shapes, len(shape)) == shape else [operands[0], *narrow[1:]]


def _common(shapes: Sequence[tuple[Dim, ...]], rank: int) -> tuple[Dim, ...]:
    """Return the shape that ONNX stretches operands to, which fit each other."""
    aligned = [(1,) * (rank - len(s)) + s for s in shapes]
    return tuple(next((d for d in column if d != 1), 1) for column in zip(*aligned, strict=True))

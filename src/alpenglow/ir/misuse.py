"""Checks of arguments of graphs: errors name the argument, its value and the expected kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Op
from alpenglow.ir.types import TensorType, type_of


def require_operation(op: object, operands: Sequence[object], value: type) -> None:
    """Raise TypeRuleError if `op` is no operator, or an operand is neither a `value` nor None."""
    if isinstance(op, type) and issubclass(op, Op):
        raise TypeRuleError(
            f"{op.name}: the operator is the class {op.__name__}, expected an instance",
            hint=f"{op.__name__}(…)",
        )
    if not isinstance(op, Op):
        raise TypeRuleError(
            f"the operator is {told_of(op)}, expected an instance of an operator",
            hint="graph(Relu(), x), with Relu of alpenglow.ops.elementwise.activation",
        )
    names = (*op.operands, *("" for _ in operands))
    for number, (name, operand) in enumerate(zip(names, operands, strict=False)):
        if operand is None or isinstance(operand, value):
            continue
        raise TypeRuleError(
            f"{op.name}: operand {name or number} is {told_of(operand)}, expected a Value",
            hint="graph.constant(np.float32(1)), and Broadcast(shape) to the shape of the others",
        )


def type_given(type_: object, what: str) -> TensorType:
    """Return the type that an argument is or spells; raise TypeRuleError if it is none."""
    if isinstance(type_, TensorType):
        return type_
    if isinstance(type_, str):
        return TensorType.parse(type_)
    raise TypeRuleError(f"{what} is {told_of(type_)}, expected a type", hint="'f32[N,3]'")


def array_given(contents: Any) -> np.ndarray[Any, Any]:
    """Return the contents of a constant as an array; raise TypeRuleError if it has no type."""
    try:
        array = np.asarray(contents)
        type_of(array)
    except (ValueError, TypeError, AssertionError):
        raise TypeRuleError(
            f"a constant is {told_of(contents)}, expected an array of numbers",
            hint="np.asarray(…, np.float32)",
        ) from None
    return array


def told_of(argument: object) -> str:
    """Return an argument as a message shows it: its value if that is short, else its type."""
    kind = type(argument).__name__
    if argument is None or isinstance(argument, type):
        return repr(argument)
    if isinstance(argument, str | int | float):
        return f"{argument!r} ({kind})"
    return f"of type {kind}"

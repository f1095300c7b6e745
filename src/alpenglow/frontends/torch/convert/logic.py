"""Converters for comparisons, truths, bits and choices."""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.promote import kind
from alpenglow.frontends.torch.table import Made, Operand, Site, element, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise import comparison, logic, select


def compared(name: str, op: Op) -> None:
    """Register a comparison of a tensor with a tensor or a number."""

    @on(f"aten.{name}.Tensor", f"aten.{name}.Scalar", f"prims.{name}.default")
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.apply(op, x, other)


compared("eq", comparison.Equal())
compared("lt", comparison.Less())
compared("le", comparison.LessOrEqual())
compared("gt", comparison.Greater())
compared("ge", comparison.GreaterOrEqual())


@on("aten.ne.Tensor", "aten.ne.Scalar", "prims.ne.default")
def not_equal(s: Site, x: Operand, other: Operand) -> Made:
    return s.g(logic.BitNot(), s.apply(comparison.Equal(), x, other))


def bitwise(name: str, op: Op) -> None:
    """Register an operator on the bits of integers, or on truths."""

    @on(f"aten.bitwise_{name}.Tensor", f"aten.bitwise_{name}.Scalar",
        f"aten.bitwise_{name}.Scalar_Tensor", f"aten.__{name}__.Tensor",
        f"aten.__{name}__.Scalar", f"prims.bitwise_{name}.default")  # fmt: skip
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.apply(op, x, other, dtype=s.result.dtype)

    @on(f"aten.logical_{name}.default")
    def logical(s: Site, x: Value, other: Value) -> Made:
        return s.apply(op, x, other, dtype="bool")


bitwise("and", logic.BitAnd())
bitwise("or", logic.BitOr())
bitwise("xor", logic.BitXor())


def shifted(side: str, op: Op, *more: str) -> None:
    """Register a shift of the bits of integers."""

    @on(f"aten.bitwise_{side}_shift.Tensor", f"aten.bitwise_{side}_shift.Tensor_Scalar",
        f"aten.bitwise_{side}_shift.Scalar_Tensor", *more)  # fmt: skip
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        if kind(s.result.dtype) != 1:
            raise UnsupportedError(f"dtype is {s.result.dtype}, expected an integer dtype")
        return s.apply(op, x, other, dtype=s.result.dtype)


shifted("left", logic.ShiftLeft(), "aten.__lshift__.Tensor", "aten.__lshift__.Scalar",
        "prims.shift_left.default")  # fmt: skip
shifted("right", logic.ShiftRight(), "aten.__rshift__.Tensor", "aten.__rshift__.Scalar",
        "prims.shift_right_arithmetic.default")  # fmt: skip


@on("aten.logical_not.default")
def logical_not(s: Site, x: Value) -> Made:
    return s.g(logic.BitNot(), s.cast(x, "bool"))


@on("aten.bitwise_not.default", "prims.bitwise_not.default")
def bitwise_not(s: Site, x: Value) -> Made:
    return s.g(logic.BitNot(), x)


# ── choices ──


@on("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf", "aten.where.Scalar",
    "prims.where.default")  # fmt: skip
def where(s: Site, condition: Value, x: Operand, other: Operand) -> Made:
    values = s.operands(x, other, dtype=s.result.dtype)
    return s.g(select.Where(), *s.broadcast(s.cast(condition, "bool")), *values)


@on("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(s: Site, x: Value, mask: Value, value: Operand) -> Made:
    filling = value if isinstance(value, Value) else element(value, s.result.dtype)
    values = s.operands(filling, x, dtype=s.result.dtype)
    return s.g(select.Where(), *s.broadcast(mask), *values)

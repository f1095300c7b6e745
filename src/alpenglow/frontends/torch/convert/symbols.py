"""Converters for numbers: what is computed from extents, and what is read out of tensors.

Whole numbers that are made of extents alone are expressions (`symbols`); what is left are floats,
which are tensors of f64 without axes, and numbers that are data, for which the import is cut.
"""

from __future__ import annotations

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch.program import Condition
from alpenglow.frontends.torch.table import Made, Operand, Site, on
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise import arithmetic, transcendental


def computed(name: str, op: Op) -> None:
    """Register an operator of Python's on two numbers, of which one is a float."""

    @on(f"operator.{name}")
    def convert(s: Site, x: Operand, other: Operand) -> Made:
        return s.g(op, s.tensor(x, "f64"), s.tensor(other, "f64"))


computed("add", arithmetic.Add())
computed("sub", arithmetic.Sub())
computed("mul", arithmetic.Mul())
computed("truediv", arithmetic.Div())
computed("pow", arithmetic.Pow())


def single(target: str, op: Op) -> None:
    """Register a function of one number."""

    @on(target)
    def convert(s: Site, x: Operand) -> Made:
        return s.g(op, s.tensor(x, "f64"))


single("operator.neg", arithmetic.Neg())
single("torch._sym_sqrt", transcendental.Sqrt())
single("math.sqrt", transcendental.Sqrt())


@on("torch.sym_float")
def sym_float(s: Site, x: Operand) -> Made:
    return s.tensor(x, "f64")


@on("aten._local_scalar_dense.default", "aten.item.default")
def item(s: Site, x: Value) -> Made:
    """A float stays a tensor; a whole number is known where the import goes on."""
    if x.type.dtype in FLOATS:
        return s.reshaped(s.cast(x, "f64"), ())
    return list(s.measured(s.cast(s.reshaped(x, ()), "i64")))


@on("aten._assert_scalar.default")
def assert_scalar(s: Site, x: Condition | bool | Dim | Value, assert_msg: str = "") -> Made:
    if isinstance(x, Value):
        raise UnsupportedError("self is computed, "
                               f"expected a condition on dimensions: {assert_msg}")  # fmt: skip
    if isinstance(x, Condition):
        s.demand(x, assert_msg)
    elif not s.truth(x):
        raise UnsupportedError("self is false, "
                               f"expected a condition that can be true: {assert_msg}")  # fmt: skip
    return []

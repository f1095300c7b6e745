"""Results are held to the types that the program declares for them."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.base.errors import ModelError, TypeRuleError
from alpenglow.frontends.presume import presume
from alpenglow.frontends.stablehlo.elements import element
from alpenglow.frontends.stablehlo.module import Operation, Quantized, Tensor, Type
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import DTYPES, NARROW, TensorType
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.movement import stretch


def declared(g: Graph, kind: str, types: Sequence[Type], i: int, v: Value) -> Value:
    """Return a value as the program declares it; raise ModelError if it is of another type.

    Elements of few bits, which are computed with in more, are given theirs.  A dimension that
    is dynamic here and declared as a number is taken to be that number.
    """
    t = types[i] if i < len(types) else None
    if not isinstance(t, Tensor):
        raise ModelError(f"{kind}: result {i} is declared as {t}, expected a tensor")
    dtype = element(kind, t)
    if dtype in NARROW and v.type.dtype != dtype:
        v = g(Cast(dtype), v)
    fits = v.type.dtype == dtype and (t.shape is None or len(t.shape) == v.type.rank)
    if fits and t.shape is not None:
        for there, here in zip(t.shape, v.type.shape, strict=True):
            if there is None or there == here:
                continue
            fits &= not known(here) and presume(here - there, "==")
    if not fits:
        raise TypeRuleError(f"{kind}: the result is declared as {t}, expected {v.type}")
    return v


def static(t: Type | None) -> TensorType | None:
    """Return the type of a tensor as a graph has it; None if it is dynamic, or not supported."""
    if not isinstance(t, Tensor) or t.shape is None:
        return None
    dtype = t.dtype.storage if isinstance(t.dtype, Quantized) else t.dtype
    shape = tuple(d for d in t.shape if d is not None)
    return TensorType(dtype, shape) if dtype in DTYPES and len(shape) == len(t.shape) else None


def declared_pointwise(g: Graph, o: Operation, i: int, v: Value, shape: tuple[Dim, ...]) -> Value:
    """Return a result in a body that is applied to tensors of a shape, as `declared` does.

    The program declares a scalar.
    """
    t = o.types[i] if i < len(o.types) else None
    if not isinstance(t, Tensor) or t.shape != ():
        raise TypeRuleError(f"{o.label}: the result is declared as {t}, expected a scalar")
    dtype = element(o.name, t)
    if dtype in NARROW and v.type.dtype != dtype:
        v = g(Cast(dtype), v)
    if v.type.rank == 0:
        v = stretch(g, v, shape)
    if v.type.dtype != dtype or v.type.shape != shape:
        raise TypeRuleError(f"{o.label}: the result is declared as {t}, expected {v.type}")
    return v

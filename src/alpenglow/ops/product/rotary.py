"""Rotary position embedding: pairs of elements turned by angles (ONNX RotaryEmbedding)."""

from __future__ import annotations

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Sub
from alpenglow.ops.reduction.reduction import as_type, in_floats
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice


class RotaryEmbedding(Composite):
    """Pairs (u, w) on the last axis of x become (u cos - w sin, u sin + w cos).

    cos and sin have R/2 elements on their last axis and broadcast to x on the others; the first R
    elements of x are turned, the rest stays.  A pair are two neighbours if `interleaved`, else the
    elements i and i + R/2.  ONNX RotaryEmbedding.
    """

    interleaved: bool = False

    def infer(self, x: TensorType, cos: TensorType, sin: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 1)
        check_rank(self, "cos", cos, x.rank, x.rank)
        half, extent = cos.shape[-1], x.shape[-1]
        short = known(half) and known(extent) and 2 * half > extent
        if cos != sin or cos.dtype != x.dtype or short:
            raise TypeRuleError(
                f"rotary_embedding: cos is {cos} and sin is {sin}, expected equal types of "
                f"{x.dtype}, at most half as wide as x {x}"
            )
        Broadcast((*x.shape[:-1], half)).infer(cos)
        return x

    def lower(self, b: Graph, x: Value, cos: Value, sin: Value) -> Value:
        *outer, extent = x.type.shape
        half = cos.type.shape[-1]
        wide = in_floats(b, x)
        shape = (*outer, half)
        c, s = (b(Broadcast(shape), as_type(b, v, wide.type.dtype)) for v in (cos, sin))
        if self.interleaved:
            pairs = b(Reshape((*shape, 2)), part(b, wide, 0, half * 2))
            u, w = (b(Reshape(shape), part(b, pairs, i, 1)) for i in (0, 1))
        else:
            u, w = part(b, wide, 0, half), part(b, wide, half, half)
        turned = [
            b(Sub(), b(Mul(), c, u), b(Mul(), s, w)),
            b(Add(), b(Mul(), s, u), b(Mul(), c, w)),
        ]
        turned = [as_type(b, v, x.type.dtype) for v in turned]
        if self.interleaved:
            columns = [b(Reshape((*shape, 1)), v) for v in turned]
            turned = [b(Reshape((*outer, half * 2)), b(Concat(-1), *columns))]
        if extent != half * 2:
            turned.append(part(b, x, half * 2, extent - half * 2))
        return turned[0] if len(turned) == 1 else b(Concat(-1), *turned)

    @classmethod
    def examples(cls) -> Examples:
        for interleaved in (False, True):
            op = cls(interleaved)
            yield op, "f32[2,3,5,8]", "f32[2,1,5,4]", "f32[2,1,5,4]"
            yield op, "f32[2,5,3,7]", "f32[1,5,1,2]", "f32[1,5,1,2]"
            yield op, "f32[0,6]", "f32[1,3]", "f32[1,3]"
            for dtype in sorted(FLOATS - {"f32"}):
                yield op, f"{dtype}[3,8]", f"{dtype}[3,4]", f"{dtype}[3,4]"


def part(b: Graph, x: Value, start: Dim, size: Dim) -> Value:
    """Return `size` elements of x from `start` on, along the last axis."""
    *outer, extent = x.type.shape
    if start == 0 and size == extent:
        return x
    rank = x.type.rank
    return b(Slice((*[0] * (rank - 1), start), (*outer, size), (1,) * rank), x)

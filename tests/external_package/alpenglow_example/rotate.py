"""An operator of our own: what it means, how it compiles, and what it is called in ONNX models."""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.onnx.table import Site, on
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Examples, Primitive, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.kernel.expr import Expr
from alpenglow.loops.coord import Coord
from alpenglow.loops.form import Loops, Source, pull


class Rotate(Primitive):
    """The elements of the last axis of x, `steps` places further to the front, around the end."""

    steps: int = 1

    def infer(self, x: TensorType) -> TensorType:
        check_rank(self, "x", x, 1)
        return x

    def reference(self, x: Array) -> Array:
        return np.roll(x, -self.steps, axis=-1)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[7]"
        yield cls(-3), "i64[2,3,5]"
        yield cls(40), "bf16[3,17]"
        yield cls(2), "f32[3,0]"


@pull(Rotate)
def rotate(k: Loops, op: Rotate, ins: list[Source | None], at: list[Coord]) -> Expr:
    (x,) = ins
    assert x is not None
    extent = x.shape[-1]
    return x([*at[:-1], (at[-1] + op.steps % extent) % extent])


@on("Rotate", domain="example")
def convert(s: Site) -> Value:
    return s.g(Rotate(s.attribute("steps", 1)), s.input(0))

"""The writer of operators that take as many turns as each element needs: formulas in a loop."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath, is_number, number
from alpenglow.exporters.onnx.proto import loop
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.iterated import Iterated, narrowed


@on(Iterated)
def iterated(w: Writer, op: Iterated, *xs: Value) -> Tensor:
    t, m = xs[0].type, OnnxMath(w)
    first = op.first(m, *(w.tensor(x) for x in xs))
    states = [
        expanded(w, number(v, "f64").reshape((1,) * t.rank), t.shape) if is_number(v) else v
        for v in first
    ]

    def turn(b: Writer, before: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        inner = OnnxMath(b)
        going = op.goes_on(inner, tuple(before))
        after = op.turn(inner, tuple(before))
        chosen = [inner.where(going, new, old) for new, old in zip(after, before, strict=True)]
        return any_of(b, op.goes_on(inner, tuple(chosen)), t.rank), chosen

    going = any_of(w, op.goes_on(m, tuple(states)), t.rank)
    y = op.last(m, tuple(loop(w, turn, going, states)))
    return w.cast(w.cast(y, narrowed(t.dtype)), t.dtype)


def any_of(w: Writer, going: Tensor, rank: int) -> Tensor:
    """Return whether any element is true, a bool[]."""
    count = w("ReduceSum", w.cast(going, "i64"), np.arange(rank), keepdims=0) if rank else (
        w.cast(going, "i64"))  # fmt: skip
    return w("Greater", count, np.array(0))

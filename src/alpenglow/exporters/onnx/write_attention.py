"""The writer of linear attention: a loop over time."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.proto import scan
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_movement import expanded, reshaped
from alpenglow.exporters.onnx.writer import Tensor, Writer
from alpenglow.ir.graph import Value
from alpenglow.ops.sequence.linear_attention import LinearAttention


@on(LinearAttention)
def linear_attention(
    w: Writer, op: LinearAttention, q: Value, k: Value, v: Value, state: Value,
    decay: Value | None, beta: Value | None,
) -> list[Tensor]:  # fmt: skip
    batch, steps, heads, _ = q.type.shape
    width = v.type.shape[3]
    if 0 in (*q.type.shape, *v.type.shape):  # nothing is read, and nothing remembered
        empty = expanded(w, np.zeros((1,) * 4, q.type.numpy), (batch, steps, heads, width))
        return [empty, w.tensor(state)]
    wide = state.type.dtype
    given = {"q": q, "k": k, "v": v, "decay": decay, "beta": beta}
    read = {name: w.cast(x, wide) for name, x in given.items() if x is not None}

    def step(b: Writer, states: list[Tensor], slices: list[Tensor]) -> tuple[
            list[Tensor], list[Tensor]]:  # fmt: skip
        return _step(b, op, states[0], dict(zip(read, slices, strict=True)), q, v)

    after, y = scan(w, step, [w.tensor(state)], list(read.values()), [wide], axis=1)
    return [w.cast(y, q.type.dtype), after]


def _step(
    b: Writer, op: LinearAttention, state: Tensor, at: dict[str, Tensor], q: Value, v: Value
) -> tuple[list[Tensor], list[Tensor]]:  # fmt: skip
    """Write one step of all heads: state[B, G, D, E], q[B, H, D], k[B, G, D], v[B, G, E]."""
    m = OnnxMath(b)
    column, row = np.array([3], np.int64), np.array([2], np.int64)
    if "decay" in at:
        state = m.mul(state, b("Unsqueeze", m.exp(at["decay"]), column))
    value = at["v"]
    if "beta" in at:
        told = b("Squeeze", b("MatMul", b("Unsqueeze", at["k"], row), state), row)
        rate = b("Unsqueeze", at["beta"], row)
        value = m.mul(rate, m.sub(value, told))
    outer = m.mul(b("Unsqueeze", at["k"], column), b("Unsqueeze", value, row))
    state = m.add(state, outer)
    (batch, _, heads, size), (groups, width) = q.type.shape, v.type.shape[2:]
    queries = reshaped(b, at["q"], (batch, groups, int(heads) // int(groups), size))
    seen = m.mul(b("MatMul", queries, state), op.scale)
    return [state], [reshaped(b, seen, (batch, heads, width))]

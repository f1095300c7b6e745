"""Gradients of recurrent layers.

A layer that is traced says what went into its gates; that takes the place of the layer as it stood
(`passes/traced.py`).  One operator (`ops/sequence/recurrent_gradient.py`) goes back through steps
and gives the gradients of the gates; products over all steps give the gradients of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from alpenglow.autodiff.formula import GraphMath
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.reduction.reduction import ReduceSum, as_type, filled, in_floats
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn, activate
from alpenglow.ops.sequence.recurrent_gradient import GruGradient, LstmGradient, RnnGradient
from alpenglow.ops.sequence.recurrent_integer import LstmInteger
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice

Grads = Sequence[Value | None]


def lstm(
    op: Lstm, b: Graph, dys: Grads, xw: Value, r: Value, h0: Value, c0: Value,
    peepholes: Value | None = None, lengths: Value | None = None,
) -> list[Value | None]:  # fmt: skip
    traced = b.add(replace(op, traced=True), [xw, r, h0, c0, peepholes, lengths]).results
    dy, dh, dc = wide_gradients(b, op, dys, traced[:3])
    back = LstmGradient(op.reverse, op.activations, op.clip, op.couple)
    rows = None if peepholes is None else in_floats(b, peepholes)
    operands = [traced[3], turned(b, in_floats(b, r)), traced[4], dy, dh, dc, rows, lengths]
    dsums, dh0, dc0, dpeep = b.add(back, operands).results
    before = states_before(b, op, traced[0], h0, lengths)
    dxs: list[Value | None] = [dsums, weight_gradient(b, before, dsums), dh0, dc0]
    if peepholes is not None:
        dxs.append(b(Reshape(peepholes.type.shape), b(ReduceSum((0,), False), dpeep)))
    return [None if v is None else as_type(b, v, xw.type.dtype) for v in dxs]


def gru(
    op: Gru, b: Graph, dys: Grads, xw: Value, r: Value, h0: Value,
    bias: Value | None = None, lengths: Value | None = None,
) -> list[Value | None]:  # fmt: skip
    units = h0.type.shape[1]
    y, h, sums = b.add(replace(op, traced=True), [xw, r, h0, bias, lengths]).results
    dy, dh = wide_gradients(b, op, dys, [y, h])
    before = states_before(b, op, y, h0, lengths)
    fresh = None if bias is None else part(b, in_floats(b, xw), 2 * units, units)
    back = GruGradient(op.reverse, op.activations, op.clip)
    operands = [sums, turned(b, in_floats(b, r)), before, dy, dh, fresh, lengths]
    dxw, dlast, dh0 = b.add(back, operands).results
    source = before
    if bias is None:
        reset = activate(
            GraphMath(b, sums.type.dtype), op.activations[0], op.clip, part(b, sums, units, units)
        )
        source = b(Mul(), reset, before)
    gates = weight_gradient(b, before, part(b, dxw, 0, 2 * units))
    dxs = [dxw, b(Concat(1), gates, weight_gradient(b, source, dlast)), dh0]
    if bias is not None:
        dxs.append(b(ReduceSum((0, 1), False), dlast))
    return [as_type(b, v, xw.type.dtype) for v in dxs]


def rnn(
    op: Rnn, b: Graph, dys: Grads, xw: Value, r: Value, h0: Value, lengths: Value | None = None
) -> list[Value | None]:
    y, h, sums = b.add(replace(op, traced=True), [xw, r, h0, lengths]).results
    dy, dh = wide_gradients(b, op, dys, [y, h])
    back = RnnGradient(op.reverse, op.activations, op.clip)
    dsums, dh0 = b.add(back, [sums, turned(b, in_floats(b, r)), dy, dh, lengths]).results
    before = states_before(b, op, y, h0, lengths)
    return [as_type(b, v, xw.type.dtype) for v in (dsums, weight_gradient(b, before, dsums), dh0)]


def lstm_integer(op: LstmInteger, b: Graph, dys: Grads, *operands: Value | None) -> None:
    raise UnsupportedError(
        "gradient: lstm_integer has none: its state and weights are rounded to bytes, which is "
        "flat; differentiate the lstm of floats that it was made of"
    )


def states_before(
    b: Graph, op: Lstm | Gru | Rnn, y: Value, h0: Value, lengths: Value | None
) -> Value:
    """Return the h before each step [T, B, H], in f32 at least; past the lengths it is any."""
    y, first = in_floats(b, y), in_floats(b, h0)
    row = b(Reshape((1, *h0.type.shape)), first)
    together = b(Concat(0), *((y, row) if op.reverse else (row, y)))
    shifted = b(Slice((int(op.reverse), 0, 0), y.type.shape, (1, 1, 1)), together)
    if lengths is None or not op.reverse:
        return shifted
    # The first step that counts is the last one of each sequence.
    step, column = b(Iota(y.type.shape, 0)), (1, *lengths.type.shape, 1)
    count = b(Broadcast(y.type.shape), b(Reshape(column), as_type(b, lengths, "i64")))
    begins = b(Equal(), step, b(Sub(), count, filled(b, 1, count)))
    return b(Where(), begins, b(Broadcast(y.type.shape), row), shifted)


def weight_gradient(b: Graph, states: Value, dsums: Value) -> Value:
    """Return the gradient of weights, for those of the sums of all steps."""
    return b(MatMul(), turned(b, rows(b, states)), rows(b, dsums))


def rows(b: Graph, x: Value) -> Value:
    """Return x[T, B, N] as [T·B, N]."""
    return b(Reshape((product(x.type.shape[:2]), x.type.shape[2])), x)


def part(b: Graph, x: Value, start: Any, count: Any) -> Value:
    """Return `count` elements from `start` on, along the last axis."""
    rank = x.type.rank
    starts, sizes = (*[0] * (rank - 1), start), (*x.type.shape[:-1], count)
    return b(Slice(starts, sizes, (1,) * rank), x)


def wide_gradients(
    b: Graph, op: Lstm | Gru | Rnn, dys: Grads, results: Sequence[Value]
) -> list[Value]:
    """Return the gradients of results in f32 at least, zeros where there are none."""
    if any(dy is not None for dy in dys[len(results) :]):
        raise UnsupportedError(f"gradient: {op.name} has none of what it traced for a gradient")
    known = (filled(b, 0, y) if dy is None else dy for dy, y in zip(dys, results, strict=False))
    return [in_floats(b, dy) for dy in known]


RULES: dict[type[Op], Callable[..., Any]] = {
    Lstm: lstm,
    Gru: gru,
    Rnn: rnn,
    LstmInteger: lstm_integer,
}

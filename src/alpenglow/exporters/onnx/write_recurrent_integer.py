"""The writer of layers whose state is quantized in every step: a loop over time."""

from __future__ import annotations

import numpy as np

from alpenglow.exporters.onnx.formula import OnnxMath
from alpenglow.exporters.onnx.proto import scan
from alpenglow.exporters.onnx.table import on
from alpenglow.exporters.onnx.write_gather import limited, ramp
from alpenglow.exporters.onnx.write_movement import expanded, reshaped, sliced, transposed
from alpenglow.exporters.onnx.writer import Operand, Tensor, Writer
from alpenglow.ir.graph import Value
from alpenglow.ops.sequence.recurrent import activate
from alpenglow.ops.sequence.recurrent_integer import PANEL, STATE, WORD, LstmInteger, grid

State = tuple[list[Tensor], list[Tensor]]


@on(LstmInteger)
def lstm_integer(
    w: Writer, op: LstmInteger, xw: Value, r: Value, columns: Value, scale: Value, h0: Value,
    c0: Value, peepholes: Value | None, lengths: Value | None, zeros: Value | None,
) -> list[Tensor]:  # fmt: skip
    steps, batch, _ = xw.type.shape
    units = h0.type.shape[1]
    if 0 in (steps, batch):
        y = expanded(w, np.zeros((1, 1, 1), np.float32), (steps, batch, units))
        return [y, w.tensor(h0), w.tensor(c0)]
    counts = None if lengths is None else w.cast(limited(w, lengths, 0, steps), "i64")
    x = _turned(w, op, xw, counts)
    weights = _rows(w, r, int(units))

    def step(b: Writer, states: list[Tensor], slices: list[Tensor]) -> State:
        row, number = slices
        alive = None if counts is None else b(
            "Unsqueeze", b("Greater", counts, number), np.array([1], np.int64))  # fmt: skip
        product = _product(b, states[0], states[2], weights, (columns, scale, zeros))
        return _advanced(b, op, states, b("Add", row, product), peepholes, alive)

    numbers = ramp(w, steps, (), (), "i64")
    states = [w.tensor(v) for v in (h0, c0, h0)]
    h, c, _, y = scan(w, step, states, [x, numbers], ["f32"])
    return [_turned(w, op, y, counts), h, c]


def _turned(w: Writer, op: LstmInteger, x: Operand, counts: Tensor | None) -> Tensor:
    """Return steps in the order in which a layer takes them, or back: what has ended stays last."""
    if not op.reverse:
        return w.tensor(x)
    if counts is not None:
        return w("ReverseSequence", x, counts, batch_axis=1, time_axis=0)
    last = np.array([-1], np.int64)
    return w("Slice", x, last, np.array([np.iinfo(np.int64).min + 1]), np.array([0]), last)


def _rows(w: Writer, r: Value, units: int) -> Tensor:
    """Return packed weights as rows [H, 4H]."""
    panels, words, _ = (int(d) for d in r.type.shape)
    apart = reshaped(w, r, (panels, words, PANEL, WORD))
    shape = (words * WORD, panels * PANEL)
    whole = reshaped(w, transposed(w, apart, (1, 3, 0, 2)), shape)
    return sliced(w, whole, shape, (0, 0), (units, 4 * units), (1, 1))


def _product(
    b: Writer, h: Tensor, ahead: Tensor, weights: Tensor, of: tuple[Value, Value, Value | None]
) -> Tensor:
    """Return h[B, H], quantized by the range of `ahead`, times the weights."""
    m, (columns, scale, zeros) = OnnxMath(b), of
    both = np.array([0, 1], np.int64)
    low, high = (b(name, ahead, both, keepdims=0) for name in ("ReduceMin", "ReduceMax"))
    step, zero = grid(m, m.minimum(low, 0.0), m.maximum(high, 0.0))
    q = STATE.scalar(m, h, step, zero)
    total = m.sub(b("MatMulInteger", q, weights), m.mul(b.cast(zero, "i32"), columns))
    if zeros is not None:
        sums = b("ReduceSum", b.cast(q, "i32"), np.array([1], np.int64))
        total = m.sub(total, m.mul(sums, zeros))
    return m.mul(b.cast(total, "f32"), m.mul(step, scale))


def _advanced(
    b: Writer, op: LstmInteger, states: list[Tensor], sums: Tensor, peepholes: Value | None,
    alive: Tensor | None,
) -> State:  # fmt: skip
    """Return the next h and c, and the output of this step; what has ended keeps its state."""
    m, (h, c, _) = OnnxMath(b), states
    i, o, forget, cell = b.several(4, "Split", sums, axis=1, num_outputs=4)

    def peep(gate: Tensor, row: int, of: Tensor) -> Tensor:
        if peepholes is None:
            return gate
        return m.add(gate, m.mul(b("Gather", peepholes, np.array(row, np.int64), axis=0), of))

    f, g, last = op.activations
    i = activate(m, f, op.clip, peep(i, 0, c))
    kept = m.sub(1.0, i) if op.couple else activate(m, f, op.clip, peep(forget, 2, c))
    after = m.add(m.mul(kept, c), m.mul(i, activate(m, g, op.clip, cell)))
    new = m.mul(activate(m, f, op.clip, peep(o, 1, after)), activate(m, last, 0.0, after))
    if alive is None:
        return [new, after, new], [new]
    shown = m.where(alive, new, 0.0)
    return [m.where(alive, new, h), m.where(alive, after, c), shown], [shown]

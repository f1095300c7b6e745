"""Recurrent layers whose state is quantized in every step, and multiplied in integers.

Which sequences share a scale is part of the meaning: all of a step do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.ir.dims import ceil_div
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.quantized.quantize import Quantize
from alpenglow.ops.sequence.recurrent import SIGMOID, TANH, Activation, activate, recurrent
from alpenglow.ops.tensor.movement import Reshape
from alpenglow.ops.tensor.packing import DOTS, PackMatrix

STATE = Quantize("u8")

WORD = DOTS["u8"]
"""How many rows of the weights stand side by side."""

PANEL = 64
"""How many columns of the weights lie together."""


class LstmInteger(Primitive):
    """Lstm whose h is u8 where it meets its weights, of a scale that each step finds anew.

        q = round(h / s) + z                  s, z: what the range of h and 0 asks for
        h·r = s · scale ∘ (q·r - z · columns - zeros · sum q)

    The range is that of all sequences in this step, those that have ended left out: of two
    sequences, one changes how the other is rounded.  So step k of a reversed sequence is its k-th
    from its own end, not from that of the longest.

    `r` holds the weights as `packed_rows` packs them; of [H, 4H] of these, `scale[4H]` are the
    scales, `zeros[4H]` the zero points (0 if absent), and `columns[4H]` the sums of the columns
    less their zero points.  All else is as with Lstm.  com.microsoft DynamicQuantizeLSTM.
    """

    reverse: bool = False
    activations: tuple[Activation, ...] = (SIGMOID, TANH, TANH)
    clip: float = 0.0
    couple: bool = False

    def infer(
        self, xw: TensorType, r: TensorType, columns: TensorType, scale: TensorType,
        h0: TensorType, c0: TensorType, peepholes: TensorType | None = None,
        lengths: TensorType | None = None, zeros: TensorType | None = None,
    ) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
        check_dtype(self, "h0", h0, {"f32"})
        check_rank(self, "h0", h0, 2, 2)
        units = h0.shape[1]
        weights = TensorType("f32", (units, 4 * units))
        y, h = recurrent(self, 4, self.activations, 3, xw, weights, h0, lengths)
        row = TensorType("i32", (4 * units,))
        panels, words = ceil_div(4 * units, PANEL), ceil_div(units, WORD)
        expected = {
            "r": (r, TensorType("i8", (panels, words, PANEL * WORD))),
            "columns": (columns, row),
            "scale": (scale, row.with_dtype("f32")),
            "c0": (c0, h0),
            "peepholes": (peepholes, TensorType("f32", (3, units))),
            "zeros": (zeros, row),
        }
        for what, (t, wanted) in expected.items():
            if t is not None and t != wanted:
                raise TypeRuleError(f"{self.name}: {what} is {t}, expected {wanted} for h0 {h0}")
        return y, h, h

    def reference(
        self, xw: Array, r: Array, columns: Array, scale: Array, h0: Array, c0: Array,
        peepholes: Array | None = None, lengths: Array | None = None, zeros: Array | None = None,
    ) -> tuple[Array, Array, Array]:  # fmt: skip
        steps, batch = xw.shape[:2]
        weights = _rows(r, h0.shape[1]).astype(np.int32)
        counts = np.full(batch, steps) if lengths is None else np.minimum(lengths, steps)
        y = np.zeros((steps, *h0.shape), np.float32)
        h, c, ahead = h0, c0, h0
        for k in range(steps):
            at = np.maximum(counts - 1 - k, 0) if self.reverse else np.full(batch, k)
            alive = (counts > k)[:, None]
            s, z = grid(NUMPY, ahead.min(initial=0), ahead.max(initial=0))
            q = STATE.scalar(NUMPY, h, s, z).astype(np.int32)
            total = q @ weights - np.int32(z) * columns
            if zeros is not None:
                total = total - q.sum(1, keepdims=True, dtype=np.int32) * zeros
            product = total.astype(np.float32) * (s * scale)
            new_h, new_c = self.advanced(xw[at, np.arange(batch)] + product, c, peepholes)
            y[at[alive[:, 0]], alive[:, 0].nonzero()[0]] = new_h[alive[:, 0]]
            h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
            ahead = np.where(alive, new_h, np.float32(0))
        return y, h, c

    def advanced(self, sums: Array, c: Array, peepholes: Array | None) -> tuple[Array, Array]:
        """Return the next h and c; `sums` are the inputs of the gates without the peepholes."""
        f, g = (act(a, self.clip) for a in self.activations[:2])

        def peep(gate: Array, row: int, cell: Array) -> Array:
            return gate if peepholes is None else gate + peepholes[row] * cell

        i, o, forget, cell = np.split(sums, 4, axis=1)
        i = f(peep(i, 0, c))
        forget = 1 - i if self.couple else f(peep(forget, 2, c))
        after = forget * c + i * g(cell)
        return f(peep(o, 1, after)) * act(self.activations[2], 0.0)(after), after

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        xw = ins[0]
        assert xw is not None, "xw is there"
        steps, batch, gates = xw.extents
        return steps * batch * (gates // 4) * gates

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], *operands: Value | None) -> None:
        raise UnsupportedError(
            "gradient: operator lstm_integer is not supported: its state and weights are quantized",
            hint="differentiate the float lstm that was quantized",
        )

    @classmethod
    def examples(cls) -> Examples:
        for units, batch in ((5, 2), (17, 1), (36, 3), (4, 11)):
            panels, words = -(-4 * units // PANEL), -(-units // WORD)
            row = np.full(4 * units, 0.004, np.float32)
            state = f"f32[{batch},{units}]"
            a = (f"f32[3,{batch},{4 * units}]", f"i8[{panels},{words},256]", f"i32[{4 * units}]",
                 row, state, state)  # fmt: skip
            rows, lengths = f"f32[3,{units}]", np.arange(batch, dtype=np.int32)[::-1] + 1
            yield cls(), *a
            yield cls(reverse=True), *a, rows, None, f"i32[{4 * units}]"
            yield cls(), *a, None, lengths
            yield cls(True, clip=0.5, couple=True), *a, rows, lengths - 1
        none = ("i8[1,1,256]", "i32[4]", "f32[4]", "f32[2,1]", "f32[2,1]")
        yield cls(activations=(TANH, SIGMOID, TANH)), "f32[0,2,4]", *none
        yield cls(), "f32[2,0,4]", *none[:3], "f32[0,1]", "f32[0,1]"


def act(which: Activation, clip: float) -> Callable[[Array], Array]:
    """Return an activation as a function of NumPy arrays."""

    def apply(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(activate(NUMPY, which, clip, x))

    return apply


def grid(m: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the scale and the zero point of u8 for what lies between low <= 0 and high >= 0."""
    exact = m.div(m.sub(high, low), 255.0)
    scale = m.where(m.eq(exact, 0.0), 1.0, exact)
    return scale, STATE.scalar(m, m.neg(low), scale, 0.0)


def packed_rows(b: Graph, r: Value) -> Value:
    """Return weights i8[H, 4H] in panels of columns, four rows side by side; the rest is zeros."""
    units = r.type.extents[0]
    packed = b(PackMatrix(PANEL, WORD), r)
    return b(Reshape((ceil_div(4 * units, PANEL), ceil_div(units, WORD), PANEL * WORD)), packed)


def _rows(r: Array, units: int) -> Array:
    """Return packed weights as [H, 4H]."""
    panels, words, _ = r.shape
    apart = r.reshape(panels, words, PANEL, WORD).transpose(1, 3, 0, 2)
    return apart.reshape(words * WORD, panels * PANEL)[:units, : 4 * units]

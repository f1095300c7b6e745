"""The converter of quantized LSTM: i8, with cells and gates of i16.

It is TFLite's only kernel for these, so both ways of rounding are its own; halves go away from
zero.  Gates have three integer bits before their functions and none behind them; these are read
from tables of all numbers of 16 bits.
"""

from __future__ import annotations

import numpy as np

from alpenglow.frontends.tflite.convert.lstm import (
    Layer,
    check_recurrent,
    clip_of,
    unidirectional_sequence_lstm,
)
from alpenglow.frontends.tflite.convert.recurrent import in_order, in_time, one_by_one
from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.gemmlowp import (
    between,
    divided,
    limited,
    logistic,
    multiplier,
    saturated,
    tangent,
    times,
)
from alpenglow.frontends.tflite.quantised import grid, one, power_of_two
from alpenglow.frontends.tflite.table import Made, Site, on_quantised
from alpenglow.frontends.tflite.wide import Wide
from alpenglow.ir.graph import Value
from alpenglow.ops.quantized.integer import MatMulInteger
from alpenglow.ops.quantized.quantize import bounds
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Transpose, stretch

WIDTH = 16
LOW, HIGH = map(int, bounds("i8"))
AT = Layer()


@on_quantised("UNIDIRECTIONAL_SEQUENCE_LSTM")
def quantised_unidirectional_sequence_lstm(s: Site) -> Made:
    if s.declared(0).dtype == "f32":
        return unidirectional_sequence_lstm(s)
    x, h, c = s.rank(0, 3), s.input(AT.h), s.input(AT.c)
    dtypes = [*(v.type.dtype for v in (x, h, c)), s.output().dtype]
    if dtypes != ["i8", "i8", "i16", "i8"]:
        raise s.unsupported(f"{', '.join(dtypes)} as dtypes of input, output state, cell state and "
                            "result", "i8, i8, i16, i8")  # fmt: skip
    s.activation(Activation.TANH)
    if s.optional(AT.norms + 1) is not None:
        raise s.unsupported("layer normalization of i8", "layer normalization with float input")
    check_recurrent(s)
    # LiteRT's kernel mixes these up.
    if s.optional(AT.projection) is not None and s.optional(AT.peepholes + 1) is not None:
        raise s.unsupported("a projection with peepholes for i8", "one of them, or float input")
    layer = Integers(s)
    state = h, c
    made, (h, c) = one_by_one(s, in_time(s, x), False, state, layer.step)
    s.assign(AT.h, h)
    s.assign(AT.c, c)
    return in_order(s, made)


class Integers:
    """State that the steps of a layer share: scales, and the fixed point of its cells."""

    def __init__(self, s: Site) -> None:
        self.s = s
        power = power_of_two(np.float32(self._one(AT.c)[0]))
        if power is None or not -15 <= power <= -9:
            raise s.refuse(f"scale of the cell state is {self._one(AT.c)[0]:g}, "
                           "expected a power of two from 2^-15 to 2^-9")  # fmt: skip
        self.power = power
        numbers = between(-1 << 15, (1 << 15) - 1)
        self.sigmoid = s.g.constant(logistic(numbers, 3, WIDTH).astype(np.int16))
        self.tanh = s.g.constant(tangent(numbers, 3, WIDTH).astype(np.int16))
        of_cells = tangent(numbers, 15 + power, WIDTH)
        self.tanh_of_cells = s.g.constant(of_cells.astype(np.int16))
        if len(s.step.payload.intermediates) < 5 or s.step.payload.intermediates[4].grid is None:
            raise s.wrong("intermediates[4] is missing or has no scale, "
                          "expected the quantization of the hidden state")  # fmt: skip
        self.hidden = s.step.payload.intermediates[4].grid
        if s.optional(AT.projection) is not None:  # the kernel subtracts the zero point there
            zeros = tuple(-z for z in self.hidden.zeros)
            if max(zeros) > HIGH:
                raise s.refuse(f"zero point of intermediates[4] is {-max(zeros)}, "
                               f"expected at least {-HIGH} before a projection")  # fmt: skip
            self.hidden = Grid(self.hidden.scales, zeros, self.hidden.axis)

    def step(self, x: Value, h: Value, c: Value) -> tuple[Value, Value]:
        """Return the next state of a row and what the state holds."""
        s, cells = self.s, Wide.of(self.s.g, c)
        forget = self._gate(x, h, 1, cells, self.sigmoid)
        cell = self._gate(x, h, 2, None, self.tanh)
        if s.optional(AT.weights) is None:
            into = (1 << 15) - 1 - forget
        else:
            into = self._gate(x, h, 0, cells, self.sigmoid)
        kept = divided(forget * cells, 15)
        after = saturated(kept + divided(into * cell, 30 + self.power), WIDTH)
        after = self._clipped(after, "cell_clip", AT.c, (1 << 15) - 1)
        out = self._gate(x, h, 3, after, self.sigmoid)
        scale, zero = one(s, self.hidden)
        shown = self._read(self.tanh_of_cells, after)
        y = times(out * shown, *multiplier(float(np.float32(2.0**-30 / np.float32(scale)))))
        y = limited(y + zero, LOW, HIGH)
        if s.optional(AT.projection) is not None:
            y = self._projected(y.narrow("i8"))
        return y.narrow("i8"), after.narrow("i16")

    def _gate(self, x: Value, h: Value, k: int, cells: Wide | None, table: Value) -> Wide:
        """Return gate k: what is added to it is limited each time."""
        s, scale = self.s, np.float32(2.0**-12)
        bias = Wide.of(s.g, s.input(AT.biases + k))
        sums = self._sums(x, grid(s, 0), AT.weights + k)
        total = self._added(None, sums + bias.across(sums), 0, AT.weights + k, scale)
        sums = self._sums(h, grid(s, AT.h), AT.recurrent + k)
        total = self._added(total, sums, AT.h, AT.recurrent + k, scale)
        peephole = AT.peepholes + (0, 1, 0, 2)[k]
        if cells is not None and s.optional(peephole) is not None:
            weights = Wide.of(s.g, s.input(peephole)).across(cells)
            ratio = np.float32(2.0**self.power * np.float32(self._one(peephole)[0]) / scale)
            more = times(cells * weights, *multiplier(float(ratio)))
            total = saturated(total + more, WIDTH)
        return self._read(table, total)

    def _added(self, total: Wide | None, sums: Wide, x: int, w: int, scale: np.floating) -> Wide:
        """Return sums of products of operands x and w in steps of a scale, added to what is
        there."""
        ratio = np.float32(self._one(w)[0]) * np.float32(self._one(x)[0]) / scale
        more = times(sums, *multiplier(float(ratio)))
        return saturated(more if total is None else total + more, WIDTH)

    def _projected(self, y: Value) -> Wide:
        s, (scale, zero) = self.s, self._one(AT.h)
        sums = self._sums(y, self.hidden, AT.projection)
        if (bias := s.optional(AT.projection + 1)) is not None:
            sums = sums + Wide.of(s.g, bias).across(sums)
        ratio = np.float32(self._one(AT.projection)[0]) * np.float32(self.hidden.scales[0])
        made = times(sums, *multiplier(float(ratio / np.float32(scale)))) + zero
        return self._clipped(limited(made, LOW, HIGH), "proj_clip", AT.h, HIGH)

    def _clipped(self, x: Wide, option: str, of: int, most: int) -> Wide:
        """Return integers clipped to plus and minus an option, unless the option is 0.

        The integers have the scale of operand `of`; the clip is at most `most`.
        """
        clip = clip_of(self.s, option)
        steps = int(min(clip / self._one(of)[0], most))
        return limited(x, -steps, steps) if clip else x

    def _sums(self, x: Value, g: Grid, w: int) -> Wide:
        """Return the products of rows, less their zero point, with operand w."""
        s = self.s
        weights = s.g(Transpose((1, 0)), s.rank(w, 2))
        if self._one(w)[1] or s.declared(w).dtype != "i8":
            raise s.refuse(f"weights (operand {w}) are {s.declared(w).dtype} with zero point "
                           f"{self._one(w)[1]}, expected i8 with zero point 0")  # fmt: skip
        zero = s.g.constant(np.array(one(s, g)[1], np.int8))
        zeros = stretch(s.g, zero, x.type.shape), s.filled(0, weights)
        return Wide.of(s.g, s.g(MatMulInteger(), x, weights, *zeros))

    def _read(self, table: Value, x: Wide) -> Wide:
        """Look up elements in a table of all numbers of 16 bits."""
        return Wide.of(x.g, x.g(Gather(), table, (x + (1 << 15)).value))

    def _one(self, i: int) -> tuple[float, int]:
        return one(self.s, grid(self.s, i))

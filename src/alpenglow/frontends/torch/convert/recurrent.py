"""Converters for recurrent layers, which stay whole: a layer and direction is one operator.

All steps of a direction are multiplied by its weights at once; what is carried from step to step is
the recurrent operator's business.  Gates are put in our order: input, output, forget, cell, and
update, reset, hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.movement import pieces, sliced
from alpenglow.frontends.torch.convert.contraction import plus, product_of
from alpenglow.frontends.torch.table import Made, Site, number, on
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.tensor.movement import Concat, Transpose

IOFC = (0, 3, 1, 2)
"""The indices of the gates input, output, forget, cell in PyTorch's weights of an LSTM."""

URH = (1, 0, 2)
"""The indices of the gates update, reset, hidden in PyTorch's weights of a GRU."""


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of one direction of a layer; `project` makes a smaller h of the hidden state."""

    of_input: Value
    of_state: Value
    input_bias: Value | None
    state_bias: Value | None
    project: Value | None


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of layer: the order of its gates, and whether it has a cell state."""

    gates: tuple[int, ...]
    has_cell: bool = False
    function: str = ""


LSTM = Kind(IOFC, has_cell=True)
GRU = Kind(URH)

States = tuple[Value, ...]


# ── operators ──


def layers(name: str, kind: Kind) -> None:
    """Register recurrent layers of a kind, on each other."""

    @on(f"aten.{name}.input")
    def convert(
        s: Site, input: Value, hx: Value | Sequence[Value], params: Sequence[Value],
        has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
        batch_first: bool,
    ) -> Made:  # fmt: skip
        if train and dropout and num_layers > 1:
            raise UnsupportedError(f"dropout is {dropout} and train is True, expected train=False")
        states = (hx,) if isinstance(hx, Value) else tuple(hx)
        return stacked(s, kind, input, states, params, has_biases, num_layers, bidirectional,
                       batch_first)  # fmt: skip


layers("lstm", LSTM)
layers("gru", GRU)
layers("rnn_tanh", Kind((0,), function="tanh"))
layers("rnn_relu", Kind((0,), function="relu"))


@on("aten.mkldnn_rnn_layer.default")
def mkldnn_layer(
    s: Site, input: Value, weight0: Value, weight1: Value, weight2: Value, weight3: Value,
    hx_: Value, cx_: Value, reverse: bool, batch_sizes: Sequence[int], mode: int,
    hidden_size: int, num_layers: int, has_biases: bool, bidirectional: bool, batch_first: bool,
    train: bool,
) -> Made:  # fmt: skip
    """One direction of one layer of an LSTM, the only mode that PyTorch makes it of."""
    if mode != 2 or num_layers != 1 or bidirectional or batch_first or batch_sizes or s.is_read(3):
        raise UnsupportedError("batch_first, batch_sizes, bidirectional, modes other than LSTM and "
                               "reading result 3 are not supported; supported: one direction of "
                               "one LSTM layer")  # fmt: skip
    w = Weights(weight0, weight1, weight2, weight3, None)
    if not has_biases:
        w = Weights(weight0, weight1, None, None, None)
    start = tuple(s.reshaped(v, v.type.shape[-2:]) for v in (hx_, cx_))
    y, *states = direction(s, LSTM, input, start, w, reverse)
    return [y, *(s.reshaped(v, s.stated(1).shape) for v in states), None]


# ── layers ──


def stacked(
    s: Site, kind: Kind, x: Value, states: States, params: Sequence[Value], has_biases: bool,
    count: int, bidirectional: bool, batch_first: bool,
) -> list[Value]:  # fmt: skip
    """Return the output of layers on each other, and the final states of all directions."""
    y = s.g(Transpose((1, 0, 2)), x) if batch_first else x
    directions = 2 if bidirectional else 1
    weights = listed(params, has_biases, count * directions)
    ends: list[list[Value]] = [[] for _ in states]
    for layer in range(count):
        outputs = []
        for d in range(directions):
            i = layer * directions + d
            start = tuple(row(s, state, i) for state in states)
            output, *final = direction(s, kind, y, start, weights[i], d == 1)
            outputs.append(output)
            for end, state in zip(ends, final, strict=True):
                end.append(state)
        y = outputs[0] if directions == 1 else s.g(Concat(2), *outputs)
    y = s.g(Transpose((1, 0, 2)), y) if batch_first else y
    return [y, *(gathered(s, end) for end in ends)]


def listed(params: Sequence[Value], has_biases: bool, count: int) -> list[Weights]:
    """Return the weights of each direction; raise ModelError if their number does not fit."""
    each, rest = divmod(len(params), count)
    projects = each - (4 if has_biases else 2)
    if rest or projects not in (0, 1):
        least = 4 if has_biases else 2
        raise ModelError(f"params has {len(params)} tensors, expected {least} or {least + 1} for "
                         f"each of {count} directions")  # fmt: skip
    sets = []
    for i in range(count):
        own: list[Value | None] = list(params[i * each : (i + 1) * each])
        project = own.pop() if projects else None
        w, r, *biases = own
        assert w is not None and r is not None, "weights are there"
        first, second = biases or (None, None)
        sets.append(Weights(w, r, first, second, project))
    return sets


def row(s: Site, x: Value, i: int) -> Value:
    """Return the rows x[i] of x[N, B, H]: the state of a direction, or what goes into a step."""
    return s.reshaped(sliced(s.g, x, 0, i, 1), x.type.shape[1:])


def gathered(s: Site, states: Sequence[Value]) -> Value:
    """Return states of all directions, or of all steps, as one tensor."""
    rows = [s.reshaped(v, (1, *v.type.shape)) for v in states]
    return rows[0] if len(rows) == 1 else s.g(Concat(0), *rows)


def direction(
    s: Site, kind: Kind, x: Value, start: States, w: Weights, reverse: bool
) -> tuple[Value, ...]:
    """Return the output [T, B, H] of one direction, and its final states."""
    steps, batch, features = x.type.shape
    count = len(kind.gates)
    r = s.g(Transpose((1, 0)), ordered(s, w.of_state, kind))
    rows = s.reshaped(x, (steps * batch, features))
    flat = product_of(s, rows, s.g(Transpose((1, 0)), ordered(s, w.of_input, kind)))
    if w.input_bias is not None:
        flat = plus(s, ordered(s, w.input_bias, kind), flat, 1, 1)
    hidden = None if w.state_bias is None else ordered(s, w.state_bias, kind)
    if hidden is not None and kind is not GRU:
        flat = plus(s, hidden, flat, 1, 1)
    xw = s.reshaped(flat, (steps, batch, flat.type.shape[1]))
    if kind.has_cell:
        if w.project is not None:
            return projected(s, xw, r, start, w.project, reverse)
        return s.g.add(Lstm(reverse), [xw, r, *start, None, None]).results
    if count == 1:
        return s.g.add(Rnn(reverse, ((kind.function, 0.0, 0.0),)), [xw, r, *start, None]).results
    return gated(s, xw, r, start[0], hidden, reverse)


def gated(
    s: Site, xw: Value, r: Value, start: Value, hidden: Value | None, reverse: bool
) -> tuple[Value, ...]:
    """Return a GRU's output and final state; the bias of its hidden gate is reset with it."""
    units = start.type.shape[1]
    zero = s.spread(s.constant(0.0, xw.type.dtype), (units,))
    if hidden is None:
        return s.g.add(Gru(reverse), [xw, r, start, zero, None]).results
    last = sliced(s.g, hidden, 0, units * 2, units)
    first = sliced(s.g, hidden, 0, 0, units * 2)
    whole = plus(s, s.g(Concat(0), first, zero), xw, 1, 1)
    return s.g.add(Gru(reverse), [whole, r, start, last, None]).results


def ordered(s: Site, w: Value, kind: Kind) -> Value:
    """Return weights or a bias with the gates in our order."""
    count = len(kind.gates)
    if count == 1:
        return w
    units = w.type.shape[0] // count
    return s.g(Concat(0), *(sliced(s.g, w, 0, units * gate, units) for gate in kind.gates))


# ── hidden states that are projected ──


def projected(
    s: Site, xw: Value, r: Value, start: States, project: Value, reverse: bool
) -> tuple[Value, ...]:
    """Return the output and final states of an LSTM whose h is made smaller, step by step."""
    steps = xw.type.shape[0]
    h, c = start
    down = s.g(Transpose((1, 0)), project)
    outputs: list[Value] = []
    for t in range(number(steps))[:: -1 if reverse else 1]:
        sums = s.g(Add(), row(s, xw, t), product_of(s, h, r))
        full, c = advanced(s, sums, c)
        h = product_of(s, full, down)
        outputs.append(h)
    if not outputs:
        raise UnsupportedError("input has 0 time steps, expected at least 1 with a projection")
    return gathered(s, outputs[::-1] if reverse else outputs), h, c


def advanced(s: Site, sums: Value, c: Value) -> tuple[Value, Value]:
    """Return the next hidden and cell state, of the sums that go into the gates."""
    i, o, forget, cell = pieces(s.g, sums, 1, (c.type.shape[1],) * 4)
    kept = s.g(Mul(), s.g(Sigmoid(), forget), c)
    after = s.g(Add(), kept, s.g(Mul(), s.g(Sigmoid(), i), s.g(Tanh(), cell)))
    return s.g(Mul(), s.g(Sigmoid(), o), s.g(Tanh(), after)), after

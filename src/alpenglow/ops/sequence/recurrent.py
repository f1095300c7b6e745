"""Recurrent layers, one direction each: LSTM, GRU and the plain RNN.

The product of the inputs with their weights, over all steps at once, is left to a matrix product
outside; what these operators take is its result `xw[T, B, G·H]` with the biases added, for T
steps, B sequences and G gates of H units each.  `r[H, G·H]` are the recurrent weights, and
`h0[B, H]` the initial state.  `lengths[B]` says how many steps of each sequence count (all if
absent); past them the state stays and the output is 0.  With `reverse` the last step that counts
comes first.

Results are y[T, B, H], the state after each step, and the final state [B, H].  `activations` are
triples (name, alpha, beta) of `activate`; `clip`, if not 0, limits what goes into them.  Half
precision is computed in f32, the state kept so between the steps, and rounded once.

A layer is an abbreviation of a `Scan` over the steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Elementwise, Examples, Op, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, TensorType
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.activation import (
    Elu,
    HardSigmoid,
    LeakyRelu,
    Relu,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Mul, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import as_type, filled, in_floats
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice

Activation = tuple[str, float, float]

SIGMOID: Activation = ("sigmoid", 0.0, 0.0)
TANH: Activation = ("tanh", 0.0, 0.0)


def _formula(
    operator: Callable[[float, float], Elementwise],
) -> Callable[[Any, Any, float, float], Any]:
    """Return the formula of an operator as a function of its attributes."""
    return lambda m, x, alpha, beta: operator(alpha, beta).scalar(m, x)


ACTIVATIONS: dict[str, Callable[[float, float], Elementwise]] = {
    "tanh": lambda a, b: Tanh(),
    "sigmoid": lambda a, b: Sigmoid(),
    "leakyrelu": lambda a, b: LeakyRelu(a),
    "thresholdedrelu": lambda a, b: ThresholdedRelu(a),
    "hardsigmoid": lambda a, b: HardSigmoid(a, b),
    "elu": lambda a, b: Elu(a),
    "softsign": lambda a, b: Softsign(),
    "softplus": lambda a, b: Softplus(),
}
"""The operators of alpha and beta that activations are."""

FORMULAS: dict[str, Callable[[Any, Any, float, float], Any]] = {
    **{name: _formula(operator) for name, operator in ACTIVATIONS.items()},
    "relu": lambda m, x, a, b: m.maximum(x, 0.0),
    "affine": lambda m, x, a, b: m.add(m.mul(x, a), b),
    "scaledtanh": lambda m, x, a, b: m.mul(m.tanh(m.mul(x, b)), a),
}
"""Each activation as a formula over the math vocabulary, with its alpha and beta."""


def activated(b: Graph, which: Activation, clip: float, x: Value) -> Value:
    """Append an activation of x, limited to [-clip, clip] before if clip is not 0."""
    name, alpha, beta = which
    if clip:
        x = b(Clip(-clip, clip, closed=False), x)
    if name in ACTIVATIONS:
        return b(ACTIVATIONS[name](alpha, beta), x)
    if name == "relu":
        return b(Relu(), x)
    if name == "affine":
        return b(Add(), b(Mul(), x, filled(b, alpha, x)), filled(b, beta, x))
    assert name == "scaledtanh", "a name of FORMULAS"
    return b(Mul(), b(Tanh(), b(Mul(), x, filled(b, beta, x))), filled(b, alpha, x))


def activate(m: Any, which: Activation, clip: float, x: Any) -> Any:
    """Return an activation of x, limited to [-clip, clip] before if clip is not 0."""
    name, alpha, beta = which
    if clip:
        x = m.minimum(m.maximum(x, -clip), clip)
    return FORMULAS[name](m, x, alpha, beta)


class RecurrentLayer(Composite, kind=True):
    """A layer that multiplies its state by recurrent weights in every step."""

    reverse: bool = False

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, weights = ins[:2]
        assert x is not None and weights is not None, "both are there"
        return math.prod(x.extents[:2]) * weights.size  # x has been through its weights already


Shared = Sequence[Value | None]

Step = Callable[[Graph, Value, Sequence[Value], Shared], Sequence[Value]]
"""Appends one step: takes a row of xw, the states and what all steps share; returns the next
states, of which the first is the result of the step."""


def over_steps(
    b: Graph, op: RecurrentLayer, xw: Value, states: Sequence[Value], shared: Shared,
    lengths: Value | None, step: Step,
) -> list[Value]:  # fmt: skip
    """Return y and the final states of a layer: a scan of `step` in f32 at least.

    `shared` are operands that all steps read, None where one is absent.
    """
    steps, batch, _ = xw.type.shape
    first = [in_floats(b, v) for v in states]
    captured = [None if v is None else in_floats(b, v) for v in shared]
    if lengths is not None:
        column = b(Reshape((batch, 1)), as_type(b, lengths, "i64"))
    body = Graph(op.name)
    turn = body.input("turn", TensorType("i64", ()))
    before = [body.input(f"state{i}", v.type) for i, v in enumerate(first)]
    row = body.input("row", xw.type.with_shape(xw.type.shape[1:]))
    inner = [
        None if v is None else body.input(f"shared{i}", v.type) for i, v in enumerate(captured)
    ]
    after = list(step(body, in_floats(body, row), before, inner))
    y = after[0]
    if lengths is not None:
        counts = body.input("counts", column.type)
        counted = body(Less(), body(Broadcast((batch, 1)), turn), counts)
        alive = body(Broadcast(y.type.shape), counted)
        y = body(Where(), alive, y, filled(body, 0, y))
        after = [body(Where(), alive, a, v) for a, v in zip(after, before, strict=True)]
        captured.append(column)
    for i, v in enumerate(after):
        body.output(f"next{i}", v)
    body.output("y", as_type(body, y, xw.type.dtype))
    loop = Scan(steps, len(first), 1, op.reverse)
    operands = [*first, xw, *(v for v in captured if v is not None)]
    *last, made = b.add(loop, operands, [body]).results
    return [made, *(as_type(b, v, xw.type.dtype) for v in last)]


def gate(b: Graph, x: Value, number: int, units: Dim, count: int = 1) -> Value:
    """Return the columns of `count` gates of x[B, G·H], from one on."""
    return b(Slice((0, number * units), (x.type.shape[0], count * units), (1, 1)), x)


class Lstm(RecurrentLayer):
    """Long short-term memory; the gates are input, output, forget and cell, in this order.

        i = f(xw_i + h·r_i + p_i∘c)    f = f(xw_f + h·r_f + p_f∘c)    g = g(xw_c + h·r_c)
        c' = f∘c + i∘g                 o = f(xw_o + h·r_o + p_o∘c')   h' = o∘h(c')

    `c0[B, H]` is the initial cell state, `peepholes[3, H]` holds p_i, p_o and p_f.  With `couple`
    the forget gate is 1 - i.  `clip` limits what goes into the gates, f and g, but not the cell
    state that goes into h.  The results are y, the final h and the final c.  ONNX LSTM.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH, TANH)
    clip: float = 0.0
    couple: bool = False

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType, c0: TensorType,
        peepholes: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        y, h = recurrent(self, 4, self.activations, 3, xw, r, h0, lengths)
        if c0 != h0:
            raise TypeRuleError(f"lstm: c0 is {c0}, expected {h0}")
        if peepholes is not None and peepholes != xw.with_shape((3, h0.shape[1])):
            raise TypeRuleError(f"lstm: peepholes are {peepholes}, expected 3 rows for h0 {h0}")
        return y, h, h

    def lower(
        self, b: Graph, xw: Value, r: Value, h0: Value, c0: Value,
        peepholes: Value | None = None, lengths: Value | None = None,
    ) -> list[Value]:  # fmt: skip
        units = h0.type.shape[1]
        f, g, last = self.activations

        def step(b: Graph, x: Value, states: Sequence[Value], shared: Shared) -> Sequence[Value]:
            (h, c), (weights, rows) = states, shared
            assert weights is not None, "the weights are there"
            sums = b(Add(), x, b(MatMul(), h, weights))

            def peep(number: int, row: int, cell: Value) -> Value:
                x = gate(b, sums, number, units)
                if rows is not None:
                    row_of_gate = b(Slice((row, 0), (1, units), (1, 1)), rows)
                    x = b(Add(), x, b(Mul(), b(Broadcast(c.type.shape), row_of_gate), cell))
                return activated(b, f, self.clip, x)

            i = peep(0, 0, c)
            forget = b(Sub(), filled(b, 1, i), i) if self.couple else peep(2, 2, c)
            new = activated(b, g, self.clip, gate(b, sums, 3, units))
            after = b(Add(), b(Mul(), forget, c), b(Mul(), i, new))
            return b(Mul(), peep(1, 1, after), activated(b, last, 0.0, after)), after

        return over_steps(b, self, xw, (h0, c0), (r, peepholes), lengths, step)

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,20]", "f32[5,20]", "f32[2,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True), *a, "f32[3,5]"
        yield cls(), *a, None, np.array([1, 3], np.int32)
        yield cls(True, clip=0.5, couple=True), *a, "f32[3,5]", np.array([3, 0], np.int32)
        custom = (("hardsigmoid", 0.2, 0.5), ("relu", 0.0, 0.0), ("affine", 0.5, -0.1))
        yield cls(activations=custom), *a
        yield cls(), "f32[1,1,68]", "f32[17,68]", "f32[1,17]", "f32[1,17]"
        yield cls(), "f32[0,2,4]", "f32[1,4]", "f32[2,1]", "f32[2,1]"
        yield cls(), "f32[2,0,4]", "f32[1,4]", "f32[0,1]", "f32[0,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,8]", f"{d}[2,8]", f"{d}[3,2]", f"{d}[3,2]"


class Gru(RecurrentLayer):
    """The gated recurrent unit; the gates are update, reset and hidden, in this order.

        z = f(xw_z + h·r_z)    s = f(xw_r + h·r_r)    h' = (1-z)∘n + z∘h
        n = g(xw_h + (s∘h)·r_h),  or with `bias[H]`  n = g(xw_h + s∘(h·r_h + bias))

    The second form of n (linear before reset) is used where `bias` is given.  The results are y and
    the final h.  ONNX GRU.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH)
    clip: float = 0.0

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType,
        bias: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        y, h = recurrent(self, 3, self.activations, 2, xw, r, h0, lengths)
        if bias is not None and bias != xw.with_shape(h0.shape[1:]):
            raise TypeRuleError(f"gru: bias is {bias}, expected one element a unit of h0 {h0}")
        return y, h

    def lower(
        self, b: Graph, xw: Value, r: Value, h0: Value,
        bias: Value | None = None, lengths: Value | None = None,
    ) -> list[Value]:  # fmt: skip
        batch, units = h0.type.shape
        f, g = self.activations

        def step(b: Graph, x: Value, states: Sequence[Value], shared: Shared) -> Sequence[Value]:
            (h,), (weights, last) = states, shared
            assert weights is not None, "the weights are there"
            fresh = gate(b, x, 2, units)
            if last is not None:
                begin = b(Concat(1), gate(b, x, 0, units, 2), b(Broadcast((batch, units)), last))
                sums = b(Add(), begin, b(MatMul(), h, weights))
            else:
                gates = b(Slice((0, 0), (units, 2 * units), (1, 1)), weights)
                sums = b(Add(), gate(b, x, 0, units, 2), b(MatMul(), h, gates))
            z, s = (activated(b, f, self.clip, gate(b, sums, i, units)) for i in range(2))
            if last is not None:
                inner = b(Add(), fresh, b(Mul(), s, gate(b, sums, 2, units)))
            else:
                hidden = b(Slice((0, 2 * units), (units, units), (1, 1)), weights)
                inner = b(Add(), fresh, b(MatMul(), b(Mul(), s, h), hidden))
            new = b(Mul(), b(Sub(), filled(b, 1, z), z), activated(b, g, self.clip, inner))
            return (b(Add(), new, b(Mul(), z, h)),)

        return over_steps(b, self, xw, (h0,), (r, bias), lengths, step)

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,15]", "f32[5,15]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True), *a, "f32[5]"
        yield cls(), *a, None, np.array([1, 3], np.int32)
        yield cls(True, (("softsign", 0.0, 0.0), ("elu", 0.5, 0.0)), 0.5), *a, "f32[5]", "i32[2]"
        yield cls(), "f32[1,1,51]", "f32[17,51]", "f32[1,17]"
        yield cls(), "f32[0,2,3]", "f32[1,3]", "f32[2,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,6]", f"{d}[2,6]", f"{d}[3,2]", f"{d}[2]"


class Rnn(RecurrentLayer):
    """The plain recurrent layer: h' = f(xw + h·r).

    The results are y and the final h.  ONNX RNN.
    """

    activations: tuple[Activation, ...] = (TANH,)
    clip: float = 0.0

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType, lengths: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        return recurrent(self, 1, self.activations, 1, xw, r, h0, lengths)

    def lower(
        self, b: Graph, xw: Value, r: Value, h0: Value, lengths: Value | None = None
    ) -> list[Value]:
        (f,) = self.activations

        def step(b: Graph, x: Value, states: Sequence[Value], shared: Shared) -> Sequence[Value]:
            (h,), (weights,) = states, shared
            assert weights is not None, "the weights are there"
            return (activated(b, f, self.clip, b(Add(), x, b(MatMul(), h, weights))),)

        return over_steps(b, self, xw, (h0,), (r,), lengths, step)

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,5]", "f32[5,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True, clip=0.5), *a, np.array([2, 3], np.int32)
        for name in sorted(FORMULAS):
            yield cls(activations=((name, 0.5, 0.25),)), *a
        yield cls(), "f32[1,1,17]", "f32[17,17]", "f32[1,17]"
        yield cls(), "f32[0,2,1]", "f32[1,1]", "f32[2,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,2]", f"{d}[2,2]", f"{d}[3,2]"


def recurrent(
    op: Op, gates: int, activations: tuple[Activation, ...], functions: int,
    xw: TensorType, r: TensorType, h0: TensorType, lengths: TensorType | None,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Return the types of y and the final h; raise TypeRuleError if the operands do not fit."""
    check_dtype(op, "xw", xw, FLOATS)
    check_rank(op, "xw", xw, 3, 3)
    check_rank(op, "h0", h0, 2, 2)
    batch, units = h0.shape
    if xw.shape[1:] != (batch, units * gates) or xw.dtype != h0.dtype:
        raise TypeRuleError(
            f"{op.name}: xw is {xw}, expected {h0.dtype}[T,{batch},{units * gates}] for h0 {h0}"
        )
    if r != xw.with_shape((units, units * gates)):
        raise TypeRuleError(
            f"{op.name}: r is {r}, expected {xw.with_shape((units, units * gates))}"
        )
    if lengths is not None and lengths != TensorType("i32", (batch,)):
        raise TypeRuleError(f"{op.name}: lengths are {lengths}, expected i32[{batch}]")
    check_activations(op, activations, functions)
    return xw.with_shape((*xw.shape[:2], units)), h0


def check_activations(op: Op, activations: tuple[Activation, ...], count: int) -> None:
    """Raise TypeRuleError unless so many activations are given, each by a name of FORMULAS."""
    if len(activations) != count or any(a[0] not in FORMULAS for a in activations):
        raise TypeRuleError(
            f"{op.name}: activations are {activations}, expected {count} of "
            f"{' '.join(sorted(FORMULAS))}"
        )

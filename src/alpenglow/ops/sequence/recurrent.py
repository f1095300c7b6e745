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

A layer that is `traced` has one result more, or two, from which its gradients are computed: what
went into the gates of each step, 0 past `lengths`, in f32 at least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Elementwise, Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, HALVES, Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.elementwise.activation import (
    Elu,
    HardSigmoid,
    LeakyRelu,
    Sigmoid,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)

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


def activate(m: Any, which: Activation, clip: float, x: Any) -> Any:
    """Return an activation of x, limited to [-clip, clip] before if clip is not 0."""
    name, alpha, beta = which
    if clip:
        x = m.minimum(m.maximum(x, -clip), clip)
    return FORMULAS[name](m, x, alpha, beta)


class RecurrentLayer(Primitive, kind=True):
    """A layer, or its gradient, that multiplies a matrix by its second operand in every step."""

    rereads: ClassVar[tuple[int, ...]] = (1,)

    reverse: bool = False

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, weights = ins[:2]
        assert x is not None and weights is not None, "both are there"
        return math.prod(x.extents[:2]) * weights.size  # x has been through its weights already


class LstmLayer(RecurrentLayer, kind=True):
    """Long short-term memory, however the state is multiplied by its weights.

    With `couple` the forget gate is 1 - i.  `clip` limits what goes into the gates, f and g, but
    not the cell state that goes into h.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH, TANH)
    clip: float = 0.0
    couple: bool = False

    def advanced(self, sums: Array, c: Array, peepholes: Array | None) -> tuple[Array, Array]:
        """Return the next h and c; `sums` are what goes into the gates but for the peepholes."""
        f, g = (act(a, self.clip) for a in self.activations[:2])

        def peep(gate: Array, row: int, cell: Array) -> Array:
            return gate if peepholes is None else gate + peepholes[row] * cell

        i, o, forget, cell = np.split(sums, 4, axis=1)
        i = f(peep(i, 0, c))
        forget = 1 - i if self.couple else f(peep(forget, 2, c))
        after = forget * c + i * g(cell)
        return f(peep(o, 1, after)) * act(self.activations[2], 0.0)(after), after


class Lstm(LstmLayer):
    """Long short-term memory; the gates are input, output, forget and cell, in this order.

        i = f(xw_i + h·r_i + p_i∘c)    f = f(xw_f + h·r_f + p_f∘c)    g = g(xw_c + h·r_c)
        c' = f∘c + i∘g                 o = f(xw_o + h·r_o + p_o∘c')   h' = o∘h(c')

    `c0[B, H]` is the initial cell state, `peepholes[3, H]` holds p_i, p_o and p_f.  With `couple`
    the forget gate is 1 - i.  `clip` limits what goes into the gates, f and g, but not the cell
    state that goes into h.  The results are y, the final h and the final c.  ONNX LSTM.

    Traced are xw + h·r [T, B, 4H], and the c before each step [T, B, H].
    """

    traced: bool = False

    carried = MappingProxyType({1: 2, 2: 3})  # the state is in a local array during the steps

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType, c0: TensorType,
        peepholes: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        y, h = recurrent(self, 4, self.activations, 3, xw, r, h0, lengths)
        if c0 != h0:
            raise TypeRuleError(f"lstm: c0 is {c0}, expected {h0}")
        if peepholes is not None and peepholes != xw.with_shape((3, h0.shape[1])):
            raise TypeRuleError(f"lstm: peepholes are {peepholes}, expected 3 rows for h0 {h0}")
        return (y, h, h, *((widest(xw), widest(y)) if self.traced else ()))

    def reference(
        self, xw: Array, r: Array, h0: Array, c0: Array,
        peepholes: Array | None = None, lengths: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        x, weights, h, c = (wide(a) for a in (xw, r, h0, c0))
        rows = None if peepholes is None else wide(peepholes)
        y, sums = np.zeros((*x.shape[:2], h.shape[1]), h.dtype), np.zeros_like(x)
        cells = np.zeros_like(y)
        for t, alive in steps(x, lengths, self.reverse):
            sums[t], cells[t] = np.where(alive, x[t] + h @ weights, 0), np.where(alive, c, 0)
            new_h, new_c = self.advanced(sums[t], c, rows)
            y[t] = np.where(alive, new_h, 0)
            h, c = np.where(alive, new_h, h), np.where(alive, new_c, c)
        trace = (sums, cells) if self.traced else ()
        return (*(v.astype(xw.dtype) for v in (y, h, c)), *trace)

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,20]", "f32[5,20]", "f32[2,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True), *a, "f32[3,5]"
        yield cls(), *a, None, np.array([1, 3], np.int32)
        yield cls(True, clip=0.5, couple=True), *a, "f32[3,5]", np.array([3, 0], np.int32)
        custom = (("hardsigmoid", 0.2, 0.5), ("relu", 0.0, 0.0), ("affine", 0.5, -0.1))
        yield cls(activations=custom), *a
        yield cls(traced=True), *a, "f32[3,5]"
        yield cls(True, traced=True), *a, None, np.array([1, 3], np.int32)
        yield cls(), "f32[1,1,68]", "f32[17,68]", "f32[1,17]", "f32[1,17]"
        yield cls(), "f32[0,2,4]", "f32[1,4]", "f32[2,1]", "f32[2,1]"
        yield cls(), "f32[2,0,4]", "f32[1,4]", "f32[0,1]", "f32[0,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,8]", f"{d}[2,8]", f"{d}[3,2]", f"{d}[3,2]"
            yield cls(traced=True), f"{d}[2,3,8]", f"{d}[2,8]", f"{d}[3,2]", f"{d}[3,2]"


class Gru(RecurrentLayer):
    """The gated recurrent unit; the gates are update, reset and hidden, in this order.

        z = f(xw_z + h·r_z)    s = f(xw_r + h·r_r)    h' = (1-z)∘n + z∘h
        n = g(xw_h + (s∘h)·r_h),  or with `bias[H]`  n = g(xw_h + s∘(h·r_h + bias))

    The second form of n (linear before reset) is used where `bias` is given.  The results are y and
    the final h.  ONNX GRU.

    Traced are [T, B, 3H] what goes into z and s, and what goes into n or, with `bias`, the product
    in it: h·r_h + bias.
    """

    carried = MappingProxyType({1: 2})  # the state is in a local array during the steps

    activations: tuple[Activation, ...] = (SIGMOID, TANH)
    clip: float = 0.0
    traced: bool = False

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType,
        bias: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        y, h = recurrent(self, 3, self.activations, 2, xw, r, h0, lengths)
        if bias is not None and bias != xw.with_shape(h0.shape[1:]):
            raise TypeRuleError(f"gru: bias is {bias}, expected one element a unit of h0 {h0}")
        return (y, h, *((widest(xw),) if self.traced else ()))

    def reference(
        self, xw: Array, r: Array, h0: Array,
        bias: Array | None = None, lengths: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        f, g = (act(a, self.clip) for a in self.activations)
        x, weights, h = wide(xw), wide(r), wide(h0)
        units = h.shape[1]
        gates, hidden = weights[:, : 2 * units], weights[:, 2 * units :]
        y, sums = np.zeros((*x.shape[:2], units), h.dtype), np.zeros_like(x)
        for t, alive in steps(x, lengths, self.reverse):
            both, fresh = x[t, :, : 2 * units] + h @ gates, x[t, :, 2 * units :]
            z, s = np.split(f(both), 2, axis=1)
            last = fresh + (s * h) @ hidden if bias is None else h @ hidden + wide(bias)
            new = (1 - z) * g(last if bias is None else fresh + s * last) + z * h
            sums[t] = np.where(alive, np.concatenate([both, last], axis=1), 0)
            y[t] = np.where(alive, new, 0)
            h = np.where(alive, new, h)
        return (y.astype(xw.dtype), h.astype(xw.dtype), *((sums,) if self.traced else ()))

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,15]", "f32[5,15]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True), *a, "f32[5]"
        yield cls(), *a, None, np.array([1, 3], np.int32)
        yield cls(True, (("softsign", 0.0, 0.0), ("elu", 0.5, 0.0)), 0.5), *a, "f32[5]", "i32[2]"
        yield cls(traced=True), *a
        yield cls(True, traced=True), *a, "f32[5]", np.array([1, 3], np.int32)
        yield cls(), "f32[1,1,51]", "f32[17,51]", "f32[1,17]"
        yield cls(), "f32[0,2,3]", "f32[1,3]", "f32[2,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,6]", f"{d}[2,6]", f"{d}[3,2]", f"{d}[2]"
            yield cls(traced=True), f"{d}[2,3,6]", f"{d}[2,6]", f"{d}[3,2]"


class Rnn(RecurrentLayer):
    """The plain recurrent layer: h' = f(xw + h·r).

    The results are y and the final h.  ONNX RNN.  Traced is xw + h·r [T, B, H].
    """

    carried = MappingProxyType({1: 2})  # the state is in a local array during the steps

    activations: tuple[Activation, ...] = (TANH,)
    clip: float = 0.0
    traced: bool = False

    def infer(
        self, xw: TensorType, r: TensorType, h0: TensorType, lengths: TensorType | None = None
    ) -> tuple[TensorType, ...]:
        y, h = recurrent(self, 1, self.activations, 1, xw, r, h0, lengths)
        return (y, h, *((widest(xw),) if self.traced else ()))

    def reference(
        self, xw: Array, r: Array, h0: Array, lengths: Array | None = None
    ) -> tuple[Array, ...]:
        f = act(self.activations[0], self.clip)
        x, weights, h = wide(xw), wide(r), wide(h0)
        y, sums = np.zeros(x.shape, h.dtype), np.zeros_like(x)
        for t, alive in steps(x, lengths, self.reverse):
            sums[t] = np.where(alive, x[t] + h @ weights, 0)
            new = f(sums[t])
            y[t] = np.where(alive, new, 0)
            h = np.where(alive, new, h)
        return (y.astype(xw.dtype), h.astype(xw.dtype), *((sums,) if self.traced else ()))

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,5]", "f32[5,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True, clip=0.5), *a, np.array([2, 3], np.int32)
        yield cls(traced=True), *a
        yield cls(True, traced=True), *a, np.array([1, 3], np.int32)
        for name in sorted(FORMULAS):
            yield cls(activations=((name, 0.5, 0.25),)), *a
        yield cls(), "f32[1,1,17]", "f32[17,17]", "f32[1,17]"
        yield cls(), "f32[0,2,1]", "f32[1,1]", "f32[2,1]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls(), f"{d}[2,3,2]", f"{d}[2,2]", f"{d}[3,2]"
            yield cls(traced=True), f"{d}[2,3,2]", f"{d}[2,2]", f"{d}[3,2]"


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


def act(which: Activation, clip: float) -> Callable[[Array], Array]:
    """Return an activation as a function of NumPy arrays."""

    def apply(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(activate(NUMPY, which, clip, x))

    return apply


def widest(t: TensorType) -> TensorType:
    """Return the type of what is traced of a tensor: f32 for half precision."""
    return t.with_dtype("f32") if t.dtype in HALVES else t


def wide(a: Array) -> Array:
    """Return half precision as f32, the rest as it is."""
    return a.astype(np.result_type(a.dtype, np.float32))


def steps(x: Array, lengths: Array | None, reverse: bool) -> list[tuple[int, Array]]:
    """Return the steps in the order in which they are taken, with the sequences that they touch."""
    count, batch = x.shape[:2]
    n = np.full(batch, count) if lengths is None else lengths
    order = reversed(range(count)) if reverse else range(count)
    return [(t, (n > t)[:, None]) for t in order]

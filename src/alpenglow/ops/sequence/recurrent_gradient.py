"""The way back through recurrent layers: what their gates change by.

What must go step by step stands here: how the gradient of a state becomes that of the state before
it.  The gradients of the weights are products over all steps at once.

Operands are f32 or f64.  `sums` are what a layer traced; `turned`[G·H, H] are the
recurrent weights, transposed; `dy`, `dh` and `dc` are the gradients of the layer's results.  Past
`lengths` the gradients of the sums are 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Op, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.sequence.recurrent import (
    SIGMOID,
    TANH,
    Activation,
    LstmLayer,
    RecurrentLayer,
    activate,
    check_activations,
    steps,
)

WIDE = frozenset({"f32", "f64"})

PULLS: dict[str, Callable[[Any, Any, Any, Any, float, float], Any]] = {
    "relu": lambda m, d, x, y, a, b: m.where(m.gt(x, 0.0), d, 0.0),
    "tanh": lambda m, d, x, y, a, b: m.mul(d, m.sub(1.0, m.mul(y, y))),
    "sigmoid": lambda m, d, x, y, a, b: m.mul(d, m.mul(y, m.sub(1.0, y))),
    "affine": lambda m, d, x, y, a, b: m.mul(d, a),
    "leakyrelu": lambda m, d, x, y, a, b: m.where(m.lt(x, 0.0), m.mul(d, a), d),
    "thresholdedrelu": lambda m, d, x, y, a, b: m.where(m.gt(x, a), d, 0.0),
    "scaledtanh": lambda m, d, x, y, a, b: m.mul(m.mul(d, a * b), _one_minus_square(m, x, b)),
    "hardsigmoid": lambda m, d, x, y, a, b: m.where(
        m.gt(y, 0.0), m.where(m.lt(y, 1.0), m.mul(d, a), 0.0), 0.0
    ),
    "elu": lambda m, d, x, y, a, b: m.where(
        m.lt(x, 0.0), m.mul(d, m.mul(m.exp(m.minimum(x, 0.0)), a)), d
    ),
    "softsign": lambda m, d, x, y, a, b: m.div(m.div(d, _past_one(m, x)), _past_one(m, x)),
    "softplus": lambda m, d, x, y, a, b: m.div(d, m.add(m.exp(m.neg(x)), 1.0)),
}
"""The gradient d of each activation y of x, pulled back to x; flat at a limit, as elsewhere."""


def _one_minus_square(m: Any, x: Any, b: float) -> Any:
    t = m.tanh(m.mul(x, b))
    return m.sub(1.0, m.mul(t, t))


def _past_one(m: Any, x: Any) -> Any:
    return m.add(m.abs(x), 1.0)


def pulled(m: Any, which: Activation, clip: float, d: Any, x: Any, y: Any) -> Any:
    """Return the gradient d of y, an activation of x (`activate`), pulled back to x."""
    name, alpha, beta = which
    if not clip:
        return PULLS[name](m, d, x, y, alpha, beta)
    limited = m.minimum(m.maximum(x, -clip), clip)
    return m.where(m.lt(m.abs(x), clip), PULLS[name](m, d, limited, y, alpha, beta), 0.0)


class LstmGradient(LstmLayer):
    """Gradients of Lstm from its `sums`[T, B, 4H] and `cells`[T, B, H], the c before each step.

    The results are the gradient of the sums, those of h0 and c0, and that of the peepholes by
    sequence [B, 3H], 0 without them.
    """

    def infer(
        self, sums: TensorType, turned: TensorType, cells: TensorType, dy: TensorType,
        dh: TensorType, dc: TensorType, peepholes: TensorType | None = None,
        lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        check_activations(self, self.activations, 3)
        check_fits(self, 4, sums, turned, dy, dh, lengths)
        if dc != dh or cells != dy:
            raise TypeRuleError(f"{self.name}: dc is {dc} and cells are {cells}, not {dh} and {dy}")
        batch, units = dh.shape
        if peepholes is not None and peepholes != dh.with_shape((3, units)):
            raise TypeRuleError(f"{self.name}: peepholes are {peepholes}, expected 3 rows for {dh}")
        return sums, dh, dh, dh.with_shape((batch, 3 * units))

    def reference(
        self, sums: Array, turned: Array, cells: Array, dy: Array, dh: Array, dc: Array,
        peepholes: Array | None = None, lengths: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        rows = None if peepholes is None else list(peepholes)
        dsums, dpeep = np.zeros_like(sums), np.zeros((3, *dh.shape), dh.dtype)
        with np.errstate(all="ignore"):
            for t, alive in reversed(steps(sums, lengths, self.reverse)):
                gates = np.split(sums[t], 4, axis=1)
                d, before, parts = self.back(NUMPY, gates, cells[t], rows, dh + dy[t], dc)
                wide = [np.zeros_like(dh) if x is None else x for x in d]
                dsums[t] = np.where(alive, np.concatenate(wide, axis=1), 0)
                dh, dc = np.where(alive, dsums[t] @ turned, dh), np.where(alive, before, dc)
                for row, part in enumerate(parts):
                    dpeep[row] += np.where(alive, part, 0)
        return dsums, dh, dc, np.concatenate(list(dpeep), axis=1)

    def back(
        self, m: Any, sums: Sequence[Any], before: Any, peepholes: Any, dh: Any, dc: Any
    ) -> tuple[list[Any], Any, list[Any]]:
        """Return the gradients of the sums (None for 0), of c before, and of each peephole.

        dh and dc are those of the h and the c after the step.
        """
        f, g, last = self.activations
        x_i, x_f = _peeped(m, sums[0], peepholes, 0, before), sums[2]
        i, new = activate(m, f, self.clip, x_i), activate(m, g, self.clip, sums[3])
        if self.couple:
            forget = m.sub(1.0, i)
        else:
            x_f = _peeped(m, x_f, peepholes, 2, before)
            forget = activate(m, f, self.clip, x_f)
        after = m.add(m.mul(forget, before), m.mul(i, new))
        x_o = _peeped(m, sums[1], peepholes, 1, after)
        o, top = activate(m, f, self.clip, x_o), activate(m, last, 0.0, after)
        d_o = pulled(m, f, self.clip, m.mul(dh, top), x_o, o)
        dc = m.add(dc, pulled(m, last, 0.0, m.mul(dh, o), after, top))
        dc = _peeped(m, dc, peepholes, 1, d_o)
        share = m.sub(new, before) if self.couple else new
        d_i = pulled(m, f, self.clip, m.mul(dc, share), x_i, i)
        d_g = pulled(m, g, self.clip, m.mul(dc, i), sums[3], new)
        d_f = None
        dbefore = _peeped(m, m.mul(dc, forget), peepholes, 0, d_i)
        if not self.couple:
            d_f = pulled(m, f, self.clip, m.mul(dc, before), x_f, forget)
            dbefore = _peeped(m, dbefore, peepholes, 2, d_f)
        parts = [] if peepholes is None else [m.mul(d_i, before), m.mul(d_o, after)]
        if parts and d_f is not None:
            parts.append(m.mul(d_f, before))
        return [d_i, d_o, d_f, d_g], dbefore, parts

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,20]", "f32[20,5]", "f32[3,2,5]", "f32[3,2,5]", "f32[2,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True), *a, "f32[3,5]"
        yield cls(), *a, None, np.array([1, 3], np.int32)
        yield cls(True, clip=0.5, couple=True), *a, "f32[3,5]", np.array([3, 0], np.int32)
        custom = (("hardsigmoid", 0.2, 0.5), ("relu", 0.0, 0.0), ("affine", 0.5, -0.1))
        yield cls(activations=custom), *a
        y, h = "f32[1,1,17]", "f32[1,17]"
        yield cls(), "f32[1,1,68]", "f32[68,17]", y, y, h, h
        y, h = "f32[0,2,1]", "f32[2,1]"
        yield cls(), "f32[0,2,4]", "f32[4,1]", y, y, h, h
        y, h = "f64[2,0,1]", "f64[0,1]"
        yield cls(), "f64[2,0,4]", "f64[4,1]", y, y, h, h


class GruGradient(RecurrentLayer):
    """Gradients of Gru from its `sums`[T, B, 3H], and the h `before` each step [T, B, H].

    `fresh`[T, B, H] is the part of xw in n, if the reset comes after the product with its weights.
    The results are the gradients of xw, of the last part of the sums, and of h0.
    """

    activations: tuple[Activation, ...] = (SIGMOID, TANH)
    clip: float = 0.0

    def infer(
        self, sums: TensorType, turned: TensorType, before: TensorType, dy: TensorType,
        dh: TensorType, fresh: TensorType | None = None, lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        check_activations(self, self.activations, 2)
        check_fits(self, 3, sums, turned, dy, dh, lengths)
        if before != dy or (fresh is not None and fresh != dy):
            raise TypeRuleError(f"{self.name}: before is {before}, fresh {fresh}, expected {dy}")
        return sums, dy, dh

    def reference(
        self, sums: Array, turned: Array, before: Array, dy: Array, dh: Array,
        fresh: Array | None = None, lengths: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        units = dh.shape[1]
        dxw, dlast = np.zeros_like(sums), np.zeros_like(dy)
        with np.errstate(all="ignore"):
            for t, alive in reversed(steps(sums, lengths, self.reverse)):
                gates, new = np.split(sums[t], 3, axis=1), None if fresh is None else fresh[t]
                d_z, d_s, d_n, d_m, kept = self.back(NUMPY, gates, new, before[t], dh + dy[t])
                if d_s is None:
                    scaled = d_m @ turned[2 * units :]
                    d_s, more = self.reset(NUMPY, gates[1], before[t], scaled)
                    kept = kept + more + np.concatenate([d_z, d_s], 1) @ turned[: 2 * units]
                else:
                    kept = kept + np.concatenate([d_z, d_s, d_m], 1) @ turned
                dxw[t] = np.where(alive, np.concatenate([d_z, d_s, d_n], axis=1), 0)
                dlast[t], dh = np.where(alive, d_m, 0), np.where(alive, kept, dh)
        return dxw, dlast, dh

    def back(
        self, m: Any, sums: Sequence[Any], fresh: Any, before: Any, dh: Any
    ) -> tuple[Any, Any, Any, Any, Any]:
        """Return the gradients of what goes into z, s and n, of the last sum, and of h before by z
        alone, for that of the h after the step.  Without `fresh` that of s comes later: None."""
        f, g = self.activations
        z, s = (activate(m, f, self.clip, x) for x in sums[:2])
        x_n = sums[2] if fresh is None else m.add(fresh, m.mul(s, sums[2]))
        n = activate(m, g, self.clip, x_n)
        d_n = pulled(m, g, self.clip, m.mul(dh, m.sub(1.0, z)), x_n, n)
        d_z = pulled(m, f, self.clip, m.mul(dh, m.sub(before, n)), sums[0], z)
        if fresh is None:
            return d_z, None, d_n, d_n, m.mul(dh, z)
        d_s = pulled(m, f, self.clip, m.mul(d_n, sums[2]), sums[1], s)
        return d_z, d_s, d_n, m.mul(d_n, s), m.mul(dh, z)

    def reset(self, m: Any, gate: Any, before: Any, scaled: Any) -> tuple[Any, Any]:
        """Return the gradients of what goes into s, and of h before, for that of s∘h."""
        f = self.activations[0]
        s = activate(m, f, self.clip, gate)
        return pulled(m, f, self.clip, m.mul(scaled, before), gate, s), m.mul(scaled, s)

    @classmethod
    def examples(cls) -> Examples:
        y, h = "f32[3,2,5]", "f32[2,5]"
        a = ("f32[3,2,15]", "f32[15,5]", y, y, h)
        custom = (("softsign", 0.0, 0.0), ("elu", 0.5, 0.0))
        for fresh in (None, y):
            yield cls(), *a, fresh
            yield cls(True), *a, fresh, np.array([1, 3], np.int32)
            yield cls(False, custom, 0.5), *a, fresh, np.array([3, 0], np.int32)
        y = "f32[1,1,17]"
        yield cls(), "f32[1,1,51]", "f32[51,17]", y, y, "f32[1,17]"
        y = "f64[0,2,1]"
        yield cls(), "f64[0,2,3]", "f64[3,1]", y, y, "f64[2,1]", y


class RnnGradient(RecurrentLayer):
    """Gradients of Rnn, from its `sums`[T, B, H] = xw + h·r: of these, and of h0."""

    activations: tuple[Activation, ...] = (TANH,)
    clip: float = 0.0

    def infer(
        self, sums: TensorType, turned: TensorType, dy: TensorType, dh: TensorType,
        lengths: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        check_activations(self, self.activations, 1)
        check_fits(self, 1, sums, turned, dy, dh, lengths)
        return sums, dh

    def reference(
        self, sums: Array, turned: Array, dy: Array, dh: Array, lengths: Array | None = None
    ) -> tuple[Array, Array]:
        dsums = np.zeros_like(sums)
        with np.errstate(all="ignore"):
            for t, alive in reversed(steps(sums, lengths, self.reverse)):
                dsums[t] = np.where(alive, self.back(NUMPY, sums[t], dh + dy[t]), 0)
                dh = np.where(alive, dsums[t] @ turned, dh)
        return dsums, dh

    def back(self, m: Any, sums: Any, dh: Any) -> Any:
        """Return the gradient of the sums of a step, for that of the h after it."""
        f = self.activations[0]
        return pulled(m, f, self.clip, dh, sums, activate(m, f, self.clip, sums))

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[3,2,5]", "f32[5,5]", "f32[3,2,5]", "f32[2,5]")
        yield cls(), *a
        yield cls(reverse=True, clip=0.5), *a, np.array([2, 3], np.int32)
        for name in sorted(PULLS):
            yield cls(activations=((name, 0.5, 0.25),)), *a
        yield cls(), "f32[1,1,17]", "f32[17,17]", "f32[1,1,17]", "f32[1,17]"
        yield cls(), "f64[0,2,1]", "f64[1,1]", "f64[0,2,1]", "f64[2,1]"


def _peeped(m: Any, x: Any, peepholes: Any, row: int, cell: Any) -> Any:
    """Return x with a cell state, or a gradient, that comes through a row of peepholes."""
    return x if peepholes is None else m.add(x, m.mul(peepholes[row], cell))


def check_fits(
    op: Op, gates: int, sums: TensorType, turned: TensorType, dy: TensorType, dh: TensorType,
    lengths: TensorType | None,
) -> None:  # fmt: skip
    """Raise TypeRuleError if operands of a layer's gradient do not fit together."""
    check_dtype(op, "sums", sums, WIDE)
    check_rank(op, "sums", sums, 3, 3)
    check_rank(op, "dh", dh, 2, 2)
    batch, units = dh.shape
    wanted = {
        "sums": (sums, dh.with_shape((sums.shape[0], batch, gates * units))),
        "turned": (turned, dh.with_shape((gates * units, units))),
        "dy": (dy, dh.with_shape((sums.shape[0], batch, units))),
    }
    for what, (t, expected) in wanted.items():
        if t != expected:
            raise TypeRuleError(f"{op.name}: {what} is {t}, expected {expected} for dh {dh}")
    if lengths is not None and lengths != TensorType("i32", (batch,)):
        raise TypeRuleError(f"{op.name}: lengths are {lengths}, expected i32[{batch}]")

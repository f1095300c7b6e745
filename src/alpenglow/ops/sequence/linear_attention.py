"""Linear attention: a matrix of state for each head that remembers keys and values.

The recurrence over time is one primitive: no operator outside it sees the state between two steps.
So is the way back.  It needs all of these states, last to first; it keeps one of each CHUNK, and
computes those between once more.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.reduction.reduction import ReduceSum, as_type, filled
from alpenglow.ops.tensor.movement import Broadcast

CHUNK = 32
"""Steps of which the way back keeps the first state."""


class LinearAttention(Primitive):
    """y[t] = scale · q[t] S[t] with S[t] = exp(decay[t]) S[t-1] + k[t] ⊗ u[t], step by step.

    q is [B, T, H, D], k [B, T, G, D] and v [B, T, G, E]; S, which starts as `state`[B, G, D, E],
    has a matrix for each of G heads, and each serves H/G neighbouring heads of q.  `decay`[B, T, G,
    D or 1] is 0 if absent.  u is v or, where `beta`[B, T, G or 1] is given, beta times what is new
    in v: u = beta · (v - k exp(decay) S[t-1]).  The state is f32, or f64 where q is.  The results
    are y[B, T, H, E] and the last S.  ONNX LinearAttention.
    """

    scale: float

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, state: TensorType,
        decay: TensorType | None = None, beta: TensorType | None = None,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        check_dtype(self, "q", q, FLOATS)
        for what, t in (("q", q), ("k", k), ("v", v)):
            check_rank(self, what, t, 4, 4)
        batch, steps, heads, size = q.shape
        groups, width = v.shape[2:]
        before = state.with_shape((batch, groups, size, width))
        fits = k == q.with_shape((batch, steps, groups, size)) and (
            v == q.with_shape((batch, steps, groups, width)))  # fmt: skip
        if not fits or state != before or state.dtype != ("f64" if q.dtype == "f64" else "f32"):
            raise TypeRuleError(
                f"linear_attention: q is {q}, k is {k}, v is {v} and state is {state}; expected "
                "[B,T,H,D], [B,T,G,D], [B,T,G,E] and [B,G,D,E], the state in f32 at least"
            )
        if not known(groups) or not known(heads) or not groups or (
            heads % groups):  # fmt: skip
            raise TypeRuleError(
                f"linear_attention: q has {heads} heads, expected a fixed multiple of the {groups} "
                "of k"
            )
        last = [k.with_shape((batch, steps, groups, d)) for d in (size, 1)]
        if decay is not None and decay not in last:
            raise TypeRuleError(f"linear_attention: decay is {decay}, expected {last[0]}")
        rates = [k.with_shape((batch, steps, n)) for n in (groups, 1)]
        if beta is not None and beta not in rates:
            raise TypeRuleError(f"linear_attention: beta is {beta}, expected {rates[0]}")
        return q.with_shape((batch, steps, heads, width)), state

    def reference(
        self, q: Array, k: Array, v: Array, state: Array,
        decay: Array | None = None, beta: Array | None = None,
    ) -> tuple[Array, Array]:  # fmt: skip
        wide = state.dtype
        repeat = q.shape[2] // k.shape[2]
        out = np.zeros((*q.shape[:3], v.shape[3]), wide)
        queries, keys, values = (a.astype(wide) for a in (q, k, v))
        with np.errstate(all="ignore"):
            for t in range(q.shape[1]):
                if decay is not None:
                    state = state * np.exp(decay[:, t].astype(wide))[..., None]
                key, value = keys[:, t], values[:, t]
                if beta is not None:
                    told = (key[:, :, None] @ state)[:, :, 0]
                    value = beta[:, t].astype(wide)[..., None] * (value - told)
                state = state + key[..., None] * value[:, :, None]
                seen = np.repeat(state, repeat, axis=1)
                out[:, t] = (queries[:, t][:, :, None] @ seen)[:, :, 0] * wide.type(self.scale)
        return out.astype(q.dtype), state

    def gradient(
        self, b: Graph, dys: tuple[Value | None, Value | None], q: Value, k: Value, v: Value,
        state: Value, decay: Value | None = None, beta: Value | None = None,
    ) -> list[Value | None]:  # fmt: skip
        wide = state.type.dtype
        y = v.type.with_shape((*q.type.shape[:3], v.type.shape[3])).with_dtype(wide)
        zero = b.constant(np.zeros((), state.type.numpy))
        dy = b(Broadcast(y.shape), zero) if dys[0] is None else as_type(b, dys[0], wide)
        last = filled(b, 0, state) if dys[1] is None else dys[1]
        factor = rate = None
        if decay is not None:
            factor = b(Exp(), as_type(b, decay, wide))
        if beta is not None:
            rate = b(Broadcast(v.type.shape[:3]), as_type(b, beta, wide))
        operands = [as_type(b, x, wide) for x in (q, k, v)]
        back = LinearAttentionGradient(self.scale)
        results = b.add(back, [*operands, state, dy, last, factor, rate]).results
        dxs = [as_type(b, d, x.type.dtype) for d, x in zip(results, (q, k, v, state), strict=False)]
        if decay is None or factor is None:
            ddecay = None
        else:
            full = b(Mul(), results[4], b(Broadcast(results[4].type.shape), factor))
            ddecay = as_type(b, _summed(b, full, decay, 3), decay.type.dtype)
        dbeta = None if beta is None else as_type(
            b, _summed(b, results[5], beta, 2), beta.type.dtype)  # fmt: skip
        return [*dxs, ddecay, dbeta]

    @classmethod
    def examples(cls) -> Examples:
        a = ("f32[2,3,4,5]", "f32[2,3,2,5]", "f32[2,3,2,7]", "f32[2,2,5,7]")
        small = np.linspace(-2, 0, 60, dtype=np.float32).reshape(2, 3, 2, 5)
        rate = np.linspace(0, 0.1, 12, dtype=np.float32).reshape(2, 3, 2)
        yield cls(0.5), *a
        yield cls(0.5), *a, small
        yield cls(1.0), *a, small[..., :1]
        yield cls(0.5), *a, None, rate
        yield cls(0.5), *a, small, rate[..., :1]
        yield cls(0.25), "f32[1,1,1,9]", "f32[1,1,1,9]", "f32[1,1,1,40]", "f32[1,1,9,40]"
        yield cls(0.25), "f32[1,0,1,3]", "f32[1,0,1,3]", "f32[1,0,1,4]", "f32[1,1,3,4]"
        yield cls(0.25), "f32[0,2,1,3]", "f32[0,2,1,3]", "f32[0,2,1,4]", "f32[0,1,3,4]"
        for dtype in sorted(FLOATS - {"f32"}):
            kept = "f64" if dtype == "f64" else "f32"
            decay = small[:1, :2].astype(TensorType.parse(dtype).numpy)
            yield (cls(0.5), f"{dtype}[1,2,2,5]", f"{dtype}[1,2,2,5]", f"{dtype}[1,2,2,3]",
                   f"{kept}[1,2,5,3]", decay)  # fmt: skip


class LinearAttentionGradient(Primitive):
    """Gradients of LinearAttention, whose states are multiplied by `factor` and not by its exp.

    All operands are f32 or f64.  `factor`[B, T, G, D or 1] is 1 if absent, and `beta` is [B, T, G].
    dy and `last` are the gradients of the results.  The results are the gradients of q, k, v,
    state, factor [B, T, G, D] and beta; then the first state of each chunk of steps, and the states
    of one chunk.
    """

    scale: float

    def infer(
        self, q: TensorType, k: TensorType, v: TensorType, state: TensorType, dy: TensorType,
        last: TensorType, factor: TensorType | None = None, beta: TensorType | None = None,
    ) -> tuple[TensorType, ...]:  # fmt: skip
        check_dtype(self, "q", q, {"f32", "f64"})
        y, _ = LinearAttention(self.scale).infer(q, k, v, state, factor, beta)
        if dy != y or last != state or (beta is not None and beta != v.with_shape(v.shape[:3])):
            raise TypeRuleError(
                f"{self.name}: dy is {dy}, last is {last} and beta is {beta}, expected {y}, {state}"
                f" and {v.with_shape(v.shape[:3])}"
            )
        batch, groups, *matrix = state.shape
        steps = q.shape[1]
        inside = steps if known(steps) and steps < CHUNK else CHUNK
        kept = state.with_shape((batch, groups, steps // CHUNK + 1, *matrix))
        within = state.with_shape((batch, groups, inside + 1, *matrix))
        return q, k, v, state, k, v.with_shape(v.shape[:3]), kept, within

    def reference(
        self, q: Array, k: Array, v: Array, state: Array, dy: Array, last: Array,
        factor: Array | None = None, beta: Array | None = None,
    ) -> tuple[Array, ...]:  # fmt: skip
        steps, groups = q.shape[1], v.shape[2]
        states, told, rate = [state], np.zeros_like(v), np.ones(v.shape[:3], v.dtype)
        a = np.ones_like(k) if factor is None else np.broadcast_to(factor, k.shape)
        u = v.copy()
        with np.errstate(all="ignore"):
            for t in range(steps):
                before = states[-1] * a[:, t, ..., None]
                if beta is not None:
                    rate = beta
                    told[:, t] = np.einsum("bgd,bgde->bge", k[:, t], before)
                    u[:, t] = beta[:, t, :, None] * (v[:, t] - told[:, t])
                states.append(before + k[:, t, ..., None] * u[:, t, :, None])
            split = (*q.shape[:2], groups, q.shape[2] // groups)
            queries = q.reshape(*split, q.shape[3]) * q.dtype.type(self.scale)
            answers = dy.reshape(*split, dy.shape[3])
            dq, dk, dv, da = (np.zeros_like(x) for x in (queries, k, v, k))
            dbeta, ds = np.zeros_like(rate), last.copy()
            for t in reversed(range(steps)):
                ds = ds + np.einsum("bghd,bghe->bgde", queries[:, t], answers[:, t])
                dq[:, t] = np.einsum("bghe,bgde->bghd", answers[:, t], states[t + 1])
                du = np.einsum("bgd,bgde->bge", k[:, t], ds)
                dk[:, t] = np.einsum("bgde,bge->bgd", ds, u[:, t])
                dv[:, t] = rate[:, t, :, None] * du
                if beta is not None:
                    dbeta[:, t] = (du * (v[:, t] - told[:, t])).sum(-1)
                    before = states[t] * a[:, t, ..., None]
                    dk[:, t] -= np.einsum("bgde,bge->bgd", before, dv[:, t])
                    ds = ds - k[:, t, ..., None] * dv[:, t, :, None]
                if factor is not None:
                    da[:, t] = (states[t] * ds).sum(-1)
                ds = ds * a[:, t, ..., None]
        inside = min(steps, CHUNK)
        kept = np.stack(states[::CHUNK], 2)
        within = np.stack(states[: inside + 1], 2)
        dq = (dq * q.dtype.type(self.scale)).reshape(q.shape)
        return dq, dk, dv, ds, da, dbeta, kept, within

    @classmethod
    def examples(cls) -> Examples:
        state, y = "f32[2,2,5,7]", "f32[2,3,4,7]"
        a = ("f32[2,3,4,5]", "f32[2,3,2,5]", "f32[2,3,2,7]", state, y, state)
        factor = np.linspace(0.1, 1, 60, dtype=np.float32).reshape(2, 3, 2, 5)
        rate = np.linspace(0, 0.1, 12, dtype=np.float32).reshape(2, 3, 2)
        yield cls(0.5), *a
        yield cls(0.5), *a, factor
        yield cls(1.0), *a, factor[..., :1]
        yield cls(0.5), *a, None, rate
        yield cls(0.5), *a, factor, rate
        state, v = "f64[1,1,3,19]", "f64[1,40,1,19]"
        yield cls(0.25), "f64[1,40,1,3]", "f64[1,40,1,3]", v, state, v, state
        none = "f32[1,0,1,4]"
        state = "f32[1,1,3,4]"
        yield cls(0.25), "f32[1,0,1,3]", "f32[1,0,1,3]", none, state, none, state
        none, state = "f32[0,2,1,4]", "f32[0,1,3,4]"
        yield cls(0.25), "f32[0,2,1,3]", "f32[0,2,1,3]", none, state, none, state
        none, state = "f32[1,2,1,0]", "f32[1,1,3,0]"
        yield cls(0.25), "f32[1,2,1,3]", "f32[1,2,1,3]", none, state, none, state, "f32[1,2,1,3]"


def _summed(b: Graph, dx: Value, x: Value, axis: int) -> Value:
    """Return the gradient of x, whose `axis` has one element while the axis of dx may have more."""
    return dx if dx.type.shape == x.type.shape else b(ReduceSum((axis,)), dx)

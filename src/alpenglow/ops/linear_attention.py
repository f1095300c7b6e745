"""Linear attention: a matrix of state for each head that remembers keys and values.

The recurrence over time is one primitive: no operator outside it sees the state between two steps.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import known
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType


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
            raise TypeRuleError(f"linear_attention: {heads} heads do not share {groups} states")
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

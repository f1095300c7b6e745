"""The inverse of square matrices."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Neg
from alpenglow.ops.product.contraction import MatMul, turned


class Inverse(Primitive):
    """What the matrices x[…, n, n] become by Gauss and Jordan, unit matrices, and their inverses.

    In each column the largest element not above the diagonal becomes the pivot, the first of
    several.  The inverse of a singular matrix holds infinities or NaN.
    """

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        check_rank(self, "x", x, 2)
        check_dtype(self, "x", x, {"f32", "f64"})
        if x.shape[-1] != x.shape[-2]:
            raise TypeRuleError(f"inverse: x is {x}, expected square matrices […, n, n]")
        return x, x

    def reference(self, x: Array) -> tuple[Array, Array]:
        unit, out = np.empty_like(x), np.empty_like(x)
        with np.errstate(all="ignore"):
            for at in np.ndindex(*x.shape[:-2]):
                unit[at], out[at] = inverted(x[at])
        return unit, out

    def gradient(self, b: Graph, dys: tuple[Value | None, ...], x: Value) -> tuple[Value | None]:
        """Return -yᵀ dy yᵀ; the unit matrices do not change with x."""
        if dys[1] is None:
            return (None,)
        y = turned(b, b.add(self, [x]).results[1])
        return (b(Neg(), b(MatMul(), b(MatMul(), y, dys[1]), y)),)

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        for n, dtype in ((3, np.float32), (7, np.float64)):
            yield cls(), (random.normal(0, 1, (2, n, n)) + 4 * np.eye(n)).astype(dtype)
        yield cls(), np.array([[0, 2], [3, 4]], np.float32)
        yield cls(), np.array([[[[4]]]], np.float32)
        yield cls(), "f32[0,3,3]"
        yield cls(), "f32[2,0,0]"


def inverted(a: Array) -> tuple[Array, Array]:
    """Return one matrix after elimination, and its inverse."""
    n = len(a)
    both = np.concatenate([a, np.eye(n, dtype=a.dtype)], axis=1)
    for j in range(n):
        p = j + int(np.argmax(np.abs(both[j:, j])))
        both[[j, p]] = both[[p, j]]
        both[j] = both[j] / both[j, j]
        for i in range(n):
            if i != j:
                both[i] = both[i] - both[i, j] * both[j]
    return both[:, :n], both[:, n:]

"""Probabilities of classes from probabilities of pairs of classes."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.extras.linalg.inverse import Inverse
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum, filled
from alpenglow.ops.tensor.generate import Eye
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose

ROUNDS = 100
"""How often the probabilities are improved at most."""

PRECISION = 0.005
"""The error, times the number of classes, that is small enough."""


class Couple(Primitive):
    """The class probabilities p[N, C] that agree best with r[N, C, C]: i wins over j by r[i, j].

    p minimises the sum of (r[j, i] p[i] - r[i, j] p[j])², by Gauss-Seidel rounds on Q p = (p·Q p) 1
    until that holds to 0.005 / C; Q[i, i] is the sum of r[j, i]² over j, Q[i, j] is
    -r[j, i] r[i, j].  The diagonal of r is not read.  Wu, Lin and Weng, "Probability estimates
    for multi-class classification by pairwise coupling", 2004, second method.
    """

    def infer(self, r: TensorType) -> TensorType:
        check_dtype(self, "r", r, {"f32", "f64"})
        check_rank(self, "r", r, 3, 3)
        if r.shape[1] != r.shape[2]:
            raise TypeRuleError(f"couple: r is {r}, expected [N, C, C]")
        return r.with_shape(r.shape[:2])

    def reference(self, r: Array) -> Array:
        n, classes, _ = r.shape
        across = r.transpose(0, 2, 1)
        off = ~np.eye(classes, dtype=np.bool_)
        q = np.where(off, -across * r, 0)
        q[:, ~off] = np.where(off, across * across, 0).sum(axis=2, dtype=r.dtype)
        p = np.full((n, classes), 1 / max(classes, 1), r.dtype)
        going = np.ones(n, np.bool_)
        for _ in range(ROUNDS):
            qp = np.einsum("nij,nj->ni", q, p)
            total = (p * qp).sum(axis=1)
            error = np.abs(qp - total[:, None]).max(axis=1, initial=0)
            going &= ~(error < PRECISION / max(classes, 1))
            if not going.any():
                break
            better = improved(q, p, qp, total)
            p = np.where(going[:, None], better, p)
        return p

    def gradient(self, b: Graph, dr: Value, r: Value) -> Value:
        """Take p as where the sum is least: Q p + c 1 = 0 and 1·p = 1, a symmetric system.

        With the inverse S of its matrix, p is the last column of that, and a change of Q changes p
        by -S dQ p; Q is made of products of elements of r.
        """
        n, classes = r.type.shape[:2]
        edge = (*r.type.shape[:1], 1)
        corner, rest = (0, 0, 0), (1, 1, 1)
        inverse = b.add(Inverse(), [self._system(b, r)]).results[1]
        inner = b(Slice(corner, r.type.shape, rest), inverse)
        p = b(Slice((0, classes, 0), (*edge, classes), rest), inverse)
        pulled = b(MatMul(), b(Reshape((*edge, classes)), dr), inner)
        dq = b(Neg(), b(MatMul(), b(Reshape((n, classes, 1)), pulled), p))
        loss, both = self._loss(b, dq), b(Add(), dq, b(Transpose((0, 2, 1)), dq))
        own = b(Mul(), r, b(Add(), loss, loss))
        other = b(Mul(), b(Transpose((0, 2, 1)), r), both)
        return self._beside(b, b(Sub(), own, other))

    def _loss(self, b: Graph, dq: Value) -> Value:
        """Return what is on the diagonals of matrices, the same in each column."""
        line = b(ReduceSum((1,)), b(Mul(), dq, unit(b, dq, dq.type.dtype)))
        return b(Broadcast(dq.type.shape), line)

    def _beside(self, b: Graph, x: Value) -> Value:
        """Return matrices with zeros on their diagonals."""
        return b(Where(), unit(b, x, "bool"), filled(b, 0, x), x)

    def _system(self, b: Graph, r: Value) -> Value:
        """Return Q with a row and a column of ones, and 0 in the corner where these meet."""
        off = self._beside(b, r)
        across = b(Mul(), off, b(Transpose((0, 2, 1)), off))
        lost = b(Broadcast(r.type.shape), b(ReduceSum((1,)), b(Mul(), off, off)))
        q = b(Sub(), b(Mul(), unit(b, r, r.type.dtype), lost), across)
        side = b(Pad((0, 0, 0), (0, 0, 1), value=1.0), q)
        n, classes = r.type.shape[:2]
        ones = b(Pad((0, 0, 0), (0, 0, 1)), filled(b, 1, Value(r.type.with_shape((n, 1, classes)))))
        return b(Concat(1), side, ones)

    @classmethod
    def examples(cls) -> Examples:
        random = np.random.default_rng(0)
        for n, classes, dtype in ((7, 3, np.float32), (1, 2, np.float32), (3, 5, np.float64)):
            win = random.uniform(0.05, 0.95, (n, classes, classes)).astype(dtype)
            above = np.triu(np.ones((classes, classes), np.bool_), 1)
            yield cls(), np.where(above, win, 1 - win.transpose(0, 2, 1)).astype(dtype)
        yield cls(), "f32[0,3,3]"
        yield cls(), np.zeros((2, 1, 1), np.float32)


def unit(b: Graph, like: Value, dtype: str) -> Value:
    """Return unit matrices in the shape of others."""
    classes = like.type.shape[-1]
    return b(Broadcast(like.type.shape), b(Eye(classes, classes, dtype=dtype)))


def improved(q: Array, p: Array, qp: Array, total: Array) -> Array:
    """Return p[N, C] after one round that solves for one class after the other."""
    p, qp, total = p.copy(), qp.copy(), total.copy()
    with np.errstate(all="ignore"):
        for i in range(p.shape[1]):
            change = (total - qp[:, i]) / q[:, i, i]
            p[:, i] += change
            scale = 1 + change
            total = (total + change * (change * q[:, i, i] + 2 * qp[:, i])) / scale / scale
            qp = (qp + change[:, None] * q[:, i, :]) / scale[:, None]
            p /= scale[:, None]
    return p

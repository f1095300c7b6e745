"""Converters for matrix products."""

from __future__ import annotations

from alpenglow.frontends.presume import fixed, presume
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import product
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Transpose, stretch


@on("FULLY_CONNECTED", "FullyConnectedOptions")
def fully_connected(s: Site) -> Made:
    """x[…, I] times weights[O, I]; what comes before the last axis is one axis if not kept."""
    rows, columns = of_fully_connected(s)
    y = s.g(MatMul(), rows, columns)
    if (bias := s.optional(2)) is not None:
        y = s.g(Add(), y, stretch(s.g, s.reshaped(bias, columns.type.shape[1:]), y.type.shape))
    return activated(s, kept(s, y))


def of_fully_connected(s: Site) -> tuple[Value, Value]:
    """Return rows[M, I] and columns[I, O]."""
    x, w = s.input(0), s.rank(1, 2)
    if s.option("weights_format"):
        raise s.unsupported(f"weights_format {s.option('weights_format')}", "0 (DEFAULT)")
    total, depth = product(x.type.shape), fixed(w.type.shape[1])
    if depth < 1 or not presume(total % depth, "=="):
        raise s.wrong(f"weights are {w.type}, expected axis 1 of at least 1 element, "
                      f"a divisor of the elements of input {x.type}")  # fmt: skip
    return s.reshaped(x, (total // depth, depth)), s.g(Transpose((1, 0)), w)


def kept(s: Site, y: Value) -> Value:
    """Return the product y[M, O] in the shape of operand 0 except the last axis, if asked for."""
    if not s.option("keep_num_dims"):
        return y
    x, depth = s.input(0), s.input(1).type.shape[1]
    if not x.type.rank or x.type.shape[-1] != depth:
        raise s.wrong(f"input is {x.type}, expected {depth} elements on the last axis, "
                      "as in the weights, for keep_num_dims")  # fmt: skip
    return s.reshaped(y, (*x.type.shape[:-1], y.type.shape[1]))


@on("BATCH_MATMUL", "BatchMatMulOptions")
def batch_matmul(s: Site) -> Made:
    return s.g(MatMul(), *of_batch_matmul(s))


def of_batch_matmul(s: Site) -> list[Value]:
    """Return matrices of one batch."""
    return s.batched(turned(s, s.input(0), s.option("adj_x")),
                     turned(s, s.input(1), s.option("adj_y")))  # fmt: skip


def turned(s: Site, x: Value, turn: bool) -> Value:
    """Return matrices, transposed if asked for; raise ModelError if they are none."""
    rank = x.type.rank
    if rank < 2:
        raise s.wrong(f"an operand is {x.type}, expected rank 2 or more")
    return s.g(Transpose((*range(rank - 2), rank - 1, rank - 2)), x) if turn else x

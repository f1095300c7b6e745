"""Converters for matrix products."""

from __future__ import annotations

from alpenglow.base.errors import ModelError
from alpenglow.frontends.presume import Needed, presume
from alpenglow.frontends.shapes import common_shape
from alpenglow.frontends.tflite.activate import activated
from alpenglow.frontends.tflite.table import Made, Site, on
from alpenglow.ir.dims import known, product
from alpenglow.ir.graph import Value
from alpenglow.ops.arithmetic import Add
from alpenglow.ops.contraction import MatMul
from alpenglow.ops.movement import Transpose, stretch


@on("FULLY_CONNECTED", "FullyConnectedOptions")
def fully_connected(s: Site) -> Made:
    """x[…, I] times weights[O, I]; what comes before the last axis is one axis if not kept."""
    x, w, bias = s.input(0), s.rank(1, 2), s.optional(2)
    if s.option("weights_format"):
        raise s.refuse("the weights are shuffled")
    outputs, depth = w.type.shape
    total = product(x.type.shape)
    if not known(depth):
        raise Needed("")
    depth = int(depth)
    if depth < 1 or not presume(total % depth, "=="):
        raise ModelError(f"{s.kind}: {x.type} are no rows for weights {w.type}")
    rows = s.reshaped(x, (total // depth, depth))
    y = s.g(MatMul(), rows, s.g(Transpose((1, 0)), w))
    if bias is not None:
        y = s.g(Add(), y, stretch(s.g, s.reshaped(bias, (outputs,)), y.type.shape))
    if s.option("keep_num_dims"):
        if not x.type.rank or x.type.shape[-1] != depth:
            raise ModelError(f"{s.kind}: {x.type} are no rows for weights {w.type}")
        y = s.reshaped(y, (*x.type.shape[:-1], outputs))
    return activated(s, y)


@on("BATCH_MATMUL", "BatchMatMulOptions")
def batch_matmul(s: Site) -> Made:
    x, y = (turned(s, s.input(i), s.option(n)) for i, n in enumerate(("adj_x", "adj_y")))
    batch = common_shape(s.kind, [x.type.shape[:-2], y.type.shape[:-2]])
    x = stretch(s.g, x, (*batch, *x.type.shape[-2:]))
    y = stretch(s.g, y, (*batch, *y.type.shape[-2:]))
    return s.g(MatMul(), x, y)


def turned(s: Site, x: Value, turn: bool) -> Value:
    """Return matrices, transposed if asked for; raise ModelError if they are none."""
    rank = x.type.rank
    if rank < 2:
        raise ModelError(f"{s.kind}: {x.type} holds no matrix")
    return s.g(Transpose((*range(rank - 2), rank - 1, rank - 2)), x) if turn else x

"""Counting the work in a model: two floating-point operations for each multiply-add.

Only what multiplies and adds along an inner dimension counts: convolutions, matrix products and
recurrent cells.  Padding lanes, packing and elementwise operators are not work that anybody asked
for, or too little to matter.  Of a graph as imported this is what the model asks for; of a program
it is what is done, which is less where convolutions take Winograd's way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from alpenglow.evaluate.run import expand
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.op import Composite, Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.blocked import (
    ConvBlocked,
    ConvPlanar,
    DepthwiseBlocked,
    DepthwisePlanar,
    MatMulPacked,
)
from alpenglow.ops.contraction import Conv, ConvTranspose, MatMul
from alpenglow.ops.few_bits import MatMulFewBits
from alpenglow.ops.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.recurrent_integer import LstmInteger
from alpenglow.ops.winograd import WinogradProduct
from alpenglow.program import Instr, Program

Types = Sequence[TensorType | None]


def flops(ir: Graph | Program) -> int:
    """Return the floating-point operations of one run; all extents must be known."""
    if isinstance(ir, Graph):
        return _of_graph(ir)
    return sum(map(flops_of, ir.instrs()))


def flops_of(i: Instr) -> int:
    """Return the floating-point operations of one instruction."""
    if i.body is not None:
        return _of_graph(i.body)
    ins = [None if r is None else r.type for r in i.ins]
    return _of_op(i.op, ins, [r.type for r in i.outs])


def flops_by_type(i: Instr) -> dict[str, int]:
    """Return the operations of one instruction by the element type of the left operand."""
    if i.body is None:
        left = next((r.type.dtype for r in i.reads()), "f32")
        found = [(left, flops_of(i))]
    else:
        found = [
            (next((v.type.dtype for v in n.inputs if v is not None), "f32"), _of_node(n))
            for n in i.body.nodes
        ]
    total: dict[str, int] = {}
    for dtype, flop in found:
        if flop:
            total[dtype] = total.get(dtype, 0) + flop
    return total


def _of_graph(g: Graph) -> int:
    return sum(map(_of_node, g.nodes))


def _of_node(n: Node) -> int:
    ins = [None if v is None else v.type for v in n.inputs]
    return _of_op(n.op, ins, [v.type for v in n.results]) + sum(map(_of_graph, n.regions))


def _of_op(op: Op, ins: Types, outs: Sequence[TensorType]) -> int:
    """Return the operations of one application."""
    match op, [t for t in ins if t is not None]:
        case MatMul(), [x, _, *_]:
            return 2 * outs[0].size * x.extents[-1]
        case Conv(), [_, w, *_]:
            return 2 * outs[0].size * math.prod(w.extents[1:])
        case ConvTranspose(), [x, w, *_]:
            # Every element of x meets every weight of its channel; zeros between are not work.
            return 2 * x.size * math.prod(w.extents[1:])
        case ((MatMulPacked() | MatMulFewBits()), [x, *_]):
            return 2 * outs[0].size * x.extents[-1]
        case ConvBlocked(group=group, bands=bands, strides=strides), [x, w, *_]:
            taps = math.prod(w.extents[2 : 2 + len(strides)])
            return 2 * _logical(outs[0]) * (_channels(x) // (group * bands)) * taps
        case ConvPlanar(), [x, w, *_]:
            return 2 * outs[0].size * _channels(x) * math.prod(w.extents[2:-1])
        case DepthwiseBlocked(strides=strides, taps=along), [_, w, *_]:
            taps = math.prod(w.extents[1 : 1 + len(strides)])
            if along:
                taps = taps // w.extents[len(strides)] * along
            return 2 * _logical(outs[0]) * taps
        case DepthwisePlanar(strides=strides), [_, w, *_]:
            return 2 * outs[0].size * math.prod(w.extents[-len(strides) :])
        case WinogradProduct(channels=int(channels), outputs=int(outputs)), [v, *_]:
            patches = v.extents[0] * v.extents[1] * v.extents[3]
            return 2 * patches * channels * outputs
        case ((Lstm() | Gru() | Rnn()), [x, r, *_]):
            # x has been through its weights already.
            return 2 * math.prod(x.extents[:2]) * r.size
        case LstmInteger(), [x, *_]:
            steps, batch, gates = x.extents
            return 2 * steps * batch * (gates // 4) * gates
        case Composite(), _:
            return _of_graph(expand(op, tuple(ins)))
    return 0


def _channels(t: TensorType) -> int:
    """Return the logical extent of axis 1."""
    extent = t.shape[1] if t.blocked is None else t.blocked
    assert isinstance(extent, int), f"{t} has open extents"
    return extent


def _logical(t: TensorType) -> int:
    """Return the number of elements, padding lanes left out."""
    if t.blocked is None:
        return t.size
    return t.extents[0] * _channels(t) * math.prod(t.extents[2:-1])

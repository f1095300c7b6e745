"""Counting the work in a model: two floating-point operations for each multiply-add.

Only what multiplies and adds along an inner dimension counts, as its operator says (`Op.work`):
convolutions, matrix products and recurrent cells.  Padding lanes, packing and elementwise operators
are not work that anybody asked for, or too little to matter.  Of a graph as imported this is what
the model asks for; of a program it is what is done, which is less where convolutions take
Winograd's way.

A `Scan` does the work of its region as often as it runs.  A `While` counts for one turn, since data
decide how many there are, and an `If` for the branch that does more.  In a program loops are jumps:
the turns count that are laid out, one or two (`program.unfold`), and both ways of a branch.
"""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.evaluate.run import expand
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.op import Composite, Op
from alpenglow.ir.types import TensorType
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan
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
    if i.parts:
        return sum(map(flops, i.parts))
    ins = [None if r is None else r.type for r in i.ins]
    return _of_op(i.op, ins, [r.type for r in i.outs])


def flops_by_type(i: Instr) -> dict[str, int]:
    """Return the operations of one instruction by the element type of the left operand."""
    if i.body is None:
        left = next((r.type.dtype for r in i.reads()), "f32")
        counts = [(left, flops_of(i))]
    else:
        counts = [
            (next((v.type.dtype for v in n.inputs if v is not None), "f32"), flops_of_node(n))
            for n in i.body.nodes
        ]
    total: dict[str, int] = {}
    for dtype, flop in counts:
        if flop:
            total[dtype] = total.get(dtype, 0) + flop
    return total


def _of_graph(g: Graph) -> int:
    return sum(map(flops_of_node, g.nodes))


def flops_of_node(n: Node) -> int:
    """Return the floating-point operations of one node of a graph."""
    ins = [None if v is None else v.type for v in n.inputs]
    inner = list(map(_of_graph, n.regions))
    match n.op:
        case Scan(count=count):
            assert isinstance(count, int), "all extents are known"
            return count * sum(inner)
        case If():
            return max(inner)
    return _of_op(n.op, ins, [v.type for v in n.results]) + sum(inner)


def _of_op(op: Op, ins: Types, outs: Sequence[TensorType]) -> int:
    """Return the operations of one application."""
    work = op.work(ins, outs)
    if not work and isinstance(op, Composite):
        return _of_graph(expand(op, tuple(ins)))
    return 2 * work

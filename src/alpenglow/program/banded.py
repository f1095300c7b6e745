"""Instructions band by band: what rows of operands rows of a result take, and how to make a few.

A program is as `schedule` makes it here: each buffer holds one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.rows import ROWS, SAME, Rows
from alpenglow.ir.types import TensorType
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad
from alpenglow.program.instr import Instr, Region, whole


@dataclass(frozen=True, slots=True)
class Form:
    """How the rows of an instruction's result are made of each operand's; None of all of it.

    A `move` only puts rows of its operands into its result.
    """

    operands: tuple[Rows | None, ...]
    move: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """Rows of an operand, from `begin` to `end`, and how many of padding are before and after."""

    begin: int
    end: int
    before: int
    after: int


def form_of(instr: Instr) -> Form | None:
    """Return how the rows of an instruction's result are made; None if they are not."""
    if len(instr.outs) != 1 or None in instr.ins:
        return None
    (out,), ins = instr.outs, list(instr.reads())
    types = [r.type for r in ins]
    if not all(r == whole(r.buffer, r.type) and r.type.static for r in (out, *ins)):
        return None
    if not has_rows(out.type) or any(0 in t.shape for t in (out.type, *types)):
        return None
    if instr.body is not None:
        roles = _roles(instr.body)
        operands = None if roles is None else tuple(roles[v] for v in instr.body.inputs.values())
    else:
        operands = _operands(instr.op, types, out.type)
    if operands is None or not any(operands):
        return None
    if isinstance(instr.op, Concat | Pad):
        return Form(operands, move=True)
    fits = all(r is None or _fits(r, t, out.type) for r, t in zip(operands, types, strict=True))
    return Form(operands) if fits else None


def repeats_rows(instr: Instr) -> bool:
    """Whether all rows of the result are the same, since an operand is stretched."""
    return isinstance(instr.op, Broadcast) and _stretches(instr.op, next(instr.reads()).type)


def has_rows(t: TensorType) -> bool:
    """Whether a type has an axis of rows, which is no axis that a layout adds."""
    return len(t.logical) > ROWS


def height(t: TensorType) -> int:
    """Return how many rows a type has."""
    return t.extents[ROWS]


def of_height(t: TensorType, rows: int) -> TensorType:
    """Return the type with so many rows."""
    return replace(t, shape=(*t.shape[:ROWS], rows, *t.shape[ROWS + 1 :]))


def band_of(rows: Rows, t: TensorType, begin: int, end: int) -> Band:
    """Return what rows of an operand the rows from `begin` to `end` of a result take."""
    low, high, tall = rows.first(begin), rows.end(end), height(t)
    return Band(max(low, 0), min(high, tall), max(-low, 0), max(high - tall, 0))


def banded(
    instr: Instr, form: Form, begin: int, end: int, out: Region, ins: tuple[Region, ...]
) -> Instr:
    """Return the instruction that makes the rows from `begin` to `end`, on these regions."""
    edges = (0, 0)
    for rows, r in zip(form.operands, instr.reads(), strict=True):
        if rows is not None:
            band = band_of(rows, r.type, begin, end)
            if band.before or band.after:
                edges = band.before, band.after
    if instr.body is not None:
        body = _banded_body(instr.body, [r.type for r in ins], end - begin, edges)
        return replace(instr, outs=(out,), ins=ins, body=body)
    op = _banded_op(instr.op, [r.type for r in instr.reads()], end - begin, edges)
    return replace(instr, op=op, outs=(out,), ins=ins)


def _operands(op: Op, types: list[TensorType], out: TensorType) -> tuple[Rows | None, ...] | None:
    """Return how rows of the result of an operator are made of each operand's."""
    match op:
        case Elementwise():
            return (SAME,) * len(types)
        case Pad(before, after, "constant") if min(*before, *after) >= 0:
            return (Rows(before=before[ROWS], after=after[ROWS]),)
        case Concat(axis) if axis % out.rank != ROWS:
            return (SAME,) * len(types)
        case Broadcast():
            return (None,) if _stretches(op, types[0]) else (SAME,)
    rows = op.rows_of(types)
    return None if rows is None else (rows, *[None] * (len(types) - 1))


def _fits(rows: Rows, t: TensorType, out: TensorType) -> bool:
    """Whether an operand has the rows that are asked for, and each row of the result takes one.

    Pools that round up may look further than their padding.
    """
    if not has_rows(t):
        return False
    tall = height(t)
    inside = rows.end(height(out)) <= tall + rows.after
    return inside and rows.end(1) > 0 and rows.first(height(out) - 1) < tall


def _stretches(op: Broadcast, x: TensorType) -> bool:
    """Whether a broadcast repeats one row."""
    place = x.rank - len(op.shape) + ROWS
    return len(op.shape) > ROWS and (place < 0 or x.shape[place] == 1)


def _roles(body: Graph) -> dict[Value, Rows | None] | None:
    """Return how rows of the result are made of each value of a fused instruction's body.

    None if there are several results, or several operators inside each other that slide.
    """
    if len(body.outputs) != 1:
        return None
    roles: dict[Value, Rows | None] = dict.fromkeys(body.outputs.values(), SAME)
    for node in reversed(body.nodes):
        inputs = [v for v in node.inputs if v is not None]
        if len(node.results) != 1 or node.regions or len(inputs) < len(node.inputs):
            return None
        if node.output not in roles:
            continue
        inner = _inner(node, roles[node.output], inputs)
        if inner is None:
            return None
        for v, rows in zip(inputs, inner, strict=True):
            if roles.setdefault(v, rows) != rows:
                return None
    if any(v.array is not None and rows is not None for v, rows in roles.items()):
        return None
    return {**dict.fromkeys(body.inputs.values()), **roles}


def _inner(node: Node, own: Rows | None, inputs: list[Value]) -> tuple[Rows | None, ...] | None:
    """Return how rows of the body's result are made of the operands of a node."""
    types = [v.type for v in inputs]
    if own is None:
        return (None,) * len(inputs)
    operands = _operands(node.op, types, node.output.type) if has_rows(node.output.type) else None
    if operands is None or isinstance(node.op, Pad | Concat):
        return None
    if own == SAME or not any(rows not in (None, SAME) for rows in operands):
        return tuple(None if rows is None else own if rows == SAME else rows for rows in operands)
    return None


def _banded_op(op: Op, types: Sequence[TensorType], rows: int, edges: tuple[int, int]) -> Op:
    """Return the operator, which pads operands of these types, or not, for so many rows."""
    if isinstance(op, Broadcast):
        return replace(op, shape=(*op.shape[:ROWS], rows, *op.shape[ROWS + 1 :]))
    slides = None if isinstance(op, Elementwise) else op.rows_of(types)
    return op.with_edges(*edges) if slides and (slides.before or slides.after) else op


def _banded_body(body: Graph, types: list[TensorType], rows: int, edges: tuple[int, int]) -> Graph:
    """Return the body for so many rows of the result, on operands of these types."""
    roles = _roles(body)
    assert roles is not None, "the rows of the body are known"
    taken = {SAME: rows}
    for v, t in zip(body.inputs.values(), types, strict=True):
        role = roles[v]
        if role is not None:
            taken[role] = height(t)
    new = Graph(body.name)
    env = {v: new.input(name, t) for (name, v), t in zip(body.inputs.items(), types, strict=True)}
    for node in body.nodes:
        role = roles.get(node.output)
        operands = [v for v in node.inputs if v is not None]
        inputs = [env.setdefault(v, v) for v in operands]
        op = node.op
        if role is not None:
            op = _banded_op(op, [v.type for v in operands], taken[role], edges)
        env[node.output] = new(op, *inputs, name=node.output.name)
    for name, v in body.outputs.items():
        new.output(name, env[v])
    return new

"""Axes that a kernel sees as one: those that every operand steps through alike."""

from __future__ import annotations

from collections.abc import Sequence

from alpenglow.ir.graph import Node, Value
from alpenglow.loops.coord import is_number
from alpenglow.loops.form import Window
from alpenglow.ops.gather import Gather
from alpenglow.ops.in_range import InRange
from alpenglow.program.instr import Instr, anchor_node


def merge_axes(windows: Sequence[Window], first: Sequence[int] = ()) -> None:
    """See windows with few axes, merging those that all step through alike.

    `first` says from which axis of each window on; from there they are of one shape.
    """
    kept: list[list[int]] = [[] for _ in windows]  # the last old axis of each new one
    extents: list[int] = []
    begin = first or [0] * len(windows)
    for axis, extent in enumerate(windows[0].region.shape[begin[0] :]):
        if is_number(extent, 1):
            continue
        steps = [w.region.strides[at + axis] for w, at in zip(windows, begin, strict=True)]
        if extents and all(
            w.region.strides[axes[-1]] == step * extent
            for w, axes, step in zip(windows, kept, steps, strict=True)
        ):
            extents[-1] *= extent
            for axes, at in zip(kept, begin, strict=True):
                axes[-1] = at + axis
        else:
            extents.append(extent)
            for axes, at in zip(kept, begin, strict=True):
                axes.append(at + axis)
    for w, axes, at in zip(windows, kept, begin, strict=True):
        strides = w.region.strides
        lead = w.region.shape[:at]
        w.reshape([*lead, *extents], [*strides[:at], *(strides[a] for a in axes)])


def merge_rows(instr: Instr, outs: Sequence[Window], ins: Sequence[Window | None]) -> None:
    """See the axes behind those of a Gather's indices as few: rows are copied as they lie."""
    at = _gathered(instr)
    if at is None:
        return
    op, data, others = at
    (source, indices) = (ins[i] for i in data)
    assert source is not None and indices is not None, "Gather has two operands"
    behind = op.axis + len(indices.region.shape)
    rest = [w for i in others if (w := ins[i]) is not None]
    alike = [*outs, *rest]
    if any(w.region.shape != outs[0].region.shape for w in rest):
        return
    merge_axes([source, *alike], [op.axis + 1, *([behind] * len(alike))])


def _gathered(instr: Instr) -> tuple[Gather, tuple[int, int], list[int]] | None:
    """Return the Gather of an instruction, the places of its two operands, and all others.

    None if there is no such, or if something else than it reads its operands.
    """
    if instr.body is None:
        op = instr.op
        return (op, (0, 1), []) if isinstance(op, Gather) and op.axis >= 0 else None
    node = anchor_node(instr.body)
    if node is None or not isinstance(node.op, Gather) or node.op.axis < 0:
        return None
    inputs = list(instr.body.inputs.values())
    data, indices = node.inputs
    checked = indices.producer if indices is not None else None
    if checked is not None and isinstance(checked.op, InRange):
        (indices,) = checked.inputs
    if not (_read_once(data, node) and _read_once(indices, checked or node)):
        return None
    places = tuple(next((i for i, v in enumerate(inputs) if v is x), -1) for x in (data, indices))
    if -1 in places:
        return None
    return node.op, (places[0], places[1]), [i for i in range(len(inputs)) if i not in places]


def _read_once(v: Value | None, reader: Node) -> bool:
    return v is not None and list(v.users) == [reader]

"""The axes that loops run over: an extent of 1 is dropped, and neighbouring axes are merged.

A form pays for each axis.  If the last extent is 1, vectors along it have one lane; if it is short,
they are short.  So an instruction is seen with as few axes as its regions allow before its form
runs.  Two axes merge if the operator treats them alike and all regions step through them evenly.
A dynamic extent is not dropped: it may be 1 in one call and not in the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.graph import Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import TensorType
from alpenglow.loops.coord import is_number
from alpenglow.loops.form import Window
from alpenglow.ops.reduction.layer_norm import LayerNorm, RMSNorm
from alpenglow.ops.reduction.reduction import ArgReduction, Reduction
from alpenglow.ops.reduction.scan import LinearScan, Scan
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather, ScatterNd
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.ops.tensor.order import TopK
from alpenglow.program.instr import Instr, anchor_node

Axes = tuple[int | None, ...]
"""The loop axis that each axis of a tensor is; None for an extent of 1 that no loop runs over."""

Groups = list[list[int]]
"""Loop axes that are one: a list for each axis that is left."""


@dataclass(frozen=True)
class Roles:
    """How an operator runs over loop axes, whose order is the order of the axes of each tensor.

    Neighbouring axes of one kind may merge; an axis of the kind "" stays as it is.  `rewritten`
    returns the operator for merged axes, given the new number of each axis that is left.  If they
    are `free`, the axis along which the first operand is dense becomes the last one.
    """

    kinds: list[str]
    ins: list[Axes]
    outs: list[Axes]
    rewritten: Callable[[dict[int, int]], Op]
    free: bool = False


@dataclass(frozen=True)
class Merged:
    """An operator for merged axes, and the types of its operands as its form sees them."""

    op: Op
    types: list[TensorType | None]


def merge_axes(windows: Sequence[Window]) -> None:
    """See windows of one shape with few axes."""
    rank = len(windows[0].region.shape)
    axes: Axes = tuple(range(rank))
    uses = [(w, axes) for w in windows]
    groups = _groups(["alike"] * rank, uses, list(range(rank)))
    for w, _ in uses:
        _regroup(w, axes, groups)


def merge_roles(
    instr: Instr, ins: Sequence[Window | None], outs: Sequence[Window]
) -> Merged | None:
    """See the windows of an instruction with few axes; None if its operator needs all of them."""
    node = None if instr.body is None else anchor_node(instr.body)
    if instr.body is not None and node is None:
        return None
    op = instr.op if node is None else node.op
    types = (
        [None if w is None else w.region.type for w in ins]
        if node is None
        else [None if v is None else v.type for v in node.inputs]
    )
    roles = _roles(op, types)
    if roles is None:
        return None
    uses = _uses(instr, node, roles, ins, outs)
    if uses is None:
        return None
    groups = _groups(roles.kinds, uses, _order(roles, uses))
    for w, axes in uses:
        _regroup(w, axes, groups)
    moved = {axis: number for number, group in enumerate(groups) for axis in group}
    return Merged(roles.rewritten(moved), [
        None if t is None else t.with_shape([d for d, _ in _pieces(t.extents, axes, groups)])
        for t, axes in zip(types, roles.ins, strict=True)
    ])  # fmt: skip


def _roles(op: Op, types: Sequence[TensorType | None]) -> Roles | None:
    """Return how an operator runs over axes; None if its form needs them as they are."""
    x = types[0] if types else None
    if x is None:
        return None
    rank = x.rank
    every: Axes = tuple(range(rank))
    match op:
        case Reduction():
            kept = tuple(a for a in every if a not in op.axes)
            out = tuple(None if a in op.axes else a for a in every) if op.keepdims else kept
            kinds = ["reduced" if a in op.axes else "kept" for a in every]
            return Roles(kinds, [every], [out], lambda moved: replace(
                op, axes=tuple(sorted({moved[a] for a in op.axes if a in moved})), keepdims=False
            ), True)  # fmt: skip
        case ArgReduction():
            axis = op.axis % rank
            kept = every[:axis] + every[axis + 1 :]
            out = (*every[:axis], None, *every[axis + 1 :]) if op.keepdims else kept
            return Roles(_all_but(axis, rank), [every], [out],
                         lambda moved: replace(op, axis=moved[axis], keepdims=False),
                         True)  # fmt: skip
        case Scan() | LinearScan() | Softmax() | TopK():
            axis = op.axis % rank
            outs = 2 if isinstance(op, TopK) else 1
            return Roles(_all_but(axis, rank), [every] * len(types), [every] * outs,
                         lambda moved: replace(op, axis=moved[axis]))  # fmt: skip
        case LayerNorm() | RMSNorm():
            axis = op.axis % rank
            kinds = ["kept"] * axis + ["normalized"] * (rank - axis)
            if all(is_number(d, 1) for d in x.extents[axis:]):
                kinds[-1] = ""
            return Roles(kinds, [every] + [every[axis:]] * (len(types) - 1), [every],
                         lambda moved: replace(op, axis=min(
                             moved[a] for a in every[axis:] if a in moved)))  # fmt: skip
        case ScatterNd():
            return _of_scatter(op, types)
        case Gather() if op.axis >= 0:
            return _of_gather(op, types)
    return None


def _of_gather(op: Gather, types: Sequence[TensorType | None]) -> Roles:
    """Return the roles of axes before the gathered one, of indices, and of the rows behind it."""
    data, indices = types
    assert data is not None and indices is not None
    before, count = op.axis, indices.rank
    lead, index = tuple(range(before)), tuple(range(before, before + count))
    gathered = before + count
    behind = tuple(range(gathered + 1, gathered + data.rank - before))
    kinds = [""] * (gathered + 1) + ["row"] * len(behind)
    ins: list[Axes] = [(*lead, gathered, *behind), index]
    return Roles(kinds, ins, [(*lead, *index, *behind)], lambda moved: op)


def _of_scatter(op: ScatterNd, types: Sequence[TensorType | None]) -> Roles:
    """Return the roles of axes that are indexed, of axes of slices, and of axes of indices."""
    data, indices, _ = types
    assert data is not None and indices is not None
    depth, count = indices.extents[-1], indices.rank - 1
    tuples = tuple(range(count))
    every = tuple(range(count, count + data.rank))
    kinds = ["tuple"] * count + [""] * depth + ["slice"] * (data.rank - depth) + [""]
    ins: list[Axes] = [every, (*tuples, len(kinds) - 1), (*tuples, *every[depth:])]
    return Roles(kinds, ins, [every], lambda moved: op)


def _all_but(axis: int, rank: int) -> list[str]:
    """Return the kinds of axes of which one is special."""
    return ["" if a == axis else "alike" for a in range(rank)]


def _uses(
    instr: Instr, node: Node | None, roles: Roles, ins: Sequence[Window | None],
    outs: Sequence[Window],
) -> list[tuple[Window, Axes]] | None:  # fmt: skip
    """Return each window with its loop axes; None if the axes of any are not known."""
    results = list(zip(outs, roles.outs, strict=True))
    if instr.body is None or node is None:
        return [(w, axes) for w, axes in zip(ins, roles.ins, strict=True) if w] + results
    windows = dict(zip(instr.body.inputs.values(), ins, strict=True))
    axes_of: dict[Value, Axes] = {}
    (result,) = instr.body.outputs.values()
    starts = [*zip(node.inputs, roles.ins, strict=True), (result, roles.outs[0])]
    for v, axes in starts:
        for leaf in _leaves(v, node.output):
            if leaf not in windows or axes_of.setdefault(leaf, axes) != axes:
                return None
    return [(w, axes) for v, axes in axes_of.items() if (w := windows[v]) is not None] + results


def _leaves(v: Value | None, end: Value) -> Iterator[Value]:
    """Yield the values `behind` v that are not computed element by element."""
    return (x for x in behind(v, end) if not _is_by_element(x))


def behind(v: Value | None, end: Value) -> Iterator[Value]:
    """Yield the values at the places of whose elements alone an element of `v` is computed.

    The search ends at `end`, at constants and at operators that are not elementwise.
    """
    waiting, seen = [v], {end}
    while waiting:
        v = waiting.pop()
        if v is None or v in seen or v.array is not None:
            continue
        seen.add(v)
        yield v
        if v.producer is not None and _is_by_element(v):
            waiting += v.producer.inputs


def _is_by_element(v: Value) -> bool:
    node = v.producer
    return node is not None and isinstance(node.op, Elementwise | Broadcast | InRange)


def _order(roles: Roles, uses: Sequence[tuple[Window, Axes]]) -> list[int]:
    """Return the order in which loops run over axes."""
    order = list(range(len(roles.kinds)))
    w, axes = uses[0]
    steps = [(a, s) for a, d, s in zip(axes, w.region.shape, w.region.strides, strict=True)
             if a is not None and not is_number(d, 1)]  # fmt: skip
    dense = [a for a, s in steps if is_number(s, 1)]
    if roles.free and dense and dense[-1] != steps[-1][0]:
        order.remove(dense[-1])
        order.append(dense[-1])
    return order


def _groups(
    kinds: Sequence[str], uses: Sequence[tuple[Window, Axes]], order: Sequence[int]
) -> Groups:
    """Return the axes that are left, each with the axes that it is made of."""
    places = [(w, {a: i for i, a in enumerate(axes)}) for w, axes in uses]

    def is_one(axis: int) -> bool:
        return any(is_number(w.region.shape[at[axis]], 1) for w, at in places if axis in at)

    def even(before: int, axis: int) -> bool:
        for w, at in places:
            if (before in at) != (axis in at):
                return False
            if axis in at:
                outer, inner = w.region.strides[at[before]], w.region.strides[at[axis]]
                if outer != inner * w.region.shape[at[axis]]:
                    return False
        return True

    groups: Groups = []
    for axis in order:
        kind = kinds[axis]
        if kind and is_one(axis):
            continue
        last = groups[-1][-1] if groups else None
        if kind and last is not None and kinds[last] == kind and even(last, axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _regroup(w: Window, axes: Axes, groups: Groups) -> None:
    pieces = _pieces(w.region.shape, axes, groups)
    w.reshape([d for d, _ in pieces], [w.region.strides[last] for _, last in pieces])


def _pieces(shape: Sequence[int], axes: Axes, groups: Groups) -> list[tuple[int, int]]:
    """Return the extent of each axis that is left of a tensor, and its last axis of them."""
    at = {axis: i for i, axis in enumerate(axes)}
    inside = [[at[axis] for axis in group] for group in groups if group[-1] in at]
    return [(math.prod(shape[i] for i in group), group[-1]) for group in inside]

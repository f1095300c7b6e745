"""Simplification of movement: reshapes, transposes, broadcasts, slices, concats, pads, packs, views
of complex numbers.

Rules that drop a node compare whole types, so that tensors in other layouts never pass for
row-major ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from alpenglow.ir.dims import Dim, is_open, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.reduction.reduction import Reduction
from alpenglow.ops.tensor.generate import Shape, Size
from alpenglow.ops.tensor.movement import (
    Broadcast,
    Concat,
    Pad,
    Reshape,
    Slice,
    Transpose,
)
from alpenglow.passes.constants import read_once

rules = Rules()


@rules.on(Op)
def nothing_to_compute(g: Graph, node: Node) -> Rewritten:
    """f(…) => the empty constant   where f is pure and its results have no elements"""
    types = [v.type for v in node.results]
    if not types or not node.op.pure or not all(0 in t.shape and not t.symbols() for t in types):
        return None
    return [g.constant(np.empty(t.extents, t.numpy), type_=t) for t in types]


@rules.on(Shape, Size)
def known_shape(g: Graph, node: Node) -> Rewritten:
    """shape(x) => the extents of x   where they are numbers"""
    match node:
        case Node(Shape(start=start, end=end), [Value() as x]):
            extents = x.type.shape[start:end]
            numbers = not any(map(is_open, extents))
            return g.constant(np.array(extents, np.int64)) if numbers else None
        case Node(Size(), [Value() as x]) if not x.type.symbols():
            return g.constant(np.array(x.type.size, np.int64))
    return None


@rules.on(Reshape, Broadcast, Pad, Slice, Concat, Transpose)
def moves_nothing(g: Graph, node: Node) -> Rewritten:
    """reshape(x, its shape) => x;  broadcast, pad, slice, concat, transpose likewise"""
    first = node.inputs[0]
    if first is None or len(node.inputs) > 1 or first.type != node.output.type:
        return None
    match node.op:
        case Transpose(perm=perm):
            return first if list(perm) == list(range(len(perm))) else None
        case Slice(starts=starts, steps=steps):
            return first if set(steps) <= {1} and set(starts) <= {0} else None
        case Pad(before=before, after=after):
            return first if not any(before) and not any(after) else None
    return first


@rules.on(Reshape)
def reshape_reshape(g: Graph, node: Node) -> Rewritten:
    """reshape(reshape(x, s), t) => reshape(x, t)"""
    match node:
        case Node(op, [Value(Node(Reshape(), [x]))]):
            return g(op, x)
    return None


@rules.on(Transpose)
def transpose_transpose(g: Graph, node: Node) -> Rewritten:
    """transpose(transpose(x, p), q) => transpose(x, p[q])"""
    match node:
        case Node(Transpose(perm=q), [Value(Node(Transpose(perm=p), [x]))]):
            return g(Transpose(tuple(p[i] for i in q)), x)
    return None


@rules.on(Transpose)
def transpose_of_ones(g: Graph, node: Node) -> Rewritten:
    """transpose(x, p) => reshape(x)   where p moves only axes of extent 1"""
    match node:
        case Node(Transpose(perm=perm), [Value() as x]):
            moved = [p for p in perm if x.type.shape[p] != 1]
            return g(Reshape(node.output.type.shape), x) if moved == sorted(moved) else None
    return None


@rules.on(Transpose)
def transpose_of_concat(g: Graph, node: Node) -> Rewritten:
    """transpose(concat(x, y), p) => concat(reshape(x), reshape(y))   where p moves only axes of
    extent 1 of each, and nothing else reads the whole"""
    match node:
        case Node(Transpose(perm=perm), [Value(Node(Concat(axis=axis), parts)) as y]):
            if not read_once(g, y):
                return None
            moved = [[p for p in perm if v.type.shape[p] != 1] for v in parts if v is not None]
            if any(m != sorted(m) for m in moved):
                return None
            turned = [g(Reshape(tuple(v.type.shape[p] for p in perm)), v)
                      for v in parts if v is not None]  # fmt: skip
            return g(Concat(perm.index(axis % len(perm))), *turned)
    return None


@rules.on(Transpose)
def transpose_between_ones(g: Graph, node: Node) -> Rewritten:
    """transpose(reshape(transpose(x, p), s), q) => reshape(transpose(x, r), t)   where the first
    reshape only drops or adds axes of extent 1; reshape(x, t) where r moves no others"""
    match node:
        case Node(
            Transpose(perm=q),
            [Value(Node(Reshape(), [Value(Node(Transpose(perm=p), [Value() as x]))])) as y],
        ):
            wide = [i for i, d in enumerate(y.type.shape) if d != 1]
            axes = [a for a in p if x.type.shape[a] != 1]
            if [y.type.shape[i] for i in wide] != [x.type.shape[a] for a in axes]:
                return None
            source = dict(zip(wide, axes, strict=True))
            order = [source[i] for i in q if i in source]
            if order != sorted(order):
                ones = [a for a, d in enumerate(x.type.shape) if d == 1]
                x = g(Transpose((*ones, *order)), x)
            return g(Reshape(node.output.type.shape), x)
    return None


@rules.on(Transpose)
def transpose_broadcast(g: Graph, node: Node) -> Rewritten:
    """transpose(broadcast(x), p) => broadcast(transpose(x, p))"""
    match node:
        case Node(Transpose(perm=perm) as op, [Value(Node(Broadcast(), [Value() as x])) as y]):
            if x.type.shape == y.type.shape:
                return None
            full = (1,) * (len(perm) - x.type.rank) + x.type.shape
            wide = x if full == x.type.shape else g(Reshape(full), x)
            return g(Broadcast(node.output.type.shape), g(op, wide))
    return None


@rules.on(Reduction)
def reduce_before_broadcast(g: Graph, node: Node) -> Rewritten:
    """reduce(broadcast(x), axes) => broadcast(reduce(x, axes))   where x has all of the axes"""
    match node:
        case Node(Reduction(axes=axes) as op, [Value(Node(Broadcast(), [Value() as x])) as y]):
            full = (1,) * (y.type.rank - x.type.rank) + x.type.shape
            kept = all(full[axis] == y.type.shape[axis] for axis in axes)
            if not kept:
                return None
            wide = x if full == x.type.shape else g(Reshape(full), x)
            t = node.output.type
            return g(Broadcast(t.shape, t.layout), g(op, wide))
    return None


@rules.on(Reshape)
def reshape_broadcast(g: Graph, node: Node) -> Rewritten:
    """reshape(broadcast(x), s) => broadcast(x, s)   where x has one element"""
    match node:
        case Node(Reshape(shape=shape), [Value(Node(Broadcast(), [Value() as x]))]):
            if any(d != 1 for d in x.type.shape):
                return None
            one = x if x.type.rank <= len(shape) else g(Reshape(()), x)
            return g(Broadcast(shape), one)
    return None


@rules.on(Reshape)
def transpose_between_reshapes(g: Graph, node: Node) -> Rewritten:
    """reshape(transpose(reshape(x, merging axes), p), splitting them again) => transpose(x, q)"""
    match node:
        case Node(
            _, [Value(Node(Transpose(perm=perm), [Value(Node(Reshape(), [Value() as x])) as y]))]
        ):
            groups = _merged(x.type.shape, y.type.shape)
            if groups is None or not x.type.is_plain:
                return None
            whole = tuple(axis for p in perm for axis in groups[p])
            if tuple(x.type.shape[axis] for axis in whole) == node.output.type.shape:
                return g(Transpose(whole), x)
    return None


@rules.on(Broadcast)
def broadcast_broadcast(g: Graph, node: Node) -> Rewritten:
    """broadcast(broadcast(x, s), t) => broadcast(x, t)"""
    match node:
        case Node(op, [Value(Node(Broadcast(), [x]))]):
            return g(op, x)
    return None


@rules.on(Broadcast)
def broadcast_of_more_axes(g: Graph, node: Node) -> Rewritten:
    """broadcast(reshape(x, [1, …, shape of x]), s) => broadcast(x, s)"""
    match node:
        case Node(op, [Value(Node(Reshape(shape=shape), [Value() as x]))]):
            more = len(shape) - x.type.rank
            if x.type.is_plain and more >= 0 and shape == (1,) * more + x.type.shape:
                return g(op, x)
    return None


@rules.on(Slice)
def slice_slice(g: Graph, node: Node) -> Rewritten:
    """slice(slice(x, a, s), b, t) => slice(x, a + b s, s t)"""
    match node:
        case Node(Slice() as outer, [Value(Node(Slice() as inner, [x]))]):
            starts = [a + b * s for a, b, s in
                      zip(inner.starts, outer.starts, inner.steps, strict=True)]  # fmt: skip
            steps = [s * t for s, t in zip(inner.steps, outer.steps, strict=True)]
            return g(Slice(tuple(starts), outer.sizes, tuple(steps)), x)
    return None


@rules.on(Slice)
def slice_broadcast(g: Graph, node: Node) -> Rewritten:
    """slice(broadcast(x)) => broadcast(slice(x))   along axes that are not stretched, if any"""
    match node:
        case Node(Slice() as op, [Value(Node(Broadcast(), [Value() as x])) as y]):
            if x.type.shape == y.type.shape:
                return None
            lead = len(op.sizes) - x.type.rank
            cuts = zip(op.starts[lead:], op.sizes[lead:], op.steps[lead:], strict=True)
            own = [(0, 1, 1) if d == 1 else cut for d, cut in zip(x.type.shape, cuts, strict=True)]
            starts, sizes, steps = zip(*own, strict=True) if own else ((), (), ())
            uncut = sizes == x.type.shape and set(steps) <= {1}
            part = x if uncut else g(Slice(starts, sizes, steps), x)
            return g(Broadcast(op.sizes, y.type.layout), part)
    return None


@rules.on(Slice)
def slice_concat(g: Graph, node: Node) -> Rewritten:
    """slice(concat(a, b)) => slice(a)   where nothing of b is taken"""
    match node:
        case Node(Slice() as op, [Value(Node(Concat(axis=axis), parts))]):
            axis %= len(op.sizes)
            start, size = op.starts[axis], op.sizes[axis]
            if not (known(start) and known(size) and size):
                return None
            part = _part_at(parts, axis, start, start + (size - 1) * op.steps[axis])
            if part is not None:
                x, offset = part
                starts = (*op.starts[:axis], start - offset, *op.starts[axis + 1 :])
                return g(Slice(starts, op.sizes, op.steps), x)
    return None


@rules.on(Concat)
def concat_concat(g: Graph, node: Node) -> Rewritten:
    """concat(a, concat(b, c)) => concat(a, b, c)   along one axis, the inner one read only here"""
    parts: list[Value | None] = []
    for v in node.inputs:
        match v:
            case Value(Node(Concat(axis=axis), inner)) if read_once(g, v) and (
                (axis - _axis(node)) % v.type.rank == 0
            ):  # fmt: skip
                parts += inner
            case _:
                parts.append(v)
    return g(node.op, *parts) if len(parts) > len(node.inputs) else None


@rules.on(Concat)
def concat_nothing(g: Graph, node: Node) -> Rewritten:
    """concat(a, nothing) => concat(a)"""
    axis = _axis(node)
    kept = [v for v in node.inputs if v is not None and v.type.shape[axis] != 0]
    return g(node.op, *kept) if kept and len(kept) < len(node.inputs) else None


@rules.on(Pad)
def pad_that_cuts(g: Graph, node: Node) -> Rewritten:
    """pad(x, -a, -b) => slice(x)   where nothing is added"""
    match node:
        case Node(Pad(before=before, after=after), [Value() as x]):
            if max((*before, *after), default=0) <= 0:
                starts = tuple(-a for a in before)
                return g(Slice(starts, node.output.type.shape, (1,) * x.type.rank), x)
    return None


@rules.on(Pad)
def pad_pad(g: Graph, node: Node) -> Rewritten:
    """pad(pad(x, a), b) => pad(x, a + b)   with the same constant, or with edges"""
    match node:
        case Node(Pad() as outer, [Value(Node(Pad() as inner, [x]))]):
            amounts = (*inner.before, *inner.after, *outer.before, *outer.after)
            same = (inner.mode, inner.value) == (outer.mode, outer.value)
            if not same or outer.mode not in ("constant", "edge") or min(amounts, default=0) < 0:
                return None
            before = tuple(a + b for a, b in zip(inner.before, outer.before, strict=True))
            after = tuple(a + b for a, b in zip(inner.after, outer.after, strict=True))
            return g(Pad(before, after, outer.mode, outer.value), x)
    return None


@rules.on(Add)
def add_pads(g: Graph, node: Node) -> Rewritten:
    """pad(x, a, n + b) + pad(y, a + m, b) + … => pad(concat(x, y, …), a, b)   for m of x, n of y

    A gap between two of them is filled with zeros, unless another sum follows.
    """
    pads = _added_pads(g, node)
    first, x = min(pads, key=lambda pad: pad[0].before, default=(Pad((), ()), node.output))
    axes = [i for i in range(x.type.rank) if any(op.before[i] != first.before[i] for op, _ in pads)]
    if len(axes) != 1 or not all(v.type.is_plain for _, v in pads):
        return None
    (axis,) = axes
    pads.sort(key=lambda pad: pad[0].before[axis])
    rest = [i for i in range(x.type.rank) if i != axis]
    parts = [pads[0][1]]
    for (op, v), (other, w) in pairwise(pads):
        extent = v.type.shape[axis]
        if any(op.after[i] != other.after[i] or v.type.shape[i] != w.type.shape[i] for i in rest):
            return None
        if is_open(extent) or (gap := other.before[axis] - op.before[axis] - extent) < 0:
            return None
        if gap and any(isinstance(user.op, Add) for user in node.output.users):
            return None
        if gap:
            shape = [gap if i == axis else d for i, d in enumerate(w.type.shape)]
            parts.append(g(Broadcast(tuple(shape)), g.constant(np.zeros((), w.type.numpy))))
        parts.append(w)
    return g(Pad(first.before, pads[-1][0].after), g(Concat(axis), *parts))


def _added_pads(g: Graph, node: Node) -> list[tuple[Pad, Value]]:
    """Return the zero pads that a sum adds up and their operands; none if it adds anything else."""
    pads: list[tuple[Pad, Value]] = []
    terms = [v for v in node.inputs if v is not None]
    while terms:
        match terms.pop().producer:
            case Node(Pad(mode="constant", value=0) as op, [Value() as x]):
                pads.append((op, x))
            case Node(Add(), [Value() as x, Value() as y]) as inner if g.users(inner.output) == 1:
                terms += (x, y)
            case _:
                return []
    return pads if min((min(op.before + op.after) for op, _ in pads), default=0) >= 0 else []


@rules.on(Reduction)
def reduce_of_ones(g: Graph, node: Node) -> Rewritten:
    """reduce(x, axes) => reshape(x)   where the axes have extent 1, cast if sums are wider"""
    match node:
        case Node(Reduction(axes=axes), [Value() as x]) if all(x.type.shape[a] == 1 for a in axes):
            y = node.output.type
            x = x if x.type.dtype == y.dtype else g(Cast(y.dtype), x)
            return x if x.type == y else g(Reshape(y.shape), x)
    return None


@rules.on(Reshape)
def reduce_keeping_axes(g: Graph, node: Node) -> Rewritten:
    """reshape(reduce(x, axes, keepdims=False), with 1 there) => reduce(x, axes, keepdims=True)"""
    match node:
        case Node(Reshape(shape=shape), [Value(Node(Reduction() as op, [Value() as x])) as y]):
            kept = tuple(1 if i in op.axes else d for i, d in enumerate(x.type.shape))
            if not op.keepdims and shape == kept and read_once(g, y):
                return g(replace(op, keepdims=True), x)
    return None


@rules.on(ViewAsReal)
def real_of_complex(g: Graph, node: Node) -> Rewritten:
    """view_as_real(view_as_complex(x)) => x"""
    match node:
        case Node(_, [Value(Node(ViewAsComplex(), [x]))]):
            return x
    return None


@rules.on(ViewAsReal)
def real_of_broadcast(g: Graph, node: Node) -> Rewritten:
    """view_as_real(broadcast(x, s)) => broadcast(view_as_real(x), (*s, 2))"""
    match node:
        case Node(op, [Value(Node(Broadcast(), [x]))]):
            return g(Broadcast(node.output.type.shape), g(op, x))
    return None


@rules.on(ViewAsComplex)
def complex_of_real(g: Graph, node: Node) -> Rewritten:
    """view_as_complex(view_as_real(x)) => x"""
    match node:
        case Node(_, [Value(Node(ViewAsReal(), [x]))]):
            return x
    return None


def _axis(node: Node) -> int:
    """Return the axis of a concat, counted from the front."""
    assert isinstance(node.op, Concat)
    return node.op.axis % node.output.type.rank


def _merged(shape: tuple[Dim, ...], onto: tuple[Dim, ...]) -> list[list[int]] | None:
    """Return which neighbouring axes of `shape` make each of `onto`; None if some are split."""
    groups: list[list[int]] = []
    axis = 0
    for extent in onto:
        group: list[int] = []
        size: Dim = 1
        while size != extent or not group:
            if axis == len(shape):
                return None
            group.append(axis)
            size = size * shape[axis]
            axis += 1
        groups.append(group)
    return groups if axis == len(shape) else None


def _part_at(
    parts: Sequence[Value | None], axis: int, start: int, last: int
) -> tuple[Value, int] | None:
    """Return the operand of a concat that holds positions start to last, and where it begins."""
    offset: Dim = 0
    for x in parts:
        assert x is not None
        extent = x.type.shape[axis]
        if not known(offset) or not known(extent):
            return None
        if offset <= min(start, last) and max(start, last) < offset + extent:
            return x, offset
        offset = offset + extent
    return None

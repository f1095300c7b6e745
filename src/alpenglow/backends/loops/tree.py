"""The loop form of tree ensembles: rows in parallel, trees in vectors.

A lane walks a tree of its own, from node to node by gathered loads, until all lanes stand at a
leaf.  So the paths of many trees are under way at once, for a single row as well.
"""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.backends.loops.coord import Coord, coord
from alpenglow.backends.loops.form import Loops, Sink, Source, push
from alpenglow.backends.loops.rows import accumulators, block, combine, combined, width
from alpenglow.kernel.expr import Const, Expr, Load, Reduce, Splat
from alpenglow.ops.tree import TreeEnsemble, neutral

COMBINE = {"sum": "add", "min": "min", "max": "max"}


@push(TreeEnsemble)
def tree_ensemble(k: Loops, op: TreeEnsemble, ins: list[Source | None], outs: list[Sink]) -> None:
    x, roots, weight, first = ins[0], ins[4], ins[6], ins[7] if len(ins) > 7 else None
    assert x is not None and roots is not None and weight is not None
    lanes = width(k, roots.shape[0])
    if x.shape[0] == 0:
        return
    with k.parallel(x.shape[:1]) as (row,):
        if op.targets == 1 and first is None:
            one_target(k, op, ins, outs[0], row, lanes)
        else:
            several_targets(k, op, ins, outs[0], row, lanes)


def one_target(
    k: Loops, op: TreeEnsemble, ins: list[Source | None], out: Sink, row: Coord, lanes: int
) -> None:
    """Combine the one weight of each leaf in registers, a tree a lane."""
    weight = ins[6]
    assert weight is not None
    name, start = COMBINE[op.aggregate], neutral(op.aggregate)
    (total,) = accumulators(k, start, weight.type.dtype, lanes, 1)

    def add(leaf: Expr, trees: Coord) -> None:
        value = widened(weight([k.limited(leaf, weight.shape[0])]), lanes)
        if k.mask is not None:
            value = k.select(k.mask, value, Const(start, value.dtype, lanes))
        k.b.set(total, combine(k, name, total, value))

    each_block(k, op, ins, row, lanes, add)
    out.store([row, 0], named(k, op, combined(k, name, [total])))


def several_targets(
    k: Loops, op: TreeEnsemble, ins: list[Source | None], out: Sink, row: Coord, lanes: int
) -> None:
    """Find the leaves in vectors and add their entries one by one to the row of the result."""
    roots, target, weight = ins[4], ins[5], ins[6]
    first = ins[7] if len(ins) > 7 else None
    assert roots is not None and target is not None and weight is not None
    trees, entries = roots.shape[0], weight.shape[0]
    start = k.constant(neutral(op.aggregate), weight.type.dtype)
    leaves = k.b.array("i64", lanes)
    with k.loop(op.targets) as t:
        out.store([row, t], start)

    def add(leaf: Expr, ramp: Coord) -> None:
        k.b.store(leaves, 0, leaf)
        k.mask, k.current = None, 1
        count = k.b.let(k.m.minimum(k.m.sub(Const(trees), ramp.base), lanes))
        with k.b.loop(count) as lane:
            one = k.b.let(Load(leaves, lane))
            begin, end = spans(k, one, first, entries)
            with k.b.loop(k.m.sub(k.m.maximum(end, begin), begin)) as i:
                entry = k.b.let(begin + i)
                place = [row, k.limited(target([coord(entry)]), op.targets)]
                value = combine(k, COMBINE[op.aggregate], out.load(place), weight([coord(entry)]))
                out.store(place, value)

    each_block(k, op, ins, row, lanes, add)
    if op.aggregate != "sum":
        with k.loop(op.targets) as t:
            out.store([row, t], named(k, op, out.load([row, t])))


def spans(k: Loops, leaf: Expr, first: Source | None, entries: int) -> tuple[Expr, Expr]:
    """Return where the entries of a leaf begin and end."""
    if first is None:
        begin = k.limited(leaf, entries).expr()
        return begin, begin + 1
    at = k.limited(leaf, first.shape[0] - 1)

    def bound(c: Coord) -> Expr:
        return k.b.let(k.m.minimum(k.m.maximum(k.m.cast(first([c]), "i64"), 0), entries))

    return bound(at), bound(at + 1)


def each_block(
    k: Loops,
    op: TreeEnsemble,
    ins: list[Source | None],
    row: Coord,
    lanes: int,
    body: Callable[[Expr, Coord], None],
) -> None:
    """Run `body` on the leaves that `lanes` neighbouring trees lead to, for all trees."""
    roots = ins[4]
    assert roots is not None
    full, rest = divmod(roots.shape[0], lanes)

    def run(trees: Coord) -> None:
        root = widened(k.m.cast(roots([trees]), "i64"), lanes)
        if k.mask is not None:
            root = k.select(k.mask, root, Const(-1, "i64", lanes))
        body(walked(k, op, ins, row, root), trees)

    if full:
        with k.b.loop(full) as number:
            block(k, number * lanes, lanes, None, run)
    if rest:
        block(k, Const(full * lanes), lanes, roots.shape[0], run)


def walked(k: Loops, op: TreeEnsemble, ins: list[Source | None], row: Coord, root: Expr) -> Expr:
    """Return the leaves that the row reaches from these roots."""
    x, feature, threshold, children = ins[:4]
    nan = ins[8] if len(ins) > 8 else None
    assert x is not None and feature is not None
    assert threshold is not None and children is not None
    lanes = root.lanes
    node = k.b.var(root)
    if feature.shape[0] and op.depth:
        mask, k.mask = k.mask, None
        steps = k.b.var(Const(0))
        going = k.b.var(inside(k, node))
        with k.b.repeat_while(going):
            at = k.limited(node, feature.shape[0])
            value = widened(x([row, k.limited(feature([at]), x.shape[1])]), lanes)
            yes = k.m.le(value, widened(threshold([at]), lanes))
            if nan is not None:
                there = k.m.bit_and(k.m.isnan(value), widened(nan([at]), lanes))
                yes = k.m.bit_or(yes, there)
            child = children([at, coord(k.b.let(k.m.cast(yes, "i64")))])
            after = widened(k.m.cast(child, "i64"), lanes)
            k.b.set(node, k.select(k.m.lt(node, 0), node, after))
            k.b.set(steps, k.m.add(steps, 1))
            k.b.set(going, k.m.bit_and(inside(k, node), k.m.lt(steps, op.depth)))
        k.mask = mask
    return k.b.let(k.m.sub(-1, node))


def inside(k: Loops, node: Expr) -> Expr:
    """Return whether any lane has not reached its leaf."""
    return k.m.ge(Reduce("max", node) if node.lanes > 1 else node, 0)


def named(k: Loops, op: TreeEnsemble, value: Expr) -> Expr:
    """Return a combined value, with 0 for what no leaf has named."""
    if op.aggregate == "sum":
        return value
    none = k.constant(neutral(op.aggregate), value.dtype)
    return k.select(k.m.eq(value, none), k.constant(0, value.dtype), value)


def widened(value: Expr, lanes: int) -> Expr:
    """Return a value in all lanes: what lies on an axis of one element is loaded as a scalar."""
    return value if value.lanes == lanes else Splat(value, lanes)

"""The loop form of tree ensembles: rows in parallel, trees in vectors.

A lane walks a tree of its own, from record to record by gathered loads, until no lane moves any
more.  So the paths of many trees are under way at once, for a single row as well: several vectors
of them, for a step mostly waits for memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from alpenglow.extras.ml.tree import TreeEnsemble, neutral
from alpenglow.kernel.expr import Bitcast, Const, Expr, Load, Reduce, Splat
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source, push
from alpenglow.loops.rows import accumulators, block, combine, combined, width

COMBINE = {"sum": "add", "min": "min", "max": "max"}

CHAINS = 2
"""How many vectors of trees are walked at once."""

IN_LANES = 8
"""Up to so many targets are combined in registers."""

Leaves = Callable[[Expr, Coord], None]
"""Emits what becomes of the leaves that neighbouring trees lead to: (numbers, trees)."""


@push(TreeEnsemble)
def tree_ensemble(k: Loops, op: TreeEnsemble, ins: list[Source | None], outs: list[Sink]) -> None:
    x, _, _, weight, *others = ins
    first = others[0] if others else None
    assert x is not None and weight is not None
    lanes = width(k, op.trees)
    if x.shape[0] == 0:
        return
    with k.parallel(x.shape[:1]) as (row,):
        if op.targets <= IN_LANES and first is None:
            few_targets(k, op, ins, outs[0], row, lanes)
        else:
            many_targets(k, op, ins, outs[0], row, lanes, first)


def few_targets(
    k: Loops, op: TreeEnsemble, ins: list[Source | None], out: Sink, row: Coord, lanes: int
) -> None:
    """Combine the one weight of each leaf in registers, a tree a lane and a register a target."""
    target, weight = ins[2], ins[3]
    assert target is not None and weight is not None
    name, start = COMBINE[op.aggregate], neutral(op.aggregate)
    totals = accumulators(k, start, weight.type.dtype, lanes, op.targets)

    def add(leaf: Expr, trees: Coord) -> None:
        at = k.limited(leaf, weight.shape[0])
        value = k.b.let(widened(weight([at]), lanes))
        none = Const(start, value.dtype, lanes)
        if k.mask is not None:
            value = k.b.let(k.select(k.mask, value, none))
        if op.targets == 1:
            k.b.set(totals[0], combine(k, name, totals[0], value))
            return
        of = k.b.let(widened(k.limited(target([at]), op.targets).expr(), lanes))
        for t, total in enumerate(totals):
            k.b.set(total, combine(k, name, total, k.select(k.m.eq(of, t), value, none)))

    each_block(k, op, ins, row, lanes, add)
    for t, total in enumerate(totals):
        out.store([row, t], named(k, op, combined(k, name, [total])))


def many_targets(
    k: Loops,
    op: TreeEnsemble,
    ins: list[Source | None],
    out: Sink,
    row: Coord,
    lanes: int,
    first: Source | None,
) -> None:
    """Find the leaves in vectors and add their entries one by one to the row of the result."""
    target, weight = ins[2], ins[3]
    assert target is not None and weight is not None
    entries = weight.shape[0]
    start = k.constant(neutral(op.aggregate), weight.type.dtype)
    leaves = k.b.array("i64", lanes)
    with k.loop(op.targets) as t:
        out.store([row, t], start)

    def add(leaf: Expr, ramp: Coord) -> None:
        k.b.store(leaves, 0, leaf)
        count = k.b.let(k.m.minimum(k.m.sub(Const(op.trees), ramp.base), lanes))
        with k.vector(1), k.b.loop(count) as lane:
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
    k: Loops, op: TreeEnsemble, ins: list[Source | None], row: Coord, lanes: int, body: Leaves
) -> None:
    """Run `body` on the leaves that `lanes` neighbouring trees lead to, for all trees."""
    together = CHAINS * lanes
    full, rest = divmod(op.trees, together)
    if full:
        with k.b.loop(full) as turn:
            starts = [turn * together + c * lanes for c in range(CHAINS)]
            blocks(k, op, ins, row, starts, lanes, False, body)
    if rest:
        begins: list[Expr] = [Const(b) for b in range(full * together, op.trees, lanes)]
        blocks(k, op, ins, row, begins, lanes, bool(rest % lanes), body)


def blocks(
    k: Loops,
    op: TreeEnsemble,
    ins: list[Source | None],
    row: Coord,
    begins: list[Expr],
    lanes: int,
    ragged: bool,
    body: Leaves,
) -> None:
    """Walk the trees from each of `begins` on, all at once; the last are fewer if `ragged`."""
    leaves = walked(k, op, ins, row, begins, lanes)
    for begin, leaf in zip(begins, leaves, strict=True):
        limit = op.trees if ragged and begin is begins[-1] else None
        block(k, begin, lanes, limit, partial(body, leaf))


def walked(
    k: Loops, op: TreeEnsemble, ins: list[Source | None], row: Coord, begins: list[Expr], lanes: int
) -> list[Expr]:
    """Return the leaves that the row reaches from `lanes` roots from each of `begins` on."""
    x, nodes = ins[0], ins[1]
    assert x is not None and nodes is not None
    ramps = [Coord(begin, 1, lanes) for begin in begins]
    # Where there are fewer roots than lanes, any record will do.
    roots = [k.b.let(k.inside(ramp.expr(), nodes.shape[0])) for ramp in ramps]
    at = [k.b.var(root) for root in roots]
    words = [k.b.var(widened(nodes([coord(root), 1]), lanes)) for root in roots]
    if op.depth:
        steps, going = k.b.var(Const(0)), k.b.var(Const(True, "bool"))
        with k.b.repeat_while(going):
            moved: Expr | None = None
            for node, word in zip(at, words, strict=True):
                after = k.b.let(following(k, x, nodes, row, node, word))
                change = k.m.ne(after, node)
                moved = change if moved is None else k.m.bit_or(moved, change)
                k.b.set(node, after)
                k.b.set(word, widened(nodes([coord(after), 1]), lanes))
            assert moved is not None
            some = moved if lanes == 1 else Reduce("or", moved)
            k.b.set(steps, k.m.add(steps, 1))
            k.b.set(going, k.m.bit_and(some, k.m.lt(steps, op.depth)))
    return [k.b.let(number(k, word)) for word in words]


def following(k: Loops, x: Source, nodes: Source, row: Coord, node: Expr, word: Expr) -> Expr:
    """Return the records to which the row goes on from those at `node`, whose words are known."""
    lanes = node.lanes
    # Once more, since no proof follows what a register holds from one turn to the next.
    bits = widened(nodes([coord(k.inside(node, nodes.shape[0])), 0]), lanes)
    dtype = x.type.dtype
    threshold = Bitcast(bits if dtype == "f64" else k.m.cast(bits, "i32"), dtype)
    value = k.b.let(widened(x([row, coord(k.inside(number(k, word), x.shape[1]))]), lanes))
    nan = k.m.ne(k.m.bit_and(word, 1 << 32), 0)
    yes = k.m.bit_or(k.m.le(value, threshold), k.m.bit_and(k.m.isnan(value), nan))
    child = k.m.add(k.m.bit_and(word, (1 << 32) - 1), k.m.cast(yes, "i64"))
    return k.inside(child, nodes.shape[0])


def number(k: Loops, word: Expr) -> Expr:
    """Return the number of a feature, or of a leaf."""
    return k.m.cast(k.m.shift_right(k.m.cast(word, "u64"), 33), "i64")


def named(k: Loops, op: TreeEnsemble, value: Expr) -> Expr:
    """Return a combined value, with 0 for what no leaf has named."""
    if op.aggregate == "sum":
        return value
    none = k.constant(neutral(op.aggregate), value.dtype)
    return k.select(k.m.eq(value, none), k.constant(0, value.dtype), value)


def widened(value: Expr, lanes: int) -> Expr:
    """Return a value in all lanes: what lies on an axis of one element is loaded as a scalar."""
    return value if value.lanes == lanes else Splat(value, lanes)

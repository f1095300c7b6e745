"""Gradients of control flow: of loops whose count is known, and of branches.

The gradient of a loop is a loop over the same iterations in the opposite order.  It carries the
gradients of the carried values and stacks the gradients of scanned rows.  Each iteration recomputes
the body from the values that were carried into it and from its products, which the forward loop
stacks for this.  The gradient of a captured value is a sum over all iterations: for weights it is
one product of stacked rows after the loop (`autodiff/totals.py`), any other is added up in the
loop.
The gradient of a branch is a branch on the same condition, which recomputes the region that ran.
The results are loops and branches, so they have gradients as well.

An input of a region has a gradient if floats lead from a wanted operand to it, and from it to a
result that has one; in a loop both ways may take several iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from alpenglow.autodiff.totals import total_of
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Op
from alpenglow.ir.region import inlined
from alpenglow.ir.text import unique
from alpenglow.ir.types import COMPLEX, FLOATS, HALVES, TensorType
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.algebra import plus
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.reduction.reduction import as_type, filled
from alpenglow.ops.tensor.movement import Broadcast

Grads = list[Value | None]

Seeds = Sequence[tuple[Value, Value | None]]

Sweep = Callable[[Graph, Sequence[Node], Seeds, Sequence[Value | None]], Grads]
"""A function that appends the gradients of values, from the gradients of results of nodes."""


def pull_back(sweep: Sweep, g: Graph, node: Node, dys: Grads, wanted: Sequence[bool]) -> Grads:
    """Return the gradients of the `wanted` operands of a loop or branch, from `dys` of its results.

    Raises UnsupportedError for a loop whose count is not known.
    """
    match node.op:
        case Scan():
            return _scan(sweep, g, node, dys, wanted)
        case If():
            return _branch(sweep, g, node, dys, wanted)
        case While():
            raise UnsupportedError(
                "gradient: operator while is not supported: the number of its iterations depends "
                "on data",
                node=node.results[0].name,
                hint="Scan, a loop whose count is known before it runs",
            )
    raise UnsupportedError(
        f"gradient: operator {node.op.name} is not supported", node=node.results[0].name
    )


@dataclass(frozen=True, slots=True)
class _Back:
    """The region of a gradient: it recomputes a forward region, then goes back through it."""

    region: Graph
    xs: list[Value]
    """Inputs that replace the inputs of the forward region."""
    dys: dict[int, Value]
    """Inputs that are gradients of outputs of the forward region, by the number of the output."""
    dxs: Grads
    """The gradients of xs."""
    products: dict[Value, Value]
    """Results of products in the forward region, each with what recomputes it."""


def _back(sweep: Sweep, body: Graph, wanted: Sequence[bool], given: Sequence[int]) -> _Back:
    """Return the gradients of `wanted` inputs of a region, from the gradients of outputs."""
    b = Graph(body.name)
    xs = [b.input(f"x{i}", v.type) for i, v in enumerate(body.inputs.values())]
    made = inlined(b, body, xs)
    products = _products(body, b)
    dys = {i: b.input(f"dy{i}", made[i].type) for i in given}
    seeds = [(made[i], dy) for i, dy in dys.items()]
    known = [x if wants else None for x, wants in zip(xs, wanted, strict=True)]
    return _Back(b, xs, dys, sweep(b, list(b.nodes), seeds, known), products)


def _products(body: Graph, copy: Graph) -> dict[Value, Value]:
    """Return results of products in a region, each with that in its copy.

    One that is added to something else alone is that sum.
    """
    products = {}
    copies = dict(zip(body.nodes, copy.nodes, strict=True))
    for node in body.nodes:
        if type(node.op).work is Op.work or node.regions or len(node.results) != 1:
            continue
        match list(node.output.users):
            case [Node(Add()) as sum_] if body.users(node.output) == 1:
                node = sum_
        products[node.output] = copies[node].output
    return products


def _branch(sweep: Sweep, g: Graph, node: Node, dys: Grads, wanted: Sequence[bool]) -> Grads:
    """Append the branch that goes back through the region that ran."""
    condition, *xs = node.inputs
    given = {i: dy for i, dy in enumerate(dys) if dy is not None}
    ways = [_back(sweep, body, wanted[1:], list(given)) for body in node.regions]
    owners = [i for i in range(len(xs)) if any(way.dxs[i] is not None for way in ways)]
    if not owners:
        return [None] * len(node.inputs)
    for way in ways:
        for i in owners:
            way.region.output(f"dx{i}", _or_zeros(way.region, way.dxs[i], way.xs[i]))
        way.region.prune()
    outside = [*xs, *given.values()]
    inside = [[*way.xs, *way.dys.values()] for way in ways]
    read = [
        i for i in range(len(outside))
        if any(way.region.users(vs[i]) for way, vs in zip(ways, inside, strict=True))
    ]  # fmt: skip
    for way, vs in zip(ways, inside, strict=True):
        way.region.inputs = {vs[i].name: vs[i] for i in read}
    operands = [condition, *(outside[i] for i in read)]
    results = g.add(If(), operands, [way.region for way in ways]).results
    dxs = dict(zip(owners, results, strict=True))
    return [None, *(dxs.get(i) for i in range(len(xs)))]


def _scan(sweep: Sweep, g: Graph, node: Node, dys: Grads, wanted: Sequence[bool]) -> Grads:
    """Append the loop that goes back; its region is built first, for that tells what it reads."""
    op, (body,) = node.op, node.regions
    assert isinstance(op, Scan), "the gradient of a loop"
    moving, useful = _reach(op, body, dys, wanted)
    if not useful:
        return [None] * len(node.inputs)
    way = _back(sweep, body, [False, *moving], useful)
    b, (turn, *xs) = way.region, way.xs
    carried, scanned, captured = op.split(range(len(xs)))
    totals = {
        i: total for i in captured if (dx := way.dxs[i + 1]) and (total := total_of(dx))
    }
    state = _carried(g, node, dys, way, carried)
    state |= _sums(g, way, [i for i in captured if i not in totals])
    stacked = {f"dx{i}": dx for i in scanned if (dx := way.dxs[i + 1]) is not None}
    for name, dx in stacked.items():
        b.output(name, dx)
    summed = dict.fromkeys(v for total in totals.values() for v in total.rows)
    for v in summed:
        b.output(unique("row", dict.fromkeys(b.outputs, 2)), v)
    b.prune()
    kept = _read_products(way)

    before = list(body.inputs.values())
    read = [i for i, x in enumerate(xs) if b.users(x)]
    inputs = {before[i + 1]: xs[i] for i in read if i in carried} | kept
    stacks = _stacks(g, node, list(inputs))
    around = dict(enumerate(node.inputs))
    rows: list[tuple[Value, Value | None]] = [(v, stacks[old]) for old, v in inputs.items()]
    rows += [(xs[i], around[i]) for i in read if i in scanned]
    rows += [(dy, dys[i]) for i, dy in way.dys.items() if i not in carried]
    outside = {v: stack for v, stack in rows if stack is not None}
    outside |= {way.products[old]: stacks[old] for old in kept}
    for name, v in list(b.outputs.items())[len(state) + len(stacked) :]:
        if v in outside or v in stacked.values():
            del b.outputs[name]  # it is stacked already
    pairs = [*state.values(), *rows, *((xs[i], around[i]) for i in read if i in captured)]
    b.inputs = {x.name: x for x in (turn, *(x for x, _ in pairs))}
    back = Scan(op.count, len(state), len(rows), not op.reverse)
    made = list(b.outputs.values())
    results = g.add(back, [v for _, v in pairs], [b]).results
    outside |= {v: results[i] for i, v in enumerate(made) if i >= len(state)}
    dxs: dict[int, Value] = dict(zip(state, results, strict=False))
    dxs |= {i: outside[dx] for i in scanned if (dx := way.dxs[i + 1]) is not None}
    dxs |= {i: total.build(g, outside) for i, total in totals.items()}
    return [
        as_type(g, dxs[i], x.type.dtype) if i in dxs and x is not None else None
        for i, x in enumerate(node.inputs)
    ]


def _read_products(way: _Back) -> dict[Value, Value]:
    """Read products of the forward region in place of computing them; return the inputs that they
    are read from, by the value of the forward region."""
    b, kept = way.region, dict[Value, Value]()
    for old, new in way.products.items():
        if b.users(new):
            kept[old] = b.input(f"product{len(kept)}", new.type)
            b.replace(new, kept[old])
    b.prune()
    return {old: v for old, v in kept.items() if b.users(v)}


def _reach(
    op: Scan, body: Graph, dys: Grads, wanted: Sequence[bool]
) -> tuple[list[bool], list[int]]:
    """Return which operands of a loop have a gradient in its body, and which of its outputs."""
    _, *inputs = body.inputs.values()
    reads, carried = _sources(body), range(op.carried_count)
    moving = {v for v, wants in zip(inputs, wanted, strict=True) if wants}
    while more := {inputs[i] for i in carried if reads[i] & moving} - moving:
        moving |= more
    # Without iterations, the last carried values are the first ones.
    useful = {
        i for i, dy in enumerate(dys)
        if dy is not None and (reads[i] & moving or (i in carried and inputs[i] in moving))
    }  # fmt: skip
    while more_outputs := {
        i for i in carried if inputs[i] in moving and any(inputs[i] in reads[k] for k in useful)
    } - useful:
        useful |= more_outputs
    return [v in moving for v in inputs], sorted(useful)


def _sources(body: Graph) -> list[frozenset[Value]]:
    """Return the inputs that lead to each output through floats and complex numbers alone."""
    known = {v: frozenset([v]) for v in body.inputs.values() if _has_gradient(v)}
    for node in body.nodes:
        reads = frozenset(x for v in node.inputs if v in known for x in known[v])
        known |= {v: reads for v in node.results if reads and _has_gradient(v)}
    return [known.get(v, frozenset()) for v in body.outputs.values()]


def _has_gradient(v: Value) -> bool:
    return v.type.dtype in FLOATS | COMPLEX


Pairs = dict[int, tuple[Value, Value | None]]
"""Inputs of the backward loop's region and its operands, by the operand of the forward loop."""


def _carried(g: Graph, node: Node, dys: Grads, way: _Back, carried: Sequence[int]) -> Pairs:
    """Make each iteration return the gradients of carried values; the results' come first."""
    pairs: Pairs = {}
    for i in carried:
        if i in way.dys:
            way.region.output(f"dx{i}", _or_zeros(way.region, way.dxs[i + 1], way.dys[i]))
            pairs[i] = way.dys[i], _or_zeros(g, dys[i], node.results[i])
    return pairs


def _sums(g: Graph, way: _Back, captured: Sequence[int]) -> Pairs:
    """Make each iteration add the gradients of captured values to sums, in f32 at least."""
    b, pairs = way.region, Pairs()
    for i in captured:
        dx = way.dxs[i + 1]
        if dx is not None:
            wide = "f32" if dx.type.dtype in HALVES else dx.type.dtype
            total = b.input(f"sum{i}", dx.type.with_dtype(wide))
            b.output(f"dx{i}", plus(b, total, as_type(b, dx, wide)))
            pairs[i] = total, _zeros(g, total.type)
    return pairs


def _stacks(g: Graph, node: Node, values: Sequence[Value]) -> dict[Value, Value]:
    """Return the stacks of values of a loop's region, one row an iteration.

    The loop is appended once more, to return those that it does not return yet; the pass `control`
    then removes it as it was.
    """
    op, (body,) = node.op, node.regions
    assert isinstance(op, Scan), "a loop with a count"
    copies = dict[Value, Value]()
    more = body.copy()
    for old, new in zip(body.inputs.values(), more.inputs.values(), strict=True):
        copies[old] = new
    for old_node, new_node in zip(body.nodes, more.nodes, strict=True):
        copies.update(zip(old_node.results, new_node.results, strict=True))
    rows = list(body.outputs.values())[op.carried_count :]
    taken = dict.fromkeys(more.outputs, 2)
    for v in values:
        if v not in rows:
            rows.append(v)
            more.output(unique("row", taken), copies[v])
    if len(more.outputs) > len(body.outputs):
        node = g.add(op, node.inputs, [more])
    stacks = node.results[op.carried_count :]
    return {v: stacks[rows.index(v)] for v in values}


def _or_zeros(b: Graph, dx: Value | None, like: Value) -> Value:
    return filled(b, 0, like) if dx is None else dx


def _zeros(b: Graph, t: TensorType) -> Value:
    return b(Broadcast(t.shape), b.constant(np.zeros((), t.numpy)))

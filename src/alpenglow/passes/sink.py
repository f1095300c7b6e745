"""Sinking: transposes, and reshapes about axes of extent 1, move down past what does not mind.

Exporters from other layouts wrap each operator in a pair of transposes.  Moved downwards the
second of one pair meets the first of the next, and simplification cancels them; what is left
stands at the outputs.  A rule applies only if it does not increase the number of transposes: one
operand at least is moved for this node alone, and the others carry the same transpose or are
constants, which folding transposes.
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.reduction.reduction import Norm, Reduction
from alpenglow.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.passes.constants import is_constant
from alpenglow.passes.rearrange import reshape_reshape, transpose_transpose

Perm = tuple[int, ...]

rules = Rules()
# Those that meet on the way down go on as one, or each of many would go the whole way.
rules.on(Transpose)(transpose_transpose)
rules.on(Reshape)(reshape_reshape)


def sink(g: Graph) -> Graph:
    """Move transposes and reshapes down as far as they go."""
    return rules.exhaust(g)


@rules.on(Elementwise, Relu)
def past_elementwise(g: Graph, node: Node) -> Rewritten:
    """f(transpose(a, p), transpose(b, p)) => transpose(f(a, b), p)"""
    perm = _shared_perm(g, node)
    if perm is None:
        return None
    return g(Transpose(perm), g(node.op, *[_untransposed(g, v, perm) for v in node.inputs]))


@rules.on(Elementwise)
def past_several(g: Graph, node: Node) -> Rewritten:
    """mul(t, sigmoid(t)) with t = transpose(x, p) => transpose(mul(x, sigmoid(x)), p)

    So for all nodes that lead from transposes to one of them, if no others read these."""
    if len(node.results) > 1:
        return None
    inside = _leading_to(g, node)
    read = [v for n in inside for v in n.inputs]
    leaves = dict.fromkeys(v for v in read if v is None or v.producer not in inside)
    perms = [
        v.producer.op.perm for v in leaves
        if v is not None and v.producer is not None and isinstance(v.producer.op, Transpose)
        and len(v.users) > 1 and inside.issuperset(v.users) and not _is_output(g, v)
    ]  # fmt: skip
    if not perms or not all(v is not None and _follows(v, perms[0]) for v in leaves):
        return None
    made = {v: _untransposed(g, v, perms[0]) for v in leaves}

    def of(v: Value | None) -> Value:
        if v not in made:
            assert v is not None and v.producer is not None, "leaves have been made"
            made[v] = g(v.producer.op, *map(of, v.producer.inputs))
        return made[v]

    return g(Transpose(perms[0]), of(node.output))


@rules.on(Concat)
def past_concat(g: Graph, node: Node) -> Rewritten:
    """concat(transpose(a, p), transpose(b, p), axis) => transpose(concat(a, b, p[axis]), p)"""
    perm = _shared_perm(g, node)
    if perm is None or not isinstance(node.op, Concat):
        return None
    parts = [_untransposed(g, v, perm) for v in node.inputs]
    return g(Transpose(perm), g(Concat(perm[node.op.axis]), *parts))


@rules.on(Reduction, Norm)
def past_reduction(g: Graph, node: Node) -> Rewritten:
    """reduce(transpose(x, p), axes) => transpose(reduce(x, p[axes]), what p does to the rest)"""
    source = _transposed(g, node)
    if source is None or not isinstance(node.op, Reduction | Norm):
        return None
    x, perm = source
    axes = node.op.axes
    reduced = g(replace(node.op, axes=tuple(sorted(perm[a] for a in axes))), x)
    if node.op.keepdims:
        return g(Transpose(perm), reduced)
    kept = [perm[i] for i in range(len(perm)) if i not in axes]
    return g(Transpose(tuple(sorted(kept).index(p) for p in kept)), reduced)


@rules.on(Softmax, LogSoftmax, Hardmax)
def past_softmax(g: Graph, node: Node) -> Rewritten:
    """softmax(transpose(x, p), axis) => transpose(softmax(x, p[axis]), p)"""
    source = _transposed(g, node)
    if source is None or not isinstance(node.op, Softmax | LogSoftmax | Hardmax):
        return None
    x, perm = source
    return g(Transpose(perm), g(type(node.op)(perm[node.op.axis]), x))


@rules.on(Pad)
def past_pad(g: Graph, node: Node) -> Rewritten:
    """pad(transpose(x, p), before, after) => transpose(pad(x, before[1/p], after[1/p]), p)"""
    source = _transposed(g, node)
    if source is None or not isinstance(node.op, Pad):
        return None
    x, perm = source
    back, op = _inverse(perm), node.op
    before = tuple(op.before[i] for i in back)
    after = tuple(op.after[i] for i in back)
    return g(Transpose(perm), g(Pad(before, after, op.mode, op.value), x))


@rules.on(Slice)
def past_slice(g: Graph, node: Node) -> Rewritten:
    """slice(transpose(x, p), starts) => transpose(slice(x, starts[1/p]), p)"""
    source = _transposed(g, node)
    if source is None or not isinstance(node.op, Slice):
        return None
    x, perm = source
    back, op = _inverse(perm), node.op
    starts = tuple(op.starts[i] for i in back)
    sizes = tuple(op.sizes[i] for i in back)
    steps = tuple(op.steps[i] for i in back)
    return g(Transpose(perm), g(Slice(starts, sizes, steps), x))


@rules.on(Elementwise, Relu)
def reshape_past_elementwise(g: Graph, node: Node) -> Rewritten:
    """f(reshape(a, s), reshape(b, s)) => reshape(f(a, b), s)   where s differs by extents of 1"""
    shape = _shared_shape(g, node)
    if shape is None:
        return None
    inner = g(node.op, *[_reshaped_back(g, v, shape) for v in node.inputs])
    return g(Reshape(node.output.type.shape), inner)


@rules.on(Pad)
def reshape_past_pad(g: Graph, node: Node) -> Rewritten:
    """pad(reshape(x, s), before, after) => reshape(pad(x))   where s differs by extents of 1"""
    match node:
        case Node(Pad() as op, [Value() as v]) if _only_for(g, v, node):
            x = _before_reshape(v)
            padded = {i for i, n in enumerate(zip(op.before, op.after, strict=True)) if any(n)}
            if x is None or any(v.type.shape[i] == 1 for i in padded):
                return None
            before = _moved(op.before, v.type.shape, x.type.shape)
            after = _moved(op.after, v.type.shape, x.type.shape)
            inner = g(Pad(before, after, op.mode, op.value), x)
            return g(Reshape(node.output.type.shape), inner)
    return None


SEVERAL = 8
"""So many nodes at most lead to one that a transpose moves past together with them."""


def _leading_to(g: Graph, node: Node) -> set[Node]:
    """Return a node and elementwise ones before it that are read by none but each other."""
    inside, waiting = {node}, list(node.inputs)
    while waiting and len(inside) < SEVERAL:
        v = waiting.pop()
        n = None if v is None else v.producer
        if v is None or n is None or n in inside or not isinstance(n.op, Elementwise | Relu):
            continue
        if len(n.results) == 1 and inside.issuperset(v.users) and not _is_output(g, v):
            inside.add(n)
            waiting += n.inputs
    return inside


def _transposed(g: Graph, node: Node) -> tuple[Value, Perm] | None:
    """Return x and p if the only operand of a node is transpose(x, p), read nowhere else."""
    match node.inputs:
        case [Value(Node(Transpose(perm=perm), [Value() as x])) as v] if _only_for(g, v, node):
            return x, perm
    return None


def _shared_perm(g: Graph, node: Node) -> Perm | None:
    """Return the one permutation that all operands which are not constant carry."""
    own = [
        v.producer.op.perm for v in node.inputs
        if v is not None and v.producer is not None and isinstance(v.producer.op, Transpose)
        and _only_for(g, v, node) and not is_constant(v)
    ]  # fmt: skip
    if not own or not all(v is not None and _follows(v, own[0]) for v in node.inputs):
        return None
    return own[0]


def _follows(v: Value, perm: Perm) -> bool:
    """Whether v can be had untransposed without a transpose at run time."""
    if is_constant(v):
        return True
    match v:
        case Value(Node(Transpose(perm=p))):
            return p == perm
        case Value(Node(Broadcast(), [Value() as s])):
            return _free_to_move(_full(s, v), perm)
    return _free_to_move(v.type.shape, perm)


def _free_to_move(shape: tuple[Dim, ...], perm: Perm) -> bool:
    """Whether undoing `perm` on this shape only moves axes of extent 1."""
    moved = [i for i in _inverse(perm) if shape[i] != 1]
    return moved == sorted(moved)


def _untransposed(g: Graph, v: Value | None, perm: Perm) -> Value:
    """Return the value that v, which `_follows`, transposes."""
    assert v is not None
    back = _inverse(perm)
    match v:
        case Value(Node(Transpose(), [Value() as x])):
            return x
        case Value(Node(Broadcast(shape=shape), [Value() as s])):
            full = _full(s, v)
            target = Broadcast(tuple(shape[i] for i in back))
            if all(d == 1 for d in full):
                return g(target, s)
            if _free_to_move(full, perm):
                return g(target, g(Reshape(tuple(full[i] for i in back)), s))
            wide = s if full == s.type.shape else g(Reshape(full), s)
            return g(target, g(Transpose(back), wide))
    if _free_to_move(v.type.shape, perm):
        return g(Reshape(tuple(v.type.shape[i] for i in back)), v)
    return g(Transpose(back), v)


def _shared_shape(g: Graph, node: Node) -> tuple[Dim, ...] | None:
    """Return the shape that all operands had before a reshape that only moved extents of 1."""
    own = [
        x.type.shape for x, v in ((_before_reshape(v), v) for v in node.inputs)
        if x is not None and v is not None and _only_for(g, v, node) and not is_constant(v)
    ]  # fmt: skip
    if not own:
        return None
    for v in node.inputs:
        x = _before_reshape(v)
        if x is not None and x.type.shape == own[0]:
            continue
        if v is None or not (is_constant(v) or _stretches_one(v)):
            return None
    return own[0]


def _before_reshape(v: Value | None) -> Value | None:
    match v:
        case Value(Node(Reshape(shape=shape), [Value() as x])) if x.type.is_plain:
            return x if _wide(shape) == _wide(x.type.shape) else None
    return None


def _stretches_one(v: Value) -> bool:
    match v:
        case Value(Node(Broadcast(), [Value() as s])):
            return all(d == 1 for d in s.type.shape)
    return False


def _reshaped_back(g: Graph, v: Value | None, shape: tuple[Dim, ...]) -> Value:
    """Return v, an operand of a node with `_shared_shape`, in that shape."""
    assert v is not None
    x = _before_reshape(v)
    if x is not None and x.type.shape == shape:
        return x
    match v:
        case Value(Node(Broadcast(shape=outer), [Value() as s])):
            full = _full(s, v)
            if all(d == 1 for d in full):
                return g(Broadcast(shape), s if s.type.rank <= len(shape) else g(Reshape(()), s))
            extents = iter([d for d, o in zip(full, outer, strict=True) if o != 1])
            small = tuple(1 if d == 1 else next(extents) for d in shape)
            return g(Broadcast(shape), g(Reshape(small), s))
    return g(Reshape(shape), v)


def _moved(
    amounts: tuple[int, ...], shape: tuple[Dim, ...], onto: tuple[Dim, ...]
) -> tuple[int, ...]:
    """Return amounts by axis of `shape` as amounts by axis of `onto`, 0 where its extent is 1."""
    wide = iter([n for n, d in zip(amounts, shape, strict=True) if d != 1])
    return tuple(0 if d == 1 else next(wide) for d in onto)


def _wide(shape: tuple[Dim, ...]) -> list[Dim]:
    return [d for d in shape if d != 1]


def _full(source: Value, v: Value) -> tuple[Dim, ...]:
    """Return the shape of a broadcast's source, with 1 for the axes that v has more."""
    return (1,) * (v.type.rank - source.type.rank) + source.type.shape


def _only_for(g: Graph, v: Value, node: Node) -> bool:
    """Whether `node` alone reads v, be it more than once."""
    return list(v.users) == [node] and not _is_output(g, v)


def _is_output(g: Graph, v: Value) -> bool:
    return any(o is v for o in g.outputs.values())


def _inverse(perm: Perm) -> Perm:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))

"""Batches in parts: where the samples of a batch do not fit into the cache together, few at a time.

A layer that reads and writes more than the cache holds waits for memory, and so does the next one,
which reads what has just been written.  If each runs on a part of the batch and the next follows
with the same part, results are still in the cache when they are read, and the memory for them is
used again for the next part.  The price is that weights are read once for each part: late layers,
which have many weights and little data, keep the whole batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.target import Target
from alpenglow.machines.vector.operators.layout import Pack, Unpack
from alpenglow.machines.vector.operators.winograd import WinogradInput, WinogradOutput
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose

READS = 2
"""How many bytes of weights may be read again for each byte of samples: they come in one piece, and
are asked for ahead."""

MOST_PARTS = 16
"""Each part has nodes of its own, so that compiling takes longer."""

TRANSFORMS = (Pack, Unpack, WinogradInput, WinogradOutput)
"""Operators that go on with a batch that is split, but do not begin to split one."""


def split_batches(g: Graph, target: Target) -> Graph:
    """Run layers with much data and few weights on parts of the batch, if there are caches."""
    cache = target.facts.cache
    axes = _sample_axes(g) if cache else {}
    batches = {v.type.shape[axis] for v, axis in axes.items()}
    if len(batches) != 1:
        return g
    (batch,) = batches
    assert isinstance(batch, int), "open extents are no batches here"
    chosen = _chosen(g, axes, batch, cache)
    heavy = [n for n in chosen if _decides(n.op)]
    if heavy:
        largest = max(_moved(n, axes) for n in heavy)
        Splitting(g, axes, batch, _part(batch, largest, cache)).run(chosen)
        g.prune()
    return g


def _decides(op: Op) -> bool:
    """Return whether an operator may begin to split a batch; others go on with it."""
    return op.sample_axes is not None and not isinstance(op, TRANSFORMS)


def _chosen(g: Graph, axes: dict[Value, int], batch: int, cache: int) -> list[Node]:
    """Return the nodes to split, in order: those for which it pays, and what hangs on them."""
    chosen: dict[Node, None] = {}
    place = {node: i for i, node in enumerate(g.nodes)}
    for node in g.nodes:
        if len(node.results) != 1 or node.output not in axes:
            continue
        decides = node
        if isinstance(node.op, WinogradInput):
            decides = next(iter(node.output.users), node)
        if _decides(decides.op):
            pays = _pays(decides, axes, batch, cache)
        else:
            # What is elementwise will be fused with what was computed last.
            makers = [v.producer for v in _operands(node) if v in axes]
            last = max((m for m in makers if m is not None), key=place.__getitem__, default=None)
            pays = last in chosen
        if pays:
            chosen[node] = None
    return _chained(list(chosen))


def _chained(nodes: list[Node]) -> list[Node]:
    """Return the nodes of chains, in which one reads from the cache what another made.

    Elementwise operators run with what is before them, and a reshape does not run.
    """
    chains: dict[Node, list[Node]] = {}
    for node in nodes:
        joined = [node]
        makers = (v.producer for v in _operands(node))
        before = {id(c): c for m in makers if m is not None and (c := chains.get(m))}
        joined = [n for chain in (*before.values(), joined) for n in chain]
        chains.update(dict.fromkeys(joined, joined))
    steps = {id(c): sum(not isinstance(n.op, Elementwise | Reshape) for n in c)
             for c in chains.values()}  # fmt: skip
    return [n for n in nodes if steps[id(chains[n])] > 1]


def _part(batch: int, nbytes: int, cache: int) -> int:
    """Return how many samples of a batch run together, where all of them move `nbytes`."""
    even = [n for n in range(1, batch + 1) if batch % n == 0 and batch // n <= MOST_PARTS]
    return max((n for n in even if n * nbytes <= cache * batch), default=even[0])


def _pays(node: Node, axes: dict[Value, int], batch: int, cache: int) -> bool:
    """Whether a node moves so much data that reading its weights again is little beside it."""
    moved = _moved(node, axes)
    weights = sum(v.type.nbytes for v in _operands(node) if v not in axes)
    return moved > cache and moved * READS > weights * (batch - 1)


def _moved(node: Node, axes: dict[Value, int]) -> int:
    """Return how many bytes of samples a node reads and writes."""
    return sum(v.type.nbytes for v in (*_operands(node), *node.results) if v in axes)


def _operands(node: Node) -> list[Value]:
    return [v for v in node.inputs if v is not None]


def _sample_axes(g: Graph) -> dict[Value, int]:
    """Return the axis of samples of each value that depends on samples one by one.

    Empty if an input's first extent is open or 1, or if inputs have several.
    """
    axes: dict[Value, int] = {}
    batches = {v.type.shape[0] if v.type.rank else 1 for v in g.inputs.values()}
    batch = batches.pop() if len(batches) == 1 else 1
    if not isinstance(batch, int) or batch == 1:
        return axes
    axes |= dict.fromkeys(g.inputs.values(), 0)
    for node in g.nodes:
        if len(node.results) == 1 and node.output.type.static:
            axis = _axis(node, axes, batch)
            if axis is not None:
                axes[node.output] = axis
    return axes


def _axis(node: Node, axes: dict[Value, int], batch: int) -> int | None:
    """Return the axis of samples of a node's result; None if it has none that we know of."""
    operands = _operands(node)
    operand_axes = {axes[v] for v in operands if v in axes}
    if len(operand_axes) != 1 or _narrowed(node.op, node, axes, batch, 1) is None:
        return None
    (axis,) = operand_axes
    return axis if node.op.sample_axes is None else node.op.sample_axes[1]


def _narrowed(op: Op, node: Node, axes: dict[Value, int], batch: int, part: int) -> Op | None:
    """Return the operator for a part of the batch; None if samples do not stay apart."""
    operands = _operands(node)
    apart = [v in axes for v in operands]
    t = node.output.type
    match op:
        case Elementwise():
            same = all((v.type.shape == t.shape and axes.get(v) == 0) or _stretched(v, batch)
                       for v in operands)  # fmt: skip
            return op if same and any(apart) else None
        case Reshape(shape=(first, *rest)):
            kept = first == batch and operands[0].type.shape[0] == batch
            return Reshape((part, *rest)) if kept else None
        case Transpose(perm=(0, *_)):
            return op
        case Slice(starts=(0, *_), sizes=(first, *sizes), steps=(1, *_)):
            return replace(op, sizes=(part, *sizes)) if first == batch else None
        case Pad(before=(0, *_), after=(0, *_)):
            return op
        case Concat(axis=axis):
            return op if axis % t.rank != 0 and all(apart) else None
        case _ if op.sample_axes is not None:
            own = apart[0] and axes[operands[0]] == op.sample_axes[0]
            return op if own and not any(apart[1:]) else None
    return None


def _stretched(v: Value, batch: int) -> bool:
    """Whether a value repeats the same numbers for every sample."""
    match v:
        case Value(Node(Broadcast(shape=(first, *_)), [Value() as x])):
            fits = x.type.rank < v.type.rank or x.type.shape[0] == 1
            return first == batch and fits
    return False


class Splitting:
    """A graph in which nodes are being replaced by one for each part of the batch."""

    def __init__(self, g: Graph, axes: dict[Value, int], batch: int, part: int) -> None:
        self.g, self.axes, self.batch, self.part = g, axes, batch, part
        self.parts: dict[Value, list[Value]] = {}

    def run(self, nodes: Iterable[Node]) -> None:
        """Replace the nodes.  Parts meet again where somebody else reads them."""
        split = list(nodes)
        chosen = set(split)
        for node in split:
            self.parts[node.output] = [self._copy(node, i) for i in range(self.batch // self.part)]
        for node in split:
            y = node.output
            if any(user not in chosen for user in y.users) or y in self.g.outputs.values():
                whole = self.g(Concat(self.axes[y]), *self.parts[y])
                whole.name = y.name
                self.g.replace(y, whole)

    def _copy(self, node: Node, i: int) -> Value:
        """Return the result of a node for part `i` of the batch."""
        op = _narrowed(node.op, node, self.axes, self.batch, self.part)
        assert op is not None, f"{node} is not done by parts"
        y = self.g(op, *[None if v is None else self._operand(v, i) for v in node.inputs])
        y.name = node.output.name
        return y

    def _operand(self, v: Value, i: int) -> Value:
        """Return part `i` of an operand, or all of one that has no parts."""
        if v not in self.axes:
            return self._restretched(v)
        if v not in self.parts:
            axis = self.axes[v]
            starts = [0] * v.type.rank
            sizes = list(v.type.extents)
            sizes[axis] = self.part
            slices = []
            for k in range(self.batch // self.part):
                starts[axis] = k * self.part
                window = Slice(tuple(starts), tuple(sizes), (1,) * v.type.rank)
                slices.append(self.g(window, v))
            self.parts[v] = slices
        return self.parts[v][i]

    def _restretched(self, v: Value) -> Value:
        """Return what is stretched over the batch stretched over a part of it."""
        match v:
            case Value(Node(Broadcast(shape=(_, *rest)) as op, [Value() as x])) if _stretched(
                v, self.batch
            ):
                return self.g(replace(op, shape=(self.part, *rest)), x)
        return v

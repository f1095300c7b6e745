"""Fusion: elementwise operators join the instruction that makes what they read.

An operator with a compiled form takes along the elementwise operators that follow it and are the
only ones to read it; what else these read becomes an operand.  Elementwise operators without such
a producer join each other.  A fused node holds its parts in order, and means just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ops.copy import Fill
from alpenglow.ops.fused import Fused
from alpenglow.ops.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose

VIEWS = (Broadcast, Concat, Pad, Reshape, Slice, Transpose, Fill)
"""Operators that memory planning turns into addressing: nothing can be fused to them."""

MOST = 64
"""Operators in a fused node, at most: registers run out long before, and every part of a node is
looked at for each that joins it."""


def fuse(g: Graph, takes_epilogue: Callable[[Op], bool]) -> Graph:
    """Gather operators into fused nodes.

    `takes_epilogue` is the backend's word on which operators, other than elementwise ones, can
    compute what follows them on the way out.
    """
    _read_bytes(g)
    group: dict[Node, list[Node]] = {}
    for node in g.nodes:
        if not _fusible(node, takes_epilogue):
            continue
        group[node] = [node]
    # What makes bytes wider goes to its readers, if they take it, so that bytes lie in between.
    for narrow in (True, False):
        for node in group:
            while isinstance(node.op, Elementwise) and _grow(g, node, group, narrow):
                pass
    done: set[int] = set()
    for members in list(group.values()):
        if len(members) > 1 and id(members) not in done:
            done.add(id(members))
            _replace(g, members)
    g.prune()
    return g


def _read_bytes(g: Graph) -> None:
    """Compute what is made of bytes alone anew for each reader: bytes are fewer to read twice."""
    results = set(g.outputs.values())
    for node in reversed(list(g.nodes)):
        if not isinstance(node.op, Elementwise) or node.output in results or not _widens(node):
            continue
        for reader in node.users[1:]:
            _read_instead(reader, node.output, g(node.op, *node.inputs))
    g.prune()


def _widens(node: Node) -> bool:
    """Whether an elementwise node makes wider elements of bytes and numbers."""
    sizes = [v.type.numpy.itemsize for v in node.inputs
             if v is not None and _scalar_constant(v) is None]  # fmt: skip
    return sizes == [1] and node.output.type.numpy.itemsize > 1


def _read_instead(reader: Node, old: Value, new: Value) -> None:
    """Make one reader of `old` read `new`."""
    reader.inputs = tuple(new if v is old else v for v in reader.inputs)
    del old.users[reader]
    new.users[reader] = None


def _fusible(node: Node, takes_epilogue: Callable[[Op], bool]) -> bool:
    if len(node.results) != 1 or isinstance(node.op, VIEWS) or not node.op.pure:
        return False
    return isinstance(node.op, Elementwise) or takes_epilogue(node.op)


def _grow(g: Graph, node: Node, group: dict[Node, list[Node]], narrow: bool) -> bool:
    """Join one group that makes what the group of `node` reads; say whether there was one.

    If `narrow`, what makes bytes wider does not join a heavy part.
    """
    consumers = group[node]
    for member in consumers:
        for v in member.inputs:
            maker = v.producer if v is not None else None
            if maker is None or maker not in group or group[maker] is consumers:
                continue
            if narrow and _widens(member) and _heavy(group[maker]):
                continue
            if _may_join(g, group[maker], consumers, maker):
                merged = group[maker] + consumers
                for each in merged:
                    group[each] = merged
                return True
    return False


def _may_join(g: Graph, producers: list[Node], consumers: list[Node], maker: Node) -> bool:
    """Whether two groups can be one: the producers' only result is read by the consumers alone."""
    if maker is not producers[-1] or len(producers) + len(consumers) > MOST:
        return False
    result = maker.output
    if any(v is result for v in g.outputs.values()):
        return False
    if any(user not in consumers for user in result.users):
        return False
    heavy = _heavy((*producers, *consumers))
    if len(heavy) > 1:
        return False
    # What a heavy part reads is not computed on the way; what only those after it read may be.
    return not (heavy and heavy[0] in consumers and result in heavy[0].inputs)


def _heavy(members: Sequence[Node]) -> list[Node]:
    return [n for n in members if not isinstance(n.op, Elementwise)]


def _replace(g: Graph, members: list[Node]) -> None:
    body = Graph("fused")
    env: dict[Value, Value] = {}
    operands: list[Value] = []
    inside = {n.output for n in members}

    def operand(v: Value) -> Value:
        operands.append(v)
        return body.input(f"x{len(operands) - 1}", v.type)

    # A heavy part reads memory, and be it a number that is there once.
    for v in (v for n in _heavy(members) for v in n.inputs):
        if v is not None and v not in env:
            env[v] = operand(v)
    for node in members:
        for v in node.inputs:
            if v is None or v in env or v in inside:
                continue
            scalar = _scalar_constant(v)
            if scalar is None:
                env[v] = operand(v)
            else:
                env[v] = body(Broadcast(v.type.shape, v.type.blocked), body.constant(scalar))
        given = [None if v is None else env[v] for v in node.inputs]
        env[node.output] = body(node.op, *given, name=node.output.name)
    last = members[-1].output
    body.output("y", env[last])
    fused = g.add(Fused(), operands, [body], last.name)
    g.replace(last, fused.output)


def _scalar_constant(v: Value) -> object | None:
    """Return the contents of a broadcast of a single constant element, as a scalar array."""
    match v:
        case Value(Node(Broadcast(), [Value() as only])) if only.array is not None:
            return only.array.reshape(()) if only.array.size == 1 else None
    return None

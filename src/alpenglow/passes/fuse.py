"""Fusion: elementwise operators join the instruction that makes what they read.

An operator with a compiled form takes along the elementwise operators that follow it and are the
only ones to read it; what else these read becomes an operand.  Elementwise operators without such
a producer join each other; what is quickly made of one value in memory, or of two for two readers,
is made by each reader.  Elementwise operators that read the same and make what variables are
assigned, parameters and what an optimizer remembers of them, are one node of several results.  A
check of indices joins what reads each of them once.  Attention, two products with a softmax
between, is one node where a machine has a kernel for it.  A fused node holds its parts in order,
and means just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import COMPLEX
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, Less
from alpenglow.ops.fused import Fused
from alpenglow.ops.tensor.gather import Gather, GatherElements, GatherNd, ScatterElements, ScatterNd
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.passes.attention import Takes, attentions, positions

MOST = 64
"""Operators in a fused node, at most: registers run out long before, and every part of a node is
looked at for each that joins it."""


FEW = 8
"""Operators of a prologue, at most: a kernel holds them for each of its running totals."""


QUICK = (Abs, Add, Clip, Equal, Greater, Less, Mul, Neg, Sub)
"""Operators that cost next to nothing compared with reading an operand."""

SEVERAL = 4
"""So many readers may compute the same, at most."""


def fuse(
    g: Graph, takes_epilogue: Callable[[Op], bool], takes_prologue: Callable[[Op], bool],
    takes_attention: Takes,
) -> Graph:  # fmt: skip
    """Gather operators into fused nodes.

    `takes_epilogue` is the machine's word on which operators, other than elementwise ones, can
    compute what follows them on the way out, `takes_prologue` what comes before them on the way in,
    and `takes_attention` on which chains it computes at once.
    """
    _read_bytes(g)
    _compute_again(g, takes_epilogue, takes_prologue)
    group: dict[Node, list[Node]] = {}
    chains = [c for c in attentions(g, takes_attention) if len(c) <= MOST]
    shared = {node for chain in chains for node in positions(chain)}
    for node in g.nodes:
        if node not in shared and _fusible(node, takes_epilogue):
            group[node] = [node]
    for chain in chains:
        group.update((node, chain) for node in chain if node in group)
    checks = _checks(g, takes_epilogue)
    for check, reader in checks.items():
        if reader in group:
            group[check] = group[reader] = [check, reader]
    # What makes bytes wider goes to its readers, if they take it, so that bytes lie in between.
    for narrow in (True, False):
        for node in group:
            while isinstance(node.op, Elementwise) and _grow(g, node, group, narrow):
                pass
    for node in g.nodes:
        if not isinstance(node.op, Elementwise) and takes_prologue(node.op):
            group.setdefault(node, [node])
            _take_prologue(g, node, group)
    _join_assigned(g, group)
    done: set[int] = set()
    for members in list(group.values()):
        if len(members) > 1 and id(members) not in done:
            done.add(id(members))
            _replace(g, members)
    for check, reader in checks.items():
        if reader not in group:
            _replace(g, [check, reader])
    g.prune()
    return g


def _checks(g: Graph, takes_epilogue: Callable[[Op], bool]) -> dict[Node, Node]:
    """Return checks of indices that cost least where the indices are read, each with its reader."""
    readers: dict[Node, Node] = {}
    for node in g.nodes:
        if not isinstance(node.op, InRange) or not takes_epilogue(node.op):
            continue
        users = list(node.users)
        if len(users) == g.users(node.output) == 1 and _reads_once(users[0], node.output):
            readers[node] = users[0]
    return readers


def _reads_once(node: Node, indices: Value) -> bool:
    """Whether a node reads each of its indices once."""
    match node:
        case Node(GatherElements() | ScatterElements(), [_, at, *_]):
            return at is indices
        case Node(Gather() | GatherNd() as op, [_, at]):
            moved = node.output.type
        case Node(ScatterNd() as op, [_, at, Value(type=moved)]):
            pass
        case _:
            return False
    if at is not indices or not indices.type.static or not moved.static:
        return False
    depth = 1 if isinstance(op, Gather) else indices.type.extents[-1]
    return moved.size * depth == indices.type.size


def _read_bytes(g: Graph) -> None:
    """Compute what is made of bytes alone anew for each reader: bytes are fewer to read twice."""
    results = set(g.outputs.values())
    for node in reversed(list(g.nodes)):
        if not isinstance(node.op, Elementwise) or node.output in results or not _widens(node):
            continue
        for reader in node.users[1:]:
            _read_instead(reader, node.output, g(node.op, *node.inputs))
    g.prune()


def _compute_again(
    g: Graph, takes_epilogue: Callable[[Op], bool], takes_prologue: Callable[[Op], bool]
) -> None:
    """Compute what is quickly made of one value in memory anew for each reader.

    They read that value in its place, so nothing more is read and one result less is written.
    """
    results = set(g.outputs.values())
    for node in reversed(list(g.nodes)):
        if not isinstance(node.op, QUICK) or node.output in results:
            continue
        if not 1 < len(node.users) <= SEVERAL:
            continue
        made = _quickly_made(g, node, takes_epilogue)
        if not made or not all(_takes(user, node.output, takes_prologue) for user in node.users):
            continue
        for reader in node.users[1:]:
            again: dict[Value | None, Value] = {}
            for each in made:
                again[each.output] = g(each.op, *(again.get(v, v) for v in each.inputs))
            _read_instead(reader, node.output, again[node.output])
    g.prune()


def _quickly_made(g: Graph, node: Node, takes_epilogue: Callable[[Op], bool]) -> list[Node]:
    """Return a node after those before it that are quick and made for it alone, if that is all.

    They read one value in memory, or two if there are two readers, of which each then reads one
    more and none writes one.  Where a node joins what makes its operand, that is not all.
    """
    chain: list[Node] = []
    read: set[Value] = set()
    waiting = [node]
    while waiting:
        at = waiting.pop()
        chain.append(at)
        for v in at.inputs:
            if v is None or _stretched(v):
                continue
            maker = v.producer
            if maker is None or g.users(v) != 1 or not _fusible(maker, takes_epilogue):
                read.add(v)
            elif isinstance(maker.op, QUICK) and len(chain) + len(waiting) < FEW:
                waiting.append(maker)
            else:
                return []
    return chain[::-1] if len(read) == 1 or len(read) == len(node.users) == 2 else []


def _stretched(v: Value) -> bool:
    """Whether a value is a smaller one, read again and again."""
    return v.producer is not None and isinstance(v.producer.op, Broadcast)


def _takes(user: Node, v: Value, takes_prologue: Callable[[Op], bool]) -> bool:
    """Whether a node computes what it reads of a value on the way in."""
    if isinstance(user.op, Elementwise):
        return not user.op.moves
    return takes_prologue(user.op) and list(user.inputs) == [v]


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
    if len(node.results) != 1 or node.op.moves or not node.op.pure:
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
                group.update((each, merged) for each in merged if each in group)
                return True
    return False


def _take_prologue(g: Graph, node: Node, group: dict[Node, list[Node]]) -> None:
    """Join the elementwise operators that make the only operand of `node` for it alone."""
    match node.inputs:
        case [Value(Node() as maker) as x] if maker in group and group[maker] is not group[node]:
            before = group[maker]
        case _:
            return
    if maker is not before[-1] or len(before) > FEW or _heavy(before) or g.users(x) != 1:
        return
    merged = before + group[node]
    if len(merged) <= MOST:
        group.update((each, merged) for each in merged if each in group)


def _join_assigned(g: Graph, group: dict[Node, list[Node]]) -> None:
    """Join elementwise groups that make what variables are assigned, where they read the same.

    They read it once then, and no variable waits for who else reads what it has at entry.
    """
    readers: dict[Value, list[Node]] = {}
    for name, variable in g.variables.items():
        v = variable.assigned
        if v is None or v.producer not in group or v.users or name in g.growing:
            continue
        members = group[v.producer]
        if _heavy(members):
            continue
        read = _read(members)
        others = next((readers[x] for x in read if x in readers), members)
        same = others[-1].output.type.extents == v.type.extents
        if others is not members and same and len(others) + len(members) <= MOST:
            members = others + members
            group.update((each, members) for each in members)
        readers.update((x, members) for x in _read(members))


def _read(members: Sequence[Node]) -> dict[Value, None]:
    """Return the values that a group reads whole from memory, in order."""
    made = {n.output for n in members}
    values = (v for n in members for v in n.inputs if v is not None)
    return {v: None for v in values if v not in made and not _stretched(v)}


def _may_join(g: Graph, producers: list[Node], consumers: list[Node], maker: Node) -> bool:
    """Whether two groups can be one: the producers' only result is read by the consumers alone."""
    if maker is not producers[-1] or len(producers) + len(consumers) > MOST:
        return False
    result = maker.output
    if any(v is result for v in g.outputs.values()):
        return False
    if any(user not in consumers for user in result.users):
        return False
    heavy = _heavy(consumers)
    if heavy and _heavy(producers):
        return False
    # What a heavy part reads is not computed on the way; what only those after it read may be.
    return not any(result in n.inputs for n in heavy)


def _heavy(members: Sequence[Node]) -> list[Node]:
    heavy = [n for n in members if not isinstance(n.op, Elementwise)]
    # A check is heavy only by itself.
    return [n for n in heavy if not isinstance(n.op, InRange)] or heavy


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
        if v is not None and v not in env and v not in inside:
            env[v] = operand(v)
    for node in members:
        for v in node.inputs:
            if v is None or v in env or v in inside:
                continue
            scalar = _scalar_constant(v)
            if scalar is None:
                env[v] = operand(v)
            else:
                env[v] = body(Broadcast(v.type.shape, v.type.layout), body.constant(scalar))
        inputs = [None if v is None else env[v] for v in node.inputs]
        env[node.output] = body(node.op, *inputs, name=node.output.name)
    # Of others, what is read elsewhere is computed there, too: positions that attentions share.
    results = [n.output for n in members if n is members[-1] or not n.output.users]
    for i, v in enumerate(results):
        body.output(f"y{i}" if i else "y", env[v])
    fused = g.add(Fused(), operands, [body], results[0].name)
    for old, new in zip(results, fused.results, strict=True):
        g.replace(old, new)


def _scalar_constant(v: Value) -> object | None:
    """Return the contents of a broadcast of a single constant element, as a scalar array.

    Kernels have no complex constants but 0.
    """
    match v:
        case Value(Node(Broadcast(), [Value() as only])) if only.array is not None:
            if only.type.dtype in COMPLEX and only.array.any():
                return None
            return only.array.reshape(()) if only.array.size == 1 else None
    return None

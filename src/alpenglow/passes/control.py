"""Control flow made smaller: loops carry only values that change, and compute the others once.

A loop captures a value that it hands on unchanged, and does not carry a value that is not read.  A
constant is in the region that reads it, where weights are packed.  A node that reads captured
values alone is computed before the loop.  A branch whose condition is known becomes the region
that runs.

A gradient adds a copy of a loop that also stacks the values that are carried into each iteration.
The copy has all results of the first loop, so the first loop is removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Control
from alpenglow.ir.region import inlined, take_in
from alpenglow.ir.text import print_graph
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.tensor.copy import Empty
from alpenglow.ops.tensor.generate import Iota
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast


def shrink_control(g: Graph) -> Graph:
    """Return the graph with loops and branches that do less; regions have been through it."""
    for node in [n for n in g.nodes if isinstance(n.op, Scan)]:
        _take_from_longer(g, node)
    g.prune()
    for node in [n for n in g.nodes if isinstance(n.op, Control)]:
        take_in(node)
        if isinstance(node.op, While | Scan):
            _Loop(g, node).shrink()
        elif isinstance(node.op, If):
            _branch(g, node)
    g.prune()
    return g


def _take_from_longer(g: Graph, node: Node) -> None:
    """Take the results of a loop from one that makes the same and more, if there is one."""
    (body,) = node.regions
    count = len(body.outputs)
    operands = [v for v in node.inputs if v is not None]
    users = min((v.users for v in operands), key=len, default={})
    for other in users:
        if other is node or other.op != node.op or other.inputs != node.inputs:
            continue
        (more,) = other.regions
        if len(more.outputs) <= count or not any(map(g.users, other.results[count:])):
            continue
        if print_graph(_first(more, count)) == print_graph(_first(body, count)):
            for old, new in zip(node.results, other.results, strict=False):
                g.replace(old, new)
            return


def _first(body: Graph, count: int) -> Graph:
    """Return a copy of a region that makes its first outputs alone."""
    less = body.copy()
    less.outputs = dict(list(less.outputs.items())[:count])
    less.prune()
    return less


def _branch(g: Graph, node: Node) -> None:
    condition, *captured = node.inputs
    assert condition is not None, "a condition is there"
    if condition.array is not None:
        region = node.regions[0 if condition.array else 1]
        for old, new in zip(node.results, inlined(g, region, captured), strict=True):
            g.replace(old, new)
        return
    read = [v for v in node.results if g.users(v)]
    for region in node.regions:
        outputs = zip(node.results, region.outputs.items(), strict=True)
        region.outputs = dict(output for v, output in outputs if g.users(v))
        region.prune()
    kept = _Captured([v for v in captured if v is not None], node.regions)
    kept.drop()
    made = g.add(node.op, [condition, *kept.values], node.regions)
    for old, new in zip(read, made.results, strict=True):
        g.replace(old, new)


class _Captured:
    """Values that regions capture, and the inputs of each region that are these."""

    def __init__(self, values: list[Value], regions: Sequence[Graph]) -> None:
        self.values = values
        self.regions = regions
        count = len(values)
        self.inputs = [list(r.inputs.values())[len(r.inputs) - count :] for r in regions]

    def drop(self) -> None:
        """Let go of what is captured twice, or not read."""
        first: dict[Value, int] = {}
        for k, v in enumerate(self.values):
            if first.setdefault(v, k) != k:
                for region, inputs in zip(self.regions, self.inputs, strict=True):
                    region.replace(inputs[k], inputs[first[v]])
        read = [
            any(r.users(inputs[k]) for r, inputs in zip(self.regions, self.inputs, strict=True))
            for k in range(len(self.values))
        ]
        self.values = [v for v, is_read in zip(self.values, read, strict=True) if is_read]
        for i, region in enumerate(self.regions):
            gone = {v for v, is_read in zip(self.inputs[i], read, strict=True) if not is_read}
            region.inputs = {n: v for n, v in region.inputs.items() if v not in gone}
            self.inputs[i] = [v for v in self.inputs[i] if v not in gone]


@dataclass
class _Carried:
    """A carried value: its first value, its input in the region, the name of its output there,
    and the result of the loop."""

    first: Value
    input: Value
    output: str
    result: Value


class _Loop:
    """A loop of a graph, and what its region reads and makes."""

    def __init__(self, g: Graph, node: Node) -> None:
        self.g = g
        (self.region,) = node.regions
        assert isinstance(node.op, While | Scan), "loops only"
        self.op: While | Scan = node.op
        operands = [v for v in node.inputs if v is not None]
        inputs, outputs = list(self.region.inputs.values()), list(self.region.outputs)
        self.before: list[Value] = []  # operands and inputs before those that are carried
        self.lead: list[Value] = []
        self.tests: list[str] = []  # outputs before these
        if isinstance(self.op, While):
            self.before, self.tests = operands[:1], outputs[:1]
            operands, outputs = operands[1:], outputs[1:]
        else:
            self.lead, inputs = inputs[:1], inputs[1:]
        k = self.op.carried_count
        self.carried = [
            _Carried(*each)
            for each in zip(operands[:k], inputs[:k], outputs[:k], node.results[:k], strict=True)
        ]
        rows = self.op.scanned_count if isinstance(self.op, Scan) else 0
        self.scanned = list(zip(operands[k : k + rows], inputs[k : k + rows], strict=True))
        self.captured = list(zip(operands[k + rows :], inputs[k + rows :], strict=True))
        self.stacked = list(zip(outputs[k:], node.results[k:], strict=True))

    def shrink(self) -> None:
        self._hand_on()
        self._drop_unread()
        self._hoist()
        self._rebuild()

    def _hand_on(self) -> None:
        """Capture what is the same in each turn."""
        made = self.region.outputs
        for c in [c for c in self.carried if made[c.output] is c.input]:
            self.carried.remove(c)
            if c.first.array is None:
                self.captured.append((c.first, c.input))
            else:
                self.region.replace(c.input, c.first.detached())
            self.g.replace(c.result, c.first)

    def _drop_unread(self) -> None:
        """Drop carried and stacked values that are not read."""
        made = self.region.outputs
        self.stacked = [(name, result) for name, result in self.stacked if self.g.users(result)]
        kept = [c for c in self.carried if self.g.users(c.result)]
        while True:
            names = [*self.tests, *(n for n, _ in self.stacked), *(c.output for c in kept)]
            read = self._behind({made[n] for n in names})
            more = [c for c in self.carried if c not in kept and c.input in read]
            if not more:
                break
            kept += more
        self.carried = [c for c in self.carried if c in kept]

    def _behind(self, values: set[Value]) -> set[Value]:
        """Return the values of the region that decide others, these included."""
        found, waiting = set(values), list(values)
        while waiting:
            producer = waiting.pop().producer
            for v in producer.inputs if producer is not None else ():
                if v is not None and v not in found:
                    found.add(v)
                    waiting.append(v)
        return found

    def _hoist(self) -> None:
        """Move nodes that read captured values alone in front of the loop.

        Nodes that read constants alone stay: low-bit weights are dequantized where they are read.
        """
        outside: dict[Value, Value] = {inner: outer for outer, inner in self.captured}
        for node in self.region.nodes:
            if _stays(node) or not any(v is not None and v.array is None for v in node.inputs):
                continue
            operands = [
                None if v is None else v.detached() if v.array is not None else outside.get(v)
                for v in node.inputs
            ]
            if any(v is not None and o is None for v, o in zip(node.inputs, operands, strict=True)):
                continue
            made = self.g.add(node.op, operands, node.regions, node.results[0].name)
            for inner, outer in zip(node.results, made.results, strict=True):
                outside[inner] = outer
        known = {inner for _, inner in self.captured}
        for inner, outer in outside.items():
            readers = [n for n in inner.users if not all(v in outside for v in n.results)]
            if inner in known or not (readers or inner in self.region.outputs.values()):
                continue
            new = self.region.input(_fresh(self.region, inner.name or "hoisted"), inner.type)
            self.region.replace(inner, new)
            self.captured.append((outer, new))

    def _rebuild(self) -> None:
        """Put a loop in the place of the old one."""
        region = self.region
        inputs = [*self.lead, *(c.input for c in self.carried), *(v for _, v in self.scanned)]
        names = {v: name for name, v in region.inputs.items()}
        inputs += [v for _, v in self.captured]
        region.inputs = {names[v]: v for v in inputs}
        outputs = [*self.tests, *(c.output for c in self.carried), *(n for n, _ in self.stacked)]
        region.outputs = {n: region.outputs[n] for n in outputs}
        region.prune()
        kept = _Captured([outer for outer, _ in self.captured], [region])
        kept.drop()
        operands = [*self.before, *(c.first for c in self.carried), *(x for x, _ in self.scanned)]
        op = replace(self.op, carried_count=len(self.carried))
        node = self.g.add(op, [*operands, *kept.values], [region])
        results = [*(c.result for c in self.carried), *(result for _, result in self.stacked)]
        for old, new in zip(results, node.results, strict=True):
            self.g.replace(old, new)


def _stays(node: Node) -> bool:
    """Whether a node is not computed before a loop: it costs nothing where it is read, it may end a
    call, or a loop that does not turn would be long for it."""
    free = Broadcast | Iota | Empty | InRange
    return isinstance(node.op, free) or not node.op.pure or isinstance(node.op, Control)


def _fresh(g: Graph, name: str) -> str:
    """Return a name that no input has."""
    while name in g.inputs:
        name += "'"
    return name

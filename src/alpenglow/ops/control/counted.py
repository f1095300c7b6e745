"""Loops that count, in their plain form: rows that are read and made in place of whole tensors.

Formats that only have `while` count by hand: a counter is carried, rows are read at it, and results
are written at it into a tensor that is carried as well.  `by_rows` makes a `Scan` of that: the
counter is the number of the iteration, rows that are read are scanned, and rows that are written
are stacked.  Then gradients stack rows only, and an export has the loop's own inputs and outputs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.dims import is_open
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.types import DTYPES, INTS, TensorType
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Minimum, Mul, Sub
from alpenglow.ops.elementwise.comparison import (
    Equal,
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
)
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose

COMPARISONS: dict[type, Callable[[int, int], bool]] = {
    Equal: operator.eq,
    Greater: operator.gt,
    GreaterOrEqual: operator.ge,
    Less: operator.lt,
    LessOrEqual: operator.le,
}


@dataclass(frozen=True)
class Line:
    """`slope` times the number of the iteration, plus `start`."""

    slope: int
    start: int

    def ends(self, count: int) -> tuple[int, int]:
        """Return the least and the largest value in `count` iterations."""
        last = self.slope * (count - 1) + self.start
        return min(self.start, last), max(self.start, last)


def by_rows(g: Graph, node: Node) -> Sequence[Value]:
    """Append the plain form of a counted loop, and return its results."""
    assert isinstance(node.op, Scan), "a loop with a count"
    if is_open(node.op.count) or not node.op.count:
        return node.results
    return _Counted(g, node).build()


class _Counted:
    """A loop while its region is rewritten."""

    def __init__(self, g: Graph, node: Node) -> None:
        assert isinstance(node.op, Scan) and isinstance(node.op.count, int), "a known count"
        self.g = g
        self.op = node.op
        self.count = node.op.count
        self.results: list[Value] = list(node.results)
        (region,) = node.regions
        self.region = region
        self.number, *inputs = region.inputs.values()
        operands = [v for v in node.inputs if v is not None]
        carried, scanned, captured = (
            list(zip(a, b, strict=True))
            for a, b in zip(node.op.split(operands), node.op.split(inputs), strict=True)
        )
        self.carried = dict(enumerate(carried))
        self.scanned = scanned
        self.captured = captured
        self.names = list(region.outputs)
        self.stacks: dict[int, Callable[[Value], Value]] = {}
        self.lines: dict[Value, Line | None] = {self.number: Line(1, 0)}

    def build(self) -> Sequence[Value]:
        self._hand_on()
        self._count()
        self._read_rows()
        self._write_rows()
        return self._rebuilt()

    def made(self, i: int) -> Value:
        """Return output i of the region."""
        return self.region.outputs[self.names[i]]

    # ── carried values ──

    def _hand_on(self) -> None:
        """Capture what each iteration hands on as it is."""
        for i, (outer, inner) in list(self.carried.items()):
            if self.made(i) is inner:
                del self.carried[i]
                self.captured.append((outer, inner))
                self.results[i] = outer

    def _count(self) -> None:
        """Compute counters from the number of the iteration."""
        for i, (outer, inner) in list(self.carried.items()):
            step = self._step(i)
            if step is None or outer.array is None:
                continue
            first = int(outer.array.reshape(-1)[0])
            line = Line(step, first)
            if self.op.reverse:
                line = Line(-step, first + step * (self.count - 1))
            limits = np.iinfo(DTYPES[inner.type.dtype])
            ends = *line.ends(self.count), first + step * self.count
            if min(ends) < limits.min or max(ends) > limits.max:
                continue
            del self.carried[i]
            self.region.replace(inner, self._on_line(line, inner))
            last = np.full(inner.type.extents, first + step * self.count, inner.type.numpy)
            self.results[i] = self.g.constant(last)

    def _step(self, i: int) -> int | None:
        """Return by how much a carried integer grows in each iteration."""
        _, inner = self.carried[i]
        if inner.type.dtype not in INTS or not inner.type.static or inner.type.size != 1:
            return None
        match self.made(i).producer:
            case Node(Add(), [Value() as x, Value() as y]) if inner in (x, y) and x is not y:
                other = y if x is inner else x
                return None if other.array is None else int(other.array.reshape(-1)[0])
        return None

    def _on_line(self, line: Line, like: Value) -> Value:
        """Return the value that a line has, of the type of another."""
        b, dtype = self.region, like.type.dtype
        v = b(Cast(dtype), self.number) if dtype != "i64" else self.number
        for op, n, idle in ((Mul(), line.slope, 1), (Add(), line.start, 0)):
            if n != idle:
                v = b(op, v, b.constant(np.array(n, like.type.numpy)))
        v = b(Reshape(like.type.shape), v) if like.type.rank else v
        self.lines[v] = line
        return v

    # ── numbers ──

    def line(self, v: Value | None) -> Line | None:
        """Return the line that an integer is on in all iterations; None if it is on none."""
        if v is None or not v.type.static or v.type.size != 1 or v.type.dtype not in INTS:
            return None
        if v.array is not None:
            return Line(0, int(v.array.reshape(-1)[0]))
        if v not in self.lines:
            found = self._line(v)
            if found is not None:
                limits, (low, high) = np.iinfo(DTYPES[v.type.dtype]), found.ends(self.count)
                found = found if limits.min <= low and high <= limits.max else None
            self.lines[v] = found
        return self.lines[v]

    def _line(self, v: Value) -> Line | None:
        match v.producer:
            case Node(Cast() | Reshape() | Broadcast() | Transpose(), [x]):
                return self.line(x)
            case Node(Where(), [condition, x, y]):
                truth = self._truth(condition)
                return None if truth is None else self.line(x if truth else y)
            case Node(op, [a, b]):
                one, other = self.line(a), self.line(b)
                return None if one is None or other is None else self._combined(op, one, other)
        return None

    def _combined(self, op: object, x: Line, y: Line) -> Line | None:
        match op:
            case Add():
                return Line(x.slope + y.slope, x.start + y.start)
            case Sub():
                return Line(x.slope - y.slope, x.start - y.start)
            case Mul() if not x.slope or not y.slope:
                return Line(x.slope * y.start + y.slope * x.start, x.start * y.start)
            case Maximum() | Minimum():
                large, small = (x, y) if self._always(operator.ge, x, y) else (y, x)
                if self._always(operator.ge, large, small):
                    return large if isinstance(op, Maximum) else small
        return None

    def _truth(self, condition: Value | None) -> bool | None:
        """Return the value of a condition in all iterations; None if it changes."""
        while condition is not None and condition.array is None:
            match condition.producer:
                case Node(Reshape() | Broadcast() | Transpose(), [x]):
                    condition = x
                case Node(op, [a, b]) if type(op) in COMPARISONS:
                    one, other = self.line(a), self.line(b)
                    if one is None or other is None:
                        return None
                    return self._always(COMPARISONS[type(op)], one, other)
                case _:
                    return None
        if condition is None or condition.array is None or condition.array.size != 1:
            return None
        return bool(condition.array.reshape(-1)[0])

    def _always(self, compare: Callable[[int, int], bool], x: Line, y: Line) -> bool | None:
        """Return how two lines compare in all iterations; None if that changes.

        Of a difference that grows or falls, the first and the last sign decide, and where it is 0.
        """
        difference = Line(x.slope - y.slope, x.start - y.start)
        low, high = difference.ends(self.count)
        found = {compare(low, 0), compare(high, 0)}
        if low < 0 < high:
            found.add(compare(0, 0))
        return found.pop() if len(found) == 1 else None

    # ── rows ──

    def _rows_on(self, line: Line | None, extent: object) -> bool:
        """Return True if a line is another row of so many in each iteration."""
        if line is None or not isinstance(extent, int) or abs(line.slope) != 1:
            return False
        low, high = line.ends(self.count)
        return low >= 0 and high < extent

    def _read_rows(self) -> None:
        """Scan the rows of what is captured, where each iteration reads one."""
        outside = {inner: outer for outer, inner in self.captured}
        rows: dict[tuple[Value, Line], Value] = {}
        for node in list(self.region.nodes):
            match node:
                case Node(Gather(axis=0), [Value() as x, index]) if x in outside:
                    line = self.line(index)
                case _:
                    continue
            if line is None or not self._rows_on(line, x.type.shape[0]):
                continue
            if (x, line) not in rows:
                shape = x.type.shape[1:]
                stack = self._from_line(outside[x], line)
                rows[x, line] = self._input("row", x.type.with_shape(shape))
                self.scanned.append((stack, rows[x, line]))
            row = rows[x, line]
            shaped = row
            if node.output.type != row.type:
                shaped = self.region(Reshape(node.output.type.shape), row)
            self.region.replace(node.output, shaped)

    def _from_line(self, x: Value, line: Line) -> Value:
        """Return the rows of x on a line, by the number of the iteration."""
        rest = x.type.shape[1:]
        if line == Line(1, 0) and x.type.shape[0] == self.count:
            return x
        zeros, ones = (0,) * len(rest), (1,) * len(rest)
        return self.g(Slice((line.start, *zeros), (self.count, *rest), (line.slope, *ones)), x)

    def _input(self, name: str, t: TensorType) -> Value:
        while name in self.region.inputs:
            name += "'"
        return self.region.input(name, t)

    def _write_rows(self) -> None:
        """Stack the rows that iterations write into a carried value, and do not read there."""
        for i, (outer, inner) in list(self.carried.items()):
            match self.made(i).producer:
                case Node(
                    Reshape(), [Value(Node(UpdateCache(1, False), [Value() as flat, row, at]))]
                ):
                    line = self.line(at)
                case _:
                    continue
            assert row is not None, "an update is there"
            match flat.producer:
                case Node(Reshape(), [x]) if x is inner:
                    pass
                case _:
                    continue
            alone = self.region.users(inner) == 1 and self.region.users(flat) == 1
            whole = flat.type.shape == (1, *inner.type.shape) and row.type.shape[1] == 1
            if line is None or not self._rows_on(line, inner.type.shape[0]):
                continue
            if not alone or not whole or self.region.users(self.made(i)) > 1:
                continue
            del self.carried[i]
            written = self.region(Reshape(inner.type.shape[1:]), row)
            self.region.outputs[self.names[i]] = written
            self.stacks[i] = self._into(outer, line)

    def _into(self, first: Value, line: Line) -> Callable[[Value], Value]:
        """Return a function that replaces rows of a value by stacked ones."""
        extent, rest = int(first.type.shape[0]), first.type.shape[1:]
        low, high = line.ends(self.count)
        ones, zeros = (1,) * len(rest), (0,) * len(rest)

        def part(x: Value, start: int, count: int, step: int = 1) -> Value:
            return self.g(Slice((start, *zeros), (count, *rest), (step, *ones)), x)

        def placed(stack: Value) -> Value:
            rows = stack if line.slope == 1 else part(stack, self.count - 1, self.count, -1)
            parts = [part(first, 0, low)] if low else []
            parts.append(rows)
            if high + 1 < extent:
                parts.append(part(first, high + 1, extent - high - 1))
            return rows if len(parts) == 1 else self.g(Concat(0), *parts)

        return placed

    # ── the loop ──

    def _rebuilt(self) -> Sequence[Value]:
        """Append the loop as it is now, and return the results of the old one."""
        region, op = self.region, self.op
        stacked = [*self.stacks, *range(op.carried_count, len(self.names))]
        made = [self.made(i) for i in (*self.carried, *stacked)]
        region.outputs = {f"o{k}": v for k, v in enumerate(made)}
        region.prune()
        used = {v for n in region.nodes for v in n.inputs} | set(made)
        captured = [(outer, inner) for outer, inner in self.captured if inner in used]
        names = {v: name for name, v in region.inputs.items()}
        pairs = [*self.carried.values(), *self.scanned, *captured]
        inputs = [self.number, *(inner for _, inner in pairs)]
        region.inputs = {names[v]: v for v in inputs}
        scan = replace(op, carried_count=len(self.carried), scanned_count=len(self.scanned))
        node = self.g.add(scan, [outer for outer, _ in pairs], [region])
        for i, v in zip((*self.carried, *stacked), node.results, strict=True):
            self.results[i] = self.stacks[i](v) if i in self.stacks else v
        return self.results

"""Random scans of rows: bodies of elementwise operators, moves of columns, and products."""

from __future__ import annotations

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.control.loop import COUNTER, Scan
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Maximum, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice

UNARY = (Tanh(), Sigmoid(), Neg())
BINARY = (Add(), Sub(), Mul(), Maximum())
WIDTHS = (1, 2, 3, 5, 8, 17)


class DrawnScan:
    """A scan of rows that a seed decides, in a graph of its own, and its feeds."""

    def __init__(self, seed: int, rows: int | None = None) -> None:
        self.random = np.random.default_rng(seed)
        self.rows = int(self.random.choice([1, 1, 2, 3, 5, 9])) if rows is None else rows
        self.dtype = "f64" if self.random.random() < 0.2 else "f32"
        self.graph = Graph("drawn")
        self.feeds: dict[str, Array] = {}
        self.body = Graph("body")
        self.captured: list[Value] = []
        self.values: list[Value] = []
        self._build()

    def number(self, low: int, high: int) -> int:
        return int(self.random.integers(low, high + 1))

    def widths(self, least: int, most: int) -> list[int]:
        return [WIDTHS[self.number(0, len(WIDTHS) - 1)] for _ in range(self.number(least, most))]

    def one_of(self, values: list[Value]) -> Value:
        return values[self.number(0, len(values) - 1)]

    def given(self, *shape: int) -> Value:
        """Return an input of the graph, or a constant."""
        array = self.random.uniform(-1, 1, shape).astype(TensorType(self.dtype, ()).numpy)
        if self.random.random() < 0.3:
            return self.graph.constant(array)
        name = f"x{len(self.feeds)}"
        self.feeds[name] = array
        return self.graph.input(name, TensorType(self.dtype, shape))

    def shared(self, *shape: int) -> Value:
        """Return a value that all iterations share."""
        outer = self.given(*shape)
        self.captured.append(outer)
        return self.body.input(f"c{len(self.captured)}", outer.type)

    def _build(self) -> None:
        g, b, rows = self.graph, self.body, self.rows
        count = self.number(0, 5)
        turn = b.input("turn", COUNTER)
        first = [self.given(rows, w) for w in self.widths(1, 3)]
        carried = [b.input(f"s{i}", v.type) for i, v in enumerate(first)]
        stacks = [self.given(count, rows, w) for w in self.widths(0, 2)]
        scanned = [
            b.input(f"r{i}", v.type.with_shape(v.type.shape[1:])) for i, v in enumerate(stacks)
        ]
        at = b(Broadcast((rows, 1)), b(Reshape((1, 1)), b(Cast(self.dtype), turn)))
        self.values = [*carried, *scanned, at]
        for _ in range(self.number(2, 14)):
            self.values.append(self._drawn())
        after = [self._of_width(int(v.type.shape[1])) for v in carried]
        made = [self.one_of(self.values) for _ in range(self.number(0, 2))]
        if self.random.random() < 0.3:
            after, made = self._masked(carried, after, made)
        for i, v in enumerate((*after, *made)):
            b.output(f"o{i}", v)
        op = Scan(count, len(carried), len(scanned), bool(self.random.random() < 0.4))
        node = g.add(op, [*first, *stacks, *self.captured], [b])
        for i, v in enumerate(node.results):
            g.output(f"y{i}", v)
        b.prune()

    def _masked(
        self, carried: list[Value], after: list[Value], made: list[Value]
    ) -> tuple[list[Value], list[Value]]:
        """Let some rows hand on what they carry."""
        b = self.body
        limit = self.shared(self.rows, 1)
        row = next((v for v in self.values[len(carried) :] if v.type.shape[1] == 1), None)
        condition = b(Less(), limit, self.values[0] if row is None else row)
        if condition.type.shape != (self.rows, 1):
            return after, made
        after = [
            b(Where(), b(Broadcast(v.type.shape), condition), v, old)
            for v, old in zip(after, carried, strict=True)
        ]
        zero = b.constant(np.zeros((), TensorType(self.dtype, ()).numpy))
        made = [
            b(Where(), b(Broadcast(v.type.shape), condition), v, b(Broadcast(v.type.shape), zero))
            for v in made
        ]
        return after, made

    def _of_width(self, width: int) -> Value:
        """Return a drawn value of so many columns."""
        fitting = [v for v in self.values if v.type.shape[1] == width]
        if self.random.random() < 0.7:
            return self.one_of(fitting)
        return self._product(self.one_of(self.values), width)

    def _product(self, x: Value, width: int) -> Value:
        product = self.body(MatMul(), x, self.shared(int(x.type.shape[1]), width))
        return self.body(Tanh(), product) if self.random.random() < 0.6 else product

    def _drawn(self) -> Value:
        b, x = self.body, self.one_of(self.values)
        width = int(x.type.shape[1])
        same = [v for v in self.values if v.type == x.type]
        match self.number(0, 8):
            case 0:
                return b(UNARY[self.number(0, 2)], x)
            case 1 | 2:
                return b(BINARY[self.number(0, 3)], x, self.one_of(same))
            case 3:
                shape = ((self.rows, width), (1, width), (1, 1), (self.rows, 1))[self.number(0, 3)]
                other = self.shared(*shape)
                wide = other if shape == x.type.shape else b(Broadcast(x.type.shape), other)
                return b(BINARY[self.number(0, 3)], wide, x)
            case 4:
                size = self.number(1, width)
                cut = Slice((0, self.number(0, width - size)), (self.rows, size), (1, 1))
                return b(cut, x)
            case 5:
                return b(Concat(1), x, self.one_of(self.values))
            case 6 if width == 1:
                return b(Broadcast((self.rows, self.widths(1, 1)[0])), x)
            case 6:
                return b(Pad((0, self.number(0, 2)), (0, self.number(0, 2))), x)
            case 7:
                product = self._product(x, self.widths(1, 1)[0])
                fitting = [v for v in self.values if v.type == product.type]
                return b(Add(), self.one_of(fitting), product) if fitting else product
            case _:
                condition = b(Less(), x, self.one_of(same))
                return b(Where(), condition, self.one_of(same), x)

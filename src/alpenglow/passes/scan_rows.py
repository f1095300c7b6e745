"""Scans of rows: a loop of elementwise operators and products by weights becomes one kernel.

Such a body treats the rows of all tensors alike, the sequences of a batch in a recurrent network.
`as_rows` writes it on matrices of these rows, whatever shapes the model has them in: [B, H], [H],
[1, B, H].  Values that the iterations share are computed before the loop, and so are products of
scanned rows.  The result is a fused node that holds the loop (`loops/control/scan.py` is its
kernel).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from alpenglow.ir.dims import Dim, estimate, is_open, product
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.types import COMPLEX, TensorType
from alpenglow.ops.control.loop import COUNTER, Scan
from alpenglow.ops.fused import Fused
from alpenglow.ops.product.contraction import MatMul, turned
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose

MOST = 256
"""Operators of a body, at most: a kernel holds all of them."""

BEFORE = 2**25
"""Bytes of the products of scanned rows, at most, if they are computed before the loop."""

ROW = 2**19
"""Bytes of a row of all values of a body, at most: what the kernel stores of it is on the stack."""

WEIGHTS, WEIGHTS_OF_ONE = 2**23, 2**25
"""Bytes of the weights of a product, at most, for several rows and for one: products of larger
ones are faster as kernels of their own, which keep their weights packed."""

Matrix = tuple[Dim, Dim]


class _Unsuitable(Exception):
    """The body does more than a kernel of rows does."""


@dataclass(frozen=True)
class _Shared:
    """A value that is the same in all iterations: `value` of the graph around the loop, stretched
    to `shape`."""

    value: Value
    shape: tuple[Dim, ...]


def as_rows(g: Graph, node: Node) -> Node | None:
    """Append the fused node that computes a scan by rows; return None if its body is not of rows.

    Values that iterations share are appended, too.
    """
    assert isinstance(node.op, Scan), "loops with a count"
    (body,) = node.regions
    if len(body.nodes) > MOST:
        return None
    count = len(g.nodes)
    try:
        return _Rows(g, node, body).build()
    except _Unsuitable:
        for made in list(g.nodes)[count:][::-1]:
            g.remove(made)
        return None


def is_one(d: Dim) -> bool:
    """Return True if an extent is 1 in every call."""
    return not is_open(d) and d == 1


class _Rows:
    """The body of a scan while it is written on matrices."""

    def __init__(self, g: Graph, node: Node, body: Graph) -> None:
        assert isinstance(node.op, Scan), "loops with a count"
        self.g = g
        self.node = node
        self.op = node.op
        self.body = body
        self.region = Graph(body.name)
        self.carried: list[tuple[Value, Value]] = []  # operands, and inputs of the region
        self.stacks: dict[Value, Value] = {}  # operands that are scanned, by their rows
        self.inputs: dict[Value, Value] = {}  # of the region, by what they capture
        self.flats: dict[tuple[Value, Matrix], Value] = {}  # matrices around the loop
        self.rows = self._count()
        self.env: dict[Value, Value | _Shared] = {}

    def _count(self) -> Dim:
        """Return the number of rows, as the values of most axes tell it."""
        moving = list(self.body.inputs.values())[1 : 1 + self.op.captures_from]
        moving += self.body.outputs.values()
        widest = max((v.type for v in moving), key=lambda t: t.rank, default=COUNTER)
        return product(widest.shape[:-1]) if widest.rank > 1 else 1

    # ── shapes ──

    def matrix(self, t: TensorType) -> Matrix:
        """Return the shape of a value that changes: rows and columns, or 1 and 1."""
        columns: Dim = 1
        if is_one(self.rows):
            columns = product(t.shape)
        elif t.rank and (product(t.shape[:-1]) == self.rows):
            columns = t.shape[-1]
        elif is_one(product(t.shape)):
            return (1, 1)
        elif product(t.shape) != self.rows:
            raise _Unsuitable
        if is_open(columns) or not columns or t.dtype in COMPLEX:
            raise _Unsuitable
        return (self.rows, columns)

    def column_axis(self, t: TensorType) -> int:
        """Return the axis that columns lie along."""
        if is_one(self.rows):
            long = [i for i, d in enumerate(t.shape) if not is_one(d)]
            if len(long) > 1:
                raise _Unsuitable
            return long[0] if long else t.rank - 1
        return t.rank - 1

    # ── values ──

    def shared(self, s: _Shared, shape: Matrix) -> Value:
        """Return a value that iterations share as a matrix of the region."""
        v = s.value
        small = self._small(v, s.shape, shape)
        if small is None:
            v = v if v.type.shape == s.shape else self.g(Broadcast(s.shape), v)
            small = shape
        if v.array is not None and v.array.size == 1:
            inner = self.region.constant(v.array.reshape(-1)[0])
            return self.region(Broadcast(shape), inner)
        if (v, small) not in self.flats:
            self.flats[v, small] = v if v.type.shape == small else self.g(Reshape(small), v)
        inner = self.captured(self.flats[v, small])
        return inner if small == shape else self.region(Broadcast(shape), inner)

    def captured(self, v: Value) -> Value:
        """Return the input of the body for a value around the loop."""
        if v not in self.inputs:
            self.inputs[v] = self.region.input(f"w{len(self.inputs)}", v.type)
        return self.inputs[v]

    def row(self, stack: Value) -> Value:
        """Return the input of the body for a row of a value around the loop."""
        t = stack.type.with_shape(stack.type.shape[1:])
        row = self.region.input(f"r{len(self.stacks)}", t)
        self.stacks[row] = stack
        return row

    def _small(self, v: Value, shape: tuple[Dim, ...], matrix: Matrix) -> Matrix | None:
        """Return the matrix that a value is before it is stretched; None if it must be before."""
        t = v.type
        if is_one(product(t.shape)):
            return (1, 1)
        if t.shape == shape:
            return matrix
        padded = (*[1] * (len(shape) - t.rank), *t.shape)
        if all(is_one(d) for d in padded[:-1]):
            return (1, padded[-1])
        if padded[:-1] == shape[:-1] and is_one(padded[-1]) and matrix[0] == self.rows:
            return (self.rows, 1)
        return None

    def value(self, v: Value | None, shape: Matrix | None = None) -> Value:
        """Return a value of the body as a matrix of the region."""
        if v is None:
            raise _Unsuitable
        shape = self.matrix(v.type) if shape is None else shape
        known_as = self.known(v)
        if isinstance(known_as, _Shared):
            return self.shared(known_as, shape)
        if known_as.type.shape != shape:
            raise _Unsuitable
        return known_as

    def known(self, v: Value) -> Value | _Shared:
        if v.array is not None:
            return _Shared(v.detached(), v.type.shape)
        return self.env[v]

    # ── the loop ──

    def build(self) -> Node:
        op, region = self.op, self.region
        turn, *inputs = self.body.inputs.values()
        carried, scanned, captured = op.split(inputs)
        first, stacks, others = op.split(self.node.inputs)
        counter = region.input("turn", COUNTER)
        self.env[turn] = region(Reshape((1, 1)), counter)
        for i, (v, outer) in enumerate(zip(carried, first, strict=True)):
            shape = self.matrix(v.type)
            if shape[0] != self.rows:
                raise _Unsuitable
            self.env[v] = inner = region.input(f"s{i}", v.type.with_shape(shape))
            self.carried.append((self.flat(outer, shape), inner))
        for v, outer in zip(scanned, stacks, strict=True):
            self.env[v] = self.row(self.flat(outer, (op.count, *self.matrix(v.type))))
        for v, outer in zip(captured, others, strict=True):
            assert outer is not None, "what is captured is there"
            self.env[v] = _Shared(outer, v.type.shape)
        for node in self.body.nodes:
            self.add(node)
        for name, v in self.body.outputs.items():
            region.output(name, self.value(v, (self.rows, self.matrix(v.type)[1])))
        region.prune()
        values = [*region.inputs.values(), *(v for n in region.nodes for v in n.results)]
        if sum(v.type.with_shape(v.type.shape[1:]).nbytes for v in values) > ROW:
            raise _Unsuitable
        read = [v for v in region.inputs.values() if region.users(v)]
        rows = [(stack, row) for row, stack in self.stacks.items() if row in read]
        around = [(outer, inner) for outer, inner in self.inputs.items() if inner in read]
        pairs = [*self.carried, *rows, *around]
        region.inputs = {v.name: v for v in (counter, *(inner for _, inner in pairs))}
        loop = replace(op, scanned_count=len(rows))
        return self._fused(loop, [outer for outer, _ in pairs])

    def flat(self, v: Value | None, shape: tuple[Dim, ...]) -> Value:
        assert v is not None, "what a loop carries or scans is there"
        return v if v.type.shape == shape else self.g(Reshape(shape), v)

    def _fused(self, op: Scan, operands: Sequence[Value]) -> Node:
        """Append the fused node around the loop; make the readers of the old one read it."""
        around = Graph("fused")
        inputs = [around.input(f"x{i}", v.type) for i, v in enumerate(operands)]
        loop = around.add(op, inputs, [self.region])
        for i, v in enumerate(loop.results):
            around.output(f"y{i}" if i else "y", v)
        fused = self.g.add(Fused(), operands, [around], self.node.results[0].name)
        for old, new in zip(self.node.results, fused.results, strict=True):
            shaped = new if new.type == old.type else self.g(Reshape(old.type.shape), new)
            self.g.replace(old, shaped)
        return fused

    # ── nodes ──

    def add(self, node: Node) -> None:
        """Append a node of the body."""
        inputs = [v for v in node.inputs if v is not None]
        shared = [x for v in inputs if isinstance(x := self.known(v), _Shared)]
        if len(node.results) != 1 or not node.op.pure or len(inputs) != len(node.inputs):
            raise _Unsuitable
        if len(shared) == len(inputs):
            self.env[node.output] = self._before(node, shared)
            return
        result = node.output.type
        match node.op:
            case Elementwise():
                shape = self.matrix(result)
                operands = [self.value(v, shape) for v in inputs]
                self.env[node.output] = self.region(node.op, *operands, name=node.output.name)
            case Reshape():
                self.env[node.output] = self.value(inputs[0], self.matrix(result))
            case Transpose(perm=perm):
                long = [i for i in perm if not is_one(inputs[0].type.shape[i])]
                if long != sorted(long):
                    raise _Unsuitable
                self.env[node.output] = self.value(inputs[0], self.matrix(result))
            case Broadcast():
                self.env[node.output] = self._stretched(inputs[0], result)
            case Slice(starts=starts, steps=steps):
                self._only_columns(inputs[0].type, result)
                axis, (rows, columns) = self.column_axis(inputs[0].type), self.matrix(result)
                cut = Slice((0, starts[axis]), (rows, columns), (1, steps[axis]))
                if any(s != 1 for i, s in enumerate(steps) if i != axis):
                    raise _Unsuitable
                self.env[node.output] = self.region(cut, self.value(inputs[0]))
            case Concat(axis=along):
                axis = self.column_axis(result)
                if along % result.rank != axis:
                    raise _Unsuitable
                for v in inputs:
                    self._only_columns(v.type, result)
                parts = [self.value(v, (self.rows, v.type.shape[axis])) for v in inputs]
                self.env[node.output] = self.region(Concat(1), *parts)
            case Pad(before=before, after=after, mode="constant", value=value):
                axis = self.column_axis(result)
                self._only_columns(inputs[0].type, result)
                if min(before[axis], after[axis]) < 0:
                    raise _Unsuitable
                filler = self.region.constant(np.asarray(value, result.numpy))
                ends = [
                    self.region(Broadcast((self.rows, n)), filler) if n else None
                    for n in (before[axis], after[axis])
                ]
                parts = [v for v in (ends[0], self.value(inputs[0]), ends[1]) if v is not None]
                self.env[node.output] = self.region(Concat(1), *parts)
            case MatMul():
                x, y = inputs
                self.env[node.output] = self._product(node.op, x, y, result)
            case _:
                raise _Unsuitable

    def _before(self, node: Node, operands: Sequence[_Shared]) -> _Shared:
        """Compute a value before the loop; a stretched value stays small."""
        shape = node.output.type.shape
        if isinstance(node.op, Broadcast):
            (x,) = operands
            plain = x.value.type.shape == x.shape
            return _Shared(x.value if plain else self._whole(x), shape)
        made = self.g.add(node.op, [self._whole(x) for x in operands], node.regions)
        return _Shared(made.output, shape)

    def _whole(self, s: _Shared) -> Value:
        return s.value if s.value.type.shape == s.shape else self.g(Broadcast(s.shape), s.value)

    def _only_columns(self, x: TensorType, y: TensorType) -> None:
        """Decline an operand that differs from the result along an axis other than the columns."""
        axis = self.column_axis(y if y.rank else x)
        lead = [(*t.shape[:axis], *t.shape[axis + 1 :]) for t in (x, y)]
        if x.rank != y.rank or lead[0] != lead[1]:
            raise _Unsuitable

    def _stretched(self, x: Value, result: TensorType) -> Value:
        shape, old = self.matrix(result), self.matrix(x.type)
        inner = self.value(x)
        if old == shape:
            return inner
        padded = (*[1] * (result.rank - x.type.rank), *x.type.shape)
        single = is_one(product(x.type.shape))
        across = padded[:-1] == result.shape[:-1] and is_one(padded[-1])
        if not single and not (across and old == (self.rows, 1)):
            raise _Unsuitable
        return self.region(Broadcast(shape), inner)

    def _product(self, op: MatMul, x: Value, y: Value, result: TensorType) -> Value:
        """Return rows multiplied by a matrix that iterations share."""
        if x.type.dtype not in ("f32", "f64") or y.type.dtype != x.type.dtype:
            raise _Unsuitable
        left, right = self.known(x), self.known(y)
        if isinstance(left, Value) and isinstance(right, _Shared):
            rows, weights = x, self._weights(right)
        elif isinstance(left, _Shared) and isinstance(right, Value) and is_one(self.rows):
            if not is_one(y.type.shape[-1]):
                raise _Unsuitable
            rows, weights = y, turned(self.g, self._weights(left))
        else:
            raise _Unsuitable
        shape = self.matrix(rows.type)
        wanted = (shape[0], weights.type.shape[1])
        if shape[1] != weights.type.shape[0] or self.matrix(result) != wanted:
            raise _Unsuitable
        if any(is_open(d) or not d for d in weights.type.shape):
            raise _Unsuitable
        if weights.type.nbytes > (WEIGHTS_OF_ONE if is_one(self.rows) else WEIGHTS):
            raise _Unsuitable
        inner = self.value(rows, shape)
        if inner in self.stacks and self._is_cheap_before(weights):
            return self._multiplied_before(op, self.stacks[inner], weights)
        return self.region(op, inner, self._inner(weights))

    def _is_cheap_before(self, weights: Value) -> bool:
        """Return True if rows of all iterations may be multiplied before the loop."""
        nbytes = weights.type.with_shape(weights.type.shape[1:]).nbytes
        return estimate(self.op.count * self.rows * nbytes) <= BEFORE

    def _multiplied_before(self, op: MatMul, stack: Value, weights: Value) -> Value:
        """Multiply the rows of all iterations at once."""
        count, rows, columns = stack.type.shape
        flat = self.g(Reshape((count * rows, columns)), stack)
        made = self.g(op, flat, weights)
        return self.row(self.g(Reshape((count, rows, weights.type.shape[1])), made))

    def _inner(self, weights: Value) -> Value:
        """Return weights as a value of the region; some columns of others stay where they are."""
        match weights.producer:
            case Node(Slice(starts=(0, _), steps=(1, 1)) as cut, [Value() as whole]) if (
                whole.type.shape[0] == cut.sizes[0]
            ):
                return self.region(cut, self._inner(whole))
        return self.captured(weights)

    def _weights(self, s: _Shared) -> Value:
        """Return a matrix around the loop."""
        value = s.value
        if not all(is_one(d) for d in value.type.shape[:-2]):
            raise _Unsuitable
        if value.type.shape[-2:] != s.shape[-2:]:
            raise _Unsuitable
        return value if value.type.rank == 2 else self.g(Reshape(value.type.shape[-2:]), value)

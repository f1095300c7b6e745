"""The kernel of a scan of rows: groups of rows in parallel, columns in vectors, iterations inside.

The body of such a loop works on matrices of rows (`passes.scan_rows`): elementwise operators,
slices and joins of columns, and products of rows by weights.  A group of rows keeps the carried
values in local arrays, and the results of products beside them.  `Plan` says what an iteration
stores, and when.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from alpenglow.ir.dims import ceil_div, is_open
from alpenglow.ir.graph import Node, Value
from alpenglow.kernel.expr import Const, Expr
from alpenglow.loops.control.plan import Mask, Plan, Product, Root, Target
from alpenglow.loops.control.rows import Columns, Group, Rows, group_size
from alpenglow.loops.coord import Coord, coord
from alpenglow.loops.form import Loops, Sink, Source
from alpenglow.ops.control.loop import COUNTER, Scan
from alpenglow.ops.tensor.movement import Broadcast, Slice


def build_scan(k: Loops, node: Node, ins: Sequence[Source | None], outs: Sequence[Sink]) -> None:
    """Emit the loop of a scan of rows; `ins` and `outs` are its operands and results."""
    (body,) = node.regions
    assert isinstance(node.op, Scan), "a loop with a count"
    rows = next(v.type.extents[0] for v in body.outputs.values())
    if not is_open(rows) and rows == 0:
        return
    plan = Plan(node.op, body)
    size = group_size(rows, *plan.row_nbytes(), k.facts.scratch)
    whole = size == 1 or (not is_open(rows) and rows % size == 0)
    arrays = {v: Rows.of(k, v.type, size) for v in plan.ready}
    nexts = {v: Rows.of(k, v.type, size) for v in plan.late}
    with k.parallel([ceil_div(rows, size)]) as (part,):
        first = k.b.let((part * size).expr())
        left = k.m.sub(k.extent(rows, "i64"), first)
        count = Const(size) if whole else k.b.let(k.m.minimum(left, size))
        if not whole:  # the products take rows that are not there as well
            for array in arrays.values():
                array.clear()
        _Kernel(k, plan, Group(k, size, first, count), arrays, nexts, ins, outs).run()


@dataclass
class _Kernel:
    """The code for the rows of a group."""

    k: Loops
    plan: Plan
    group: Group
    arrays: dict[Value, Rows]
    nexts: dict[Value, Rows]
    ins: Sequence[Source | None]
    outs: Sequence[Sink]
    turn: Coord = field(default_factory=lambda: coord(0))
    stage: int = 0
    row: Expr = field(default_factory=lambda: Const(0))
    """The row of the group that is computed."""

    def run(self) -> None:
        op, plan = self.plan.op, self.plan
        (count,) = COUNTER.with_shape((op.count,)).extents
        for i, v in enumerate(plan.carried):
            array, source = self.arrays[v], self.operand(i)
            with self.group.each() as (j, s):
                array.columns.each(lambda u: array.write(j, u, source([s, u])))
        if is_open(count) or count:
            with self.k.loop(count) as turn:
                self.turn = coord(count - 1) - turn if op.reverse else turn
                self.iterate_if_any()
        for i, v in enumerate(plan.carried):
            array, sink = self.arrays[v], self.outs[i]
            with self.group.each() as (j, s):
                array.columns.each(lambda u: sink.store([s, u], array.read(j, u)))

    def operand(self, i: int) -> Source:
        source = self.ins[i]
        assert source is not None, "no operand of a loop is left out"
        return source

    def iterate_if_any(self) -> None:
        """Emit one iteration, which is left out if the mask holds for no row of the group."""
        mask, b, m = self.plan.mask, self.k.b, self.k.m
        if mask is None:
            self.iterate()
            return
        count = b.var(Const(0))
        with self.group.each() as (j, s):
            self.row = j
            b.set(count, m.add(count, m.cast(self.condition(mask, s), "i64")))
        with b.when(m.gt(count, 0)):
            self.iterate()
        with b.otherwise(), self.group.each() as (j, s):
            self.row = j
            self.blank(mask, s)

    def condition(self, mask: Mask, s: Coord) -> Expr:
        """Return whether the mask holds for a row."""
        return self.k.b.let(self.k.pulled(mask.condition, [s, coord(0)], self.leaves()))

    def blank(self, mask: Mask, s: Coord) -> None:
        """Store the stacked results of a row for which the mask does not hold."""
        self.compute_row([Root(v, (Target(i),)) for i, v in mask.otherwise.items()], s)

    def iterate(self) -> None:
        """Emit one iteration."""
        for number, stage in enumerate(self.plan.stages):
            self.stage = number
            self.compute(stage.roots())
            for product in stage.products:
                self.multiply(product)
        mask = self.plan.mask
        if mask is None or self.group.size == 1:
            with self.group.each() as (j, _):
                self.advance(j)
            return
        with self.group.each() as (j, s):
            self.row = j
            with self.k.b.when(self.condition(mask, s)):
                self.advance(j)
            with self.k.b.otherwise():
                self.blank(mask, s)

    def advance(self, j: Expr) -> None:
        """Let a row carry its next values, where these were stored elsewhere."""
        for state, array in self.nexts.items():
            into = self.arrays[state]
            array.columns.each(partial(self._move, array, into, j))

    @staticmethod
    def _move(array: Rows, into: Rows, j: Expr, u: Coord) -> None:
        into.write(j, u, array.read(j, u))

    def multiply(self, p: Product) -> None:
        sums = self.arrays[p.result]
        if p.addend is None:
            sums.clear()
        else:
            self.compute([Root(p.addend, (Target(p.result),))])
        self.group.add_product(sums, self.arrays[p.rows], self.leaves()[p.weights])

    def compute(self, roots: Sequence[Root]) -> None:
        """Compute values of the present stage and store them; values of one width share a loop."""
        if not roots:
            return
        mask = self.plan.mask
        with self.group.each() as (j, s):
            self.row = j
            if mask is None or self.group.size == 1:
                self.compute_row(roots, s)
            else:
                with self.k.b.when(self.condition(mask, s)):
                    self.compute_row(roots, s)

    def compute_row(self, roots: Sequence[Root], s: Coord) -> None:
        for width in dict.fromkeys(root.width for root in roots):
            mine = [root for root in roots if root.width == width]
            Columns(self.k, width).each(lambda u: self.store(mine, [s, u]))

    def store(self, roots: Sequence[Root], at: list[Coord]) -> None:
        """Compute values at a place, then store all of them."""
        leaves = self.leaves()
        values = [self.k.pulled(root.value, at, leaves) for root in roots]
        for root, value in zip(roots, values, strict=True):
            for target in root.targets:
                self.store_to(target, at[0], at[1] + target.column, value)

    def store_to(self, target: Target, s: Coord, u: Coord, value: Expr) -> None:
        place = target.place
        if isinstance(place, int):
            self.outs[place].store([self.turn, s, u], value)
        elif target.is_state and place in self.nexts:
            self.nexts[place].write(self.row, u, value)
        else:
            self.arrays[place].write(self.row, u, value)

    # ── values that the present stage may read ──

    def leaves(self) -> dict[Value, Source]:
        plan = self.plan
        leaves = {v: self.in_array(v) for v, stage in plan.ready.items() if stage <= self.stage}
        leaves |= {v: self.scanned(v, i) for v, i in plan.scanned.items()}
        leaves |= {v: self.operand(i) for v, i in plan.shared.items()}
        leaves |= {v: Source(v.type, lambda at: self.turn.expr()) for v in plan.turns}
        for v in plan.moved:
            if v not in leaves:
                leaves[v] = self.moved(v, leaves)
        return leaves

    def in_array(self, v: Value) -> Source:
        return Source(v.type, lambda at: self.arrays[v].read(self.row, at[1]))

    def scanned(self, v: Value, i: int) -> Source:
        source = self.operand(i)
        return Source(v.type, lambda at: source([self.turn, *at]))

    def moved(self, v: Value, leaves: dict[Value, Source]) -> Source:
        """Return a value that is stretched, or some columns of another."""
        assert v.producer is not None and v.producer.inputs[0] is not None, "a move"
        x, op = v.producer.inputs[0], v.producer.op
        places: dict[int, tuple[list[Coord], list[Coord]]] = {}  # `at` is kept, so is its id

        def element(at: list[Coord]) -> Expr:
            if id(at) not in places:
                places[id(at)] = at, self.place(op, x, v, at)
            return self.k.pulled(x, places[id(at)][1], leaves)

        return Source(v.type, element)

    def place(self, op: object, x: Value, v: Value, at: list[Coord]) -> list[Coord]:
        """Return where a move reads what it has at a place."""
        row, column = at
        if isinstance(op, Slice):
            return [row, column * op.steps[1] + op.starts[1]]
        assert isinstance(op, Broadcast), "moves are slices and broadcasts"
        if x.type.rank < 2:
            return []
        rows, columns = (a == b for a, b in zip(x.type.shape, v.type.shape, strict=True))
        return [row if rows else coord(0), column if columns else coord(0)]

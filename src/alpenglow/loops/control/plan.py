"""The values that the kernel of a scan of rows stores, and the stages that store them.

The depth of a value is the most products that lie behind it.  Stage d of an iteration computes what
has depth d and is stored (a `Root`); the products of depth d + 1 follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Clip, Maximum, Minimum, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, Less
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice

QUICK = (Abs, Add, Broadcast, Cast, Clip, Concat, Equal, Greater, Less, Maximum, Minimum, Mul, Neg,
         Reshape, Slice, Sub, Where)  # fmt: skip
"""Operators that a later stage computes again, for that is as fast as to read their result."""


@dataclass(frozen=True)
class Target:
    """Where a value is stored: a result of the loop, or the local array of a value, from a column
    on.  If `is_state`, the next iteration begins with it."""

    place: int | Value
    column: int = 0
    is_state: bool = False


@dataclass(frozen=True)
class Root:
    """A value that a stage computes, and where it is stored."""

    value: Value
    targets: tuple[Target, ...]

    @property
    def width(self) -> int:
        return int(self.value.type.shape[1])


@dataclass(frozen=True)
class Product:
    """Rows times weights; the sums begin with the `addend`, and are the `result`."""

    rows: Value
    weights: Value
    addend: Value | None
    result: Value


@dataclass(frozen=True)
class Mask:
    """A row whose `condition` is false in an iteration hands on what it carries.

    Its rows of stacked results are then those of `otherwise`, by the number of the result.
    """

    condition: Value
    otherwise: dict[int, Value]


@dataclass
class Stage:
    """Values that are computed and stored, then products."""

    targets: dict[Value, list[Target]] = field(default_factory=dict)
    products: list[Product] = field(default_factory=list)

    def roots(self) -> list[Root]:
        return [Root(v, tuple(targets)) for v, targets in self.targets.items()]


class Plan:
    """The stages of an iteration, and the local arrays that they need."""

    def __init__(self, op: Scan, body: Graph) -> None:
        self.op = op
        self.body = body
        turn, *inputs = body.inputs.values()
        carried, scanned, captured = op.split(inputs)
        self.carried: list[Value] = carried
        self.scanned = {v: i for i, v in enumerate(scanned, len(carried))}
        self.shared = {v: i for i, v in enumerate(captured, len(carried) + len(scanned))}
        self.turns = [n.output for n in turn.users]
        self.moved = [n.output for n in body.nodes if isinstance(n.op, Broadcast | Slice)]
        self.outputs = list(body.outputs.values())
        self.mask = self._masked()
        self.products = self._products()
        self.joins = {
            n.output for n in body.nodes
            if isinstance(n.op, Concat) and any(_reads_elements(user) for user in n.output.users)
        }  # fmt: skip
        self.depth = self._depths()
        self.ready: dict[Value, int] = dict.fromkeys(self.carried, 0)
        """The local arrays, and the first stage that may read each."""
        self.stages = [Stage() for _ in range(max(self.depth.values(), default=0) + 1)]
        self._fill()
        self.late = {v for v in self.carried if self._is_late(v)}
        """Carried values that are read after their next ones are known."""

    def row_nbytes(self) -> tuple[int, int]:
        """Return the bytes of a row of the widest product, and of all local arrays."""
        sizes = {v: v.type.with_shape(v.type.shape[1:]).nbytes for v in self.ready}
        widest = max((sizes[p.result] for p in self.products), default=1)
        return widest, sum(sizes.values()) + sum(sizes[v] for v in self.late)

    # ── what is where ──

    def _masked(self) -> Mask | None:
        """Return the mask of all outputs, which are then what they are where it holds."""
        wheres = [v.producer for v in self.outputs]
        masks: set[Value] = set()
        taken, otherwise = list[Value](), dict[int, Value]()
        for i, node in enumerate(wheres):
            match node:
                case Node(
                    Where(),
                    [Value(Node(Broadcast(), [Value() as c])), Value() as x, Value() as y],
                ):
                    if i < len(self.carried) and y is not self.carried[i]:
                        return None
                    masks.add(c)
                    taken.append(x)
                    otherwise[i] = y
                case _:
                    return None
        stacked = {i: y for i, y in otherwise.items() if i >= len(self.carried)}
        products = [n.output for n in self.body.nodes if isinstance(n.op, MatMul)]
        late = (*self.carried, *products)
        moving = [v for v in (*masks, *stacked.values()) if self._is_of(v, late)]
        if len(masks) != 1 or moving:
            return None
        (condition,) = masks
        self.outputs = taken
        return Mask(condition, stacked)

    def _is_of(self, v: Value, others: Sequence[Value]) -> bool:
        """Return True if v is computed of one of `others`."""
        return any(self._is_behind(x, v) for x in others)

    def _products(self) -> list[Product]:
        """Return the products; one that is added to another value alone begins with that."""
        made: dict[Value, Product] = {}
        order = {v: i for i, n in enumerate(self.body.nodes) for v in n.results}
        for node in self.body.nodes:
            if not isinstance(node.op, MatMul):
                continue
            rows, weights = (v for v in node.inputs if v is not None)
            result, addend = node.output, None
            match list(result.users):
                case [Node(Add(), [Value() as x, Value() as y]) as add] if (
                    x is not y and self.body.users(result) == 1
                ):
                    other = y if x is result else x
                    if not self._is_behind(result, other) and order.get(other, -1) < order[result]:
                        result, addend = add.output, other
            made[result] = Product(rows, weights, addend, result)
        return list(made.values())

    def _is_behind(self, v: Value, other: Value) -> bool:
        """Return True if `other` is computed of v."""
        waiting = [other]
        while waiting:
            at = waiting.pop()
            if at is v:
                return True
            waiting += [x for x in at.producer.inputs if x is not None] if at.producer else []
        return False

    def _depths(self) -> dict[Value, int]:
        results = {p.result: p for p in self.products}
        depth = dict.fromkeys(self.body.inputs.values(), 0)
        for node in self.body.nodes:
            v = node.output
            if v in results:
                p = results[v]
                before = [p.rows] if p.addend is None else [p.rows, p.addend]
                depth[v] = 1 + max(depth.get(x, 0) for x in before)
                continue
            depth[v] = max((depth.get(x, 0) for x in node.inputs if x is not None), default=0)
            depth[v] += v in self.joins
        return depth

    def _fill(self) -> None:
        for p in self.products:
            self.ready[p.result] = self.depth[p.result]
            self.stages[self.depth[p.result] - 1].products.append(p)
        for v in [*(p.rows for p in self.products), *self.joins, *self._kept()]:
            if v not in self.ready:
                self._store(v, Target(v))
        for i, v in enumerate(self.outputs):
            if i >= len(self.carried):
                self._store(v, Target(i))
            elif v is not self.carried[i]:
                self._store(v, Target(self.carried[i], 0, True))

    def _store(self, v: Value, target: Target) -> None:
        """Let the stage that computes a value store it; what is joined is stored in its parts."""
        stage = self.depth.get(v, 0) - (v in self.joins)
        if target.place is v:
            self.ready[v] = stage + 1
        if target.place is not v and v in self.ready:
            stage = max(stage, self.ready[v])
        elif v.producer is not None and isinstance(v.producer.op, Concat):
            column = target.column
            for part in v.producer.inputs:
                assert part is not None, "what is joined is there"
                self._store(part, Target(target.place, column, target.is_state))
                column += int(part.type.shape[1])
            return
        self.stages[stage].targets.setdefault(v, []).append(target)

    def _kept(self) -> list[Value]:
        """Return the slow values that a later stage reads; it computes quick ones again."""
        products = {p.result: p for p in self.products}
        kept: dict[Value, None] = {}
        for node in self.body.nodes:
            stage = self.depth[node.output]
            waiting = [v for v in node.inputs if v is not None]
            if isinstance(node.op, MatMul) or node.output in products:
                p = products.get(node.output)
                stage, waiting = stage - 1, [] if p is None or p.addend is None else [p.addend]
            while waiting:
                v = waiting.pop()
                if v in self.ready or v.producer is None or self.depth[v] >= stage:
                    continue
                if isinstance(v.producer.op, QUICK):
                    waiting += [x for x in v.producer.inputs if x is not None]
                elif v.type.dtype != "bool":
                    kept[v] = None
        return list(kept)

    # ── states ──

    def _is_late(self, state: Value) -> bool:
        """Return True if a carried value is read after its next one is known."""
        stages = range(len(self.stages))
        written = [
            (s, int(v.type.shape[1]))
            for s in stages for v, targets in self.stages[s].targets.items()
            if any(t.is_state and t.place is state for t in targets)
        ]  # fmt: skip
        if not written:
            return False
        first, _ = min(written)
        for s in stages:
            stage = self.stages[s]
            for p in stage.products:
                addend = p.addend
                if p.rows is state and s >= first:
                    return True
                if addend is not None and s >= first and self._reads(addend, s, state) is not None:
                    return True
            for v in stage.targets:
                moved = self._reads(v, s, state)
                same = written == [(s, int(v.type.shape[1]))] and not moved
                if moved is not None and s >= first and not same:
                    return True
        return False

    def _reads(self, v: Value, stage: int, state: Value) -> bool | None:
        """Return None if computing a value in a stage reads nothing of a state, True if it reads it
        at another column, False if at the same."""
        found: bool | None = None
        waiting = [(v, False)]
        seen: set[tuple[Value, bool]] = set()
        while waiting:
            at, moved = waiting.pop()
            if (at, moved) in seen:
                continue
            seen.add((at, moved))
            if at is state:
                found = moved or bool(found)
            if at.producer is None or (at is not v and self.ready.get(at, stage + 1) <= stage):
                continue
            if at is v and self.ready.get(at, stage + 1) <= stage:
                continue
            moves = moved or isinstance(at.producer.op, Broadcast | Slice | Concat)
            waiting += [(x, moves) for x in at.producer.inputs if x is not None]
        return found


def _reads_elements(node: Node) -> bool:
    """Return True if a node computes elements from elements of its operands."""
    return isinstance(node.op, Elementwise | Slice | Broadcast)

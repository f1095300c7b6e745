"""Which keys the queries of a panel see, as far as that is told before their scores are known."""

from __future__ import annotations

import math
from collections.abc import Iterator

from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Node, Value
from alpenglow.kernel.expr import Binary, Compare, Expr, Reduce, lift
from alpenglow.loops.coord import Coord, coord
from alpenglow.machines.vector.templates.attention_parts import AttentionParts, is_key
from alpenglow.ops.elementwise.comparison import Greater, GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.movement import Broadcast


class SeenKeys:
    """Before which key and from which on some queries see none, as far as that is told.

    A condition at the end of what follows the scores may compare the position of a key with what is
    the same for all keys.
    """

    def __init__(self, parts: AttentionParts, places: list[list[Coord]]) -> None:
        """`places` are those of the queries, without the key."""
        self._parts, self._places, self._b = parts, places, parts.b
        self._begins: list[Expr] = []
        self._ends: list[Expr] = []
        for condition in _conditions(parts.logits):
            self._note(condition)
        self.begin = self._combined(self._begins, "max")
        self.end = self._combined(self._ends, "min")

    @property
    def all(self) -> bool:
        """Whether all keys have to be looked at."""
        return self.begin is None and self.end is None

    def within(self, start: Expr, count: Dim) -> Expr | None:
        """Return whether any of `count` keys may be seen; None if all are."""
        seen: list[Expr] = []
        if self.end is not None:
            seen.append(Compare("lt", start, self.end))
        if self.begin is not None:
            seen.append(Compare("gt", start + lift(count), self.begin))
        if not seen:
            return None
        return seen[0] if len(seen) == 1 else Binary("and", *seen)

    def _note(self, condition: Node) -> None:
        match condition:
            case Node(Less() | LessOrEqual() as op, [Value() as x, Value() as y]):
                low, high = x, y
            case Node(Greater() | GreaterOrEqual() as op, [Value() as x, Value() as y]):
                low, high = y, x
            case _:
                return
        strict = isinstance(op, Less | Greater)
        if is_key(low):
            self._bound(self._ends, high, 0 if strict else 1, "max")
        elif is_key(high):
            self._bound(self._begins, low, 1 if strict else 0, "min")

    def _bound(self, bounds: list[Expr], v: Value, more: int, op: str) -> None:
        """Add the largest or least `v` of the queries, if all keys have the same."""
        if v.type.dtype != "i64" or not self._parts.same_for_all_keys(v):
            return
        k = self._parts.k
        numbers = []
        for at in self._places:
            with k.loops.vector(max(c.lanes for c in at)):
                number = k.elsewhere(v, [*at, coord(0)])
            numbers.append(number if number.lanes == 1 else self._b.let(Reduce(op, number)))
        total = self._combined(numbers, op)
        assert total is not None, "there are queries"
        bounds.append(total + more)

    def _combined(self, numbers: list[Expr], op: str) -> Expr | None:
        if not numbers:
            return None
        total = numbers[0]
        for other in numbers[1:]:
            total = Binary(op, total, other)
        return self._b.let(total)


def _conditions(logits: Value) -> Iterator[Node]:
    """Yield the conditions without which a logit is -inf."""
    match logits:
        case Value(
            Node(Where(), [Value() as condition, _, Value(Node(Broadcast(), [Value() as hidden]))])
        ) if hidden.array is not None and (hidden.array == -math.inf).all():
            waiting = [condition]
        case _:
            return
    while waiting:
        node = waiting.pop().producer
        if node is None:
            continue
        if isinstance(node.op, BitAnd):
            waiting += [v for v in node.inputs if v is not None]
        else:
            yield node

"""Counters of loops: carried integers at which a body slices, for which a graph has no symbols.

Exporters spell ``table[k] = row`` by slices, shapes and ranges that begin at `k`.  While such a
body is imported, integers that the loop carries from a constant on have symbols as elements.  The
conclusions of the import about the first iteration are then proved for all iterations: each counter
lies between its first value and the last one that the condition or the count of the loop allows.
In the region, a slice at a symbol becomes one that reads at the counter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.presume import presumed
from alpenglow.ir import dims
from alpenglow.ir.dims import Assumption, Dim, Sym, assuming
from alpenglow.ir.graph import Graph, Node, Value, open_in
from alpenglow.ir.op import Op
from alpenglow.ir.types import INTS, Array
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.elementwise.comparison import Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.generate import Range
from alpenglow.ops.tensor.movement import Broadcast, Reshape, Slice

COUNTING = ("i32", "i64")
LARGEST = (1 << 31) - 1
"""A counter that may become larger is not followed: it may wrap around."""

Box = Mapping[str, tuple[Dim | None, Dim | None]]
"""The least and the largest value of each counter, as far as they are known."""


class Knowing(Protocol):
    """An importer that knows elements of small integer tensors."""

    g: Graph
    known: dict[Value, Any]

    def contents(self, v: Value) -> Array | None: ...


class Counters(Assumption):
    """That counters are as in the first turn; conclusions about other symbols are passed on."""

    def __init__(self, starts: Mapping[str, int]) -> None:
        self.around = dims.assumed()
        super().__init__({**({} if self.around is None else self.around.values), **starts})
        self.starts = starts

    def decide(self, x: Dim, relation: str) -> bool:
        if self.around is not None and not dims.names(x) & self.starts.keys():
            return self.around.decide(x, relation)
        return super().decide(x, relation)


@dataclass(frozen=True, slots=True)
class Counting:
    """The symbols of counters, by the number of the carried value, and what they are held to be."""

    symbols: Mapping[int, Sym]
    held: Counters

    @staticmethod
    def of(carried: Sequence[Value], importer: Knowing) -> Counting | None:
        """Return the carried values that begin as one known integer; None if there are none, or if
        extents are open, so that nothing can be concluded from the first turn."""
        kept = presumed()
        if dims.assumed() is None and kept is not None and kept.symbols:
            return None
        starts = {k: n for k, v in enumerate(carried) if (n := _start(v, importer)) is not None}
        around = dims.assumed()
        word = f"counter{0 if around is None else len(around.values)}"  # no symbol around is so
        symbols = {k: dims.element(word, k) for k in starts}
        held = Counters({str(symbols[k]): n for k, n in starts.items()})
        return Counting(symbols, held) if starts else None

    def tell(self, inner: Knowing, inputs: Sequence[Value]) -> None:
        """Let the elements of counters be symbols while a body is imported."""
        for k, symbol in self.symbols.items():
            elements = np.empty(inputs[k].type.extents, object)
            elements[...] = symbol
            inner.known[inputs[k]] = elements

    def show(
        self, inner: Knowing, made: Sequence[Value], going: Value | None, most: Dim | None
    ) -> None:
        """Show what was concluded for all turns, of which there are `most`, one behind the other.

        `made` are the next carried values.  Raises UnsupportedError if it does not hold in each.
        """
        with assuming(self.held):
            after = {s: single(inner, made[k]) for k, s in self.symbols.items()}
            steps = {str(s): d - s for s, d in after.items() if d is not None}
            conditions = [] if going is None else list(_conditions(inner, going))
            box = _box(self.held.starts, steps, conditions, most)
        for x, relation in self.held.guards:
            if not _always(x, relation, box, self.held.around):
                raise UnsupportedError(
                    f"{x} {relation} 0 holds in the first iteration of a loop, expected in all"
                )

    def take_out(self, region: Graph, inputs: Sequence[Value]) -> None:
        """Let a region read its counters; raise UnsupportedError if types are open in them."""
        counters = {str(s): inputs[k] for k, s in self.symbols.items()}
        for node in list(region.nodes):
            _read_at(region, node, counters)
        region.prune()


def _start(v: Value, importer: Knowing) -> int | None:
    """Return the integer that a carried value is at first, if it is known to be one."""
    if v.type.dtype not in COUNTING or v.type.symbols() or v.type.size != 1:
        return None
    start = single(importer, v)
    return start if isinstance(start, int) else None


def single(importer: Knowing, v: Value) -> Dim | None:
    """Return the integer that a value of one element is, if it is known."""
    elements = v.array if v.array is not None else importer.contents(v)
    if elements is None or elements.size != 1:
        return None
    (d,) = elements.reshape(-1).tolist()
    return d if isinstance(d, int | Sym) and not isinstance(d, bool) else None


def _conditions(inner: Knowing, going: Value) -> Iterator[Dim]:
    """Yield expressions of which each is at least 0 if a loop goes on."""
    waiting = [going]
    while waiting:
        match waiting.pop():
            case Value(producer=Node(BitAnd(), [Value() as a, Value() as b])):
                waiting += [a, b]
            case Value(producer=Node(Less() | LessOrEqual() as less, [Value() as a, Value() as b])):
                low, high = single(inner, a), single(inner, b)
                if low is not None and high is not None:
                    yield high - low - isinstance(less, Less)
            case Value(producer=Node(Reshape() | Broadcast(), [Value() as x])):
                waiting.append(x)
            case Value(producer=Node(Cast(), [Value() as x])) if x.type.dtype in (*INTS, "bool"):
                waiting.append(x)
            case Value(producer=Node(Add(), [Value() as x, Value(array=y)])) if y is not None:
                waiting += [] if y.any() else [x]


def _box(
    starts: Mapping[str, int], steps: Mapping[str, Dim], conditions: Sequence[Dim], most: Dim | None
) -> Box:
    """Return between which values counters lie as a turn begins."""
    box: dict[str, tuple[Dim | None, Dim | None]] = {}
    known = {s: d for s, d in steps.items() if isinstance(d, int)}
    for s, start in starts.items():
        last: Dim | None = None if s not in known or known[s] else start
        if known.get(s) and most is not None and dims.known(most):
            last = start + known[s] * (most - 1) if most >= 1 else start
        last = last if last is None or -LARGEST <= last <= LARGEST else None
        box[s] = (start, last) if known.get(s, 0) >= 0 else (last, start)
    # The condition is asked behind a turn, when counters are as the next turn has them.
    moves = {s: dims.symbol(s) - d if d else starts[s] for s, d in known.items()}
    for x in conditions:
        match _affine(dims.bind(x, moves), starts.keys()):
            case ({**factors}, int() as rest) if len(factors) == 1:
                ((s, factor),) = factors.items()
                low, high = box[s]
                if factor < 0 < known.get(s, 0) and not isinstance(high, int):
                    last = max(rest // -factor, starts[s])
                    box[s] = low, last if last <= LARGEST else high
                elif factor < 0 < known.get(s, 0) and isinstance(high, int):
                    box[s] = low, min(high, max(rest // -factor, starts[s]))
    return box


def _affine(x: Dim, counters: Any) -> tuple[dict[str, int], Dim] | None:
    """Return the factor of each counter in x, and the rest; None if x is more than a sum."""
    factors: dict[str, int] = {}
    rest: Dim = 0
    for monomial, factor in x.terms if isinstance(x, Sym) else (((), x),):
        one = Sym(((monomial, factor),)) if monomial else factor
        if not dims.names(one) & counters:
            rest = rest + one
        elif len(monomial) == 1 and isinstance(monomial[0], str):
            factors[monomial[0]] = factor
        else:
            return None
    return factors, rest


def _always(x: Dim, relation: str, box: Box, around: Assumption | None) -> bool:
    """Return True if ``x relation 0`` whatever the counters are."""
    affine = _affine(x, box.keys())
    if affine is None:
        return False
    ends = [_end(affine, box, most) for most in (False, True)]
    low, high = ends

    def holds(d: Dim | None, relation: str) -> bool:
        if d is None:
            return False
        if isinstance(d, int):
            return dims.RELATIONS[relation](d)
        return around is not None and around.decide(d, relation)

    match relation:
        case ">=":
            return holds(low, ">=")
        case "<":
            return holds(high, "<")
        case "!=":
            return holds(None if low is None else low - 1, ">=") or holds(high, "<")
    return low is not None and high is not None and low == high and holds(low, "==")


def _end(affine: tuple[dict[str, int], Dim], box: Box, most: bool) -> Dim | None:
    """Return the least or the largest value of a sum; None if it has none."""
    factors, total = affine
    for s, factor in factors.items():
        at = box[s][most == (factor > 0)]
        if at is None:
            return None
        total = total + factor * at
    return total


def _read_at(g: Graph, node: Node, counters: Mapping[str, Value]) -> None:
    """Replace a slice at counters by one that reads where they say."""
    for region in node.regions:
        if any(open_in(inside) & counters.keys() for inside in _every(region)):
            raise _dependent(node.op)
    if not open_in(node) & counters.keys():
        return
    op = node.op
    x = node.inputs[0]
    if not isinstance(op, Slice) or x is None or any(
        dims.names(d) & counters.keys() for d in (*x.type.shape, *op.sizes)
    ):
        raise _dependent(op)
    axes = [a for a, d in enumerate(op.starts) if dims.names(d) & counters.keys()]
    shape, steps = x.type.shape, op.steps
    fixed = Slice(
        tuple(0 if a in axes else d for a, d in enumerate(op.starts)),
        tuple(shape[a] if a in axes else d for a, d in enumerate(op.sizes)),
        tuple(1 if a in axes else d for a, d in enumerate(steps)),
    )
    y = g(fixed, x)
    for a in axes:
        at = g(Reshape((1,)), _value(g, op.starts[a], counters))
        places = g(Range(op.sizes[a], 0, steps[a], "i64"))
        y = g(Gather(a), y, g(Add(), places, g(Broadcast(places.type.shape), at)))
    g.replace(node.output, y)


def _dependent(op: Op) -> UnsupportedError:
    """Return the error for an operator in a loop whose attributes depend on the loop counter."""
    return UnsupportedError(
        f"{op.name}: attributes that depend on a loop counter are not supported; "
        "supported: starts of slices"
    )


def _every(g: Graph) -> Iterator[Node]:
    """Yield the nodes of a graph, and those in their regions."""
    for node in g.nodes:
        yield node
        for region in node.regions:
            yield from _every(region)


def _value(g: Graph, x: Dim, counters: Mapping[str, Value]) -> Value:
    """Return the value of a sum of counters, an i64."""
    affine = _affine(x, counters.keys())
    if affine is None or not isinstance(affine[1], int):
        raise UnsupportedError(
            f"slices at {x} in a loop are not supported; supported: i64 sums of its counters"
        )
    factors, rest = affine
    total = g.constant(np.int64(rest))
    for s, factor in factors.items():
        v = counters[s]
        v = v if v.type.dtype == "i64" else g(Cast("i64"), v)
        v = g(Reshape(()), v) if v.type.rank else v
        total = g(Add(), total, g(Mul(), v, g.constant(np.int64(factor))))
    return total

"""Which computed tensors are stored in few bits, and how.

It begins at the operands of layers and goes up from there.  Operators that only move or choose
elements (`TIED`) work on what is stored, if operands and result have the same scale.  These share
one scale, so that a pooling, a concatenation or a reshape rescales nothing, unless that makes steps
too coarse for a reader (`COARSER`).  In that case a concatenation rescales the operand, and an
operator of one operand reads the operand unrounded.

A sum of two branches reads its operands as they are stored, but for one that comes straight from a
layer: that is added in full precision, before rounding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.pooling import AveragePool, MaxPool
from alpenglow.quant.calibrate import Storage, calibrate
from alpenglow.quant.layers import HEAVY, Layer, Place, size, taps, varying
from alpenglow.quant.observe import ObservedRange
from alpenglow.quant.options import QuantOptions
from alpenglow.quant.profile import Profile
from alpenglow.quant.schema import Parameters, parameters, storage

TIED = (MaxPool, Reshape, Transpose, Slice, Concat, Pad)
"""Operators whose operands and results have one scale, unless their ranges differ too much."""

COARSER = 2.0
"""The most by which sharing a scale may enlarge the step of a value that is computed with."""

AVERAGES = (AveragePool, ReduceMean)
"""Operators that read what is stored and make something of a range of its own."""

ALIASES = (Reshape, Transpose, Broadcast)
"""Operators whose result has the elements of their operand."""

LEAST_WORK = 2.0
"""Multiplications for each element read or written, below which converting does not pay."""


@dataclass(frozen=True, slots=True)
class Activation:
    """A computed tensor in few bits, and the operands that read it so."""

    value: Value
    name: str
    parameters: Parameters
    readers: tuple[Place, ...]


class Activations:
    """What is stored so far, and what is tied to what."""

    def __init__(
        self, g: Graph, profile: Profile, options: QuantOptions, called: dict[Value, str]
    ) -> None:
        self.g, self.profile, self.options, self.called = g, profile, options, called
        self.moving = varying(g)
        self._readers: dict[Value, dict[Place, None]] = {}
        self._leader: dict[Value, Value] = {}
        self._tied: dict[Value, list[Value]] = {}
        self._cuts: dict[tuple[int, str], tuple[float, float]] = {}
        self._kept = {n for n in g.nodes if n.op.name in options.keep
                      or any(called[v] in options.keep for v in n.results)}  # fmt: skip

    def obstacle(self, layer: Layer) -> str:
        """Return why operands of a layer cannot be stored, or it does not pay; "" if it does."""
        out = moved = size(layer.node.output.type)
        for _, v in layer.computed:
            seen = self._seen(v)
            if seen is None:
                return "its operand is not in the profile"
            if seen.infinite:
                return f"its operand was NaN or infinite {seen.infinite} times"
            moved += size(v.type)
        work = out * taps(layer.node) / max(moved, 1)
        if work >= LEAST_WORK:
            return ""
        return f"it multiplies {work:.1f} times for each element: converting would take longer"

    def store(self, v: Value, reader: Place | None) -> None:
        """Store `v`, which `reader` reads, and what has to be stored for that."""
        waiting: list[tuple[Value, Place | None]] = [(v, reader)]
        while waiting:
            value, place = waiting.pop()
            new = value not in self._readers
            places = self._readers.setdefault(value, {})
            if place is not None:
                places[place] = None
            if new:
                waiting += self._above(value)

    def store_outputs(self) -> None:
        """Store the outputs of the graph, as far as they can be."""
        for v in self.g.callers_outputs().values():
            if self._storable(v):
                self.store(v, None)

    def made(self) -> tuple[Activation, ...]:
        """Return all that is stored, with scales and zero points."""
        groups: dict[Value, list[Value]] = defaultdict(list)
        for v in self._readers:
            groups[self._led(v)].append(v)
        by_leader = {leader: self._shared(members) for leader, members in groups.items()}
        return tuple(
            Activation(v, self.called[v], by_leader[self._led(v)], tuple(places))
            for v, places in self._readers.items()
        )

    def mean(self, v: Value) -> float:
        """Return the mean of what was seen of a value."""
        seen = self._seen(v)
        return 0.0 if seen is None else seen.mean

    def _seen(self, v: Value) -> ObservedRange | None:
        """Return what was seen of a value; movements have the range of what they move."""
        return self.profile.ranges.get(self.called.get(unmoved(v), ""))

    def _storable(self, v: Value | None) -> bool:
        """Whether a value is computed, a float, and always finite."""
        if v is None or v not in self.moving or v.type.dtype != "f32":
            return False
        seen = self._seen(v)
        return seen is not None and not seen.infinite

    def _above(self, v: Value) -> Iterator[tuple[Value, Place]]:
        """Yield what should be stored because `v` is, and the operands that read it."""
        node = v.producer
        if node is None or node in self._kept:
            return
        operands = [(x, (node, i)) for i, x in enumerate(node.inputs)
                    if x is not None and x in self.moving]  # fmt: skip
        if isinstance(node.op, TIED) and _keeps_range(node.op):
            if len(operands) == len(node.inputs) and all(self._storable(x) for x, _ in operands):
                for x, place in operands:
                    if self._tie(x, v) or isinstance(node.op, Concat):
                        yield x, place
        elif isinstance(node.op, AVERAGES):
            yield from ((x, place) for x, place in operands if self._storable(x))
        else:
            yield from self._branches(v)

    def _branches(self, v: Value) -> Iterator[tuple[Value, Place]]:
        """Yield the operands of the sum of two branches behind `v`, but for one from a layer."""
        node = v.producer
        while node is not None and _is_activation(node):
            (x,) = node.inputs
            assert x is not None, "its operand is required"
            if self.g.users(x) != 1:
                return
            node = x.producer
        if node is None or not isinstance(node.op, Add) or node in self._kept:
            return
        pairs = [(x, (node, i)) for i, x in enumerate(node.inputs) if x is not None]
        if len({x for x, _ in pairs}) != 2 or not all(self._storable(x) for x, _ in pairs):
            return
        straight = [pair for pair in pairs if self._straight(pair[0])]
        # The later one is the one that the sum is computed with.
        yield from (pair for pair in pairs if not straight or pair is not straight[-1])

    def _straight(self, v: Value) -> bool:
        """Whether `v` is a layer's result, with its bias, that nobody else reads."""
        node = v.producer
        if self.g.users(v) != 1 or node is None:
            return False
        if isinstance(node.op, Add):
            inner = [x for x in node.inputs if x in self.moving]
            if len(inner) != 1 or inner[0] is None or self.g.users(inner[0]) != 1:
                return False
            node = inner[0].producer
        return node is not None and isinstance(node.op, HEAVY)

    def _tie(self, x: Value, v: Value) -> bool:
        """Give x, v and all that is tied to them one scale; return False if it is too coarse."""
        inner, outer = self._led(x), self._led(v)
        if inner is outer:
            return True
        members = [*self._tied.get(inner, [inner]), *self._tied.get(outer, [outer])]
        step = self._shared(members).scale
        for m in members:
            if self._is_computed_with(m) and step > COARSER * self._shared([m]).scale:
                return False
        self._leader[inner] = outer
        self._tied[outer] = members
        return True

    def _is_computed_with(self, v: Value) -> bool:
        """Return True if v is an output, or read by more than operators that may be tied to it."""
        return any(o is v for o in self.g.outputs.values()) or any(
            not isinstance(node.op, TIED) for node in v.users
        )

    def _led(self, v: Value) -> Value:
        """Return the value that stands for all that have one scale with `v`."""
        while (up := self._leader.get(v, v)) is not v:
            v = up
        return v

    def _shared(self, members: Iterable[Value]) -> Parameters:
        """Return how values with one scale are stored: in the range that holds all of theirs."""
        ranges = {id(r): r for v in members if (r := self._seen(v)) is not None}.values()
        o = self.options
        kept = Storage(storage(min(r.low for r in ranges), o.schema, o.bits), o.schema)
        cut = [self._cut(r, kept) for r in ranges]
        return parameters(min(a for a, _ in cut), max(b for _, b in cut), kept.dtype, o.schema)

    def _cut(self, seen: ObservedRange, kept: Storage) -> tuple[float, float]:
        """Return the part of a range that is worth its steps."""
        key = id(seen), kept.dtype
        if key not in self._cuts:
            o = self.options
            self._cuts[key] = calibrate(seen, o.calibration, kept, o.percentile)
        return self._cuts[key]


def _is_activation(node: Node) -> bool:
    return isinstance(node.op, Elementwise | Relu) and len(node.inputs) == 1


def unmoved(v: Value) -> Value:
    """Return the value whose elements `v` has, before any reshapes, transposes and broadcasts."""
    while v.producer is not None and isinstance(v.producer.op, ALIASES):
        (x,) = v.producer.inputs
        assert x is not None, "movements have an operand"
        v = x
    return v


def _keeps_range(op: Op) -> bool:
    """Whether a tied operator adds nothing to the range but, perhaps, zeros."""
    return not isinstance(op, Pad) or op.mode != "constant" or op.value == 0

"""The operands of a node for converters, in formats whose models compute shapes.

If an answer depends on data, the import is cut (`presume.Needed`), and goes on when it is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.movement import head, sliced
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.shapes import common_shape
from alpenglow.ir.dims import Dim, Sym, assumed, is_open, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, INTS, Array
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.counted import NonZero, Unique
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Concat, Reshape, stretch

T = TypeVar("T")


class Resuming(Protocol):
    """An importer that finds values by name when it continues after a cut."""

    def find(self, name: str) -> Value:
        """Return a value by name."""
        ...

    def elements(self, name: str) -> Array | None:
        """Return the elements that were asked for by a name, if they are known."""
        ...


class Importing(Resuming, Protocol):
    """An importer that also knows elements of values."""

    def contents(self, v: Value) -> Array | None:
        """Return the elements of a small integer tensor, if they are known."""
        ...


class Builder(ABC):
    """A node during import: the graph to build in, and what converters of all formats build there.

    `label` is what messages call the node.
    """

    g: Graph
    label: str

    @abstractmethod
    def cut(self, v: Value, *beside: Value) -> tuple[tuple[Dim, ...], list[Value]]:
        """Return the elements of an integer value that this node computes on its way.

        The first time the import is cut here; when it comes back to the node, they are known, and
        the other values need not be computed again.
        """

    def measured(self, v: Value) -> tuple[Dim, ...]:
        """Return the elements of an integer value for which the import may be cut."""
        return self.cut(v)[0]

    def reshaped(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x in another shape; x itself if it has that."""
        return x if x.type.shape == tuple(shape) else self.g(Reshape(tuple(shape)), x)

    def within(self, v: Value, low: Dim, high: Dim, what: str) -> Value:
        """Return integers each of which must be from `low` to `high`: another ends the call.

        `what` says what they are.
        """
        if not is_open(high) and high < 0:
            return v  # there is nothing to choose from, and type rules say so
        if v.array is not None and known(low) and known(high) and _are_within(v.array, low, high):
            return v
        return self.g(InRange(low, high, f"{self.label}: {what}"), v)

    def indices(self, v: Value, extent: Dim, axis: int = 0, negative: bool = True) -> Value:
        """Return indices on an axis; negative ones, if there may be any, count from its end."""
        low = extent * -1 if negative else 0
        return self.within(v, low, extent - 1, f"an index on axis {axis}")

    def tuples(
        self, v: Value, extents: Sequence[Dim], first: int = 0, negative: bool = True
    ) -> Value:
        """Return indices on the axes from `first` on, a row of `v` each."""
        if len(extents) == 1:
            return self.indices(v, extents[0], first, negative)
        if len(set(extents)) == 1:
            low = extents[0] * -1 if negative else 0
            return self.within(v, low, extents[0] - 1, "an index")
        last = v.type.rank - 1
        ranged = [
            self.indices(sliced(self.g, v, last, i, 1), extent, first + i, negative)
            for i, extent in enumerate(extents)
        ]
        return self.g(Concat(last), *ranged)

    def places(self, x: Value) -> Value:
        """Return the coordinates of the elements that are not 0, a column each."""
        coordinates, count = self.g.add(NonZero(), [x]).results
        (n,), (coordinates,) = self.cut(count, coordinates)
        return head(self.g, coordinates, n)

    def kinds(
        self, x: Value, axis: int, in_order: bool, keys: Value | None = None
    ) -> tuple[Value, Value, Value, Value]:
        """Return the slices that differ, where each is first, which one each is, and counts.

        `keys` has a row for each slice, by which slices are compared instead.
        """
        op, compared = (Unique(axis, in_order), x) if keys is None else (Unique(0, in_order), keys)
        leaders, kinds, counts, count = self.g.add(op, [compared]).results
        (n,), (leaders, kinds, counts) = self.cut(count, leaders, kinds, counts)
        leaders, counts = head(self.g, leaders, n), head(self.g, counts, n)
        return self.g(Gather(axis), x, leaders), leaders, kinds, counts


class Operands(Builder):
    """The operands of one node during import, and the graph to build in."""

    operand: ClassVar[str] = "operand"
    """The word for an operand in messages."""

    def __init__(
        self, g: Graph, kind: str, label: str, names: Sequence[str], results: Sequence[str],
        importer: Importing,
    ) -> None:  # fmt: skip
        """Begin with names of operands, "" for one that is absent, and of results.

        `kind` is the operator, and `label` what messages call the node.
        """
        self.g, self.kind, self.label = g, kind, label
        self.inputs = [importer.find(n) if n else None for n in names]
        self._names, self._results, self._importer = names, results, importer
        self._measures = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def required(self, count: int | None = None) -> list[Value]:
        """Return all operands; raise ModelError if one is absent, or there are not `count`."""
        if count not in (None, len(self)):
            raise ModelError(f"{self.kind} has {len(self)} {self.operand}s, expected {count}")
        return [self.input(i) for i in range(len(self.inputs))]

    def input(self, i: int) -> Value:
        """Return operand i; raise ModelError if it is absent."""
        v = self.optional(i)
        if v is None:
            raise self.wrong(f"{self.operand} {i} is missing")
        return v

    def optional(self, i: int) -> Value | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def dims(self, i: int) -> tuple[Dim, ...]:
        """Return the elements of integer operand i, as numbers or symbols."""
        v = self.input(i)
        if v.type.dtype not in INTS:
            raise self.wrong(f"{self.operand} {i} is {v.type}, expected integers")
        elements = self._importer.contents(v) if v.array is None else v.array
        if elements is None:
            raise Needed(self._names[i], v)
        return tuple(elements.reshape(-1).tolist())

    def amounts(self, i: int) -> tuple[Dim, ...]:
        """Return the elements of integer operand i, as numbers or sums of symbols."""
        elements = self.dims(i)
        if not all(map(known, elements)):
            raise Needed(self._names[i], self.input(i))
        return elements

    def ints(self, i: int) -> tuple[int, ...]:
        """Return the elements of integer operand i as numbers, whatever they depend on."""
        elements = self.dims(i)
        if assumed() is None and not all(isinstance(d, int) for d in elements):
            raise Needed(self._names[i], self.input(i))
        return tuple(int(d) for d in elements)

    def constant(self, i: int) -> Array:
        """Return all of operand i, whatever it depends on."""
        v = self.input(i)
        if v.array is not None:
            return v.array
        elements = self._importer.contents(v)
        if elements is None or (
            assumed() is None and any(isinstance(d, Sym) for d in elements.flat)
        ):
            raise Needed(self._names[i], v)
        return np.array([int(d) for d in elements.flat], v.type.numpy).reshape(elements.shape)

    def cut(self, v: Value, *beside: Value) -> tuple[tuple[Dim, ...], list[Value]]:
        self._measures += 1
        first = next(filter(None, self._results), self.label)
        return cut(f"{first}#{self._measures - 1}", v, beside, self._importer)

    def single(self, i: int, elements: Sequence[T]) -> T:
        """Return the only element of operand i."""
        if len(elements) != 1:
            raise self.wrong(f"{self.operand} {i} has {len(elements)} elements, expected one")
        return elements[0]

    def scalar(self, i: int) -> Value:
        """Return operand i, which has one element, as a scalar."""
        return self.reshaped(self.input(i), ())

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front; raise ModelError if there is none."""
        if not -rank <= axis < rank:
            raise self.wrong(f"axis is {axis}, expected at least {-rank} and less than {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Return axes counted from the front, in order, each once."""
        return tuple(sorted({self.axis(a, rank) for a in axes}))

    def broadcast(self, *values: Value) -> list[Value]:
        """Stretch values to their common shape, as NumPy does."""
        if len(values) < 2:
            return list(values)
        shape = common_shape(self.kind, [v.type.shape for v in values])
        return [stretch(self.g, v, shape) for v in values]

    def batched(self, *matrices: Value) -> list[Value]:
        """Stretch all axes of matrices but the last two to their common shape."""
        batch = common_shape(self.kind, [v.type.shape[:-2] for v in matrices])
        return [stretch(self.g, v, (*batch, *v.type.shape[-2:])) for v in matrices]

    def apply(self, op: Op, *values: Value) -> Value:
        """Apply an elementwise operator to values that broadcast to each other."""
        return self.g(op, *self.broadcast(*values))

    def cast(self, x: Value, dtype: str) -> Value:
        """Return x in another element type; x itself if it has that."""
        return x if x.type.dtype == dtype else self.g(Cast(dtype), x)

    def filled(self, number: Any, like: Value) -> Value:
        """Return a tensor of a value's type, each element the number."""
        return self.full(number, like.type.dtype, like.type.shape)

    def full(self, number: Any, dtype: str, shape: Sequence[Dim]) -> Value:
        """Return a tensor each element of which is the number."""
        constant = self.g.constant(np.asarray(number, DTYPES[dtype]))
        return stretch(self.g, constant, tuple(shape))

    def wrong(self, what: str, hint: str = "") -> ModelError:
        """Return the error for an operator that breaks a rule of its format."""
        return ModelError(f"{self.kind}: {what}", hint=hint)

    def refuse(self, what: str, hint: str = "") -> UnsupportedError:
        """Return the error for a feature of this operator that is not supported."""
        return UnsupportedError(f"{self.kind}: {what}", hint=hint)


def cut(
    name: str, v: Value, beside: Sequence[Value], importer: Resuming | None
) -> tuple[tuple[Dim, ...], list[Value]]:
    """Return the elements of an integer value, and other values that are computed with it.

    The first time Needed is raised, by which the import is cut; afterwards they are known by name.
    """
    if v.array is not None:
        return tuple(int(d) for d in v.array.flat), list(beside)
    names = [f"{name}.{i}" for i in range(len(beside))]
    elements = None if importer is None else importer.elements(name)
    if importer is None or elements is None:
        raise Needed(name, v, dict(zip(names, beside, strict=True)))
    return tuple(elements.reshape(-1).tolist()), [importer.find(n) for n in names]


def _are_within(array: Array, low: int, high: int) -> bool:
    return not array.size or (int(array.min()) >= low and int(array.max()) <= high)

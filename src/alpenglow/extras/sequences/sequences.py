"""Sequences and optionals: building them, and joining what they hold.

A sequence is a list of tensors of one element type; an empty one has none.  An optional is its
element, or None.  Operators return new lists that share the tensors of the old.
"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import axis_of, described, integers, refuse, same_dtype, tensor
from alpenglow.ops.host.sequence import Tensors, listed, place


class SequenceEmpty(Host):
    """A sequence without elements.  ONNX SequenceEmpty."""

    def reference(self) -> Tensors:
        return []

    @classmethod
    def examples(cls) -> Examples:
        yield (cls(),)


class SequenceConstruct(Host):
    """The sequence of the operands.  ONNX SequenceConstruct."""

    def reference(self, *tensors: Array) -> Tensors:
        elements = [tensor(self, f"operand {i}", x) for i, x in enumerate(tensors)]
        same_dtype(self, elements)
        return elements

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), np.zeros(3), np.ones((2, 0)), np.array(1.0)
        yield cls(), np.array(["a", "b"], object)


class SequenceErase(Host):
    """The sequence without what is at `position`, or without its last element.

    ONNX SequenceErase.
    """

    def reference(self, sequence: Tensors, position: Array | None = None) -> Tensors:
        last = np.array(-1) if position is None else position
        i = place(self, sequence, last)
        return [*sequence[:i], *sequence[i + 1 :]]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), [np.zeros(3)]
        for i in (0, 1, -1, -2):
            yield cls(), [np.zeros(3), np.ones(2)], np.array(i)


class SequenceLength(Host):
    """The number of elements, as an i64 scalar.  ONNX SequenceLength."""

    def reference(self, sequence: Tensors) -> Array:
        return np.array(len(listed(self, sequence)))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), []
        yield cls(), [np.zeros(3), np.ones(2)]


class SplitToSequence(Host):
    """The parts of x along `axis`: of one size `split`, or of the sizes that it lists.

    With one size the last part may be smaller.  Without `split` the size is 1, and the axis goes
    unless `keepdims`.  ONNX SplitToSequence.
    """

    axis: int = 0
    keepdims: bool = True

    def reference(self, x: Array, split: Array | None = None) -> Tensors:
        x = tensor(self, "x", x)
        axis = axis_of(self, self.axis, x.ndim)
        if split is None and not self.keepdims:
            return list(np.moveaxis(x, axis, 0))
        ends = np.cumsum(self.sizes(x.shape[axis], split))
        return np.split(x, ends[:-1], axis) if ends.size else []

    def sizes(self, extent: int, split: Array | None) -> list[int]:
        """Return the extents of the parts."""
        sizes = [1] if split is None else integers(self, "split", split)
        if min(sizes, default=0) < 0:
            raise FeedError(f"{self.name}: split is {sizes}, expected sizes of at least 0")
        if split is not None and split.ndim:
            if sum(sizes) != extent:
                raise FeedError(f"{self.name}: split is {sizes}, expected sizes with sum {extent}")
            return sizes
        if not sizes[0]:
            raise FeedError(f"{self.name}: split is 0, expected a positive size")
        whole, rest = divmod(extent, sizes[0])
        return [sizes[0]] * whole + [rest] * bool(rest)

    @classmethod
    def examples(cls) -> Examples:
        x = np.arange(35).reshape(5, 7)
        yield cls(), x
        yield cls(1, False), x
        yield cls(-1), x, np.array(3)
        yield cls(0), x, np.array([4, 0, 1], np.int32)
        yield cls(0), np.zeros((0, 2))
        yield cls(0), np.zeros((0, 2)), np.array([], np.int64)


class ConcatFromSequence(Host):
    """The elements of a sequence one after the other along `axis`, or along a new one there.

    ONNX ConcatFromSequence.
    """

    axis: int
    new_axis: bool = False

    def reference(self, sequence: Tensors) -> Array:
        if not listed(self, sequence):
            raise FeedError(f"{self.name}: sequence has 0 tensors, expected at least 1")
        same_dtype(self, sequence)
        axis = axis_of(self, self.axis, sequence[0].ndim + self.new_axis)
        try:
            return (np.stack if self.new_axis else np.concatenate)(sequence, axis)
        except ValueError as error:
            types = ", ".join(map(described, sequence))
            raise FeedError(
                f"{self.name}: tensors are {types}, expected "
                + ("one shape" if self.new_axis else f"shapes that differ on axis {axis} only")
            ) from error

    @classmethod
    def examples(cls) -> Examples:
        x = np.arange(6).reshape(2, 3)
        yield cls(1), [x, x[:, :0], x]
        yield cls(-1, True), [x, x]
        yield cls(0), [np.array(["a"], object), np.array([], object)]


class OptionalConstruct(Host):
    """An optional that holds x, or an empty one without x.  ONNX Optional."""

    def reference(self, x: object = None) -> object:
        return x

    @classmethod
    def examples(cls) -> Examples:
        yield (cls(),)
        yield cls(), np.zeros(2)
        yield cls(), [np.zeros(2)]


class OptionalHasElement(Host):
    """Whether there is an element, as a bool scalar.  ONNX OptionalHasElement."""

    def reference(self, x: object = None) -> Array:
        return np.array(x is not None)

    @classmethod
    def examples(cls) -> Examples:
        yield (cls(),)
        yield cls(), None
        yield cls(), []
        yield cls(), np.zeros(2)


class OptionalGetElement(Host):
    """The element of an optional; there must be one.  ONNX OptionalGetElement."""

    def reference(self, x: object) -> object:
        if x is None:
            refuse(self, "x", x, "an optional with an element")
        return x

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), np.zeros(2)
        yield cls(), [np.zeros(2)]


class Keep(Host):
    """The operand itself, whatever it is.  ONNX Identity."""

    def reference(self, x: object) -> object:
        return x

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), None
        yield cls(), [np.zeros(2)]
        yield cls(), np.array("a", object)

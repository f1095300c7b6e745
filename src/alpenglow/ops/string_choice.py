"""Elements of tensors of strings chosen by index, by condition, or by comparing them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.demand import (
    axis_of,
    common,
    described,
    integer,
    integers,
    refuse,
    strings,
    tensor,
    text,
    within,
)

LETTERS = text("abcdef", (2, 3))


class StringGather(Host):
    """x with `axis` replaced by the shape of indices: out[a, i, b] = x[a, indices[i], b].

    ONNX Gather.
    """

    axis: int = 0

    def reference(self, x: Array, indices: Array) -> Array:
        axis = axis_of(self, self.axis, tensor(self, "x", x).ndim)
        if not isinstance(indices, np.ndarray) or indices.dtype.kind not in "iu":
            refuse(self, "indices", indices, "a tensor of integers")
        try:
            return np.asarray(x.take(indices, axis), x.dtype)
        except IndexError:
            within(self, indices, x.shape[axis])
            raise

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), LETTERS, np.array([[0, -1], [2, 1]])
        yield cls(), LETTERS, np.array(1)
        yield cls(), text([]), np.zeros((2, 0), np.int64)


class StringGatherElements(Host):
    """out[a, i, b] = x[a, indices[a, i, b], b], with `axis` in the place of i.

    ONNX GatherElements.
    """

    axis: int = 0

    def reference(self, x: Array, indices: Array) -> Array:
        return np.asarray(x[beside(self, x, indices, self.axis)])

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), LETTERS, np.array([[0, -1], [2, 1]])
        yield cls(0), LETTERS, np.array([[1, 0, 1]])


class StringGatherND(Host):
    """out[b, i] = x[b, *indices[b, i]] over `batch_dims` axes b.  ONNX GatherND."""

    batch_dims: int = 0

    def reference(self, x: Array, indices: Array) -> Array:
        return np.asarray(x[places(self, x, indices, self.batch_dims)])

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([[0, 1], [1, -1]])
        yield cls(), LETTERS, np.array([[1]])
        yield cls(1), LETTERS, np.array([[1], [0]])


class StringScatterElements(Host):
    """x, but y[a, indices[a, i, b], b] = updates[a, i, b], with `axis` in the place of i.

    ONNX ScatterElements, and Scatter before opset 11.
    """

    axis: int = 0

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        y = strings(self, "x", x).copy()
        where = beside(self, x, indices, self.axis)
        y[where] = like(self, strings(self, "updates", updates), indices.shape)
        return y

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), LETTERS, np.array([[0, -1], [2, 1]]), text("wxyz", (2, 2))


class StringScatterND(Host):
    """x, but y[*indices[i]] = updates[i].  ONNX ScatterND."""

    def reference(self, x: Array, indices: Array, updates: Array) -> Array:
        y = strings(self, "x", x).copy()
        where = places(self, x, indices, 0)
        y[where] = like(self, strings(self, "updates", updates), y[where].shape)
        return y

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([[0, 1], [1, -1]]), text("xy")
        yield cls(), LETTERS, np.array([[1]]), text("xyz", (1, 3))


class StringFeatures(Host):
    """The elements of x at `indices` of its last axis; a list of x is taken as one row.

    ONNX ArrayFeatureExtractor.
    """

    def reference(self, x: Array, indices: Array) -> Array:
        x = tensor(self, "x", x)
        if not x.ndim:
            refuse(self, "x", x, "at least one axis")
        integers(self, "indices", indices)
        found = np.take(x, within(self, indices, x.shape[-1]).reshape(-1), -1)
        return found.reshape(1, -1) if x.ndim == 1 else found

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([[2, 0]])
        yield cls(), text("abc"), np.array([1])


class StringCompress(Host):
    """The parts of x along `axis` for which condition is true; of all of x without one.

    A condition that is too short is false at the end.  ONNX Compress.
    """

    axis: int | None = None

    def reference(self, x: Array, condition: Array) -> Array:
        x = tensor(self, "x", x)
        flat = x.reshape(-1) if self.axis is None else x
        axis = axis_of(self, self.axis or 0, flat.ndim)
        truth = boolean(self, "condition", condition)
        if truth.ndim != 1 or len(truth) > flat.shape[axis]:
            refuse(self, "condition", condition, f"bool[N], N up to {flat.shape[axis]}")
        return np.compress(truth, flat, axis)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(1), LETTERS, np.array([True, False, True])
        yield cls(), LETTERS, np.array([False, True])


class StringWhere(Host):
    """x where condition is true, y elsewhere; shapes are broadcast.  ONNX Where."""

    def reference(self, condition: Array, x: Array, y: Array) -> Array:
        c, a, b = common(
            self,
            boolean(self, "condition", condition),
            strings(self, "x", x),
            strings(self, "y", y),
        )
        return np.where(c, a, b)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), np.array([[True], [False]]), LETTERS, text("x", ())


class StringEqual(Host):
    """Whether strings are the same; shapes are broadcast.  ONNX Equal."""

    def reference(self, x: Array, y: Array) -> Array:
        a, b = common(self, strings(self, "x", x), strings(self, "y", y))
        return np.asarray(a == b, bool)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, text("bbb")
        yield cls(), text("a", ()), text("a", ())


class StringNonZero(Host):
    """The positions of all strings that are not empty, one axis a row.  ONNX NonZero."""

    def reference(self, x: Array) -> Array:
        x = strings(self, "x", x)
        return np.array(np.nonzero((x != "").reshape(x.shape or (1,))), np.int64).reshape(
            max(x.ndim, 1), -1
        )[: x.ndim]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), text(["a", "", "", "b"], (2, 2))
        yield cls(), text([])


class StringOneHot(Host):
    """values[1] at the indices along a new axis of extent depth, values[0] elsewhere.

    An index that is out of range leaves its row off.  ONNX OneHot.
    """

    axis: int = -1

    def reference(self, indices: Array, depth: Array, values: Array) -> Array:
        numbers = tensor(self, "indices", indices).astype(np.int64)
        n = integer(self, "depth", tensor(self, "depth", depth).astype(np.int64))
        off, on = self.pair(values)
        axis = axis_of(self, self.axis, numbers.ndim + 1)
        hot = np.expand_dims(np.where(numbers < 0, numbers + n, numbers), -1) == np.arange(n)
        return np.moveaxis(np.where(hot, on, off).astype(object), -1, axis)

    def pair(self, values: Array) -> tuple[str, str]:
        """Return the two strings in `values`."""
        found = list(strings(self, "values", values).flat)
        if len(found) != 2:
            refuse(self, "values", values, "string[2]")
        return found[0], found[1]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), np.array([0, -1, 3]), np.array(3), text(["off", "on"])
        yield cls(0), np.array([[1], [0]]), np.array([2]), text(["off", "on"])


class StringUnique(Host):
    """The different parts of x along `axis` (or its elements), in order if `sorted`.

    Behind them where each is first, which of them each part of x is, and how often each occurs.
    ONNX Unique.
    """

    axis: int | None = None
    sorted: bool = True

    def reference(self, x: Array) -> tuple[Array, Array, Array, Array]:
        x = strings(self, "x", x)
        axis = 0 if self.axis is None else axis_of(self, self.axis, x.ndim)
        flat = x.reshape(-1) if self.axis is None else np.moveaxis(x, axis, 0)
        parts = [tuple(part.flat) if isinstance(part, np.ndarray) else (part,) for part in flat]
        first = {part: i for i, part in reversed(list(enumerate(parts)))}
        order = sorted(first) if self.sorted else sorted(first, key=first.__getitem__)
        rank = {part: i for i, part in enumerate(order)}
        where = np.array([first[part] for part in order], np.int64)
        inverse = np.array([rank[part] for part in parts], np.int64)
        counts = np.bincount(inverse, minlength=len(order)).astype(np.int64)
        return np.moveaxis(flat[where], 0, axis), where, inverse, counts

    @classmethod
    def examples(cls) -> Examples:
        x = text(["b", "a", "b", "c", "b", "c"], (3, 2))
        for axis in (None, 0, 1):
            yield cls(axis), x
        yield cls(None, False), x
        yield cls(), text([])


class StringTrilu(Host):
    """The upper (or lower) triangle of the matrices of x, with empty strings elsewhere.

    ONNX Trilu.
    """

    upper: bool = True

    def reference(self, x: Array, k: Array | None = None) -> Array:
        x = strings(self, "x", x)
        if x.ndim < 2:
            refuse(self, "x", x, "at least two axes")
        shift = 0 if k is None else integer(self, "k", k)
        rows, columns = (np.asarray(n) for n in np.indices(x.shape[-2:]))
        compare: Callable[[Array, Array], Array] = np.greater_equal if self.upper else np.less_equal
        return np.where(compare(columns, rows + shift), x, text([""], ()))

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS
        yield cls(False), LETTERS, np.array(-1)


def boolean(op: Host, what: str, value: Array) -> Array:
    """Return a value that must be a tensor of booleans."""
    if tensor(op, what, value).dtype != bool:
        refuse(op, what, value, "a tensor of booleans")
    return value


def like(op: Host, updates: Array, shape: tuple[int, ...]) -> Array:
    """Return updates; raise FeedError unless they have this shape."""
    if updates.shape != shape:
        refuse(op, "updates", updates, f"the shape {list(shape)}")
    return updates


def beside(op: Host, x: Array, indices: Array, along: int) -> tuple[Array, ...]:
    """Return the position in x of each index along an axis, at the index's own place else."""
    axis = axis_of(op, along, tensor(op, "x", x).ndim)
    integers(op, "indices", indices)
    fits = indices.ndim == x.ndim and all(
        i <= d or n == axis for n, (i, d) in enumerate(zip(indices.shape, x.shape, strict=True))
    )
    if not fits:
        raise FeedError(f"{op.name}: indices {described(indices)} do not fit {described(x)}")
    where = [np.asarray(n) for n in np.indices(indices.shape)]
    where[axis] = within(op, indices, x.shape[axis])
    return tuple(where)


def places(op: Host, x: Array, indices: Array, batch_dims: int) -> tuple[Array, ...]:
    """Return the positions in x that the last axis of indices spells, behind batch axes."""
    tensor(op, "x", x)
    integers(op, "indices", indices)
    depth = indices.shape[-1] if indices.ndim else 0
    if not indices.ndim or batch_dims + depth > x.ndim:
        raise FeedError(f"{op.name}: indices {described(indices)} do not fit {described(x)}")
    if x.shape[:batch_dims] != indices.shape[:batch_dims]:
        raise FeedError(f"{op.name}: the batches of {described(x)} and {described(indices)} differ")
    batch = [np.asarray(n) for n in np.indices(indices.shape[:-1])[:batch_dims]]
    inner = [within(op, indices[..., i], x.shape[batch_dims + i]) for i in range(depth)]
    return tuple(batch + inner)

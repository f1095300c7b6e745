"""Tensors of strings in other shapes and orders.

The operators of `alpenglow.ops.movement` are for numbers in a graph, where shapes are known when it
is built; these take any tensor at hand, with shapes and positions that are operands.
"""

from __future__ import annotations

import math

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.demand import (
    common,
    described,
    integers,
    tensor,
    text,
)

LETTERS = text("abcdef", (2, 3))


class StringShape(Host):
    """The extents of x from axis `start` up to `end`, as i64.  ONNX Shape."""

    start: int = 0
    end: int | None = None

    def reference(self, x: Array) -> Array:
        return np.array(tensor(self, "x", x).shape[self.start : self.end], np.int64)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS
        yield cls(-1), LETTERS
        yield cls(0, -1), text([])


class StringSize(Host):
    """The number of elements of x, as an i64 scalar.  ONNX Size."""

    def reference(self, x: Array) -> Array:
        return np.array(tensor(self, "x", x).size)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS


class StringReshape(Host):
    """x in another shape; -1 stands for what is left, and 0 keeps an extent unless `zero`.

    ONNX Reshape, where the shape is an attribute in the first opset.
    """

    zero: bool = False
    fixed: tuple[int, ...] = ()

    def reference(self, x: Array, shape: Array | None = None) -> Array:
        x = tensor(self, "x", x)
        wanted = list(self.fixed) if shape is None else integers(self, "shape", shape)
        if not self.zero and any(d == 0 for d in wanted[x.ndim :]):
            raise FeedError(f"{self.name}: shape {wanted} keeps an axis that {described(x)} lacks")
        kept = [x.shape[i] if d == 0 and not self.zero else d for i, d in enumerate(wanted)]
        try:
            return x.reshape(kept)
        except ValueError as error:
            raise FeedError(f"{self.name}: {described(x)} does not fill {wanted}") from error

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS, np.array([3, -1])
        yield cls(), LETTERS, np.array([0, 3, 1])
        yield cls(False, (6,)), LETTERS
        yield cls(True), text([], (0, 2)), np.array([0, 5])


class StringFlatten(Host):
    """x as a matrix, whose rows are its axes before `axis`.  ONNX Flatten."""

    axis: int = 1

    def reference(self, x: Array) -> Array:
        x = tensor(self, "x", x)
        if not -x.ndim <= self.axis <= x.ndim:
            raise FeedError(f"{self.name}: axis {self.axis} is not in {described(x)}")
        axis = self.axis + x.ndim * (self.axis < 0)
        return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))

    @classmethod
    def examples(cls) -> Examples:
        for axis in (0, 1, 2, -1):
            yield cls(axis), LETTERS


class StringSqueeze(Host):
    """x without axes of extent 1, all of them if none are named.  ONNX Squeeze."""

    fixed: tuple[int, ...] | None = None

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        x = tensor(self, "x", x)
        named = self.fixed if axes is None else tuple(integers(self, "axes", axes))
        try:
            return np.squeeze(x, named)
        except ValueError as error:
            raise FeedError(f"{self.name}: axes {named} of {described(x)}: {error}") from error

    @classmethod
    def examples(cls) -> Examples:
        x = text("ab", (1, 2, 1))
        yield cls(), x
        yield cls((0,)), x
        yield cls(), x, np.array([-1, 0])


class StringUnsqueeze(Host):
    """x with axes of extent 1 that stand at `axes` of the result.  ONNX Unsqueeze."""

    fixed: tuple[int, ...] = ()

    def reference(self, x: Array, axes: Array | None = None) -> Array:
        x = tensor(self, "x", x)
        named = self.fixed if axes is None else tuple(integers(self, "axes", axes))
        try:
            return np.expand_dims(x, named)
        except ValueError as error:
            raise FeedError(f"{self.name}: axes {named} for {described(x)}: {error}") from error

    @classmethod
    def examples(cls) -> Examples:
        yield cls((0, 2)), text("ab")
        yield cls(), text("ab"), np.array([-1])


class StringTranspose(Host):
    """x with its axes in the order `perm`, or reversed.  ONNX Transpose."""

    perm: tuple[int, ...] | None = None

    def reference(self, x: Array) -> Array:
        x = tensor(self, "x", x)
        if self.perm is not None and sorted(self.perm) != list(range(x.ndim)):
            raise FeedError(f"{self.name}: perm {self.perm} does not order {described(x)}")
        return np.transpose(x, self.perm)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), LETTERS
        yield cls((1, 0, 2)), LETTERS.reshape(1, 2, 3)


class StringExpand(Host):
    """x repeated along axes of extent 1, up to the common shape with `shape`.  ONNX Expand."""

    def reference(self, x: Array, shape: Array) -> Array:
        x = tensor(self, "x", x)
        wanted = integers(self, "shape", shape)
        if min(wanted, default=0) < 0:
            raise FeedError(f"{self.name}: shape {wanted} has negative extents")
        try:
            stretched = np.broadcast_to(np.int8(0), wanted)
        except ValueError as error:
            raise FeedError(f"{self.name}: shape {wanted}: {error}") from error
        return common(self, x, stretched)[0]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), text("ab", (2, 1)), np.array([3, 1, 4])
        yield cls(), text("a", ()), np.array([0])


class StringDepthToSpace(Host):
    """Channels of x[N, C, H, W] become blocks of its image; `mode` is DCR or CRD.

    ONNX DepthToSpace.
    """

    size: int
    mode: str = "DCR"

    def reference(self, x: Array) -> Array:
        n, c, h, w = image_of(self, x)
        s = self.size
        if c % (s * s):
            raise FeedError(
                f"{self.name}: {described(x)} has channels that {s * s} does not divide"
            )
        if self.mode == "DCR":
            split = x.reshape(n, s, s, -1, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            split = x.reshape(n, -1, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
        return split.reshape(n, c // (s * s), h * s, w * s)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(2), text("abcdefghijklmnop", (1, 8, 1, 2))
        yield cls(2, "CRD"), text("abcdefghijklmnop", (1, 8, 1, 2))


class StringSpaceToDepth(Host):
    """Blocks of the image of x[N, C, H, W] become channels.  ONNX SpaceToDepth."""

    size: int

    def reference(self, x: Array) -> Array:
        n, c, h, w = image_of(self, x)
        s = self.size
        if h % s or w % s:
            raise FeedError(f"{self.name}: {described(x)} has extents that {s} does not divide")
        split = x.reshape(n, c, h // s, s, w // s, s).transpose(0, 3, 5, 1, 2, 4)
        return split.reshape(n, c * s * s, h // s, w // s)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(2), text("abcdefgh", (1, 1, 2, 4))


def image_of(op: Host, x: Array) -> tuple[int, int, int, int]:
    """Return the extents of x[N, C, H, W]; raise FeedError unless it has four axes."""
    if tensor(op, "x", x).ndim != 4:
        raise FeedError(f"{op.name}: x is {described(x)}, expected four axes")
    n, c, h, w = x.shape
    return n, c, h, w

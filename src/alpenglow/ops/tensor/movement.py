"""Operators that move elements without computing: reshape, transpose, slice, concat, pad, …"""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.layout import ROW_MAJOR, Layout
from alpenglow.ir.op import (
    Examples,
    Primitive,
    changed_along,
    check_choice,
    check_rank,
    normal_axis,
)
from alpenglow.ir.types import ALL, Array, TensorType, holds


class Reshape(Primitive):
    """The elements of x in the same row-major order, in another shape.  ONNX Reshape.

    If x is in another layout, they are the elements of its shape, padding included.
    """

    moves = True
    layouts = "first"

    shape: tuple[Dim, ...]

    def infer(self, x: TensorType) -> TensorType:
        before, after = product(x.shape), product(self.shape)
        if known(before) and known(after) and before != after:
            raise TypeRuleError(
                f"reshape: shape {self.shape} has {after} elements, expected {before} as {x}"
            )
        return x.with_shape(self.shape)

    def reference(self, x: Array) -> Array:
        return x.reshape([d for d in self.shape if known(d)])

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(Reshape(x.type.shape), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 2)), "f32[2,3]"
        yield cls((6,)), "f32[2,1,3]"
        yield cls(()), "f32[1,1]"
        yield cls((0, 4)), "f32[2,0]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((3, 1, 2)), f"{dtype}[2,3]"


class Transpose(Primitive):
    """The axes of x permuted: out.shape[i] = x.shape[perm[i]].  ONNX Transpose."""

    moves = True

    perm: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        if sorted(self.perm) != list(range(x.rank)):
            raise TypeRuleError(
                f"transpose: perm is {self.perm}, expected each axis of {x} once, counted from 0"
            )
        return x.with_shape(x.shape[p] for p in self.perm)

    def reference(self, x: Array) -> Array:
        return x.transpose(self.perm)

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(Transpose(tuple(self.perm.index(i) for i in range(x.type.rank))), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 0)), "f32[2,3]"
        yield cls((0, 2, 3, 1)), "f32[2,3,4,17]"
        yield cls((2, 0, 1)), "f32[2,0,4]"
        yield cls(()), "f32[]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((2, 0, 1)), f"{dtype}[2,3,4]"


class Broadcast(Primitive):
    """x repeated along axes of extent 1 and along new leading axes.  ONNX Expand; implicit
    broadcasting is made explicit with it on import.

    The result is in `layout`, and x is in row-major order or in `layout`, too.
    """

    moves = True
    layouts = "all"

    shape: tuple[Dim, ...]
    layout: Layout = ROW_MAJOR

    def infer(self, x: TensorType) -> TensorType:
        tail = self.shape[len(self.shape) - x.rank :]
        fits = x.rank <= len(self.shape) and all(
            a in (1, b) for a, b in zip(x.shape, tail, strict=True)
        )
        if not fits or not (x.is_plain or x.layout == self.layout):
            wanted = TensorType(x.dtype, self.shape, self.layout)
            raise TypeRuleError(f"broadcast: x is {x}, expected a type that broadcasts to {wanted}")
        return TensorType(x.dtype, self.shape, self.layout)

    def reference(self, x: Array) -> Array:
        return np.broadcast_to(x, [d for d in self.shape if known(d)])

    @classmethod
    def examples(cls) -> Examples:
        yield cls((4, 3)), "f32[3]"
        yield cls((4, 3)), "f32[4,1]"
        yield cls((2, 17, 5)), "f32[1,17,1]"
        yield cls((2, 3)), "f32[]"
        yield cls((0, 3)), "f32[1,3]"
        t = TensorType.parse("f32[2,20/16,3,16]")
        yield cls(t.shape, t.layout), "f32[1,20/16,1,16]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((3, 2, 5)), f"{dtype}[2,1]"


def stretch(b: Graph, x: Value, shape: tuple[Dim, ...], layout: Layout = ROW_MAJOR) -> Value:
    """Return x broadcast to `shape`; x itself if it has that shape."""
    return x if x.type.shape == shape else b(Broadcast(shape, layout), x)


def unstretched(v: Value) -> Value:
    """Return the value that v is a broadcast of; v itself if it is none."""
    while v.producer is not None and isinstance(v.producer.op, Broadcast):
        (source,) = v.producer.inputs
        assert source is not None, "what is stretched is there"
        v = source
    return v


def append_axes(b: Graph, x: Value, count: int) -> Value:
    """Return x with so many axes of extent 1 behind its own; x itself if there are none."""
    return b(Reshape((*x.type.shape, *[1] * count)), x) if count else x


class Slice(Primitive):
    """`sizes[i]` elements of axis i from `starts[i]` on, `steps[i]` (maybe negative) apart."""

    moves = True
    layouts = "all"

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        lists = (self.starts, self.sizes, self.steps)
        if any(len(g) != x.rank for g in lists) or 0 in self.steps:
            raise TypeRuleError(
                f"slice: starts, sizes and steps are {lists}, expected one each for each axis of "
                f"{x}, steps other than 0"
            )
        for start, size, step, extent in zip(*lists, x.shape, strict=True):
            if known(size) and size < 0:
                raise TypeRuleError(f"slice: size is {size}, expected 0 or more")
            last = start + (size - 1) * step
            inside = all(
                not known(at) or not known(extent) or 0 <= at < extent for at in (start, last)
            )
            if size != 0 and not inside:
                raise TypeRuleError(
                    f"slice: start {start}, size {size} and step {step} read {start} to {last}, "
                    f"expected at least 0 and below {extent}"
                )
        cut = (i for i, d in enumerate(x.shape) if self.sizes[i] != d or self.steps[i] != 1)
        return changed_along(self, x, cut, self.sizes)

    def reference(self, x: Array) -> Array:
        return x[tuple(_indices(a, n, s) for a, n, s in
                       zip(self.starts, self.sizes, self.steps, strict=True))]  # fmt: skip

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        """Put the elements back, with zeros between and around them."""
        starts = list(self.starts)
        for axis, (step, size) in enumerate(zip(self.steps, self.sizes, strict=True)):
            if step < 0:
                dy = b(_reversed(dy.type, axis), dy)
                starts[axis] = starts[axis] + (size - 1) * step
            if abs(step) > 1:
                shape = dy.type.shape
                apart = b(Reshape((*shape[: axis + 1], 1, *shape[axis + 1 :])), dy)
                after = tuple(abs(step) - 1 if i == axis + 1 else 0 for i in range(len(shape) + 1))
                spread = b(Pad((0,) * len(after), after), apart)
                dy = b(Reshape((*shape[:axis], size * abs(step), *shape[axis + 1 :])), spread)
        for axis, extent in enumerate(x.type.shape):
            dy = _placed(b, dy, axis, starts[axis], extent)
        return dy

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 0), (2, 3), (1, 1)), "f32[4,3]"
        yield cls((3, 1), (2, 2), (-2, 1)), "f32[4,3]"
        yield cls((0, 5), (2, 3), (1, -2)), "f32[2,6]"
        yield cls((0, 0), (0, 3), (1, 1)), "f32[4,3]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((1, 0), (2, 2), (1, 2)), f"{dtype}[4,3]"


def _indices(start: Dim, size: Dim, step: int) -> slice:
    assert known(start) and known(size)
    if size == 0:
        return slice(0, 0)
    stop = start + size * step
    return slice(start, stop if stop >= 0 else None, step)


def _reversed(t: TensorType, axis: int) -> Slice:
    """Return the slice that reverses a tensor of type t along one axis."""
    starts = tuple(d - 1 if i == axis and d != 0 else 0 for i, d in enumerate(t.shape))
    return Slice(starts, t.shape, tuple(-1 if i == axis else 1 for i in range(t.rank)))


def _placed(b: Graph, x: Value, axis: int, start: Dim, extent: Dim) -> Value:
    """Return zeros of `extent` along `axis`, with what fits of x from `start` on."""
    after = extent - start - x.type.shape[axis]
    if isinstance(start, int) and isinstance(after, int):
        if start == after == 0:
            return x
        axes = range(x.type.rank)
        before = tuple(start if i == axis else 0 for i in axes)
        return b(Pad(before, tuple(after if i == axis else 0 for i in axes)), x)
    parts = [x]
    for i, n in ((0, start), (2, after)):
        if n != 0:
            shape = tuple(n if k == axis else d for k, d in enumerate(x.type.shape))
            parts.insert(i, b(Broadcast(shape), b.constant(np.zeros((), x.type.numpy))))
    return b(Concat(axis), *parts)


class Concat(Primitive):
    """The operands one after the other along `axis`.  ONNX Concat."""

    moves = True
    layouts = "all"

    axis: int

    def infer(self, *xs: TensorType) -> TensorType:
        if not xs:
            raise TypeRuleError("concat: 0 operands given, expected at least one operand")
        axis = normal_axis(self, self.axis, xs[0].rank)
        first = _without(xs[0].shape, axis)
        for x in xs:
            if x.dtype != xs[0].dtype or _without(x.shape, axis) != first:
                raise TypeRuleError(
                    f"concat: an operand is {x}, expected {xs[0]} except on axis {axis}"
                )
        total: Dim = 0
        for x in xs:
            total = total + x.shape[axis]
        shape = tuple(total if i == axis else d for i, d in enumerate(xs[0].shape))
        layout = xs[0].layout
        if not all(x.is_plain for x in xs):
            for x in xs[1:]:
                layout = layout.joined(x.layout, x.shape, axis)
        return TensorType(xs[0].dtype, shape, layout)

    def reference(self, *xs: Array) -> Array:
        return np.concatenate(xs, axis=self.axis)

    def gradient(self, b: Graph, dy: Value, *xs: Value) -> list[Value]:
        axis, parts = self.axis % dy.type.rank, []
        start: Dim = 0
        for x in xs:
            starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
            parts.append(b(Slice(starts, x.type.shape, (1,) * x.type.rank), dy))
            start = start + x.type.shape[axis]
        return parts

    @classmethod
    def examples(cls) -> Examples:
        yield cls(0), "f32[2,3]", "f32[4,3]"
        yield cls(-1), "f32[2,3]", "f32[2,1]", "f32[2,5]"
        yield cls(1), "f32[2,3,2]", "f32[2,0,2]"
        yield cls(0), "f32[5]"
        yield cls(1), "f32[1,16/16,3,3,16]", "f32[1,20/16,3,3,16]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(1), f"{dtype}[2,3]", f"{dtype}[2,4]"


def _without(shape: tuple[Dim, ...], axis: int) -> tuple[Dim, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


class Pad(Primitive):
    """x with `before[i]` and `after[i]` elements more on axis i (fewer where negative).

    `mode` is constant (filled with `value`), reflect, edge or wrap; the last three allow no
    negative amounts.  Reflection goes as far as the other end, wrapping round again.  ONNX Pad.
    """

    moves = True
    layouts = "all"

    before: tuple[int, ...]
    after: tuple[int, ...]
    mode: str = "constant"
    value: float = 0.0

    def infer(self, x: TensorType) -> TensorType:
        if len(self.before) != x.rank or len(self.after) != x.rank:
            raise TypeRuleError(
                f"pad: before is {self.before} and after {self.after}, expected an amount for each "
                f"axis of {x}"
            )
        check_choice(self, ("constant", "reflect", "edge", "wrap"), mode=self.mode)
        if self.mode == "constant" and not holds(x.dtype, self.value):
            raise TypeRuleError(f"pad: value is {self.value}, expected a value of {x.dtype}")
        out = []
        for d, a, b in zip(x.shape, self.before, self.after, strict=True):
            if self.mode != "constant" and min(a, b) < 0:
                raise TypeRuleError(
                    f"pad: an amount is {min(a, b)}, expected 0 or more with mode '{self.mode}'"
                )
            if self.mode != "constant" and d == 0 and (a or b):
                raise TypeRuleError(
                    f"pad: x is {x}, expected an element to repeat with mode '{self.mode}'"
                )
            if self.mode == "reflect" and known(d) and max(a, b) > max(d - 1, 0):
                raise TypeRuleError(
                    f"pad: an amount is {max(a, b)} with mode 'reflect', expected less than {d}"
                )
            extent = d + a + b
            if known(extent) and extent < 0:
                raise TypeRuleError(f"pad: amounts are {a} and {b}, expected at least {-d} in sum")
            out.append(extent)
        axes = (i for i in range(x.rank) if self.before[i] or self.after[i])
        return changed_along(self, x, axes, out)

    def reference(self, x: Array) -> Array:
        cut = tuple(
            slice(max(-a, 0), max(d - max(-b, 0), 0))
            for d, a, b in zip(x.shape, self.before, self.after, strict=True)
        )
        # A cut of more than the axis leaves some of the padding of the other side.
        lost = [min(d + min(a, 0) + min(b, 0), 0)
                for d, a, b in zip(x.shape, self.before, self.after, strict=True)]  # fmt: skip
        amounts = [(max(a, 0), max(b, 0)) for a, b in zip(self.before, self.after, strict=True)]
        if self.mode == "constant":
            full = np.pad(x[cut], amounts, constant_values=np.asarray(self.value).astype(x.dtype))
            return full[tuple(slice(0, n + k) for n, k in zip(full.shape, lost, strict=True))]
        return np.pad(x, amounts, mode=self.mode)  # type: ignore[call-overload, no-any-return]

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 2), (0, 3)), "f32[3,4]"
        yield cls((0, -1), (2, -1), value=2.5), "f32[3,4]"
        yield cls((1, 2), (2, 3), "reflect"), "f32[3,4]"
        yield cls((1, 2), (2, 0), "edge"), "f32[3,4]"
        yield cls((1, 2), (2, 4), "wrap"), "f32[3,4]"
        yield cls((7, 0), (3, 45), "wrap"), "f32[3,4]"
        yield cls((0, 0, 1, 1, 0), (0, 0, 1, 0, 0)), "f32[1,17/16,3,3,16]"
        yield cls((1, 1), (0, 0)), "f32[0,4]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((1, 0), (0, 2), value=1), f"{dtype}[2,3]"


class Trilu(Primitive):
    """The last two axes of x on and above (`upper`) or below diagonal `k`, zeros elsewhere.

    k > 0 is above the main diagonal.  ONNX Trilu.
    """

    k: int = 0
    upper: bool = True

    def infer(self, x: TensorType) -> TensorType:
        check_rank(self, "x", x, 2)
        return x.with_shape(x.shape)

    def reference(self, x: Array) -> Array:
        rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
        kept = columns - rows >= self.k if self.upper else columns - rows <= self.k
        return np.where(kept, x, np.zeros((), x.dtype))

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(self, dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[5,4]"
        yield cls(1), "f32[2,3,17]"
        yield cls(-2, False), "f32[4,5]"
        yield cls(9), "f32[2,2]"
        yield cls(), "f32[0,3]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls(0, False), f"{dtype}[2,3]"

"""The transposed convolution, and what it is made of: phases of a finer image, side by side."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, known, product
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Composite, Examples, Primitive, changed_along, check_dtype, check_rank
from alpenglow.ir.types import ALL, FLOATS, Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose, stretch


class Dilate(Primitive):
    """x with `steps[i] - 1` zeros between neighbours on axis i."""

    layouts = "all"

    steps: tuple[int, ...]

    def infer(self, x: TensorType) -> TensorType:
        if len(self.steps) != x.rank or min(self.steps, default=1) < 1:
            raise TypeRuleError(f"dilate: steps is {self.steps}, expected 1 or more by axis of {x}")
        shape = tuple(
            d if s == 1 or d == 0 else (d - 1) * s + 1
            for d, s in zip(x.shape, self.steps, strict=True)
        )
        axes = (i for i, s in enumerate(self.steps) if s != 1)
        return changed_along(self, x, axes, shape)

    def reference(self, x: Array) -> Array:
        shape = [max((d - 1) * s + 1, 0) for d, s in zip(x.shape, self.steps, strict=True)]
        out = np.zeros(shape, x.dtype)
        out[tuple(slice(None, None, s) for s in self.steps)] = x
        return out

    def gradient(self, b: Graph, dy: Value, x: Value) -> Value:
        return b(Slice((0,) * x.type.rank, x.type.shape, self.steps), dy)

    @classmethod
    def examples(cls) -> Examples:
        yield cls((1, 1, 2, 3)), "f32[2,3,4,5]"
        yield cls((2,)), "f32[1]"
        yield cls((1, 3)), "f32[4,0]"
        yield cls(()), "f32[]"
        yield cls((1, 1, 2, 1)), "f32[1,20/16,3,16]"
        for dtype in sorted(ALL - {"f32"}):
            yield cls((1, 2)), f"{dtype}[2,3]"


class ConvTranspose(Composite):
    """What Conv with these attributes and w does to gradients: x[N, C, …] with w[C, O/group, …].

    Each element of x adds a multiple of the window w to the result, `strides` apart; of that,
    `pads` is cut off, and `output_padding` is added at the end.  ONNX ConvTranspose.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    group: int = 1

    def infer(self, x: TensorType, w: TensorType, bias: TensorType | None = None) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 3)
        check_rank(self, "w", w, x.rank, x.rank)
        if w.dtype != x.dtype or (bias is not None and bias.dtype != x.dtype):
            raise TypeRuleError(
                f"conv_transpose: x is {x}, w {w} and bias {bias}, expected one dtype"
            )
        n, spatial = x.shape[0], x.rank - 2
        lists = (("strides", self.strides, spatial), ("pads", self.pads, 2 * spatial),
                 ("dilations", self.dilations, spatial),
                 ("output_padding", self.output_padding, spatial))  # fmt: skip
        for what, numbers, count in lists:
            if len(numbers) != count:
                raise TypeRuleError(
                    f"conv_transpose: {len(numbers)} {what} given, expected {count} for {x}"
                )
        if min(*self.strides, *self.dilations, self.group) < 1:
            raise TypeRuleError(
                f"conv_transpose: strides are {self.strides}, dilations {self.dilations} and group "
                f"{self.group}, expected 1 or more"
            )
        if x.shape[1] != w.shape[0]:
            raise TypeRuleError(
                f"conv_transpose: input has {x.shape[1]} channels but weights expect {w.shape[0]} "
                f"({x} with {w})",
                hint="the layout may be NHWC; transpose it to NCHW",
            )
        if known(w.shape[0]) and w.shape[0] % self.group:
            raise TypeRuleError(
                f"conv_transpose: x is {x}, expected channels in {self.group} equal groups"
            )
        outputs = w.shape[1] * self.group
        if bias is not None and bias.shape != (outputs,):
            raise TypeRuleError(f"conv_transpose: bias is {bias}, expected shape ({outputs},)")
        out = [self._extent(i, x.shape[2 + i], w.shape[2 + i]) for i in range(spatial)]
        return x.with_shape((n, outputs, *out))

    def _extent(self, i: int, extent: Dim, kernel: Dim) -> Dim:
        if not known(kernel) or kernel < 1:
            raise TypeRuleError(f"conv_transpose: window is {kernel} wide, expected 1 or more")
        out = self._reach(i, extent, kernel)
        if extent == 0 or (known(out) and out < 1):
            raise TypeRuleError(
                f"conv_transpose: axis {2 + i} is {extent} and {out} in the result, expected 1 or "
                "more"
            )
        return out

    def _reach(self, i: int, extent: Dim, kernel: int) -> Dim:
        cut = self.pads[i] + self._cut_after()[i]
        return (extent - 1) * self.strides[i] + (kernel - 1) * self.dilations[i] + 1 - cut

    def lower(self, b: Graph, x: Value, w: Value, bias: Value | None = None) -> Value:
        window = w.type.extents[2:]
        alone = self.group == 1 and all(d == 1 for d in x.type.shape[2:])
        if alone and max(self.dilations) == 1:
            return self._of_one_pixel(b, x, w, bias)
        steps = self._steps(window)
        if max(steps) > 1:
            return self._spread(b, steps, x, w, bias)
        if max(self.dilations) == 1 and self._phases_differ(w):
            return self._phase_by_phase(b, x, w, bias)
        each = None if bias is None else self.of_phases(b, bias)
        return self.interleaved(b, x, self.phases(b, w), each, window)

    def _steps(self, window: tuple[int, ...]) -> list[int]:
        """Return for each axis how far apart the elements lie that x contributes to.

        Nothing is left out where nothing is dilated, even if strides are wider than the window.
        """
        axes = zip(self.strides, self.dilations, window, strict=True)
        return [1 if d == 1 else s if k == 1 else math.gcd(s, d) for s, d, k in axes]

    def _spread(
        self, b: Graph, steps: list[int], x: Value, w: Value, bias: Value | None
    ) -> Value:
        """Return the result where x contributes to every `steps`-th element of an axis alone.

        These are a result with strides and dilations that are smaller; the others are the bias.
        """
        window, shape = w.type.extents[2:], self.infer(x.type, w.type).shape
        cuts = self.pads[: len(steps)], self._cut_after()
        firsts, lasts = ([ceil_div(p, g) for p, g in zip(cut, steps, strict=True)] for cut in cuts)
        dense = ConvTranspose(
            tuple(s // g for s, g in zip(self.strides, steps, strict=True)),
            (*firsts, *(max(p, 0) for p in lasts)),
            tuple(max(d // g, 1) for d, g in zip(self.dilations, steps, strict=True)),
            tuple(max(-p, 0) for p in lasts),
            self.group,
        )
        extents = zip(x.type.shape[2:], window, strict=True)
        if any(known(d) and d < 1 for d in (dense._reach(i, *of) for i, of in enumerate(extents))):
            y = b(Broadcast(shape), b.constant(np.zeros((1,) * len(shape), x.type.numpy)))
        else:
            y = b(Dilate((1, 1, *steps)), b(dense, x, w))
            before, after = (
                [p * g - q for p, g, q in zip(pads, steps, cut, strict=True)]
                for pads, cut in zip((firsts, lasts), cuts, strict=True)
            )
            if any(before) or any(after):
                y = b(Pad((0, 0, *before), (0, 0, *after)), y)
        if bias is None:
            return y
        each = b(Reshape((bias.type.shape[0], *[1] * len(steps))), bias)
        return b(Add(), y, stretch(b, each, shape))

    def _cut_after(self) -> list[int]:
        """Return how much is cut off behind each axis."""
        pads = self.pads[len(self.strides) :]
        return [p - q for p, q in zip(pads, self.output_padding, strict=True)]

    def _of_one_pixel(self, b: Graph, x: Value, w: Value, bias: Value | None) -> Value:
        """Return the result where x has one pixel: its product with all of the window."""
        spatial, (n, c) = len(self.strides), x.type.shape[:2]
        before = [-p for p in self.pads[:spatial]]
        after = [q - p for p, q in zip(self.pads[spatial:], self.output_padding, strict=True)]
        if any(before) or any(after):
            w = b(Pad((0, 0, *before), (0, 0, *after)), w)
        _, o, *image = w.type.shape
        columns = product(w.type.shape[1:])
        y = b(MatMul(), b(Reshape((n, c)), x), b(Reshape((c, columns)), w))
        if bias is not None:
            each = stretch(b, b(Reshape((o, *[1] * spatial)), bias), (o, *image))
            y = b(Add(), y, stretch(b, b(Reshape((columns,)), each), y.type.shape))
        return b(Reshape((n, o, *image)), y)

    def interleaved(
        self, b: Graph, x: Value, w: Value, bias: Value | None, window: tuple[int, ...],
    ) -> Value:  # fmt: skip
        """Return the result by weights and bias of `phases`, for a window of so many elements.

        Strides and dilations have no common divisor.  Element s m + d t of an axis is the sum of
        w[t + s j] x[m - d j] over j.  So one convolution makes the strides' product of results from
        an element of x, and they are put side by side.
        """
        before, after = self._around(window)
        conv, x = self._conv(b, x, before, after)
        return self._put_together(b, b(conv, x, w, bias), window)

    def _around(self, window: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return how much padding the convolution of all phases has before each axis and after."""
        axes = zip(self.strides, self.dilations, window, self.pads, strict=False)
        before = [d * (ceil_div(k, s) - 1) + d * (s - 1) // s - p // s for s, d, k, p in axes]
        return before, [-(-end // s) - 1
                        for end, s in zip(self._ends(window), self.strides, strict=True)]

    def _ends(self, window: tuple[int, ...]) -> list[int]:
        """Return where the last window ends on each axis, from where what is kept ends."""
        axes = zip(window, self.dilations, self._cut_after(), strict=True)
        return [(k - 1) * d + 1 - p for k, d, p in axes]

    def _put_together(self, b: Graph, y: Value, window: tuple[int, ...]) -> Value:
        """Return the result of what all phases, one after the other, have of each element of x."""
        steps, firsts, ends = self.strides, self.pads[: len(window)], self._ends(window)
        y = self._in_order(b, y)
        starts = [p % s for p, s in zip(firsts, steps, strict=True)]
        image = [
            d * s - start - (-end % s)
            for d, s, start, end in zip(y.type.shape[2:], steps, starts, ends, strict=True)
        ]
        return side_by_side(b, y, self.group, steps, starts, image)

    def _in_order(self, b: Graph, y: Value) -> Value:
        """Return the phases of y in the order in which their elements lie side by side.

        Where dilations are larger than 1, a later phase may begin before the first one, and the
        number of elements between is not a multiple of the stride.
        """
        axes = [*zip(self.strides, self.dilations, strict=True)]
        most = [d * (s - 1) // s for s, d in axes]
        if not any(most):
            return y
        (n, channels, *coarse), count = y.type.shape, math.prod(self.strides)
        apart = (n, self.group, count, channels // (self.group * count))
        split = b(Reshape((*apart, *coarse)), y)
        image = [extent - m for extent, m in zip(coarse, most, strict=True)]
        sizes, ones = (*apart[:2], 1, apart[3], *image), (1,) * (4 + len(axes))
        parts = []
        for place in itertools.product(*map(range, self.strides)):
            taps = [r * pow(d, -1, s) % s for r, (s, d) in zip(place, axes, strict=True)]
            number = 0
            for tap, s in zip(taps, self.strides, strict=True):
                number = number * s + tap
            starts = [m - d * t // s for m, t, (s, d) in zip(most, taps, axes, strict=True)]
            parts.append(b(Slice((0, 0, number, 0, *starts), sizes, ones), split))
        return b(Reshape((n, channels, *image)), b(Concat(2), *parts))

    def _phases_differ(self, w: Value) -> bool:
        """Whether phases have windows of several sizes, and weights that are computed.

        Of constants zeros are known, and windows of one size are one convolution.
        """
        uneven = any(k % s for k, s in zip(w.type.extents[2:], self.strides, strict=True))
        return self.group == 1 and uneven and w.array is None

    def _phase_by_phase(self, b: Graph, x: Value, w: Value, bias: Value | None) -> Value:
        """Return the result by a convolution for each phase, of no more taps than it has.

        So weights are read where they are, and 3 x 3 of them two apart are not multiplied as 4 x 4.
        """
        window, spatial = w.type.extents[2:], len(self.strides)
        c, o = w.type.shape[:2]
        before, after = self._around(window)
        parts: list[Value] = []
        for phase in itertools.product(*map(range, self.strides)):
            pairs = list(zip(window, phase, self.strides, strict=True))
            taps = [max(0, ceil_div(k - r, s)) for k, r, s in pairs]
            if 0 in taps:
                none = b.constant(np.zeros((1,) * (spatial + 2), x.type.numpy))
                value = none if bias is None else b(Reshape((1, o, *[1] * spatial)), bias)
                parts.append(b(Broadcast(parts[0].type.shape), value))
                continue
            lasts = [r + s * (t - 1) for t, (_, r, s) in zip(taps, pairs, strict=True)]
            steps = (1, 1, *(-s for s in self.strides))
            part = b(Slice((0, 0, *lasts), (c, o, *taps), steps), w)
            less = [ceil_div(k, s) - t for t, (k, _, s) in zip(taps, pairs, strict=True)]
            conv, seen = self._conv(b, x, [n - m for n, m in zip(before, less, strict=True)], after)
            turned = b(Transpose((1, 0, *range(2, spatial + 2))), part)
            parts.append(b(conv, seen, turned, bias))
        return self._put_together(b, b(Concat(1), *parts), window)

    def _conv(self, b: Graph, x: Value, before: list[int], after: list[int]) -> tuple[Conv, Value]:
        """Return the convolution, and x: what is padded by less than nothing is cut off."""
        spatial = len(before)
        if min(*before, *after) < 0:
            x = b(Pad((0, 0, *before), (0, 0, *after)), x)
            before = after = [0] * spatial
        return Conv((1,) * spatial, (*before, *after), self.dilations, self.group), x

    def phases(self, b: Graph, w: Value, zero: float = 0.0) -> Value:
        """Return w as weights [strides · O, C/group, …] of small windows; past w they are `zero`.

        Those of one phase are every `strides`-th element of w, read backwards.
        """
        return self._backwards(b, w, self.strides, zero)

    def _backwards(self, b: Graph, w: Value, steps: tuple[int, ...], zero: float = 0.0) -> Value:
        """Return every `steps`-th element of w[C, O/group, …], read backwards, as a Conv's w."""
        c, o, *window = w.type.extents
        taps = [-(-k // s) for k, s in zip(window, steps, strict=True)]
        more = [t * s - k for t, s, k in zip(taps, steps, window, strict=True)]
        if any(more):
            w = b(Pad((0,) * w.type.rank, (0, 0, *more), value=zero), w)
        pairs = [d for t, s in zip(taps, steps, strict=True) for d in (t, s)]
        split = b(Reshape((self.group, c // self.group, o, *pairs)), w)
        backwards = [t - 1 for t in taps]
        starts = (0, 0, 0, *[d for t in backwards for d in (t, 0)])
        flips = (1, 1, 1, *(-1, 1) * len(taps))
        flipped = b(Slice(starts, split.type.shape, flips), split)
        at = range(len(taps))
        perm = (0, *[4 + 2 * i for i in at], 2, 1, *[3 + 2 * i for i in at])
        outputs = self.group * math.prod(steps) * o
        return b(Reshape((outputs, c // self.group, *taps)), b(Transpose(perm), flipped))

    def of_phases(self, b: Graph, bias: Value) -> Value:
        """Return the bias of each output, repeated for its phases."""
        (outputs,) = bias.type.shape
        each, count = outputs // self.group, math.prod(self.strides)
        apart = b(Reshape((self.group, 1, each)), bias)
        return b(Reshape((count * outputs,)), b(Broadcast((self.group, count, each)), apart))

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        x, w = ins[:2]
        assert x is not None and w is not None, "both are there"
        # Every element of x meets every weight of its channel; zeros between are not work.
        return x.size * math.prod(w.extents[1:])

    @classmethod
    def examples(cls) -> Examples:
        one, none = (1, 1), (0, 0)
        yield cls(one, (0,) * 4, one, none), "f32[1,3,5,4]", "f32[3,4,3,3]"
        yield cls((2, 2), (1,) * 4, one, one), "f32[2,5,4,3]", "f32[5,7,3,3]", "f32[7]"
        yield cls((2, 3), (0, 1, 2, 1), (2, 1), none, 2), "f32[1,4,5,3]", "f32[4,3,3,2]", "f32[6]"
        yield cls((3,), (2, 2), (1,), (1,)), "f32[1,3,5]", "f32[3,2,2]"
        yield cls((2, 3), (1, 0, 0, 2), one, (1, 2)), "f32[2,5,1,1]", "f32[5,7,3,4]", "f32[7]"
        yield cls((2, 1, 1), (0,) * 6, (1, 1, 1), (0, 0, 0)), "f32[1,2,3,3,2]", "f32[2,2,2,3,2]"
        yield cls(one, (0,) * 4, one, none, 6), "f32[1,6,3,3]", "f32[6,1,3,3]"
        yield cls(one, (0,) * 4, one, none), "f32[0,3,5,4]", "f32[3,4,3,3]"
        for dtype in sorted(FLOATS - {"f32"}):
            yield cls((2, 2), (0,) * 4, one, none), f"{dtype}[1,3,3,3]", f"{dtype}[3,2,2,2]"


def side_by_side(
    b: Graph, y: Value, group: int, steps: Sequence[int], starts: Sequence[int],
    image: Sequence[Dim],
) -> Value:  # fmt: skip
    """Return y[N, group · steps · O, …], phases of a finer image, side by side.

    Of that an `image` of these extents from `starts` on is returned.
    """
    n, channels, *coarse = y.type.shape
    spatial, outputs = len(steps), channels // math.prod(steps)
    apart = b(Reshape((n, group, *steps, outputs // group, *coarse)), y)
    pairs = [a for i in range(spatial) for a in (3 + spatial + i, 2 + i)]
    beside = b(Transpose((0, 1, 2 + spatial, *pairs)), apart)
    whole = b(Reshape((n, outputs, *(d * s for d, s in zip(coarse, steps, strict=True)))), beside)
    return b(Slice((0, 0, *starts), (n, outputs, *image), (1,) * (2 + spatial)), whole)

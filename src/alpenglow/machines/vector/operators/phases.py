"""Convolutions whose results lie interleaved in a finer image, on blocked tensors.

That is what transposed convolutions are, and convolutions before a depth-to-space.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, ceil_div, known
from alpenglow.ir.op import Examples, Primitive, check_each, check_positive
from alpenglow.ir.types import Array, TensorType
from alpenglow.machines.vector.operators.blocked import DepthwiseBlocked, ranks, summed, unfit
from alpenglow.machines.vector.operators.layout import Blocked, Pack, Unpack, logical_size
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.tensor.packing import DOTS
from alpenglow.ops.window.window import conv_extent


class ConvPhases(Primitive):
    """Convolutions of x without padding, one for each phase of the result, plus a bias.

    Along an axis, element y of the result is of phase (y + start) % step and begins at element
    (y + start) // step of x; `ends` of the finer image are left out behind.  x is blocked,
    [N, C/lanes, …, lanes], or plain [N, C, …] with weights packed for one lane.

    w is that of PackConv with the outputs of all phases, the phases of the last axis fastest; those
    of each fill its panels.  bias has an element for each of these outputs.  A phase of number r of
    an axis has taps for r, r + step, … below `window`, which end where the window of w does: what
    lies before them need not be read.
    """

    sample_axes = 0, 0
    layouts = "first"

    channels: int
    outputs: int
    lanes: int
    steps: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    window: tuple[int, ...]

    def infer(self, x: TensorType, w: TensorType, bias: TensorType) -> TensorType:
        spatial, phases = len(self.steps), math.prod(self.steps)
        check_positive(self, channels=self.channels, outputs=self.outputs, lanes=self.lanes)
        check_each(self, spatial, starts=self.starts, ends=self.ends, window=self.window)
        if min(*self.steps, *self.window, 1) < 1 or min(*self.starts, *self.ends, 0) < 0:
            raise TypeRuleError(
                f"conv_phases: {self}, expected steps and window of at least 1, starts and ends "
                "of at least 0"
            )
        plain = x.is_plain
        dtype, dots = summed(self, x, w), DOTS.get(x.dtype, 1)
        fits = w.rank == spatial + 4 + (dots > 1) and not (plain and dots > 1)
        if x.rank != spatial + 3 - plain or not fits or (dots > 1 and w.shape[-1] != dots):
            raise unfit(self, x, w, f"{ranks(spatial, x, dots)}, and inputs by {dots}")
        panels, blocks, *taps, steps, width = w.extents[: spatial + 4]
        lanes = 1 if plain else x.shape[-1]
        if self.channels != x.logical[1]:
            raise TypeRuleError(f"conv_phases: x is {x}, expected {self.channels} channels")
        held = ceil_div(self.channels, lanes)
        if steps * dots != lanes or held != blocks or width % self.lanes:
            rule = f"panels of a multiple of {self.lanes} outputs"
            raise unfit(self, x, w, f"w with {held} blocks of {lanes} channels, {rule}")
        if (wanted := ceil_div(self.outputs, width) * phases) != panels:
            raise unfit(self, x, w, f"w with {wanted} panels of {width} outputs")
        if bias != TensorType(dtype, (panels * width,)):
            raise TypeRuleError(f"conv_phases: bias is {bias}, expected {dtype}[{panels * width}]")
        if [ceil_div(k, s) for k, s in zip(self.window, self.steps, strict=True)] != taps:
            rule = f"taps of window {self.window} divided by steps {self.steps} in w"
            raise unfit(self, x, w, rule)
        out = [finer_extent(self, i, x.shape[2 + i], taps[i]) for i in range(spatial)]
        shape = (x.shape[0], ceil_div(self.outputs, self.lanes), *out, self.lanes)
        return TensorType(dtype, shape, Blocked(self.outputs))

    def missing(self, axis: int, phase: int) -> int:
        """Return how many of the first taps of an axis a phase does not have."""
        taps = -(-self.window[axis] // self.steps[axis])
        return (phase + taps * self.steps[axis] - self.window[axis]) // self.steps[axis]

    def reference(self, x: Array, w: Array, bias: Array) -> Array:
        spatial = len(self.steps)
        if x.dtype.name == "bfloat16":
            x, w = x.astype(np.float32), w.astype(np.float32)
        if w.ndim == spatial + 5:
            w = w.swapaxes(-1, -2).reshape(*w.shape[:-3], -1, w.shape[-2])
        _, blocks, *taps, lanes, _ = w.shape
        order = (0, w.ndim - 1, 1, w.ndim - 2, *range(2, 2 + spatial))
        plain = w.transpose(order).reshape(*self.steps, -1, blocks * lanes, *taps)
        each = bias.reshape(*self.steps, -1)
        if x.ndim == spatial + 3:
            # Unspecified lanes must not reach the sum, not even as NaN times zero.
            x = Unpack(self.channels).reference(x)
        grid = [d - t + 1 for d, t in zip(x.shape[2:], taps, strict=True)]
        whole = [d * s for d, s in zip(grid, self.steps, strict=True)]
        y = np.zeros((x.shape[0], self.outputs, *whole), bias.dtype)
        for phase in itertools.product(*map(range, self.steps)):
            skipped = [self.missing(i, r) for i, r in enumerate(phase)]
            own = plain[phase][(slice(None), slice(None), *(slice(m, None) for m in skipped))]
            places = tuple(slice(r, None, s) for r, s in zip(phase, self.steps, strict=True))
            shown = x[(slice(None), slice(None), *(slice(m, None) for m in skipped))]
            y[(slice(None), slice(None), *places)] = self._phase(shown, own, each[phase])
        kept = [slice(a, n - e) for a, e, n in zip(self.starts, self.ends, whole, strict=True)]
        return Pack(self.lanes).reference(y[(slice(None), slice(None), *kept)])

    def _phase(self, x: Array, w: Array, bias: Array) -> Array:
        """Return the result of one phase, for plain x and w."""
        bias = bias[: self.outputs]
        if 0 in w.shape:  # no tap of the window is of this phase
            ones = (1,) * len(self.steps)
            return np.asarray(bias.reshape(-1, *ones))
        return Conv().reference(x, w[: self.outputs, : self.channels], bias)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        # Of each axis, every phase has one in so many of the elements.
        per_element = math.prod(self.window) / math.prod(self.steps)
        return round(logical_size(outs[0]) * self.channels * per_element)

    @classmethod
    def examples(cls) -> Examples:
        def bias(count: int) -> Array:
            return np.sin(np.arange(count, dtype=np.float32))

        op = cls(20, 20, 16, (2, 2), (1, 1), (1, 1), (4, 4))
        yield op, "f32[2,20/16,6,7,16]", "f32[4,2,2,2,16,32]", bias(128)
        op = cls(3, 40, 16, (2, 3), (0, 2), (1, 0), (3, 7))
        yield op, "f32[2,3,6,7]", "f32[12,3,2,3,1,32]", bias(384)
        op = cls(8, 8, 8, (3,), (1,), (0,), (2,))
        yield op, "f32[1,8/8,5,8]", "f32[3,1,1,8,8]", bias(24)
        op = cls(16, 16, 16, (1, 2, 2), (0, 0, 1), (0, 1, 0), (1, 2, 5))
        yield op, "f32[1,16/16,2,3,5,16]", "f32[4,1,1,1,3,16,16]", bias(64)
        op = cls(20, 16, 16, (2, 2), (1, 1), (1, 1), (4, 4))
        yield op, "bf16[1,20/16,5,6,16]", "bf16[4,2,2,2,8,16,2]", bias(64)


class DepthwisePhases(Primitive):
    """ConvPhases of each channel by itself, without a bias: [N, C/lanes, …, lanes].

    x is blocked, and w[phases, C/lanes, *taps, lanes] has the taps of each phase, the phases of the
    last axis fastest.
    """

    sample_axes = 0, 0
    layouts = "first"

    steps: tuple[int, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        spatial = len(self.steps)
        check_each(self, spatial, starts=self.starts, ends=self.ends)
        if min(*self.steps, 1) < 1 or min(*self.starts, *self.ends, 0) < 0:
            raise TypeRuleError(
                f"depthwise_phases: {self}, expected steps of at least 1, starts and ends of at "
                "least 0"
            )
        fits = x.rank == spatial + 3 and not x.is_plain and x.dtype == w.dtype == "f32"
        if not fits or w.rank != x.rank or w.shape[0] != math.prod(self.steps):
            phases = math.prod(self.steps)
            raise unfit(self, x, w, f"f32 of rank {spatial + 3} in blocks, and {phases} phases")
        if (w.shape[1], w.shape[-1]) != (x.shape[1], x.shape[-1]):
            raise unfit(self, x, w, "the same blocks of channels")
        out = [finer_extent(self, i, x.shape[2 + i], w.extents[2 + i]) for i in range(spatial)]
        return TensorType("f32", (*x.shape[:2], *out, x.shape[-1]), x.layout)

    def reference(self, x: Array, w: Array) -> Array:
        spatial = len(self.steps)
        each = DepthwiseBlocked((1,) * spatial, (1,) * spatial)
        grid = [d - t + 1 for d, t in zip(x.shape[2:], w.shape[2:-1], strict=False)]
        whole = [d * s for d, s in zip(grid, self.steps, strict=False)]
        y = np.zeros((*x.shape[:2], *whole, x.shape[-1]), x.dtype)
        for number, phase in enumerate(itertools.product(*map(range, self.steps))):
            places = tuple(slice(r, None, s) for r, s in zip(phase, self.steps, strict=True))
            y[(slice(None), slice(None), *places)] = each.reference(x, w[number])
        kept = [slice(a, n - e) for a, e, n in zip(self.starts, self.ends, whole, strict=True)]
        return np.ascontiguousarray(y[(slice(None), slice(None), *kept)])

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        w = ins[1]
        assert w is not None, "w is there"
        return logical_size(outs[0]) * math.prod(w.extents[2:-1])

    @classmethod
    def examples(cls) -> Examples:
        yield cls((2, 2), (1, 1), (1, 0)), "f32[2,20/16,6,7,16]", "f32[4,2,2,2,16]"
        yield cls((2, 3), (0, 2), (1, 0)), "f32[1,8/8,5,30,8]", "f32[6,1,3,1,8]"
        yield cls((3,), (1,), (0,)), "f32[2,8/8,5,8]", "f32[3,1,2,8]"
        yield cls((1, 2, 2), (0, 0, 1), (0, 1, 0)), "f32[1,16/16,2,3,5,16]", (
            "f32[4,1,1,2,3,16]")  # fmt: skip


def finer_extent(op: ConvPhases | DepthwisePhases, axis: int, extent: Dim, taps: int) -> Dim:
    """Return how many elements the result has along an axis of which x has so many."""
    whole = conv_extent(op, extent, taps, 1, 0, 0, 1) * op.steps[axis]
    size = whole - op.starts[axis] - op.ends[axis]
    if known(size) and size < 1:
        cut = f"starts is {op.starts[axis]} and ends is {op.ends[axis]} along spatial axis {axis}"
        raise TypeRuleError(f"{op.name}: {cut}, expected a sum of less than {whole}")
    return size

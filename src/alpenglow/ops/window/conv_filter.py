"""The gradient of the weights of a convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Primitive, check_dtype, check_each, check_positive, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.window.window import windows


class ConvFilter(Primitive):
    """The gradient of the weights w[O, C/group, *taps] of a Conv, given that of its result.

    x[N, C, …] is what is convolved, dy[N, O, …] the gradient of the result:

        dw[o, c, t] = sum over n, p of dy[n, o, p] · x[n, c', p·strides + t·dilations - pads]

    where c' is channel c of the group of o.  Half precision is summed in f32.
    """

    taps: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1

    def infer(self, x: TensorType, dy: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        check_rank(self, "x", x, 3)
        check_each(self, x.rank - 2, taps=self.taps)
        check_positive(self, group=self.group)
        if x.rank != dy.rank or x.dtype != dy.dtype or x.shape[1] % self.group:
            raise TypeRuleError(
                f"conv_filter: x is {x} and dy {dy}, expected one rank and dtype and channels of x "
                f"in {self.group} groups"
            )
        w = x.with_shape((dy.shape[1], x.shape[1] // self.group, *self.taps))
        if (y := self.conv.infer(x, w)) != dy:
            raise TypeRuleError(f"conv_filter: dy is {dy}, expected {y}, the result of conv on {x}")
        return w

    @property
    def conv(self) -> Conv:
        """The convolution."""
        return Conv(self.strides, self.pads, self.dilations, self.group)

    def reference(self, x: Array, dy: Array) -> Array:
        spatial = len(self.taps)
        pads, strides, dilations = self.conv.window(spatial)
        wide = np.result_type(x.dtype, np.float32)
        edges = [(0, 0), (0, 0), *zip(pads[:spatial], pads[spatial:], strict=True)]
        patches = windows(np.pad(x.astype(wide), edges), self.taps, strides, dilations)
        per_in, per_out = x.shape[1] // self.group, dy.shape[1] // self.group
        over = [0, *range(2, 2 + spatial)]
        groups = [
            np.tensordot(
                dy[:, g * per_out : (g + 1) * per_out].astype(wide),
                patches[:, g * per_in : (g + 1) * per_in],
                (over, over),
            )
            for g in range(self.group)
        ]
        return np.concatenate(groups).astype(x.dtype)

    def work(self, ins: Sequence[TensorType | None], outs: Sequence[TensorType]) -> int:
        dy = ins[1]
        assert dy is not None, "dy is there"
        return dy.size * math.prod(outs[0].extents[1:])

    @classmethod
    def examples(cls) -> Examples:
        yield cls((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)), "f32[2,3,7,6]", "f32[2,4,7,6]"
        yield cls((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)), "f32[2,16,9,8]", "f32[2,40,5,4]"
        yield cls((2, 3), (1, 2), (0, 1, 2, 1), (2, 1)), "f32[1,20,6,9]", "f32[1,5,6,5]"
        yield cls((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)), "f32[3,32,5,4]", "f32[3,33,5,4]"
        yield cls((1, 1), (2, 2), (0, 0, 0, 0), (1, 1)), "f32[3,32,5,4]", "f32[3,33,3,2]"
        yield cls((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 3), "f32[2,6,5,5]", "f32[2,9,5,5]"
        yield cls((3, 3), (2, 1), (1, 1, 1, 1), (1, 1), 20), "f32[2,20,6,5]", "f32[2,20,3,5]"
        yield cls((5,), (2,), (2, 1), (1,)), "f32[2,5,12]", "f32[2,7,6]"
        yield cls((3, 2, 3), (1, 1, 2), (1, 0, 1, 1, 0, 1), (1,) * 3), (
            "f32[1,3,4,5,6]"), "f32[1,6,4,4,3]"  # fmt: skip
        yield cls((3, 3), (1, 1), (0, 0, 0, 0), (1, 1)), "f32[0,3,5,5]", "f32[0,4,3,3]"
        for d in sorted(FLOATS - {"f32"}):
            yield cls((3, 3), (1, 1), (1,) * 4, (1, 1)), f"{d}[1,5,4,4]", f"{d}[1,6,4,4]"

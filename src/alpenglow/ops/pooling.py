"""Pooling over windows.  A blocked tensor is pooled as it lies: its lanes are carried along."""

from __future__ import annotations

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.op import Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import FLOATS, Array, TensorType
from alpenglow.ops.window import conv_extent, windows


class MaxPool(Primitive):
    """The largest element of each window of x[N, C, …]; padding never wins.  ONNX MaxPool.

    `pads` holds the padding before each spatial axis, then that after.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS | {"i8", "u8"})
        return pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def reference(self, x: Array) -> Array:
        lowest = -np.inf if x.dtype.kind not in "iu" else np.iinfo(x.dtype).min
        patches = padded_windows(self, x, lowest, self.dilations)
        axes = tuple(range(patches.ndim - len(self.kernel), patches.ndim))
        return np.asarray(patches.max(axis=axes))

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[1,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (0,) * 4, one, True), "f32[1,20,8,8]"
        yield cls((3, 2), (1, 2), (0, 1, 1, 0), (2, 1)), "f32[1,4,9,7]"
        yield cls((3,), (2,), (1, 0), (1,)), "f32[1,3,8]"
        yield cls((2, 2, 2), (2, 1, 1), (0,) * 6, (1, 1, 1)), "f32[1,2,4,4,4]"
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[1,17/16,7,7,16]"
        for dtype in ("f16", "bf16", "f64", "i8", "u8"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


class AveragePool(Primitive):
    """The mean of each window of x[N, C, …].  ONNX AveragePool.

    Padding counts as zeros if `count_pads`, else it is left out of the mean; what hangs over the
    end with `ceil` is never counted.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    ceil: bool = False
    count_pads: bool = False

    def infer(self, x: TensorType) -> TensorType:
        check_dtype(self, "x", x, FLOATS)
        return pooled(self, x, self.kernel, self.strides, self.pads, self.dilations, self.ceil)

    def reference(self, x: Array) -> Array:
        wide = x.astype(np.result_type(x.dtype, np.float32))
        axes = tuple(range(-len(self.kernel), 0))
        total = padded_windows(self, wide, 0, self.dilations).sum(axis=axes)
        spatial = len(self.kernel)
        ones = np.ones((1, 1, *x.shape[2 : 2 + spatial]), wide.dtype)
        if self.count_pads:
            edges = zip(self.pads[:spatial], self.pads[spatial:], strict=True)
            ones = np.pad(ones, [(0, 0), (0, 0), *edges], constant_values=1)
            count = _overhang_windows(self, ones, x.shape, 0).sum(axis=axes)
        else:
            count = padded_windows(self, ones, 0, self.dilations).sum(axis=axes)
        if x.ndim > 2 + spatial:
            count = count[..., None]
        with np.errstate(all="ignore"):
            return np.asarray(total / count).astype(x.dtype)

    @classmethod
    def examples(cls) -> Examples:
        one = (1, 1)
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[1,3,6,8]"
        yield cls((3, 3), (1, 1), (1,) * 4, one), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, count_pads=True), "f32[2,5,7,9]"
        yield cls((3, 3), (2, 2), (0,) * 4, one, True), "f32[1,20,8,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one, True, True), "f32[1,20,8,8]"
        yield cls((3,), (2,), (1, 0), (1,)), "f32[1,3,8]"
        yield cls((2, 2, 2), (2, 1, 1), (0,) * 6, (1, 1, 1)), "f32[1,2,4,4,4]"
        yield cls((2, 2), (2, 2), (0,) * 4, one), "f32[0,3,6,8]"
        yield cls((3, 3), (2, 2), (1,) * 4, one), "f32[1,17/16,7,7,16]"
        for dtype in ("f16", "bf16", "f64"):
            yield cls((2, 2), (2, 2), (0, 0, 1, 1), one), f"{dtype}[1,3,5,5]"


Pool = MaxPool | AveragePool


def pooled(
    op: Op, x: TensorType, kernel: tuple[int, ...], strides: tuple[int, ...],
    pads: tuple[int, ...], dilations: tuple[int, ...], ceil: bool,
) -> TensorType:  # fmt: skip
    """Return the type of x after pooling; raise TypeRuleError if the attributes do not fit it."""
    spatial = x.rank - 2 - (x.blocked is not None)
    check_rank(op, "x", x, 3)
    for what, given, n in (("kernel", kernel, spatial), ("strides", strides, spatial),
                           ("pads", pads, 2 * spatial), ("dilations", dilations, spatial)):  # fmt: skip
        if len(given) != n:
            raise TypeRuleError(f"{op.name}: {len(given)} {what} given, expected {n} for {x}")
    out = [
        conv_extent(op, x.shape[2 + i], kernel[i], strides[i], pads[i], pads[spatial + i],
                    dilations[i], ceil)
        for i in range(spatial)
    ]  # fmt: skip
    lanes = x.shape[2 + spatial :]
    return TensorType(x.dtype, (*x.shape[:2], *out, *lanes), x.blocked)


def padded_windows(op: Pool, x: Array, fill: float, dilations: tuple[int, ...]) -> Array:
    """Return the windows of x with `fill` around it, as [N, C, *out, (lanes,) *kernel]."""
    spatial = len(op.kernel)
    edges = zip(op.pads[:spatial], op.pads[spatial:], strict=True)
    around = [(0, 0), (0, 0), *edges, *[(0, 0)] * (x.ndim - 2 - spatial)]
    full = np.pad(x, around, constant_values=fill)
    return _overhang_windows(op, full, x.shape, fill)


def _overhang_windows(op: Pool, full: Array, shape: tuple[int, ...], fill: float) -> Array:
    """Return the windows of the padded `full`; with ceil some may hang over its end."""
    spatial = len(op.kernel)
    extra = []
    for i in range(spatial):
        count = conv_extent(op, shape[2 + i], op.kernel[i], op.strides[i], op.pads[i],
                            op.pads[spatial + i], op.dilations[i], op.ceil)  # fmt: skip
        assert isinstance(count, int)
        need = (count - 1) * op.strides[i] + (op.kernel[i] - 1) * op.dilations[i] + 1
        extra.append((0, max(need - full.shape[2 + i], 0)))
    lanes = full.ndim - 2 - spatial
    full = np.pad(full, [(0, 0), (0, 0), *extra, *[(0, 0)] * lanes], constant_values=fill)
    if lanes:
        moved = windows(np.moveaxis(full, -1, 0).reshape(-1, *full.shape[1:-1]), op.kernel,
                        op.strides, op.dilations)  # fmt: skip
        split = moved.reshape(full.shape[-1], -1, *moved.shape[1:])
        return np.moveaxis(split, 0, 2 + spatial)
    return windows(full, op.kernel, op.strides, op.dilations)

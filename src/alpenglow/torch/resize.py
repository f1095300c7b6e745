"""Resizing as one call in traced graphs, and its derivative as another.

PyTorch traces `interpolate` as index arithmetic.  The gradient of that scatters into as many arrays
as there are kernel positions.  Inside `whole`, `interpolate` is traced as an ATen operator and its
derivative, whose converters resample one axis after the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp.decompositions import upsample_compute_output_size

NAMES = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d", "_upsample_nearest_exact3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
)  # fmt: skip
"""The operators that PyTorch decomposes before it differentiates."""

KEYS = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd
"""The keys of the kernels in Python that take an operator apart."""

output_size_of: Callable[..., Any] = upsample_compute_output_size


@contextlib.contextmanager
def whole(inputs: Sequence[Any]) -> Iterator[None]:
    """Trace each resize inside this block as one call, unless `inputs` have symbolic shapes.

    PyTorch's derivatives of resizing do not support symbolic shapes.
    """
    if any(_is_symbolic(x) for x in inputs):
        yield
        return
    packets = [getattr(torch.ops.aten, name) for name in NAMES]
    saved = {op: dict(op.py_kernels) for p in packets for op in (p.default, p.vec)}
    try:
        for p in packets:
            for key in KEYS:
                p.default.py_kernels.pop(key, None)
                p.vec.py_kernels[key] = partial(_sized, p.default, saved[p.vec][key])
        _forget(saved)
        yield
    finally:
        for op, kernels in saved.items():
            op.py_kernels.clear()
            op.py_kernels.update(kernels)
        _forget(saved)


def _sized(
    op: Any, apart: Callable[..., Any], input: torch.Tensor, output_size: Sequence[int] | None,
    *more: Any,
) -> Any:  # fmt: skip
    """Call `op`, which takes sizes, with those that `interpolate` is given or computes from scales.

    Integers and symbolic shapes go `apart`: PyTorch's decomposition rounds integers in its own way.
    """
    *aligned, scales = more
    if _is_symbolic(input) or not input.is_floating_point():
        return apart(input, output_size, *more)
    sizes = output_size_of(input.shape, output_size, scales)
    return op(input, sizes, *aligned, *(scales or [None] * len(sizes)))


def _is_symbolic(x: Any) -> bool:
    """Return True if an argument is a symbolic number or a tensor of symbolic shape."""
    if not isinstance(x, torch.Tensor):
        return isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool)
    return any(isinstance(d, torch.SymInt) for d in x.shape)


def _forget(ops: Iterable[Any]) -> None:
    """Make operators look up their kernels again."""
    for op in ops:
        op._dispatch_cache.clear()

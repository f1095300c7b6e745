"""Whether results are those of eager: under torch's own tolerances, or nearer to the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.utils import _pytree as pytree

from alpenglow.frontends.torch import fx

DEFAULT: Mapping[str, float] = {}
"""The tolerances of `torch.testing.assert_close` for an element type."""

WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
         torch.complex64: torch.complex128}  # fmt: skip


def tensors_of(tree: Any) -> list[Any]:
    """Return the tensors of arguments or results, in torch's order."""
    return [y for y in pytree.tree_leaves(tree) if isinstance(y, torch.Tensor)]


def tolerance(op: Any, results: Sequence[Any]) -> Mapping[str, float]:
    """Return the tolerances that an entry of OpInfo states for all of its tests on a CPU."""
    kinds = {y.dtype for y in results if y.dtype in WIDER}
    if len(kinds) != 1:
        return DEFAULT
    (kind,) = kinds
    for info in op.decorators:
        everywhere = (getattr(info, "cls_name", None) in (None, "TestCommon")
                      and getattr(info, "test_name", None) is None
                      and getattr(info, "device_type", None) in (None, "cpu"))  # fmt: skip
        for decorator in getattr(info, "decorators", [info]) if everywhere else ():
            if isinstance(decorator, toleranceOverride) and kind in decorator.d:
                stated = decorator.d[kind]
                return {"atol": stated.atol, "rtol": stated.rtol}
            if isinstance(decorator, precisionOverride) and kind in decorator.d:
                return {"atol": decorator.d[kind], "rtol": decorator.d[kind]}
    return DEFAULT


def differs(y: Any, expected: Any, allowed: Mapping[str, float] = DEFAULT) -> str:
    """Return how a result differs from what torch made; "" if it does not by its tolerances."""
    if message := mistyped(y, expected):
        return message
    try:
        torch.testing.assert_close(tensor_of(y, expected), expected.detach().contiguous(),
                                   equal_nan=True, **allowed)  # fmt: skip
    except AssertionError as error:
        return str(error).replace("\n", " ")[:300]
    return ""


def mistyped(y: Any, expected: Any) -> str:
    """Return how the type of a result differs; "" if it does not."""
    reference = fx.array_of(expected)
    if y.shape == reference.shape and y.dtype == reference.dtype:
        return ""
    return f"made {y.dtype}{y.shape}, expected {reference.dtype}{reference.shape}"


def tensor_of(y: Any, like: Any) -> Any:
    """Return an array as a tensor, of the shape that another one has."""
    short = y.dtype.name == "bfloat16"
    tensor = torch.from_numpy(np.array(y.view(np.int16) if short else y)).reshape(like.shape)
    return tensor.view(torch.bfloat16) if short else tensor


def alike(determined: Sequence[Any], made: Any, got: Sequence[Any]) -> bool:
    """Whether what is determined of a result is what eager made.

    Samples of decompositions have functions for that, one for each of its parts, since signs of
    vectors are anybody's.
    """
    leaves, spec = pytree.tree_flatten(made)
    rest = iter(got)
    ours = [tensor_of(next(rest), x) if isinstance(x, torch.Tensor) else x for x in leaves]
    try:
        for part in determined:
            told, expected = tensors_of(part(spec.unflatten(ours))), tensors_of(part(made))
            torch.testing.assert_close(told, expected, equal_nan=True)
    except AssertionError:
        return False
    return True


def nearer(
    whole: Callable[..., Any], tensors: Sequence[Any], made: Sequence[Any], got: Sequence[Any]
) -> bool:
    """Whether each element is in tolerance, or at least as near as eager's to eager in f64."""
    try:
        wide = [x.to(WIDER.get(x.dtype, x.dtype)) for x in tensors]
        exact = tensors_of(whole(*wide, wider=True))
    except (RuntimeError, TypeError, ValueError):  # it has arguments of one type with the tensors
        return False
    if len(exact) != len(made):
        return False
    for y, e, truth in zip(got, made, exact, strict=True):
        if e.dtype not in WIDER or truth.dtype != WIDER[e.dtype]:
            if differs(y, e):
                return False
            continue
        ours, eager = tensor_of(y, e).to(truth.dtype), e.detach().to(truth.dtype)
        close = torch.zeros(ours.shape, dtype=torch.bool)
        within = (
            1.6e-2 if e.dtype == torch.bfloat16 else 1e-3 if e.dtype == torch.float16 else 1.3e-6
        )
        close |= torch.isclose(ours, eager, rtol=within, atol=1e-5, equal_nan=True)
        # Where eager is NaN, and should not be, any number is nearer.
        close |= (ours - truth).abs() <= (eager - truth).abs().nan_to_num(torch.inf, torch.inf)
        if not close.all():
            return False
    return True

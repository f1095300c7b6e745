"""Gradients of PyTorch's own samples of its operators, by us and by PyTorch."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.model import model_of
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from judge_torch import tensors_of

SEED = 42
RTOL, ATOL = 1e-5, 1e-7
"""Of f64: two ways to the same derivative round differently where sums cancel."""

STEP = 1e-6


def check_gradients(
    op: Any, sample: Any, target: str, traced: Callable[[Any, list[Any]], Any]
) -> tuple[str, str]:
    """Return what became of the gradient of a sample.

    It is right, nearer, wrong, refused, untraced or failed.  It is that of the sum of all floats
    that come out, each times a random number, by all operands that PyTorch says have one; `nearer`
    if it is not autograd's, but what central differences say.
    """
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    tensors = [leaves[i].detach() for i in at]
    floats = [k for k, i in enumerate(at) if leaves[i].requires_grad]

    def call(*xs: Any) -> list[Any]:
        filled = list(leaves)
        for i, x in zip(at, xs, strict=True):
            filled[i] = x.clone()  # operators may write into it
        x, args, kwargs = pytree.tree_unflatten(filled, spec)
        made = tensors_of(
            sample.output_process_fn_grad(op.gradcheck_wrapper(op.op, x, *args, **kwargs))
        )
        return [torch.view_as_real(y.resolve_conj()) if y.is_complex() else y for y in made]

    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            given = [x.clone().requires_grad_(k in floats) for k, x in enumerate(tensors)]
            outs = call(*given)
            weights = _weights(outs)
            total = sum((y * w).sum() for y, w in zip(outs, weights, strict=True) if w is not None)
            if not isinstance(total, torch.Tensor) or not total.requires_grad:
                return "untraced", "nothing that comes out has a gradient"
            expected = torch.autograd.grad(
                total, [given[k] for k in floats], allow_unused=True, materialize_grads=True
            )
        module = traced(traced(call, tensors), tensors)
    except Exception as error:
        return "untraced", f"{type(error).__name__}: {str(error).splitlines()[:1]}"
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            g = model_of(fx.traced(module, draws=True))
        if not isinstance(g, ag.Graph):
            return "refused", "the graph depends on data"
        inputs = list(g.callers_inputs().values())
        _append(g, [inputs[k] for k in floats], weights)
        found = ag.compile(g, target).run(
            dict(zip(g.callers_inputs(), [fx.array_of(x) for x in tensors], strict=True))
        )
    except UnsupportedError as error:
        return "refused", error.message
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()[:2000]
    dxs = [torch.from_numpy(np.array(found[f"gradient {k}"])) for k in range(len(expected))]
    message = next(filter(None, map(_differs, range(len(dxs)), dxs, expected)), "")
    if not message:
        return "right", ""

    def summed(*moved: Any) -> float:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(SEED)
            outs = call(*moved)
            return sum(float((y * w).sum()) for y, w in zip(outs, weights, strict=True)
                       if w is not None)  # fmt: skip

    return ("nearer" if _is_slope(summed, tensors, floats, dxs) else "wrong"), message


def _differs(k: int, dx: Any, expected: Any) -> str:
    """Return how far the gradient of operand k is from autograd's; "" if it is that."""
    most = float(expected.abs().max()) if expected.numel() else 1.0
    try:
        torch.testing.assert_close(
            dx, expected, rtol=RTOL, atol=ATOL * max(1.0, most), equal_nan=True
        )
    except AssertionError as error:
        return f"operand {k}: " + str(error).replace("\n", " ")[:300]
    return ""


def _is_slope(
    f: Callable[..., float], xs: Sequence[Any], floats: Sequence[int], dxs: Sequence[Any]
) -> bool:
    """Whether gradients say how f grows in some random directions, by central differences."""
    random = np.random.default_rng(2)
    for _ in range(3):
        ways = [_drawn(random, dx) for dx in dxs]
        slope = sum(float((_parts(way) * _parts(dx)).sum())
                    for way, dx in zip(ways, dxs, strict=True))  # fmt: skip
        ends = []
        for step in (STEP, -STEP):
            moved = list(xs)
            for k, way in zip(floats, ways, strict=True):
                moved[k] = xs[k] + step * way
            ends.append(f(*moved))
        if abs((ends[0] - ends[1]) / (2 * STEP) - slope) > 1e-5 * max(1.0, abs(slope)):
            return False
    return True


def _parts(x: Any) -> Any:
    return torch.view_as_real(x) if x.is_complex() else x


def _drawn(random: np.random.Generator, x: Any) -> Any:
    """Return random numbers of the shape and type of x."""
    drawn = torch.from_numpy(random.standard_normal(tuple(_parts(x).shape)))
    return torch.view_as_complex(drawn) if x.is_complex() else drawn


def _weights(outs: Sequence[Any]) -> list[Any]:
    """Return a random number for each element of what has a gradient, else None."""
    random = np.random.default_rng(1)
    return [
        torch.from_numpy(random.standard_normal(tuple(y.shape))).to(y.dtype)
        if y.is_floating_point() and y.requires_grad else None
        for y in outs
    ]  # fmt: skip


def _append(g: ag.Graph, xs: Sequence[Any], weights: Sequence[Any]) -> None:
    """Put gradients in the place of outputs."""
    total = g.constant(np.zeros(()))
    for y, w in zip(list(g.callers_outputs().values()), weights, strict=True):
        if w is not None:
            products = g(Mul(), y, g.constant(w.numpy()))
            part = g(ReduceSum(tuple(range(y.type.rank)), False), products)
            total = g(Add(), total, as_type(g, part, "f64"))
    made = ag.gradients(g, total, xs)
    g.outputs.clear()
    for k, dx in enumerate(made):
        g.output(f"gradient {k}", dx)
    g.prune()

"""Networks of PyTorch's model libraries, with weights that let every part of them count.

torchvision's extension is built for another torch than the CPU's and does not load beside it.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch

import alpenglow as ag
from alpenglow.base.errors import AlpenglowError, UnsupportedError
from alpenglow.torch.backend import recording

CLOSE = 1e-4
"""How far results may be from eager, as a share of the largest element."""


def import_torchvision() -> ModuleType:
    """Import torchvision, whose operators are not there without its extension."""
    register = torch.library.register_fake

    def ignoring(op: Any, *rest: Any, **named: Any) -> Any:
        if str(op).startswith("torchvision::"):
            return lambda f: f
        return register(op, *rest, **named)

    torch.library.register_fake = ignoring
    try:
        return importlib.import_module("torchvision")
    finally:
        torch.library.register_fake = register


def import_timm() -> ModuleType:
    """Import timm, which imports torchvision."""
    import_torchvision()
    return importlib.import_module("timm")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a network: right, wrong, refused, failed, not exported, or no proof."""

    state: str
    why: str = ""
    error: float = 0.0


def seeded(net: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Give parameters that begin as one number random ones, so that what they scale counts.

    Libraries begin the last norm of a block, or the scale of a layer, at 0 or nearly: a block that
    is wrong would not be seen.
    """
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in net.named_parameters():
            if p.numel() < 2 or not p.is_floating_point() or bool((p != p.flatten()[0]).any()):
                continue
            if name.endswith("bias") or p.ndim > 1:
                p.copy_(torch.randn(p.shape, generator=draw) * 0.1)
            else:
                p.copy_(torch.rand(p.shape, generator=draw) * 0.8 + 0.2)
        for name, b in net.named_buffers():
            if name.endswith("running_mean"):
                b.copy_(torch.randn(b.shape, generator=draw) * 0.1)
            elif name.endswith("running_var"):
                b.copy_(torch.rand(b.shape, generator=draw) + 0.5)
    return net.eval()


def judged(
    net: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None,
    target: str = "cpu", **export: Any,
) -> Outcome:  # fmt: skip
    """Export a network, compile it, and compare what it computes with eager."""
    kwargs = kwargs or {}
    with torch.no_grad():
        expected = tensors_of(net(*args, **kwargs))
        if not any(proves(y) for y in expected):
            return Outcome("no proof", "eager's results are constant or not finite")
        try:
            program = torch.export.export(net, args, kwargs, **export)
        except Exception as error:  # whatever torch's exporter raises is its own failure
            return Outcome("not exported", f"{type(error).__name__}: {str(error)[:300]}")
    try:
        exe = ag.compile(program, target)
    except UnsupportedError as error:
        return Outcome("refused", error.message)
    except (AlpenglowError, AssertionError, NotImplementedError) as error:
        return Outcome("failed", f"{type(error).__name__}: {str(error)[:2000]}")
    feeds = [x.numpy() for x in tensors_of((args, kwargs))]
    results = list(exe.run(dict(zip(exe.inputs, feeds, strict=True))).values())
    if len(results) != len(expected):
        return Outcome("wrong", f"{len(results)} results of {len(expected)}")
    most = max(distance(y, e) for y, e in zip(results, expected, strict=True))
    return Outcome("right" if most <= CLOSE else "wrong", error=most)


def judged_compiled(
    net: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None
) -> Outcome:
    """Compile a network by torch.compile, nothing left to eager, and compare it with eager.

    `why` says in how many graphs, if it is not one.
    """
    kwargs = kwargs or {}
    torch._dynamo.reset()
    with torch.no_grad():
        expected = tensors_of(net(*args, **kwargs))
        if not any(proves(y) for y in expected):
            return Outcome("no proof", "eager's results are constant or not finite")
        try:
            with recording() as record:
                compiled = torch.compile(net, backend="alpenglow", options={"strict": True})
                results = tensors_of(compiled(*args, **kwargs))
        except UnsupportedError as error:
            return Outcome("refused", error.message)
        except Exception as error:  # Dynamo wraps whatever its backend raises
            return Outcome("failed", f"{type(error).__name__}: {str(error)[:2000]}")
    graphs = len(record.plans)
    if len(results) != len(expected) or not graphs:
        return Outcome("wrong", f"{len(results)} results of {len(expected)}, {graphs} graphs")
    if any(y.stride() != e.stride() for y, e in zip(results, expected, strict=True)):
        return Outcome("wrong", "strides differ")
    most = max(distance(y.numpy(), e) for y, e in zip(results, expected, strict=True))
    return Outcome("right" if most <= CLOSE else "wrong", "" if graphs == 1 else
                   f"{graphs} graphs", most)  # fmt: skip


def tensors_of(tree: Any) -> list[torch.Tensor]:
    """Return the tensors of arguments or results, in torch's order."""
    leaves = torch.utils._pytree.tree_leaves(tree)
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def proves(y: torch.Tensor) -> bool:
    """True if a result is finite and not the same everywhere."""
    return bool(y.isfinite().all()) and bool((y != y.flatten()[:1]).any())


def distance(y: Any, expected: torch.Tensor) -> float:
    """Return the largest difference as a share of the largest element; inf if shapes differ."""
    reference = expected.detach().numpy()
    if y.shape != reference.shape or y.dtype != reference.dtype:
        return float("inf")
    if not reference.size:
        return 0.0
    difference = float(np.abs(y.astype(np.float64) - reference.astype(np.float64)).max())
    return difference / max(float(np.abs(reference).max()), 1e-30)

"""PyTorch's own samples of its modules (module_db), exported and compared with eager."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.torch.backend import recording
from judge_torch import tensors_of


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module of module_db, which is asked as an operator of op_db is."""

    info: Any

    @property
    def name(self) -> str:
        return str(self.info.name)

    variant_test_name = ""

    def sample_inputs(self, device: str, dtype: torch.dtype) -> Iterator[Any]:
        """Yield a module and its arguments for each sample that has any, as in inference."""
        make = self.info.module_inputs_func
        for sample in make(self.info, device, dtype, requires_grad=False, training=False):
            given = sample.constructor_input
            if sample.forward_input is None:
                continue
            module = self.info.module_cls(*given.args, **given.kwargs).to(dtype).eval()
            yield module, sample.forward_input.args, sample.forward_input.kwargs


def module_entries(dtype: torch.dtype) -> list[ModuleEntry]:
    """Return the modules that have an element type."""
    return [ModuleEntry(info) for info in module_db if dtype in info.dtypes]


def check_module(
    sample: Any, target: str, differs: Callable[[Any, torch.Tensor], str]
) -> tuple[str, str]:
    """Return what became of a sample: right, compiled, wrong, refused, untraced, failed, and why.

    One that PyTorch cannot export, or exports as something else, goes through torch.compile:
    compiled if that is right, and eager has no call that a graph of Dynamo's has.
    """
    module, args, kwargs = sample
    with torch.no_grad():
        expected = tensors_of(module(*args, **kwargs))
    try:
        with torch.no_grad():
            program = torch.export.export(module, args, kwargs)
            traced = tensors_of(program.module()(*args, **kwargs))
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[:1]}"
        return through_dynamo(sample, expected, differs, reason)
    if any(y.shape != e.shape or not torch.allclose(y, e, 1e-3, 1e-3, equal_nan=True)
           for y, e in zip(traced, expected, strict=True)):  # fmt: skip
        reason = "what PyTorch exports differs from eager"
        return through_dynamo(sample, expected, differs, reason)
    try:
        exe = ag.compile(program, target)
        feeds = [fx.array_of(x) for x in tensors_of((args, kwargs))]
        got = list(exe.run(dict(zip(exe.inputs, feeds, strict=True))).values())
    except UnsupportedError as error:
        return "refused", error.message
    except Exception as error:
        return "failed", "".join(traceback.format_exception_only(error)).strip()[:2000]
    if len(got) != len(expected):
        return "failed", f"{len(got)} results of {len(expected)}"
    for y, e in zip(got, expected, strict=True):
        if message := differs(y, e):
            return "wrong", message
    return "right", ""


def through_dynamo(
    sample: Any, expected: list[Any], differs: Callable[[Any, torch.Tensor], str], reason: str
) -> tuple[str, str]:
    """Return what torch.compile makes of a sample that cannot be exported for a reason."""
    module, args, kwargs = sample
    torch._dynamo.reset()
    try:
        with torch.no_grad(), recording() as record:
            compiled = torch.compile(module, backend="alpenglow", options={"strict": True})
            got = tensors_of(compiled(*args, **kwargs))
    except Exception as error:
        return "failed", f"{reason}; {traceback.format_exception_only(error)[-1].strip()[:500]}"
    for y, e in zip(got, expected, strict=True):
        if message := differs(fx.array_of(y), e):
            return "wrong", message
    if not record.plans:
        return "untraced", f"{reason}; Dynamo traces no graph either"
    return "compiled", f"not exported: {reason}"

"""PyTorch's own samples of its modules (module_db), compared with eager.

They are exported; with `--backward` a step of training goes through torch.compile: forward and
backward as compiled graphs.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.frontends.torch import fx
from alpenglow.frontends.torch.convert.random import DRAWS
from alpenglow.frontends.torch.refusals import listed
from alpenglow.torch.backend import recording
from judge_torch import tensors_of


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """A module of module_db, which is asked as an operator of op_db is."""

    info: Any
    training: bool = False

    @property
    def name(self) -> str:
        return str(self.info.name)

    variant_test_name = ""

    def sample_inputs(self, device: str, dtype: torch.dtype) -> Iterator[Any]:
        """Yield a module and its arguments for each sample that has any."""
        make, training = self.info.module_inputs_func, self.training
        for sample in make(self.info, device, dtype, requires_grad=training, training=training):
            given = sample.constructor_input
            if sample.forward_input is None:
                continue
            module = self.info.module_cls(*given.args, **given.kwargs).to(dtype).train(training)
            yield module, sample.forward_input.args, sample.forward_input.kwargs


def module_entries(dtype: torch.dtype, training: bool = False) -> list[ModuleEntry]:
    """Return the modules that have an element type, in inference or in training."""
    return [ModuleEntry(info, training) for info in module_db if dtype in info.dtypes]


def check_module(
    sample: Any, target: str, differs: Callable[[Any, torch.Tensor], str]
) -> tuple[str, str]:
    """Return what became of a sample: right, compiled, wrong, refused, untraced, failed, and why.

    One that PyTorch cannot export, or exports as something else, goes through torch.compile:
    compiled if that is right, and eager has no call that a graph of Dynamo's has.  A tensor that is
    given twice is given as two, as `ag.compile` does: torch.export would read one of them alone.
    """
    module, args, kwargs = sample
    args, kwargs = tree_map_only(torch.Tensor, lambda x: x.detach().clone(), (args, kwargs))
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


# ── training ──


def check_backward(sample: Any) -> tuple[str, str]:
    """Return what torch.compile makes of a step of training, and why.

    It is right; eager, where it is right and calls that draw no random numbers ran in eager, or
    Dynamo traced no backward graph; wrong, failed, or untraced, where eager itself has no step.
    """
    module, args, kwargs = sample
    own = copy.deepcopy(module)
    torch._dynamo.reset()
    try:
        expected = step(module, module, args, kwargs)
    except Exception as error:
        return "untraced", f"eager: {type(error).__name__}: {str(error).splitlines()[:1]}"
    try:
        # Dynamo passes cells by unless it is told not to.
        with recording() as record, torch._dynamo.config.patch(allow_rnn=True):
            got = step(torch.compile(own, backend="alpenglow"), own, args, kwargs)
    except Exception as error:
        return "failed", traceback.format_exception_only(error)[-1].strip()[:500]
    if message := unlike(got, expected):
        return "wrong", message
    refusals = [r for _, p in record.plans for r in p.refusals if r.call.target not in DRAWS]
    if refusals:
        return "eager", listed(refusals)
    purposes = {purpose for purpose, _ in record.plans}
    has_gradient = any(name.startswith("gradient") for name in expected)
    if ("backward" if has_gradient else "inference") in purposes:
        return "right", ""
    return "eager", f"Dynamo traced {', '.join(sorted(purposes)) or 'no graph'} alone"


def step(call: Any, module: Any, args: Any, kwargs: Any) -> dict[str, torch.Tensor]:
    """Return results, gradients and buffers of a step, of copies of the arguments."""
    leaves, spec = tree_flatten((args, kwargs))
    own = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
           for x in leaves]  # fmt: skip
    more, named = tree_unflatten(own, spec)
    module.zero_grad()
    torch.manual_seed(0)
    results = tensors_of(call(*more, **named))
    random = torch.Generator().manual_seed(1)
    losses = [(y * torch.rand(y.shape, generator=random).to(y.dtype)).sum()
              for y in results if y.requires_grad]  # fmt: skip
    if losses:
        sum(losses).backward()
    tensors = {f"result {i}": y.detach() for i, y in enumerate(results)}
    tensors |= {f"gradient of input {i}": x.grad for i, x in enumerate(own)
                if isinstance(x, torch.Tensor) and x.grad is not None}  # fmt: skip
    tensors |= {f"gradient of {n}": p.grad for n, p in module.named_parameters()
                if p.grad is not None}  # fmt: skip
    return tensors | {n: b.clone() for n, b in module.named_buffers()}


def unlike(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> str:
    """Return where what a step made differs from eager's; "" where it does not."""
    if got.keys() != expected.keys():
        return f"made {', '.join(got)}, expected {', '.join(expected)}"
    for name, y in expected.items():
        try:
            torch.testing.assert_close(got[name], y, equal_nan=True, rtol=1e-4, atol=1e-5)
        except AssertionError as error:
            return f"{name}: " + str(error).replace("\n", " ")[:300]
    return ""

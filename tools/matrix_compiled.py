"""Features of modules that `torch.compile` runs; PyTorch in eager says what is right."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch._dynamo.exc import BackendCompilerFailed

import alpenglow as ag
from matrix_features import VERBS, Verb
from matrix_subject import Inapplicable, Subject, agree


def verbs() -> dict[str, Verb]:
    """Return the features in the order of the table."""
    own = {
        "compile": lambda s: _forward(s, dynamic=None),
        "compile, fixed": lambda s: _forward(s, dynamic=False),
        "compile, other sizes": _other_sizes,
        "memory limit": lambda s: _forward(s, ag.Options(memory="1MB"), dynamic=False),
        "bf16": lambda s: _forward(s, ag.Options(precision="bf16"), tolerance=0.1),
        "train": _train,
        "gradient": _gradient,
    }
    return {name: _unwrapped(own.get(name, _elsewhere)) for name in VERBS}


def _unwrapped(verb: Verb) -> Verb:
    """Return a feature that raises the backend's error without what Dynamo wraps it in."""

    def run(s: Subject) -> None:
        try:
            verb(s)
        except BackendCompilerFailed as failed:
            raise failed.inner_exception from None

    return run


def _elsewhere(s: Subject) -> None:
    raise Inapplicable("PyTorch owns what torch.compile returns; the column PyTorch module has it")


def _compiled(module: Any, options: ag.Options | None, dynamic: bool | None) -> Any:
    torch._dynamo.reset()
    torch._dynamo.config.allow_rnn = True
    words = {"strict": True, **({"compiler": options} if options else {})}
    return torch.compile(module, backend="alpenglow", dynamic=dynamic, options=words)


def _forward(
    s: Subject, options: ag.Options | None = None, dynamic: bool | None = None,
    tolerance: float = 1e-4,
) -> None:  # fmt: skip
    arguments = s.model.traced["args"]
    with torch.no_grad():
        fast = _compiled(s.model.given, options, dynamic)
        agree(_flat(fast(*arguments)), _flat(s.model.given(*arguments)), tolerance)


def _other_sizes(s: Subject) -> None:
    first, *rest = s.model.traced["args"]
    with torch.no_grad():
        fast = _compiled(s.model.given, None, True)
        for rows in (1, 2, 5):
            longer = torch.cat([first] * rows, 0 if not rest else 1)
            agree(_flat(fast(longer, *rest)), _flat(s.model.given(longer, *rest)))


def _gradient(s: Subject) -> None:
    expected, _ = _trained(s, s.model.given, step=False)
    found, _ = _trained(s, _compiled(s.model.given, None, None), step=False)
    agree(found, expected, 1e-3)


def _train(s: Subject) -> None:
    eager, fast = copy.deepcopy(s.model.given), copy.deepcopy(s.model.given)
    _, expected = _trained(s, eager, step=True)
    _, found = _trained(s, _compiled(fast, None, None), step=True, parameters=fast)
    agree(found, expected, 1e-3)


def _trained(
    s: Subject, function: Any, step: bool, parameters: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the gradients of a loss by the name of parameters, and the parameters after a step."""
    module = parameters or (function if step else s.model.given)
    module.zero_grad()
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    results = _tensors(function(*s.model.traced["args"]))
    sum((y**2).mean() for y in results).backward()
    gradients = {n: p.grad.numpy().copy() for n, p in module.named_parameters()}
    if step:
        optimizer.step()
    return gradients, {n: p.detach().numpy().copy() for n, p in module.named_parameters()}


def _tensors(tree: Any) -> list[Any]:
    return [x for x in torch.utils._pytree.tree_leaves(tree) if isinstance(x, torch.Tensor)]


def _flat(tree: Any) -> Mapping[str, Any]:
    return {str(i): np.asarray(x.detach()) for i, x in enumerate(_tensors(tree))}

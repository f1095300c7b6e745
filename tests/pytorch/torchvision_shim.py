"""Makes torchvision importable beside the CPU build of torch; import this before it.

The torchvision of PyPI is built for CUDA: its library does not load here, so the operators whose
shapes it registers do not exist, and its import fails.  Those registrations are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_register = torch.library.register_fake


def _register_others(op: Any, func: Any = None, /, **settings: Any) -> Any:
    if not str(op).startswith("torchvision::"):
        return _register(op, func, **settings)
    keep: Callable[[Any], Any] = lambda f: f  # noqa: E731  # what the decorator would return
    return keep if func is None else func


torch.library.register_fake = _register_others

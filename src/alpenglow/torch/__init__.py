"""Alpenglow in PyTorch: the backend of `torch.compile`, and what it says of a module.

    model = torch.compile(model, backend="alpenglow")

    import alpenglow.torch
    print(alpenglow.torch.explain(model, x))

Importing this imports torch, which `import alpenglow` never does.
"""

from alpenglow.torch.backend import backend
from alpenglow.torch.explain import Explanation, explain

__all__ = ["Explanation", "backend", "explain"]

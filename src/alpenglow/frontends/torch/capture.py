"""From a module of PyTorch and example inputs to an exported program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.frontends.torch.fx import torch

LONGEST = 600
"""How many characters of torch's message are quoted."""


def capture(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> Any:
    """Return what `torch.export.export` makes of a module.

    It takes arguments that are one tensor for one, as if no others could come; they are told apart.

    Raises ModelError with torch's message, and the line of the user's code where tracing ended.
    """
    export = torch().export.export
    try:
        args, kwargs = _apart(module, tuple(args), dict(kwargs))
        return export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except AlpenglowError:
        raise
    except Exception as error:  # torch raises dozens of classes, most of them its own
        where = _place(error.__traceback__)
        said = " ".join(str(error).split())
        said = said if len(said) <= LONGEST else said[:LONGEST] + "…"
        raise ModelError(
            f"torch.export cannot trace {type(module).__name__}{where}: "
            f"{type(error).__name__}: {said}",
            hint="torch.export.export(module, args, strict=True) may trace more; its program "
            "can be compiled, too",
        ) from error


def _apart(module: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the arguments, with a copy of each tensor that is in them or the module already."""
    met = {id(x): x for x in (*module.parameters(), *module.buffers())}

    def own(x: Any) -> Any:
        if not isinstance(x, torch().Tensor):
            return x
        if id(x) in met:
            x = x.detach().clone()
        met[id(x)] = x
        return x

    return torch().utils._pytree.tree_map(own, (args, kwargs))


def _place(trace: TracebackType | None) -> str:
    """Return the innermost line of a traceback that is neither torch's nor ours."""
    place = ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if "/torch/" not in file and "/alpenglow/" not in file and not file.startswith("<"):
            place = f", at {file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place

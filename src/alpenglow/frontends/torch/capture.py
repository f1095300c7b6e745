"""From a module of PyTorch and example inputs to an exported program."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from alpenglow.base.errors import AlpenglowError, ModelError
from alpenglow.base.words import counted
from alpenglow.frontends.torch.fx import LONGEST, torch
from alpenglow.frontends.torch.pytrees import register

MOST_NAMED = 5
"""How many layers a warning names."""

UNKNOWN = re.compile(r"(?:Found|input type|flatten_with_keys_fn for type:) <class '([^']+)'>")
"""How torch names a class that is not registered as a pytree, or not for arguments."""

MODES = ("train", "training", "use_input_stats")
"""Names of the argument of an operator that selects training mode."""


class TrainingModeWarning(UserWarning):
    """A module was traced in training mode, in which some of its layers compute otherwise."""


def capture(
    module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> Any:
    """Return what `torch.export.export` makes of a module.

    It takes arguments that are one tensor for one, as if no others could come; they are told apart.

    Raises ModelError with torch's message, and the line of the user's code where tracing ended.
    Warns of layers that compute otherwise in training, if the module is in training mode.
    """
    export = torch().export.export
    register()
    try:
        args, kwargs = _apart(module, tuple(args), dict(kwargs))
        program = export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except AlpenglowError:
        raise
    except Exception as error:  # torch raises dozens of classes, most of them its own
        where = _place(error.__traceback__)
        said = " ".join(str(error).split())
        said = said if len(said) <= LONGEST else said[:LONGEST] + "…"
        raise ModelError(
            f"torch.export cannot trace {type(module).__name__}{where}: "
            f"{type(error).__name__}: {said}",
            hint=_hint(said),
        ) from error

    if any(m.training for m in module.modules()):
        _warn_of_training(module, program)
    return program


def _hint(said: str) -> str:
    """Return the hint for a message of torch."""
    if (unknown := UNKNOWN.search(said)) is None:
        return ("torch.export.export(module, args, strict=True) may trace more; its program can be "
                "compiled, too")  # fmt: skip
    name = unknown[1].rpartition(".")[2]
    return (
        f"torch.utils._pytree.register_pytree_node({name}, flatten, unflatten, "
        f'flatten_with_keys_fn=flatten_with_keys, serialized_type_name="{name}"), or a module '
        "around this one that takes and returns tensors (docs/pytorch.md, Objects of classes)"
    )


def _warn_of_training(module: Any, program: Any) -> None:
    """Warn if calls of a program depend on the mode in which its module was traced."""
    layers: dict[str, None] = {}
    for m in program.graph_module.modules():
        for node in m.graph.nodes if isinstance(m, torch().fx.GraphModule) else ():
            if node.op == "call_function" and _trains(node):
                stack = list((node.meta.get("nn_module_stack") or {}).values())
                path = stack[-1][0].removeprefix("L['self'].") if stack else ""
                layers[path or str(node.target)] = None
    if not layers:
        return
    named = ", ".join(list(layers)[:MOST_NAMED]) + (", …" if len(layers) > MOST_NAMED else "")
    warnings.warn(
        f"{type(module).__name__} is traced in training mode: {counted(len(layers), 'layer')} "
        f"({named}) compute otherwise than in evaluation mode; try: module.eval()",
        TrainingModeWarning,
        stacklevel=2,
    )


def _trains(node: Any) -> bool:
    """Return True if a call drops elements, or normalizes by its batch in place of statistics."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    names = [a.name for a in schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if arguments.get("dropout_p"):  # of attention
        return True
    share = arguments.get("p", arguments.get("dropout", 1))
    trains = any(arguments.get(name) is True for name in MODES)
    return trains and share != 0 and arguments.get("running_mean", True) is not None


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

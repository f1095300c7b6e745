"""PyTorch's pytrees: objects of registered classes among the arguments and results of a program."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from typing import Any

from alpenglow.frontends.torch.structure import field_names

LOG = logging.getLogger(__name__)

REGISTRARS = {
    "transformers.cache_utils.DynamicCache": (
        "transformers.integrations.executorch", "register_dynamic_cache_export_support",
    ),
}  # fmt: skip
"""Classes that their package registers only on request: module and name of the function."""


def register() -> None:
    """Register the classes in `REGISTRARS` whose modules are imported."""
    known = _pytree().SUPPORTED_NODES
    for path, (module, function) in REGISTRARS.items():
        place, _, name = path.rpartition(".")
        cls = getattr(sys.modules.get(place), name, None)
        if cls is None or cls in known:
            continue
        try:
            getattr(import_module(module), function)()
        except (ImportError, AttributeError) as error:  # another version of the package
            LOG.info("%s is not registered as a pytree: %s", path, error)


def described(spec: Any) -> str:
    """Return torch's JSON of a TreeSpec; "" if it holds a class that JSON cannot describe."""
    try:
        return str(_pytree().treespec_dumps(spec))
    except (NotImplementedError, TypeError) as error:
        LOG.warning("arguments and results are arrays in order: %s", error)
        return ""


def with_plain_trees(program: Any) -> Any:
    """Return an ExportedProgram that takes and returns dicts and tuples, not registered classes.

    `run_decompositions` makes objects of these classes while it traces, and loses the constants
    that their constructors create.
    """
    specs = (program.call_spec.in_spec, program.call_spec.out_spec)
    if not any(map(_holds_objects, specs)):
        return program
    copy = program._update(program.graph_module, program.graph_signature)
    called = copy.module_call_graph[0].signature
    called.in_spec, called.out_spec = map(_plain, specs)
    return copy


def _holds_objects(spec: Any) -> bool:
    """Return True if a TreeSpec has a node of a registered class."""
    return not _is_builtin(spec) or any(map(_holds_objects, spec.children()))


def _is_builtin(spec: Any) -> bool:
    return spec.is_leaf() or spec.type.__module__ in ("builtins", "collections")


def _plain(spec: Any) -> Any:
    """Return a TreeSpec with dicts or tuples instead of objects of registered classes."""
    if not _holds_objects(spec):
        return spec
    tree, children = _pytree(), list(map(_plain, spec.children()))
    if _is_builtin(spec):
        return tree.TreeSpec(spec.type, spec.context, children)
    names = field_names(spec.context, len(children))
    if names is None:
        return tree.treespec_tuple(children)
    return tree.treespec_dict(zip(names, children, strict=True))


def _pytree() -> Any:
    return sys.modules["torch"].utils._pytree

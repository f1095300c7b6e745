"""How the arguments and results of a program are made of tensors, from PyTorch's own description.

PyTorch writes a pytree's shape as JSON, both into `.pt2` files and for who has a TreeSpec
(`torch.utils._pytree.treespec_dumps`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from alpenglow.base.errors import ModelError
from alpenglow.ir.structure import DEEPEST, Fixed, Keyed, Leaf, Several, Structure, Tree

PROTOCOL = 1
"""The version of PyTorch's JSON."""


def structure(
    inputs: str, outputs: str, parameters: Sequence[str], arguments: Sequence[Tree],
    results: Sequence[Tree],
) -> Structure:  # fmt: skip
    """Return the structure that two texts describe.

    `inputs` describes a tuple of arguments in order and a dict of those by name, `parameters` are
    the names of the former; `arguments` and `results` are the leaves, in order.
    """
    ends = iter(arguments)
    called = _tree(_spec(inputs), ends, 0)
    match called:
        case Several(items=(Several(items=ordered), Keyed(items=named))):
            pass
        case _:
            raise ModelError("arguments are described as another tree, "
                             "expected a tuple and a dict of keywords")  # fmt: skip
    names = [*parameters, *(f"argument_{i}" for i in range(len(parameters), len(ordered)))]
    by_order = tuple(zip(names, ordered, strict=False))
    by_name = tuple((str(key), tree) for key, tree in named)
    return Structure((*by_order, *by_name), len(by_order), _tree(_spec(outputs), iter(results), 0))


def paths(outputs: str) -> list[str]:
    """Return a name for each end of a described result: its keys, or its place, joined by _."""
    tree = _tree(_spec(outputs), _counted(), 0)
    if isinstance(tree, Leaf):
        return ["output"]
    return [_identifier(path) for path in _paths(tree)]


def field_names(context: Any, count: int) -> list[str] | None:
    """Return the names of an object's `count` fields if the context of its class lists them.

    The context of a dataclass (`torch.export.register_dataclass`) has a list of names, and another
    list for fields that are None.  The context of another class may be a list of names, or begin
    with a list of names.
    """
    match context:
        case [list(names), *_] if len(names) == count and _are_texts(names):
            return names
        case list(names) if len(names) == count and _are_texts(names):
            return names
    return None


def _counted() -> Iterator[Tree]:
    while True:
        yield Leaf("")


def _paths(tree: Tree) -> Iterator[tuple[str, ...]]:
    match tree:
        case Several(items=items):
            for i, item in enumerate(items):
                yield from ((str(i), *rest) for rest in _paths(item))
        case Keyed(items=pairs):
            for key, item in pairs:
                yield from ((str(key), *rest) for rest in _paths(item))
        case _:
            yield ()


def _identifier(path: tuple[str, ...]) -> str:
    name = "_".join(path)
    return f"output_{name}" if not name or name[0].isdecimal() else name


def _spec(text: str) -> Any:
    try:
        described = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelError("the description of arguments is damaged, "
                         f"expected JSON: {error}") from None  # fmt: skip
    if not isinstance(described, list) or len(described) != 2:
        raise ModelError(f"arguments are described by {text[:80]!r}, expected [version, tree]")
    version, spec = described
    if version != PROTOCOL:
        raise ModelError(f"arguments are described in version {version}, expected {PROTOCOL}")
    return spec


def _tree(spec: Any, ends: Iterator[Tree], depth: int) -> Tree:
    """Return the tree of a description, with the next of `ends` where it ends."""
    if depth > DEEPEST:
        raise ModelError(f"arguments are nested too deep, expected at most {DEEPEST} levels")
    try:
        kind, context, inner = spec["type"], spec["context"], spec["children_spec"]
        if kind is None:
            return next(ends)
        items = [_tree(s, ends, depth + 1) for s in inner]
        if kind in ("builtins.tuple", "builtins.list", "collections.namedtuple"):
            return Several("list" if kind == "builtins.list" else "tuple", tuple(items))
        keys = json.loads(context)
        if kind in ("builtins.dict", "collections.OrderedDict"):
            return Keyed("dict", tuple(zip(map(_key, keys), items, strict=True)))
        return _registered(keys, items)
    except (StopIteration, KeyError, TypeError, ValueError, RecursionError) as error:
        raise ModelError(f"the description of arguments is damaged ({error!r}), expected type, "
                         "context and children_spec") from None  # fmt: skip


def _key(key: Any) -> str | int:
    if type(key) is int:
        return key
    if not isinstance(key, str):
        raise ModelError(f"a dict among the arguments has the key {key!r}, expected a string")
    return key


def _registered(context: Any, items: list[Tree]) -> Tree:
    """Return an object of a registered class by the names of its fields, or else by position."""
    names = field_names(context, len(items))
    if names is None:
        return Several("tuple", tuple(items))
    pairs = tuple(zip(names, items, strict=True))
    match context:
        case [list(named), list(absent)] if named == names and _are_texts(absent):
            return Keyed("object", (*pairs, *((name, Fixed(None)) for name in absent)))
    return Keyed("dict", pairs)


def _are_texts(names: list[Any]) -> bool:
    return all(isinstance(name, str) for name in names)

"""How the arguments and results of a model are made of tensors: in tuples, lists, dicts, objects.

A graph has inputs and outputs by name and nothing else.  A model that was called with a dict, and
returns one, has a structure beside it, in which the names stand where its tensors did, so that an
Executable is called as the model was.  What has been no tensor is held to the value that it had
when the model was traced.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from alpenglow.base.errors import FeedError

DEEPEST = 64
"""How many containers may stand in each other."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The place of a tensor: the name of an input or output."""

    name: str


@dataclass(frozen=True, slots=True)
class Fixed:
    """The place of what is no tensor: None, a number or a string."""

    value: Any


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple or a list."""

    kind: Literal["tuple", "list"]
    items: tuple[Tree, ...]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A dict by keys, or an object by attributes; as a result both are a dict."""

    kind: Literal["dict", "object"]
    items: tuple[tuple[str | int, Tree], ...]


Tree: TypeAlias = "Leaf | Fixed | Several | Keyed"


@dataclass(frozen=True, slots=True)
class Structure:
    """What a model is called with, by the names of its parameters, and what it returns.

    The first `positional` of them may be given in order.
    """

    parameters: tuple[tuple[str, Tree], ...]
    positional: int
    result: Tree

    @property
    def is_plain(self) -> bool:
        """Whether arguments are the inputs in order, and results a tensor or a tuple of several."""
        arguments = all(isinstance(tree, Leaf) for _, tree in self.parameters)
        result = self.result
        if not isinstance(result, Several):
            return arguments and isinstance(result, Leaf)
        items = result.items
        several = len(items) > 1 and len(set(items)) == len(items)
        tensors = all(isinstance(item, Leaf) for item in items)
        return arguments and result.kind == "tuple" and several and tensors

    def feeds(self, arguments: Sequence[Any], by_name: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tensors of a call by the names of inputs.

        Raises FeedError if the call does not fit.
        """
        names = [name for name, _ in self.parameters]
        if len(arguments) > self.positional:
            raise FeedError(
                f"got {len(arguments)} arguments in order, expected at most {self.positional}: "
                f"{', '.join(names[: self.positional]) or 'none'}"
            )
        given = dict(zip(names, arguments, strict=False))
        for name, value in by_name.items():
            if name not in names:
                raise FeedError(f"got parameter '{name}', expected some of {', '.join(names)}")
            if name in given:
                raise FeedError(f"parameter '{name}' is already given by position")
            given[name] = value
        arrays: dict[str, Any] = {}
        for name, tree in self.parameters:
            if name in given:
                arrays.update(_taken_apart(tree, given[name], name))
            elif any(isinstance(x, Leaf) for x in leaves(tree)):
                raise FeedError(f"argument '{name}' is missing")
        return arrays

    def results(self, arrays: Mapping[str, Any]) -> Any:
        """Return what the model returns, made of arrays by the names of outputs."""
        return _put_together(self.result, arrays)

    def plain(self) -> list[Any]:
        """Return it as JSON can hold it; `of_plain` reads that back."""
        parameters = [[name, _to_plain(tree)] for name, tree in self.parameters]
        return [parameters, self.positional, _to_plain(self.result)]


def without(
    structure: Structure, inputs: Collection[str], outputs: Collection[str] = ()
) -> Structure | None:
    """Return the structure without the parameters and results that are some inputs and outputs.

    A result that was a tuple of several, of which one is left, is that one.  Return None if an
    input is only a part of a parameter, or no result is left: then calls use flat names.
    """
    gone = {
        name for name, tree in structure.parameters if tensors(tree) and tensors(tree) <= {*inputs}
    }
    left = tuple((name, tree) for name, tree in structure.parameters if name not in gone)
    result = _pruned(structure.result, outputs)
    if result is None or any(tensors(tree) & {*inputs} for _, tree in left):
        return None
    match result:
        case Several(kind="tuple", items=[single]) if result != structure.result:
            result = single
    first = structure.parameters[: structure.positional]
    return Structure(left, sum(name not in gone for name, _ in first), result)


def _pruned(tree: Tree, outputs: Collection[str]) -> Tree | None:
    """Return a result without some tensors, and without the containers that then hold none."""
    match tree:
        case Leaf(name=name):
            return None if name in outputs else tree
        case Fixed():
            return tree
        case Several(kind=kind, items=items):
            some = tuple(kept for item in items if (kept := _pruned(item, outputs)) is not None)
            return None if items and not some else Several(kind, some)
        case Keyed(kind=kind, items=pairs):
            pruned = ((key, _pruned(item, outputs)) for key, item in pairs)
            named = tuple((key, kept) for key, kept in pruned if kept is not None)
            return None if pairs and not named else Keyed(kind, named)


def tensors(tree: Tree) -> set[str]:
    """Return the names of the inputs or outputs that a tree holds."""
    return {x.name for x in leaves(tree) if isinstance(x, Leaf)}


def leaves(tree: Tree) -> Iterator[Leaf | Fixed]:
    """Yield what a tree has at its ends, in order."""
    match tree:
        case Leaf() | Fixed():
            yield tree
        case Several(items=items):
            for item in items:
                yield from leaves(item)
        case Keyed(items=pairs):
            for _, item in pairs:
                yield from leaves(item)


def _taken_apart(tree: Tree, value: Any, where: str) -> Iterator[tuple[str, Any]]:
    match tree:
        case Leaf(name=name):
            yield name, value
        case Fixed(value=expected):
            if type(value) is not type(expected) or value != expected:
                raise FeedError(
                    f"{where} is {value!r}, expected {expected!r}: its value is fixed when the "
                    "model is traced"
                )
        case Several(kind=kind, items=items):
            value = _opened(value)
            if not isinstance(value, Sequence) or len(value) != len(items):
                many = f" of {len(value)}" if isinstance(value, Sequence) else ""
                raise FeedError(
                    f"{where} is a {type(value).__name__}{many}, expected a {kind} of {len(items)}"
                )
            for i, (item, inner) in enumerate(zip(items, value, strict=True)):
                yield from _taken_apart(item, inner, f"{where}[{i}]")
        case Keyed(kind="object", items=pairs) if not isinstance(value, Mapping):
            for key, item in pairs:
                if not hasattr(value, str(key)):
                    found = type(value).__name__
                    raise FeedError(f"{where} is a {found}, expected an attribute '{key}'")
                yield from _taken_apart(item, getattr(value, str(key)), f"{where}.{key}")
        case Keyed(items=pairs):
            keys = [key for key, _ in pairs]
            children = _opened(value)
            if children is not value and len(children) == len(keys):
                value = dict(zip(keys, children, strict=True))
            if not isinstance(value, Mapping) or set(value) != set(keys):
                has = f" with {', '.join(map(str, value))}" if isinstance(value, Mapping) else ""
                raise FeedError(
                    f"{where} is a {type(value).__name__}{has}, expected a dict with "
                    f"{', '.join(map(str, keys))}"
                )
            for key, item in pairs:
                yield from _taken_apart(item, value[key], f"{where}[{key!r}]")


def _opened(value: Any) -> Any:
    """Return the children of an object of a class that PyTorch's pytrees know, or else `value`.

    Nothing is imported: a caller with such an object has imported PyTorch.
    """
    torch = sys.modules.get("torch")
    if torch is None or isinstance(value, Sequence | Mapping):
        return value
    node = torch.utils._pytree.SUPPORTED_NODES.get(type(value))
    return value if node is None else list(node.flatten_fn(value)[0])


def _put_together(tree: Tree, arrays: Mapping[str, Any]) -> Any:
    match tree:
        case Leaf(name=name):
            return arrays[name]
        case Fixed(value=value):
            return value
        case Several(kind=kind, items=items):
            inner = [_put_together(item, arrays) for item in items]
            return tuple(inner) if kind == "tuple" else inner
        case Keyed(items=pairs):
            return {key: _put_together(item, arrays) for key, item in pairs}


def _to_plain(tree: Tree) -> Any:
    match tree:
        case Leaf(name=name):
            return name
        case Fixed(value=value):
            return ["is", value]
        case Several(kind=kind, items=items):
            return [kind, *map(_to_plain, items)]
        case Keyed(kind=kind, items=pairs):
            return [kind, *([key, _to_plain(item)] for key, item in pairs)]


def of_plain(value: Any) -> Structure:
    """Return the structure that `Structure.plain` was made of.

    Raises TypeError or ValueError for what is none.
    """
    parameters, positional, result = value
    if type(positional) is not int or not 0 <= positional <= len(parameters):
        most = len(parameters)
        raise ValueError(f"{positional!r} positional parameters, expected 0 to {most}")
    named = tuple((_text(name), _of_plain(tree, 0)) for name, tree in parameters)
    return Structure(named, positional, _of_plain(result, 0))


def _of_plain(value: Any, depth: int) -> Tree:
    if isinstance(value, str):
        return Leaf(value)
    if depth > DEEPEST:
        raise ValueError(f"containers are nested too deeply, expected at most {DEEPEST} levels")
    kind, *items = value
    if kind == "is":
        (fixed,) = items
        if not isinstance(fixed, str | int | float | None):
            found = type(fixed).__name__
            raise TypeError(f"a fixed value is a {found}, expected str, int, float or None")
        return Fixed(fixed)
    if kind in ("tuple", "list"):
        return Several(kind, tuple(_of_plain(item, depth + 1) for item in items))
    if kind in ("dict", "object"):
        pairs = [(key if type(key) is int else _text(key), item) for key, item in items]
        return Keyed(kind, tuple((key, _of_plain(item, depth + 1)) for key, item in pairs))
    raise ValueError(f"a container is a {kind!r}, expected tuple, list, dict or object")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is a {type(value).__name__}, expected a string")
    return value

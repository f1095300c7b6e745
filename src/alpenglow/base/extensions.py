"""What distributions bring, found by entry points; ours stand in the same groups as anybody's.

| group                  | an entry is                                                             |
|------------------------|-------------------------------------------------------------------------|
| `alpenglow.extensions` | a module, imported with this package: operators, loop forms, converters |
| `alpenglow.frontends`  | a `frontends.registry.FrontEnd`, which reads a model format             |
| `alpenglow.machines`   | a `machines.api.Machine`: targets, passes, operators, code              |

An entry that is a class stands for one instance of it.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from alpenglow.base.errors import IncompatibleError


@cache
def entries(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, in order of their names.

    Raises IncompatibleError if two distributions bring the same name.
    """
    points: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=group), key=lambda e: e.name):
        other = points.setdefault(entry.name, entry)
        if other != entry:
            raise IncompatibleError(
                f"both {_owner(other)} and {_owner(entry)} bring '{entry.name}' as {group}",
                hint="uninstall one of them",
            )
    return points


@cache
def brought(group: str) -> dict[str, Any]:
    """Load all entries of a group and return them by name.

    Raises IncompatibleError, naming the distribution, if one cannot be loaded.
    """
    return {name: _loaded(entry) for name, entry in entries(group).items()}


def bring_operators() -> None:
    """Register our operators and those of machines, then import what extensions bring."""
    import_module("alpenglow.ops")
    brought("alpenglow.machines")
    brought("alpenglow.extensions")


def _loaded(entry: EntryPoint) -> Any:
    try:
        thing = entry.load()
        return thing() if isinstance(thing, type) else thing
    # What a module of somebody else's raises can be anything; it is passed on with its origin.
    except Exception as error:
        raise IncompatibleError(
            f"'{entry.name}' ({entry.value}) of {_owner(entry)} cannot be loaded: "
            f"{type(error).__name__}: {error}",
            hint="install another version of that distribution, or uninstall it",
        ) from error


def _owner(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "a distribution without a name"
    return f"distribution {entry.dist.name} {entry.dist.version}"

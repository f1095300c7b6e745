"""What distributions bring, found by entry points; ours stand in the same groups as anybody's.

| group                  | an entry is                                                             |
|------------------------|-------------------------------------------------------------------------|
| `alpenglow.extensions` | a module, imported with this package: operators, loop forms, converters |
| `alpenglow.frontends`  | a `frontends.registry.FrontEnd`, which reads a model format             |
| `alpenglow.machines`   | a `machines.api.Machine`: targets, passes, operators, code              |

An entry that is a class stands for one instance of it.

The *extras* of this package are brought here, too, but late: a table that lacks a name calls
`bring_extras` and looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from alpenglow.base.errors import IncompatibleError
from alpenglow.base.modules import import_modules, module_names

EXTRAS = "alpenglow.extras"
"""The package of the extras; only this module imports it, by its name."""

T = TypeVar("T")


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


@cache
def bring_extras(part: str = "") -> None:
    """Import all extras, and of each the modules of its subpackage `part`, if that is given.

    An extra registers its operators and their loop forms as it is imported.
    """
    for extra in import_modules(EXTRAS):
        if part in module_names(extra):
            import_modules(f"{extra.__name__}.{part}")


def found_with_extras(
    part: str, look: Callable[[], T | None], origin: Callable[[T], str]
) -> T | None:
    """Return the entry that `look` finds in a table: the core's, or else what the extras add.

    `origin` returns the name of the module that registered an entry.  An entry of an extra counts
    once all of them are imported, since another thread may be importing them; one of another
    distribution does, too, so that it meets an extra's entry of the same name in any case.
    """
    entry = look()
    if entry is None or not _is_core(origin(entry)):
        bring_extras(part)
        entry = look()
    return entry


def is_extra(thing: Callable[..., object]) -> bool:
    """Return True if an extra defines a class or function."""
    return thing.__module__.startswith(f"{EXTRAS}.")


def _is_core(module: str) -> bool:
    return module.startswith("alpenglow.") and not module.startswith(f"{EXTRAS}.")


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

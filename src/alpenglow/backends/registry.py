"""Finding the backend for a target.  Ours and third parties' come through the same door: the entry
point group ``alpenglow.backends``, each entry a class without arguments."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points

from alpenglow.backends.api import Backend
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target


@cache
def backends() -> tuple[Backend, ...]:
    """Return all backends that are installed."""
    found = entry_points(group="alpenglow.backends")
    return tuple(e.load()() for e in sorted(found, key=lambda e: e.name))


def backend_for(target: Target) -> Backend:
    """Return the backend that makes code for `target`; raise UnsupportedError if there is none."""
    for backend in backends():
        if backend.accepts(target):
            return backend
    raise UnsupportedError(f"no backend makes code for target '{target}'")

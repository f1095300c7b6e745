"""Finding the backend for a target.  Ours and third parties' come through the same door: the entry
point group ``alpenglow.backends``, each entry a class without arguments."""

from __future__ import annotations

from alpenglow.backends.api import Backend
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.extensions import brought
from alpenglow.ir.target import Target


def backends() -> tuple[Backend, ...]:
    """Return all backends that are installed, in order of their entry points' names."""
    return tuple(brought("alpenglow.backends").values())


def backend_for(target: Target) -> Backend:
    """Return the backend that makes code for `target`; raise UnsupportedError if there is none."""
    for backend in backends():
        if backend.accepts(target):
            return backend
    raise UnsupportedError(f"no backend makes code for target '{target}'")

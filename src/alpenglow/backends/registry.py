"""Finding the backend for a target.  Ours and third parties' come through the same door: the entry
point group ``alpenglow.backends``, each entry a class without arguments."""

from __future__ import annotations

from alpenglow.backends.api import Backend
from alpenglow.base.errors import UnsupportedError
from alpenglow.base.extensions import brought
from alpenglow.ir.target import Target


def backend_for(target: Target) -> Backend:
    """Return the backend that makes code for `target`; raise UnsupportedError if there is none.

    A backend whose entry point bears the target's name comes first: one for a variant of a
    machine that we have code for, too, is not passed over.
    """
    found: dict[str, Backend] = brought("alpenglow.backends")
    own = target.name.split("+")[0]
    for name in sorted(found, key=lambda name: name != own):
        if found[name].accepts(target):
            return found[name]
    raise UnsupportedError(f"no backend makes code for target '{target}'")

"""What the open extents of an Executable are in a call: read off the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.solve import sources, untold, values_of
from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime.layout import compiled


class Reader:
    """Reads values of symbols off the shapes of arrays for some inputs."""

    def __init__(self, types: Mapping[str, TensorType]) -> None:
        """Raise UnsupportedError where shapes do not tell all symbols."""
        shapes = {name: t.shape for name, t in types.items()}
        if missing := untold(shapes):
            listed = ", ".join(f"{name} {t}" for name, t in types.items())
            raise UnsupportedError(
                f"the extents {', '.join(sorted(missing))} do not follow from the shapes of the "
                f"inputs {listed}",
                hint="bind them: compile(…, shapes={'NAME': (…)})",
            )
        self._sources = sources(shapes)
        self._shapes = compiled(
            [s.symbol for s in self._sources],
            ["(" + "".join(f"{d}, " for d in shape) + ")" for shape in shapes.values()],
        )

    def values(self, feeds: Mapping[str, Array]) -> tuple[dict[str, int], str]:
        """Return what the open extents are in a call, and the first input that does not fit.

        All arrays have the rank of their input.
        """
        known, unfit = values_of(self._sources, {n: a.shape for n, a in feeds.items()})
        if unfit is not None:
            return known, unfit.input
        for (name, array), shape in zip(feeds.items(), self._shapes(*known.values()), strict=True):
            if array.shape != shape:
                return known, name
        return known, ""

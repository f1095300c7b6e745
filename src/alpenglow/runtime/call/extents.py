"""What the open extents of an Executable are in a call: read off the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Dim
from alpenglow.ir.solve import sources, untold, values_of
from alpenglow.ir.types import Array, TensorType
from alpenglow.runtime.memory.layout import compiled


class Reader:
    """Reads values of symbols off the shapes of arrays for some inputs."""

    def __init__(
        self, types: Mapping[str, TensorType], known: Mapping[str, Dim] = MappingProxyType({})
    ) -> None:
        """Raise UnsupportedError where shapes do not tell all symbols.

        `known` are extents that a call tells beside its inputs, under names that are no input's.
        """
        self._known = tuple(known)
        shapes: dict[str, tuple[Dim, ...]] = {name: (d,) for name, d in known.items()}
        shapes |= {name: t.shape for name, t in types.items()}
        if missing := untold(shapes):
            listed = ", ".join(f"{name} {t}" for name, t in types.items())
            raise UnsupportedError(
                f"dynamic dimensions {', '.join(sorted(missing))} do not follow from the shapes of "
                f"the inputs {listed}",
                hint="fix them: compile(…, shapes={'NAME': (…)})",
            )
        self._sources = sources(shapes)
        self._shapes = compiled(
            [s.symbol for s in self._sources],
            ["(" + "".join(f"{d}, " for d in shape) + ")" for shape in shapes.values()],
        )

    def values(
        self, feeds: Mapping[str, Array], extents: Mapping[str, int] = MappingProxyType({})
    ) -> tuple[dict[str, int], str]:
        """Return what the open extents are in a call, and the first input that does not fit.

        All arrays have the rank of their input; `extents` are those that are `known` beside them.
        """
        shapes: dict[str, tuple[int, ...]] = {name: (extents[name],) for name in self._known}
        shapes |= {n: a.shape for n, a in feeds.items()}
        known, unfit = values_of(self._sources, shapes)
        if unfit is not None:
            return known, unfit.input
        for (name, found), shape in zip(shapes.items(), self._shapes(*known.values()), strict=True):
            if found != shape:
                return known, name
        return known, ""

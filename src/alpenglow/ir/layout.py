"""Layouts: which axes of a shape hold the elements of a tensor, and where.

The core knows row-major, where each axis of the shape is an axis of the tensor.  A machine derives
others from `Layout`, beside the operators that convert a tensor to them and back.  All other
operators take row-major tensors, or leave the axes that a layout holds as they are (`Op.layouts`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from alpenglow.base import extensions
from alpenglow.base.errors import TypeRuleError
from alpenglow.ir import dims
from alpenglow.ir.dims import Dim

Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Layout:
    """Row-major, and the base of other layouts.

    `str` of another layout is its attribute of an operator, such as ``blocked=50``: the name of the
    class in lower case, and its only field.
    """

    registry: ClassVar[dict[str, type[Layout]]] = {}

    def __init_subclass__(cls) -> None:
        Layout.registry[cls.__name__.lower()] = cls

    def __str__(self) -> str:
        return "row-major"

    @classmethod
    def parse(cls, extents: Sequence[str]) -> tuple[Layout, Shape] | None:
        """Return the layout and the shape that the method `extents` wrote; None if it was that of
        another layout."""
        return None

    def extents(self, shape: Shape) -> list[str]:
        """Return the extents of a type as text."""
        return [str(d) for d in shape]

    def check(self, shape: Shape) -> None:
        """Raise TypeRuleError if no tensor in this layout has the shape."""

    def held(self, rank: int) -> tuple[int, ...]:
        """Return the axes that hold elements in an order of the layout's own."""
        return ()

    def logical(self, shape: Shape) -> Shape:
        """Return the shape of the tensor in row-major order."""
        return shape

    def specified(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the elements of an array in row-major order, without padding of the layout."""
        return array

    def bind(self, values: Mapping[str, Dim]) -> Layout:
        """Put numbers, or other extents, in place of named extents."""
        return self

    def joined(self, other: Layout, shape: Shape, axis: int) -> Layout:
        """Return the layout of a tensor of `shape` followed along `axis` by one in `other`.

        Raises TypeRuleError if the layouts differ, or hold the axis.
        """
        if other != self or axis in self.held(len(shape)):
            raise TypeRuleError(f"cannot join along axis {axis}: layouts are {self} and {other}, "
                                "expected equal ones that do not hold the axis")
        return self


ROW_MAJOR = Layout()

_SINGLE_SLASH = re.compile(r"[^/]/[^/]")
"""The sign of a layout among extents: in row-major order a quotient is written //."""


def find_layout(name: str) -> Callable[..., Layout] | None:
    """Return the layout of that name, which may be a machine's; None if there is none."""
    if name not in Layout.registry:
        extensions.bring_operators()
    return Layout.registry.get(name)


def parse_extents(extents: Sequence[str]) -> tuple[Layout, Shape]:
    """Return the layout and the shape of a type that has these extents.

    Raises ParseError if no layout writes them so.
    """
    if any(map(_SINGLE_SLASH.search, extents)):
        extensions.bring_operators()
        for cls in Layout.registry.values():
            if (parsed := cls.parse(extents)) is not None:
                return parsed
    return ROW_MAJOR, tuple(map(dims.parse, extents))

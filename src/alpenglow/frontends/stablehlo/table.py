"""The table from names of StableHLO's operations to their converters.

A converter takes the `Site` of one operation and returns the values of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.operands import Importing, Operands
from alpenglow.frontends.stablehlo.elements import element
from alpenglow.frontends.stablehlo.module import Block, Module, Operation, Tensor, Type
from alpenglow.frontends.table import Table
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import NARROW, NARROW_INTS, Array

Made = Value | Sequence[Value]
Converter = Callable[["Site"], Made]


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter; `pointwise` ones make an element of those at the same place, in any shape."""

    convert: Converter
    pointwise: bool


_TABLE: Table[str, Conversion] = Table("stablehlo")


def on(*names: str, pointwise: bool = False) -> Callable[[Converter], Converter]:
    """Register the decorated converter for operations by name."""
    return _TABLE.on(names, lambda converter: Conversion(converter, pointwise))


def both(*names: str) -> tuple[str, ...]:
    """Return names of operations of StableHLO, and of their broadcasting variants in CHLO."""
    return tuple(prefix + name for name in names for prefix in ("stablehlo.", "chlo.broadcast_"))


find = _TABLE.find
"""Return the entry for an operation by name, or None."""


def supported() -> list[str]:
    """Return the names of all operations that have a converter."""
    return sorted(_TABLE.names())


def computed(dtype: str) -> str:
    """Return the element type in which elements of a type are computed with."""
    if dtype in NARROW_INTS:
        return "u8" if dtype.startswith("u") else "i8"
    return "f32" if dtype in NARROW else dtype


@dataclass(frozen=True, slots=True)
class Window:
    """Windows on a tensor: in each list, an entry for each axis.

    `base` is the dilation of the tensor, `spread` the dilation of the window; `edges` is the
    padding, cut off if negative.  Axes `turned` run backwards in a window.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    base: tuple[int, ...]
    spread: tuple[int, ...]
    turned: tuple[int, ...]
    edges: tuple[tuple[int, int], ...]


class Site(Operands):
    """One operation during import: its operands, attributes and regions, and the graph."""

    def __init__(
        self, g: Graph, operation: Operation, label: str, names: Sequence[str],
        results: Sequence[str], importer: Importing, module: Module, scope: Mapping[str, str],
        shape: tuple[Dim, ...] | None,
    ) -> None:  # fmt: skip
        """`shape` is the shape of all values in a body applied to whole tensors, else None."""
        super().__init__(g, operation.name, label, names, results, importer)
        self.operation, self.module, self.scope = operation, module, scope
        self.importer, self.shape = importer, shape

    # ── attributes ──

    def has(self, name: str) -> bool:
        return self.operation.attributes.get(name) is not None

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute; raise ModelError if it is absent and there is no default."""
        value = self.operation.attributes.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.wrong(f"attribute {name} is missing")
        return value

    def numbers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return an attribute that is a list of integers."""
        value = self.attribute(name, default)
        if isinstance(value, np.ndarray):
            value = value.reshape(-1).tolist()
        if not isinstance(value, list | tuple) or any(
            not isinstance(n, int | bool | np.integer) for n in value
        ):
            raise self.wrong(f"attribute {name} is {value!r}, expected integers")
        return tuple(int(n) for n in value)

    def number(self, name: str, default: int | None = None) -> int:
        """Return an attribute that is an integer."""
        value = self.attribute(name, default)
        if not isinstance(value, int | np.integer):
            raise self.wrong(f"attribute {name} is {value!r}, expected an integer")
        return int(value)

    def choice(self, name: str, default: str, *choices: str) -> str:
        """Return an attribute that is one of some words."""
        value = self.attribute(name, default)
        if value not in (default, *choices):
            raise self.wrong(f"{name} is {value!r}, expected {' or '.join((default, *choices))}")
        return str(value)

    def counts(self, *names: str) -> list[int]:
        """Return attributes that are integers above 0, 1 if nothing is said."""
        numbers = [self.number(name, 1) for name in names]
        for name, number in zip(names, numbers, strict=True):
            if number < 1:
                raise self.wrong(f"{name} is {number}, expected at least 1")
        return numbers

    def window(
        self, rank: int, base: str = "base_dilations", spread: str = "window_dilations",
        padding: Sequence[int] | None = None,
    ) -> Window:  # fmt: skip
        """Return the attributes of windows, of which two have names that differ."""
        names = ("window_dimensions", "window_strides", base, spread)
        lists = [self.numbers(name, (1,) * rank) for name in names]
        turned = self.numbers("window_reversal", (0,) * rank)
        edges = self.numbers("padding", (0, 0) * rank) if padding is None else padding
        self.each(rank, **dict(zip(names, lists, strict=True)), window_reversal=turned)
        self.each(2 * rank, padding=edges)
        for name, numbers in zip(names, lists, strict=True):
            if min(numbers, default=1) < 1:
                raise self.wrong(f"{name} is {numbers}, expected entries of at least 1")
        size, strides, between, within = lists
        pairs = tuple(zip(edges[::2], edges[1::2], strict=True))
        return Window(size, strides, between, within, turned, pairs)

    def array(self, name: str) -> Array:
        """Return an attribute that is a constant."""
        value = self.attribute(name)
        if not isinstance(value, np.ndarray):
            raise self.wrong(f"attribute {name} is {value!r}, expected a constant")
        return value

    def dims_of(self, name: str, kind: type) -> Any:
        """Return an attribute that holds dimension numbers."""
        value = self.attribute(name)
        if not isinstance(value, kind):
            raise self.wrong(f"{name} is {value!r}, expected dimension numbers")
        return value

    # ── operands and results ──

    def refuse_dtype(self, v: Value, supported: str) -> UnsupportedError:
        """Return the error for an operand of a dtype that this operation does not support."""
        return self.refuse(f"dtype {v.type.dtype} is not supported; supported: {supported}")

    def count(self, *counts: int) -> None:
        """Raise ModelError unless there are so many operands."""
        if len(self.inputs) not in counts:
            wanted = " or ".join(map(str, counts))
            raise ModelError(f"{self.kind} has {len(self.inputs)} operands, expected {wanted}")

    def result(self, i: int = 0) -> Tensor:
        """Return the declared type of a result."""
        return tensor(self.kind, self.operation.types, i)

    def dtype(self, i: int = 0) -> str:
        """Return the element type of a result; raise UnsupportedError if no graph holds it."""
        return element(self.kind, self.result(i))

    def extents(self, i: int = 0) -> tuple[Dim, ...]:
        """Return the declared shape of a result; raise ModelError if it is dynamic."""
        if self.shape is not None:
            return self.shape
        t = self.result(i)
        if t.shape is None or None in t.shape:
            raise self.wrong(f"the result is declared as {t}, expected a static shape")
        return tuple(d for d in t.shape if d is not None)

    @property
    def plain(self) -> str:
        """The name without its dialect, and without ``broadcast_``."""
        return self.kind.partition(".")[2].removeprefix("broadcast_")

    def pair(self) -> tuple[Value, Value]:
        """Return both operands, which have one type, in one that is computed with.

        Those of CHLO's operations that broadcast do so as NumPy's do.
        """
        self.count(2)
        x, y = self.wide(0), self.wide(1)
        if self.kind.startswith("chlo.broadcast_"):
            self.check_trailing(x, y)
        elif x.type.rank != y.type.rank or any(
            known(a) and known(b) and a != b
            for a, b in zip(x.type.shape, y.type.shape, strict=True)
        ):
            raise self.wrong(f"operands are {x.type} and {y.type}, expected the same shape")
        if x.type.dtype != y.type.dtype:
            raise self.wrong(f"operands are {x.type} and {y.type}, expected the same dtype")
        x, y = self.broadcast(x, y)
        return x, y

    def check_trailing(self, *values: Value) -> None:
        """Raise UnsupportedError unless the axes of the shortest operand are the last ones."""
        if not self.has("broadcast_dimensions"):
            return
        ranks = [v.type.rank for v in values]
        axes = self.numbers("broadcast_dimensions")
        last = tuple(range(max(ranks) - min(ranks), max(ranks)))
        if axes != last:
            raise self.refuse(f"broadcast_dimensions {axes} is not supported; supported: {last}")

    def wide(self, i: int) -> Value:
        """Return operand i in an element type that is computed with."""
        v = self.input(i)
        return self.cast(v, computed(v.type.dtype))

    def body(self, i: int = 0) -> Block:
        """Return region i; raise ModelError if there is none."""
        if i >= len(self.operation.regions):
            count = len(self.operation.regions)
            raise ModelError(f"{self.kind} has {count} regions, expected at least {i + 1}")
        return self.operation.regions[i]

    def axis(self, axis: int, rank: int, what: str = "dimension") -> int:
        """Return an axis, in messages `what`; raise ModelError if it is out of range."""
        if not 0 <= axis < rank:
            raise self.wrong(f"{what} is {axis}, expected at least 0 and less than {rank}")
        return axis

    def axes(self, axes: Sequence[int], rank: int, what: str = "axes") -> tuple[int, ...]:
        """Return axes, in messages `what`; raise ModelError if two are equal, or out of range."""
        if len(set(axes)) < len(axes) or any(not 0 <= a < rank for a in axes):
            within = f"different axes of at least 0 and less than {rank}"
            raise self.wrong(f"{what} is {tuple(axes)}, expected {within}")
        return tuple(axes)

    def each(self, rank: int, **lists: Sequence[Any]) -> None:
        """Raise ModelError unless attributes have an element for each axis."""
        for name, value in lists.items():
            if len(value) != rank:
                raise self.wrong(f"{name} has {len(value)} entries, expected {rank}")


def tensor(kind: str, types: Sequence[Type], i: int) -> Tensor:
    """Return the declared type of a result; raise ModelError if it is not a tensor."""
    if i >= len(types):
        raise ModelError(f"{kind} has {len(types)} results, expected at least {i + 1}")
    t = types[i]
    if not isinstance(t, Tensor):
        raise ModelError(f"{kind}: result {i} is {t}, expected a tensor")
    return t

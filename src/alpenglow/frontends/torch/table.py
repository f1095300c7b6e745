"""The table from names of ATen operators to the functions that build ours.

A converter takes the `Site` of one call, and the call's arguments by the names of the operator's
schema, with the schema's defaults (``self`` is called ``x``, others are in `SPELLED`).  Tensors are
values of the graph, extents are numbers or symbols.  It returns the values of the results.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.torch.program import Call, Unknown
from alpenglow.frontends.torch.promote import Number, shared
from alpenglow.ir.dims import Atom, Dim, Sym, is_open, names, symbol
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, DTYPES, INTS, PARTS, TensorType, holds
from alpenglow.ops.arithmetic import Add, Div, Mod, Mul, Sub
from alpenglow.ops.complex import ViewAsComplex, ViewAsReal, bare_parts, joined
from alpenglow.ops.generate import Range, Size
from alpenglow.ops.logic import BitOr
from alpenglow.ops.movement import Broadcast, Reshape, stretch
from alpenglow.ops.reduction import filled
from alpenglow.ops.select import Cast

Made = Value | Sequence[Value | None]
Converter = Callable[..., Made]
Operand = Value | Number


@dataclass(frozen=True, slots=True)
class Entry:
    """A converter, and the parameters that it takes after the site, with their defaults."""

    convert: Converter
    parameters: Mapping[str, Any]


REQUIRED = inspect.Parameter.empty
SPELLED = {"self": "x", "from": "from_", "s": "number"}
"""Names of schemas that Python or custom does not allow for parameters, or that are a site's."""

IGNORED = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})
"""Where and how a tensor lies in PyTorch's memory: no converter need take these."""

_TABLE: dict[str, Entry] = {}


def on(*targets: str) -> Callable[[Converter], Converter]:
    """Register the decorated converter for operators, each as ``aten.add.Tensor``."""

    def add(converter: Converter) -> Converter:
        _, *parameters = inspect.signature(converter).parameters.values()
        defaults = {p.name: p.default for p in parameters if p.kind != p.VAR_KEYWORD}
        for target in targets:
            assert target not in _TABLE, f"two converters for {target}"
            _TABLE[target] = Entry(converter, defaults)
        return converter

    return add


def find(target: str) -> Entry | None:
    """Return the entry for an operator, or None."""
    return _TABLE.get(target)


def supported() -> list[str]:
    """Return the names of all operators that have a converter."""
    return sorted(_TABLE)


def bound(entry: Entry, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a converter by its parameters' names.

    Raises ModelError if one is missing, UnsupportedError if the converter does not know one.
    """
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        parameter = SPELLED.get(name, name)
        if parameter in entry.parameters:
            if isinstance(value, Unknown):
                raise UnsupportedError(f"argument {name} is {value.what}")
            values[parameter] = value
        elif name not in IGNORED and value is not None:
            raise UnsupportedError(f"argument {name} = {value!r} is not known")
    for name, default in entry.parameters.items():
        if name not in values and default is REQUIRED:
            raise ModelError(f"argument {name} is missing")
    return values


NO_SCALARS: Mapping[str, Value] = MappingProxyType({})


class Site:
    """One call during import: the graph to build in, and what PyTorch says of the results."""

    def __init__(
        self, g: Graph, call: Call, stated: Sequence[TensorType | None],
        scalars: Mapping[str, Value] = NO_SCALARS,
    ) -> None:  # fmt: skip
        self.g = g
        self.call = call
        self._stated = stated
        self._scalars = scalars

    @property
    def result(self) -> TensorType:
        """The type that PyTorch states for the first result."""
        return self.stated(0)

    def stated(self, i: int) -> TensorType:
        """Return the type that PyTorch states for result i."""
        t = self._stated[i] if i < len(self._stated) else None
        if t is None:
            raise UnsupportedError(f"result {i} is no tensor")
        return t

    def is_read(self, i: int) -> bool:
        """Whether anything reads result i."""
        return i < len(self.call.results) and bool(self.call.results[i])

    @property
    def results(self) -> int:
        """How many results there are."""
        return len(self._stated)

    def cast(self, x: Value, dtype: str) -> Value:
        """Return x in another element type; x itself if it has that.

        Of complex numbers that become reals the imaginary parts go.
        """
        if x.type.dtype == dtype:
            return x
        if x.type.dtype in COMPLEX and dtype in COMPLEX:
            return self.g(ViewAsComplex(), self.g(Cast(PARTS[dtype]), self.g(ViewAsReal(), x)))
        if x.type.dtype in COMPLEX:
            real, imaginary = bare_parts(self.g, x)
            if dtype != "bool":
                return self.cast(real, dtype)
            return self.g(BitOr(), self.cast(real, "bool"), self.cast(imaginary, "bool"))
        if dtype in COMPLEX:
            real = self.g(Reshape((*x.type.shape, 1)), self.cast(x, PARTS[dtype]))
            return joined(self.g, real, filled(self.g, 0, real))
        return self.g(Cast(dtype), x)

    def constant(self, number: Number, dtype: str) -> Value:
        """Return a number, or an extent, as a tensor without axes."""
        if is_open(number):
            assert isinstance(number, Sym)
            return self.extent(number, dtype)
        if isinstance(number, Sym) or (isinstance(number, complex) and dtype not in COMPLEX):
            raise UnsupportedError(f"{number} is no number that {dtype} is made of")
        if not isinstance(number, complex) and not holds(dtype, number):
            raise UnsupportedError(f"{dtype} holds no {number}")
        return self.g.constant(np.asarray(number, DTYPES[dtype]))

    def extent(self, extent: Dim, dtype: str = "i64") -> Value:
        """Return an extent as a tensor without axes; one that is not less than 0.

        Of symbols that are no extents of inputs but numbers, any polynomial will do.
        """
        if isinstance(extent, Sym) and names(extent) & self._scalars.keys():
            return self.cast(self._number(extent), dtype)
        return self.cast(self.g(Reshape(()), self.g(Size(), self.g(Range(extent)))), dtype)

    def _number(self, d: Dim) -> Value:
        """Return what an expression of symbols comes to, as i64."""
        if not isinstance(d, Sym):
            return self.constant(d, "i64")
        total = self.constant(0, "i64")
        for monomial, coefficient in d.terms:
            term = self.constant(coefficient, "i64")
            for atom in monomial:
                term = self.g(Mul(), term, self._atom(atom))
            total = self.g(Add(), total, term)
        return total

    def _atom(self, atom: Atom) -> Value:
        if isinstance(atom, str):
            return self._scalars[atom] if atom in self._scalars else self.extent(symbol(atom))
        left, right = self._number(atom.left), self._number(atom.right)
        rest = self.g(Mod(), left, right)
        return rest if atom.op == "%" else self.g(Div(), self.g(Sub(), left, rest), right)

    def tensor(self, x: Operand, dtype: str) -> Value:
        """Return an operand in an element type, a number as a tensor without axes."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.constant(x, dtype)

    def filled(self, number: Number, like: TensorType) -> Value:
        """Return a tensor of a type, each element the number."""
        return stretch(self.g, self.constant(number, like.dtype), like.shape)

    def broadcast(self, *values: Value, shape: tuple[Dim, ...] | None = None) -> list[Value]:
        """Stretch values to a shape, that of the result if none is said."""
        wanted = self.result.shape if shape is None else shape
        return [stretch(self.g, v, wanted) for v in values]

    def operands(self, *xs: Operand, dtype: str = "") -> list[Value]:
        """Return operands in a common element type, as PyTorch promotes, in the result's shape."""
        common = dtype or shared(xs)
        return self.broadcast(*(self.tensor(x, common) for x in xs))

    def apply(self, op: Op, *xs: Operand, dtype: str = "") -> Value:
        """Apply an elementwise operator to operands in `dtype`, or the common element type."""
        return self.g(op, *self.operands(*xs, dtype=dtype))

    def reshaped(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x in another shape; x itself if it has that."""
        return x if x.type.shape == tuple(shape) else self.g(Reshape(tuple(shape)), x)

    def spread(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x broadcast to a shape."""
        return x if x.type.shape == tuple(shape) else self.g(Broadcast(tuple(shape)), x)


def element(number: Number, dtype: str) -> Number:
    """Return what a number is where PyTorch makes it an element: integers have no fractions."""
    if not isinstance(number, bool | int | float):
        return number
    if dtype == "bool":
        return bool(number)
    return int(number) if dtype in INTS and math.isfinite(number) else number


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front; a tensor without axes has one, 0."""
    least = max(rank, 1)
    if not -least <= axis < least:
        raise ModelError(f"axis {axis} is not in a tensor of rank {rank}")
    return axis % least


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, in order: all for None and for none."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    return tuple(sorted(axis_of(a, rank) for a in listed)) if rank else ()


def each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each of `count` axes: a single one stands for all."""
    if isinstance(value, int):
        return (value,) * count
    return tuple(value) * count if len(value) == 1 else tuple(value)

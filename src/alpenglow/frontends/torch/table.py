"""The table from names of ATen operators to their converters, which build nodes.

A converter takes the `Site` of one call, and the call's arguments by the names of the operator's
schema, or by those in `SPELLED` (``self`` is called ``x``), with the schema's defaults.  Arguments
that only some of its operators take have a default as well.  Tensors are values of the graph,
extents are numbers or symbols.  It returns the values of the results.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.numbers import apply, as_complex, parts_of
from alpenglow.frontends.operands import Builder, Importing, cut
from alpenglow.frontends.presume import Needed
from alpenglow.frontends.table import Table
from alpenglow.frontends.torch.program import DENSE, Call, Condition, Unknown
from alpenglow.frontends.torch.promote import Number, shared
from alpenglow.frontends.torch.symbols import indicator
from alpenglow.ir.dims import (
    Atom,
    Dim,
    Guards,
    Monomial,
    Sym,
    decided,
    is_element,
    is_open,
    known,
    names,
    natural,
    symbol,
)
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, DTYPES, INTS, PARTS, TensorType, holds
from alpenglow.ops.elementwise.arithmetic import Add, Div, Maximum, Minimum, Mod, Mul, Sub
from alpenglow.ops.elementwise.complex import ViewAsComplex, ViewAsReal
from alpenglow.ops.elementwise.logic import BitOr
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.generate import Range, Size
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch

Made = Value | Sequence[Value | Dim | None]
"""A number is the extent that a result is."""

Converter = Callable[..., Made]
Operand = Value | Number


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter, and the parameters that it takes after the site, with their defaults."""

    convert: Converter
    parameters: Mapping[str, Any]

    @classmethod
    def of(cls, converter: Converter) -> Conversion:
        """Return the entry of a converter."""
        _, *parameters = inspect.signature(converter).parameters.values()
        return cls(converter, {p.name: p.default for p in parameters if p.kind != p.VAR_KEYWORD})

    def parameter(self, name: str) -> str:
        """Return the parameter that takes an argument of the schema."""
        return name if name in self.parameters else SPELLED.get(name, name)


REQUIRED = inspect.Parameter.empty
SPELLED = {
    "self": "x", "from": "from_", "s": "number", "input": "x", "inp": "x", "a": "x", "b": "other",
    "other": "exponent", "dims": "dim", "pred": "condition", "output_dtype": "dtype",
    "axis0": "dim0", "axis1": "dim1", "batch1": "mat1", "batch2": "mat2", "value": "src",
    "split_size": "split_sizes",
}  # fmt: skip
"""Parameters of converters for arguments that a schema names otherwise: Python reserves the
name, a site has it, or it is the name of ``prims`` where the same operator of ATen has another.
A converter that has a parameter of the schema's name takes the argument by that."""

IGNORED = frozenset({"layout", "device", "pin_memory", "memory_format", "non_blocking"})
"""Arguments on the memory of a tensor in PyTorch: converters need not take these."""

NO_GENERATOR = (
    "random numbers are not supported in .pt2 files, control flow and data-dependent programs"
)

_TABLE: Table[str, Conversion] = Table("torch")


def on(*targets: str) -> Callable[[Converter], Converter]:
    """Register the decorated converter for operators, each as ``aten.add.Tensor``."""
    return _TABLE.on(targets, Conversion.of)


def find(target: str) -> Conversion | None:
    """Return the entry for an operator, or None."""
    return _TABLE.find(target)


def supported() -> list[str]:
    """Return the names of all operators that have a converter."""
    return sorted(_TABLE.names())


def bound(entry: Conversion, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a converter by its parameters' names.

    Raises ModelError if one is missing, UnsupportedError if the converter does not know one.
    """
    values: dict[str, Any] = {}
    for name, value in arguments.items():
        parameter = entry.parameter(name)
        if isinstance(value, Unknown) and name not in IGNORED:
            raise UnsupportedError(f"argument {name} is not supported: {value.what}")
        if parameter in entry.parameters:
            values[parameter] = value
        elif name not in IGNORED and value is not None:
            raise UnsupportedError(f"argument {name} is {value!r}, expected None")
    for name, default in entry.parameters.items():
        if name not in values and default is REQUIRED:
            raise ModelError(f"argument {name} is missing")
    return values


class Context(Importing, Protocol):
    """The part of an importer that converters use."""

    def element(self, symbol: str) -> Value | None:
        """Return the tensor without axes whose element a symbol is."""
        ...

    def demand(self, guards: Guards, message: str) -> None:
        """Take for granted what must hold of extents, and write it down."""
        ...

    def widen(self, extent: Dim, most: Dim) -> None:
        """Let an extent of data be as much as `most`, whatever PyTorch states."""
        ...

    def draw(self, op: Op, *xs: Value) -> Value:
        """Return the numbers that an operator draws, and advance the generator."""
        ...


class Site(Builder):
    """One call during import: the graph to build in, and what PyTorch says of the results."""

    def __init__(
        self,
        g: Graph,
        call: Call,
        stated: Sequence[TensorType | None],
        context: Context | None = None,
    ) -> None:
        self.g, self.call = g, call
        self.label = f"{call.target} '{call.name}'"
        self._stated, self._context = stated, context
        self._measures = 0

    @property
    def result(self) -> TensorType:
        """The type that PyTorch states for the first result."""
        return self.stated(0)

    def before(self, result: Value) -> Site:
        """Return the site of the operator that made a result, whose derivative this call is."""
        return Site(self.g, self.call, [result.type], self._context)

    def stated(self, i: int) -> TensorType:
        """Return the type that PyTorch states for result i."""
        t = self._stated[i] if i < len(self._stated) else None
        if t is None:
            raise UnsupportedError(f"result {i} is not supported, {DENSE}")
        return t

    def is_read(self, i: int) -> bool:
        """Whether anything reads result i."""
        return i < len(self.call.results) and bool(self.call.results[i])

    @property
    def results(self) -> int:
        """How many results there are."""
        return len(self._stated)

    def draw(self, op: Op, *xs: Value) -> Value:
        """Return the numbers that an operator draws, and advance the generator."""
        if self._context is None:
            raise UnsupportedError(NO_GENERATOR)
        return self._context.draw(op, *xs)

    def cast(self, x: Value, dtype: str) -> Value:
        """Return x in another element type; x itself if it has that.

        A cast from complex to real drops the imaginary parts.
        """
        if x.type.dtype == dtype:
            return x
        if x.type.dtype in COMPLEX and dtype in COMPLEX:
            return self.g(ViewAsComplex(), self.g(Cast(PARTS[dtype]), self.g(ViewAsReal(), x)))
        if x.type.dtype in COMPLEX:
            real, imaginary = parts_of(self.g, x)
            if dtype != "bool":
                return self.cast(real, dtype)
            return self.g(BitOr(), self.cast(real, "bool"), self.cast(imaginary, "bool"))
        if dtype in COMPLEX:
            return as_complex(self.g, self.cast(x, PARTS[dtype]))
        return self.g(Cast(dtype), x)

    def constant(self, number: Operand | Condition, dtype: str) -> Value:
        """Return a number, or an extent, as a tensor without axes."""
        if isinstance(number, Value):  # computed from extents
            return self.cast(number, dtype)
        if isinstance(number, Condition):
            return self.extent(indicator(number.guards), dtype)
        if is_open(number):
            assert isinstance(number, Sym)
            return self.extent(number, dtype)
        if isinstance(number, Sym) or (isinstance(number, complex) and dtype not in COMPLEX):
            raise UnsupportedError(f"the number is {number}, "
                                   f"expected a real number for dtype {dtype}")  # fmt: skip
        if not isinstance(number, complex) and not holds(dtype, number):
            raise UnsupportedError(f"the number is {number}, "
                                   f"expected a number that dtype {dtype} can hold")  # fmt: skip
        return self.g.constant(np.asarray(number, DTYPES[dtype]))

    def extent(self, extent: Dim, dtype: str = "i64") -> Value:
        """Return a whole number that is made of extents, as a tensor without axes."""
        terms = extent.terms if isinstance(extent, Sym) else (((), extent),)
        more: Dim = 0
        less: Dim = 0
        others: list[Value] = []
        for monomial, c in terms:
            term = Sym(((monomial, abs(c)),)) if monomial else abs(c)
            if not natural(term) or self._is_read(monomial):
                others.append(self._of_elements(monomial, c))
            elif c > 0:
                more = more + term
            else:
                less = less + term
        total = self._counted(more)
        if not isinstance(less, int) or less:
            total = self.g(Sub(), total, self._counted(less))
        for other in others:
            total = self.g(Add(), total, other)
        return self.cast(total, dtype)

    def _counted(self, extent: Dim) -> Value:
        """Return an extent that is not less than 0."""
        if not isinstance(extent, Sym):
            return self.g.constant(np.asarray(extent, np.int64))
        return self.g(Reshape(()), self.g(Size(), self.g(Range(extent))))

    def _of_elements(self, monomial: Monomial, factor: int) -> Value:
        """Return a product in which there are elements of tensors, which may be negative."""
        total = self.g.constant(np.asarray(factor, np.int64))
        for atom in monomial:
            element = self._element(atom)
            total = self.g(Mul(), total, element)
        return total

    def _is_read(self, monomial: Monomial) -> bool:
        """Whether there is a symbol in a product that is no extent, but the element of a tensor."""
        context = self._context
        return context is not None and any(
            context.element(n) is not None for n in names(Sym(((monomial, 1),)))
        )

    def _element(self, atom: Atom) -> Value:
        if isinstance(atom, str):
            tensor = self._context.element(atom) if self._context is not None else None
            if tensor is not None:
                return self.cast(tensor, "i64")
            if not is_element(atom):
                return self._counted(symbol(atom))
            raise UnsupportedError(f"number {atom} depends on data, "
                                   "expected a dimension of an input")  # fmt: skip
        left, right = self.extent(atom.left), self.extent(atom.right)
        if atom.op in ("max", "min"):
            return self.g(Maximum() if atom.op == "max" else Minimum(), left, right)
        rest = self.g(Mod(), left, right)
        return rest if atom.op == "%" else self.g(Div(), self.g(Sub(), left, rest), right)

    def cut(self, v: Value, *beside: Value) -> tuple[tuple[Dim, ...], list[Value]]:
        self._measures += 1
        told = None if self._context is None else self._context.contents(v)
        if told is not None:
            return tuple(told.reshape(-1).tolist()), list(beside)
        return cut(f"{self.call.name}#{self._measures - 1}", v, beside, self._context)

    def truth(self, condition: Condition | Dim) -> bool:
        """Return True if a condition on extents holds; raise Needed if they are not known yet."""
        if not isinstance(condition, Condition):
            return bool(condition)
        if not all(known(x) for x, _ in condition.guards):
            raise Needed("")
        return all(decided(x, relation) for x, relation in condition.guards)

    def demand(self, condition: Condition, message: str) -> None:
        """Take for granted what a condition says; a call of which it is not true ends."""
        assert self._context is not None, "demands are kept by an importer"
        self._context.demand(condition.guards, message)

    def at_most(self, extent: Dim, most: Dim) -> None:
        """Let an extent of data be as much as `most`, where PyTorch states a bound that is less."""
        if self._context is not None:
            self._context.widen(extent, most)

    def tensor(self, x: Operand, dtype: str) -> Value:
        """Return an operand in an element type, a number as a tensor without axes."""
        return self.cast(x, dtype) if isinstance(x, Value) else self.constant(x, dtype)

    def filled(self, number: Number, like: TensorType) -> Value:
        """Return a tensor of a type, each element the number."""
        return stretch(self.g, self.constant(number, like.dtype), like.shape)

    def broadcast(self, *values: Value, shape: tuple[Dim, ...] | None = None) -> list[Value]:
        """Stretch values to `shape`, by default the shape of the result."""
        wanted = self.result.shape if shape is None else shape
        return [stretch(self.g, v, wanted) for v in values]

    def operands(self, *xs: Operand, dtype: str = "") -> list[Value]:
        """Return operands in a common element type, as PyTorch promotes, in the result's shape."""
        common = dtype or shared(xs)
        return self.broadcast(*(self.tensor(x, common) for x in xs))

    def apply(self, op: Op, *xs: Operand, dtype: str = "") -> Value:
        """Apply an elementwise operator to operands in `dtype`, or the common element type."""
        return apply(self.g, op, *self.operands(*xs, dtype=dtype))

    def spread(self, x: Value, shape: Sequence[Dim]) -> Value:
        """Return x broadcast to a shape."""
        return x if x.type.shape == tuple(shape) else self.g(Broadcast(tuple(shape)), x)


def dynamic(what: str) -> UnsupportedError:
    """Return the error that says what does not support dynamic dimensions."""
    return UnsupportedError(f"{what} with dynamic dimensions is not supported; try: shapes={{…}}")


def numbers(*extents: Dim) -> tuple[int, ...]:
    """Return extents as numbers; raise UnsupportedError if one is dynamic."""
    if any(map(is_open, extents)):
        raise UnsupportedError(f"dimensions are {extents}, expected fixed ones; try: shapes={{…}}")
    return tuple(map(int, extents))


def number(extent: Dim) -> int:
    """Return an extent as a number; raise UnsupportedError if it is dynamic."""
    return numbers(extent)[0]


def element(number: Number, dtype: str) -> Number:
    """Return a number as an element of a tensor in PyTorch: integers lose fractions."""
    if not isinstance(number, bool | int | float):
        return number
    if dtype == "bool":
        return bool(number)
    return int(number) if dtype in INTS and math.isfinite(number) else number


def axis_of(axis: int, rank: int) -> int:
    """Return an axis counted from the front; a tensor without axes has one, 0."""
    least = max(rank, 1)
    if not -least <= axis < least:
        raise ModelError(f"dim is {axis}, expected {-least} to {least - 1} for rank {rank}")
    return axis % least


def axes_of(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return axes counted from the front, in order: all for None and for none."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return tuple(range(rank))
    listed = [axes] if isinstance(axes, int) else list(axes)
    return tuple(sorted(axis_of(a, rank) for a in listed)) if rank else ()


def each(value: int | Sequence[int], count: int) -> tuple[int, ...]:
    """Return a number for each of `count` axes: a single number is repeated."""
    if isinstance(value, int):
        return (value,) * count
    return tuple(value) * count if len(value) == 1 else tuple(value)

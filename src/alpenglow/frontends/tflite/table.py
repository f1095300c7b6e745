"""The table from names of TFLite's operators to the functions that build graphs.

A converter takes the `Site` of one operator and returns the values of its results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeVar

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.nhwc import by_channel, channels_first, channels_last
from alpenglow.frontends.operands import Importing, Operands
from alpenglow.frontends.steps import Step
from alpenglow.frontends.table import Table
from alpenglow.frontends.tflite.file.model import HELD, Tensor
from alpenglow.frontends.tflite.file.schema import Activation
from alpenglow.frontends.tflite.steps import Applied
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES

Made = Value | Sequence[Value]
Converter = Callable[["Site"], Made]

Choice = TypeVar("Choice", bound=IntEnum)


@dataclass(frozen=True, slots=True)
class Conversion:
    """A converter, and the layout of the options that it reads, "" if it reads none.

    A converter that `moves` elements also serves quantized tensors: scales and zero points are the
    same in all operands and results that have their type.
    """

    convert: Converter
    options: str
    moves: bool


_TABLE: Table[tuple[str, bool], Conversion] = Table()
_QUANTISED: Table[str, Converter] = Table()


def on(
    name: str, options: str = "", *, custom: bool = False, moves: bool = False
) -> Callable[[Converter], Converter]:
    """Register the decorated converter for a builtin operator, or a custom one by its name."""
    return _TABLE.on([(name, custom)], lambda converter: Conversion(converter, options, moves))


def on_quantised(*names: str) -> Callable[[Converter], Converter]:
    """Register the decorated converter for builtin operators on quantized tensors."""
    return _QUANTISED.on(names, lambda converter: converter)


def find_quantised(name: str) -> Converter | None:
    """Return the converter of an operator on quantized tensors, or None."""
    entry = _TABLE.find((name, False))
    moving = moved(entry.convert) if entry is not None and entry.moves else None
    return _QUANTISED.find(name) or moving


def moves(name: str) -> bool:
    """Return True if the converter of a builtin operator serves quantized tensors unchanged."""
    entry = _TABLE.find((name, False))
    return entry is not None and entry.moves


def moved(converter: Converter) -> Converter:
    """Return a converter that refuses quantized tensors whose scales or zero points differ."""

    def convert(s: Site) -> Made:
        tensors = [*map(s.declared, s.given()), *map(s.output, range(len(s.step.outputs)))]
        grids = {t.grid for t in tensors if t.quantised}
        if len(grids) > 1:
            raise s.wrong("scales or zero points of its tensors differ, expected the same for all")
        return converter(s)

    return convert


def find(name: str, custom: bool) -> Conversion | None:
    """Return the entry for an operator, or None."""
    return _TABLE.find((name, custom))


def supported() -> list[str]:
    """Return the names of all operators that have a converter; custom ones in quotes."""
    names = _TABLE.entries.keys() | {(name, False) for name in _QUANTISED.entries}
    return sorted(f"'{name}'" if custom else name for name, custom in names)


class Context(Importing, Protocol):
    """State of an importer that converters read, apart from the step."""

    @property
    def rounding(self) -> str:
        """The rounding of quantized values, one of `roundings.ROUNDINGS`."""
        ...

    def declared(self, name: str) -> Tensor:
        """Return the declaration of a tensor in the file."""
        ...

    def assign(self, name: str, value: Value) -> None:
        """Let a tensor that is a variable have a value from here on."""
        ...


class Site(Operands):
    """One operator during import: its operands, its options, and the graph to build in."""

    def __init__(
        self, g: Graph, step: Step[Applied], options: Mapping[str, Any], context: Context
    ) -> None:
        super().__init__(g, step.kind, step.label, step.inputs, step.outputs, context)
        self.step = step
        self._options = options
        self._context = context

    @property
    def rounding(self) -> str:
        """The rounding of quantized values."""
        return self._context.rounding

    def option(self, name: str) -> Any:
        """Return an option; vectors are tuples."""
        return self._options[name]

    def choice(self, name: str, of: type[Choice]) -> Choice:
        """Return an option that is one of an enumeration; raise ModelError if it is none."""
        number = self._options[name]
        if number not in [int(c) for c in of]:
            members = ", ".join(f"{int(c)} ({c.name})" for c in of)
            raise self.wrong(f"{name} is {number}, expected one of {members}")
        return of(number)

    def activation(self, *supported: Activation) -> Activation:
        """Return the fused activation; raise UnsupportedError unless it is one of `supported`."""
        which = self.choice("fused_activation_function", Activation)
        if which not in supported:
            names = [a.name for a in supported]
            raise self.unsupported(f"fused_activation_function {which.name}", *names)
        return which

    def unsupported(self, feature: str, *supported: str) -> UnsupportedError:
        """Return the error for a feature of this operator, with the alternatives that work."""
        return self.refuse(f"{feature} is not supported; supported: {', '.join(supported)}")

    def check_options(self, options: Mapping[str, Any], names: Sequence[str]) -> None:
        """Raise ModelError unless the options of a custom operator have all these names."""
        if missing := [n for n in names if n not in options]:
            raise self.wrong(f"custom_options lacks {', '.join(missing)}, expected these options")

    def output(self, i: int = 0) -> Tensor:
        """Return the declaration of result i in the file."""
        if i >= len(self.step.outputs):
            count = len(self.step.outputs)
            raise ModelError(f"{self.kind} has {count} results, expected at least {i + 1}")
        return self._context.declared(self.step.outputs[i])

    def declared(self, i: int) -> Tensor:
        """Return the declaration of operand i in the file."""
        return self._context.declared(self.step.inputs[i])

    def given(self) -> list[int]:
        """Return which operands there are."""
        return [i for i, name in enumerate(self.step.inputs) if name]

    def assign(self, i: int, value: Value) -> None:
        """Let operand i, which is a variable, have a value from here on."""
        self._context.assign(self.step.inputs[i], value)

    def result_dtype(self) -> str:
        """Return the dtype of result 0; raise UnsupportedError if no graph holds it."""
        dtype = self.output().dtype
        if dtype not in DTYPES:
            raise self.unsupported(f"result dtype {dtype}", HELD)
        return dtype

    def shape(self, i: int) -> tuple[Dim, ...]:
        """Return integer operand i as a shape; raise ModelError if an entry is negative."""
        wanted = self.dims(i)
        if any(known(d) and d < 0 for d in wanted):
            raise self.wrong(f"shape (operand {i}) is {wanted}, expected entries of at least 0")
        return wanted

    def number(self, i: int) -> int:
        """Return integer operand i, which has one element, as a number."""
        return self.single(i, self.ints(i))

    def apply(self, op: Op, *values: Value) -> Value:
        """Apply an elementwise operator to values that broadcast to each other."""
        if by_channel(values):
            turned = [channels_first(self.g, v) for v in values]
            return channels_last(self.g, super().apply(op, *turned))
        return super().apply(op, *values)

    def rank(self, i: int, *ranks: int) -> Value:
        """Return operand i; raise ModelError unless it has one of these ranks."""
        v = self.input(i)
        if v.type.rank not in ranks:
            wanted = " or ".join(map(str, ranks))
            raise self.wrong(f"operand {i} is {v.type}, expected rank {wanted}")
        return v

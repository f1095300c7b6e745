"""The table from (domain, operator name, since-version) to the function that builds our operators.

A converter takes the `Site` of one ONNX node and returns the values of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.words import shown
from alpenglow.frontends.onnx.versions import Versions
from alpenglow.frontends.presume import Needed as Needed
from alpenglow.frontends.shapes import common_shape as common_shape
from alpenglow.ir.dims import Dim, Sym, assumed, is_open, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, HALVES, INTS, Array, holds
from alpenglow.ops.arithmetic import Mul
from alpenglow.ops.in_range import InRange
from alpenglow.ops.movement import stretch
from alpenglow.ops.select import Cast

Made = Value | Sequence[Value]
Converter = Callable[["Site"], Made]

_TABLE: Versions[Converter] = Versions("converter")


def on(name: str, *, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated converter for an operator of ONNX."""

    def add(converter: Converter) -> Converter:
        _TABLE.add(domain, name, since, converter)
        return converter

    return add


def same(name: str, op: Op, *, since: int = 1, domain: str = "") -> None:
    """Register an operator that is ours as it stands; operands are broadcast to each other."""

    @on(name, since=since, domain=domain)
    def convert(s: Site) -> Value:
        return s.g(op, *s.broadcast(*s.required()))


def scales(*numbers: str) -> Callable[[Converter], Converter]:
    """Let the decorated converter compute halves in f32 unless all these attributes are 1.

    The attributes are f32: half precision may hold neither them nor what they are to scale.
    """

    def add(converter: Converter) -> Converter:
        @wraps(converter)
        def convert(s: Site) -> Made:
            dtype = s.input(0).type.dtype
            alike = all(v is None or v.type.dtype == dtype for v in s.inputs)
            plain = all(s.attribute(n, 1.0) == 1 for n in numbers)
            if plain or dtype not in HALVES or not alike:
                return converter(s)
            wide = copy(s)
            wide.inputs = [None if v is None else s.g(Cast("f32"), v) for v in s.inputs]
            y = converter(wide)
            assert isinstance(y, Value), "what scales has one result"
            return s.g(Cast(dtype), y)

        return convert

    return add


def find(domain: str, name: str, opset: int) -> Converter | None:
    """Return the converter for an operator of the given opset, or None."""
    return _TABLE.find(domain, name, opset)


def supported() -> list[str]:
    """Return the names of all operators that have a converter, ``domain:name`` outside ai.onnx."""
    return _TABLE.names()


class Contents(Protocol):
    """What an importer knows of the elements of small integer tensors."""

    def __call__(self, v: Value) -> Array | None: ...


class Site:
    """One ONNX node during import: its operands, its attributes, and the graph to build in."""

    def __init__(
        self,
        g: Graph,
        name: str,
        op_type: str,
        opset: int,
        inputs: Sequence[Value | None],
        attributes: Mapping[str, Any],
        outputs: Sequence[str],
        contents: Contents,
        names: Sequence[str] = (),
        elements: Mapping[str, Array] | None = None,
        find: Callable[[str], Value] | None = None,
    ) -> None:
        self.g = g
        self.name = name
        self.op_type = op_type
        self.opset = opset
        self.inputs = list(inputs)
        self.attributes = attributes
        self.outputs = list(outputs)
        self._contents = contents
        self._names = list(names)
        self._elements = elements or {}
        self._find = find
        self._measures = 0

    def __len__(self) -> int:
        return len(self.inputs)

    def required(self) -> list[Value]:
        """Return all operands; raise ModelError if one is absent."""
        return [self.input(i) for i in range(len(self.inputs))]

    def input(self, i: int) -> Value:
        """Return operand i; raise ModelError if it is absent."""
        v = self.optional(i)
        if v is None:
            raise ModelError(f"{self.op_type}: input {i} is missing")
        return v

    def optional(self, i: int) -> Value | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def named(self, name: str) -> Value:
        """Return the value that the model calls `name`; it need be no operand."""
        assert self._find is not None, "names are looked up where an importer is at work"
        return self._find(name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute: strings as str, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def needed(self, name: str) -> Any:
        """Return an attribute; raise ModelError if it is missing."""
        if name not in self.attributes:
            raise ModelError(f"{self.op_type}: attribute '{name}' is missing")
        return self.attributes[name]

    def dims(self, i: int) -> tuple[Dim, ...]:
        """Return the elements of integer operand i, as numbers or symbols.

        Where they depend on data, the import is cut here and goes on when they are known.
        """
        v = self.input(i)
        if v.type.dtype not in INTS:
            raise ModelError(f"{self.op_type}: input {i} is {v.type}, expected integers")
        elements = self._contents(v) if v.array is None else v.array
        if elements is None:
            raise Needed(self._names[i], v)
        return tuple(elements.reshape(-1).tolist())

    def amounts(self, i: int) -> tuple[Dim, ...]:
        """Return the elements of integer operand i, as numbers or what stands for them."""
        elements = self.dims(i)
        if not all(map(known, elements)):
            raise Needed(self._names[i], self.input(i))
        return elements

    def ints(self, i: int) -> tuple[int, ...]:
        """Return the elements of integer operand i as numbers, whatever they depend on."""
        elements = self.dims(i)
        if assumed() is None and not all(isinstance(d, int) for d in elements):
            raise Needed(self._names[i], self.input(i))
        return tuple(int(d) for d in elements)

    def constant(self, i: int) -> Array:
        """Return all of operand i, whatever it depends on."""
        v = self.input(i)
        if v.array is not None:
            return v.array
        known = self._contents(v)
        if known is None or (assumed() is None and any(isinstance(d, Sym) for d in known.flat)):
            raise Needed(self._names[i], v)
        return np.array([int(d) for d in known.flat], v.type.numpy).reshape(known.shape)

    def measured(self, v: Value) -> tuple[Dim, ...]:
        """Return the elements of an integer value that this node computes on its way.

        The first time the import is cut here; when it comes back to the node, they are known.
        """
        return self.cut(v)[0]

    def cut(self, v: Value, *beside: Value) -> tuple[tuple[Dim, ...], list[Value]]:
        """Return what `measured` does, and values that need not be computed again afterwards."""
        name = f"{next(filter(None, self.outputs), self.name)}#{self._measures}"
        self._measures += 1
        if v.array is not None:
            return tuple(int(d) for d in v.array.flat), list(beside)
        names = [f"{name}.{i}" for i in range(len(beside))]
        if name not in self._elements:
            raise Needed(name, v, dict(zip(names, beside, strict=True)))
        assert self._find is not None, "elements are known where an importer is at work"
        return tuple(self._elements[name].reshape(-1).tolist()), [self._find(n) for n in names]

    def within(self, v: Value, low: Dim, high: Dim, what: str) -> Value:
        """Return integers each of which must be from `low` to `high`: another ends the call.

        `what` says what they are.
        """
        if not is_open(high) and high < 0:
            return v  # there is nothing to choose from, and type rules say so
        if v.array is not None and known(low) and known(high) and _are_within(v.array, low, high):
            return v
        node = self.name.removeprefix(f"{self.op_type} '").removesuffix("'")
        return self.g(InRange(low, high, f"{self.op_type} '{shown(node)}': {what}"), v)

    def indices(self, v: Value, extent: Dim, axis: int = 0) -> Value:
        """Return indices on an axis, of which negative ones count from its end."""
        return self.within(v, extent * -1, extent - 1, f"an index on axis {axis}")

    def broadcast(self, *values: Value) -> list[Value]:
        """Stretch values to their common shape, as NumPy does."""
        if len(values) < 2:
            return list(values)
        shape = common_shape(self.op_type, [v.type.shape for v in values])
        return [stretch(self.g, v, shape) for v in values]


def _are_within(array: Array, low: int, high: int) -> bool:
    return not array.size or (int(array.min()) >= low and int(array.max()) <= high)


def scalar(g: Graph, value: float, like: Value) -> Value:
    """Return a constant of like's element type, stretched to its shape."""
    return stretch(g, g.constant(elements(value, like.type.dtype)), like.type.shape)


def elements(numbers: float | Sequence[float], dtype: str) -> Array:
    """Return numbers as an array; raise UnsupportedError if the type does not hold them."""
    for number in np.asarray(numbers, object).flat:
        if not holds(dtype, number):
            raise UnsupportedError(f"{dtype} holds no {number}")
    return np.asarray(numbers, DTYPES[dtype])


def times(s: Site, v: Value, factor: float) -> Value:
    """Return v times a number; v itself if that is 1."""
    return v if factor == 1 else s.g(Mul(), v, scalar(s.g, factor, v))

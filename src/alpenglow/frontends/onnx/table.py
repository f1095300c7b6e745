"""The table from (domain, operator name, since-version) to the function that builds our operators.

A converter takes the `Site` of one ONNX node and returns the values of its outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import wraps
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.extensions import bring_extras, found_with_extras
from alpenglow.frontends.onnx.versions import Versions, module_of
from alpenglow.frontends.operands import Importing, Operands
from alpenglow.frontends.presume import Needed as Needed
from alpenglow.frontends.shapes import common_shape as common_shape
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, HALVES, Array, holds
from alpenglow.ops.elementwise.arithmetic import Mul
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.movement import stretch

Made = Value | Sequence[Value]
Converter = Callable[["Site"], Made]
Numbers = tuple[int, ...]

_TABLE: Versions[Converter] = Versions("converter")


def on(name: str, *, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated converter for an operator of ONNX."""

    def add(converter: Converter) -> Converter:
        _TABLE.add(domain, name, since, converter)
        return converter

    return add


def same(name: str, op: Op, *, since: int = 1, domain: str = "") -> None:
    """Register an operator that equals `op`; its operands are broadcast to each other."""

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
    return found_with_extras("onnx", lambda: _TABLE.find(domain, name, opset), module_of)


def supported() -> list[str]:
    """Return the names of all operators that have a converter, ``domain:name`` outside ai.onnx."""
    bring_extras("onnx")
    return _TABLE.names()


class Site(Operands):
    """One ONNX node during import: its operands, its attributes, and the graph to build in."""

    operand = "input"

    def __init__(
        self, g: Graph, op_type: str, label: str, opset: int, inputs: Sequence[str],
        outputs: Sequence[str], attributes: Mapping[str, Any], importer: Importing,
    ) -> None:  # fmt: skip
        super().__init__(g, op_type, label, inputs, outputs, importer)
        self.op_type = op_type
        self.opset = opset
        self.outputs = list(outputs)
        self.attributes = attributes

    def named(self, name: str) -> Value:
        """Return the value that the model calls `name`; it need be no operand."""
        return self._importer.find(name)

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute: strings as str, lists as tuples, tensors as arrays."""
        return self.attributes.get(name, default)

    def needed(self, name: str) -> Any:
        """Return an attribute; raise ModelError if it is missing."""
        if name not in self.attributes:
            raise self.wrong(f"attribute '{name}' is missing")
        return self.attributes[name]

    def named_axis(self, default: int, name: str = "axis") -> int:
        """Return the axis of input 0 that an attribute names, counted from the front."""
        return self.axis(self.attribute(name, default), self.input(0).type.rank)


def scalar(g: Graph, value: float, like: Value) -> Value:
    """Return a constant of like's element type, stretched to its shape."""
    return stretch(g, g.constant(elements(value, like.type.dtype)), like.type.shape)


def elements(numbers: float | Sequence[float], dtype: str) -> Array:
    """Return numbers as an array; raise UnsupportedError if the type does not hold them."""
    for number in np.asarray(numbers, object).flat:
        if not holds(dtype, number):
            raise UnsupportedError(f"an attribute is {number}, expected a value of {dtype}")
    return np.asarray(numbers, DTYPES[dtype])


def times(s: Site, v: Value, factor: float) -> Value:
    """Return v times a number; v itself if that is 1."""
    return v if factor == 1 else s.g(Mul(), v, scalar(s.g, factor, v))

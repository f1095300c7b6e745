"""The table from (domain, operator name, since-version) to the function that builds our operators.

A converter takes the `Site` of one ONNX node and returns the values of its outputs.  A model of
opset n uses the entry with the largest since-version up to n, so the old form of an operator has
an entry of its own exactly where it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.ir.dims import Dim
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array
from alpenglow.ops.movement import Broadcast

Made = Value | Sequence[Value]
Converter = Callable[["Site"], Made]

_TABLE: dict[tuple[str, str], dict[int, Converter]] = {}


def on(name: str, *, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Register the decorated converter for an operator of ONNX."""

    def add(converter: Converter) -> Converter:
        versions = _TABLE.setdefault((domain, name), {})
        assert since not in versions, f"two converters for {domain}:{name} since {since}"
        versions[since] = converter
        return converter

    return add


def same(name: str, op: Op, *, since: int = 1, domain: str = "") -> None:
    """Register an operator that is ours as it stands; operands are broadcast to each other."""

    @on(name, since=since, domain=domain)
    def convert(s: Site) -> Value:
        return s.g(op, *s.broadcast(*s.required()))


def find(domain: str, name: str, opset: int) -> Converter | None:
    """Return the converter for an operator of the given opset, or None."""
    versions = _TABLE.get((domain, name), {})
    usable = [since for since in versions if since <= opset]
    return versions[max(usable)] if usable else None


def supported() -> list[str]:
    """Return the names of all operators that have a converter, ``domain:name`` outside ai.onnx."""
    return sorted(f"{domain}:{name}" if domain else name for domain, name in _TABLE)


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
        attributes: dict[str, Any],
        outputs: Sequence[str],
        contents: Contents,
    ) -> None:
        self.g = g
        self.name = name
        self.op_type = op_type
        self.opset = opset
        self.inputs = list(inputs)
        self.attributes = attributes
        self.outputs = list(outputs)
        self._contents = contents

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

        Raises UnsupportedError if they depend on data.
        """
        v = self.input(i)
        known = self._contents(v)
        if known is None:
            raise UnsupportedError(
                f"{self.op_type}: input {i} ('{v.name}') must be known when the model is compiled, "
                "but depends on the data",
                hint="give the input shapes: shapes={'NAME': (…)}, --shapes NAME=1x3x…",
            )
        return tuple(known.reshape(-1).tolist())

    def ints(self, i: int) -> tuple[int, ...]:
        """Return the elements of integer operand i; raise UnsupportedError if any is open."""
        found = self.dims(i)
        if not all(isinstance(d, int) for d in found):
            raise UnsupportedError(
                f"{self.op_type}: input {i} is {found}, which is open",
                hint="give the input shapes: shapes={'NAME': (…)}, --shapes NAME=1x3x…",
            )
        return tuple(int(d) for d in found if isinstance(d, int))

    def constant(self, i: int) -> Array:
        """Return constant operand i; raise UnsupportedError if it is computed."""
        v = self.input(i)
        if v.array is None:
            raise UnsupportedError(f"{self.op_type}: input {i} ('{v.name}') must be a constant")
        return v.array

    def broadcast(self, *values: Value) -> list[Value]:
        """Stretch values to their common shape, as NumPy does."""
        if len(values) < 2:
            return list(values)
        shape = common_shape(self.op_type, [v.type.shape for v in values])
        return [stretch(self.g, v, shape) for v in values]


def stretch(g: Graph, v: Value, shape: tuple[Dim, ...]) -> Value:
    """Return v broadcast to `shape`; v itself if it has that shape."""
    return v if v.type.shape == shape else g(Broadcast(shape), v)


def common_shape(what: str, shapes: Sequence[tuple[Dim, ...]]) -> tuple[Dim, ...]:
    """Return the shape that all broadcast to; raise ModelError if there is none.

    Of two different open extents the later is taken to equal the earlier.
    """
    rank = max(map(len, shapes))
    out: list[Dim] = []
    for axis in range(-rank, 0):
        extents = [s[axis] for s in shapes if len(s) >= -axis]
        wide = [d for d in extents if d != 1]
        numbers = {d for d in wide if isinstance(d, int)}
        if len(numbers) > 1:
            raise ModelError(f"{what}: shapes {' and '.join(map(str, shapes))} do not broadcast")
        out.append(numbers.pop() if numbers else wide[0] if wide else 1)
    return tuple(out)


def scalar(g: Graph, value: float, like: Value) -> Value:
    """Return a constant of like's element type, stretched to its shape."""
    return stretch(g, g.constant(np.asarray(value, like.type.numpy)), like.type.shape)

"""State from call to call: resources, and tensors that are variables.

A variable is read and written as operators come; in a graph it is read at entry and written at
exit.  An initial subgraph, which runs once, assigns its first value, or it is zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.steps import Step
from alpenglow.frontends.tflite.file.model import Tensor
from alpenglow.frontends.tflite.steps import Applied
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import DTYPES, Array, TensorType

LARGEST = 1 << 30
"""The most bytes of a variable that begins with zeros."""

SPLIT_VARIABLES = (
    "variables in a model with data-dependent shapes are not supported; "
    "supported: variables if all shapes follow from the input shapes"
)

Key = tuple[str, str]
"""The container and the name of a resource."""


class Variables:
    """Values of variables during an import.

    `initial` is what resources hold before the first call; `reserved` are names that are others'.
    """

    def __init__(
        self, g: Graph, initial: Mapping[Key, Array], reserved: Collection[str] = ()
    ) -> None:
        self.held: dict[Key, Value] = {}
        self._g = g
        self._reserved = frozenset(reserved)
        self._initial = initial
        self._handles: dict[str, Key] = {}
        self._names: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._names)

    def step(self, step: Step[Applied]) -> Value | None:
        """Import a step on a resource; return its result if that is a tensor."""
        if step.kind == "VAR_HANDLE":
            options = step.payload.operator.options("VarHandleOptions")
            self._handles[step.outputs[0]] = options["container"], options["shared_name"]
            return None
        key = self.key(step)
        return self.read(key) if step.kind == "READ_VARIABLE" else None

    def key(self, step: Step[Applied]) -> Key:
        """Return the resource that a step assigns to."""
        if not step.inputs or step.inputs[0] not in self._handles:
            raise ModelError(f"{step.kind}: operand 0 is not a variable, expected a VAR_HANDLE")
        return self._handles[step.inputs[0]]

    def read(self, key: Key) -> Value:
        """Return the value of a resource."""
        if key not in self.held:
            if key not in self._initial:
                raise ModelError(f"variable '{key[1]}' is empty, expected ASSIGN_VARIABLE first")
            self.held[key] = self._begin(key, key[1], self._initial[key])
        return self.held[key]

    def of_tensor(self, name: str, tensor: Tensor) -> Value:
        """Return the value of a variable tensor: at first zeros, or the zero point of i8."""
        if min(tensor.signature, default=0) < 0 or tensor.dtype not in DTYPES:
            raise UnsupportedError(f"variable '{name}' is {tensor}, expected a fixed shape")
        if TensorType(tensor.dtype, tensor.shape).nbytes > LARGEST:
            raise ModelError(f"variable '{name}' is {tensor}, expected at most {LARGEST} bytes")
        key = "", name
        if key not in self.held:
            zero = tensor.grid.zeros[0] if tensor.grid is not None and tensor.dtype == "i8" else 0
            first = np.full(tensor.shape, zero, DTYPES[tensor.dtype])
            self.held[key] = self._begin(key, name, first)
        return self.held[key]

    def assign(self, key: Key, value: Value) -> None:
        """Let a variable hold a value from here on."""
        if key not in self._names and key in self._initial:
            self._begin(key, key[1], self._initial[key])
        self.held[key] = value

    def finish(self) -> None:
        """Say what the variables of the graph hold at exit."""
        for key, name in self._names.items():
            value, before = self.held.get(key), self._g.inputs[name]
            if value is None or value is before:
                continue
            if value.type != before.type:
                raise ModelError(
                    f"variable '{key[1]}' is assigned {value.type}, expected {before.type}"
                )
            self._g.assign(name, value)

    def _begin(self, key: Key, name: str, initial: Array) -> Value:
        taken = self._reserved | self._g.inputs.keys() | self._g.outputs.keys()
        name = name or "variable"
        while name in taken:
            name += "_"
        self._names[key] = name
        return self._g.variable(name, initial)

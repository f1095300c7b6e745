"""The model while it is written: tensors with names and types, nodes, and constants.

Calling a `Writer` adds a node and returns its result:

    y = w("Softmax", x, axis=-1)

Operands are values of the graph, tensors, NumPy arrays (constants) or None (absent).  The schema of
the operator tells the type of the result, and which attributes and element types the opset has;
what it has not raises `Refused`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from typing import Any

import numpy as np

from alpenglow.exporters.onnx.elements import (
    CODES,
    EIGHT_BITS,
    Schema,
    allowed,
    carrier,
    schema_of,
    single,
)
from alpenglow.ir.dims import Sym
from alpenglow.ir.graph import Node, Value
from alpenglow.ir.solve import AxisEquation
from alpenglow.ir.types import COMPLEX, DTYPES, NAMES, Array

SMALL = 1 << 12
"""Constants of so many bytes and fewer are shared where their bytes are the same."""


class Refused(Exception):
    """The reason why a node cannot be written; a `newer` opset may have it."""

    def __init__(self, why: str, newer: bool = False) -> None:
        super().__init__(why)
        self.newer = newer


@dataclass(frozen=True, slots=True)
class Failure:
    """A node that cannot be written, why, and whether a newer opset has what it needs.

    `name` is the name of a tensor of it, in quotes, or "".
    """

    name: str
    operator: str
    why: str
    newer: bool


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the model: its name there, and its element type."""

    name: str
    dtype: str


@dataclass(slots=True)
class Line:
    """A node of the model; `captured` are the tensors that graphs among its attributes read."""

    op_type: str
    inputs: list[str]
    outputs: list[str]
    attributes: Mapping[str, Any]
    captured: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Constant:
    """An initializer of the model."""

    name: str
    dtype: str
    array: Array


Operand = Value | Tensor | Array | None


@dataclass(slots=True)
class Writer:
    """A model in an opset: lines in order, constants, and the tensor of each value so far.

    `origins` says which input tells each symbol, and `extents` holds what was written for open
    extents (`extents.py`).  `taken` has the names of all tensors, and `numbers` the last number
    behind each name that several wanted; `outputs` is what those of the graph are called, `wanted`
    the name that a value is to have for it, and `held` are the names of tensors of values.  `late`
    writes what was put off until it is read; `node` is the node that is being written.  `failures`
    has the failures of all nodes, in graphs inside of this one too.
    """

    opset: int
    lines: list[Line] = field(default_factory=list)
    constants: dict[object, Constant] = field(default_factory=dict)
    values: dict[Value, Tensor] = field(default_factory=dict)
    origins: dict[str, tuple[Value, AxisEquation]] = field(default_factory=dict)
    extents: dict[Sym, Tensor] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    numbers: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    wanted: dict[Value, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)
    failures: list[Failure] = field(default_factory=list)
    late: Callable[[Value], Tensor] | None = None
    node: Node | None = None

    def __call__(self, op_type: str, *operands: Operand, makes: str = "", **attributes: Any
                 ) -> Tensor:  # fmt: skip
        """Add a node with one result, and return that."""
        return self.several(1, op_type, *operands, makes=makes, **attributes)[0]

    def several(
        self, results: int, op_type: str, *operands: Operand, makes: str = "", **attributes: Any
    ) -> list[Tensor]:
        """Add a node, and return its first results.

        `makes` is the element type of results that operands do not tell.
        """
        schema = self.schema(op_type)
        for name in attributes:
            if name not in schema.attributes:
                what = f"attribute {name} is not supported by {op_type} in opset {self.opset}"
                raise Refused(what, True)
        variables = variables_of(schema, operands)
        bound = self._bound(schema, variables, operands)
        carriers = {v: self._carrier(schema, v, d) for v, d in bound.items()}
        read = [
            None if o is None else self.cast(o, carriers.get(v, self.dtype(o)))
            for o, v in zip(operands, variables, strict=True)
        ]
        made = []
        kinds = [o.type_str for o in schema.outputs]
        for kind in [*kinds, *repeat(kinds[-1], max(results - len(kinds), 0))][:results]:
            stored = carriers.get(kind) or makes or single(schema, kind)
            if kind not in carriers and stored not in allowed(schema, kind):
                what = f"{stored} results are not supported by {op_type} in opset {self.opset}"
                raise Refused(what, True)
            assert stored, f"{op_type} does not tell the type of its results"
            made.append((self.fresh(op_type.lower(), stored), bound.get(kind, stored)))
        self.line(op_type, read, [t for t, _ in made], attributes)
        return [self.cast(t, wanted) for t, wanted in made]

    def line(
        self, op_type: str, operands: Sequence[Tensor | None], results: Sequence[Tensor],
        attributes: Mapping[str, Any], captured: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a node as it stands."""
        inputs = ["" if t is None else t.name for t in operands]
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = [t.name for t in results]
        self.lines.append(Line(op_type, inputs, outputs, attributes, captured))

    def cast(self, operand: Operand, dtype: str) -> Tensor:
        """Return an operand as elements of another type; an array is converted at once."""
        assert operand is not None, "only what is there has a type"
        if isinstance(operand, np.ndarray) and self.dtype(operand) != dtype:
            return self.tensor(operand.astype(DTYPES[dtype]))
        x = self.tensor(operand)
        if x.dtype == dtype:
            return x
        legal = allowed(self.schema("Cast"), "T1")
        for d in (x.dtype, dtype):
            if d not in legal:
                what = f"{d} is not supported by Cast in opset {self.opset}"
                raise Refused(what, d not in COMPLEX)
        y = self.fresh("cast", dtype)
        # Infinities stay, and all else is told to be limited where it is to be.
        more = {"saturate": 0} if dtype in EIGHT_BITS else {}
        self.line("Cast", [x], [y], {"to": CODES[dtype], **more})
        return y

    def inner(self) -> Writer:
        """Return a writer of a graph inside of this one, which reads what has been written so far.

        Constants are all the model's; what is computed inside is not known outside.
        """
        return replace(self, lines=[], values=dict(self.values), extents=dict(self.extents))

    def schema(self, op_type: str) -> Schema:
        """Return what ONNX says of an operator; raise Refused if the opset does not have it."""
        schema = schema_of(op_type, self.opset)
        if schema is None:
            raise Refused(f"{op_type} is not supported in opset {self.opset}", True)
        return schema

    def dtype(self, operand: Operand) -> str:
        """Return the element type of an operand that is there."""
        if isinstance(operand, Value):
            return operand.type.dtype
        assert operand is not None, "only what is there has a type"
        return NAMES[operand.dtype] if isinstance(operand, np.ndarray) else operand.dtype

    def tensor(self, operand: Operand) -> Tensor:
        """Return the tensor of an operand that is there."""
        assert operand is not None, "only what is there has a tensor"
        if isinstance(operand, Tensor):
            return operand
        if isinstance(operand, np.ndarray):
            return self.constant(operand, "constant")
        if operand in self.values:
            return self.values[operand]
        if operand.array is None:
            assert self.late is not None, f"{operand} is read before it is written"
            self.values[operand] = self.late(operand)
        else:
            self.values[operand] = self.constant(operand.array, operand.name or "constant")
        return self.values[operand]

    def constant(self, array: Array, name: str) -> Tensor:
        """Return the tensor of a constant; equal ones that are small are one."""
        dtype = NAMES[array.dtype]
        small = array.nbytes <= SMALL
        key = (dtype, array.shape, array.tobytes() if small else id(array))
        if key not in self.constants:
            self.constants[key] = Constant(self.name(name), dtype, array)
        return Tensor(self.constants[key].name, dtype)

    def fresh(self, name: str, dtype: str) -> Tensor:
        """Return a tensor of a new name, which some node is to make."""
        return Tensor(self.name(name), dtype)

    def renamed(self, t: Tensor, v: Value, start: int) -> Tensor:
        """Give the name of a value to its tensor, if a line from `start` on makes it for that."""
        lines = self.lines[start:]
        known = t.name in self.held or any(t.name == e.name for e in self.extents.values())
        if known or not any(t.name in x.outputs for x in lines):
            return t
        name = self.wanted.get(v) or (v.name and self.name(v.name)) or t.name
        for x in lines:
            x.inputs = [name if n == t.name else n for n in x.inputs]
            x.outputs = [name if n == t.name else n for n in x.outputs]
        return Tensor(name, t.dtype)

    def alias(self, t: Tensor, name: str) -> None:
        """Let a tensor be known by another name, too, or by that alone if it has just been made."""
        fresh = bool(self.lines) and self.lines[-1].outputs == [t.name]
        last = t if fresh and t.name not in self.held else self("Identity", t)
        self.lines[-1].outputs = [name if n == last.name else n for n in self.lines[-1].outputs]

    def name(self, wanted: str) -> str:
        """Return `wanted`, or a variant that no tensor has."""
        chosen = wanted
        while not chosen or chosen in self.taken:
            self.numbers[wanted] = self.numbers.get(wanted, 1) + 1
            chosen = f"{wanted}_{self.numbers[wanted]}"
        self.taken.add(chosen)
        return chosen

    def _bound(
        self, schema: Schema, variables: Sequence[str], operands: Sequence[Operand]
    ) -> dict[str, str]:
        """Return the element types that variables of a schema stand for."""
        bound: dict[str, str] = {}
        for variable, operand in zip(variables, operands, strict=True):
            if operand is None:
                continue
            dtype = bound.setdefault(variable, self.dtype(operand))
            assert dtype == self.dtype(operand), f"{schema.name}: {dtype} and {operand}"
        return bound

    def _carrier(self, schema: Schema, variable: str, dtype: str) -> str:
        stored = carrier(schema, variable, dtype)
        if stored is None:
            what = f"{dtype} is not supported by {schema.name} in opset {self.opset}"
            raise Refused(what, True)
        return stored


def variables_of(schema: Schema, operands: Sequence[Operand]) -> list[str]:
    """Return the type, or variable for a type, of each operand of a schema."""
    declared = [i.type_str for i in schema.inputs]
    assert len(operands) <= schema.max_input, f"{schema.name} takes no {len(operands)} operands"
    more: Iterator[str] = repeat(declared[-1] if declared else "")
    return [v for v, _ in zip(chain(declared, more), operands, strict=False)]

"""A program of StableHLO, read from text or bytecode: functions of operations on values.

Attributes are plain values of Python: numbers, strings (also names of functions and of choices,
such as ``"LT"``), tuples, arrays, types, and the dimension numbers below.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.base.words import some
from alpenglow.ir.types import Array

DEEPEST = 64
"""How deep regions, types and attributes may be nested."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """Elements that are integers of a scale, or of one for each slice along an axis.

    An element is (stored - zero point) * scale; `low` and `high` bound the stored integer.
    """

    storage: str
    expressed: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None
    low: int
    high: int

    def __str__(self) -> str:
        return f"quantized {self.storage} of {self.expressed}"


@dataclass(frozen=True, slots=True)
class Tensor:
    """Element type and shape; a dynamic dimension is None, and so is a shape of unknown rank.

    Element types have our names where we have them, and theirs otherwise.
    """

    dtype: str | Quantized
    shape: tuple[int | None, ...] | None
    bounds: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[…]"
        return f"{self.dtype}[{','.join('?' if d is None else str(d) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, which orders side effects; no supported operation has any."""

    def __str__(self) -> str:
        return "token"


@dataclass(frozen=True, slots=True)
class Tuple:
    """Several values as one."""

    parts: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parts))})"


@dataclass(frozen=True, slots=True)
class Scalar:
    """The type of a single number, as attributes name it."""

    dtype: str

    def __str__(self) -> str:
        return self.dtype


@dataclass(frozen=True, slots=True)
class Signature:
    """Types from which and to which a function goes."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.inputs))}) -> ({', '.join(map(str, self.results))})"


Type = Tensor | Token | Tuple | Scalar | Signature


@dataclass(frozen=True, slots=True)
class GatherDims:
    """The dimension numbers of a gather or, by other names, of a scatter.

    `offset` are axes of the result that run over a slice, `collapsed` axes of the operand of which
    a slice has one element, `start_map` axes of the operand that the entries of an index address.
    """

    offset: tuple[int, ...] = ()
    collapsed: tuple[int, ...] = ()
    operand_batch: tuple[int, ...] = ()
    index_batch: tuple[int, ...] = ()
    start_map: tuple[int, ...] = ()
    index_axis: int = 0


@dataclass(frozen=True, slots=True)
class DotDims:
    """Axes of both operands of a product that go together."""

    lhs_batch: tuple[int, ...] = ()
    rhs_batch: tuple[int, ...] = ()
    lhs_contract: tuple[int, ...] = ()
    rhs_contract: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvDims:
    """The axes of a convolution's operands and result, in the order of the axes of `Conv`.

    `input` and `output` have batch, feature and spatial axes; `kernel` has output feature, input
    feature and spatial axes.
    """

    input: tuple[int, ...]
    kernel: tuple[int, ...]
    output: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Record:
    """Another attribute with fields, by its name: an algorithm of products, an accuracy, …."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """An operation on values by name; `types` are the types of its results."""

    name: str
    operands: tuple[str, ...]
    results: tuple[str, ...]
    types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Block, ...]
    place: str
    """The place in the file: a line of text, or an offset in bytes."""
    operand_types: tuple[Type, ...] = ()

    @property
    def label(self) -> str:
        """The name and place for messages."""
        return f"{self.name} at {self.place}"


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Operations in order, on arguments; the last returns what the block makes."""

    arguments: tuple[tuple[str, Type], ...]
    operations: tuple[Operation, ...]

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the values that are returned."""
        return self.operations[-1].operands if self.operations else ()

    @property
    def body(self) -> tuple[Operation, ...]:
        """The operations without the last, which returns."""
        return self.operations[:-1]


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function; each value in it has a name of its own."""

    name: str
    signature: Signature
    body: Block
    public: bool = True
    argument_attributes: tuple[Mapping[str, Any], ...] = ()
    result_attributes: tuple[Mapping[str, Any], ...] = ()
    argument_names: tuple[str, ...] = ()
    """Names of the arguments in the source, as ``params['w']``; "" for an argument without one."""


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions by name; `MAIN` is the program."""

    functions: Mapping[str, Function] = field(default_factory=dict)
    name: str = ""
    version: str = ""
    """The version of the format, if the file has one."""

    def function(self, name: str, label: str = "") -> Function:
        """Return a function; raise ModelError, which names the caller `label`, if it is missing."""
        if name not in self.functions:
            known = some(self.functions)
            raise ModelError(f"function '{name}' is undefined, expected one of {known}", node=label)
        return self.functions[name]


MAIN = "main"

RETURNS = frozenset({"stablehlo.return", "func.return", "return"})
"""Operations that end a block."""


CALLS = {"func.call": "callee", "stablehlo.composite": "decomposition"}
"""Operations that run a function, and the attribute that names it."""


def main_of(module: Module) -> Function:
    """Return the function that a program is: that called so, or the only public one."""
    if MAIN in module.functions:
        return module.functions[MAIN]
    public = [f for f in module.functions.values() if f.public]
    if len(public) != 1:
        names = some(f.name for f in public) or "none"
        raise ModelError(
            f"public functions are {names}, expected one, or a function named '{MAIN}'"
        )
    return public[0]


def every(block: Block) -> Iterator[Operation]:
    """Yield all operations of a block and of those in it."""
    waiting = [block]
    while waiting:
        inner = waiting.pop()
        for operation in inner.operations:
            yield operation
            waiting.extend(operation.regions)


def free(operation: Operation) -> tuple[str, ...]:
    """Return the names of outside values that the regions of an operation read."""
    named: dict[str, None] = {}
    own: set[str] = set()
    for region in operation.regions:
        own.update(name for name, _ in region.arguments)
        for inner in every(region):
            own.update(inner.results)
            own.update(name for block in inner.regions for name, _ in block.arguments)
            named |= dict.fromkeys(inner.operands)
    return tuple(name for name in named if name not in own)


def is_splat(array: Array) -> bool:
    """Whether all elements are one in memory."""
    return array.ndim > 0 and array.size > 1 and not any(array.strides)


def splat(element: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return an array all elements of which are one, which takes the memory of one."""
    return np.broadcast_to(np.asarray(element, dtype), shape)

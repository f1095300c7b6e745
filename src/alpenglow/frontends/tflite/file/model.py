"""A TFLite model as Python sees it: subgraphs, operators and tensors, each read when asked for.

Nothing is interpreted here.  Operators and tensors are what the file says, with every index
checked, and constants are views of the file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.flatbuffer import Table, root
from alpenglow.frontends.tflite.file.schema import (
    BUILTINS,
    CUSTOM,
    LAYOUTS,
    OPTION_2_NUMBERS,
    OPTION_NUMBERS,
    TYPES,
)
from alpenglow.frontends.tflite.file.sparse import dense
from alpenglow.frontends.tflite.roundings import ROUNDINGS
from alpenglow.ir.types import DTYPES, Array, TensorType
from alpenglow.ops.quantized.quantize import bounds

IDENTIFIER = b"TFL3"
"""Stands behind the offset of the first table."""

VERSION = 3

HELD = "bool, integer, float and complex dtypes"
"""The dtypes of tensors that a graph holds, as messages call them."""

QUANTISED = frozenset({"i8", "u8", "i16", "i4", "u4", "i2"})
"""Dtypes of quantized tensors; accumulators in i32 and i64 take their scales from operands."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Quantization parameters: real = (q - zero) * scale.

    There is one scale and one zero, or one of each for every index of `axis`.
    """

    scales: tuple[float, ...]
    zeros: tuple[int, ...]
    axis: int

    @property
    def uniform(self) -> bool:
        """Whether there is one scale for all."""
        return len(self.scales) == 1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of a subgraph, by a name that no other one there has.

    `dtype` is a dtype of graphs, or string, resource or variant.  `shape` has the default
    dimensions, `signature` -1 for dynamic ones; `ranked` is False if the shape may be unknown.
    `grid` has the scales of quantized elements, or is None, `content` the bytes of a constant, or
    None.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    signature: tuple[int, ...]
    ranked: bool
    is_variable: bool
    grid: Grid | None
    content: Array | None
    sparsity: Table | None

    def __str__(self) -> str:
        extents = ",".join("?" if d < 0 else str(d) for d in self.signature)
        return f"{self.dtype}[{extents}]" if self.ranked or self.shape else f"{self.dtype}[…]"

    @property
    def quantised(self) -> bool:
        """True if elements are quantized."""
        return self.grid is not None and self.dtype in QUANTISED

    @property
    def type(self) -> TensorType | None:
        """The type as a graph has it; None if an extent is open, or no graph holds the elements."""
        if self.dtype not in DTYPES or not self.ranked or min(self.signature, default=0) < 0:
            return None
        return TensorType(self.dtype, self.shape)

    def array(self) -> Array | None:
        """Return the elements of a constant, or None if this is none."""
        if self.content is None:
            return None
        if self.dtype == "i4" and self.sparsity is None:
            return self._nibbles(self.content)
        if self.dtype not in DTYPES or self.dtype in ("i4", "u4", "i2"):
            sparse = "sparse " if self.sparsity is not None else ""
            raise UnsupportedError(f"'{self.name}': {sparse}constants of {self.dtype} are not "
                                   f"supported; supported: dense i4, {HELD}")  # fmt: skip
        dtype = DTYPES[self.dtype]
        if self.sparsity is not None:
            if self.content.nbytes % dtype.itemsize:
                raise ModelError(f"'{self.name}' has {self.content.nbytes} bytes of elements, "
                                 f"expected a multiple of {dtype.itemsize}")  # fmt: skip
            return dense(self.content.view(dtype), self.shape, self.sparsity)
        wanted = math.prod(self.shape) * dtype.itemsize
        if self.content.nbytes != wanted:
            raise ModelError(
                f"'{self.name}' is {self} with {self.content.nbytes} bytes of elements, "
                f"expected {wanted}"
            )
        content = self.content
        if dtype == np.bool_:
            content = (content != 0).view(np.uint8)
        return content.view(dtype).reshape(self.shape)

    def _nibbles(self, content: Array) -> Array:
        """Return elements of four bits, of which a byte holds two, the first one below."""
        count = math.prod(self.shape)
        if content.nbytes != (count + 1) // 2:
            raise ModelError(
                f"'{self.name}' is {self} with {content.nbytes} bytes of elements, "
                f"expected {(count + 1) // 2}"
            )
        pairs = np.stack([content << 4, content], -1).reshape(-1)[:count].view(np.int8) >> 4
        return pairs.astype(DTYPES["i4"]).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of a subgraph: `kind` is the name of a builtin, or of a custom one with `custom`.

    Operands and results are numbers of tensors, -1 for an absent operand; `intermediates` are
    tensors with the scales of intermediate values.  `version` is the version of its semantics.
    """

    kind: str
    version: int
    custom: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    table: Table
    intermediates: tuple[int, ...] = ()

    def options(self, layout: str) -> Mapping[str, Any]:
        """Return the options of a layout by name, with defaults for absent ones."""
        number = OPTION_NUMBERS.get(layout)
        name, known = "builtin_options", number
        if number is None:
            name, known = "builtin_options_2", OPTION_2_NUMBERS[layout]
        stored = self.table.number(f"{name}_type")
        if stored not in (0, known):
            raise ModelError(f"{self.kind}: {name}_type is {stored}, expected {known}")
        table = self.table.union(name, layout) if stored else None
        fields = LAYOUTS[layout].items()
        if table is None:
            return {n: () if f.default is None else f.default for n, f in fields}
        return {n: table.value(n) for n, _ in fields}

    def custom_options(self) -> bytes:
        """Return the options of a custom operator, in whatever form they are."""
        if self.table.number("large_custom_options_size"):
            raise UnsupportedError(f"{self.kind}: large_custom_options_offset is not supported; "
                                   "supported: custom_options")  # fmt: skip
        return self.table.array("custom_options").tobytes()


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Operators in the order in which they run; inputs and outputs are numbers of tensors."""

    name: str
    tensors: tuple[Tensor, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    operators: tuple[Operator, ...]


@dataclass(frozen=True, slots=True)
class Signature:
    """Public names of the inputs and outputs of a subgraph: numbers of tensors by name."""

    key: str
    subgraph: int
    inputs: Mapping[str, int]
    outputs: Mapping[str, int]


class Model:
    """A model in the bytes of a file, and the `rounding` of it that is asked for."""

    def __init__(self, content: bytes, rounding: str) -> None:
        assert rounding in ROUNDINGS, f"rounding is {rounding}"
        self.rounding = rounding
        if content[4:8] != IDENTIFIER:
            raise ModelError(f"this is not a TFLite model: bytes 4 to 7 are {content[4:8]!r}, "
                             f"expected {IDENTIFIER!r}")  # fmt: skip
        self._content = content
        self._root = root(content, "Model", LAYOUTS)
        if self._root.number("version") != VERSION:
            raise UnsupportedError(
                f"the schema has version {self._root.number('version')}, expected {VERSION}"
            )
        self.description = self._root.text("description")
        self._buffers = self._root.tables("buffers")
        self._subgraphs = self._root.tables("subgraphs")
        self._kinds = [_kind(code) for code in self._root.tables("operator_codes")]
        self._read: dict[int, Subgraph] = {}

    def __len__(self) -> int:
        return len(self._subgraphs)

    def subgraph(self, i: int) -> Subgraph:
        """Return a subgraph by its number."""
        if i not in self._read:
            self._read[i] = self._subgraph(self._subgraphs[i])
        return self._read[i]

    def signatures(self) -> list[Signature]:
        """Return the signatures, which a model need not have."""
        return [
            Signature(
                s.text("signature_key"), s.number("subgraph_index"),
                _tensor_map(s, "inputs"), _tensor_map(s, "outputs"),
            )
            for s in self._root.tables("signature_defs")
        ]  # fmt: skip

    def metadata(self) -> dict[str, bytes]:
        """Return the metadata of the model by name."""
        entries = self._root.tables("metadata")
        contents = ((e.text("name"), self._content_of(e.number("buffer"), e.path)) for e in entries)
        return {name: b"" if c is None else c.tobytes() for name, c in contents}

    def _subgraph(self, table: Table) -> Subgraph:
        names: dict[str, int] = {}
        tensors = tuple(self._tensor(t, names) for t in table.tables("tensors"))
        numbers = {name: _numbers(table, name, len(tensors), 0) for name in ("inputs", "outputs")}
        operators = tuple(self._operator(o, len(tensors)) for o in table.tables("operators"))
        return Subgraph(table.text("name"), tensors, **numbers, operators=operators)

    def _tensor(self, table: Table, taken: dict[str, int]) -> Tensor:
        number, path = table.number("type"), table.path
        if number not in TYPES:
            raise ModelError(f"{path} has type {number}, expected 0 to {max(TYPES)}")
        if table.number("external_buffer"):
            raise UnsupportedError(f"{path}: external_buffer is not supported; supported: buffer")
        shape = tuple(table.array("shape").tolist())
        signature = tuple(table.array("shape_signature").tolist()) or shape
        if len(signature) != len(shape) or any(d < 0 for d in shape):
            raise ModelError(f"{path} has shape {shape} and shape_signature {signature}, "
                             "expected as many entries, those of shape at least 0")  # fmt: skip
        return Tensor(
            _unique(table.text("name") or "tensor", taken),
            TYPES[number],
            shape,
            tuple(-1 if s == -1 else d for s, d in zip(signature, shape, strict=True)),
            table.number("has_rank") or bool(shape),
            table.number("is_variable"),
            _grid(table.table("quantization"), TYPES[number], len(shape), path),
            self._content_of(table.number("buffer"), path),
            table.table("sparsity"),
        )

    def _operator(self, table: Table, tensors: int) -> Operator:
        code = table.number("opcode_index")
        if code >= len(self._kinds):
            count = len(self._kinds)
            raise ModelError(f"{table.path} has opcode_index {code}, expected less than {count}")
        kind, version, custom = self._kinds[code]
        inputs = _numbers(table, "inputs", tensors, -1)
        outputs = _numbers(table, "outputs", tensors, 0)
        between = _numbers(table, "intermediates", tensors, 0)
        return Operator(kind, version, custom, inputs, outputs, table, between)

    def _content_of(self, number: int, what: str) -> Array | None:
        """Return the bytes of a buffer; None if it is empty: then no constant uses it."""
        if number >= len(self._buffers):
            count = len(self._buffers)
            raise ModelError(f"{what} has buffer {number}, expected less than {count}")
        buffer = self._buffers[number]
        offset, size = buffer.number("offset"), buffer.number("size")
        if offset <= 1:  # offsets 0 and 1 mean that contents are in the table
            content = buffer.array("data")
        elif offset + size > len(self._content):
            raise ModelError(
                f"the file is damaged: {buffer.path} lies in bytes {offset} to {offset + size}, "
                f"expected at most {len(self._content)}"
            )
        else:
            content = np.frombuffer(self._content, np.uint8, size, offset)
        return content if content.size else None


def _grid(table: Table | None, dtype: str, rank: int, path: str) -> Grid | None:
    """Return the scales and zero points of a tensor, or None."""
    if table is None:
        return None
    if table.number("details_type"):
        raise UnsupportedError(
            f"{path}: custom quantization is not supported; supported: scale and zero_point"
        )
    scales, zeros = table.array("scale"), table.array("zero_point")
    if not scales.size:
        return None
    zeros = zeros if zeros.size else np.zeros(1, np.int64)
    axis = table.number("quantized_dimension")
    if zeros.size not in (1, scales.size) or (scales.size > 1 and not 0 <= axis < rank):
        raise ModelError(
            f"{path} has {scales.size} scales and {zeros.size} zero points on axis {axis}, "
            f"expected 1 or as many zero points as scales, and an axis of rank {rank}"
        )
    for scale in scales[~(np.isfinite(scales) & (scales >= 0))][:1]:
        raise ModelError(f"{path} has scale {scale}, expected at least 0 and finite")
    if dtype in QUANTISED:
        low, high = bounds(dtype)
        for zero in zeros[(zeros < low) | (zeros > high)][:1]:
            raise ModelError(f"{path}: zero point is {zero}, expected {low:g} to {high:g}")
    zeros = np.broadcast_to(zeros, scales.shape)
    return Grid(tuple(scales.tolist()), tuple(zeros.tolist()), axis)


def _kind(code: Table) -> tuple[str, int, bool]:
    """Return the name of an operator, its version, and whether it is a custom one."""
    version = code.number("version")
    number = max(code.number("deprecated_builtin_code"), code.number("builtin_code"))
    if number == CUSTOM:
        return code.text("custom_code"), version, True
    known = 0 <= number < len(BUILTINS)
    return (BUILTINS[number] if known else f"builtin {number}"), version, False


def _numbers(table: Table, name: str, count: int, least: int) -> tuple[int, ...]:
    """Return numbers of tensors, each of which there is; -1 where `least` allows that."""
    numbers = table.array(name)
    wrong = numbers[(numbers < least) | (numbers >= count)]
    if wrong.size:
        raise ModelError(
            f"{table.path}.{name} has tensor {wrong[0]}, expected {least} to {count - 1}"
        )
    return tuple(numbers.tolist())


def _tensor_map(table: Table, name: str) -> dict[str, int]:
    return {m.text("name"): m.number("tensor_index") for m in table.tables(name)}


def _unique(name: str, taken: dict[str, int]) -> str:
    """Return a name, with a number behind it if it is taken."""
    while name in taken:
        taken[name] += 1
        name = f"{name}_{taken[name]}"
    taken[name] = 0
    return name


def named(
    numbers: Sequence[int], tensors: Sequence[Tensor], signed: Mapping[str, int]
) -> list[str]:
    """Return names for inputs or outputs: from a signature, or else from the tensors."""
    by_number = {number: name for name, number in signed.items() if name}
    taken: dict[str, int] = {}
    words = (by_number.get(n, tensors[n].name) or "tensor" for n in numbers)
    return [_unique(word, taken) for word in words]

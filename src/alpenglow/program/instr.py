"""The low-level IR: frozen instructions on buffers.

A buffer is a run of bytes in one of four spaces; a region is a strided window on a buffer, and
what an instruction reads and writes.  Nothing here has a graph any more: memory is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.types import Array, TensorType

Space = Literal["input", "output", "const", "arena"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """`nbytes` of memory.  `offset` is the place in the arena once that is planned.

    Inputs and outputs are the caller's memory, laid out as their `type` says, row-major; what a
    `constant` holds is stored alike, and it is in no graph.
    """

    name: str
    nbytes: int
    space: Space
    type: TensorType | None = None
    constant: Value | None = None
    offset: int | None = None

    @property
    def array(self) -> Array | None:
        """The contents of a constant."""
        return None if self.constant is None else self.constant.array


@dataclass(frozen=True, slots=True)
class Region:
    """Elements of a buffer: index (i, j, …) stands at offset + i * strides[0] + j * strides[1] ….

    Offset and strides count elements.  A stride of 0 repeats; a negative one runs backwards.
    """

    buffer: str
    type: TensorType
    offset: int
    strides: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.extents

    @property
    def contiguous(self) -> bool:
        """Whether the elements follow each other in row-major order."""
        return all(
            s == n or d == 1
            for s, n, d in zip(self.strides, row_major(self.shape), self.shape, strict=True)
        ) or 0 in self.shape  # fmt: skip

    def span(self) -> tuple[int, int]:
        """Return the first byte of the buffer that the region may touch and one past the last."""
        if 0 in self.shape:
            return 0, 0
        reach = [(d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)]
        first = self.offset + sum(r for r in reach if r < 0)
        last = self.offset + sum(r for r in reach if r > 0)
        size = self.type.numpy.itemsize
        return first * size, (last + 1) * size


@dataclass(frozen=True, slots=True, eq=False)
class Instr:
    """One operator applied to regions; `body` holds the parts of a fused one.

    `names` are those of the values in the graph that it makes: what a profile calls it.  Texts
    leave them out.
    """

    op: Op
    outs: tuple[Region, ...]
    ins: tuple[Region | None, ...]
    body: Graph | None = None
    names: tuple[str, ...] = ()

    @property
    def regions(self) -> tuple[Graph, ...]:
        return () if self.body is None else (self.body,)

    def reads(self) -> Iterator[Region]:
        return (r for r in self.ins if r is not None)


@dataclass(frozen=True, slots=True)
class Alloc:
    """From here on the buffer holds something."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Free:
    """From here on nobody reads the buffer."""

    buffer: str


Step = Instr | Alloc | Free


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instructions in order, the buffers they use, and the bytes of the arena once planned.

    `inputs` and `outputs` name buffers in the order of the graph's; `lower_bound` is the largest
    sum of buffers alive at once, below which no plan can go.  `names` holds what the caller calls
    an output whose buffer has another name, because an input has it already.
    """

    name: str
    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[Step, ...]
    arena: int = 0
    lower_bound: int = 0
    names: Mapping[str, str] = field(default_factory=dict)

    def instrs(self) -> Iterator[Instr]:
        return (s for s in self.body if isinstance(s, Instr))


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def whole(buffer: str, t: TensorType) -> Region:
    """Return the region that fills a buffer with a dense tensor."""
    return Region(buffer, t, 0, row_major(t.extents))

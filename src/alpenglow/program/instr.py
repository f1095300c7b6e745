"""The low-level IR: frozen instructions on buffers.

A buffer is a run of bytes in one of five spaces; a region is a strided window on a buffer, and
what an instruction reads and writes.  Nothing here has a graph any more: memory is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from alpenglow.ir.dims import symbol
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast

Space = Literal["input", "output", "variable", "const", "arena"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """`nbytes` of memory.  `offset` is the place in the arena once that is planned.

    Inputs and outputs are the caller's memory, laid out as their `type` says, row-major; so are
    variables, which are the session's.  What a `constant` holds is stored alike, and it is in no
    graph.  An input that is `hidden` is no caller's: the runtime fills it with random bits.
    """

    name: str
    nbytes: int
    space: Space
    type: TensorType | None = None
    constant: Value | None = None
    offset: int | None = None
    hidden: bool = False

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

    One of control flow holds in `parts` the programs that it runs: a part has an input for each
    operand that it captures, and a variable for each value that it carries.  `names` are those of
    the values in the graph that it makes: what a profile calls it.  Texts leave them out.
    """

    op: Op
    outs: tuple[Region, ...]
    ins: tuple[Region | None, ...]
    body: Graph | None = None
    names: tuple[str, ...] = ()
    parts: tuple[Program, ...] = ()

    @property
    def regions(self) -> tuple[Graph, ...]:
        return () if self.body is None else (self.body,)

    def reads(self) -> Iterator[Region]:
        return (r for r in self.ins if r is not None)

    def operators(self) -> list[Op]:
        """Return the operators that it applies.  Broadcasts in a body, of one number, are none."""
        if self.body is None:
            return [self.op]
        return [n.op for n in self.body.nodes if not isinstance(n.op, Broadcast)]

    def work(self) -> int:
        """Return how many multiply-adds along inner dimensions it takes."""
        if self.body is None:
            ins = [None if r is None else r.type for r in self.ins]
            return self.op.work(ins, [r.type for r in self.outs])
        return sum(
            n.op.work(
                [None if v is None else v.type for v in n.inputs], [v.type for v in n.results]
            )
            for n in self.body.nodes
        )

    def anchor(self) -> Anchor | None:
        """Return the operator around which the instruction is fused; None if all is elementwise.

        An instruction that is not fused has its operator for an anchor.
        """
        if self.body is None:
            return Anchor(self.op, self.ins, None)
        node = anchor_node(self.body)
        if node is None:
            return None
        own = dict(zip(self.body.inputs.values(), self.ins, strict=True))
        return Anchor(
            node.op, tuple(None if v is None else own.get(v, v) for v in node.inputs), node
        )


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """The operator of an instruction that is not elementwise, the last if there are several.

    `node` is the one of a fused instruction's body.  An operand is a region, or a value of the body
    that is computed there, as a constant that is stretched.
    """

    op: Op
    ins: tuple[Region | Value | None, ...]
    node: Node | None

    def operands(self) -> list[Region | Value]:
        """Return the operands that are there."""
        return [r for r in self.ins if r is not None]

    def left(self) -> Region:
        """Return the first operand, which is memory."""
        first = self.operands()[0]
        assert isinstance(first, Region), f"{self.op.name} reads memory first"
        return first


def anchor_node(body: Graph) -> Node | None:
    """Return the node of a fused instruction's body that is not elementwise; None if all are.

    A check of indices beside another such node is no anchor.  Of attention it is the last node of
    its kind, the product by the values.
    """
    nodes = [n for n in body.nodes if not isinstance(n.op, Elementwise | Broadcast)]
    anchors = [n for n in nodes if not isinstance(n.op, InRange)] or nodes
    return anchors[-1] if anchors else None


def carried_operand(instr: Instr, result: int = 0) -> int | None:
    """Return which operand an operator writes into for a result (`Op.carried`); None: into none.

    Of a fused instruction it is one that its last node alone reads, as it is; of a loop, fused or
    not, the first value of what it carries.
    """
    if isinstance(instr.op, While):
        return 1 + result
    if instr.body is None:
        return instr.op.carried.get(result)
    outputs = list(instr.body.outputs.values())
    node = outputs[0].producer
    if node is not None and isinstance(node.op, Scan):
        return result if result < node.op.carried_count else None
    if node is None or len(outputs) > 1 or outputs[0] is not node.results[0]:
        return None
    if 0 not in node.op.carried:
        return None
    v = node.inputs[node.op.carried[0]]
    position = next((i for i, x in enumerate(instr.body.inputs.values()) if x is v), None)
    uses = sum(x is v for n in instr.body.nodes for x in n.inputs)
    return position if uses == 1 else None


@dataclass(frozen=True, slots=True)
class Alloc:
    """From here on the buffer holds something."""

    buffer: str


@dataclass(frozen=True, slots=True)
class Free:
    """From here on nobody reads the buffer."""

    buffer: str


Step = Instr | Alloc | Free


CAPACITY = "state__capacity"
"""The name of the extent that variables which grow have room for."""


def roomy(t: TensorType, axis: int) -> TensorType:
    """Return the type of the memory of what grows along an axis."""
    room = symbol(CAPACITY)
    return t.with_shape(room if i == axis else d for i, d in enumerate(t.shape))


def first_part(room: Buffer, t: TensorType) -> Region:
    """Return the region where what grows lies: the first part of a buffer with room for more."""
    assert room.type is not None, "variables have types"
    return replace(whole(room.name, t), strides=row_major(room.type.shape))


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """Where a variable is: what it has at entry is in the buffer of its name, of space "variable".

    What it has at exit is in buffer `exit`: the same one if it is computed in place, none ("") if
    nothing is assigned.  `initial` is a constant, what it holds before the first call; of a value
    that a loop carries it tells the type alone.

    One that grows along `axis` has a buffer with room for more (`roomy`): what it has at entry, of
    the type of `initial`, and what it has at exit, `grown`, are the first part of that.
    """

    initial: Value
    exit: str = ""
    axis: int | None = None
    grown: TensorType | None = None

    @property
    def type(self) -> TensorType:
        return self.initial.type


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Instructions in order, the buffers they use, and the bytes of the arena once planned.

    `inputs` and `outputs` name buffers in the order of the graph's; `lower_bound` is the largest
    sum of buffers alive at once, below which no plan can go.  `names` holds what the caller calls
    an output whose buffer has another name, because an input has it already.  `variables` are
    neither inputs nor outputs.
    """

    name: str
    buffers: Mapping[str, Buffer]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    body: tuple[Step, ...]
    arena: int = 0
    lower_bound: int = 0
    names: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, Cell] = field(default_factory=dict)

    @property
    def hidden(self) -> tuple[str, ...]:
        """The inputs that the runtime fills."""
        return tuple(name for name in self.inputs if self.buffers[name].hidden)

    def instrs(self) -> Iterator[Instr]:
        return (s for s in self.body if isinstance(s, Instr))


def row_major(shape: Sequence[Any]) -> tuple[Any, ...]:
    """Return the strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def whole(buffer: str, t: TensorType) -> Region:
    """Return the region that fills a buffer with a dense tensor."""
    return Region(buffer, t, 0, row_major(t.shape))

"""What an instruction reads and writes, byte by byte, and what fills the bytes in between.

A region has elements, gaps between them, and, where it is blocked, lanes that are no channels,
whose values are unspecified: whoever writes them may write anything, and nobody's result may depend
on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from alpenglow.ir.graph import Node
from alpenglow.ir.types import COMPLEX, DTYPES, NARROW, width
from alpenglow.machines.vector.operators.layout import channels
from alpenglow.machines.vector.operators.winograd import (
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)
from alpenglow.machines.vector.operators.winograd_back import WinogradBlocks, WinogradSums
from alpenglow.program import Instr, Program, Region
from alpenglow.program.instr import anchor_node

Array = NDArray[Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Operand:
    """A result (y0, y1, …) or an operand (x0, x1, …) of an instruction.

    Where lanes lie last, `axis` counts their blocks, of which the first `channels` lanes mean
    something; there are none where `axis` is 0.
    """

    name: str
    region: Region
    axis: int = 0
    channels: int = 0

    @property
    def is_result(self) -> bool:
        return self.name[0] == "y"

    def span(self) -> tuple[int, int]:
        return self.region.span()

    def __str__(self) -> str:
        return f"{self.name} {self.region.type}"

    def mask(self, begin: int, end: int, logical: bool = False) -> Mask:
        """Return which of the bytes [begin, end) of its buffer are those of its elements.

        If `logical`, only of elements whose values are specified.
        """
        r, size = self.region, self.region.type.numpy.itemsize
        mask = np.zeros(end - begin, np.bool_)
        if 0 in r.shape:
            return mask
        strides = (*(s * size for s in r.strides), 1)
        elements = np.ndarray(
            (*r.shape, size), np.bool_, mask.data, r.offset * size - begin, strides
        )
        if not (logical and self.axis):
            elements[...] = True
            return mask
        blocks = np.moveaxis(elements, self.axis, 0)
        full, rest = divmod(self.channels, r.shape[-1])
        blocks[:full] = True
        if rest:
            blocks[full, ..., :rest, :] = True
        return mask


def operands(instr: Instr) -> list[Operand]:
    """Return the results and operands of an instruction, in the order of a kernel's buffers."""
    patches = _patches(instr)
    found = [(f"y{i}", r) for i, r in enumerate(instr.outs)]
    found += [(f"x{i}", r) for i, r in enumerate(instr.ins) if r is not None]
    return [Operand(name, r, *patches.get(name, blocks(r))) for name, r in found]


def blocks(r: Region) -> tuple[int, int]:
    """Return the axis of blocks and the number of channels, as far as the type tells."""
    return (0, 0) if r.type.is_plain else (1, channels(r.type))


def _patches(instr: Instr) -> dict[str, tuple[int, int]]:
    """Return the blocks of patches of Winograd's way, [points, N, blocks, tiles, lanes].

    Their types do not say how many channels there are, but the operators do.
    """
    anchor = None if instr.body is None else anchor_node(instr.body)
    match instr.op if anchor is None else anchor.op:
        case WinogradInput() | WinogradBlocks():
            return {"y0": (2, channels(next(instr.reads()).type))}
        case WinogradProduct(int(inputs), int(outputs)):
            return {_given(instr, anchor, 0): (2, inputs), "y0": (2, outputs)}
        case WinogradSums(outputs, inputs):
            return {_given(instr, anchor, 0): (2, inputs), _given(instr, anchor, 1): (2, outputs)}
        case WinogradOutput(outputs=int(outputs)):
            return {_given(instr, anchor, 0): (2, outputs)}
    return {}


def _given(instr: Instr, anchor: Node | None, i: int) -> str:
    """Return the name of operand i of the anchor part."""
    if instr.body is None or anchor is None:
        return f"x{i}"
    return f"x{list(instr.body.inputs.values()).index(anchor.inputs[i])}"


@dataclass(slots=True)
class Place:
    """The bytes [begin, end) of a buffer as a kernel gets them, with the operands that lie there.

    `read` tells the bytes of elements that are read, `written` those that may be written, and
    `result` those of them that must be.
    """

    buffer: str
    begin: int
    end: int
    operands: Sequence[Operand]
    read: Mask
    written: Mask
    result: Mask

    @property
    def nbytes(self) -> int:
        return self.end - self.begin

    def __str__(self) -> str:
        return " = ".join(map(str, self.operands))

    def owner(self, where: int) -> Operand:
        """Return the operand that has the byte there, a result if one has."""
        return next(o for o in self.operands if o.mask(self.begin, self.end)[where])

    def fill(self, flat: Array, number: int) -> None:
        """Fill its bytes with elements that nobody should read, one of two kinds."""
        fill(flat, self.operands[0].region.type.dtype, number)


def places(instr: Instr, program: Program) -> list[Place]:
    """Return what lies where: an operand that shares elements with a result lies with it."""
    groups: list[list[Operand]] = []
    for o in operands(instr):
        shared = [g for g in groups if not o.is_result and _meet(g[0], o)]
        if shared:
            shared[0].append(o)
        else:
            groups.append([o])
    return [_place(group, program) for group in groups]


def _meet(result: Operand, o: Operand) -> bool:
    """Whether an operand has elements that are also those of a result."""
    if not result.is_result or result.region.buffer != o.region.buffer:
        return False
    hull = _hull([result, o])
    return bool((result.mask(*hull) & o.mask(*hull)).any())


def _hull(group: Sequence[Operand]) -> tuple[int, int]:
    spans = [o.span() for o in group]
    return min(begin for begin, _ in spans), max(end for _, end in spans)


def _place(group: list[Operand], program: Program) -> Place:
    begin, end = _hull(group)
    buffer = group[0].region.buffer
    # Of a constant all lanes are known: operators may ask for zeros past the channels.
    computed = program.buffers[buffer].space != "const"
    read, written, result = (np.zeros(end - begin, np.bool_) for _ in range(3))
    for o in group:
        if o.is_result:
            written |= o.mask(begin, end)
            result |= o.mask(begin, end, logical=True)
        else:
            read |= o.mask(begin, end, logical=computed)
    return Place(buffer, begin, end, group, read, written, result)


# ── what nobody should read ──


SIGNALLING = {
    "f16": (0x7D2A, 0xFC55),
    "bf16": (0x7FA5, 0xFF9A),
    "f32": (0x7FA5A5A5, 0xFF9A5A5A),
    "f64": (0x7FF5A5A5A5A5A5A5, 0xFFF25A5A5A5A5A5A),
    "f8e4m3fn": (0x7F, 0xFF),
    "f8e4m3fnuz": (0x80, 0x05),
    "f8e5m2": (0x7D, 0xFD),
    "f8e5m2fnuz": (0x80, 0x05),
    "f8e8m0": (0xFF, 0x05),
}
"""Bits of NaN, signalling where a type has such, of either sign; if it has but one, a number."""


def fill(flat: Array, dtype: str, number: int) -> None:
    """Fill bytes with elements that nobody should read, one of two kinds."""
    bits, size = _bits(dtype, number)
    flat.view(f"u{size}")[...] = bits


def _bits(dtype: str, number: int) -> tuple[int, int]:
    """Return the bits of such an element, or of half a complex one, and how many bytes that is."""
    size = DTYPES[dtype].itemsize
    if dtype in COMPLEX:
        return _bits("f32" if dtype == "c64" else "f64", number)
    if dtype in SIGNALLING:
        return SIGNALLING[dtype][number], size
    if dtype == "bool":
        return 1 - number, size
    # Types of a few bits have zeros above.
    mask = (1 << (width(dtype) if dtype in NARROW else 8 * size)) - 1
    return int.from_bytes(bytes([0x5A if number else 0xA5] * size), "little") & mask, size

"""Weights that are larger than memory: read from the archive while others are computed with.

The table of a call is cut into *segments*, whose weights fit half of the memory that weights may
take.  While one runs, the weights of the next are read into the other half; so each weight has one
place for each segment that reads it, known when the table is laid out, and calls run one at a time.
Small weights, and tables of which rows are gathered, stay where the file is mapped.

What is read is read by position, not through the map: a file that became shorter is an error of the
call, not the end of the process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from alpenglow.base.errors import MemoryLimitError, UnsupportedError
from alpenglow.base.locks import new_lock
from alpenglow.base.mapped import Mapped
from alpenglow.base.memory import aligned_bytes, rounded_up
from alpenglow.base.words import shown
from alpenglow.machines.api import Artifact, Entry
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.tensor.gather import Gather
from alpenglow.program import Buffer, Instr
from alpenglow.runtime.memory.layout import Bound, Context, Layout, address_of
from alpenglow.runtime.memory.slots import Slots

SMALL = 1 << 16
"""Weights of fewer bytes stay where the file is mapped."""


class Piece(NamedTuple):
    """A weight of a segment: where it is in the file, its bytes, and its place in a half."""

    offset: int
    nbytes: int
    place: int


@dataclass(frozen=True, slots=True)
class Segments:
    """The weights of each segment by name, and the segment of each instruction."""

    pieces: tuple[Mapping[str, Piece], ...]
    of: Mapping[Instr, int]
    half: int
    """The bytes of the segment that has most."""


def segments(artifact: Artifact, file: Mapped, nbytes: int) -> Segments:
    """Return segments of an artifact whose weights take `nbytes` at most, of two together.

    Raises MemoryLimitError if a weight is larger than half of that, and UnsupportedError if the
    program jumps: the weights that are next would not be known.
    """
    if any(isinstance(i.op, Jump) for i in artifact.program.instrs()):
        raise UnsupportedError(
            f"{artifact.program.name} has loops or branches, so it is not known in which order it "
            "reads its weights; a limit on them is not supported",
            hint="leave weights out: then the archive is mapped, and read as it is needed",
            flags="leave --weights out: then the archive is mapped, and read as it is needed",
        )
    program, most = artifact.program, nbytes // 2
    pieces: list[dict[str, Piece]] = [{}]
    of: dict[Instr, int] = {}
    used, half = 0, 0
    for entry, instr in zip(artifact.table, program.instrs(), strict=True):
        read = [program.buffers[n] for n in dict.fromkeys(r.buffer for r in instr.reads())]
        mine = [b for b in read if entry.kernel and _is_read_ahead(b, instr)]
        needs = sum(rounded_up(_nbytes(b)) for b in mine)
        if needs > most:
            raise _too_little(mine, 2 * needs, nbytes)
        new = [b for b in mine if b.name not in pieces[-1]]
        if used + sum(rounded_up(_nbytes(b)) for b in new) > most:
            pieces.append({})
            new, used = mine, 0
        for b in new:
            assert b.array is not None, "weights have contents"
            at = address_of(b.array) - file.address
            pieces[-1][b.name] = Piece(at, b.array.nbytes, used)
            used += rounded_up(b.array.nbytes)
        half = max(half, used)
        of[instr] = len(pieces) - 1
    return Segments(tuple(pieces), of, half)


def _is_read_ahead(b: Buffer, instr: Instr) -> bool:
    return b.space == "const" and _nbytes(b) >= SMALL and not isinstance(instr.op, Gather)


def _nbytes(b: Buffer) -> int:
    return 0 if b.array is None else b.array.nbytes


def _too_little(weights: list[Buffer], least: int, nbytes: int) -> MemoryLimitError:
    largest = max(weights, key=_nbytes)
    return MemoryLimitError(
        f"weights may take {nbytes:,} bytes, but {least:,} are the least: an instruction reads "
        f"{shown(largest.name)} ({_nbytes(largest):,} bytes), and the next is read meanwhile",
        hint=f"weights={least}",
        flags=f"--weights {least}",
    )


class ReadAhead:
    """Two halves of memory, and a thread that reads weights into one of them."""

    def __init__(self, file: Mapped, parts: Segments) -> None:
        self._file, self._pieces, self._half = file, parts.pieces, parts.half
        file.reads_ahead()
        self._memory = aligned_bytes(2 * parts.half if len(parts.pieces) > 1 else parts.half)
        self._employ()

    def _employ(self) -> None:
        """Begin with a thread that reads: at first, and in the child of a fork."""
        self._process = os.getpid()
        self._reader = ThreadPoolExecutor(1, "alpenglow-weights")
        self._read: dict[int, Future[None]] = {}

    def address(self, segment: int, name: str) -> int | None:
        """Return where a segment finds a weight; None if it is not read ahead."""
        piece = self._pieces[segment].get(name)
        if piece is None:
            return None
        return address_of(self._memory) + segment % 2 * self._half + piece.place

    def begin(self) -> None:
        """Begin to read what a call needs first."""
        if self._process != os.getpid():
            self._employ()
        for reading in self._read.values():  # of a call that was ended
            if not reading.cancel():
                reading.exception()
        self._read.clear()
        self._request(0)
        self._request(1)

    def wait(self, segment: int) -> None:
        """Return when the weights of a segment are there; raise ModelError if they cannot be."""
        self._read[segment].result()

    def done(self, segment: int) -> None:
        """Let the half of a segment be used by the one after the next."""
        self._request(segment + 2)

    def _request(self, segment: int) -> None:
        if segment < len(self._pieces):
            self._read[segment] = self._reader.submit(self._fill, segment)

    def _fill(self, segment: int) -> None:
        first = segment % 2 * self._half
        for piece in self._pieces[segment].values():
            begin = first + piece.place
            self._file.read_into(piece.offset, self._memory[begin : begin + piece.nbytes].data)


class StreamedSlots(Slots):
    """Slots with addresses in the halves for weights that are read ahead; spans end with segments.

    `of_span` has the segment of each span of compiled entries.
    """

    def __init__(
        self, artifact: Artifact, address: Callable[[str], int], parts: Segments, ahead: ReadAhead
    ) -> None:
        self._segments, self._ahead, self._segment = parts, ahead, -1
        self.of_span: dict[int, int] = {}
        super().__init__(artifact, address)

    def continues(self, instr: Instr) -> bool:
        before, self._segment = self._segment, self._segments.of[instr]
        return super().continues(instr) and self._segment == before

    def lay_out(self, instr: Instr, entry: Entry) -> None:
        self.of_span[len(self.spans) - 1] = self._segment
        super().lay_out(instr, entry)

    def constant(self, b: Buffer) -> int:
        ahead = self._ahead.address(self._segment, b.name)
        return super().constant(b) if ahead is None else ahead


class StreamedLayout(Layout):
    """An artifact whose weights are read as calls go on, one call at a time."""

    streams = True

    def __init__(self, artifact: Artifact, file: Mapped, nbytes: int) -> None:
        """Let weights take `nbytes`; raise MemoryLimitError if that is too little."""
        self._segments = segments(artifact, file, nbytes)
        self._ahead = ReadAhead(file, self._segments)
        self.turn = new_lock()
        super().__init__(artifact)
        self.is_table = False

    def _laid_out(self, address: Callable[[str], int]) -> Slots:
        slots = StreamedSlots(self.artifact, address, self._segments, self._ahead)
        self._of_span = slots.of_span
        return slots

    def take(self, bound: Bound) -> Context:
        self._ahead.begin()
        return super().take(bound)

    def enter(self, span: int) -> None:
        """Return when the weights of a span are there."""
        if span in self._of_span:
            self._ahead.wait(self._of_span[span])

    def leave(self, span: int) -> None:
        """Let the next weights be read, if no span that follows reads the same."""
        segment = self._of_span.get(span)
        later = (self._of_span.get(k) for k in range(span + 1, len(self.spans)))
        if segment is not None and next((s for s in later if s is not None), None) != segment:
            self._ahead.done(segment)

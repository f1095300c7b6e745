"""Verification: a program that passes touches no memory but its own, and means one thing.

Texts of programs and passes of users are not believed.  After `verify`

- every region lies inside its buffer, and a result touches each of its bytes once;
- operators may be applied to their operands, and make what stands on the left;
- only outputs, variables and the arena are written, and nothing is read that was not written as
  that type, or as the parts of complex numbers and those numbers as their parts, on every path of
  jumps that leads there (`contents`);
- a result lies on an operand only where its operator allows that;
- buffers are used while they are alive, and those alive together have places of their own;
- every output is written, all of it, and so is every variable that is assigned, but for the room
  of one that grows.

So instructions mean the same to whatever runs them: NumPy, or compiled code.  All of this stands in
the text; how long it takes grows as the text does, with what is written piece by piece, and with
jumps, each of which takes the contents of all buffers along.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Set

from alpenglow.base.errors import NONSENSE, AlpenglowError, ProgramError
from alpenglow.base.memory import ALIGNMENT, MOST_NBYTES, rounded_up
from alpenglow.base.words import shown
from alpenglow.ir.graph import Graph, Value, infer
from alpenglow.ir.op import Control, Primitive, misfit
from alpenglow.ir.types import TensorType
from alpenglow.ir.verify import KEY
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.fused import Fused
from alpenglow.ops.tensor.movement import Concat
from alpenglow.program.contents import Contents, Paths, State, stored
from alpenglow.program.footprint import EMPTY, Footprint, footprint, overlap
from alpenglow.program.instr import (
    Alloc,
    Buffer,
    Free,
    Instr,
    Program,
    Region,
    first_part,
    whole,
)
from alpenglow.program.share import in_place_operands

MOST_AXES = 64
"""NumPy has no arrays of more."""


def verify(program: Program, properties: Set[str] = frozenset()) -> None:
    """Raise ProgramError if `program` breaks a rule of programs, or lacks one of `properties`.

    A program of which memory is "planned" has lifetimes and places; one with "lifetimes" says where
    buffers begin to be used and where they end; where "values" is true, each buffer holds one value
    that fills it.
    """
    _Verifier(program, properties).run()


def shown_properties(program: Program) -> frozenset[str]:
    """Return what a program shows about its memory: that it has lifetimes, and places."""
    lifetimes = any(isinstance(step, Alloc | Free) for step in program.body)
    planned = any(b.offset is not None for b in program.buffers.values())
    return frozenset((["lifetimes"] if lifetimes else []) + (["planned"] if planned else []))


class _Verifier:
    """What is known of the buffers of a program at a step of it."""

    def __init__(self, program: Program, properties: Set[str]) -> None:
        self.program = program
        self.properties = properties
        self.lifetimes = "lifetimes" in properties or "planned" in properties
        self.planned = "planned" in properties
        self.values = "values" in properties
        self.exits = {name: cell.exit for name, cell in program.variables.items() if cell.exit}
        """What buffers hold what variables have at exit."""
        self.growing = {name for name, cell in program.variables.items() if cell.axis is not None}
        self.contents: State = {}
        self.alive: set[str] = set()
        self.dead: set[str] = set()
        self.places: list[tuple[int, int, str]] = []
        """Begin and end in the arena of what is alive, in order, with its name."""

    def run(self) -> None:
        self._memory()
        self._variables()
        for b in self.program.buffers.values():
            self._buffer(b)
        heads = self._jumps()
        paths = Paths(self.contents, heads)
        self._steps(paths)
        while not paths.is_settled:
            self._steps(paths)
        for name in self.program.outputs:
            self._output(self.program.buffers[name])
        for name, label in self.exits.items():
            if self.program.variables[name].axis is None:
                self._output(self.program.buffers[label])

    def _steps(self, paths: Paths) -> None:
        """Check all steps in order, on the contents that paths to them leave."""
        state: State | None = paths.begin()
        number = 0
        self.alive, self.dead, self.places = set(), set(), []
        for position, step in enumerate(self.program.body):
            match step:
                case Alloc(name):
                    self._alloc(name)
                case Free(name):
                    self._free(name)
                case Instr(op=op):
                    self.contents = state = paths.reach(number, state)
                    self._at(position, step)
                    if isinstance(op, Jump):
                        paths.jump(number + op.by, state, op.by < 0)
                        state = state if step.ins else None
                    number += 1
        self.contents = paths.reach(number, state)
        if self.alive:
            raise ProgramError(f"buffer {_name(min(self.alive))} is not freed, expected a free")

    # ── memory ──

    def _memory(self) -> None:
        p = self.program
        ends = [b.offset + b.nbytes for b in p.buffers.values() if b.offset is not None]
        peak = rounded_up(max(ends, default=0))
        if not 0 <= p.arena <= peak:
            raise ProgramError(
                f"arena is {p.arena} bytes, expected 0 to {peak}, where the last buffer ends"
            )
        if not 0 <= p.lower_bound <= p.arena:
            raise ProgramError(f"lower_bound is {p.lower_bound}, expected 0 to {p.arena} (arena)")
        called = [p.names.get(name, name) for name in p.outputs] + list(p.variables)
        if len(set(called)) < len(called):
            twice = next(name for name in called if called.count(name) > 1)
            raise ProgramError(f"two outputs are called {_name(twice)}, expected unique names")

    def _jumps(self) -> set[int]:
        """Check that jumps stay in the program, and that a loop frees nothing that it had before.

        Return the numbers of the instructions that jumps back lead to.
        """
        count = sum(1 for _ in self.program.instrs())
        heads: set[int] = set()
        alive: dict[str, int] = {}
        freed: list[tuple[int, int, str]] = []
        number = 0
        for step in self.program.body:
            match step:
                case Alloc(name):
                    alive[name] = number
                case Free(name):
                    freed.append((alive.get(name, number), number, name))
                case Instr(op=Jump(by)):
                    end = number + by
                    if not 0 <= end <= count:
                        raise ProgramError(
                            f"a jump leads to {end}, expected instruction 0 to {count}"
                        )
                    heads |= {end} if by < 0 else set()
                    for begin, last, name in freed:
                        if begin < end < last <= number:
                            raise ProgramError(
                                f"{_name(name)} is freed in a loop that reads it, "
                                "expected a free after the loop"
                            )
                    number += 1
                case Instr():
                    number += 1
        return heads

    def _variables(self) -> None:
        """Check that each buffer of the space of variables is what one has at entry or exit."""
        apart = [label for name, label in self.exits.items() if label != name]
        labels = [*self.program.variables, *apart]
        buffers = {b.name for b in self.program.buffers.values() if b.space == "variable"}
        if len(set(labels)) < len(labels) or set(labels) != buffers:
            raise ProgramError(
                f"variables are in {', '.join(map(_name, labels)) or 'no buffers'}, expected each "
                f"of {', '.join(map(_name, sorted(buffers))) or 'none'} once"
            )
        for name, cell in self.program.variables.items():
            if cell.axis is not None:
                continue  # its memory has room for more
            for label in (name, self.exits.get(name, name)):
                if self.program.buffers[label].type != cell.type:
                    raise ProgramError(
                        f"buffer {_name(label)} of variable {_name(name)} is "
                        f"{self.program.buffers[label].type}, expected {cell.type}"
                    )

    def _buffer(self, b: Buffer) -> None:
        what = f"buffer {_name(b.name)}"
        if not 0 <= b.nbytes <= MOST_NBYTES:
            raise ProgramError(f"{what} has {b.nbytes} bytes, expected 0 to {MOST_NBYTES}")
        if b.offset is not None and not self.planned:
            raise ProgramError(f"{what} has an offset, expected none before memory is planned")
        if b.offset is not None:
            end = b.offset + b.nbytes
            if b.offset % ALIGNMENT:
                raise ProgramError(f"{what} is at {b.offset}, expected a multiple of {ALIGNMENT}")
            if not 0 <= b.offset <= end <= self.program.arena:
                raise ProgramError(
                    f"{what} takes bytes {b.offset} to {end}, expected a part of the arena of "
                    f"{self.program.arena} bytes"
                )
        if b.space == "arena":
            self.contents[b.name] = Contents(b.nbytes)
            return
        assert b.type is not None, f"{what} is in no arena and has no type"
        if b.hidden and (b.space != "input" or b.type != KEY):
            raise ProgramError(f"{what} is {b.space} {b.type}, expected input {KEY}: it is hidden")
        _check_size(what, whole(b.name, b.type))
        # What a variable has at exit in a buffer of its own is written as an output is.
        written = b.space == "output" or (
            b.space == "variable" and b.name not in self.program.variables
        )
        self.contents[b.name] = Contents(b.nbytes, b.type.dtype, not written)

    def _alloc(self, name: str) -> None:
        b = self.program.buffers[name]
        if not self.lifetimes:
            raise ProgramError(f"alloc of {_name(name)}, expected none without lifetimes")
        if b.space != "arena":
            raise ProgramError(f"alloc of {_name(name)}, expected a buffer in the arena")
        if name in self.alive or name in self.dead:
            raise ProgramError(f"buffer {_name(name)} is allocated twice, expected once")
        self.alive.add(name)
        if not self.planned:
            return
        if b.offset is None:
            raise self._unplaced(name)
        if not b.nbytes:
            return
        place = (b.offset, b.offset + b.nbytes, name)
        at = bisect_left(self.places, place)
        for begin, end, other in self.places[max(at - 1, 0) : at + 1]:
            if begin < place[1] and place[0] < end:
                raise ProgramError(
                    f"buffer {_name(name)} at {place[0]} to {place[1]} overlaps {_name(other)} at "
                    f"{begin} to {end}, expected separate bytes while both are alive"
                )
        self.places.insert(at, place)

    def _free(self, name: str) -> None:
        b = self.program.buffers[name]
        if name not in self.alive:
            raise ProgramError(f"buffer {_name(name)} is freed, expected an alloc before it")
        self.alive.remove(name)
        self.dead.add(name)
        if self.planned and b.offset is not None and b.nbytes:
            del self.places[bisect_left(self.places, (b.offset, b.offset + b.nbytes, name))]

    def _output(self, b: Buffer) -> None:
        assert b.type is not None, f"output {b.name} has no type"
        place, _ = footprint(whole(b.name, b.type))
        if not self.contents[b.name].holds(b.type.dtype, place):
            raise ProgramError(f"output {_name(b.name)} is unwritten or in part, expected {b.type}")

    # ── instructions ──

    def _at(self, number: int, instr: Instr) -> None:
        """Check an instruction; say which it is where it breaks a rule."""
        try:
            self._instr(instr)
        except AlpenglowError as error:
            names = ", ".join(_name(r.buffer) for r in instr.outs)
            where = f"{number}: {names} = {instr.op.name}(…)"
            raise ProgramError(error.message, node=where, hint=error.hint) from None

    def _instr(self, instr: Instr) -> None:
        if not isinstance(instr.op, Primitive | Fused | Control | Jump):
            raise ProgramError(f"{instr.op.name} is an instruction, expected a primitive operator")
        for used in (*instr.reads(), *instr.outs):
            self._region(used)
        self._types(instr)
        reads = [EMPTY if r is None else footprint(r)[0] for r in instr.ins]
        for i, (r, place) in enumerate(zip(instr.ins, reads, strict=True)):
            if r is not None and not self.contents[r.buffer].holds(r.type.dtype, place):
                raise ProgramError(
                    f"operand {i}, {_region(r)}, is unwritten or in part, expected elements of "
                    f"{r.type.dtype} written before"
                )
        places: list[Footprint] = []
        for out in instr.outs:
            place = self._place(out)
            self._in_place(instr, out, place, reads)
            for other, beside in zip(instr.outs, places, strict=False):
                if other.buffer == out.buffer and overlap(place, beside):
                    raise ProgramError(
                        f"results {_region(other)} and {_region(out)} overlap, "
                        "expected separate bytes"
                    )
            places.append(place)
        for out, place in zip(instr.outs, places, strict=True):
            self.contents[out.buffer].write(out.type.dtype, place)

    def _region(self, r: Region) -> None:
        b = self.program.buffers[r.buffer]
        what = _region(r)
        _check_size(what, r)
        begin, end = r.span()
        if begin < 0 or end > b.nbytes:
            raise ProgramError(f"{what} spans bytes {begin} to {end}, expected 0 to {b.nbytes}")
        roomy = r.buffer in self.growing and r == first_part(b, r.type)
        if self.values and not roomy and (r != whole(b.name, r.type) or r.type.nbytes != b.nbytes):
            raise ProgramError(f"{what} is a part of its buffer, expected the value that fills it")
        if self.lifetimes and b.space == "arena" and b.name not in self.alive:
            raise ProgramError(f"{what} is not alive, expected a use between alloc and free")
        if self.planned and b.space == "arena" and b.offset is None:
            raise self._unplaced(b.name)

    def _types(self, instr: Instr) -> None:
        """Check that the operator makes what stands on the left."""
        types = [None if r is None else r.type for r in instr.ins]
        for part in instr.parts:
            _Verifier(part, self.properties).run()
        regions = [*instr.regions, *map(_signature, instr.parts)]
        try:
            inferred = infer(instr.op, types, regions)
        except NONSENSE as error:
            raise ProgramError(misfit(instr.op, error)) from None
        declared = tuple(r.type for r in instr.outs)
        if inferred != declared:
            raise ProgramError(
                f"results of {instr.op.name} are {', '.join(map(str, declared))}, "
                f"expected {', '.join(map(str, inferred))}"
            )

    def _unplaced(self, name: str) -> ProgramError:
        return ProgramError(f"buffer {_name(name)} has no offset, expected one in the arena")

    def _place(self, r: Region) -> Footprint:
        """Return the footprint of a result."""
        b = self.program.buffers[r.buffer]
        if b.space in ("input", "const"):
            raise ProgramError(f"{_region(r)} is written, expected no write to space {b.space}")
        if b.space == "variable" and b.name not in self.exits.values():
            raise ProgramError(f"{_region(r)} is written, expected no write to a variable at entry")
        if (
            b.space in ("output", "variable")
            and b.type is not None
            and stored(b.type.dtype) != stored(r.type.dtype)
        ):
            kind = "an output" if b.space == "output" else "a variable"
            raise ProgramError(f"{_region(r)} is written to {kind}, expected {b.type.dtype}")
        if self.values and self.contents[r.buffer].written:
            raise ProgramError(f"{_region(r)} is written twice, expected once")
        place, once = footprint(r)
        if not once:
            raise ProgramError(f"{_region(r)} has elements that overlap, expected separate bytes")
        return place

    def _in_place(
        self, instr: Instr, out: Region, place: Footprint, reads: list[Footprint]
    ) -> None:
        """Check that a result lies on an operand only element by element."""
        allowed: set[int] | None = None
        for i, (r, read) in enumerate(zip(instr.ins, reads, strict=True)):
            if r is None or r.buffer != out.buffer or not overlap(place, read):
                continue
            if isinstance(instr.op, Concat) and out.buffer in self.growing and i == 0 == r.offset:
                continue  # what has grown begins with what was there
            if allowed is None:
                allowed = in_place_operands(instr, instr.outs.index(out))
            if i not in allowed or not _same_place(r, out):
                raise ProgramError(
                    f"result {_region(out)} overlaps operand {i}, {_region(r)}, expected separate "
                    "bytes"
                )


def _signature(part: Program) -> Graph:
    """Return the types of what a part carries, captures and makes, as a graph without nodes."""
    g = Graph(part.name)
    for name in (*part.variables, *part.inputs):
        g.inputs[name] = Value(_type(part.buffers[name]), name)
    for name in part.outputs:
        g.outputs[name] = Value(_type(part.buffers[name]), name)
    for name, cell in part.variables.items():
        g.outputs[name] = Value(cell.type, name)
    return g


def _type(b: Buffer) -> TensorType:
    assert b.type is not None, f"{b.name} is in no arena and has no type"
    return b.type


def _same_place(a: Region, b: Region) -> bool:
    """Whether elements of the same index lie at the same bytes."""
    first = (a.shape, a.offset, a.type.numpy.itemsize)
    if first != (b.shape, b.offset, b.type.numpy.itemsize):
        return False
    return all(d == 1 or s == t for d, s, t in zip(a.shape, a.strides, b.strides, strict=True))


def _check_size(what: str, r: Region) -> None:
    """Raise ProgramError if a region has negative extents, or more axes or bytes than there are."""
    if len(r.shape) > MOST_AXES or min(r.shape, default=0) < 0:
        raise ProgramError(
            f"{what} has {len(r.shape)} axes, expected 0 to {MOST_AXES} of 0 or more"
        )
    reach = [
        r.type.with_shape(max(d, 1) for d in r.shape).size,
        abs(r.offset),
        *map(abs, r.strides),
    ]
    if max(reach) * r.type.numpy.itemsize > MOST_NBYTES:
        raise ProgramError(f"{what} spans too many bytes, expected at most {MOST_NBYTES}")


def _region(r: Region) -> str:
    return f"{_name(r.buffer)} {r.type} +{r.offset} {r.strides}"


def _name(name: str) -> str:
    return f"%{shown(name)}"

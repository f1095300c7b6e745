"""Turns: a loop whose body is one compiled part runs as one table, that of all its turns in a row.

What a turn hands to compiled code is the argument table of the body, at other addresses: what one
turn carries is what the next one reads, slices and collected results move on, extents grow by the
same step.  So the tables of many turns are laid out ahead, as arrays (`runtime.staged.row`), and
compiled code walks them without coming back.  Nothing is compiled for it, and every turn runs the
code that it would run alone.

What is not of that kind (several parts, interpreted instructions, extents that grow unevenly) is
left to the host, turn by turn: see `runtime.staged.loops`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from alpenglow.ir import dims
from alpenglow.ir.dims import Dim, Guards, Sym
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.tensor.copy import Copy
from alpenglow.program import Instr, Program, Region
from alpenglow.runtime.call import calls
from alpenglow.runtime.call.calls import Call
from alpenglow.runtime.memory.layout import Layout, compiled
from alpenglow.runtime.staged.row import Form, Ran, Row

MOST_NBYTES = 1 << 20
"""How long the tables of a row of turns may be."""

MOST_GROWTH = 1 << 28
"""How many bytes may be set aside for what is carried to grow into."""

MOST_ROWS = 8
"""How many rows of turns are kept, each for its extents and number."""

Numbers = tuple[int, ...]
"""Values of the symbols, in order."""


@dataclass(frozen=True, slots=True)
class Roles:
    """What the inputs and results of a body are to its loop, by name; "" is an absent one.

    `carried` pairs inputs with the results that are the inputs of the next turn; of `sliced`
    inputs each turn gets the next slice; `collected` results are stacked.
    """

    count: str
    going: str
    goes_on: str
    carried: tuple[tuple[str, str], ...]
    sliced: tuple[str, ...]
    collected: tuple[str, ...]


class Turns:
    """How the turns of a loop follow each other, in the code of one layout.

    `types` are those of inputs for which the code was chosen; the guards hold of every turn.
    `counted` says by how much symbols of elements are larger in the next turn.  Where `may_stop` is
    false, no turn ends the loop.
    """

    def __init__(
        self, layout: Layout, types: Mapping[str, TensorType], guards: Guards, roles: Roles,
        counted: Mapping[str, Dim],
    ) -> None:  # fmt: skip
        assert self.serve(layout, roles), "these turns do not run in a row"
        self.layout = layout
        program = layout.artifact.program
        instrs = list(program.instrs())
        results = _results(program)
        goes_on = results[roles.goes_on].buffer if roles.goes_on else ""
        self.may_stop = bool(goes_on) and not _hands_on(program, goes_on, roles.going)
        carried = [(i, results[o].buffer) for i, o in roles.carried]
        numbers = dims.solved((*guards, *layout.artifact.guards))
        kept = [_kept(program, i, o, numbers) for i, o in carried]
        idle = {n for copies in kept for n in copies}
        if not self.may_stop:
            idle |= {n for n, i in enumerate(instrs) if any(r.buffer == goes_on for r in i.outs)}
        own = {roles.count, roles.going, *roles.sliced, *(i for i, _ in roles.carried)}
        self._form = Form(
            layout=layout,
            entries=[n for n in range(len(instrs)) if n not in idle],
            count=roles.count,
            going=roles.going,
            goes_on=goes_on if self.may_stop else "",
            carried=carried,
            in_place=[bool(copies) for copies in kept],
            captured=[n for n in program.inputs if n not in own],
            sliced=roles.sliced,
            collected=[results[o].buffer for o in roles.collected],
        )
        self._starts = [types.get(i) for i, _ in roles.carried]
        self._results = [results[o].type for _, o in roles.carried]
        self._collected = [results[o].type for o in roles.collected]
        self._sliced = [types.get(i) for i in roles.sliced]
        every = (*types.values(), *(r.type for r in results.values()))
        self.symbols = sorted(_symbols(every, guards, layout) | counted.keys())
        successor = {i: results[o].type for i, o in roles.carried}
        steps = _steps({n: (t, successor.get(n, t)) for n, t in types.items()}) | dict(counted)
        self._steps = [steps.get(s, 0) for s in self.symbols]
        self._step = compiled(self.symbols, [str(d) for d in self._steps])
        pairs = _unsure(zip(self._starts, self._results, strict=True))
        self._expected = compiled(self.symbols, [str(want) for want, _ in pairs])
        self._found = compiled(self.symbols, [str(got) for _, got in pairs])
        conditions = [f"({d}) {relation} 0" for d, relation in (*guards, *layout.artifact.guards)]
        self._conditions = compiled(self.symbols, conditions)
        self._sizes = compiled(self.symbols, [f"({dims.product(t.shape)})" for t in self._results])
        self._shapes = _shapes(self.symbols, self._results)
        self._fixed = _shapes(self.symbols, self._collected)
        self._rows: OrderedDict[Numbers, Row | None] = OrderedDict()

    @staticmethod
    def serve(layout: Layout, roles: Roles) -> bool:
        """Whether the code of a layout can run turns in a row, as far as it alone tells."""
        program = layout.artifact.program
        if not layout.is_plain:
            return False
        results = _results(program)
        if roles.goes_on:
            told = results.get(roles.goes_on)
            if told is None or told.type.dtype != "bool" or any(d != 1 for d in told.type.shape):
                return False
        return all(n in results for n in (*(o for _, o in roles.carried), *roles.collected))

    def run(
        self, env: Mapping[str, Any], values: Mapping[str, int], sliced: Sequence[Array],
        first: int, most: int, threads: int, call: Call,
    ) -> Ran | None:  # fmt: skip
        """Run at most so many turns; the first has number `first`, and is known to be right.

        `sliced` holds the slices of the turns from here on, dense.  Returns None where less than
        two turns follow each other in this way.
        """
        numbers = tuple(values[s] for s in self.symbols)
        row = self._row(numbers, most)
        if row is None:
            return None
        turns = min(most, row.turns)
        shapes = zip(self._fixed(*numbers), self._collected, strict=True)
        stacks = [np.empty((turns, *shape), t.numpy) for shape, t in shapes]
        context = row.take()
        held = context.begin(env, sliced, stacks, first)
        self.layout.check_files()
        with calls.part(context.stop, call):
            done = context.walk(turns, threads)
        self.layout.check_files()
        last = [n + (done - 1) * step for n, step in zip(numbers, row.steps, strict=True)]
        carried = context.carried(done, self._shapes(*last), [t.numpy for t in self._results])
        going = not self.may_stop or context.goes_on(done)
        del held
        row.give_back(context)  # not after an error: its tables may be half of this run's
        collected = stacks if done == turns else [s[:done].copy() for s in stacks]
        return Ran(done, going, carried, collected)

    def _row(self, numbers: Numbers, most: int) -> Row | None:
        """Return tables for turns that begin with these extents; None for less than two."""
        count = min(1 << (most - 1).bit_length(), max(MOST_NBYTES // self._form.turn_nbytes, 2))
        key = (*numbers, count)
        if key not in self._rows:
            row = self._bind(numbers, count)
            self._rows[key] = row
            if len(self._rows) > MOST_ROWS:
                self._rows.popitem(last=False)
            return row
        return self._rows[key]

    def _bind(self, numbers: Numbers, count: int) -> Row | None:
        steps: Numbers = self._step(*numbers)
        moving = {s for s, step in zip(self.symbols, steps, strict=True) if step}
        if any(dims.names(d) & moving for d in self._steps):
            return None  # the step itself changes from turn to turn
        turns = self._right(numbers, steps, count)
        values = dict(zip(self.symbols, numbers, strict=True))
        starts = [0 if t is None else _nbytes(t, values) for t in self._starts]
        while turns > 1:
            columns = _columns(numbers, steps, turns)
            ends = zip(self._sizes(*columns), self._results, strict=True)
            sizes = list(map(max, starts, [int(np.max(n)) * t.numpy.itemsize for n, t in ends]))
            if not moving or sum(sizes) <= MOST_GROWTH:
                spread = self.layout.spread(dict(zip(self.symbols, columns, strict=True)), turns)
                collected = [_nbytes(t, values) for t in self._collected]
                sliced = [0 if t is None else _nbytes(t, values) for t in self._sliced]
                return Row(self._form, spread, values, steps, sizes, sliced, collected)
            turns //= 2
        return None

    def _right(self, numbers: Numbers, steps: Numbers, count: int) -> int:
        """Return for how many turns all holds that the code takes for granted."""
        now, then = _columns(numbers, steps, count), _columns(numbers, steps, count, 1)
        with np.errstate(divide="ignore"):
            holds = [(right, 0) for right in self._conditions(*now)]
            follow = zip(self._expected(*then), self._found(*now), strict=True)
            holds += [(want == got, 1) for want, got in follow]
            same = zip(self._fixed(*numbers), self._fixed(*now), strict=True)
            holds += [(d == at, 0) for want, got in same
                      for d, at in zip(want, got, strict=True)]  # fmt: skip
        turns = count
        for right, late in holds:
            wrong = np.flatnonzero(~np.atleast_1d(right))
            turns = min(turns, int(wrong[0]) + late) if len(wrong) else turns
        return turns


# ── what follows from types ──


def _symbols(types: Iterable[TensorType], guards: Guards, layout: Layout) -> set[str]:
    names = {n for t in types for n in t.symbols()} | {n for d, _ in guards for n in dims.names(d)}
    return names | set(layout.symbols)


def _steps(types: Mapping[str, tuple[TensorType, TensorType]]) -> dict[str, Dim]:
    """Return by how much symbols are larger in the next turn: each stands for an extent.

    `types` are those of inputs, each with that of what it is in the next turn.
    """
    steps: dict[str, Dim] = {}
    for now, then in types.values():
        for axis, d in enumerate(now.shape):
            if isinstance(d, Sym) and str(d).isidentifier() and str(d) not in steps:
                steps[str(d)] = then.shape[axis] - d if then.rank == now.rank else 0
    return steps


def _unsure(pairs: Iterable[tuple[TensorType | None, TensorType]]) -> list[tuple[Dim, Dim]]:
    """Return extents that are expected in the next turn, each with what will be there."""
    extents: list[tuple[Dim, Dim]] = []
    for want, got in pairs:
        if want is None:
            continue
        if (want.dtype, want.rank) == (got.dtype, got.rank):
            extents += zip(want.shape, got.shape, strict=True)
        else:
            extents.append((0, 1))
    return extents


def _columns(numbers: Numbers, steps: Numbers, count: int, first: int = 0) -> list[int | Array]:
    """Return the values of symbols in `count` turns: arrays of those that change."""
    turn = np.arange(first, first + count)
    return [n + step * turn if step else n for n, step in zip(numbers, steps, strict=True)]


def _shapes(symbols: list[str], types: Iterable[TensorType]) -> Callable[..., Any]:
    return compiled(symbols, ["(" + "".join(f"{d}, " for d in t.shape) + ")" for t in types])


def _nbytes(t: TensorType, values: Mapping[str, int]) -> int:
    return t.bind(values).nbytes


# ── what follows from programs ──


@dataclass(frozen=True, slots=True)
class Result:
    """The buffer and type of a result."""

    buffer: str
    type: TensorType


def _results(program: Program) -> dict[str, Result]:
    """Return the results of a program by the names that the body has for them."""
    types = {o: program.buffers[o].type for o in program.outputs}
    return {program.names.get(o, o): Result(o, t) for o, t in types.items() if t is not None}


def _writes(program: Program, buffer: str) -> list[tuple[Instr, Region]]:
    return [(i, out) for i in program.instrs() for out in i.outs if out.buffer == buffer]


def _hands_on(program: Program, goes_on: str, going: str) -> bool:
    """Whether what tells a loop to go on is what it was told, or always true."""
    match _writes(program, goes_on):
        case [(Instr(op=Copy(), ins=(Region() as source,)), _)]:
            array = program.buffers[source.buffer].array
            return source.buffer == going if array is None else bool(array.all())
    return False


def _kept(program: Program, source: str, result: str, numbers: Mapping[str, int]) -> list[int]:
    """Return the instructions that are idle where one buffer holds both an input and a result.

    They copy what the result keeps to where it is.  None are returned where one buffer cannot serve
    both.  `numbers` are those of symbols that have one value.
    """
    if source not in program.inputs:
        return []
    own, whole = program.buffers[source].type, program.buffers[result].type
    assert own is not None and whole is not None, f"input {source} or its result has no type"
    instrs = list(program.instrs())
    idle = [n for n, i in enumerate(instrs) if _stays(i, source, result)]
    writes = [(n, out) for n, i in enumerate(instrs) for out in i.outs
              if out.buffer == result and n not in idle]  # fmt: skip
    if not idle:
        return []
    whole_first = len(idle) == 1 and _is_dense(instrs[idle[0]].outs[0], own)
    if whole_first and all(_is_behind(out, dims.product(own.shape)) for _, out in writes):
        return idle
    first = min((n for n, _ in writes), default=len(instrs))
    reads = [n for n, i in enumerate(instrs) if n not in idle
             for r in i.reads() if r.buffer == source]  # fmt: skip
    # An instruction may write where it reads only if it is said so of it.
    if max(reads, default=-1) >= first:
        return []
    for n in idle:
        kept = instrs[n].outs[0]
        before = [out for k, out in writes if k < n]
        if not all(_is_beside(out, kept, whole, numbers) for out in before):
            return []
    return idle


def _stays(i: Instr, source: str, result: str) -> bool:
    """Return True if an instruction copies part of an input to the same place of a result."""
    match i:
        case Instr(op=Copy(), ins=(Region() as read,), outs=(Region() as out,)):
            same = (read.type, read.offset, read.strides) == (out.type, out.offset, out.strides)
            return same and (read.buffer, out.buffer) == (source, result)
    return False


def _is_beside(a: Region, b: Region, whole: TensorType, numbers: Mapping[str, int]) -> bool:
    """Return True if one window on a tensor ends along an axis where the other begins.

    On all other axes both are as long as the tensor, as the parts of a concatenation are.
    """

    def fixed(extents: Iterable[Dim]) -> list[Dim]:
        return [dims.bind(d, numbers) for d in extents]

    full, strides = fixed(whole.shape), fixed(_dense(whole))
    if not fixed(a.strides) == fixed(b.strides) == strides or a.type.rank != b.type.rank:
        return False
    axes = zip(fixed(a.type.shape), fixed(b.type.shape), full, strides, strict=True)
    partly = [(d, e, s) for d, e, n, s in axes if d != n or e != n]
    if len(partly) != 1:
        return False
    ((d, e, stride),) = partly
    return dims.bind(b.offset - a.offset, numbers) in (d * stride, -e * stride)


def _dense(t: TensorType) -> list[Dim]:
    """Return the strides of a tensor whose elements lie in a row."""
    return [dims.product(t.shape[axis + 1 :]) for axis in range(t.rank)]


def _is_dense(r: Region, t: TensorType) -> bool:
    """Whether a region is a tensor that begins where its buffer does."""
    return r.type == t and r.offset == 0 and list(r.strides) == _dense(t)


def _is_behind(r: Region, size: Dim) -> bool:
    """Whether all of a region lies behind the first `size` elements, whatever the extents are."""
    gap = r.offset - size
    forward = all(dims.is_open(s) or s >= 0 for s in r.strides)
    return not dims.is_open(gap) and gap >= 0 and forward

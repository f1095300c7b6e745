"""Rolling rows: a chain of instructions written out, a few rows of its result at a time.

A value inside the chain is computed in its window (`program/windows.py`), whose last rows are moved
up when there is no room for the next.  Padding and concatenation happen in place, as elsewhere:
what is padded is computed inside the window of what it becomes, whose borders are filled once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from alpenglow.ir.rows import ROWS, Rows
from alpenglow.ir.text import unique
from alpenglow.ir.types import TensorType
from alpenglow.ops.tensor.copy import Copy, Fill
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad
from alpenglow.program.banded import band_of, banded, height, of_height
from alpenglow.program.instr import Buffer, Instr, Program, Region, row_major, whole
from alpenglow.program.views import border, parts
from alpenglow.program.windows import Source, Windows, taken_over, windows_of


def rolled(source: Source, chains: Sequence[tuple[int, int, int]]) -> Program:
    """Return the program with each chain, from one instruction to another, so many rows a step."""
    buffers = dict(source.program.buffers)
    body: list[Instr] = []
    homes: dict[str, str] = {}
    done = 0
    for begin, end, step in sorted(chains):
        body += source.instrs[done:begin]
        windows = windows_of(source, begin, end, step)
        roller = _Roller(source, windows, begin, buffers)
        over = taken_over(windows, begin)
        if over is not None:
            homes[source.instrs[end - 1].outs[0].buffer] = homes.get(over, over)
        body += [source.instrs[k] for k in range(begin, end) if source.skips(k)]
        body += roller.run()
        done = end
    body += source.instrs[done:]
    body = [_moved(i, homes) for i in body]
    used = {r.buffer for i in body for r in (*i.reads(), *i.outs)}
    kept = {n: b for n, b in buffers.items() if b.space != "arena" or n in used}
    return replace(source.program, buffers=kept, body=tuple(body))


def _moved(instr: Instr, homes: Mapping[str, str]) -> Instr:
    """Return an instruction on the buffers that have taken over others."""

    def moved(r: Region) -> Region:
        return replace(r, buffer=homes[r.buffer]) if r.buffer in homes else r

    ins = tuple(None if r is None else moved(r) for r in instr.ins)
    return replace(instr, outs=tuple(map(moved, instr.outs)), ins=ins)


class _Roller:
    """Writes down the steps of a chain."""

    def __init__(
        self, source: Source, windows: Windows, begin: int, buffers: dict[str, Buffer]
    ) -> None:
        self.source, self.windows, self.buffers = source, windows, buffers
        self.taken = dict.fromkeys(buffers, 2)
        self.stretched: dict[tuple[str, int], str] = {}
        """What an operand is called that is stretched over so many rows."""
        self.chain = [k for k in range(begin, windows.end) if not source.skips(k)]
        self.types = {r.buffer: r.type for k in self.chain for r in self._regions(k)}
        self.places = self._places()
        self.base = dict.fromkeys(windows.rows, 0)
        """The row of each value that its window begins with."""
        for name, rows in windows.rows.items():
            t = of_height(self.types[name], rows)
            buffers[name] = Buffer(name, t.nbytes, "arena", t)

    def run(self) -> Iterator[Instr]:
        """Yield the instructions of all steps."""
        for k in self.chain:
            yield from self._filled_sides(k)
        (last,) = self.source.instrs[self.windows.end - 1].outs
        for step in range(len(self.windows.ends[last.buffer])):
            for name in self.base:
                yield from self._moved_up(name, step)
            for k in self.chain:
                (out,) = self.source.instrs[k].outs
                begin = int(self.windows.before(out.buffer)[step])
                end = int(self.windows.ends[out.buffer][step])
                if begin < end:
                    yield from self._band(k, begin, end)

    def _regions(self, k: int) -> tuple[Region, ...]:
        instr = self.source.instrs[k]
        return (*instr.outs, *instr.reads())

    def _places(self) -> dict[str, tuple[int, ...]]:
        """Return where inside another value each begins that is computed inside one."""
        places: dict[str, tuple[int, ...]] = {}
        for k in self.chain:
            instr = self.source.instrs[k]
            if not isinstance(instr.op, Pad | Concat):
                continue
            (out,), operands = instr.outs, list(instr.reads())
            regions = parts(instr.op, out, tuple(r.type for r in operands))
            for r, part in zip(operands, regions, strict=True):
                places[r.buffer] = corner(part, out.type)
        return {n: p for n, p in places.items() if n in self.windows.parents}

    def _filled_sides(self, k: int) -> Iterator[Instr]:
        """Yield what fills the borders beside the rows of a padded value with room of its own."""
        instr = self.source.instrs[k]
        (out,) = instr.outs
        if isinstance(instr.op, Pad) and out.buffer not in self.windows.parents:
            rows = self.windows.rows.get(out.buffer, height(out.type))
            yield from _filled(instr, self._rows(out.buffer, 0, rows))

    def _moved_up(self, name: str, step: int) -> Iterator[Instr]:
        """Yield what moves the rows of a window up that are still needed, if room is needed."""
        end = int(self.windows.ends[name][step])
        if end - self.base[name] <= self.windows.rows[name]:
            return
        low, filled = int(self.windows.low(name)[step]), int(self.windows.before(name)[step])
        shift = low - self.base[name]
        for begin in range(low, filled, shift):
            count = min(shift, filled - begin)
            source = self._rows(name, begin, begin + count)
            target = self._rows(name, begin - shift, begin - shift + count)
            yield Instr(Copy(), (target,), (source,))
        self.base[name] = low

    def _band(self, k: int, begin: int, end: int) -> Iterator[Instr]:
        """Yield what makes some rows of the result of instruction k."""
        instr, form = self.source.instrs[k], self.source.forms[k]
        assert form is not None, "the instructions of a chain have forms"
        (result,) = instr.outs
        out = self._rows(result.buffer, begin, end)
        if not form.move:
            ins = []
            for rows, r in zip(form.operands, instr.reads(), strict=True):
                yield from self._stretched(rows, r, begin, end)
                ins.append(self._operand(rows, r, begin, end))
            yield banded(instr, form, begin, end, out, tuple(ins))
            return
        if isinstance(instr.op, Pad):
            yield from self._padded(instr, result, begin, end)
        assert isinstance(instr.op, Pad | Concat), "nothing else moves"
        inside = parts(instr.op, result, tuple(r.type for r in instr.reads()))
        for rows, r, part in zip(form.operands, instr.reads(), inside, strict=True):
            yield from self._stretched(rows, r, begin, end)
            yield from self._put(instr, rows, r, corner(part, result.type), begin, end)

    def _padded(self, instr: Instr, result: Region, begin: int, end: int) -> Iterator[Instr]:
        """Yield what fills rows of padding, and the borders of others where nobody has yet."""
        assert isinstance(instr.op, Pad), "nothing else pads"
        first = instr.op.before[ROWS]
        last = height(result.type) - instr.op.after[ROWS]
        for low, high in ((begin, min(end, first)), (max(begin, last), end)):
            if low < high:
                yield _fill(instr, self._rows(result.buffer, low, high))
        if result.buffer in self.windows.parents and max(begin, first) < min(end, last):
            rows = self._rows(result.buffer, max(begin, first), min(end, last))
            yield from _filled(instr, rows)

    def _put(
        self, instr: Instr, rows: Rows | None, r: Region, start: tuple[int, ...], begin: int,
        end: int,
    ) -> Iterator[Instr]:  # fmt: skip
        """Yield what copies rows of an operand that is not computed inside the result."""
        assert rows is not None, "operands that are moved have rows"
        if r.buffer in self.windows.parents:
            return
        (result,) = instr.outs
        band = band_of(rows, r.type, begin, end)
        if band.begin >= band.end:
            return
        target = self._inside(result.buffer, start, r.type, band.begin, band.end)
        yield Instr(Copy(), (target,), (self._operand(rows, r, begin, end),), names=instr.names)

    def _stretched(self, rows: Rows | None, r: Region, begin: int, end: int) -> Iterator[Instr]:
        """Yield what stretches an operand over as many rows as are read, the first time."""
        maker = self.source.stretched.get(r.buffer)
        if maker is None or rows is None:
            return
        band = band_of(rows, r.type, begin, end)
        assert isinstance(maker.op, Broadcast), "nothing else stretches"
        t = of_height(r.type, band.end - band.begin)
        if (r.buffer, height(t)) not in self.stretched:
            name = unique(r.buffer, self.taken)
            self.stretched[r.buffer, height(t)] = name
            self.buffers[name] = Buffer(name, t.nbytes, "arena", t)
            op = replace(maker.op, shape=t.shape)
            yield replace(maker, op=op, outs=(whole(name, t),))

    def _operand(self, rows: Rows | None, r: Region, begin: int, end: int) -> Region:
        """Return the rows of an operand that rows of the result take, or all of it."""
        if rows is None:
            return r
        band = band_of(rows, r.type, begin, end)
        if r.buffer in self.source.stretched:
            t = of_height(r.type, band.end - band.begin)
            return whole(self.stretched[r.buffer, height(t)], t)
        return self._rows(r.buffer, band.begin, band.end)

    def _rows(self, name: str, begin: int, end: int) -> Region:
        """Return where some rows of a value are now."""
        t = self.types[name]
        parent = self.windows.parents.get(name)
        if parent is not None:
            return self._inside(parent, self.places[name], t, begin, end)
        rows = self.windows.rows.get(name, height(t))
        strides = row_major(of_height(t, rows).extents)
        offset = (begin - self.base.get(name, 0)) * strides[ROWS]
        return Region(name, of_height(t, end - begin), offset, strides)

    def _inside(
        self, name: str, start: tuple[int, ...], t: TensorType, begin: int, end: int
    ) -> Region:
        """Return where rows of a value of type t are that begins at `start` inside another."""
        outer = self._rows(name, begin + start[ROWS], end + start[ROWS])
        aside = sum(a * s for i, (a, s) in enumerate(zip(start, outer.strides, strict=True))
                    if i != ROWS)  # fmt: skip
        return Region(outer.buffer, of_height(t, end - begin), outer.offset + aside, outer.strides)


def corner(r: Region, t: TensorType) -> tuple[int, ...]:
    """Return the index at which a region begins inside a value of type t, which fills a buffer."""
    return tuple(int(i) for i in np.unravel_index(r.offset, t.extents))


def _filled(instr: Instr, rows: Region) -> Iterator[Instr]:
    """Yield what fills the borders of rows of a padded value, but for those above and below."""
    assert isinstance(instr.op, Pad), "nothing else pads"
    before, after = ((*p[:ROWS], 0, *p[ROWS + 1 :]) for p in (instr.op.before, instr.op.after))
    for slab in border(replace(instr.op, before=before, after=after), rows):
        yield _fill(instr, slab)


def _fill(instr: Instr, slab: Region) -> Instr:
    assert isinstance(instr.op, Pad), "nothing else pads"
    plain = replace(slab, type=slab.type.with_shape(slab.shape))
    fill = Fill(plain.type.dtype, plain.shape, instr.op.value)
    return Instr(fill, (plain,), (), names=instr.names)

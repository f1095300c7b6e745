"""Pooling along one axis, in a number of steps that hardly grows with the window.

Windows that overlap share what they have in common.  Across vectors, neighbouring windows share the
rows that lie in all of them; along a vector, a window of 4 n elements is combined from 4 of n.
Sums are only ever added up: nothing is subtracted, so nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, HALVES
from alpenglow.kernel.expr import Buffer, Expr, Load, Shuffle
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.instruction import Frame
from alpenglow.loops.rows import Totals, combine, in_turn
from alpenglow.machines.vector.templates import templates
from alpenglow.ops.reduction.reduction import lowest
from alpenglow.ops.window.pooling import AveragePool, MaxPool
from alpenglow.program.instr import Anchor, Instr, Region

SHORT = 3
"""Windows of fewer elements have little in common: they are left to loops."""

TOGETHER = 8
"""Rows of results that share rows of x, at most; each keeps a register."""

CHUNK = 512
"""Elements of a row that are brought into scratch at once."""

SPREAD = 4
"""Steps along a row up to which it is loaded whole and shuffled; beyond, it is gathered."""

Pool = MaxPool | AveragePool

Place = Callable[[Coord], list[Coord]]
"""Returns all coordinates of that on the axis of the windows."""


def _fits(op: Pool, anchor: Anchor, instr: Instr, target: Target) -> bool:
    """Return whether windows extend along one axis, and vectors lie along that or another."""
    x, (out,) = anchor.left(), instr.outs
    axis = _axis(op)
    if axis is None or not target.facts.cache or 0 in x.shape or 0 in out.shape:
        return False
    if _vectors(x, out, axis) is not None:
        return True
    taps, stride = op.kernel[axis - 2], op.strides[axis - 2]
    if stride > SPREAD and stride >= taps:
        return False
    span = (taps - 1) * op.dilations[axis - 2]
    dense = is_number(x.strides[axis], 1) and is_number(out.strides[axis], 1)
    return dense and span <= 2 * CHUNK and estimate(out.shape[axis]) >= 4


def _axis(op: Pool) -> int | None:
    """Return the axis along which windows extend, if they do along one alone."""
    spatial = len(op.kernel)
    long = [i for i, taps in enumerate(op.kernel) if taps != 1]
    if len(long) != 1 or op.kernel[long[0]] < SHORT:
        return None
    (axis,) = long
    others = [i for i in range(spatial) if i != axis]
    plain = all(op.strides[i] == 1 and not op.pads[i] + op.pads[spatial + i] for i in others)
    return 2 + axis if plain else None


def _vectors(x: Region, out: Region, axis: int) -> int | None:
    """Return an axis, not the axis of the windows, along which vectors lie; None without one."""
    dense = [
        i for i, extent in enumerate(out.shape)
        if i != axis and is_number(x.strides[i], 1) and is_number(out.strides[i], 1)
        and estimate(extent) > 3
    ]  # fmt: skip
    return max(dense, key=lambda i: estimate(out.shape[i]), default=None)


@templates.on(MaxPool, "kernel strides pads dilations ceil", _fits)
def max_windows(k: Frame, op: MaxPool, target: Target) -> None:
    _build(_Windows(k, op, target, "max"))


@templates.on(AveragePool, "kernel strides pads dilations ceil count_pads", _fits)
def mean_windows(k: Frame, op: AveragePool, target: Target) -> None:
    """Build the loops; if `strict`, each window is summed from its first element to its last."""
    _build(_Windows(k, op, target, "add"))


def _build(windows: _Windows) -> None:
    vectors = _vectors(windows.k.inputs[0].region, windows.k.out.region, windows.axis)
    if vectors is not None:
        _across(windows, vectors)
    else:
        _along(windows)


class _Windows:
    """Windows of `taps` elements along an axis of x, which are combined by max or add."""

    def __init__(self, k: Frame, op: Pool, target: Target, combined: str) -> None:
        axis = _axis(op)
        assert axis is not None, "windows extend along one axis"
        i, spatial = axis - 2, len(op.kernel)
        self.k, self.op, self.axis, self.combined = k, op, axis, combined
        self.taps, self.stride, self.dilation = op.kernel[i], op.strides[i], op.dilations[i]
        self.before, self.after = op.pads[i], op.pads[spatial + i]
        self.extent = k.inputs[0].region.shape[axis]
        self.count = k.out.region.shape[axis]
        dtype = k.inputs[0].buffer.dtype
        self.dtype = "f32" if dtype in HALVES else dtype
        self.neutral = 0 if combined == "add" else lowest(DTYPES[self.dtype])
        self.in_order = combined == "add" and k.loops.strict
        few = DTYPES[dtype].itemsize == 1 and target.has("avx512bw")
        self.lanes = target.facts.lanes * (4 if few else 1)

    def width(self, extent: int) -> int:
        """Return how many neighbours to compute at once along an axis of this extent."""
        lanes = self.lanes
        while lanes // 2 >= estimate(extent):
            lanes //= 2
        return lanes

    def first(self, window: Coord) -> Coord:
        """Return where a window begins; before 0 that is padding."""
        return window * self.stride - self.before

    def join(self, x: Expr, y: Expr) -> Expr:
        return self.k.b.let(combine(self.k.loops, self.combined, x, y))

    def load(self, at: list[Coord], early: bool, late: bool) -> Expr:
        """Return an element of x, what changes nothing if it lies `early` or `late` of the axis."""
        k, x = self.k.loops, self.k.inputs[0]
        neutral = k.constant(self.neutral, self.dtype)
        inside: Expr | None = None
        place = at[self.axis]
        if early:
            inside = place.compare("ge", 0)
        if late:
            end = place.compare("lt", self.extent)
            inside = end if inside is None else k.m.bit_and(inside, end)
        if inside is None:
            return x.load(k, at)
        return k.when(k.b.let(inside), lambda: x.load(k, at), neutral)

    def store(self, at: list[Coord], total: Expr) -> None:
        """Store what a window was combined to: a sum is divided by how many elements count."""
        if isinstance(self.op, AveragePool):
            total = self.k.loops.m.div(total, self._counted(self.op, self.first(at[self.axis])))
        self.k.sink.store(at, total)

    def _counted(self, op: AveragePool, first: Coord) -> Expr:
        """Return how many elements of a window count."""
        k = self.k.loops
        whole = k.constant(self.taps, self.dtype)
        end = self.extent + (self.after if op.count_pads else 0)
        early = bool(self.before) and not op.count_pads
        late = op.ceil or (bool(self.after) and not op.count_pads)
        if not early and not late:
            return whole

        def counted() -> Expr:
            number = self._taps_before(first, end)
            if early:
                number = k.m.sub(number, self._taps_before(first, 0))
            return k.m.cast(number, self.dtype)

        # Of most vectors all elements count.
        last = first.base + ((first.lanes - 1) * first.step + (self.taps - 1) * self.dilation)
        beyond = coord(last).compare("ge", end)
        if early:
            beyond = k.m.bit_or(beyond, coord(first.base).compare("lt", 0))
        return k.when(k.b.let(beyond), counted, whole)

    def _taps_before(self, first: Coord, end: int) -> Expr:
        """Return how many elements of a window lie before a place."""
        m = self.k.loops.m
        room = (first * -1 + (end + self.dilation - 1)) // self.dilation
        return m.minimum(m.maximum(room.expr(), 0), self.taps)


# ── across vectors ──


def _across(w: _Windows, vectors: int) -> None:
    """Run groups of windows in parallel, with vectors along another axis.

    Of dilated windows those are a group that meet the same elements: they lie `apart`.
    """
    k = w.k
    shape = k.out.region.shape
    common = math.gcd(w.stride, w.dilation)
    apart, step = w.dilation // common, w.stride // common
    group = _Group(w, step, apart)
    lanes = w.width(shape[vectors])
    full, rest = divmod(shape[vectors], lanes)
    outer = [d for i, d in enumerate(shape) if i not in (w.axis, vectors)]
    groups = ceil_div(w.count, group.size * apart)
    with k.loops.parallel([*outer, groups, apart, ceil_div(shape[vectors], lanes)]) as at:
        *lead, number, offset, column = at
        start = k.b.let(column.base * lanes)
        first = coord(k.b.let((number * (group.size * apart) + offset).expr()))

        def run(masked: bool) -> None:
            ramp = Coord(start, 1, lanes)
            with k.loops.vector(lanes, ramp.compare("lt", shape[vectors]) if masked else None):
                group.build(_placed(lead, w.axis, vectors, ramp), first)

        if not is_open(rest) and (not rest or not full):
            run(rest != 0)
            return
        with k.b.when(column.compare("lt", full)):
            run(False)
        with k.b.otherwise():
            run(True)


def _placed(lead: list[Coord], axis: int, vectors: int, ramp: Coord) -> Place:
    """Return a function from a coordinate on the axis of the windows to all coordinates."""

    def place(window: Coord) -> list[Coord]:
        at = list(lead)
        for i, c in sorted([(axis, window), (vectors, ramp)], key=lambda pair: pair[0]):
            at.insert(i, c)
        return at

    return place


class _Group:
    """Windows `step` elements from each other, of which the last begins before the first ends."""

    def __init__(self, w: _Windows, step: int, apart: int) -> None:
        self.w, self.step, self.apart = w, step, apart
        most = ceil_div(w.count, apart)
        registers = w.k.loops.facts.registers
        together = min(TOGETHER, registers // 4, (w.taps - 1) // step + 1, max(estimate(most), 1))
        if w.in_order:
            together = 1
        self.size = ceil_div(estimate(most), ceil_div(estimate(most), together))
        # The last group may reach further than the last window.
        self.ragged = self.size * apart > 1 and not is_number(w.count % (self.size * apart), 0)

    def build(self, place: Place, first: Coord) -> None:
        """Combine what all windows have in common, then what is before it and behind it."""
        w, k = self.w, self.w.k.loops
        last = (self.size - 1) * self.step
        origin = w.first(first)

        def row(number: Coord | int) -> Expr:
            where = origin + coord(number) * w.dilation
            least = number * w.dilation if isinstance(number, int) else last * w.dilation
            return w.load(place(where), least < w.before, self._late())

        total = Totals(k, w.combined, w.neutral, w.dtype, k.current, 1 if w.in_order else 2, True)

        def add(taps: list[Coord], slot: int) -> None:
            total.add(slot, row(taps[0] + last))

        in_turn(k, [w.taps - last], add, len(total.registers), [total])
        joined = total.whole()
        totals = [joined]
        for number in reversed(range(last)):
            joined = w.join(row(number), joined)
            if number % self.step == 0:
                totals.append(joined)
        behind: Expr | None = None
        for i, one in enumerate(reversed(totals)):
            for number in range(w.taps + (i - 1) * self.step, w.taps + i * self.step) if i else ():
                behind = row(number) if behind is None else w.join(behind, row(number))
            whole = one if behind is None else w.join(one, behind)
            self._store(place, first + i * self.apart, whole, i)

    def _store(self, place: Place, window: Coord, whole: Expr, i: int) -> None:
        if not self.ragged or (i == 0 and self.apart == 1):
            self.w.store(place(window), whole)
            return
        with self.w.k.b.when(window.compare("lt", self.w.count)):
            self.w.store(place(window), whole)

    def _late(self) -> bool:
        """Return whether elements may lie behind the last one."""
        return bool(self.w.after or self.w.op.ceil or self.ragged)


# ── along a vector ──


@dataclass(frozen=True)
class _Levels:
    """How windows are combined: level i holds windows of `sizes[i]` elements, from each on.

    A window is combined from `picks`: the number of a level, and how many elements further.
    """

    sizes: tuple[int, ...]
    picks: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, taps: int, combined: str, in_order: bool) -> _Levels:
        sizes = [1]
        while taps > 4 * sizes[-1] and not in_order:
            sizes.append(4 * sizes[-1])
        if combined == "max":
            # Where windows overlap, an element counts twice, which changes nothing.
            top = sizes[-1]
            picks = [(len(sizes) - 1, i) for i in (*range(0, taps - top, top), taps - top)]
            return cls(tuple(sizes), tuple(picks))
        picks, done = [], 0
        for level in reversed(range(len(sizes))):
            while taps - done >= sizes[level]:
                picks.append((level, done))
                done += sizes[level]
        return cls(tuple(sizes), tuple(picks))


def _along(w: _Windows) -> None:
    """Bring parts of rows into scratch, in parallel, and combine neighbours there."""
    k = w.k
    shape = k.out.region.shape
    lanes = w.width(w.count)
    most = max(CHUNK // w.stride // lanes, 1) * lanes
    parts = ceil_div(w.count, most)
    chunk = ceil_div(ceil_div(estimate(w.count), estimate(parts)), lanes) * lanes
    row = _Row(w, chunk, lanes)
    outer = [d for i, d in enumerate(shape) if i != w.axis]
    with k.loops.parallel([*outer, ceil_div(w.count, chunk)]) as (*lead, number):
        start = coord(k.b.let(number.base * chunk))
        with k.loops.vector(lanes):
            row.fill(lambda c: [*lead[: w.axis], c, *lead[w.axis :]], start)
            row.combine()
            row.store(lambda c: [*lead[: w.axis], c, *lead[w.axis :]], start)


class _Row:
    """Part of a row in scratch: elements, and windows of 4, of 16, … from each on."""

    def __init__(self, w: _Windows, chunk: int, lanes: int) -> None:
        self.w, self.chunk, self.lanes = w, chunk, lanes
        self.levels = _Levels.of(w.taps, w.combined, w.in_order)
        self.span = (chunk - 1) * w.stride + (w.taps - 1) * w.dilation + 1
        # What is loaded in vectors reaches past the last element.
        room = ceil_div(self.span + w.stride, lanes) * lanes + lanes
        self.scratch = [w.k.b.array(w.dtype, room) for _ in self.levels.sizes]

    @cached_property
    def _spread(self) -> bool:
        return self.w.stride <= SPREAD

    def fill(self, place: Place, start: Coord) -> None:
        """Copy elements, and what changes nothing where there are none."""
        w, b = self.w, self.w.k.b
        first = b.let(w.first(start).base)
        with b.loop(ceil_div(self.span, self.lanes)) as i:
            at = b.let(i * self.lanes)
            ramp = Coord(b.let(first + at), 1, self.lanes)
            b.store(self.scratch[0], at, w.load(place(ramp), w.before > 0, True))

    def combine(self) -> None:
        """Make the windows of each level from four of the one before."""
        w, b = self.w, self.w.k.b
        for level, size in enumerate(self.levels.sizes[1:]):
            part = size // 4 * w.dilation
            with b.loop(ceil_div(self.span - (size - 1) * w.dilation, self.lanes)) as i:
                at = b.let(i * self.lanes)
                parts = [
                    b.let(Load(self.scratch[level], at + j * part, self.lanes)) for j in range(4)
                ]
                pairs = w.join(parts[0], parts[1]), w.join(parts[2], parts[3])
                b.store(self.scratch[level + 1], at, w.join(*pairs))

    def store(self, place: Place, start: Coord) -> None:
        """Combine and store what becomes of each window."""
        w, k = self.w, self.w.k
        ragged = not is_number(w.count % self.lanes, 0) or not is_number(w.count % self.chunk, 0)
        with k.b.loop(self.chunk // self.lanes) as i:
            at = k.b.let(i * self.lanes)
            total: Expr | None = None
            for level, offset in self.levels.picks:
                part = self._picked(self.scratch[level], at, offset * w.dilation)
                total = part if total is None else w.join(total, part)
            assert total is not None, "a window has elements"
            if self._spread and w.stride > 1:
                order = tuple(range(0, self.lanes * w.stride, w.stride))
                total = k.b.let(Shuffle(total, order))
            ramp = Coord(k.b.let(start.base + at), 1, self.lanes)
            with k.loops.vector(self.lanes, ramp.compare("lt", w.count) if ragged else None):
                w.store(place(ramp), total)

    def _picked(self, buffer: Buffer, at: Expr, offset: int) -> Expr:
        """Return elements `offset` from the first of each window, with those between if spread."""
        b, stride = self.w.k.b, self.w.stride
        if self._spread:
            return b.let(Load(buffer, at * stride + offset, self.lanes * stride))
        ramp = Coord(at, 1, self.lanes) * stride + offset
        return b.let(Load(buffer, ramp.expr(), self.lanes))

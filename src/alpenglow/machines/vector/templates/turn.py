"""Transposes: elementwise instructions some of whose operands are dense along another axis.

Squares of such an operand are loaded along its dense axis and turned over in registers.  Where few
elements are interleaved, as the channels of an image, those of several neighbours are loaded at
once and sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from alpenglow.ir.dims import ceil_div, estimate, is_open
from alpenglow.ir.op import Elementwise
from alpenglow.ir.target import Facts, Target
from alpenglow.ir.types import ALL, DTYPES, HALVES
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Binary, Blend, Const, Expr, Load, Shuffle, lift
from alpenglow.kernel.stmt import Kind
from alpenglow.loops.axes import merge_axes
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.form import Loops, Source, Window
from alpenglow.loops.instruction import is_small
from alpenglow.machines.vector.templates.transpose import transposed
from alpenglow.ops.tensor.copy import Copy
from alpenglow.program.instr import Instr

FEW = 4
"""So many elements that are interleaved are sorted; more are turned over."""

SMALLEST = 4
"""Squares of fewer rows are not worth turning."""

RUN = 16
"""Blocks along a row of the result that are turned one after the other.

Each reads rows of the operand from pages of their own; the blocks below read the same pages.
"""


@dataclass(frozen=True)
class _Plan:
    """Vectors lie along axis `along` of the result, those of `turned` operands along `across`.

    Squares have `size` rows; if `sorts`, all of what lies along `across` is loaded together.
    """

    along: int
    across: int
    turned: tuple[int, ...]
    size: int
    sorts: bool


def build_turned(name: str, instr: Instr, target: Target, strict: bool) -> Builder | None:
    """Return the kernel of an elementwise instruction; None if no operand is to be turned."""
    if len(instr.outs) != 1 or not all(isinstance(op, Elementwise) for op in instr.operators()):
        return None
    (result,) = instr.outs
    reads = [r for r in instr.ins if r is not None]
    alone = len(reads) == len(instr.ins) and all(r.buffer != result.buffer for r in reads)
    if not alone or any(r.type.dtype not in ALL for r in (result, *reads)):
        return None
    b = Builder(name)
    out = Window(b.buffer("y0", _moved(instr, result.type.dtype), True), result)
    ins = [Window(b.buffer(f"x{i}", _moved(instr, r.type.dtype)), r) for i, r in enumerate(reads)]
    merge_axes([out, *ins])
    plan = _plan(out, ins, target)
    if plan is None:
        return None
    k = Loops(b, target.facts, is_small(instr, target.facts), strict)
    _Turn(k, instr, out, ins, plan).build()
    return b


def _moved(instr: Instr, dtype: str) -> str:
    """Return the type as which elements are seen: where they are only moved, bool is a byte."""
    return "u8" if dtype == "bool" and isinstance(instr.op, Copy) else dtype


def _plan(out: Window, ins: list[Window], target: Target) -> _Plan | None:
    shape = out.region.shape
    if len(shape) < 2 or 0 in shape:
        return None
    along = _dense(out)
    if along is None:
        return None
    turned = [i for i, w in enumerate(ins) if not any(
        is_number(w.region.strides[along], step) for step in (0, 1))]  # fmt: skip
    axes = {_dense(ins[i]) for i in turned}
    if len(axes) != 1:
        return None
    (across,) = axes
    if across is None:
        return None
    nbytes = max(DTYPES[ins[i].buffer.dtype].itemsize for i in turned)
    size = (16 if nbytes < 4 else 4 * target.facts.lanes) // nbytes
    few = shape[across]
    if not is_open(few) and few <= FEW:
        packed = all(is_number(ins[i].region.strides[along], few) for i in turned)
        fits = packed and shape[along] >= size
        return _Plan(along, across, tuple(turned), size, True) if fits else None
    for d in (shape[along], few):
        if is_open(d):
            block = _block(ins, turned, size, target.facts)
            # Code without squares serves all extents.  Code with squares is guarded.
            if estimate(d) < block or d < block:
                return None
            continue
        while size > d:
            size //= 2
    if size < SMALLEST:
        return None
    return _Plan(along, across, tuple(turned), size, False)


def _block(ins: list[Window], turned: Sequence[int], size: int, facts: Facts) -> int:
    """Return the rows and columns of a block: at least a line of the cache."""
    nbytes = min(DTYPES[ins[i].buffer.dtype].itemsize for i in turned)
    return max(facts.burst // nbytes, size)


def _dense(w: Window) -> int | None:
    """Return the longest axis along which elements lie side by side."""
    shape = w.region.shape
    dense = [i for i, s in enumerate(w.region.strides) if is_number(s, 1)]
    return max(dense, key=lambda i: estimate(shape[i]), default=None)


class _Turn:
    """The loops over blocks of the result: whole lines of the cache, of operands and of results.

    A block is turned over into scratch and then computed row by row, so that each line is met once:
    those of one column may all fall into one set of the cache.
    """

    def __init__(
        self, k: Loops, instr: Instr, out: Window, ins: list[Window], plan: _Plan
    ) -> None:
        self.k, self.instr, self.out, self.ins, self.plan = k, instr, out, ins, plan
        self.shape = out.region.shape
        self.block = _block(ins, plan.turned, plan.size, k.facts)
        self.scratch = {
            i: k.b.array(ins[i].buffer.dtype, self.block**2)
            for i in (() if plan.sorts else plan.turned)
        }

    def build(self) -> None:
        """Run the blocks in parallel."""
        k, plan = self.k, self.plan
        outer = [d for i, d in enumerate(self.shape) if i not in (plan.along, plan.across)]
        if plan.sorts:
            with k.parallel([*outer, ceil_div(self.shape[plan.along], plan.size)]) as (*lead, n):
                last = self.shape[plan.along] - plan.size
                self._sorted(lead, k.b.let(_least(n.base * plan.size, last)))
            return
        across, along = (_Axis(self.shape[i], self.block) for i in (plan.across, plan.along))
        runs = ceil_div(along.blocks, RUN)
        with k.parallel([*outer, runs, across.blocks]) as (*lead, run, row):
            first = k.b.let(across.start(row.base))
            before = k.b.let(run.base * RUN)
            with k.b.loop(_least(lift(along.blocks) - before, RUN)) as number:
                self._block(lead, first, k.b.let(along.start(before + number)), across, along)

    def _block(
        self, lead: list[Coord], first: Expr, second: Expr, across: _Axis, along: _Axis
    ) -> None:
        """Turn a block over, and compute it row by row."""
        b, plan = self.k.b, self.plan
        with self._squares(across) as i, self._squares(along) as j:
            for x in plan.turned:
                self._turn(x, lead, (first, second), (i, j))
        with b.loop(lift(across.span)) as i, self._squares(along, "unrolled") as j:
            at = i * self.block + j
            values = {x: b.let(Load(self.scratch[x], at, plan.size)) for x in plan.turned}
            row = self._limited(first + i, plan.across, 1)
            self._store(lead, row, self._limited(second + j, plan.along, plan.size), values)

    def _limited(self, at: Expr, axis: int, size: int) -> Expr:
        """Return where elements begin, of which so many fit: for open extents that is proved so."""
        extent = self.shape[axis]
        return self.k.b.let(_least(at, extent - size)) if is_open(extent) else at

    @contextmanager
    def _squares(self, axis: _Axis, kind: Kind = "serial") -> Iterator[Expr]:
        """Open a loop over squares in a block, and yield where each begins."""
        size, span = self.plan.size, axis.span
        with self.k.b.loop(lift(ceil_div(span, size)), "serial" if is_open(span) else kind) as i:
            whole = is_number(span % size, 0)
            yield self.k.b.let(i * size if whole else _least(i * size, span - size))

    def _turn(
        self, x: int, lead: list[Coord], corner: tuple[Expr, Expr], place: tuple[Expr, Expr]
    ) -> None:
        """Turn a square of an operand over into scratch."""
        b, w, size = self.k.b, self.ins[x], self.plan.size
        axes = self.plan.across, self.plan.along
        across, along = (
            coord(self._limited(c + p, axis, size))
            for c, p, axis in zip(corner, place, axes, strict=True)
        )
        origin = b.let(w.address(self._placed(lead, along, across)).base)
        apart = w.region.strides[self.plan.along]
        rows = [b.let(Load(w.buffer, origin + r * apart, size)) for r in range(size)]
        few = size * DTYPES[w.buffer.dtype].itemsize <= 16
        for r, row in enumerate((interleaved if few else transposed)(b, rows)):
            b.store(self.scratch[x], (place[0] + r) * self.block + place[1], row)

    def _sorted(self, lead: list[Coord], along: Expr) -> None:
        """Load all of what is interleaved, and compute each for itself."""
        b, size, few = self.k.b, self.plan.size, self.shape[self.plan.across]
        at = self._placed(lead, coord(along), coord(0))
        whole = {
            x: b.let(Load(w.buffer, w.address(at).base, size * few))
            for x, w in ((x, self.ins[x]) for x in self.plan.turned)
        }
        for r in range(few):
            order = tuple(range(r, size * few, few))
            values = {x: b.let(Shuffle(loaded, order)) for x, loaded in whole.items()}
            self._store(lead, Const(r), along, values)

    def _store(
        self, lead: list[Coord], across: Expr, along: Expr, values: dict[int, Expr]
    ) -> None:
        """Store a vector of the result, given those of the operands that were turned."""
        with self.k.vector(self.plan.size):
            at = self._placed(lead, Coord(along, 1, self.plan.size), coord(across))
            self.out.store(self.k, at, self._value(at, values))

    def _placed(self, lead: list[Coord], along: Coord, across: Coord) -> list[Coord]:
        at = list(lead)
        pairs = [(self.plan.along, along), (self.plan.across, across)]
        for axis, c in sorted(pairs, key=lambda pair: pair[0]):
            at.insert(axis, c)
        return at

    def _value(self, at: list[Coord], rows: dict[int, Expr]) -> Expr:
        """Return a vector of the result, given those of the operands that were turned."""
        k, instr = self.k, self.instr
        sources = [
            Source(w.region.type, self._loader(w, rows.get(i))) for i, w in enumerate(self.ins)
        ]
        if instr.body is None:
            assert isinstance(instr.op, Elementwise)
            return k.applied(instr.op, [s(at) for s in sources], self.out.buffer.dtype)
        leaves = dict(zip(instr.body.inputs.values(), sources, strict=True))
        (result,) = instr.body.outputs.values()
        return k.pulled(result, at, leaves)

    def _loader(self, w: Window, row: Expr | None) -> Callable[[list[Coord]], Expr]:
        k = self.k
        if row is None:
            return lambda at: w.load(k, at)
        value = k.widened(row) if row.dtype in HALVES else row
        return lambda at: value


@dataclass(frozen=True)
class _Axis:
    """An axis in blocks: the last one begins where it still fits."""

    extent: int
    block: int

    @property
    def span(self) -> int:
        """Return how much of the axis a block holds; of an open extent it is guarded."""
        return min(self.extent, self.block)

    @property
    def blocks(self) -> int:
        return ceil_div(self.extent, self.block)

    def start(self, number: Expr) -> Expr:
        """Return where a block begins."""
        at = number * self.block
        return at if is_number(self.extent % self.block, 0) else _least(at, self.extent - self.span)


def _least(at: Expr, last: int) -> Expr:
    return Const(0) if is_number(last, 0) else Binary("min", at, lift(last))


def interleaved(b: Builder, rows: list[Expr]) -> list[Expr]:
    """Return the columns of a square: rows are interleaved with those half a square further.

    Each time the bits of an element's row and column, taken together, move up by one.  Machines
    interleave vectors of 16 bytes in one instruction.
    """
    size = len(rows)
    half = size // 2
    orders = [
        tuple(i // 2 + first + (i % 2) * size for i in range(size)) for first in (0, half)
    ]
    for _ in range(size.bit_length() - 1):
        rows = [
            b.let(Blend(rows[i], rows[i + half], order)) for i in range(half) for order in orders
        ]
    return rows

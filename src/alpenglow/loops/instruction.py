"""From an instruction to its kernel: the loops over its result, and what templates see of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import estimate, is_open
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.target import Facts
from alpenglow.ir.types import FLOATS, INTS
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Blend, Expr, Splat
from alpenglow.loops.axes import Merged, behind, merge_axes, merge_roles
from alpenglow.loops.blocks import Along, in_blocks, rows_in_blocks, vectors_along
from alpenglow.loops.control.scan import build_scan
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.dots import Dot, multiplied_bytes
from alpenglow.loops.form import PULLS, PUSHES, Loops, Sink, Source, Window
from alpenglow.ops.control.loop import Scan as LoopOfRows
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.tensor.copy import Fill
from alpenglow.ops.tensor.gather import Gather
from alpenglow.program.instr import Anchor, Instr, Region, anchor_node, carried_operand


class Frame:
    """An instruction as a template of a machine sees it.

    `inputs` holds the operands of its anchor, then those of what follows it; `out` is the
    result, written through `sink`, which computes what follows.
    """

    def __init__(self, anchor: Anchor, instr: Instr, facts: Facts, strict: bool = False) -> None:
        self.b = Builder(anchor.op.name)
        self.loops = Loops(self.b, facts, is_small(instr, facts), strict)
        (result,) = instr.outs
        self.out = Window(self.b.buffer("y0", result.type.dtype, True), result)
        windows = [
            None if r is None else Window(self.b.buffer(f"x{i}", r.type.dtype), r)
            for i, r in enumerate(instr.ins)
        ]
        self.inputs = [w for w in windows if w is not None]
        self.op = anchor.op
        self.body = instr.body
        self._leaves: dict[Value, Window] = {}
        self._own: dict[Value, Window | None] = {}
        if instr.body is not None:
            node = anchor.node
            assert node is not None, "the anchor of a fused instruction is a node of its body"
            self._anchor = node.output
            self._own = own = dict(zip(instr.body.inputs.values(), windows, strict=True))
            self.inputs = [w for v in node.inputs if v is not None and (w := own.get(v))]
            # What follows the anchor sees its operands through windows of their own.
            self._leaves = {
                v: Window(w.buffer, w.region)
                for v, w in own.items()
                if w is not None and (v not in node.inputs or set(v.users) - {node})
            }
            self.inputs += self._leaves.values()
        self.sink = Sink(self.loops, self.out, self._finish)

    def window(self, v: Value) -> Window:
        """Return the operand that an input of the body stands for."""
        window = self._own[v]
        assert window is not None, f"{v} is an operand that is there"
        return window

    def first_addend(self, suits: Callable[[Window], bool]) -> Window | None:
        """Return what is added to sums of i32 first, if it `suits`: the sums may begin with it.

        What follows the sums is then only what follows that addition.
        """
        if self.body is None or self._anchor.type.dtype != "i32":
            return None
        match list(self._anchor.users):
            case [Node(Add(), [x, y]) as add] if self.body.users(self._anchor) == 1:
                other = y if x is self._anchor else x
                addend = self._leaves.get(other) if other is not None else None
                if addend is not None and suits(addend):
                    self._anchor = add.output
                    return addend
        return None

    def requantized(self) -> Requantize | None:
        """Return the requantization that the instruction ends with, if it does."""
        if self.body is None:
            return None
        (result,) = self.body.outputs.values()
        assert result.producer is not None, "a part computes the result"
        op = result.producer.op
        return op if isinstance(op, Requantize) else None

    def before_rounding(self, value: Expr, at: list[Coord]) -> tuple[Expr, Expr]:
        """Return the rounded operand and the zero point of the last requantization, given a sum."""
        assert self.body is not None, "a requantization follows the anchor"
        (result,) = self.body.outputs.values()
        assert result.producer is not None, "a part computes the result"
        x, multiplier, zero = (self._follow(v, value, at) for v in result.producer.inputs if v)
        m = self.loops.m
        return m.mul(m.cast(x, "f32"), multiplier), m.cast(zero, "i32")

    def store(
        self, at: list[Coord], value: Expr, known: Mapping[Value, Expr] = MappingProxyType({})
    ) -> None:
        """Store what follows `value` at a place; what is `known` of it is not computed."""
        self.out.store(self.loops, at, self._finish(value, at, known))

    def _finish(
        self, value: Expr, at: list[Coord], known: Mapping[Value, Expr] = MappingProxyType({})
    ) -> Expr:
        if self.body is None:
            return value
        (result,) = self.body.outputs.values()
        return self.elsewhere(result, at, self._anchor, value, known)

    def _follow(self, result: Value, value: Expr, at: list[Coord]) -> Expr:
        """Return a value of the body at `at`, where the anchor is `value`."""
        return self.elsewhere(result, at, self._anchor, value)

    def elsewhere(
        self, result: Value, at: list[Coord], start: Value | None = None,
        value: Expr | None = None, known: Mapping[Value, Expr] = MappingProxyType({}),
    ) -> Expr:  # fmt: skip
        """Return a value of the body at `at`, where `start`, if it is needed, is `value`.

        What is `known` of operands there is not read.
        """
        leaves = {v: Source(w.region.type, _loader(self.loops, w)) for v, w in self._leaves.items()}
        if start is not None and value is not None:
            rounded = self.loops.rounded(value, start.type.dtype)
            # Templates may see the result, and what is at its place, in another shape.
            seen = self.out.region.type if start is self._anchor else start.type
            leaves[start] = Source(seen, lambda _: rounded)
        for v, element in known.items():
            leaves[v] = Source(v.type, _always(element))
        return self.loops.pulled(result, at, leaves)


def build(
    name: str, instr: Instr, facts: Facts, strict: bool = False, dot: Dot = multiplied_bytes
) -> Builder:
    """Return the kernel of an instruction, as loops; `strict` rounds halves after each operator.

    `facts` are those of the machine, `dot` is how it multiplies bytes.

    Raises UnsupportedError if an operator in it has no form.
    """
    b = Builder(name)
    outs = [Window(b.buffer(f"y{i}", r.type.dtype, True), r) for i, r in enumerate(instr.outs)]
    ins = [None if r is None else Window(b.buffer(f"x{i}", r.type.dtype), r)
           for i, r in enumerate(instr.ins)]  # fmt: skip
    k = Loops(b, facts, is_small(instr, facts), strict, dot)
    k.moves = all(isinstance(op, Elementwise | Gather) for op in instr.operators())
    carried = carried_operand(instr)
    k.in_place = carried is not None and instr.ins[carried] == instr.outs[0]
    merged = None
    if _elementwise(instr) or isinstance(instr.op, Fill):
        merge_axes([*outs, *(w for w in ins if w is not None)])
    else:
        merged = merge_roles(instr, ins, outs)
    sources = [None if w is None else Source(w.region.type, _loader(k, w)) for w in ins]
    if instr.body is None:
        _single(k, instr.op if merged is None else merged.op, sources, outs)
    else:
        _fused(k, instr.body, merged, sources, outs)
    return b


def _elementwise(instr: Instr) -> bool:
    if instr.body is not None:
        return anchor_node(instr.body) is None
    return isinstance(instr.op, Elementwise)


def is_small(instr: Instr, facts: Facts) -> bool:
    """Whether an instruction is not worth waking other threads for."""
    sizes = [estimate(r.type.size) for r in (*instr.outs, *instr.reads())]
    return max(sizes, default=0) < facts.serial


def _always(element: Expr) -> Callable[[list[Coord]], Expr]:
    return lambda at: element


def _loader(k: Loops, w: Window) -> Callable[[list[Coord]], Expr]:
    return lambda at: w.load(k, at)


def _single(k: Loops, op: Op, sources: list[Source | None], outs: list[Window]) -> None:
    if type(op) in PUSHES:
        PUSHES[type(op)](k, op, sources, [Sink(k, w, lambda v, at: v) for w in outs])
        return
    if isinstance(op, Elementwise):
        dtype = outs[0].region.type.dtype
        drive(k, outs[0], lambda at: k.applied(op, [s(at) for s in sources if s], dtype))
        return
    if type(op) not in PULLS:
        raise UnsupportedError(f"{op.name}: a compiled loop form is not supported")
    drive(k, outs[0], lambda at: PULLS[type(op)](k, op, list(sources), at))


def _fused(
    k: Loops, body: Graph, merged: Merged | None, sources: list[Source | None], outs: list[Window]
) -> None:
    leaves = {v: s for v, s in zip(body.inputs.values(), sources, strict=True) if s is not None}
    results = list(body.outputs.values())
    anchor = anchor_node(body)
    if anchor is None:
        drive_all(k, outs, lambda at: [k.pulled(v, at, leaves) for v in results])
        return
    if isinstance(anchor.op, LoopOfRows):
        build_scan(k, anchor, sources, [Sink(k, w, lambda v, at: v) for w in outs])
        return
    assert len(outs) == 1, "what is fused to another operator has one result"
    types = () if merged is None else zip(anchor.inputs, merged.types, strict=True)
    k.seen = {
        x: x.type.with_shape(t.shape)
        for v, t in types if v is not None and t is not None
        for x in (v, *behind(v, anchor.output))
    }  # fmt: skip
    if type(anchor.op) in PULLS:
        assert merged is None or merged.op == anchor.op, f"{anchor.op} has other axes"
        drive(k, outs[0], lambda at: k.pulled(results[0], at, leaves))
        return
    if type(anchor.op) not in PUSHES:
        raise UnsupportedError(f"{anchor.op.name}: a compiled loop form is not supported")

    made = anchor.output.type.with_shape(outs[0].region.shape)

    def finish(value: Expr, at: list[Coord]) -> Expr:
        rounded = k.rounded(value, made.dtype)
        source = Source(made, lambda _: rounded)
        return k.pulled(results[0], at, {**leaves, anchor.output: source})

    op = anchor.op if merged is None else merged.op
    operands = [k.source(v, leaves) for v in anchor.inputs]
    PUSHES[type(op)](k, op, operands, [Sink(k, outs[0], finish)])


def drive(k: Loops, out: Window, element: Callable[[list[Coord]], Expr]) -> None:
    """Loop over a result, several neighbours at a time along the axis that stores densely."""
    drive_all(k, [out], lambda at: [element(at)])


def drive_all(
    k: Loops, outs: Sequence[Window], elements: Callable[[list[Coord]], list[Expr]]
) -> None:
    """Loop over results of one shape.  All at a place are computed before any is stored there."""
    out = outs[0]
    shape = out.region.shape

    def store(at: list[Coord]) -> None:
        values = elements(at)
        if len(values) > 1:
            values = [k.b.let(value) for value in values]
        for each, value in zip(outs, values, strict=True):
            each.store(k, at, value)

    if any(is_number(d, 0) for d in shape):
        return
    if k.lanes > 3 and k.moves and len(outs) == 1 and _interleaves(out.region):
        _interleave(k, out, lambda at: elements(at)[0])
        return
    axis = None if k.facts.group else vector_axis(out.region)  # a thread has one element
    if axis is None:
        with k.parallel(shape) as at:
            store(at)
        return
    along = vectors_along(k, outs, axis, elements)
    outer = [d for i, d in enumerate(shape) if i != axis]

    def block(at: list[Coord], start: Expr, lanes: int, masked: bool) -> None:
        ramp = Coord(start, 1, lanes)
        where = [*at[:axis], ramp, *at[axis:]]
        with k.vector(lanes, ramp.compare("lt", along.extent) if masked else None):
            store(where)

    in_blocks(k, outer, along, block)


def vector_axis(r: Region) -> int | None:
    """Return the axis to compute in vectors: the longest that is stored densely, if it pays.

    Where few elements lie together, as where images are interleaved, it is a long one whose
    elements are closest: what lies between them is in the same lines of the cache.
    """
    axes = [i for i, (d, s) in enumerate(zip(r.shape, r.strides, strict=True))
            if is_number(s, 1) and estimate(d) > 3]  # fmt: skip
    if axes:
        return max(axes, key=lambda i: estimate(r.shape[i]))
    long = [i for i, d in enumerate(r.shape) if estimate(d) >= 16]
    return min(long, key=lambda i: abs(estimate(r.strides[i])), default=None)


def _interleaves(r: Region) -> bool:
    """Return True if two to four neighbours lie densely along an axis that is not short.

    The number of neighbours is a number: a guard that fixed a dynamic one would cost a compilation.
    """
    if len(r.shape) < 2 or r.type.dtype not in FLOATS | INTS:
        return False
    (extent, few), (stride, step) = r.shape[-2:], r.strides[-2:]
    if is_open(few) or few not in (2, 3, 4):
        return False
    dense = is_number(step, 1) and is_number(stride, few)
    return dense and estimate(extent) > 3


def _interleave(k: Loops, out: Window, element: Callable[[list[Coord]], Expr]) -> None:
    """Loop over a result whose last axis is short: its vectors are shuffled into dense ones."""
    *outer, extent, few = out.region.shape
    dense = Window(out.buffer, out.region)
    dense.reshape([*outer, extent * few], [*out.region.strides[:-2], 1])
    lanes = k.lanes
    while lanes > estimate(extent):
        lanes //= 2

    def block(at: list[Coord], start: Expr, lanes: int, masked: bool) -> None:
        ramp = Coord(start, 1, lanes)
        with k.vector(lanes, ramp.compare("lt", extent) if masked else None):
            rows = [_across(element([*at, ramp, coord(i)]), lanes) for i in range(few)]
            for i, row in enumerate(side_by_side(k.b, rows)):
                where = Coord(k.b.let(start * few + i * lanes), 1, lanes)
                with k.vector(lanes, where.compare("lt", extent * few) if masked else None):
                    dense.store(k, [*at, where], row)

    rows_in_blocks(k, outer, Along(extent, lanes), block)


def _across(value: Expr, lanes: int) -> Expr:
    """Return a value as a vector."""
    return value if value.lanes == lanes else Splat(value, lanes)


def side_by_side(b: Builder, rows: list[Expr]) -> list[Expr]:
    """Return vectors in which the first elements of all rows come first, then the second ones."""
    if len(rows) == 1:
        return rows
    if len(rows) == 3:
        return _threes(b, rows)
    # Even rows and odd rows, each side by side, are side by side in pairs.
    halves = [side_by_side(b, rows[i::2]) for i in range(2)]
    lanes = rows[0].lanes
    orders = [tuple(j + side * lanes for j in range(h, h + lanes // 2) for side in range(2))
              for h in (0, lanes // 2)]  # fmt: skip
    return [b.let(Blend(x, y, order)) for x, y in zip(*halves, strict=True) for order in orders]


def _threes(b: Builder, rows: list[Expr]) -> list[Expr]:
    """Return three vectors in which the first elements of three rows come first, and so on."""
    lanes = rows[0].lanes
    vectors = []
    for first in range(0, 3 * lanes, lanes):
        places = [divmod(first + i, 3) for i in range(lanes)]
        pair = tuple(column + lanes if row == 1 else column for column, row in places)
        third = tuple(column + lanes if row == 2 else i for i, (column, row) in enumerate(places))
        vectors.append(b.let(Blend(b.let(Blend(rows[0], rows[1], pair)), rows[2], third)))
    return vectors

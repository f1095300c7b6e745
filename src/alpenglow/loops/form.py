"""Loop forms: how an instruction becomes loops over its result, for every operator, on any target.

This is the form that stands behind the tuned templates.  An operator has one of two forms:

**Pull**: the element of the (single) result at given coordinates, as an expression:

    @pull(Gather)
    def gather(k: Loops, op: Gather, ins: list[Source | None], at: At) -> Expr: …

`ins[i](coords)` is the element of operand i at the given coordinates, one `Coord` an axis (ints
and scalar i64 expressions are accepted); `ins[i].type` is its type.  The driver loops over the
result and asks for several neighbours at once: along one axis the coordinate then is a ramp, and
the element is a vector.  Coordinate arithmetic (`coord.Coord`: + - * // %) keeps that apart from
you.  A pull may open loops and use registers (`k.b`, a kernel Builder; `k.m`, the math
vocabulary): that is how a reduction is written.

**Push**: the operator runs its own loops and stores its results:

    @push(Softmax)
    def softmax(k: Loops, op: Softmax, ins: list[Source | None], outs: list[Sink]) -> None:
        for at in k.parallel(rows): …          # at most one `with k.parallel(extents) as coords`
        outs[0].store(coords, value)

A push form is for operators with several results or several passes.  `outs[i].load(coords)` reads
back what was stored.  Parallel iterations must not depend on each other; a form without
`k.parallel` runs on one thread.

Elements of f16 and bf16 are f32 here: loads and stores convert.  bool is bool.  Types of a byte
or less are moved as they are; `k.m.cast` converts them.  Loads outside a
tensor are the form's mistake, except that lanes masked off by the driver are never read: a form
that computes addresses from data clamps them itself.  `k.when(mask, element)` guards a load.

Elementwise operators need no form; a fused instruction is pulled part by part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.dims import Dim, Sym, is_open, known
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Elementwise, Op
from alpenglow.ir.target import Facts
from alpenglow.ir.types import COMPLEX, FLOATS, HALVES, NARROW_FLOATS, TensorType
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Const,
    Convert,
    Expr,
    Load,
    Register,
    Select,
    Splat,
    lift,
)
from alpenglow.kernel.math import KernelMath
from alpenglow.loops.coord import Coord, coord, is_number
from alpenglow.loops.dots import Dot, multiplied_bytes
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.program.instr import Region

Pull = Callable[["Loops", Any, list[Any], list[Coord]], Expr]
Push = Callable[["Loops", Any, list[Any], list[Any]], None]

PULLS: dict[type[Op], Pull] = {}
PUSHES: dict[type[Op], Push] = {}
UNPROVED: dict[type[Op], str] = {}
"""Operators whose addresses cannot be proved to lie within bounds, and why they do."""


def pull(*ops: type[Op], unproved: str = "") -> Callable[[Pull], Pull]:
    """Register the decorated function as the pull form of `ops`.

    `unproved` says why its addresses lie within bounds, where that cannot be proved.
    """

    def add(form: Pull) -> Pull:
        PULLS.update(dict.fromkeys(ops, form))
        UNPROVED.update(dict.fromkeys(ops if unproved else (), unproved))
        return form

    return add


def push(*ops: type[Op], unproved: str = "") -> Callable[[Push], Push]:
    """Register the decorated function as the push form of `ops`; `unproved` as for `pull`."""

    def add(form: Push) -> Push:
        PUSHES.update(dict.fromkeys(ops, form))
        UNPROVED.update(dict.fromkeys(ops if unproved else (), unproved))
        return form

    return add


def has_form(op: Op) -> bool:
    """Whether the operator can be compiled to loops."""
    return isinstance(op, Elementwise | Scan) or type(op) in PULLS or type(op) in PUSHES


class Source:
    """An operand: `source(coords)` is its element there."""

    def __init__(self, type_: TensorType, element: Callable[[list[Coord]], Expr]) -> None:
        self.type = type_
        self._element = element

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.extents

    def __call__(self, at: Sequence[Coord | Expr | int]) -> Expr:
        assert len(at) == self.type.rank, f"{len(at)} coordinates for {self.type}"
        # The list itself is passed on where possible: its identity marks "the same place".
        exact = at if isinstance(at, list) and all(isinstance(c, Coord) for c in at) else None
        return self._element(exact if exact is not None else [coord(c) for c in at])


class Sink:
    """A result: `store(coords, value)` writes it, through the epilogue of a fused instruction."""

    def __init__(
        self, k: Loops, window: Window, finish: Callable[[Expr, list[Coord]], Expr]
    ) -> None:
        self._k = k
        self._window = window
        self._finish = finish

    @property
    def shape(self) -> tuple[int, ...]:
        return self._window.region.shape

    def store(self, at: Sequence[Coord | Expr | int], value: Expr) -> None:
        where = [coord(c) for c in at]
        self._window.store(self._k, where, self._finish(value, where))

    def load(self, at: Sequence[Coord | Expr | int]) -> Expr:
        """Read back what was stored; not in a form that is fused with what follows it."""
        return self._window.load(self._k, [coord(c) for c in at])


class Window:
    """A region as the kernel sees it: a buffer and strides."""

    def __init__(self, buffer: Buffer, region: Region) -> None:
        self.buffer = buffer
        self.region = region

    def reshape(self, shape: Sequence[int], strides: Sequence[int]) -> None:
        """See the same elements in another shape."""
        t = self.region.type.with_shape(shape)
        self.region = Region(self.region.buffer, t, self.region.offset, tuple(strides))

    def address(self, at: Sequence[Coord]) -> Coord:
        total = coord(0)
        for c, stride, extent in zip(at, self.region.strides, self.region.shape, strict=True):
            if not is_number(extent, 1) and not is_number(stride, 0):
                total = total + c * stride
        return total

    def load(self, k: Loops, at: Sequence[Coord]) -> Expr:
        a = self.address(at)
        value = k.b.let(element(self.buffer, a, k.mask_for(a.lanes)))
        return k.widened(value) if self.buffer.dtype in HALVES else value

    def store(self, k: Loops, at: Sequence[Coord], value: Expr) -> None:
        a = self.address(at)
        lanes = max([c.lanes for c in at], default=1)
        if self.buffer.dtype != value.dtype:
            assert self.buffer.dtype in HALVES and value.dtype == "f32", (
                f"{value.dtype} stored as {self.buffer.dtype}"
            )
            value = k.narrowed(value, self.buffer.dtype)
        if value.lanes != lanes:
            value = Splat(value, lanes)
        plain = a.vector is None and (is_number(a.step, 1) or lanes == 1)
        k.b.store(self.buffer, a.base if plain else a.expr(), value, k.mask_for(lanes))


def element(buffer: Buffer, at: Coord, mask: Expr | None = None) -> Expr:
    """Return what a buffer holds at a coordinate: one element if all lanes stand at one place."""
    if at.vector is None and is_number(at.step, 0):
        return Load(buffer, at.base)
    if at.lanes == 1:
        return Load(buffer, at.expr())
    plain = at.vector is None and is_number(at.step, 1)
    return Load(buffer, at.base if plain else at.expr(), at.lanes, mask)


def in_lanes(buffer: Buffer, at: Coord, lanes: int, mask: Expr | None = None) -> Expr:
    """Return what a buffer holds at a coordinate as a vector, whatever its step."""
    value = element(buffer, at, mask)
    return value if value.lanes == lanes else Splat(value, lanes)


class Loops:
    """The kernel being built: the builder `b`, the vocabulary `m`, and the lanes of a vector.

    `seen` holds the types of operands whose axes were merged.
    """

    def __init__(
        self, b: Builder, facts: Facts, serial: bool = False, strict: bool = False,
        dot: Dot = multiplied_bytes,
    ) -> None:  # fmt: skip
        self.b = b
        self.dot = dot
        self.strict = strict
        self.m = KernelMath(b, facts.lookup)
        self.facts = facts
        self.lanes = facts.lanes
        self.serial = serial
        self.seen: dict[Value, TensorType] = {}
        self._parts: dict[Expr, tuple[Expr, ...]] = {}
        self._memo: dict[tuple[int, int], tuple[Expr, object, object]] = {}
        self._halves: dict[int, tuple[Expr, Expr]] = {}

    @contextmanager
    def vector(self, lanes: int, mask: Expr | None = None) -> Iterator[None]:
        """Build vectors of `lanes` lanes in a block; only lanes where `mask` holds are accessed."""
        before = self.current, self.mask
        self.current, self.mask = lanes, None if mask is None else self.b.let(mask)
        try:
            yield
        finally:
            self.current, self.mask = before

    def mask_for(self, lanes: int) -> Expr | None:
        """Return the mask that holds for a vector of this width."""
        return self.mask if self.mask is not None and self.mask.lanes == lanes else None

    @contextmanager
    def parallel(self, extents: Sequence[int], shared: int = 0) -> Iterator[list[Coord]]:
        """Open a loop over all combinations of indices below `extents`, in parallel.

        The last index is the fastest in any thread.  Threads share the loop along its axes from
        `shared` on, and each runs through all of those before.
        """
        total, strips = math.prod(extents), math.prod(extents[:shared])
        if self.serial or is_open(strips) or strips == 1:
            with self.b.loop(total, "serial" if self.serial else "parallel") as i:
                yield self.split(i, extents)
            return
        with self.b.loop(total, "parallel", strips) as i:
            at = self.split(i, [*extents[shared:], *extents[:shared]])
            yield [*at[len(extents) - shared :], *at[: len(extents) - shared]]

    @contextmanager
    def loop(self, extent: int) -> Iterator[Coord]:
        """Open a serial loop."""
        with self.b.loop(extent) as i:
            yield coord(i)

    @contextmanager
    def loops(self, extents: Sequence[int]) -> Iterator[list[Coord]]:
        """Open nested serial loops."""
        if not extents:
            yield []
            return
        with self.loop(extents[0]) as first, self.loops(extents[1:]) as rest:
            yield [first, *rest]

    def split(self, i: Expr, extents: Sequence[int]) -> list[Coord]:
        """Return the indices that a running number stands for, the last one fastest."""
        at: list[Coord] = []
        for axis in range(len(extents)):
            inner = math.prod(extents[axis + 1 :])
            part = i if is_number(inner, 1) else i // inner
            value = part % extents[axis] if axis else part
            at.append(coord(0 if is_number(extents[axis], 1) else self.b.let(value)))
        return at

    def select(self, condition: Expr, x: Expr, y: Expr) -> Expr:
        """Return x where the condition holds, else y; scalars are widened to the vector."""
        lanes = max(condition.lanes, x.lanes, y.lanes)
        wide = [e if e.lanes == lanes else Splat(e, lanes) for e in (condition, x, y)]
        return self.b.let(Select(*wide))

    def limited(self, index: Expr, extent: Dim) -> Coord:
        """Return an index brought into the range of an axis, the first of one without elements."""
        at = self.m.maximum(self.m.cast(index, "i64"), 0)
        return coord(self.m.minimum(at, lift(extent - 1)))

    def inside(self, index: Expr, extent: Dim) -> Expr:
        """Return a scalar index that lies on an axis, so that a proof of addresses sees it.

        That is one operation where `limited` takes two.
        """
        if not known(extent) or extent == 0:
            return self.limited(index, extent).expr()
        return self.m.cast(self.m.minimum(self.m.cast(index, "u64"), extent - 1), "i64")

    def both(self, x: Expr, y: Expr) -> Expr:
        """Return the condition that two conditions hold."""
        condition = self.m.bit_and(x, y)
        self._parts[condition] = (*self._parts.get(x, (x,)), *self._parts.get(y, (y,)))
        return condition

    def when(self, condition: Expr, element: Callable[[], Expr], otherwise: Expr) -> Expr:
        """Return `element()` where the condition holds, else `otherwise`.

        A scalar condition is a branch; a condition that differs from lane to lane masks the
        vector loads of the element.  What is the same in all lanes of one that was put together by
        `both` is a branch, too: no mask holds back the load of one element for all lanes.
        """
        parts = self._parts.get(condition, ())
        if condition.lanes > 1 and (alike := [c for c in parts if c.lanes == 1]):
            mask = reduce(self.both, [c for c in parts if c.lanes > 1])
            branch = reduce(self.both, alike)
            return self.when(branch, lambda: self.when(mask, element, otherwise), otherwise)
        if condition.lanes == 1:
            result = self.b.var(self._wide(otherwise, self.current))
            with self.b.when(condition):
                self.b.set(result, self._wide(element(), self.current))
            return result
        mask = self.b.let(condition if self.mask is None else Binary("and", condition, self.mask))
        with self.vector(self.current, mask):
            value = element()
        return self.select(mask, value, otherwise)

    def accumulator(self, value: float, dtype: str) -> Register:
        """Return a register of the present width that holds `value`."""
        return self.b.var(self._wide(self.constant(value, dtype), self.current))

    def set(self, register: Register, value: Expr) -> None:
        """Assign a register, widening a scalar."""
        self.b.set(register, self._wide(value, register.lanes))

    def _wide(self, x: Expr, lanes: int) -> Expr:
        return x if x.lanes == lanes else Splat(x, lanes)

    moves = False
    """Whether elements are moved or computed from each other alone: several at once are cheap."""

    in_place = False
    """Whether the first result lies where the operand does that it is made in (`Op.carried`): what
    it leaves as it is, is there."""

    current = 1
    """Lanes of the vector that the driver is asking for, set by `vector`."""

    mask: Expr | None = None
    """The lanes that are accessed, set by `vector`; None if all are."""

    # ── pulling graphs ──

    def pulled(self, v: Value, at: list[Coord], leaves: dict[Value, Source]) -> Expr:
        """Return the element of `v` at `at`, computed from the leaves.

        What is computed first stands on a path, not on Python's stack, which is shorter than some
        regions are deep.
        """
        path = [(v, self._operands(v, leaves))]
        while path:
            value, ahead = path[-1]
            missing = next((x for x in ahead if self._known(x, at) is None), None)
            if missing is not None:
                path.append((missing, self._operands(missing, leaves)))
                continue
            path.pop()
            if self._known(value, at) is None:
                expr = self._element(value, at, leaves)
                # `at` is kept alive with its entry, so that its id stays its own.
                self._memo[id(value), id(at)] = (expr, self.b._scopes[-1], at)
        return self._computed(v, at)

    def _operands(self, v: Value, leaves: dict[Value, Source]) -> Iterator[Value]:
        """Return what is computed before `v`; other than elementwise operators pull themselves."""
        node = v.producer
        if v in leaves or node is None or not isinstance(node.op, Elementwise | Broadcast):
            return iter(())
        return (x for x in node.inputs if x is not None)

    def _known(self, v: Value, at: list[Coord]) -> Expr | None:
        """Return the element of `v` at `at` if it is constant or has been computed here."""
        if v.array is not None:
            assert v.array.size == 1 or v.type.size == 1, "a constant of a region is an operand"
            return self.constant(v.array.reshape(-1)[0].item(), v.type.dtype)
        value, scope, _ = self._memo.get((id(v), id(at)), (None, None, None))
        return value if any(scope is s for s in self.b._scopes) else None

    def _computed(self, v: Value, at: list[Coord]) -> Expr:
        known = self._known(v, at)
        assert known is not None, f"{v} is not computed yet"
        return known

    def _element(self, v: Value, at: list[Coord], leaves: dict[Value, Source]) -> Expr:
        """Return an element whose operands, if its operator is elementwise, are known."""
        if v in leaves:
            return leaves[v](at)
        node = v.producer
        assert node is not None, f"{v} is no leaf"
        if isinstance(node.op, Elementwise | Broadcast):
            xs = [self._computed(x, at) for x in node.inputs if x is not None]
            if isinstance(node.op, Broadcast):  # of a single constant: the same everywhere
                return xs[0]
            return self.applied(node.op, xs, node.output.type.dtype)
        form = PULLS[type(node.op)]
        value = form(self, node.op, [self.source(v, leaves) for v in node.inputs], at)
        return self.rounded(value, node.output.type.dtype)

    def source(self, v: Value | None, leaves: dict[Value, Source]) -> Source | None:
        """Return a value of a region as an operand, of the type of which it is `seen`."""
        if v is None:
            return None
        return Source(self.seen.get(v, v.type), lambda at: self.pulled(v, at, leaves))

    def applied(self, op: Elementwise, xs: Sequence[Expr], dtype: str) -> Expr:
        """Apply the formula of an elementwise operator."""
        value = op.scalar(self.m, *xs)
        wanted = "f32" if dtype in HALVES else dtype
        if not isinstance(value, Expr):
            return self.constant(value, dtype)
        asked = isinstance(op, Cast) and not op.loose
        return self.rounded(self.b.let(self.m.cast(value, wanted)), dtype, asked)

    def rounded(self, value: Expr, dtype: str, asked: bool = False) -> Expr:
        """Return what a result of type `dtype` is for the operators that follow in a kernel.

        Halves are f32 in registers; strictly, each operator's result is rounded, and always where
        that is `asked` for.
        """
        if not (self.strict or asked) or dtype not in HALVES or value.dtype != "f32":
            return value
        return self.widened(self.b.let(Convert(value, dtype)))

    def widened(self, narrow: Expr) -> Expr:
        """Return a half as the f32 that operators compute with; `narrowed` gives its very bits."""
        wide = self.b.let(Convert(narrow, "f32"))
        self._halves[id(wide)] = (wide, narrow)
        return wide

    def narrowed(self, value: Expr, dtype: str) -> Expr:
        """Return an f32 as a half: what it was made of, if it was rounded before."""
        _, narrow = self._halves.get(id(value), (value, None))
        if narrow is not None and narrow.dtype == dtype:
            return narrow
        return Convert(value, dtype)

    def extent(self, value: Dim, dtype: str) -> Expr:
        """Return an extent as a scalar of the given element type (f32 for halves)."""
        kind = "f32" if dtype in HALVES else dtype
        if isinstance(value, Sym):
            return self.b.let(Convert(lift(value), kind))
        return self.constant(value, dtype)

    def constant(self, value: float, dtype: str) -> Const:
        """Return a scalar of the given element type (f32 for halves)."""
        kind = "f32" if dtype in HALVES else dtype
        if kind in FLOATS | NARROW_FLOATS:
            return Const(float(value), kind)
        if kind in COMPLEX and value != 0:
            raise UnsupportedError(
                f"constant {value} of {kind} is not supported in kernels, only 0"
            )
        return Const(bool(value) if kind == "bool" else int(value.real), kind)

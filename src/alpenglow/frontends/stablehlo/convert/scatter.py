"""Converters that write to computed places: windows that are not all in range are left out.

So has it XLA, and JAX says it of its modes; StableHLO's own interpreter leaves out elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alpenglow.base.errors import ModelError
from alpenglow.frontends.numbers import apply
from alpenglow.frontends.presume import fixed
from alpenglow.frontends.stablehlo.bodies import apply_body, single
from alpenglow.frontends.stablehlo.convert.gather import batch_places, check
from alpenglow.frontends.stablehlo.convert.movement import padded
from alpenglow.frontends.stablehlo.convert.reduction import LOGICAL
from alpenglow.frontends.stablehlo.module import Block, GatherDims
from alpenglow.frontends.stablehlo.places import column, counted, index_vectors, linear, strides_of
from alpenglow.frontends.stablehlo.table import Made, Site, on
from alpenglow.frontends.windows import taps
from alpenglow.ir.dims import Dim, known, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import ALL, COMPLEX
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import GreaterOrEqual, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd, BitNot, BitOr
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.tensor.gather import Gather, ScatterNd
from alpenglow.ops.tensor.movement import Concat, Slice, stretch

HOW: Mapping[str, str] = {
    "second": "none", "stablehlo.add": "add", "stablehlo.multiply": "mul",
    "stablehlo.minimum": "min", "stablehlo.maximum": "max",
}  # fmt: skip
"""How updates of one place come together, by the body that says so."""

MOST_TURNS = 1 << 10
"""So many updates are written one after the other, where only the body knows how."""


@on("stablehlo.scatter")
def scatter(s: Site) -> Made:
    values = s.required()
    if len(values) % 2 == 0 or len(values) < 3:
        raise ModelError(f"{s.kind} has {len(values)} operands, expected 3, 5, 7, …")
    count = len(values) // 2
    xs, indices, updates = values[:count], values[count], values[count + 1 :]
    dims = s.dims_of("scatter_dimension_numbers", GatherDims)
    vectors = index_vectors(s, indices, dims.index_axis)
    check(s, xs[0], vectors, dims, None)
    for x, u in zip(xs, updates, strict=True):
        if x.type.shape != xs[0].type.shape or u.type.shape != updates[0].type.shape:
            raise s.wrong(
                f"operands are {xs[0].type} and {x.type}, updates {updates[0].type} and {u.type}, "
                "expected the same shapes"
            )
        if x.type.dtype != u.type.dtype:
            raise s.wrong(f"updates are {u.type}, expected dtype {x.type.dtype}")
    where = _places(s, xs[0], vectors, updates[0], dims)
    flat = [s.reshaped(u, (product(u.type.shape),)) for u in updates]
    return put(s, s.body(), xs, s.reshaped(where, (product(where.type.shape), 1)), flat)


def _places(s: Site, x: Value, vectors: Value, updates: Value, dims: GatherDims) -> Value:
    """Return the place of each element of updates, behind the end if its window is not inside."""
    shape = updates.type.shape
    rank = vectors.type.rank - 1 + len(dims.offset)
    if len(shape) != rank:
        raise s.wrong(f"updates are {updates.type}, expected rank {rank}")
    batch = [i for i in range(len(shape)) if i not in dims.offset]
    if [shape[i] for i in batch] != list(vectors.type.shape[:-1]):
        raise s.wrong(
            f"updates are {updates.type}, expected shape {vectors.type.shape[:-1]} outside of "
            f"update_window_dims {dims.offset}"
        )
    kept = [i for i in range(x.type.rank) if i not in (*dims.collapsed, *dims.operand_batch)]
    starts = {axis: column(s, vectors, j) for j, axis in enumerate(dims.start_map)}
    starts |= dict(batch_places(s, vectors, dims))
    windows = dict(zip(kept, sorted(dims.offset), strict=True))
    inside: Value | None = None
    parts = []
    for axis in range(x.type.rank):
        part: Value | None = None
        extent, size = x.type.shape[axis], shape[windows[axis]] if axis in windows else 1
        if known(extent) and known(size) and size > extent and axis in windows:
            found = f"{size} elements along dimension {windows[axis]}"
            raise s.wrong(f"updates have {found}, expected at most {extent}")
        if axis in windows:
            part = counted(s, size, windows[axis], shape)
        if axis in starts:
            narrow: list[Dim] = [1] * len(shape)
            for at, d in zip(batch, starts[axis].type.shape, strict=True):
                narrow[at] = d
            within = _within(s, starts[axis], fixed(extent) - fixed(size))
            within = stretch(s.g, s.reshaped(within, narrow), shape)
            inside = within if inside is None else s.g(BitAnd(), inside, within)
            start = stretch(s.g, s.reshaped(starts[axis], narrow), shape)
            part = start if part is None else s.g(Add(), part, start)
        parts.append(s.full(0, "i64", shape) if part is None else part)
    if not parts:
        return s.full(0, "i64", shape)
    place = linear(s, parts, strides_of(s, x.type.shape))
    behind = s.filled(fixed(product(x.type.shape)), place)
    return place if inside is None else s.g(Where(), inside, place, behind)


def _within(s: Site, index: Value, last: int) -> Value:
    """Return a bool per index: True from 0 to `last`."""
    below = s.g(LessOrEqual(), index, s.filled(last, index))
    return s.g(BitAnd(), below, s.g(GreaterOrEqual(), index, s.filled(0, index)))


def put(
    s: Site, block: Block, xs: Sequence[Value], where: Value, updates: Sequence[Value]
) -> list[Value]:
    """Return tensors with updates[i] brought to the place where[i, 0], as a body says.

    Places behind the end are left out.
    """
    shape = xs[0].type.shape
    longer = [_lengthened(s, x) for x in xs]
    made = _brought(s, block, longer, where, updates)
    size = product(shape)
    return [s.reshaped(s.g(Slice((0,), (size,), (1,)), v), shape) for v in made]


def _lengthened(s: Site, x: Value) -> Value:
    """Return the elements of x, and one more that is never read."""
    flat = s.reshaped(x, (product(x.type.shape),))
    return s.g(Concat(0), flat, s.full(0, x.type.dtype, (1,)))


def _brought(
    s: Site, block: Block, xs: Sequence[Value], where: Value, updates: Sequence[Value]
) -> list[Value]:
    operation = single(block) if len(xs) == 1 else ""
    dtype = xs[0].type.dtype
    if len(xs) > 1 and _takes_updates(block):
        return [s.g(ScatterNd(), x, where, u) for x, u in zip(xs, updates, strict=True)]
    if dtype == "bool":
        operation = LOGICAL.get(operation, operation)
    of_all = ("second", "stablehlo.add")
    if operation in HOW and (dtype in ALL or (dtype in COMPLEX and operation in of_all)):
        return [apply(s.g, ScatterNd(HOW[operation]), xs[0], where, updates[0])]
    if s.operation.attributes.get("unique_indices") is True:
        return _once(s, block, xs, where, updates)
    return _in_turn(s, block, xs, where, updates)


def _takes_updates(block: Block) -> bool:
    """Whether a body returns its updates as they are."""
    names = [name for name, _ in block.arguments]
    return not block.body and list(block.results) == names[len(names) // 2 :]


def _once(
    s: Site, block: Block, xs: Sequence[Value], where: Value, updates: Sequence[Value]
) -> list[Value]:
    """Return updates brought each to a place of its own: all are read, and then all written."""
    index = s.reshaped(where, where.type.shape[:1])
    before = [s.g(Gather(0), x, index) for x in xs]
    made = apply_body(s, block, [*before, *updates])
    return [s.g(ScatterNd(), x, where, v) for x, v in zip(xs, made, strict=True)]


def _in_turn(
    s: Site, block: Block, xs: Sequence[Value], where: Value, updates: Sequence[Value]
) -> list[Value]:
    """Return updates brought one after the other."""
    count = fixed(updates[0].type.shape[0])
    if count > MOST_TURNS:
        raise s.refuse(
            f"{count} updates by this body are not supported; supported: at most {MOST_TURNS}, "
            "unique_indices, or a body of one add, multiply, minimum or maximum"
        )
    values = list(xs)
    for i in range(count):
        place = s.g(Slice((i, 0), (1, 1), (1, 1)), where)
        ones = [s.g(Slice((i,), (1,), (1,)), u) for u in updates]
        values = _once(s, block, values, place, ones)
    return values


# ── windows of which one element is chosen ──


@on("stablehlo.select_and_scatter")
def select_and_scatter(s: Site) -> Made:
    """One element of each window is chosen; the source of the window is added there."""
    x, source, init = s.required(3)
    rank = x.type.rank
    w = s.window(rank)
    if len(s.operation.regions) != 2:
        raise s.wrong(f"there are {len(s.operation.regions)} regions, expected 2")
    low, high = [a for a, _ in w.edges], [b for _, b in w.edges]
    shape = tuple(map(fixed, source.type.shape))
    count = fixed(product(x.type.shape))
    place = linear(s, [counted(s, d, i, x.type.shape) for i, d in enumerate(x.type.shape)],
                   strides_of(s, x.type.shape)) if rank else s.full(0, "i64", ())  # fmt: skip
    within = [0] * rank
    value = padded(s, x, s.full(0, x.type.dtype, ()), low, high, within)
    place = padded(s, place, s.full(count, "i64", ()), low, high, within)
    values, places = (taps(s.g, v, w.size, w.strides, w.spread, shape) for v in (value, place))
    best, *others = zip(values, places, strict=True)
    for here in others:
        best = _better(s, best, here, count)
    start = stretch(s.g, init, x.type.shape)
    flat = s.reshaped(best[1], (product(shape), 1))
    updates = s.reshaped(source, (product(shape),))
    return put(s, s.body(1), [start], flat, [updates])[0]


def _better(
    s: Site, best: tuple[Value, Value], here: tuple[Value, Value], count: int
) -> tuple[Value, Value]:
    """Return which of two elements of each window is chosen; padding never is."""
    (stays,) = apply_body(s, s.body(0), [best[0], here[0]])
    end = s.filled(count, here[1])
    inside = s.g(Less(), here[1], end)
    unset = s.g(BitNot(), s.g(Less(), best[1], end))
    changes = s.g(BitAnd(), inside, s.g(BitOr(), unset, s.g(BitNot(), stays)))
    return (s.g(Where(), changes, here[0], best[0]), s.g(Where(), changes, here[1], best[1]))

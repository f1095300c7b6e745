"""Loops and branches as nodes: what they run is imported as graphs of their own (`ops.control`).

A body reads values of the graph around it by name; each value that it reads is an operand of the
node.  If a graph cannot hold the loop or branch (types that change from iteration to iteration,
random values, variables, values left for later), `node_of` raises UnsupportedError, and the
importer tries another way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.frontends.control import Along, Branch, Repeat, Scan, While, check_branch, going_of
from alpenglow.frontends.counters import Counting, Knowing, single
from alpenglow.frontends.drawn import drawn_under
from alpenglow.frontends.rows import first_rows
from alpenglow.frontends.steps import Body, P, Step
from alpenglow.ir.dims import Dim, assuming, known
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.region import inlined
from alpenglow.ir.types import DTYPES, INTS, TensorType
from alpenglow.ops.control import branch, loop
from alpenglow.ops.control.counted import by_rows
from alpenglow.ops.control.loop import COUNTER, FLAG
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.comparison import Equal, Less, LessOrEqual
from alpenglow.ops.elementwise.logic import BitAnd
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.movement import Reshape, Slice, Transpose, stretch

MOST_STACKED = 1 << 28
"""A loop that may end early has rows of no more bytes in all."""


class Inside(Knowing, Protocol[P]):
    """An importer of bodies into a graph of their own."""

    values: dict[str, Value]
    later: list[Any]

    def run(self, steps: Sequence[Step[P]]) -> None: ...

    def find(self, name: str) -> Value: ...


class Around(Inside[P], Protocol[P]):
    """The importer of what stands around bodies."""

    def prefix(self, step: Step[P]) -> str: ...

    def enter(self, body: Body[P]) -> None: ...

    def inside(self, bodies: Sequence[Body[P]]) -> Inside[P]:
        """Return an importer of bodies, which finds the names around them here."""
        ...

    def leave(self, inner: Any) -> None:
        """Take over what bodies that have been imported took for granted."""
        ...


def node_of(
    step: Step[P], control: Branch[P] | While[P] | Scan[P] | Repeat[P], importer: Around[P]
) -> Sequence[Step[P]]:
    """Import a loop or a branch as a node; raise UnsupportedError where a graph cannot hold it.

    Returned are steps that make results of what the node makes.
    """
    behind: list[Step[P]] = []
    names = step.outputs
    match control:
        case Branch():
            results = _branch(step, control, importer)
        case While():
            results = _while(step, control, importer)
        case Repeat():
            results = _repeat(step, control, importer)
            if len(results) > len(names):
                names, behind = _cut(step, len(control.carried), importer.prefix(step))
        case Scan():
            results = _scan(step, control, importer)
    for name, v in zip(names, results, strict=True):
        if name:
            v.name = v.name or name
            importer.values[name] = v
            importer.known[v] = None
    return behind


# ── loops ──


def _while(step: Step[P], control: While[P], importer: Around[P]) -> Sequence[Value]:
    """Return the results of a loop: each turn is its body, with the condition behind it."""
    prefix = importer.prefix(step)
    first = control.condition.place(f"{prefix}a/", step.inputs)
    importer.enter(first)
    importer.run(first.steps)
    going = _flag(importer.g, importer.find(going_of(first)))
    names = [f"{prefix}i{k}" for k in range(len(step.inputs))]
    body = control.body.place(f"{prefix}b/", names)
    after = control.condition.place(f"{prefix}c/", body.outputs)
    carried = [importer.find(n) for n in step.inputs]
    types = [v.type for v in carried]

    def entered() -> Inside[P]:
        inner = importer.inside((body, after))
        _give(inner, names, types)
        return inner

    inner, counting = _imported(entered, names, carried, importer, (*body.steps, *after.steps))
    made = [inner.find(n) for n in body.outputs]
    going_on = _flag(inner.g, inner.find(going_of(after)))
    if counting:
        counting.show(inner, made, going_on, None)
    drawn = drawn_under(inner.g, names)
    region = _closed(inner, [*names, *drawn], [going_on, *made, *drawn.values()], counting)
    carried += _keys(importer, len(drawn))
    importer.leave(inner)
    results = _turning(importer, region, going, carried, turns_of(region, carried))
    return results[: len(names)]


def _repeat(step: Step[P], control: Repeat[P], importer: Around[P]) -> Sequence[Value]:
    """Return the results of a loop that counts its turns, and whose body may end it.

    If data decide how many rows are stacked, that number comes behind them.
    """
    prefix, g = importer.prefix(step), importer.g
    turn, *leading = (f"{prefix}{name}" for name in ("turn", "number", "going"))
    names = [f"{prefix}i{k}" for k in range(len(control.carried))]
    body = control.body.place(f"{prefix}b/", (*leading, *names))
    start = g.constant(np.int64(0))
    carried = [importer.find(n) for n in control.carried]
    going = g.constant(np.True_) if not control.going else _flag(g, importer.find(control.going))
    carried = [start, *carried]
    types = [v.type for v in carried]

    def entered() -> Inside[P]:
        inner = importer.inside((body,))
        _give(inner, [turn, *names], types)
        _lead(inner, leading, inner.values[turn], control.leading)
        return inner

    inner, counting = _imported(entered, [turn, *names], carried, importer, body.steps)
    goes_on, *made = (inner.find(n) for n in body.outputs)
    goes_on = _flag(inner.g, goes_on)
    after = inner.g(Add(), inner.values[turn], inner.g.constant(np.int64(1)))
    most = None
    if control.trips:
        most = single(importer, importer.find(control.trips))
        going = g(BitAnd(), going, g(Less(), start, _counter(g, importer.find(control.trips))))
        limit = _counter(inner.g, inner.find(control.trips))
        goes_on = inner.g(BitAnd(), goes_on, inner.g(Less(), after, limit))
    if counting:
        counting.show(inner, [after, *made], goes_on, most)
    drawn = drawn_under(inner.g, [turn, *names])
    states, rows = made[: len(names)], made[len(names) :]
    outputs = [goes_on, after, *states, *drawn.values(), *rows]
    region = _closed(inner, [turn, *names, *drawn], outputs, counting)
    carried += _keys(importer, len(drawn))
    importer.leave(inner)
    count, begins = turns_of(region, carried), _begins(going)
    if count is not None:  # what ends the loop is asked after the first turn, not before it
        count = None if begins is None else max(count, 1) if begins else 0
    cut = count is None and bool(rows)
    if cut:
        carried += _stacks(g, region, len(carried), control.most)
    turns, *results = _turning(importer, region, going, carried, count)
    results = [*results[: len(names)], *results[len(names) + len(drawn) :]]
    return [*results, turns] if cut else results


def _stacks(g: Graph, region: Graph, states: int, most: Dim) -> list[Value]:
    """Let a region carry stacks of `most` rows, into which its turns write; return empty ones.

    Its outputs are whether it goes on, the `states`, and rows; the first state counts turns.
    """
    rows = list(region.outputs.items())[1 + states :]
    size = sum(v.type.nbytes for _, v in rows if not v.type.symbols())
    if known(most) and most * size > MOST_STACKED:
        raise UnsupportedError(
            f"a loop stacks up to {most} rows of {size} bytes, expected at most {MOST_STACKED} "
            "bytes in all"
        )
    names = list(region.inputs)
    place = region(Reshape((1,)), region.inputs[names[0]])
    stacks: dict[str, Value] = {}
    starts: list[Value] = []
    for output, v in rows:
        t = v.type.with_shape((1, most, *v.type.shape))
        stacks[_fresh(region, output)] = stack = Value(t, output)
        row = region(Reshape((1, 1, *v.type.shape)), v)
        region.outputs[output] = region(UpdateCache(1), stack, row, place)
        starts.append(stretch(g, g.constant(np.zeros((), t.numpy)), t.shape))
    region.inputs = {
        **{n: region.inputs[n] for n in names[:states]}, **stacks,
        **{n: region.inputs[n] for n in names[states:]},
    }  # fmt: skip
    return starts


def _cut(
    step: Step[P], states: int, prefix: str
) -> tuple[tuple[str, ...], list[Step[P]]]:
    """Return names for the results of a loop that stacks as many rows as data say, and the steps
    that cut the stacks."""
    turns = f"{prefix}turns"
    results = step.outputs[states:]
    stacks = tuple(name and f"{prefix}stack{k}" for k, name in enumerate(results))
    behind = [
        Step(step.kind, step.label, (turns, stack), (name,), step.payload, make=first_rows)
        for stack, name in zip(stacks, results, strict=True) if name
    ]  # fmt: skip
    return (*step.outputs[:states], *stacks, turns), behind


def _begins(going: Value) -> bool | None:
    """Return whether a loop has a first turn; None if data decides."""
    match going:
        case Value(producer=Node(BitAnd(), [Value() as a, Value() as b])):
            both = {_begins(a), _begins(b)}
            return False if False in both else None if None in both else True
        case Value(producer=Node(Less(), [Value() as a, Value() as b])):
            start, end = _integer(a), _integer(b)
            return None if start is None or end is None else start < end
        case Value(producer=Node(Reshape(), [Value() as x])):
            return _begins(x)
    return None if going.array is None else bool(going.array)


def _turning(
    importer: Around[Any], region: Graph, going: Value, carried: Sequence[Value], count: int | None
) -> Sequence[Value]:
    """Return the results of a loop; as a `Scan` if it is known how often it turns."""
    wanted = [FLAG, *(v.type for v in carried)]
    found = [v.type for v in region.outputs.values()]
    if found[: len(wanted)] != wanted:
        raise UnsupportedError(f"a loop returns {loop.shown(found)}, expected {loop.shown(wanted)}")
    captured = [importer.find(n) for n in list(region.inputs)[len(carried) :]]
    if count is None:
        op, operands = loop.While(len(carried)), [going, *carried, *captured]
        return importer.g.add(op, operands, [region]).results
    del region.outputs[next(iter(region.outputs))]
    number = Value(COUNTER, "number")
    region.inputs = {_fresh(region, "number"): number, **region.inputs}
    region.prune()
    node = importer.g.add(loop.Scan(count, len(carried)), [*carried, *captured], [region])
    return by_rows(importer.g, node)


def turns_of(region: Graph, carried: Sequence[Value]) -> int | None:
    """Return how often the region of a loop runs that counts; None if data decides.

    Its first output says whether it goes on: as long as counters, each begun at a constant and
    made larger by a constant, are less than constants.  The same is asked before the first turn.
    """
    going, *made = region.outputs.values()
    conditions, counts = [going], []
    inputs = list(region.inputs.values())
    while conditions:
        match conditions.pop():
            case Value(producer=Node(BitAnd(), [Value() as a, Value() as b])):
                conditions += [a, b]
            case Value(producer=Node(Less() | LessOrEqual() as less, [Value() as a, Value() as b])):
                count = _steps(inputs, made, carried, a, b, isinstance(less, LessOrEqual))
                if count is None:
                    return None
                counts.append(count)
            case _:
                return None
    return min(counts)


def _steps(
    inputs: Sequence[Value], made: Sequence[Value], carried: Sequence[Value], after: Value,
    limit: Value, reaches: bool,
) -> int | None:  # fmt: skip
    """Return how often a counter is below its limit, one turn more if its value before the turn is
    compared; None if it is none."""
    late = after in inputs[: len(carried)]
    after = made[inputs.index(after)] if late else after
    match after:
        case Value(producer=Node(Add(), [Value() as now, Value() as step])) if now in inputs:
            k = inputs.index(now)
        case _:
            return None
    if k >= len(carried) or made[k] is not after or after.type.dtype not in INTS:
        return None
    handed_on = {v: first for v, end, first in zip(inputs, made, carried, strict=False) if v is end}
    step, limit = handed_on.get(step, step), handed_on.get(limit, limit)
    start, by, end = _integer(carried[k]), _integer(step), _integer(limit)
    if start is None or by is None or end is None or by < 1:
        return None
    end += reaches
    last = np.iinfo(DTYPES[after.type.dtype]).max
    return None if end + by > last else max(0, -(-(end - start) // by)) + late


def _integer(v: Value) -> int | None:
    """Return the integer that a constant is."""
    return int(v.array.reshape(-1)[0]) if v.array is not None and v.array.size == 1 else None


def _scan(step: Step[P], control: Scan[P], importer: Around[P]) -> Sequence[Value]:
    """Return the results of a loop along rows."""
    prefix, g = importer.prefix(step), importer.g
    leading = [f"{prefix}n{k}" for k in range(len(control.leading))]
    names = [f"{prefix}i{k}" for k in range(len(control.carried))]
    rows = [f"{prefix}x{k}" for k in range(len(control.scanned))]
    body = control.body.place(prefix, (*leading, *names, *rows))
    carried = [importer.find(n) for n in control.carried]
    alongs = [along for _, along in control.scanned]
    reverse = all(a.reverse for a in (*alongs, *control.stacked)) and bool(alongs)
    scanned = [
        _first(g, importer.find(n), along, reverse) for n, along in control.scanned
    ]
    types = [v.type for v in carried]
    types += [v.type.with_shape(v.type.shape[1:]) for v in scanned]
    turn = f"{prefix}turn"

    def entered() -> Inside[P]:
        inner = importer.inside((body,))
        _give(inner, [turn, *names, *rows], [COUNTER, *types])
        _lead(inner, leading, inner.values[turn], control.leading)
        return inner

    count = control.count
    start = count - 1 if reverse and isinstance(count, int) else 0
    first = g.constant(np.int64(start))
    inner, counting = _imported(entered, [turn, *names], [first, *carried], importer, body.steps)
    made = [inner.find(n) for n in body.outputs]
    if counting:
        by = inner.g.constant(np.int64(-1 if reverse else 1))
        most = count if isinstance(count, int) or not reverse else None
        counting.show(inner, [inner.g(Add(), inner.values[turn], by), *made], None, most)
    drawn = drawn_under(inner.g, [turn, *names])
    made = [*made[: len(names)], *drawn.values(), *made[len(names) :]]
    region = _closed(inner, [turn, *names, *drawn, *rows], made, counting)
    carried += _keys(importer, len(drawn))
    importer.leave(inner)
    captured = [importer.find(n) for n in list(region.inputs)[1 + len(types) + len(drawn) :]]
    op = loop.Scan(control.count, len(carried), len(scanned), reverse)
    results = list(importer.g.add(op, [*carried, *scanned, *captured], [region]).results)
    stacks = zip(results[len(carried) :], control.stacked, strict=True)
    return [*results[: len(names)], *(_placed(g, v, along, reverse) for v, along in stacks)]


def _first(g: Graph, x: Value, along: Along, reverse: bool) -> Value:
    """Return a scanned value with the axis that a loop goes along first, from its beginning."""
    rank = x.type.rank
    axis = _axis(along, x, "scans")
    if axis:
        x = g(Transpose((axis, *(i for i in range(rank) if i != axis))), x)
    return x if along.reverse == reverse else _turned(g, x)


def _placed(g: Graph, x: Value, along: Along, reverse: bool) -> Value:
    """Return stacked rows along the axis that they belong to, in the order that they have there."""
    rank = x.type.rank
    axis = _axis(along, x, "stacks")
    x = x if along.reverse == reverse else _turned(g, x)
    others = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    return g(Transpose(tuple(others)), x) if axis else x


def _axis(along: Along, x: Value, verb: str) -> int:
    """Return the axis that a loop scans or stacks along, counted from the front."""
    rank = x.type.rank
    if not -rank <= along.axis < rank:
        found = f"a loop {verb} {x.type} along axis {along.axis}"
        raise ModelError(f"{found}, expected at least {-rank} and less than {rank}")
    return along.axis % rank


def _turned(g: Graph, x: Value) -> Value:
    """Return x with its first axis the other way round."""
    shape = x.type.shape
    rest = len(shape) - 1
    return g(Slice((shape[0] - 1, *[0] * rest), shape, (-1, *[1] * rest)), x)


# ── branches ──


def _branch(step: Step[P], control: Branch[P], importer: Around[P]) -> Sequence[Value]:
    """Return the results of the region that a chooser chooses."""
    prefix, g = importer.prefix(step), importer.g
    graphs: list[Graph] = []
    keys: list[str] = []
    for i, each in enumerate(control.regions):
        body = each.place(f"{prefix}{i}/", control.operands)
        check_branch(step, i, body)
        inner = importer.inside((body,))
        inner.run(body.steps)
        for name in [n for n, v in inner.g.inputs.items() if v.hidden]:
            key = inner.g.inputs.pop(name)
            key.hidden = False
            inner.g.inputs[f"{prefix}{i}/{name}"] = key
            keys.append(f"{prefix}{i}/{name}")
        graphs.append(_closed(inner, keys, [inner.find(n) for n in body.outputs]))
        importer.leave(inner)
    types = [[v.type for v in graph.outputs.values()] for graph in graphs]
    if any(t != types[0] for t in types):
        found = " and ".join(map(loop.shown, types))
        raise UnsupportedError(f"branches return {found}, expected the same types")
    captured = {n: importer.find(n) for graph in graphs for n in graph.inputs if n not in keys}
    captured |= zip(keys, _keys(importer, len(keys)), strict=True)
    for graph in graphs:
        graph.inputs = {n: graph.inputs.get(n) or Value(v.type, n) for n, v in captured.items()}
    index = importer.find(control.chooser)
    if not control.by_number:
        return g.add(branch.If(), [_flag(g, index), *captured.values()], graphs).results
    return _chosen(g, index, list(captured.values()), graphs, 0)


def _chosen(
    g: Graph, index: Value, captured: Sequence[Value], graphs: Sequence[Graph], at: int
) -> Sequence[Value]:
    """Return the results of the graph whose number an index is, of the last if of none."""
    if len(graphs) == 1:
        return inlined(g, graphs[0], captured)
    if index.type.size != 1 or index.type.dtype not in INTS:
        raise UnsupportedError(f"the index of a branch is {index.type}, expected one integer")
    this = g.constant(np.array(at, DTYPES[index.type.dtype]))
    here = g(Equal(), index if not index.type.rank else g(Reshape(()), index), this)
    others = Graph("others")
    chooser = others.input("index", index.type)
    inside = [others.input(f"x{k}", v.type) for k, v in enumerate(captured)]
    for k, v in enumerate(_chosen(others, chooser, inside, graphs[1:], at + 1)):
        others.output(f"o{k}", v)
    first = graphs[0].copy()
    first.inputs = {"index": Value(index.type, "index"), **{
        f"x{k}": v for k, v in enumerate(first.inputs.values())
    }}  # fmt: skip
    return g.add(branch.If(), [here, index, *captured], [first, others]).results


# ── bodies ──


def _give(inner: Inside[Any], names: Sequence[str], types: Sequence[TensorType]) -> None:
    """Let a body have inputs by these names."""
    for name, t in zip(names, types, strict=True):
        inner.values[name] = inner.g.input(name, t)


def _lead(
    inner: Inside[Any], names: Sequence[str], turn: Value, shapes: Sequence[tuple[int, ...]]
) -> None:
    """Let a body have the number of the turn, and that the loop goes on, by these names."""
    values = (turn, inner.g.constant(np.True_))
    for name, v, shape in zip(names, values, shapes, strict=False):
        inner.values[name] = inner.g(Reshape(shape), v) if shape else v


def _keys(importer: Around[Any], count: int) -> list[Value]:
    """Return keys of the graph around, which are others in each call."""
    return [importer.g.random_key() for _ in range(count)]


def _imported(
    entered: Callable[[], Inside[P]], names: Sequence[str], carried: Sequence[Value],
    importer: Around[P], steps: Sequence[Step[P]],
) -> tuple[Inside[P], Counting | None]:  # fmt: skip
    """Return an importer that has run the steps of a loop, and the counters at which it slices.

    `entered` returns an importer of the body; inputs by these names are the carried values.
    """
    inner = entered()
    inner.run(steps)
    counting = Counting.of(carried, importer) if inner.later else None
    if counting is None:
        return inner, None
    inner = entered()
    counting.tell(inner, [inner.values[n] for n in names])
    with assuming(counting.held):
        inner.run(steps)
    return inner, counting


def _closed(
    inner: Inside[Any], names: Sequence[str], outputs: Sequence[Value],
    counting: Counting | None = None,
) -> Graph:  # fmt: skip
    """Return an imported body as a region: what it captures are the inputs behind these names."""
    if inner.later:
        raise UnsupportedError(
            "data-dependent shapes in a loop or branch are not supported; "
            "supported: shapes that follow from the shapes of inputs"
        )
    g = inner.g
    if g.initial:
        raise UnsupportedError(
            "assignments to variables in a loop or branch are not supported; supported: reads"
        )
    for i, v in enumerate(outputs):
        g.output(f"o{i}", v)
    g.prune()
    if counting is not None:
        counting.take_out(g, [inner.values[n] for n in names])
    used = {v for node in g.nodes for v in node.inputs} | set(g.outputs.values())
    g.inputs = {n: v for n, v in g.inputs.items() if n in names or v in used}
    return g


def _flag(g: Graph, v: Value) -> Value:
    """Return a truth value without axes."""
    if v.type.dtype != "bool" or v.type.size != 1:
        raise UnsupportedError(f"a condition is {v.type}, expected one bool")
    return g(Reshape(()), v) if v.type.rank else v


def _counter(g: Graph, v: Value) -> Value:
    """Return a number of turns without axes."""
    if v.type.dtype != "i64" or v.type.size != 1:
        raise UnsupportedError(f"the number of iterations is {v.type}, expected one i64")
    return g(Reshape(()), v) if v.type.rank else v


def _fresh(g: Graph, name: str) -> str:
    """Return a name that no input has."""
    while name in g.inputs:
        name += "'"
    return name

"""Loops: a region that runs again and again on what it made (ONNX Loop and Scan, XLA While)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from alpenglow.base.errors import TypeRuleError
from alpenglow.ir.dims import Dim, known
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Control, Run
from alpenglow.ir.region import inlined
from alpenglow.ir.types import Array, TensorType
from alpenglow.ops.elementwise.arithmetic import Add, Sub
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.product.attention import number
from alpenglow.ops.sequence.cache import UpdateCache
from alpenglow.ops.tensor.copy import Empty
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Reshape

FLAG = TensorType("bool", ())
COUNTER = TensorType("i64", ())

T = TypeVar("T")
R = TypeVar("R")


class While(Control):
    """As long as `going`, bool[], is true, the region makes it and the carried values anew.

    xs are the values that are carried, `carried` of them, then those that the region captures.
    Inputs of the region are xs, its outputs the next `going` and the next carried values, of the
    types of those before.  Results are the last carried values.  XLA While, ONNX Loop.
    """

    carried_count: int

    @property
    def captures_from(self) -> int:
        return 1 + self.carried_count

    def infer(
        self, going: TensorType, *xs: TensorType, regions: tuple[Graph, ...] = ()
    ) -> tuple[TensorType, ...]:
        carried = xs[: self.carried_count]
        if going != FLAG:
            raise TypeRuleError(f"while: going is {going}, expected {FLAG}")
        check_region(self, regions, 1, xs, (FLAG, *carried))
        return carried

    def run(self, regions: Sequence[R], run: Run[R], going: Array, *arrays: Array) -> list[Array]:
        (body,) = regions
        carried, captured = list(arrays[: self.carried_count]), arrays[self.carried_count :]
        while going:
            going, *carried = run(body, [*carried, *captured])
        return carried


class Scan(Control):
    """The region runs `count` times, on the rows of some operands, and its results are stacked.

    xs are the carried values, then values of `count` rows, along their first axis, then captured
    ones.  Inputs of the region are the number of the row, i64[], the carried values, a row of each
    scanned value, and the captured values.  Its outputs are the next carried values, of the types
    of those before, and rows.  Results are the last carried values, and these rows stacked along a
    first axis.  If `reverse`, the last row comes first.  ONNX Scan, jax.lax.scan.
    """

    count: Dim
    carried_count: int
    scanned_count: int = 0
    reverse: bool = False

    @property
    def captures_from(self) -> int:
        return self.carried_count + self.scanned_count

    def infer(self, *xs: TensorType, regions: tuple[Graph, ...] = ()) -> tuple[TensorType, ...]:
        if known(self.count) and self.count < 0:
            raise TypeRuleError(f"scan: count is {self.count}, expected 0 or more")
        carried, scanned, captured = self.split(xs)
        for x in scanned:
            if not x.rank or x.shape[0] != self.count:
                raise TypeRuleError(f"scan: a scanned value is {x}, expected {self.count} rows")
        rows = [x.with_shape(x.shape[1:]) for x in scanned]
        inputs = (COUNTER, *carried, *rows, *captured)
        stacked = check_region(self, regions, 1, inputs, carried)
        return (*carried, *(t.with_shape((self.count, *t.shape)) for t in stacked))

    def split(self, xs: Sequence[T]) -> tuple[list[T], list[T], list[T]]:
        """Return carried, scanned and captured values apart."""
        first, then = self.carried_count, self.carried_count + self.scanned_count
        return list(xs[:first]), list(xs[first:then]), list(xs[then:])

    def run(self, regions: Sequence[Graph], run: Run[Graph], *arrays: Array) -> list[Array]:
        (body,) = regions
        carried, scanned, captured = self.split(arrays)
        types = [v.type for v in body.outputs.values()][self.carried_count :]
        count = scanned[0].shape[0] if scanned else self.count
        stacks = [np.empty((count, *t.extents), t.numpy) for t in types]
        for turn in range(count)[:: -1 if self.reverse else 1]:
            rows = [x[turn] for x in scanned]
            made = run(body, [np.array(turn), *carried, *rows, *captured])
            carried = list(made[: self.carried_count])
            for stack, row in zip(stacks, made[self.carried_count :], strict=True):
                stack[turn] = row
        return [*carried, *stacks]

    def lower(self, b: Graph, *xs: Value, regions: tuple[Graph, ...]) -> list[Value]:
        """Return the results of a `While` that counts, reads rows and writes rows in place."""
        (body,) = regions
        first, scanned, captured = self.split(xs)
        rows = [v.type for v in body.outputs.values()][self.carried_count :]
        if known(self.count) and self.count == 0:
            return [*first, *(b(Empty(t.dtype, (0, *t.shape))) for t in rows)]
        stacks = [
            b(Empty(t.dtype, (1, self.count, *t.shape), i)) for i, t in enumerate(rows)
        ]
        start = b.constant(np.int64(0))
        going = b(Less(), start, number(b, self.count, start))
        state = (start, *first, *stacks)
        region = self._turn(body, [v.type for v in state], [v.type for v in (*scanned, *captured)])
        node = b.add(While(len(state)), (going, *state, *scanned, *captured), [region])
        _, *results = node.results
        carried, made = results[: len(first)], results[len(first) :]
        return [*carried, *(b(Reshape(v.type.shape[1:]), v) for v in made)]

    def _turn(
        self, body: Graph, state: Sequence[TensorType], others: Sequence[TensorType]
    ) -> Graph:
        """Return the region of the `While`."""
        g = Graph(body.name)
        turn, *held = [g.input(f"s{i}", t) for i, t in enumerate(state)]
        read = [g.input(f"x{i}", t) for i, t in enumerate(others)]
        carried, stacks = held[: self.carried_count], held[self.carried_count :]
        scanned, captured = read[: self.scanned_count], read[self.scanned_count :]
        count = number(g, self.count, turn)
        one = g.constant(np.int64(1))
        after = g(Add(), turn, one)
        at = g(Sub(), count, after) if self.reverse else turn
        rows = [g(Gather(0), x, at) for x in scanned]
        made = inlined(g, body, [at, *carried, *rows, *captured])
        place = g(Reshape((1,)), at)
        g.output("going", g(Less(), after, count))
        g.output("o0", after)
        for i, v in enumerate(made[: self.carried_count], 1):
            g.output(f"o{i}", v)
        for i, (stack, v) in enumerate(zip(stacks, made[self.carried_count :], strict=True)):
            row = g(Reshape((1, 1, *v.type.shape)), v)
            g.output(f"o{1 + self.carried_count + i}", g(UpdateCache(1), stack, row, place))
        return g


def check_region(
    op: Control, regions: Sequence[Graph], count: int, inputs: Sequence[TensorType],
    outputs: Sequence[TensorType],
) -> list[TensorType]:  # fmt: skip
    """Return the types of what the regions make besides `outputs`.

    Raises TypeRuleError unless there are `count` regions, of these inputs, whose outputs begin with
    these, and are alike.
    """
    if len(regions) != count:
        raise TypeRuleError(f"{op.name}: {len(regions)} regions, expected {count}")
    made: list[list[TensorType]] = []
    for region in regions:
        found = [v.type for v in region.inputs.values()]
        if found != list(inputs):
            raise TypeRuleError(
                f"{op.name}: a region takes {shown(found)}, expected {shown(inputs)}"
            )
        made.append([v.type for v in region.outputs.values()])
        if made[-1][: len(outputs)] != list(outputs):
            raise TypeRuleError(
                f"{op.name}: a region returns {shown(made[-1])}, expected {shown(outputs)} first"
            )
        if made[-1] != made[0]:
            raise TypeRuleError(
                f"{op.name}: a region returns {shown(made[-1])}, expected {shown(made[0])} as the "
                "first region"
            )
    return made[0][len(outputs) :]


def shown(types: Sequence[TensorType]) -> str:
    """Return types as text."""
    return f"({', '.join(map(str, types))})"

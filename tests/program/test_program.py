"""Random programs: after every step from graph to plan, a program computes what its graph does.

The graphs are chains and forests of moves (reshape, transpose, slice, concat, pad, broadcast)
with a little arithmetic between them, on small integers, so that every order of summation gives
the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Maximum, Mul
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.tensor.movement import Broadcast, Concat, Pad, Reshape, Slice, Transpose
from alpenglow.passes.lower import lower
from alpenglow.program import Program, eliminate_copies, mark_lifetimes, plan, schedule, share
from alpenglow.program.interpret import interpret
from alpenglow.program.text import parse_program, print_program, side_weights

Array = NDArray[Any]
Random = np.random.Generator

SEEDS = 200
COMPILED = 25
NODES = 14
LARGEST = 400
"""Values of more elements than this are not built on."""


# ── the generator ──


def generate(seed: int) -> Graph:
    """Return a random graph of primitives."""
    random = np.random.default_rng(seed)
    g = Graph(f"random {seed}")
    values = [g.input(f"x{i}", f"f32[{','.join(map(str, _shape(random)))}]") for i in range(2)]
    values.append(g.constant(random.integers(-3, 4, _shape(random)).astype(np.float32), "w"))
    while len(values) < NODES:
        x = _pick(random, values)
        grow = OPERATORS[random.integers(len(OPERATORS))]
        y = grow(random, g, x, values)
        if y.type.size <= LARGEST:
            values.append(y)
    # What nobody reads, and a few values that somebody does, inputs and constants among them.
    ends = [v for v in values if not v.users and v.producer is not None][-3:]
    for i, v in enumerate([*ends, *(_pick(random, values) for _ in range(random.integers(3)))]):
        g.output(f"y{i}", v)
    if not g.outputs:
        g.output("y", values[-1])
    g.prune()
    return lower(g)


def _shape(random: Random) -> tuple[int, ...]:
    return tuple(int(d) for d in random.integers(1, 5, random.integers(1, 5)))


def _pick(random: Random, values: list[Value]) -> Value:
    """Choose a value; the later ones more often, so that chains grow."""
    return values[int(len(values) * math.sqrt(random.random()))]


def _reshape(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    factors = [p for d in x.type.extents for p in _primes(d)]
    if not x.type.size:
        return g(Reshape((0, 2)), x)
    if random.random() < 0.3:
        random.shuffle(factors)
    shape = [1] * int(random.integers(1, 5))
    cuts = sorted(random.integers(0, len(shape), len(factors)))
    for axis, factor in zip(cuts, factors, strict=True):
        shape[axis] *= factor
    return g(Reshape(tuple(shape)), x)


def _primes(n: int) -> Iterator[int]:
    for p in range(2, n + 1):
        while n > 1 and n % p == 0:
            yield p
            n //= p


def _transpose(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    return g(Transpose(tuple(map(int, random.permutation(x.type.rank)))), x)


def _slice(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    starts, sizes, steps = [], [], []
    for d in x.type.extents:
        step = int(random.choice([1, 1, 2, 3, -1, -2]))
        start = int(random.integers(d)) if d else 0
        most = 0 if not d else (d - 1 - start if step > 0 else start) // abs(step) + 1
        starts.append(start)
        steps.append(step)
        sizes.append(int(random.integers(min(most, 1), most + 1)))
    if random.random() < 0.03:
        sizes[0] = 0
    return g(Slice(tuple(starts), tuple(sizes), tuple(steps)), x)


def _broadcast(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    own = [int(random.integers(1, 4)) if d == 1 else d for d in x.type.extents]
    lead = [int(d) for d in random.integers(1, 3, random.integers(0, 2))]
    return g(Broadcast((*lead, *own)), x)


def _pad(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    low = -1 if random.random() < 0.3 and min(x.type.extents, default=0) > 1 else 0
    before = tuple(map(int, random.integers(low, 3, x.type.rank)))
    after = tuple(map(int, random.integers(0, 3, x.type.rank)))
    most = min(x.type.extents, default=0) - 1
    if low == 0 and max((*before, *after), default=0) <= most and random.random() < 0.5:
        return g(Pad(before, after, str(random.choice(["reflect", "edge", "wrap"]))), x)
    return g(Pad(before, after, value=float(random.integers(-2, 3))), x)


def _concat(random: Random, g: Graph, x: Value, values: list[Value]) -> Value:
    axis = int(random.integers(x.type.rank)) if x.type.rank else 0
    if not x.type.rank:
        x = g(Reshape((1,)), x)

    def rest(v: Value) -> tuple[int, ...]:
        return (*v.type.extents[:axis], *v.type.extents[axis + 1 :])

    fitting = [v for v in values if v.type.rank == x.type.rank and rest(v) == rest(x)]
    fitting.append(g(Relu(), x))
    others = [fitting[i] for i in random.integers(len(fitting), size=random.integers(0, 3))]
    operands = [x, *others]
    random.shuffle(operands)  # type: ignore[arg-type]
    return g(Concat(axis), *operands)


def _relu(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    return g(Relu(), x)


def _binary(random: Random, g: Graph, x: Value, values: list[Value]) -> Value:
    equal = [v for v in values if v.type == x.type] or [x]
    y = equal[random.integers(len(equal))]
    if random.random() < 0.5:
        y = g(Relu(), y)
    op = [Add(), Mul(), Maximum()][random.integers(3)]
    return _bounded(g, g(op, x, y))


def _mat_mul(random: Random, g: Graph, x: Value, _: list[Value]) -> Value:
    if x.type.rank < 2:
        return g(Relu(), x)
    perm = (*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2)
    left = x if random.random() < 0.5 else g(Relu(), x)
    return _bounded(g, g(MatMul(), left, g(Transpose(perm), x)))


def _bounded(g: Graph, x: Value) -> Value:
    """Return x within -8 and 8: small integers stay exact in every sum."""
    return g(Clip(-8.0, 8.0), x)


OPERATORS: tuple[Callable[[Random, Graph, Value, list[Value]], Value], ...] = (
    _reshape,
    _reshape,
    _transpose,
    _transpose,
    _slice,
    _slice,
    _broadcast,
    _pad,
    _pad,
    _concat,
    _concat,
    _relu,
    _binary,
    _binary,
    _mat_mul,
)


def feeds(g: Graph, seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {k: random.integers(-4, 5, v.type.extents).astype("f4") for k, v in g.inputs.items()}


# ── the properties ──


STEPS = (schedule, eliminate_copies, share, mark_lifetimes, plan)


def programs(g: Graph) -> Iterator[tuple[str, Program]]:
    """Yield the program after each step, with the step's name."""
    made: Any = g
    for step in STEPS:
        made = step(made)
        yield step.__name__, made


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.sampled(50)
def test_every_step_computes_what_the_graph_does(seed: int) -> None:
    g = generate(seed)
    given = feeds(g, seed)
    expected = evaluate(g, given)
    for step, program in programs(g):
        actual = interpret(program, given)

        assert list(expected) == list(actual), step
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array, f"{name} after {step}")


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.sampled(28)
def test_every_step_reads_back_from_its_text(seed: int) -> None:
    g = generate(seed)
    given = feeds(g, seed)
    for step, program in programs(g):
        expected = print_program(program)
        again = parse_program(expected, side_weights(program))

        assert expected == print_program(again), step
    for name, array in interpret(program, given).items():
        np.testing.assert_array_equal(interpret(again, given)[name], array)


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.sampled(100)
def test_the_arena_holds_at_least_what_is_alive_at_once(seed: int) -> None:
    program = plan(mark_lifetimes(share(eliminate_copies(schedule(generate(seed))))))

    assert program.lower_bound <= program.arena
    for b in program.buffers.values():
        if b.space == "arena":
            assert b.offset is not None and b.offset + b.nbytes <= program.arena


@pytest.mark.parametrize("seed", range(COMPILED))
@pytest.mark.sampled(13)
def test_machine_code_computes_what_the_graph_does(seed: int) -> None:
    g = generate(seed)
    given = feeds(g, seed)
    expected = evaluate(g, given)
    actual = ag.compile(g, threads=1).run(given)

    assert list(expected) == list(actual)
    for name, array in expected.items():
        # Sums of small integers are exact; 1e-5 leaves room for a reassociated product.
        np.testing.assert_allclose(actual[name], array, 1e-5, 1e-5, err_msg=name)

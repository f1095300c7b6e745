"""Variables: read at entry, written at exit, owned by a session, printed, planned in place."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.base.errors import (
    FeedError,
    GraphError,
    ParseError,
    ProgramError,
    SessionError,
    TimeLimitError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.base.extensions import bring_extras
from alpenglow.compiler.pipeline import run_stages
from alpenglow.compiler.validate import generate
from alpenglow.debug.exact import exact
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Op
from alpenglow.ir.staged import Part, StagedModel
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.text import side_weights as graph_weights
from alpenglow.ir.types import TensorType
from alpenglow.ir.verify import verify_graph
from alpenglow.machines.api import Artifact, Entry
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice, Transpose
from alpenglow.program import Program, parse_program, print_program
from alpenglow.program.instr import Instr, whole
from alpenglow.program.interpret import interpret
from alpenglow.program.text import side_weights as program_weights
from alpenglow.runtime.executables.installed import Installed
from alpenglow.runtime.session.held import Held
from devices import Chip

Array = NDArray[Any]
WAYS = [("interpreter", 1), ("cpu", 1), ("cpu", 2)]
CHECKED = ag.Options(check=True)
BATCH = 21
"""Several groups of sequences, the last one not full."""

STRICT = ag.Options(check=True, numerics="strict")


def ones(*shape: int, value: float = 1) -> Array:
    return np.full(shape, value, np.float32)


def drawn(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def counter(size: int = 4) -> Graph:
    """Count, and return what was counted before and since."""
    g = Graph("counter")
    x = g.input("x", f"f32[{size}]")
    before = g.variable("count", np.zeros(size, np.float32))
    after = g(Add(), before, x)
    g.assign("count", after)
    g.output("before", before)
    g.output("after", after)
    return g


def recurrent(op: Op, steps: int, states: int, batch: int = BATCH, units: int = 17) -> Graph:
    """Run a recurrent layer over steps, from states that are remembered."""
    gates = {1: 1, 2: 4}[states] if not isinstance(op, Gru) else 3
    g = Graph(op.name)
    xw = g.input("xw", f"f32[{steps},{batch},{gates * units}]")
    r = g.constant(drawn(units, gates * units, seed=1) * np.float32(0.3))
    names = ["h", "c"][:states]
    held = [g.variable(n, drawn(batch, units, seed=k)) for k, n in enumerate(names)]
    node = g.add(op, [xw, r, *held])
    g.output("y", node.results[0])
    for name, v in zip(names, node.results[1:], strict=True):
        g.assign(name, v)
    return g


def cell(units: int = 16) -> Graph:
    """One step of an LSTM, written out."""
    g = Graph("cell")
    x = g.input("x", f"f32[2,{units}]")
    h = g.variable("h", drawn(2, units, seed=1))
    c = g.variable("c", drawn(2, units, seed=2))
    w = g.constant(drawn(2 * units, 4 * units, seed=3) * np.float32(0.2))
    sums = g(MatMul(), g(Concat(1), x, h), w)

    def gate(k: int) -> Value:
        return g(Slice((0, k * units), (2, units), (1, 1)), sums)

    kept = g(Mul(), g(Sigmoid(), gate(0)), c)
    new = g(Mul(), g(Sigmoid(), gate(1)), g(Tanh(), gate(2)))
    after = g(Add(), kept, new)
    y = g(Mul(), g(Sigmoid(), gate(3)), g(Tanh(), after))
    g.assign("c", after)
    g.assign("h", y)
    g.output("y", y)
    return g


def looked_up() -> Graph:
    """Add a row of a table, whose number is checked, to a sum."""
    g = Graph("looked_up")
    i = g.input("i", "i64[1]")
    table = g.constant(drawn(8, 5))
    total = g.variable("total", np.zeros((1, 5), np.float32))
    row = g(Gather(0), table, g(InRange(0, 7), i))
    g.assign("total", g(Add(), total, row))
    g.output("y", g(Add(), row, row))
    return g


def swapped_only() -> Graph:
    """Add rows of a table to a sum that is turned around with each call: it is never in place."""
    g = Graph("turned")
    i = g.input("i", "i64[5]")
    table, total = g.constant(drawn(8, 5)), g.variable("total", np.zeros((5, 5), np.float32))
    rows = g(Gather(0), table, g(InRange(0, 7), i))
    g.assign("total", g(Add(), g(Transpose((1, 0)), total), rows))
    g.output("y", g(Neg(), rows))
    return g


def addresses(session: ag.Session) -> dict[str, int]:
    with session.owned() as held:
        return {name: a.ctypes.data for name, a in held.arrays.items()}


def places(g: Graph, target: str = "cpu") -> dict[str, str]:
    """Return, for each variable, the buffer that has it at exit."""
    cells = ag.compile(g, target).artifact.program.variables
    return {name: c.exit for name, c in cells.items()}


def copies(program: Program) -> int:
    return sum(isinstance(op, Copy) for i in program.instrs() for op in i.operators())


# ── what a session computes ──


@pytest.mark.parametrize(("target", "threads"), WAYS)
def test_a_counter_counts_from_call_to_call(target: str, threads: int) -> None:
    exe = ag.compile(counter(100_000), target, threads, options=CHECKED)
    session = exe.session()

    for k in range(3):
        before, after = session(ones(100_000, value=k + 1))
        np.testing.assert_array_equal(before, ones(100_000, value=(0, 1, 3)[k]))
        np.testing.assert_array_equal(after, ones(100_000, value=(1, 3, 6)[k]))
    assert list(session.variables) == ["count"]
    np.testing.assert_array_equal(session.variables["count"], after)
    session.reset()
    np.testing.assert_array_equal(session(x=ones(100_000), outputs=["after"]), ones(100_000))


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_a_call_of_the_executable_begins_anew_and_forgets(target: str) -> None:
    exe = ag.compile(counter(), target)
    session = exe.session()
    session(ones(4, value=5))

    for _ in range(2):
        np.testing.assert_array_equal(exe(ones(4))[1], ones(4))
    np.testing.assert_array_equal(session(ones(4))[1], ones(4, value=6))


@pytest.mark.parametrize(("target", "threads"), WAYS)
@pytest.mark.parametrize(("op", "states"), [(Rnn(), 1), (Gru(), 1), (Lstm(), 2)])
@pytest.mark.sampled(4)
def test_steps_of_a_session_are_the_whole_sequence(
    op: Op, states: int, target: str, threads: int
) -> None:
    gates = 3 if isinstance(op, Gru) else 4 ** (states - 1)
    xw = drawn(6, BATCH, gates * 17, seed=7)
    whole = ag.compile(recurrent(op, 6, states), target, threads, options=STRICT).session()
    step = ag.compile(recurrent(op, 1, states), target, threads, options=STRICT).session()

    expected = whole(xw)
    actual = np.concatenate([step(xw[t : t + 1]) for t in range(6)])

    np.testing.assert_array_equal(actual, expected)
    for name in step.variables:
        np.testing.assert_array_equal(step.variables[name], whole.variables[name])
        np.testing.assert_array_equal(step.variables["h"], expected[-1])


@pytest.mark.parametrize(("target", "threads"), WAYS)
def test_a_written_out_cell_is_what_the_evaluator_makes_of_it(target: str, threads: int) -> None:
    g = cell()
    session = ag.compile(g, target, threads, options=CHECKED).session()
    held: dict[str, Array] = {}

    for k in range(4):
        x = drawn(2, 16, seed=10 + k)
        results = evaluate(g, {"x": x, **held})
        held = {name: results[name] for name in ("h", "c")}
        np.testing.assert_allclose(session(x), results["y"], rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(session.variables["c"], held["c"], rtol=2e-6, atol=1e-6)


def drawn_graph(rng: np.random.Generator) -> Graph:
    """Return a graph of integers with variables that read, move and overwrite each other."""
    g = Graph("drawn")
    pool = [g.input("x", "i32[4,4]")]
    names = ["a", "b", "c"][: rng.integers(1, 4)]
    pool += [g.variable(n, rng.integers(-9, 9, (4, 4)).astype(np.int32)) for n in names]

    def any_of() -> Value:
        return pool[rng.integers(len(pool))]

    for _ in range(rng.integers(0, 7)):
        kind = rng.integers(6)
        if kind < 2:
            v = g((Add(), Sub())[kind], any_of(), any_of())
        elif kind == 2:
            v = g(Neg(), any_of())
        elif kind == 3:
            v = g(Transpose((1, 0)), any_of())
        elif kind == 4:
            halves = [g(Slice((s, 0), (2, 4), (1, 1)), any_of()) for s in (0, 2)]
            v = g(Concat(0), *halves)
        else:
            v = g(Broadcast((4, 4)), g(Slice((1, 0), (1, 4), (1, 1)), any_of()))
        pool.append(v)
    for name in names:
        if rng.random() < 0.9:
            g.assign(name, any_of())
    for k in range(rng.integers(1, 4)):
        g.output(f"y{k}", any_of())
    return g


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(7)
def test_any_graph_of_variables_computes_what_it_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    g = drawn_graph(rng)
    sessions = [ag.compile(g, t, options=CHECKED).session() for t in ("interpreter", "cpu")]
    held: dict[str, Array] = {}

    for timeout in (None, None, None, 60, None):  # the second and what follows are short calls
        x = rng.integers(-9, 9, (4, 4)).astype(np.int32)
        results = evaluate(g, {"x": x, **held})
        held |= {n: results[n] for n in g.initial if n in results}
        for session in sessions:
            for name, y in session.run({"x": x}, timeout=timeout).items():
                np.testing.assert_array_equal(y, results[name])
            for name, array in held.items():
                np.testing.assert_array_equal(session.variables[name], array)
        for name in list(held)[: 1 if timeout else 0]:
            held[name] = held[name] + 1
            for session in sessions:
                session.variables[name] = held[name]


def test_a_variable_that_is_not_assigned_stays_until_it_is_set() -> None:
    g = Graph("scale")
    x, w = g.input("x", "f32[3]"), g.variable("w", ones(3, value=2))
    g.output("y", g(Mul(), x, w))
    session = ag.compile(g, options=CHECKED).session()

    np.testing.assert_array_equal(session(ones(3)), ones(3, value=2))
    session.variables["w"] = [4.0, 5, 6]
    np.testing.assert_array_equal(session(ones(3)), [4, 5, 6])
    np.testing.assert_array_equal(session(ones(3)), [4, 5, 6])


def test_variables_that_take_each_others_place_are_swapped() -> None:
    g = Graph("swap")
    a, b = g.variable("a", ones(2, value=1)), g.variable("b", ones(2, value=2))
    g.assign("a", b)
    g.assign("b", a)
    g.output("y", g(Sub(), a, b))
    session = ag.compile(g, options=CHECKED).session()

    assert [float(session.run({})["y"][0]) for _ in range(4)] == [-1, 1, -1, 1]


@pytest.mark.parametrize("make", [counter, swapped_only])
def test_short_calls_of_sessions_go_on_by_turns(
    make: Callable[[], Graph], monkeypatch: pytest.MonkeyPatch
) -> None:
    exe, wanted = ag.compile(make()), ag.compile(make(), "interpreter").session()
    first, second = exe.session(), exe.session()
    (name,) = exe.inputs
    x = ones(4) if make is counter else np.arange(5)
    calls = [list(wanted.run({name: x}).values()) for _ in range(5)]
    first(x)
    second(x)

    def run_some(*_: object) -> None:
        raise AssertionError("this call is short")

    monkeypatch.setattr(Installed, "run_some", run_some)
    for session, k in ((first, 1), (first, 2), (second, 1), (first, 3), (second, 2), (second, 3)):
        made = session(x)
        for y, z in zip(made if isinstance(made, tuple) else (made,), calls[k], strict=True):
            np.testing.assert_array_equal(y, z)
    first.reset()
    np.testing.assert_array_equal(list(first.run({name: x}).values()), calls[0])


def test_open_extents_beside_variables_are_compiled_as_they_come(tmp_path: Path) -> None:
    g = Graph("sums")
    x = g.input("x", "f32[N,3]")
    total = g.variable("total", np.zeros(3, np.float32))
    g.assign("total", g(Add(), total, g(ReduceSum((0,), False), x)))
    g.output("y", g(Add(), x, g(Broadcast(x.type.shape), g(Reshape((1, 3)), total))))
    exe = ag.compile(g, options=CHECKED)
    session = exe.session()

    for n, before in ((2, 0), (5, 2), (1, 7), (2, 8), (2, 10), (5, 12), (5, 17)):
        np.testing.assert_array_equal(session(ones(n, 3)), ones(n, 3, value=1 + before))
    np.testing.assert_array_equal(session.variables["total"], ones(3, value=22))
    exe.save(tmp_path / "sums.ago")
    again = ag.open(tmp_path / "sums.ago").session()
    for n, before in ((2, 0), (4, 2)):
        np.testing.assert_array_equal(again(ones(n, 3)), ones(n, 3, value=1 + before))


# ── in place ──


def test_a_counter_is_updated_in_place_and_nothing_of_it_is_copied() -> None:
    g = Graph("tick")
    n = g.variable("n", np.zeros(6, np.int64))
    after = g(Add(), n, g.constant(np.ones(6, np.int64)))
    g.assign("n", after)
    g.output("y", g(Neg(), after))
    exe = ag.compile(g)
    session = exe.session()
    place = addresses(session)
    for _ in range(3):
        session.run({})

    assert addresses(session) == place
    assert places(g) == {"n": "n"}
    assert copies(exe.artifact.program) == 0
    np.testing.assert_array_equal(session.variables["n"], np.full(6, 3))


@pytest.mark.parametrize(("op", "states"), [(Rnn(), 1), (Gru(), 1), (Lstm(), 2)])
def test_the_state_of_a_recurrent_layer_is_updated_in_place(op: Op, states: int) -> None:
    exe = ag.compile(recurrent(op, 1, states))
    session = exe.session()
    place = addresses(session)
    session.run({"xw": ones(*exe.inputs["xw"].extents)})

    assert addresses(session) == place
    assert {n: c.exit for n, c in exe.artifact.program.variables.items()} == {n: n for n in place}
    assert copies(exe.artifact.program) == 0


bring_extras()

CARRYING = [
    pytest.param(example, id=f"{cls.name}-{k}")
    for cls in Op.registry.values()
    if cls.carried and hasattr(cls, "examples")
    for k, example in enumerate(cls.examples())
]


@pytest.mark.parametrize("example", CARRYING)
@pytest.mark.sampled(8)
def test_what_an_operator_carries_is_the_same_in_place(example: tuple[Any, ...]) -> None:
    op, *operands = example
    rng = np.random.default_rng(0)
    feeds: dict[str, Array] = {}

    def graph(*, remembers: bool) -> Graph:
        g = Graph(op.name)
        values: list[Value | None] = []
        for k, given in enumerate(operands):
            if given is None or isinstance(given, np.ndarray):
                values.append(None if given is None else g.constant(given))
                continue
            t = TensorType.parse(given)
            array = feeds.setdefault(f"x{k}", generate(t, rng))
            stays = remembers and k in op.carried.values()
            values.append(g.variable(f"x{k}", array) if stays else g.input(f"x{k}", t))
        for k, v in enumerate(g.add(op, values).results):
            if remembers and k in op.carried:
                g.assign(f"x{op.carried[k]}", v)
            else:
                g.output(f"y{k}", v)
        return g

    plain = ag.compile(graph(remembers=False), threads=2)
    exe = ag.compile(graph(remembers=True), threads=2)
    expected = plain.run(feeds)
    session = exe.session()
    actual = session.run({name: feeds[name] for name in exe.inputs})

    assert all(name == c.exit for name, c in exe.artifact.program.variables.items())
    for k, operand in op.carried.items():
        actual[f"y{k}"] = session.variables[f"x{operand}"]
    assert actual.keys() == expected.keys()
    for name, y in expected.items():
        assert actual[name].tobytes() == y.tobytes(), name


def test_the_states_of_a_written_out_cell_are_updated_in_place() -> None:
    assert places(cell()) == {"h": "h", "c": "c"}


def test_a_state_that_a_product_reads_is_swapped_and_not_copied() -> None:
    g = Graph("plain")
    x, h = g.input("x", "f32[4,16]"), g.variable("h", drawn(4, 16))
    g.assign("h", g(Tanh(), g(Add(), x, g(MatMul(), h, g.constant(drawn(16, 16, seed=1))))))
    g.output("y", g(Neg(), x))
    exe = ag.compile(g)
    session = exe.session()
    seen = []
    for _ in range(4):
        session(ones(4, 16))
        seen.append(addresses(session)["h"])

    assert exe.artifact.program.variables["h"].exit != "h"
    assert copies(exe.artifact.program) == 0
    assert seen[0] != seen[1]
    assert seen[2:] == seen[:2]


def test_a_variable_that_is_read_in_other_places_too_is_not_changed_in_place() -> None:
    g = Graph("symmetric")
    a = g.variable("a", drawn(4, 4))
    g.assign("a", g(Add(), a, g(Transpose((1, 0)), a)))
    g.output("y", g(Neg(), g.input("x", "f32[1]")))
    exe = ag.compile(g, options=ag.Options(check=False))
    session = exe.session()
    session(ones(1))

    assert exe.artifact.program.variables["a"].exit != "a"
    np.testing.assert_array_equal(session.variables["a"], drawn(4, 4) + drawn(4, 4).T)


# ── text and files ──


def large() -> Graph:
    """A counter whose initial values are too many to stand inline, and odd ones that are few."""
    g = Graph("a large one")
    x = g.input("x", "f32[40]")
    n = g.variable("the sum", drawn(40))
    odd = g.variable("odd", np.array([np.nan, -0.0, np.inf], np.float32))
    g.assign("the sum", g(Add(), n, x))
    g.output("y", g(Neg(), n))
    g.output("z", g(Neg(), odd))
    return g


def same_bits(a: Value, b: Value) -> bool:
    assert a.array is not None
    assert b.array is not None
    return a.type == b.type and a.array.tobytes() == b.array.tobytes()


@pytest.mark.parametrize("make", [counter, cell, large, lambda: recurrent(Lstm(), 1, 2), looked_up])
def test_every_stage_prints_variables_and_reads_them_back(make: Any) -> None:
    g = make()
    stages: list[Any] = [("import", g)]
    stages += [
        (p.name, ir.copy() if isinstance(ir, Graph) else ir)
        for p, ir in run_stages(g.copy(), ag.Target.parse("cpu"), CHECKED)
    ]

    assert len(stages) > 20
    for name, ir in stages:
        if isinstance(ir, Graph):
            text, read = print_graph(ir), parse_graph(print_graph(ir), graph_weights(ir))
            pairs = zip(ir.initial.values(), read.initial.values(), strict=True)
            assert print_graph(read) == text, name
        else:
            text = print_program(ir)
            again = parse_program(text, program_weights(ir))
            pairs = zip(
                (c.initial for c in ir.variables.values()),
                (c.initial for c in again.variables.values()),
                strict=True,
            )
            assert print_program(again) == text, name
            feeds = {n: np.zeros_like(interpret_input(ir, n)) for n in ir.inputs}
            for label, y in interpret(ir, feeds).items():
                np.testing.assert_array_equal(interpret(again, feeds)[label], y)
        assert all(same_bits(a, b) for a, b in pairs), name


def interpret_input(program: Program, name: str) -> Array:
    t = program.buffers[name].type
    assert t is not None
    return np.empty(t.extents, t.numpy)


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_an_archive_holds_initial_values(target: str, tmp_path: Path) -> None:
    exe = ag.compile(large(), target)
    session = exe.session()
    session(ones(40))
    exe.save(tmp_path / "large.ago")
    opened = ag.open(tmp_path / "large.ago").session()

    np.testing.assert_array_equal(opened.variables["the sum"], drawn(40))
    np.testing.assert_array_equal(opened(ones(40))[0], -drawn(40))
    np.testing.assert_array_equal(opened.variables["the sum"], session.variables["the sum"])
    assert opened.variables["odd"].tobytes() == session.variables["odd"].tobytes()


# ── sessions ──


def test_sessions_are_independent_of_each_other_and_of_threads() -> None:
    exe = ag.compile(counter(1000), threads=1)
    sessions = [exe.session() for _ in range(4)]

    def count(k: int) -> None:
        for _ in range(50):
            sessions[k](ones(1000, value=k))

    threads = [threading.Thread(target=count, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()

    for k, session in enumerate(sessions):
        np.testing.assert_array_equal(session.variables["count"], ones(1000, value=50 * k))


def test_a_session_in_use_refuses_other_calls() -> None:
    session = ag.compile(counter()).session()
    with session.owned():
        with pytest.raises(SessionError, match="another call of this session is running"):
            session(ones(4))
        with pytest.raises(SessionError, match="a session of its own"):
            session.reset()

    np.testing.assert_array_equal(session(ones(4))[1], ones(4))


def test_what_is_read_of_a_variable_is_a_copy_and_what_is_set_is_copied() -> None:
    session = ag.compile(counter()).session()
    mine = ones(4, value=3)
    session.variables["count"] = mine
    mine[:] = 9
    session.variables["count"][:] = 9

    np.testing.assert_array_equal(session(ones(4))[0], ones(4, value=3))


def test_a_variable_takes_only_what_fits_it() -> None:
    session = ag.compile(counter()).session()

    with pytest.raises(FeedError, match=r"'count' cannot be set: .* has shape \(3,\)"):
        session.variables["count"] = ones(3)
    with pytest.raises(FeedError, match=r"'count' cannot be set: .* is float64, expected float32"):
        session.variables["count"] = np.ones(4)
    with pytest.raises(FeedError, match="variable is 'sum', expected one of count"):
        session.variables["sum"] = ones(4)
    with pytest.raises(FeedError, match="variable is 'sum'"):
        session.variables["sum"]
    with pytest.raises(FeedError, match="count"):
        session(ones(4), count=ones(4))


# ── calls that fail ──


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_a_call_with_wrong_inputs_leaves_variables_as_they_were(target: str) -> None:
    session = ag.compile(counter(), target).session()
    session(ones(4))
    with pytest.raises(FeedError):
        session(ones(5))
    with pytest.raises(FeedError):
        session(ones(4), outputs=["nothing"])

    np.testing.assert_array_equal(session(ones(4))[1], ones(4, value=2))


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_a_call_that_fails_under_way_leaves_swapped_variables_as_they_were(target: str) -> None:
    exe = ag.compile(swapped_only(), target)
    session = exe.session()
    rows = np.arange(5)
    session(rows)
    with pytest.raises(FeedError, match="8"):
        session(np.array([0, 1, 2, 3, 8]))
    with pytest.raises(TimeLimitError):
        session.run({"i": rows}, timeout=1e-9)

    assert exe.artifact.program.variables["total"].exit != "total"
    np.testing.assert_array_equal(session.variables["total"], drawn(8, 5)[:5])
    session(rows)
    np.testing.assert_array_equal(session.variables["total"], drawn(8, 5)[:5].T + drawn(8, 5)[:5])


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
def test_a_call_that_fails_in_place_says_so_until_the_session_is_reset(target: str) -> None:
    g = looked_up()
    assert places(g, target)["total"] == "total"
    exe = ag.compile(g, target)
    session, other = exe.session(), exe.session()
    session(np.array([1]))
    with pytest.raises(FeedError, match="8"):
        session(np.array([8]))

    for use in (lambda: session(np.array([1])), lambda: session.variables["total"]):
        with pytest.raises(SessionError, match="total may have changed in place, then came Feed"):
            use()
    np.testing.assert_array_equal(other.variables["total"], np.zeros((1, 5)))
    session.reset()
    session(np.array([2]))
    np.testing.assert_array_equal(session.variables["total"], drawn(8, 5)[2:3])


def test_an_interrupt_as_variables_are_swapped_says_so_until_the_session_is_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(held: Held, program: Program) -> None:
        raise KeyboardInterrupt

    session = ag.compile(swapped_only()).session()
    with monkeypatch.context() as m:
        m.setattr(Held, "advance", interrupted)
        with pytest.raises(KeyboardInterrupt):
            session(np.arange(5))

    with pytest.raises(SessionError, match="total may have changed, then came KeyboardInterrupt"):
        session(np.arange(5))
    session.reset()
    session(np.arange(5))


# ── devices ──


@pytest.mark.parametrize("ops", [(Add,), (Neg,), (Add, Neg), (Add, Neg, Copy)])
@pytest.mark.parametrize("seed", range(6))
def test_a_device_with_memory_of_its_own_hands_variables_back(
    ops: tuple[type, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    g = drawn_graph(rng)
    exe = ag.compile(g, "interpreter", options=ag.Options(check=False))

    def runs(i: Instr) -> bool:
        dense = all(r == whole(r.buffer, r.type) for r in (*i.outs, *i.reads()))
        return dense and all(isinstance(op, ops) for op in i.operators())

    table = tuple(
        Entry(f"{i.op.name}_{n}" if runs(i) else "", 1)
        for n, i in enumerate(exe.artifact.program.instrs())
    )
    expected = exe.session()
    other = Installed(Artifact(exe.target, exe.artifact.program, {}, table), device=Chip())
    actual = other.session()

    for _ in range(3):
        x = rng.integers(-9, 9, (4, 4)).astype(np.int32)
        results = actual.run({"x": x})
        for name, y in expected.run({"x": x}).items():
            np.testing.assert_array_equal(results[name], y)
        for name in actual.variables:
            np.testing.assert_array_equal(actual.variables[name], expected.variables[name])


# ── refusals ──


def test_a_graph_refuses_variables_that_mean_nothing() -> None:
    g = counter()

    with pytest.raises(TypeRuleError, match="'count' of graph counter is already assigned"):
        g.assign("count", g.inputs["x"])
    with pytest.raises(TypeRuleError, match="'sum' is assigned, expected a variable: count"):
        g.assign("sum", g.inputs["x"])
    with pytest.raises(TypeRuleError, match="already has an input called 'x'"):
        g.variable("x", ones(1))
    with pytest.raises(TypeRuleError, match="an output called 'after'"):
        g.variable("after", ones(1))
    with pytest.raises(TypeRuleError, match="a variable called 'count'"):
        g.output("count", g.inputs["x"])
    g.variable("wide", np.zeros(5, np.float32))
    with pytest.raises(TypeRuleError, match=r"'wide' is assigned f32\[4\], expected f32\[5\]"):
        g.assign("wide", g.inputs["x"])


def test_passes_keep_variables_though_nothing_else_reads_them() -> None:
    g = Graph("kept")
    x, n = g.input("x", "f32[2]"), g.variable("n", ones(2))
    g.variable("unread", ones(3))
    g(Neg(), x)
    g.assign("n", g(Mul(), g(Add(), n, n), x))
    g.output("y", x)

    assert g.prune() == 1
    assert set(g.copy().variables) == {"n", "unread"}
    assert g.users(g.variables["n"].value) == 2
    session = ag.compile(g, options=CHECKED).session()
    session(ones(2, value=3))
    np.testing.assert_array_equal(session.variables["n"], ones(2, value=6))
    np.testing.assert_array_equal(session.variables["unread"], ones(3))


def test_a_graph_whose_variables_were_changed_afterwards_is_found_out() -> None:
    def changed(change: Callable[[Graph], object]) -> Graph:
        g = counter()
        change(g)
        return g

    verify_graph(counter())
    for change, message in (
        (lambda g: g.inputs.pop("count"), "is not defined|has no input"),
        (lambda g: g.initial.update(more=g.initial["count"]), "variable %more has no input"),
        (lambda g: g.initial.update(count=g.inputs["x"]), "begins with .*, expected a constant"),
        (
            lambda g: g.initial.update(count=g.constant(ones(3))),
            r"is f32.* at entry, expected f32\[3\]",
        ),
    ):
        with pytest.raises(GraphError, match=message):
            verify_graph(changed(change))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "assign count = %0",
            "assign cuont = %0",
            "line 5: .* 'cuont' is assigned, expected a variable",
        ),
        ("assign count = %0", "assign count = %0\nassign count = %x", "already assigned"),
        ("variable %count : f32[4]", "variable %count : f32[3]", "4 elements"),
        ("output after = %0", "output count = %0", "a variable called 'count'"),
        (
            "input %x : f32[4]",
            "input %x : f32[4]\nvariable %x : i64[0] = []",
            "already has an input",
        ),
    ],
)
def test_a_text_of_a_graph_that_breaks_a_rule_of_variables_is_refused(
    old: str, new: str, message: str
) -> None:
    text = print_graph(counter())
    assert old in text

    with pytest.raises(ParseError, match=message):
        parse_graph(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("  assign count = %count\n", "", "expected no write to a variable at entry"),
        (
            "assign count = %count",
            "assign count = %other",
            "expected no write to a variable at entry",
        ),
        ("assign count = %count", "assign count = %x", "buffer 'x' is already declared"),
        ("assign count = %count", "assign cuont = %count", "'cuont' is not declared"),
        ("assign count = %count", "assign count = %count\nassign count = %c", "already assigned"),
        ("output %after : f32[4]", "output %after : f32[4] called count", "two outputs are called"),
    ],
)
def test_a_text_of_a_program_that_breaks_a_rule_of_variables_is_refused(
    old: str, new: str, message: str
) -> None:
    text = print_program(ag.compile(counter()).artifact.program)
    assert old in text

    with pytest.raises((ParseError, ProgramError), match=message):
        parse_program(text.replace(old, new))


def test_a_program_that_does_not_write_what_it_assigns_is_refused() -> None:
    program = ag.compile(swapped_only()).artifact.program
    text = print_program(program)
    (line,) = [x for x in text.splitlines() if x.startswith("  assign total = ")]
    label = line.split("= ")[1]
    assert text.count(f"{label} f32[5,5] = ") == 1

    with pytest.raises(ProgramError, match=f"output {label} is unwritten"):
        parse_program(
            text.replace(f"{label} f32[5,5] = ", "%y f32[5,5] = "), program_weights(program)
        )


def test_what_cannot_keep_variables_refuses_them() -> None:
    g = counter()

    with pytest.raises(UnsupportedError, match="with variables are not supported"):
        exact(g, {"x": ones(4)})


class InParts(StagedModel):
    """A model of one part, the graph of which has a variable."""

    name, file, kinds, outputs, constants = "parts", "parts", {}, {"after": None}, {}
    inputs = {"x": TensorType.parse("f32[4]")}  # noqa: RUF012

    def begin(self) -> str:
        return "the whole"

    def part(self, rest: Any, known: Any) -> Part:
        return Part(counter(), (), (), None)


def test_a_part_of_a_model_that_depends_on_data_may_have_no_variables() -> None:
    with pytest.raises(
        UnsupportedError, match=r"graph counter has variables \(count\), which are not supported"
    ):
        ag.compile(InParts())(ones(4))


def test_instructions_are_timed_on_variables_of_nobody() -> None:
    exe = ag.compile(counter())
    session = exe.session()
    session(ones(4))

    assert len(exe.timings({"x": ones(4)}, rounds=2)) == 3
    np.testing.assert_array_equal(session.variables["count"], ones(4))

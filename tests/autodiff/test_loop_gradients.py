"""Gradients of loops are those of their iterations written out one after another.

Each loop is built twice, as a `Scan` and as the nodes of all iterations; first and second
derivatives of both must agree, evaluated and compiled.  Some are compared with differences too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.text import parse_graph, print_graph
from alpenglow.ir.types import COMPLEX, FLOATS, Array, TensorType
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.algebra import plus, times
from alpenglow.ops.elementwise.arithmetic import Add, Floor, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.complex import ViewAsReal
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.elementwise.transcendental import Exp, Sin, Sqrt
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ReduceSum, as_type
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast, Concat, Reshape, Slice
from alpenglow.passes.control import shrink_control
from differences import check

Build = Callable[..., Sequence[Value]]


def region(types: Sequence[str], build: Build) -> Graph:
    """Return the region that `build` makes of a graph and its inputs."""
    g = Graph("body")
    inputs = [g.input(f"a{i}", t) for i, t in enumerate(types)]
    for i, v in enumerate(build(g, *inputs)):
        g.output(f"o{i}", v)
    return g


@dataclass(frozen=True)
class Loop:
    """A loop: `types` are those of the inputs of its body, without the number of the iteration."""

    op: Scan
    types: tuple[str, ...]
    build: Build
    same: tuple[int, ...] = ()
    """Operands that are the one before."""

    def operands(self, g: Graph) -> list[Value]:
        """Add an input for each operand."""
        xs: list[Value] = []
        scanned = range(self.op.carried_count, self.op.carried_count + self.op.scanned_count)
        for i, text in enumerate(self.types):
            t = Graph("type").input("x", text).type
            t = t.with_shape((self.op.count, *t.shape)) if i in scanned else t
            xs.append(xs[-1] if i in self.same else g.input(f"x{i}", t))
        return xs

    @property
    def body(self) -> Graph:
        return region(("i64[]", *self.types), self.build)


def rolled(g: Graph, loop: Loop, xs: Sequence[Value]) -> list[Value]:
    return list(g.add(loop.op, xs, [loop.body]).results)


def unrolled(g: Graph, loop: Loop, xs: Sequence[Value]) -> list[Value]:
    return iterations(g, loop.op, loop.body, xs)


def iterations(g: Graph, op: Scan, body: Graph, xs: Sequence[Value]) -> list[Value]:
    """Append all iterations of a loop one after another."""
    carried, scanned, captured = op.split(xs)
    types = [v.type for v in body.outputs.values()][op.carried_count :]
    assert isinstance(op.count, int)
    rows: list[list[Value]] = [[] for _ in types]
    for turn in range(op.count)[:: -1 if op.reverse else 1]:
        number = g.constant(np.int64(turn))
        now = [row_of(g, x, turn) for x in scanned]
        made = written_out(g, body, [number, *carried, *now, *captured])
        carried = made[: op.carried_count]
        for column, row in zip(rows, made[op.carried_count :], strict=True):
            column.insert(0 if op.reverse else turn, g(Reshape((1, *row.type.shape)), row))
    return [*carried, *(stacked(g, t, column) for t, column in zip(types, rows, strict=True))]


def row_of(g: Graph, x: Value, turn: int) -> Value:
    sizes = (1, *x.type.shape[1:])
    row = g(Slice((turn, *[0] * (x.type.rank - 1)), sizes, (1,) * x.type.rank), x)
    return g(Reshape(sizes[1:]), row)


def stacked(g: Graph, t: TensorType, rows: Sequence[Value]) -> Value:
    if not rows:
        return g(Broadcast((0, *t.shape)), g.constant(np.zeros((), t.numpy)))
    return g(Concat(0), *rows)


def written_out(g: Graph, body: Graph, operands: Sequence[Value]) -> list[Value]:
    """Append what a region computes, the loops in it written out too."""
    env = dict(zip(body.inputs.values(), operands, strict=True))
    env |= {v: v.detached() for v in body.constants()}
    for node in body.nodes:
        inputs = [env[v] for v in node.inputs if v is not None]
        if isinstance(node.op, Scan):
            results = iterations(g, node.op, node.regions[0], inputs)
        else:
            results = list(g.add(node.op, inputs, node.regions).results)
        env.update(zip(node.results, results, strict=True))
    return [env[v] for v in body.outputs.values()]


def weighted(g: Graph, values: Sequence[Value], seed: int) -> Value:
    """Return the sum of all elements of floats and complex numbers, times random numbers."""
    random, total = np.random.default_rng(seed), g.constant(np.float64(0))
    for v in values:
        if v.type.dtype in FLOATS | COMPLEX:
            x = as_type(g, g(ViewAsReal(), v) if v.type.dtype in COMPLEX else v, "f64")
            factors = g.constant(random.uniform(-1, 1, x.type.extents))
            part = g(ReduceSum(tuple(range(x.type.rank)), False), g(Mul(), x, factors))
            total = g(Add(), total, part)
    return total


def derived(
    loop: Loop, made: Callable[[Graph, Loop, Sequence[Value]], list[Value]],
    read: Sequence[int] | None = None,
) -> Graph:  # fmt: skip
    """Return a graph of the results of a loop, of first derivatives and of second ones."""
    g = Graph("derived")
    operands = loop.operands(g)
    xs = list(dict.fromkeys(v for v in operands if v.type.dtype in FLOATS | COMPLEX))
    results = made(g, loop, operands)
    for i, v in enumerate(results):
        g.output(f"y{i}", v)
    y = weighted(g, results if read is None else [results[i] for i in read], 5)
    first = gradients(g, y, xs)
    second = gradients(g, weighted(g, first, 6), xs)
    for order, values in (("d", first), ("dd", second)):
        for x, dx in zip(xs, values, strict=True):
            g.output(f"{order}{x.name}", dx)
    g.prune()
    return g


def feeds_of(g: Graph) -> dict[str, Array]:
    random = np.random.default_rng(0)

    def drawn(t: TensorType) -> Array:
        if t.numpy.kind in "iu":
            return random.integers(0, 3, t.extents).astype(t.numpy)
        parts = random.uniform(-1, 1, (2, *t.extents))
        return np.asarray(parts[0] + 1j * parts[1] if t.numpy.kind == "c" else parts[0], t.numpy)

    return {name: drawn(v.type) for name, v in g.inputs.items()}


def recur(g: Graph, i: Value, h: Value, x: Value, w: Value) -> list[Value]:
    y = g(Tanh(), g(Add(), g(MatMul(), h, w), x))
    return [y, g(Mul(), y, y)]


def numbered(g: Graph, i: Value, h: Value, x: Value) -> list[Value]:
    factor = g(Broadcast((3,)), g(Cast("f64"), i))
    return [g(Sin(), g(Add(), g(Mul(), h, factor), x))]


def counted(g: Graph, i: Value, n: Value, h: Value) -> list[Value]:
    """Carry an integer, by which floats are multiplied, next to them."""
    after = g(Add(), n, g.constant(np.int64(2)))
    return [after, g(Mul(), g(Sin(), h), g(Broadcast((3,)), g(Cast("f64"), n))), after]


def swapped(g: Graph, i: Value, a: Value, b: Value) -> list[Value]:
    return [b, a, g(Mul(), a, g(Sin(), b))]


def handed_on(g: Graph, i: Value, a: Value, b: Value, x: Value, w: Value) -> list[Value]:
    """Return inputs: a carried value as it was, a row, a captured value, and one of them twice."""
    return [a, x, x, b, w, g(Mul(), a, b), b]


def overwritten(g: Graph, i: Value, a: Value, b: Value, x: Value) -> list[Value]:
    """Carry on a constant, and a value that does not depend on the one before."""
    return [g.constant(np.array([0.5, 1.5, -1.0])), g(Sin(), x), g(Mul(), a, b)]


def doubled(g: Graph, i: Value, h: Value, w: Value, again: Value) -> list[Value]:
    return [g(Sin(), g(Add(), g(Mul(), h, w), g(Mul(), again, again)))]


def mapped(g: Graph, i: Value, x: Value, w: Value) -> list[Value]:
    return [g(Mul(), g(Exp(), x), w), g.constant(np.array(2.0))]


def flat(g: Graph, i: Value, h: Value, x: Value) -> list[Value]:
    """Pass what floors on, which has no gradient, and rows of it."""
    return [g(Floor(), h), g(Mul(), g(Floor(), x), x), g(Floor(), x)]


def looked_up(g: Graph, i: Value, h: Value, token: Value, rows: Value) -> list[Value]:
    return [g(Tanh(), g(Add(), h, g(Gather(0), rows, token)))]


def at_last(g: Graph, i: Value, a: Value, b: Value, c: Value, x: Value) -> list[Value]:
    """Carry x to the last result in as many iterations as there are carried values."""
    return [g(Sin(), x), g(Mul(), a, a), g(Exp(), b)]


def holding(op: Scan, inner: Loop) -> Build:
    """Return a body that runs another loop on its carried value, its row and what it captures."""

    def build(g: Graph, i: Value, h: Value, x: Value, w: Value) -> list[Value]:
        h2, rows = g.add(inner.op, [h, g(Mul(), x, x), w], [inner.body]).results
        return [h2, g(ReduceSum((0,), False), rows)]

    return build


def deciding(g: Graph, i: Value, h: Value, x: Value, w: Value) -> list[Value]:
    """Choose a branch by data; both read the captured value, one of them the row."""
    zero = g.constant(np.float64(0))
    condition = g(Greater(), g(ReduceSum((0,), False), x), zero)
    types = [str(v.type) for v in (h, x, w)]
    then = region(types, lambda b, h, x, w: [b(Sin(), b(Mul(), h, w)), b(Mul(), x, x)])
    other = region(types, lambda b, h, x, w: [b(Tanh(), b(Sub(), w, h)), w])
    return list(g.add(If(), [condition, h, x, w], [then, other]).results)


STEP = ("f64[2,3]", "f64[2,3]", "f64[3,3]")
INNER = Loop(Scan(2, 1, 1, True), ("f64[3]", "f64[3]", "f64[3]"), lambda g, i, h, x, w: [
    g(Sin(), g(Add(), g(Mul(), h, w), x)), g(Mul(), h, x)])  # fmt: skip

LOOPS = {
    "recurrent": Loop(Scan(3, 1, 1), STEP, recur),
    "reversed": Loop(Scan(3, 1, 1, True), STEP, recur),
    "once": Loop(Scan(1, 1, 1), STEP, recur),
    "never": Loop(Scan(0, 1, 1), STEP, recur),
    "numbered": Loop(Scan(4, 1, 1, True), ("f64[3]", "f64[3]"), numbered),
    "counted": Loop(Scan(3, 2), ("i64[]", "f64[3]"), counted),
    "swapped": Loop(Scan(3, 2), ("f64[3]", "f64[3]"), swapped),
    "handed on": Loop(Scan(3, 2, 1), ("f64[3]",) * 4, handed_on),
    "overwritten": Loop(Scan(3, 2, 1), ("f64[3]",) * 3, overwritten),
    "overwritten never": Loop(Scan(0, 2, 1), ("f64[3]",) * 3, overwritten),
    "captured twice": Loop(Scan(3, 1), ("f64[3]",) * 3, doubled, (2,)),
    "carried and captured": Loop(Scan(3, 1), ("f64[3]",) * 3, doubled, (1, 2)),
    "without carried values": Loop(Scan(3, 0, 1), ("f64[2]", "f64[2]"), mapped),
    "without gradients": Loop(Scan(3, 1, 1), ("f64[3]", "f64[3]"), flat),
    "looked up": Loop(Scan(4, 1, 1), ("f64[2]", "i64[]", "f64[3,2]"), looked_up),
    "at last": Loop(Scan(4, 3, 1), ("f64[2]",) * 4, at_last),
    "loop in loop": Loop(
        Scan(3, 1, 1), ("f64[3]", "f64[2,3]", "f64[3]"), holding(Scan(3, 1, 1), INNER)),
    "branch in loop": Loop(Scan(4, 1, 1), ("f64[3]",) * 3, deciding),
    "complex": Loop(Scan(3, 1, 1), ("c64[2,3]", "c64[2,3]", "c64[2,3]"), lambda g, i, h, x, w: [
        plus(g, times(g, h, times(g, h, w)), x), times(g, w, x)]),
    "f32": Loop(Scan(3, 1, 1), ("f32[2,3]", "f32[2,3]", "f32[3,3]"), recur),
    "f16": Loop(Scan(3, 1, 1), ("f16[2,3]", "f16[2,3]", "f16[3,3]"), recur),
}  # fmt: skip

ROUGH = {"f16": 2e-2, "f32": 2e-5, "c64": 2e-5}


def assert_alike(loop: Loop, found: dict[str, Array], expected: dict[str, Array]) -> None:
    rough = max(ROUGH.get(t.partition("[")[0], 1e-12) for t in loop.types)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        size = max(1.0, float(np.abs(value).max(initial=0)))
        np.testing.assert_allclose(found[name], value, rough, rough * size, err_msg=name)


@pytest.mark.sampled(5, "recurrent", "never", "loop in loop", "branch in loop")
@pytest.mark.parametrize("name", LOOPS)
def test_gradients_are_those_of_the_iterations_written_out(name: str) -> None:
    loop = LOOPS[name]
    g, other = derived(loop, rolled), derived(loop, unrolled)
    feeds = feeds_of(g)
    expected = evaluate(other, feeds)

    assert any(isinstance(n.op, Scan) for n in g.nodes)
    assert not any(isinstance(n.op, Scan) for n in other.nodes)
    assert_alike(loop, evaluate(g, feeds), expected)
    assert_alike(loop, ag.compile(g, threads=1).run(feeds), expected)


SOME = [name for name in LOOPS if name not in ("without gradients", "never")]


@pytest.mark.sampled(3, "recurrent")
@pytest.mark.parametrize("name", SOME)
def test_results_that_nobody_reads_have_no_gradient(name: str) -> None:
    loop = LOOPS[name]
    count = len(loop.body.outputs)
    for read in {(0,), (count - 1,)}:
        g, other = derived(loop, rolled, read), derived(loop, unrolled, read)
        feeds = feeds_of(g)

        assert_alike(loop, evaluate(g, feeds), evaluate(other, feeds))


@pytest.mark.parametrize("name", ["recurrent", "swapped", "loop in loop", "branch in loop"])
def test_gradients_agree_with_differences(name: str) -> None:
    loop, g = LOOPS[name], Graph("loop")
    y = weighted(g, rolled(g, loop, loop.operands(g)), 5)
    check(g, y, feeds_of(g))


def branched(g: Graph, condition: Value, x: Value, w: Value) -> list[Value]:
    """Append a branch, one of whose ways is a loop; the other does not read w."""
    loop = Loop(Scan(3, 1), ("f64[3]", "f64[3]"), lambda g, i, h, w: [g(Sin(), g(Mul(), h, w)), h])
    then = region(("f64[3]",) * 2, lambda b, x, w: rolled(b, loop, [x, w]))
    other = region(("f64[3]",) * 2, lambda b, x, w: [
        b(Exp(), x), b(Broadcast((3, 3)), b(Mul(), x, x))])  # fmt: skip
    return list(g.add(If(), [condition, x, w], [then, other]).results)


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("read", [(0, 1), (0,), (1,)])
def test_a_branch_has_the_gradients_of_what_runs(truth: bool, read: tuple[int, ...]) -> None:
    outs = []
    for one in (False, True):
        g = Graph("branch")
        condition, x, w = g.input("c", "bool[]"), g.input("x", "f64[3]"), g.input("w", "f64[3]")
        results = branched(g, condition, x, w)
        if one:
            (node,) = [n for n in g.nodes if isinstance(n.op, If)]
            results = written_out(g, node.regions[1 - truth], [x, w])
        first = gradients(g, weighted(g, [results[i] for i in read], 5), [x, w])
        second = gradients(g, weighted(g, first, 6), [x, w])
        for name, v in zip(("dx", "dw", "ddx", "ddw"), [*first, *second], strict=True):
            g.output(name, v)
        g.prune()
        feeds = {"c": np.array(truth), "x": np.array([0.5, -1, 2]), "w": np.array([1, 0.3, -0.7])}
        outs += [evaluate(g, feeds), ag.compile(g, threads=1).run(feeds)]

    for name in outs[0]:
        for other in outs[1:]:
            np.testing.assert_allclose(other[name], outs[0][name], 1e-12, 1e-14, err_msg=name)


def test_only_the_branch_that_runs_has_a_part_in_a_gradient() -> None:
    g = Graph("root")
    condition, x = g.input("c", "bool[]"), g.input("x", "f64[2]")
    ways = [region(["f64[2]"], lambda b, x: [b(Sqrt(), x)]), region(["f64[2]"], lambda b, x: [x])]
    g.output("dx", gradients(g, g.add(If(), [condition, x], ways).output, [x])[0])
    feeds = {"c": np.array(False), "x": np.zeros(2)}

    assert ag.compile(g, threads=1).run(feeds)["dx"].tolist() == [1, 1]
    assert np.isinf(evaluate(g, feeds | {"c": np.array(True)})["dx"]).all()


def test_a_captured_value_that_is_also_read_outside_has_the_sum() -> None:
    outs = []
    for made in (rolled, unrolled):
        g, loop = Graph("shared"), LOOPS["recurrent"]
        h, x, w = loop.operands(g)
        before = g(Sin(), w)
        results = made(g, loop, [h, x, before])
        y = weighted(g, [*results, before, g(MatMul(), h, w)], 5)
        for v, dv in zip((w, before), gradients(g, y, [w, before]), strict=True):
            g.output(f"d{v.name or 'before'}", dv)
        outs.append(evaluate(g, feeds_of(g)))

    assert_alike(loop, outs[0], outs[1])


@pytest.mark.parametrize("reverse", [False, True])
def test_the_count_may_be_open(reverse: bool) -> None:
    g = Graph("open")
    h, x, w = g.input("h", "f64[2,3]"), g.input("x", "f64[N,2,3]"), g.input("w", "f64[3,3]")
    loop = Loop(Scan(x.type.shape[0], 1, 1, reverse), STEP, recur)
    results = rolled(g, loop, [h, x, w])
    y = g(ReduceSum((0, 1), False), g(Mul(), results[0], results[0]))
    y = g(Add(), y, g(ReduceSum((0, 1, 2), False), results[1]))
    first = gradients(g, y, [h, x, w])
    for name, v in zip(("dh", "dx", "dw"), first, strict=True):
        g.output(name, v)
    g.output("ddw", gradients(g, g(ReduceSum((0, 1), False), g(Mul(), first[2], first[2])), [w])[0])
    exe, random = ag.compile(g, threads=1), np.random.default_rng(1)
    for count in (3, 1, 0, 7):
        feeds = {"h": random.uniform(-1, 1, (2, 3)), "x": random.uniform(-1, 1, (count, 2, 3)),
                 "w": random.uniform(-1, 1, (3, 3))}  # fmt: skip
        other = Graph("written out")
        h, x, w = (other.input(k, f"f64[{','.join(map(str, a.shape))}]") for k, a in feeds.items())
        results = unrolled(other, replace(loop, op=replace(loop.op, count=count)), [h, x, w])
        y = other(ReduceSum((0, 1), False), other(Mul(), results[0], results[0]))
        y = other(Add(), y, other(ReduceSum((0, 1, 2), False), results[1]))
        first = gradients(other, y, [h, x, w])
        for name, v in zip(("dh", "dx", "dw"), first, strict=True):
            other.output(name, v)
        total = other(ReduceSum((0, 1), False), other(Mul(), first[2], first[2]))
        other.output("ddw", gradients(other, total, [w])[0])
        assert_alike(loop, exe.run(feeds), evaluate(other, feeds))


def test_the_forward_loop_runs_once() -> None:
    g = derived(LOOPS["recurrent"], rolled)
    for name in [n for n in g.outputs if n.startswith("dd")]:
        del g.outputs[name]
    g.prune()
    assert len([n for n in g.nodes if isinstance(n.op, Scan)]) == 3
    shrink_control(g)

    assert len([n for n in g.nodes if isinstance(n.op, Scan)]) == 2


def test_nothing_is_stored_for_a_loop_whose_gradient_reads_no_carried_value() -> None:
    loop = Loop(Scan(3, 1), ("f64[3]", "f64[3]"), lambda g, i, h, w: [g(Add(), h, g(Sin(), w))])
    g = Graph("sum")
    h, w = loop.operands(g)
    for i, v in enumerate(gradients(g, rolled(g, loop, [h, w])[0], [h, w])):
        g.output(f"d{i}", v)
    g.prune()
    (node,) = [n for n in g.nodes if isinstance(n.op, Scan)]

    assert node.op == Scan(3, 2, 0, True)


def test_a_loop_of_unknown_count_is_refused() -> None:
    g = Graph("while")
    x, going = g.input("x", "f64[3]"), g.input("going", "bool[]")
    zero = g.constant(np.float64(0))
    body = region(["f64[3]"], lambda b, x: [
        b(Greater(), b(ReduceSum((0,), False), x), zero), b(Neg(), x)])  # fmt: skip
    y = g.add(While(1), [going, x], [body]).output
    with pytest.raises(UnsupportedError, match=r"while is not .* depends on data.*\n.*try: Scan"):
        gradients(g, y, [x])


def test_text_keeps_gradients_of_loops() -> None:
    g = derived(LOOPS["loop in loop"], rolled)
    text = print_graph(g)
    again = parse_graph(text, {v.digest: v.array for v in g.constants() if v.array is not None})

    assert print_graph(again) == text == print_graph(g.copy())


def recurrent_network() -> Graph:
    """Return a network that adds up the first of three numbers in each of N steps."""
    g = Graph("adds")
    x, y = g.input("x", "f32[N,8,3]"), g.input("y", "f32[8,1]")
    types = ("f32[8,4]", "f32[8,3]", "f32[3,4]", "f32[4,4]")
    loop = Loop(Scan(x.type.shape[0], 1, 1), types, lambda g, i, h, x, w, u: [
        g(Add(), g(MatMul(), x, w), g(MatMul(), h, u))])  # fmt: skip
    random = np.random.default_rng(4)
    w = g.constant(random.uniform(-0.5, 0.5, (3, 4)).astype(np.float32), "w")
    u = g.constant(random.uniform(-0.5, 0.5, (4, 4)).astype(np.float32), "u")
    out = g.constant(random.uniform(-0.5, 0.5, (4, 1)).astype(np.float32), "out")
    h = rolled(g, loop, [g.constant(np.zeros((8, 4), np.float32)), x, w, u])[0]
    g.output("sum", g(MatMul(), h, out))
    g.output("loss", train.mse(g, g.outputs["sum"], y))
    return g


def test_a_recurrent_network_learns_over_sequences_of_any_length() -> None:
    t = train.Trainer(ag.trainable(recurrent_network()), "loss", train.Adam(0.03), threads=1)
    random, losses = np.random.default_rng(5), []
    for step in range(300):
        x = random.uniform(-1, 1, (2 + step % 4, 8, 3)).astype(np.float32)
        losses.append(float(t.step({"x": x, "y": x[:, :, :1].sum(0)})["loss"]))
    model = t.trained()
    x = random.uniform(-1, 1, (9, 8, 3)).astype(np.float32)

    assert t.parameters == ["w", "u", "out"]
    assert np.mean(losses[-20:]) < 0.02 * np.mean(losses[:20])
    assert any(isinstance(n.op, Scan) for n in model.nodes)
    found = ag.compile(model, threads=1).run({"x": x})["sum"]
    np.testing.assert_allclose(found, x[:, :, :1].sum(0), 0.3, 0.3)

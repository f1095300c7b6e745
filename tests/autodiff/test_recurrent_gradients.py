"""Gradients of recurrent layers over all that their attributes and operands allow.

They are compared with central differences, and compiled ones with evaluated ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.autodiff import gradients
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array, type_of
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.sequence.recurrent import FORMULAS, Activation, Gru, Lstm, Rnn
from alpenglow.ops.sequence.recurrent_integer import LstmInteger
from alpenglow.ops.tensor.movement import Transpose

Layer = Lstm | Gru | Rnn

SHAPES = {Lstm: (4, 3), Gru: (3, 2), Rnn: (1, 1)}
"""How many gates and activations each has."""


def operands(
    op: Layer, sizes: tuple[int, int, int], lengths: Sequence[int] | None, extra: bool
) -> list[Array | None]:
    """Return operands for so many steps, sequences and units; `extra` is the optional one."""
    steps, batch, units = sizes
    random, gates = np.random.default_rng(0), SHAPES[type(op)][0]

    def drawn(*shape: int) -> Array:
        return random.uniform(-1, 1, shape)

    xs: list[Array | None] = [
        2 * drawn(steps, batch, gates * units), drawn(units, gates * units) / max(units, 1) ** 0.5,
        drawn(batch, units),
    ]  # fmt: skip
    if isinstance(op, Lstm):
        xs += [drawn(batch, units), drawn(3, units) if extra else None]
    if isinstance(op, Gru):
        xs.append(drawn(units) if extra else None)
    return [*xs, None if lengths is None else np.array(lengths, np.int32)]


def built(op: Layer, xs: Sequence[Array | None], which: Sequence[int]) -> tuple[Graph, list[str]]:
    """Return a graph of the gradients of weighted results, and the names of what they are for."""
    g, random = Graph("layer"), np.random.default_rng(1)
    values = [None if x is None else g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
    results = g.add(op, values).results
    floats = [v for v in values if v is not None and v.type.dtype != "i32"]
    total: list[Value] | None = None
    for i in which:
        t = results[i].type
        dy = g.constant(random.uniform(-1, 1, t.extents).astype(t.numpy))
        g.output(f"weights{i}", dy)
        g.output(f"y{i}", results[i])
        one = gradients(g, results[i], floats, dy=dy)
        total = one if total is None else [g(Add(), a, b) for a, b in zip(total, one, strict=True)]
    for v, dv in zip(floats, total or [], strict=True):
        g.output(f"d{v.name}", dv)
    g.prune()
    return g, [str(v.name) for v in floats]


def feeds_of(xs: Sequence[Array | None]) -> dict[str, Array]:
    return {f"x{i}": x for i, x in enumerate(xs) if x is not None}


def check(
    op: Layer, sizes: tuple[int, int, int], lengths: Sequence[int] | None = None,
    extra: bool = False, which: Sequence[int] | None = None,
) -> None:  # fmt: skip
    """Assert that gradients are what differences say."""
    xs = operands(op, sizes, lengths, extra)
    which = which if which is not None else range(3 if isinstance(op, Lstm) else 2)
    g, names = built(op, xs, which)
    feeds, random, step = feeds_of(xs), np.random.default_rng(2), 1e-6
    found = evaluate(g, feeds)
    for name in names:
        way = random.standard_normal(feeds[name].shape)
        ends = [evaluate(g, feeds | {name: feeds[name] + s * way}) for s in (step, -step)]
        changes = [(ends[0][f"y{i}"] - ends[1][f"y{i}"]) * found[f"weights{i}"] for i in which]
        change = sum(c.sum() for c in changes)
        actual = (found[f"d{name}"] * way).sum()

        np.testing.assert_allclose(actual, change / (2 * step), 1e-5, 1e-7, err_msg=name)


def check_compiled(
    op: Layer, sizes: tuple[int, int, int], lengths: Sequence[int] | None, extra: bool, dtype: str,
    threads: int = 1,
) -> None:  # fmt: skip
    """Assert that compiled gradients agree with evaluated ones, and that all are kernels."""
    xs = operands(op, sizes, lengths, extra)
    xs = [x if x is None or x.dtype == np.int32 else x.astype(dtype) for x in xs]
    g, names = built(op, xs, [0, 1])
    expected = evaluate(g, feeds_of(xs))
    exe = ag.compile(g, threads=threads)
    actual = exe.run(feeds_of(xs))
    rough = 2e-2 if dtype == "float16" else 2e-4

    assert all(entry.kernel for entry in exe.artifact.table)
    for name in names:
        value = expected[f"d{name}"]
        assert np.isfinite(value.astype(np.float64)).all() and actual[f"d{name}"].dtype == dtype
        scale = max(1.0, float(np.abs(value).max(initial=0)))
        np.testing.assert_allclose(actual[f"d{name}"], value, rough, rough * scale, err_msg=name)


LAYERS: list[Layer] = [Lstm(), Lstm(couple=True), Gru(), Rnn()]
of_layers = pytest.mark.parametrize("layer", LAYERS, ids=["lstm", "coupled", "gru", "rnn"])
LENGTHS = [None, (4, 1, 3), (0, 4, 2), (9, -1, 4)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("extra", [False, True])
@of_layers
def test_gradients_agree_with_differences(
    layer: Layer, reverse: bool, extra: bool, lengths: tuple[int, ...] | None
) -> None:
    for clip in (0.0, 0.8):
        check(replace(layer, reverse=reverse, clip=clip), (4, 3, 5), lengths, extra)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(FORMULAS))
@pytest.mark.parametrize("clip", [0.0, 0.8])
@pytest.mark.parametrize("kind", [Lstm, Gru, Rnn])
def test_every_activation_is_differentiated(kind: type[Layer], name: str, clip: float) -> None:
    activation: Activation = (name, 0.4, 0.3)
    check(kind(activations=(activation,) * SHAPES[kind][1], clip=clip), (3, 2, 4), extra=True)


@of_layers
@pytest.mark.parametrize("which", [(0,), (1,), (-1,)])
def test_results_that_do_not_matter_have_no_gradient(layer: Layer, which: tuple[int, ...]) -> None:
    last = 2 if isinstance(layer, Lstm) else 1
    check(layer, (3, 2, 4), (2, 3), True, [last if i < 0 else i for i in which])


@pytest.mark.parametrize("sizes", [(0, 2, 3), (2, 0, 3), (2, 3, 0), (1, 1, 1), (5, 1, 9)])
@of_layers
@pytest.mark.sampled(4)
def test_extents_may_be_small_or_0(layer: Layer, sizes: tuple[int, int, int]) -> None:
    for reverse in (False, True):
        op = replace(layer, reverse=reverse)
        check(op, sizes, extra=True)
        check_compiled(op, sizes, [1] * sizes[1], True, "float32")


@pytest.mark.parametrize("sizes", [(4, 3, 5), (3, 1, 37), (3, 9, 70)])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
@of_layers
@pytest.mark.sampled(2)
def test_compiled_gradients_agree_with_evaluated_ones(
    layer: Layer, lengths: bool, reverse: bool, sizes: tuple[int, int, int]
) -> None:
    steps, batch, _ = sizes
    counts = np.random.default_rng(3).integers(0, steps + 2, batch).tolist()
    op = replace(layer, reverse=reverse)
    for extra in (False, True):
        some = counts if lengths else None
        check_compiled(op, sizes, some, extra, "float32", threads=1 + batch % 2)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@of_layers
@pytest.mark.sampled(3)
def test_other_floats_have_gradients(layer: Layer, dtype: str) -> None:
    check_compiled(replace(layer, reverse=True, clip=0.9), (4, 3, 5), (2, 4, 1), True, dtype)


@of_layers
def test_the_forward_loop_is_computed_once(layer: Layer) -> None:
    xs = operands(layer, (4, 3, 5), None, False)
    g, _ = built(layer, [None if x is None else x.astype(np.float32) for x in xs], [0])
    exe = ag.compile(g, threads=1)
    loops = [i for i in exe.artifact.program.instrs() if i.operators()[0].name == "scan"]

    assert len(loops) == 2


def test_open_extents_are_differentiated() -> None:
    g = Graph("open")
    x, h = g.input("x", "f32[T,N,20]"), g.input("h", "f32[N,5]")
    r = g.input("r", "f32[5,20]")
    y = g.add(Lstm(), [x, r, h, h]).results[0]
    for name, dv in zip("xhr", gradients(g, y, [x, h, r]), strict=True):
        g.output(f"d{name}", dv)
    g.prune()
    exe, random = ag.compile(g, threads=1), np.random.default_rng(4)
    for steps, batch in ((1, 1), (5, 2), (3, 11)):
        shapes = {"x": (steps, batch, 20), "h": (batch, 5), "r": (5, 20)}
        feeds = {k: random.uniform(-1, 1, s).astype(np.float32) for k, s in shapes.items()}
        expected = evaluate(g.bind({"T": steps, "N": batch}), feeds)
        for name, value in exe.run(feeds).items():
            np.testing.assert_allclose(value, expected[name], 1e-4, 1e-5)


def test_weights_that_lie_the_other_way_are_copied_once() -> None:
    """A product reads them in every step, along rows."""
    g = Graph("turned")
    x, h = g.input("x", "f32[3,2,20]"), g.input("h", "f32[2,5]")
    r = g(Transpose((1, 0)), g.input("r", "f32[20,5]"))
    g.output("y", g.add(Lstm(), [x, r, h, h]).results[0])
    exe = ag.compile(g, threads=1)

    assert [i.operators()[0].name for i in exe.artifact.program.instrs()] == ["copy", "scan"]


def test_bytes_have_no_gradient() -> None:
    g = Graph("bytes")
    op, *types = next(iter(LstmInteger.examples()))
    xs = [g.input(f"x{i}", t if isinstance(t, str) else type_of(t)) for i, t in enumerate(types)]
    y = g.add(op, xs).results[0]
    with pytest.raises(UnsupportedError, match=r"lstm_integer is not supported: .* quantized"):
        gradients(g, y, xs[:1])

"""Steps of training whose memory is limited: the same bits, for a little more to compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow import train
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.reduction.reduction import ReduceMean
from alpenglow.ops.training.training import BatchNormTraining
from alpenglow.program.instr import Program
from alpenglow.program.plan import mark_lifetimes, plan
from alpenglow.program.recompute import Lives, smaller
from alpenglow.program.share import share
from alpenglow.program.units import Units
from alpenglow.program.views import eliminate_copies
from alpenglow.train.step import Rules, training_step
from train_cases import convolutional, dense, judged, perceptron, samples

CPU = ag.Target.parse("cpu")


def residual(blocks: int = 3, width: int = 16, side: int = 20, batch: int = 4) -> Graph:
    """Return blocks of two convolutions each, added to what went in."""
    random, g = np.random.default_rng(0), ag.Graph("residual")
    x = g.input("x", f"f32[{batch},3,{side},{side}]")
    labels = g.input("labels", f"i64[{batch}]")

    def convolved(h: Value, name: str) -> Value:
        w = random.standard_normal((width, h.type.extents[1], 3, 3)) / 8
        h = g(Conv(pads=(1, 1, 1, 1)), h, g.variable(f"{name}.w", w.astype(np.float32)))
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        scale, bias = g.variable(f"{name}.scale", ones), g.variable(f"{name}.bias", zeros)
        running = g.constant(zeros), g.constant(ones)
        return g.add(BatchNormTraining(), [h, scale, bias, *running]).results[0]

    h = g(Relu(), convolved(x, "first"))
    for k in range(blocks):
        inner = g(Relu(), convolved(h, f"{k}.a"))
        h = g(Relu(), g(Add(), convolved(inner, f"{k}.b"), h))
    scores = dense(g, g(ReduceMean((2, 3), False), h), "last", 5, random)
    return judged(g, scores, labels)


def planned(g: Graph, memory: int | None = None) -> Program:
    """Return the program of a step of training."""
    step = training_step(g, "loss", train.SGD(0.05, momentum=0.9), Rules())
    *_, (_, program) = run_stages(step, CPU, ag.Options(memory=memory, check=False))
    assert isinstance(program, Program)
    return program


def work(program: Program) -> int:
    return sum(i.work() for i in program.instrs())


def test_half_of_the_memory_takes_little_more_to_compute() -> None:
    free = planned(residual())
    half = planned(residual(), free.arena // 2)

    assert half.arena <= free.arena // 2
    assert work(free) < work(half) <= 1.35 * work(free)


@pytest.mark.parametrize("part", [0.9, 0.5, 0.35])
@pytest.mark.parametrize(
    "net", [convolutional, perceptron, residual], ids=lambda net: str(net.__name__)
)
@pytest.mark.sampled(0, "perceptron-0.5")
def test_the_memory_of_a_step_is_limited_with_the_same_bits(net: Any, part: float) -> None:
    g = net()
    data = samples(64, g.inputs["x"].type.extents[1:])
    free = train.Trainer(g, "loss", train.AdamW(1e-2), threads=1)
    limit = int(free.executable.artifact.program.arena * part)
    try:
        short = limited(g, limit)
    except ag.errors.MemoryLimitError as error:
        short, limit = limited(g, error.least), error.least
    for t in (free, short):
        t.fit(data, epochs=1)

    assert short.executable.artifact.program.arena <= limit
    for name, x in dict(free.session.variables).items():
        np.testing.assert_array_equal(x, short.session.variables[name], err_msg=name)


def limited(g: Graph, memory: int) -> train.Trainer:
    options = ag.Options(memory=memory)
    return train.Trainer(g, "loss", train.AdamW(1e-2), threads=1, options=options)


@pytest.mark.rest
def test_the_least_that_is_named_is_met() -> None:
    with pytest.raises(ag.errors.MemoryLimitError) as caught:
        planned(residual(1, 8, 12), 1000)
    least = caught.value.least

    assert (
        planned(residual(1, 8, 12), least).arena == least < 0.6 * planned(residual(1, 8, 12)).arena
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.sampled(1)
def test_what_is_counted_as_alive_is_what_a_plan_takes(seed: int) -> None:
    """Of orders that are drawn from those that are found, but for gaps that a plan may leave."""
    random = np.random.default_rng(seed)
    g = [convolutional, residual][seed % 2]()
    step = training_step(g, "loss", train.SGD(0.1), Rules())
    (values,) = [p for stage, p in run_stages(step, CPU, ag.Options()) if stage.name == "schedule"]
    units = Units(values)
    orders = [lives.order for lives in smaller(units)]
    order = orders[random.integers(len(orders))]

    laid_out = mark_lifetimes(share(eliminate_copies(units.program_of(order))))
    assert plan(laid_out).lower_bound == pytest.approx(Lives(units, order).worst[0], rel=0.03)

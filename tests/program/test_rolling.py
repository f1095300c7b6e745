"""Chains that are computed a few rows at a time: the same bits, in the memory that is allowed."""

from __future__ import annotations

import re

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ops.product.contraction import Conv
from alpenglow.program import Instr, Program
from alpenglow.program.instr import Buffer
from alpenglow.program.interpret import interpret
from mobile_net import MOBILE_NBYTES, quantised
from rolling_cases import network


def planned(g: Graph, target: str, options: ag.Options) -> Program:
    """Return the planned program of a graph for a target."""
    *_, (_, program) = run_stages(g.copy(), Target.parse(target), options)
    assert isinstance(program, Program)
    return program


def least(g: Graph, target: str, numerics: str = "strict") -> int:
    """Return the least limit that a refusal names."""
    with pytest.raises(ag.errors.MemoryLimitError) as caught:
        planned(g, target, ag.Options(numerics=numerics, memory=1))  # type: ignore[arg-type]
    return int(re.findall(r"a limit of (\d+) or more", str(caught.value))[0])


def high_water(program: Program) -> int:
    """Return one past the last byte of the arena that an instruction touches."""

    def end(r_buffer: Buffer, span: tuple[int, int]) -> int:
        assert r_buffer.offset is not None
        return r_buffer.offset + span[1]

    touched = [r for i in program.instrs() for r in (*i.outs, *i.reads())]
    arena = [(b, r) for r in touched if (b := program.buffers[r.buffer]).space == "arena"]
    return max((end(b, r.span()) for b, r in arena), default=0)


def work(program: Program) -> int:
    """Return how many multiply-adds a program takes."""

    def of(instr: Instr) -> int:
        outs, ins = [r.type for r in instr.outs], [None if r is None else r.type for r in instr.ins]
        if instr.body is None:
            return instr.op.work(ins, outs)
        return sum(
            n.op.work([None if v is None else v.type for v in n.inputs],
                      [v.type for v in n.results])
            for n in instr.body.nodes
        )  # fmt: skip

    return sum(map(of, program.instrs()))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("target", ["cpu", "x86-64-v2"])
def test_limits_are_met_with_the_same_bits(seed: int, target: str) -> None:
    g = network(seed)
    rng = np.random.default_rng(seed)
    strict = ag.Options(numerics="strict")
    free = ag.compile(g, target, options=strict)
    arena = planned(g, target, strict).arena
    if not arena:
        return
    low = least(g, target)
    feeds = {k: rng.standard_normal(t.extents).astype(t.numpy) for k, t in free.inputs.items()}
    expected = free.run(feeds)
    for limit in (low, int(rng.integers(low, arena + 1))):
        exe = ag.compile(g, target, memory=limit, options=strict)
        actual = exe.run(feeds)

        assert high_water(planned(g, target, ag.Options(numerics="strict", memory=limit))) <= limit
        for name, array in expected.items():
            np.testing.assert_array_equal(actual[name], array)


@pytest.mark.parametrize("seed", range(30, 36))
@pytest.mark.sampled(2)
def test_programs_of_rows_are_valid_and_multiply_no_more(seed: int) -> None:
    g = network(seed, tall=14)
    free = planned(g, "x86-64-v2", ag.Options(numerics="strict"))
    if not free.arena:
        return

    limit = least(g, "x86-64-v2")
    rolled = planned(g, "x86-64-v2", ag.Options(numerics="strict", memory=limit, check=True))

    assert rolled.arena == limit
    assert work(rolled) <= work(free)


@pytest.mark.rest
def test_mobilenet_takes_an_eighth_of_the_memory_and_no_more_multiply_adds() -> None:
    g = quantised(224)
    free = planned(g, "cortex-m4", ag.Options())
    rolled = planned(g, "cortex-m4", ag.Options(memory=MOBILE_NBYTES))

    assert free.arena > 8 * MOBILE_NBYTES
    assert rolled.arena <= MOBILE_NBYTES
    assert work(rolled) == work(free)


@pytest.mark.rest
def test_quantised_mobilenet_computes_the_same_bits() -> None:
    g = quantised(64)
    free = ag.compile(g)
    limit = least(g, "cpu", "fast")
    exe = ag.compile(g, memory=limit)
    x = np.random.default_rng(3).standard_normal((1, 3, 64, 64)).astype(np.float32)

    assert limit < planned(g, "cpu", ag.Options()).arena / 2
    np.testing.assert_array_equal(exe(x), free(x))


@pytest.mark.rest
def test_a_result_may_take_over_what_its_chain_reads_last() -> None:
    g = quantised(64)
    limit = least(g, "cortex-m4", "fast")
    rolled = planned(g, "cortex-m4", ag.Options(memory=limit))
    free = planned(g, "cortex-m4", ag.Options())
    x = {"image": np.random.default_rng(4).standard_normal((1, 3, 64, 64)).astype(np.float32)}

    assert limit < free.arena / 3
    np.testing.assert_array_equal(interpret(rolled, x)["logits"], interpret(free, x)["logits"])


def test_a_value_that_is_also_an_output_stays_whole() -> None:
    g = Graph("two")
    rng = np.random.default_rng(0)
    x = g.input("x", "f32[1,4,20,20]")
    for i in range(4):
        w = g.constant(rng.standard_normal((4, 4, 3, 3)).astype(np.float32))
        x = g(Conv(pads=(1, 1, 1, 1)), x, w)
        if i == 1:
            g.output("middle", x)
    g.output("y", x)
    strict = ag.Options(numerics="strict")
    feed = rng.standard_normal((1, 4, 20, 20)).astype(np.float32)

    exe = ag.compile(g, memory=least(g, "cpu"), options=strict)

    for expected, actual in zip(ag.compile(g, options=strict)(feed), exe(feed), strict=True):
        np.testing.assert_array_equal(actual, expected)

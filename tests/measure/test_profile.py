"""Profiles: what each kernel does and where it comes from.  What it takes is for nobody to say."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.ir.graph import Graph
from alpenglow.measure.bandwidth import bandwidth
from alpenglow.measure.flops import flops, flops_by_type
from alpenglow.measure.limit import Roofline, limit, limits, weight_bytes
from alpenglow.measure.profile import InstrTime, profile, trace
from alpenglow.measure.reach import last_cache
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Reshape


def network() -> Graph:
    """A convolution with relu, then a matrix product on what a reshape makes of it."""
    rng = np.random.default_rng(0)
    g = Graph("network")
    x = g.input("x", "f32[1,16,8,8]")
    w = g.constant(rng.standard_normal((16, 16, 3, 3), np.float32), "w")
    v = g.constant(rng.standard_normal((1024, 10), np.float32), "v")
    c = g(Conv(pads=(1, 1, 1, 1)), x, w, name="conv")
    r = g(Relu(), c, name="relu")
    f = g(Reshape((1, 1024)), r, name="flat")
    g.output("y", g(MatMul(), f, v, name="product"))
    return g


def parts(g: Graph, *shape: int, threads: int = 1) -> list[InstrTime]:
    exe = ag.compile(g, threads=threads)
    (name,) = g.inputs
    return list(profile(exe, {name: np.ones(shape, np.float32)}, g, rounds=2).parts)


def of(found: list[InstrTime], source: str) -> list[InstrTime]:
    return [p for p in found if source in p.sources]


@pytest.mark.parametrize("threads", [1, 2])
def test_every_node_is_computed_by_some_kernel(threads: int) -> None:
    found = parts(network(), 1, 16, 8, 8, threads=threads)

    assert {s for p in found for s in p.sources} == {"conv", "relu", "flat", "product"}
    assert all(p.compiled and p.sources and p.seconds >= 0 for p in found)


def test_what_is_fused_is_told_together() -> None:
    (kernel,) = (p for p in of(parts(network(), 1, 16, 8, 8), "conv") if p.flop)

    assert "relu" in kernel.sources and kernel.kind.startswith("conv_blocked+")
    assert kernel.flop == 2 * 16 * 64 * 16 * 9


def test_operations_add_up_to_those_of_the_program() -> None:
    g = network()
    program = ag.compile(g).artifact.program

    assert sum(p.flop for p in parts(g, 1, 16, 8, 8)) == flops(program)


def test_bytes_are_those_of_all_operands_once() -> None:
    g = Graph("sum")
    x = g.input("x", "f32[100]")
    g.output("y", g(Add(), x, x))
    (kernel,) = parts(g, 100)

    assert kernel.nbytes == 2 * 400


def test_what_has_become_addressing_belongs_to_its_reader() -> None:
    (kernel,) = of(parts(network(), 1, 16, 8, 8), "flat")

    assert kernel.sources == ("flat", "product")


def test_open_extents_are_those_of_the_arrays() -> None:
    g = Graph("open")
    x = g.input("x", "f32[n,64]")
    w = g.constant(np.ones((64, 32), np.float32))
    g.output("y", g(MatMul(), x, w, name="product"))
    (kernel,) = of(parts(g, 7, 64), "product")

    assert kernel.flop == 2 * 7 * 64 * 32


def test_interpreted_instructions_are_timed_too() -> None:
    g = network()
    exe = ag.compile(g, target="interpreter")
    found = profile(exe, {"x": np.ones((1, 16, 8, 8), np.float32)}, g, rounds=1).parts

    assert found and not any(p.compiled for p in found)
    assert {"conv", "product"} <= {s for p in found for s in p.sources}


def test_without_the_graph_names_are_those_that_the_program_has() -> None:
    exe = ag.compile(network())
    found = profile(exe, {"x": np.ones((1, 16, 8, 8), np.float32)}, rounds=1).parts

    assert of(list(found), "product") and all(p.sources for p in found)


def test_profiling_leaves_results_as_they_are() -> None:
    exe = ag.compile(network())
    x = np.random.default_rng(1).standard_normal((1, 16, 8, 8), np.float32)
    before = exe(x)
    profile(exe, {"x": x}, rounds=2)

    assert np.array_equal(exe(x), before)


def test_a_trace_holds_the_kernels_end_to_end() -> None:
    exe = ag.compile(network())
    found = profile(exe, {"x": np.ones((1, 16, 8, 8), np.float32)}, rounds=1)
    events = [e for e in trace(found)["traceEvents"] if e["ph"] == "X"]

    assert [e["name"] for e in events] == [p.kind for p in found.parts]
    assert all(a["ts"] <= a["ts"] + a["dur"] <= b["ts"] + 1e-6
               for a, b in pairwise(events))  # fmt: skip


def test_memory_delivers_a_plausible_bandwidth() -> None:
    assert 1e8 < bandwidth(1) < 1e12


def test_a_kernel_takes_no_less_than_its_operations_at_the_peak() -> None:
    program = ag.compile(network(), threads=1).artifact.program
    idle = Roofline({"f32": 1e9}, bandwidth=1.0, cache=1e9)

    assert sum(limits(program, idle)) == pytest.approx(flops(program) / 1e9)


def test_a_kernel_takes_no_less_than_its_weights_from_memory() -> None:
    program = ag.compile(network(), threads=1).artifact.program
    narrow = Roofline({"f32": 1e18}, bandwidth=1e6, cache=1000.0)
    weights = sum(weight_bytes(i, program) for i in program.instrs())

    assert weights >= (16 * 16 * 9 + 1024 * 10) * 4
    assert sum(limits(program, narrow)) == pytest.approx(weights / 1e6)


def test_weights_that_the_last_cache_holds_cost_nothing() -> None:
    program = ag.compile(network(), threads=1).artifact.program
    roomy = Roofline({"f32": 1e18}, bandwidth=1.0, cache=1e9)

    assert sum(limits(program, roomy)) < 1e-6 and last_cache() > 1 << 17


def test_of_a_table_only_the_rows_that_are_gathered_must_be_read() -> None:
    g = Graph("rows")
    i = g.input("i", "i64[3]")
    table = g.constant(np.ones((1000, 8), np.float32))
    g.output("y", g(Gather(axis=0), table, i))
    program = ag.compile(g).artifact.program

    assert sum(weight_bytes(i, program) for i in program.instrs()) <= 3 * 8 * 4 + 3 * 8


def test_operations_are_told_apart_by_the_type_of_their_left_operand() -> None:
    exe = ag.compile(network(), threads=1, precision="bf16")
    types = {t for i in exe.artifact.program.instrs() for t in flops_by_type(i)}

    assert "bf16" in types and types <= {"bf16", "f32"}


def test_the_limit_of_a_run_is_plausible_and_needs_known_extents() -> None:
    g = Graph("open")
    g.output("y", g(MatMul(), g.input("x", "f32[n,64]"), g.constant(np.ones((64, 9), np.float32))))
    found = limit(ag.compile(network(), threads=1), 1)

    assert found is not None and 0 < found < 1e-2
    assert limit(ag.compile(g, threads=1), 1) is None

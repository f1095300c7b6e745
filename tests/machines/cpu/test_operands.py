"""Elements that multiply-adds take from memory: which they are, and how they are addressed."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import Const, Expr, Load
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.cpu.assemble import assembly
from alpenglow.machines.cpu.legal import legal
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.templates.tile import LOADS, Tile
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import Transpose
from alpenglow.render.llvm.render import render

V4 = ag.Target.parse("x86-64-v4")


def product() -> Graph:
    g = Graph("product")
    w = np.ones((64, 96), np.float32)
    g.output("y", g(MatMul(), g.input("x", "f32[70,64]"), g.constant(w)))
    return g


def convolution() -> Graph:
    g = Graph("convolution")
    w = np.ones((64, 32, 3, 3), np.float32)
    g.output("y", g(Conv(strides=(2, 2)), g.input("x", "f32[1,32,29,29]"), g.constant(w)))
    return g


def attention() -> Graph:
    g = Graph("attention")
    q, k, v = (g.input(n, "f32[2,100,64]") for n in "qkv")
    scores = g(MatMul(), q, g(Transpose((0, 2, 1)), k))
    g.output("y", g(MatMul(), g(Softmax(-1), scores), v))
    return g


def texts(g: Graph, target: ag.Target) -> tuple[str, str]:
    """Return the kernels of a graph, and their assembly."""
    *_, (_, program) = run_stages(g, target, ag.Options())
    found = [k for _, k in kernels(program, target)]
    code = (assembly(render(legal(k, target)), target) for k in found)
    return "\n".join(map(print_kernel, found)), "\n".join(code)


@pytest.mark.parametrize("build", [product, convolution, attention])
def test_a_multiply_add_of_memory_has_no_index(build: Callable[[], Graph]) -> None:
    kernel, code = texts(build(), V4)
    places = re.findall(r"vfmadd\w+\s+(\S+)\{1to16\}", code)

    assert ".operand[" in kernel
    assert places and not any("," in p for p in places), places


@pytest.mark.parametrize("build", [product, convolution, attention])
def test_a_step_loads_less_than_it_multiplies(build: Callable[[], Graph]) -> None:
    kernel, _ = texts(build(), V4)
    for step in re.split(r"for \w+ in \d+ \{|parallel|\}", kernel):
        if ".operand[" in step:
            loads = step.count("[") - step.count("prefetch")
            multiplied = step.count("fma(")
            assert loads <= max(LOADS * multiplied, multiplied + 4), step


@pytest.mark.parametrize("target", ["x86-64-v3", "aarch64"])
def test_other_machines_load_first(target: str) -> None:
    kernel, _ = texts(product(), ag.Target.parse(target))

    assert "fma(" in kernel and ".operand[" not in kernel


def test_rows_whose_distance_is_open_are_loaded_first() -> None:
    def step(place: Callable[[Expr, int], Expr]) -> str:
        b = Builder("step")
        x, w = b.buffer("x", "f32"), b.buffer("w", "f32")
        n = b.extent("n")
        Tile(b, 14, 2, 16, V4).step(w, Const(0), lambda r: Load(x, place(n, r)))
        return print_kernel(b.done())

    assert ".operand[" in step(lambda n, r: n * 3 + r * 8)
    assert ".operand[" not in step(lambda n, r: n * r)

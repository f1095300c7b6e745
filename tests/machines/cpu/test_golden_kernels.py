"""Kernels of a fixed set of instructions, as text, for three targets that need not be this host.

tests/golden/kernels/TARGET/NAME.txt holds what the CPU makes of the instructions of a small graph;
tests/golden/kernels/opencl holds what legalisation makes of some of them for OpenCL C, and their
text in it.  `pytest --bless` rewrites both.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.target import Target
from alpenglow.ir.types import Array
from alpenglow.kernel.legalise import legalise
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import parse_kernel, print_kernel
from alpenglow.machines.registry import machine_for
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.image.resize import Resize
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.quantized.quantize import Dequantize
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.sequence.recurrent import Rnn
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Broadcast
from alpenglow.ops.tensor.order import TopK
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.program import Instr, Program
from alpenglow.render.opencl.render import LACKS, render

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "kernels"
LARGEST = 155_000
"""How many bytes all files have at most: each is to be read when it changes."""

TARGETS = ("x86-64-v3", "x86-64-v4+avx512bf16+avx512vnni", "cortex-m4")
LEGALISED = ("add_bf16", "reduce_sum", "resize")
"""What is shown for OpenCL C, which has no vectors with masks and no bf16."""

SOURCE = "x86-64-v3"
"""The target whose kernels are legalised."""

MOVES = {"cast", "copy", "fill", "pack", "unpack"}
"""What only brings tensors to where the other instructions read them."""

Build = Callable[[Graph], Value]


def normal(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def convolution(x: str, weights: tuple[int, ...], group: int = 1) -> Build:
    op = Conv((1, 1), (weights[-1] // 2,) * 4, group=group)
    return lambda g: g(op, g.input("x", x), g.constant(normal(*weights)))


def elementwise(g: Graph) -> Value:
    x, y = g.input("x", "f32[3,20]"), g.input("y", "f32[3,20]")
    return g(Mul(), g(Sigmoid(), g(Add(), x, y)), y)


def layer_norm(g: Graph) -> Value:
    scale, bias = g.input("scale", "f32[20]"), g.input("bias", "f32[20]")
    return g(LayerNorm(1), g.input("x", "f32[3,20]"), scale, bias)


def few_bits(g: Graph) -> Value:
    codes = (np.arange(64 * 32).reshape(64, 32) % 16 - 8).astype(np.int8)
    scale = g(Broadcast((64, 32)), g.constant(np.float32(0.5)))
    zero = g(Broadcast((64, 32)), g.constant(np.int8(0)))
    return g(MatMul(), g.input("x", "f32[1,64]"), g(Dequantize(), g.constant(codes), scale, zero))


def rnn(g: Graph) -> Value:
    op = Rnn(activations=(("relu", 0.0, 0.0),))
    x, h = g.input("x", "f32[3,1,8]"), g.input("h", "f32[1,8]")
    return g.add(op, (x, g.constant(normal(8, 8)), h)).results[0]


def top_k(g: Graph) -> Value:
    return g.add(TopK(1, 3), (g.input("x", "f32[2,20]"),)).results[0]


def product(rows: int, inner: int, columns: int) -> Build:
    w = normal(inner, columns)
    return lambda g: g(MatMul(), g.input("x", f"f32[{rows},{inner}]"), g.constant(w))


def sum_of_bf16(g: Graph) -> Value:
    return g(Add(), g.input("x", "bf16[20]"), g.input("y", "bf16[20]"))


def product_of_bytes(g: Graph) -> Value:
    w = (np.arange(16 * 16).reshape(16, 16) % 255 - 127).astype(np.int8)
    return g(MatMul(), g.input("x", "u8[1,16]"), g.constant(w))


CASES: dict[str, Build] = {
    "add_bf16": sum_of_bf16,
    "conv_blocked": convolution("f32[1,16,6,6]", (16, 16, 1, 1)),
    "conv_depthwise": convolution("f32[1,16,8,8]", (16, 1, 3, 3), group=16),
    "conv_planar": convolution("f32[1,1,16,16]", (4, 1, 3, 3)),
    "elementwise": elementwise,
    "few_bits": few_bits,
    "gather": lambda g: g(Gather(0), g.input("x", "f32[9,20]"), g.input("at", "i64[3]")),
    "layer_norm": layer_norm,
    "matmul": product(4, 20, 24),
    "matmul_bf16": product(4, 8, 16),
    "matmul_bytes": product_of_bytes,
    "matmul_column": product(9, 40, 1),
    "max_pool": lambda g: g(
        MaxPool((3, 3), (2, 2), (1,) * 4, (1, 1)), g.input("x", "f32[1,2,7,7]")
    ),
    "reduce_sum": lambda g: g(ReduceSum((1,)), g.input("x", "f32[3,20]")),
    "resize": lambda g: g(Resize((1, 1, 6, 5), mode="linear"), g.input("x", "f32[1,1,3,5]")),
    "rnn": rnn,
    "softmax": lambda g: g(Softmax(1), g.input("x", "f32[3,16]")),
    "top_k": top_k,
    "winograd": convolution("f32[1,32,8,8]", (32, 32, 3, 3)),
}

OPTIONS = {"matmul_bf16": Options(check=False, precision="bf16")}
"""How a case is compiled, where not as all others; each pass is validated where models are."""


@cache
def kernels(name: str, target: str) -> list[tuple[Instr, Kernel]]:
    """Return the instructions of a case that do more than move, with their kernels."""
    graph = Graph(name)
    graph.output("y", CASES[name](graph))
    asked = Target.parse(target)
    program: Graph | Program = graph
    for _, ir in run_stages(graph, asked, OPTIONS.get(name, Options(check=False))):
        program = ir
    assert isinstance(program, Program)
    machine = machine_for(asked)
    pairs = []
    for instr in program.instrs():
        if instr.op.name not in MOVES:
            kernel = machine.kernel(instr, asked)
            assert kernel is not None, f"{instr.op.name} is interpreted"
            pairs.append((instr, kernel))
    return pairs


def heading(instr: Instr) -> str:
    """Return the comment above a kernel: what it computes, of which types."""
    names = ", ".join(op.name for op in instr.operators())
    results = ", ".join(str(r.type) for r in instr.outs)
    operands = ", ".join("none" if r is None else str(r.type) for r in instr.ins)
    return f"# {names}: {results} of {operands}"


def check(path: Path, actual: str, bless: bool) -> None:
    """Assert that a golden file holds a text; with `bless`, write it first."""
    if bless:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(actual)

    assert path.read_text() == actual


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", CASES)
def test_kernels_read_as_their_golden_file(name: str, target: str, bless: bool) -> None:
    pairs = kernels(name, target)

    assert pairs, f"{name} is nothing but moves for {target}"
    for _, kernel in pairs:
        text = print_kernel(kernel)
        assert print_kernel(parse_kernel(text)) == text
    texts = [f"{heading(instr)}\n{print_kernel(kernel)}\n" for instr, kernel in pairs]
    check(GOLDEN / target / f"{name}.txt", "\n".join(texts), bless)


@pytest.mark.parametrize("name", LEGALISED)
def test_what_is_legalised_for_opencl_reads_as_its_golden_files(name: str, bless: bool) -> None:
    ((_, kernel),) = kernels(name, SOURCE)
    text = print_kernel(legalise(kernel, LACKS))

    assert text != print_kernel(kernel)
    check(GOLDEN / "opencl" / f"{name}.txt", text + "\n", bless)
    check(GOLDEN / "opencl" / f"{name}.cl", render(kernel), bless)


def test_every_golden_file_belongs_to_a_kernel() -> None:
    expected = {f"{t}/{name}.txt" for t in TARGETS for name in CASES}
    expected |= {f"opencl/{name}.{kind}" for name in LEGALISED for kind in ("txt", "cl")}
    actual = {p.relative_to(GOLDEN).as_posix() for p in GOLDEN.rglob("*") if p.is_file()}

    assert expected == actual
    assert sum((GOLDEN / name).stat().st_size for name in actual) <= LARGEST

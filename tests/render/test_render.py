"""Kernels as LLVM IR: compiled for this machine, they do what the evaluator does."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target
from alpenglow.ir.types import ALL, DTYPES, FLOATS, INTS, NUMBERS, Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Binary, Const, Fma, Intrinsic, Load, Shuffle, Splat
from alpenglow.kernel.stmt import Kernel, Kind
from alpenglow.machines.cpu.assemble import assemble, assembly
from alpenglow.machines.cpu.jit import Code
from alpenglow.machines.cpu.legal import legal
from alpenglow.render.llvm.render import render
from kernel_cases import (
    DOTS,
    Case,
    Formula,
    binary,
    collatz,
    constants,
    conversions,
    divisions_and_shifts,
    dot,
    in_place,
    mapped,
    masked,
    movement,
    multiply_add,
    reductions,
    spread,
    strips,
    sums,
    unary,
)

HOST = Target.parse("cpu")
V4 = Target.parse("x86-64-v4")


def run(
    kernel: Kernel,
    operands: Mapping[str, Array],
    extents: Mapping[str, int],
    part: tuple[int, int],
    target: Target,
) -> None:
    """Compile `kernel`, to round as it says, and run it in place on `operands`."""
    code = Code.install([assemble(render(legal(kernel, target), fast=False), target, opt=3)])
    slots = [operands[b.name].ctypes.data for b in kernel.buffers]
    slots += [extents[n.name] for n in kernel.extents]
    table = np.array(slots, np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address(kernel.name))(table.ctypes.data, *part)


def same(case: Case, target: Target = HOST) -> None:
    """Assert that the compiled kernel leaves the bits that the evaluator leaves."""
    kernel, operands, extents = case
    expected = {name: a.copy() for name, a in operands.items()}
    actual = {name: a.copy() for name, a in operands.items()}
    parallel = kernel.parallel is not None
    part = (1, 3) if parallel else (0, 0)
    evaluate(kernel, expected, extents, part if parallel else None)
    run(kernel, actual, extents, part, target)

    for b in kernel.buffers:
        x, y = expected[b.name], actual[b.name]
        if b.dtype in FLOATS:
            x, y = x.astype(np.float64), y.astype(np.float64)
        assert np.array_equal(x, y, equal_nan=b.dtype in FLOATS), f"{b.name}: {x} {y}"


def compare(formulas: Iterable[Formula], lanes: int) -> None:
    """Compare y = formula(x0, …), with a loop that becomes vectors if there is one lane."""
    for formula in formulas:
        same(mapped(formula, lanes, "vector" if lanes == 1 else "serial"))


LANES = pytest.mark.parametrize("lanes", [1, 8])


@LANES
@pytest.mark.parametrize("dtype", sorted(ALL))
@pytest.mark.sampled(4)
def test_operators_of_each_element_type(dtype: str, lanes: int) -> None:
    compare(binary(dtype), lanes)


@LANES
@pytest.mark.parametrize("dtype", sorted(INTS))
@pytest.mark.sampled(8)
def test_division_and_shifts_by_what_is_allowed(dtype: str, lanes: int) -> None:
    compare(divisions_and_shifts(dtype), lanes)


@LANES
@pytest.mark.parametrize("dtype", sorted(ALL))
@pytest.mark.sampled(9)
def test_unary_operators(dtype: str, lanes: int) -> None:
    compare(unary(dtype), lanes)


@LANES
@pytest.mark.parametrize("source", sorted(ALL))
@pytest.mark.sampled(3)
def test_conversions(source: str, lanes: int) -> None:
    compare(conversions(source), lanes)


@LANES
@pytest.mark.parametrize("dtype", sorted(NUMBERS))
def test_constants(dtype: str, lanes: int) -> None:
    compare(constants(dtype), lanes)


@LANES
@pytest.mark.parametrize("dtype", sorted(NUMBERS))
def test_fma_rounds_once(dtype: str, lanes: int) -> None:
    compare([multiply_add(dtype)], lanes)


# In each case the product lies midway between two neighbours, and the summand decides.
MIDWAY = [("f16", 1 + 2**-5, 1 + 2**-6, 2**-24, 10), ("bf16", 1 + 2**-4, 1 + 2**-4, 2**-60, 60)]


@pytest.mark.parametrize(("dtype", "a", "b", "c", "reach"), MIDWAY)
def test_fma_of_short_floats_is_not_rounded_on_the_way(
    dtype: str, a: float, b: float, c: float, reach: int
) -> None:
    size = 2048
    rng = np.random.default_rng(1)
    numbers = np.ldexp(rng.uniform(-2, 2, (3, size)), rng.integers(-reach, reach, (3, size)))
    numbers[:, :2] = [[a, a], [b, b], [c, -c]]
    build = Builder("fma")
    x, y, z = (build.buffer(name, dtype) for name in "xyz")
    result = build.buffer("result", dtype, True)
    with build.loop(size // 16) as i:
        product = (Load(x, i * 16, 16), Load(y, i * 16, 16))
        build.store(result, i * 16, Fma(*product, Load(z, i * 16, 16)))

    operands = dict(zip("xyz", numbers.astype(DTYPES[dtype]), strict=True))
    same(Case(build.done(), operands | {"result": np.zeros(size, DTYPES[dtype])}, {}))


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8", "bf16"])
def test_reduce_in_halves(dtype: str, lanes: int) -> None:
    compare(reductions(dtype), lanes)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.sampled(2)
def test_short_floats_without_instructions_for_them(dtype: str, level: str) -> None:
    target = Target.parse(level)
    if not target.is_host_compatible():
        pytest.skip(f"this machine is no {level}")
    some = [*binary(dtype), *unary(dtype), *reductions(dtype), multiply_add(dtype)]
    for formula in [*some, *conversions(dtype)]:
        same(mapped(formula, 8), target)


@LANES
def test_lanes_move(lanes: int) -> None:
    compare(movement(lanes), lanes)


def test_a_lane_of_a_short_vector_fills_it() -> None:
    compare([Formula(lambda x: Splat(Shuffle(x, (2,)), 4), ("f64",))], 4)


@pytest.mark.parametrize("dtype", ["f32", "bool", "i64", "bf16"])
def test_masked_lanes_are_not_touched(dtype: str) -> None:
    same(masked(dtype))


def test_gather_and_scatter() -> None:
    same(spread())


def test_values_loaded_are_kept_when_memory_changes() -> None:
    same(in_place())


@pytest.mark.parametrize("kind", ["serial", "vector", "unrolled"])
@pytest.mark.parametrize("extent", [0, 1, 7, 100])
def test_loops_of_run_time_extent(kind: Kind, extent: int) -> None:
    same(sums(extent, kind))


def test_branches_loops_and_arrays() -> None:
    same(collatz())


@pytest.mark.parametrize("name", DOTS)
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_machine_operations(name: str, lanes: int) -> None:
    target = {
        "vpdpbusd": "x86-64-v4+avx512vnni",
        "vdpbf16ps": "x86-64-v4+avx512bf16",
        "usdot": "aarch64+i8mm",
        "sdot": "aarch64+dotprod",
    }[name]
    case = dot(name, lanes if target.startswith("x86") else 4)

    assert name in assembly(render(case.kernel), Target.parse(target))
    if HOST.has(target.split("+")[1]):
        same(case)


def elementwise(kind: Kind) -> Builder:
    b = Builder("scale")
    x, z, y = b.buffer("x", "f32"), b.buffer("z", "f32"), b.buffer("y", "f32", True)
    n = b.extent("N")
    with b.loop(n, kind) as i:
        two = Const(2.0, "f32")
        b.store(y, i, Binary("add", Binary("mul", Load(x, i), two), Load(z, Const(3))))
    return b


def test_vector_loops_use_the_widest_registers_at_any_level() -> None:
    text = assembly(render(elementwise("vector").done()), V4, opt=2)

    assert "vfmadd" in text and "zmm" in text


def test_what_cannot_change_is_read_once() -> None:
    text = assembly(render(elementwise("serial").done()), V4, opt=2)
    apart = assembly(render(elementwise("serial").done(), aliased=frozenset("z")), V4, opt=2)

    assert text.count("12(%rsi)") == 1
    loop = text[text.index("12(%rsi)") :]
    assert "vfmadd" in loop and apart != text


def test_any_part_of_a_loop_in_strips_runs_each_of_its_indices_once() -> None:
    case = strips()
    code = Code.install([assemble(render(case.kernel), HOST)])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    y = case.operands["y"]
    table = np.array([y.ctypes.data], np.int64)
    for begin in range(13):
        for end in range(begin, 13):
            y[:] = 0
            call(code.address(case.kernel.name))(table.ctypes.data, begin, end)

            assert y.tolist() == [(begin <= i < end) * (i + 1) for i in range(12)]


def test_in_place_is_right_when_said() -> None:
    b = elementwise("vector")
    x = np.arange(100, dtype=np.float32)
    z = np.arange(4, dtype=np.float32)
    code = Code.install([assemble(render(b.done(), aliased=frozenset("x")), HOST, opt=3)])
    slots = np.array([x.ctypes.data, z.ctypes.data, x.ctypes.data, 100], np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address("scale"))(slots.ctypes.data, 0, 0)

    assert np.array_equal(x, np.arange(100) * 2 + 3)


def test_what_only_a_gpu_has_is_refused_by_name() -> None:
    for kind in ("group", "thread"):
        b = Builder("grid")
        with b.loop(4, kind):
            pass
        with pytest.raises(UnsupportedError, match=kind):
            render(b.done())
    b = Builder("meeting")
    b.barrier()
    with pytest.raises(UnsupportedError, match="barrier"):
        render(b.done())
    b = Builder("together")
    b.array("f32", 4, "shared")
    with pytest.raises(UnsupportedError, match="shared"):
        render(b.done())
    b = Builder("odd")
    b.let(Intrinsic("fsqrtx", (Const(1.0, "f32"),)))
    with pytest.raises(UnsupportedError, match="fsqrtx"):
        render(b.done())

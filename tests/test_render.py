"""Kernels as LLVM IR: compiled for this machine, they do what the evaluator does."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import ml_dtypes
import numpy as np
import pytest

from alpenglow.backends.cpu.assemble import assemble, assembly
from alpenglow.backends.cpu.jit import Code
from alpenglow.backends.cpu.render import render
from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.target import Target
from alpenglow.ir.types import ALL, DTYPES, FLOATS, INTS, NUMBERS, Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import (
    BINARY,
    COMPARE,
    REDUCE,
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Intrinsic,
    Lanes,
    Load,
    Reduce,
    Select,
    Shuffle,
    Splat,
    Unary,
)
from alpenglow.kernel.stmt import Kernel, Kind

HOST = Target.parse("cpu")
V4 = Target.parse("x86-64-v4")


def run(
    kernel: Kernel,
    operands: Mapping[str, Array],
    extents: Mapping[str, int] | None = None,
    part: tuple[int, int] = (0, 0),
    fast: bool = True,
) -> None:
    """Compile `kernel` and run it in place on `operands`."""
    code = Code.install([assemble(render(kernel, fast=fast), HOST, opt=3)])
    slots = [operands[b.name].ctypes.data for b in kernel.buffers]
    slots += [(extents or {})[n.name] for n in kernel.extents]
    table = np.array(slots, np.int64)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    call(code.address(kernel.name))(table.ctypes.data, *part)


def same(kernel: Kernel, operands: Mapping[str, Array], **others: int) -> None:
    """Assert that the compiled kernel leaves the bits that the evaluator leaves."""
    expected = {name: a.copy() for name, a in operands.items()}
    actual = {name: a.copy() for name, a in operands.items()}
    parallel = kernel.parallel is not None
    part = (1, 3) if parallel else (0, 0)
    evaluate(kernel, expected, others, part if parallel else None)
    run(kernel, actual, others, part, fast=False)

    for b in kernel.buffers:
        x, y = expected[b.name], actual[b.name]
        if b.dtype in FLOATS:
            x, y = x.astype(np.float64), y.astype(np.float64)
        assert np.array_equal(x, y, equal_nan=b.dtype in FLOATS), f"{b.name}: {x} {y}"


def values(dtype: str, size: int = 64) -> Array:
    """Return numbers of `dtype`, the awkward ones first."""
    rng = np.random.default_rng(3)
    if dtype in FLOATS:
        some = [0.0, -0.0, 1.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 127.9, -1.0, 300.0, 1e-7]
        return np.concatenate([some, rng.normal(0, 9, size - len(some))]).astype(DTYPES[dtype])
    if dtype == "bool":
        return rng.integers(0, 2, size).astype(np.bool_)
    limits = np.iinfo(DTYPES[dtype])
    some = np.array([limits.min, limits.max, 0, 1, 2, 3], DTYPES[dtype])
    rest = rng.integers(limits.min, limits.max, size - some.size, DTYPES[dtype])
    return np.concatenate([some, rest])


def mapped(formula: Callable[..., Expr], *arrays: str, lanes: int = 1) -> None:
    """Compare y = formula(*arrays) on values of the element types named."""
    b = Builder("mapped")
    operands = {f"x{i}": values(dtype) for i, dtype in enumerate(arrays)}
    if len(arrays) > 1:
        operands["x1"] = operands["x1"][::-1].copy()
    xs = [b.buffer(f"x{i}", dtype) for i, dtype in enumerate(arrays)]
    dry = formula(*(Const(1, dtype, lanes) for dtype in arrays))
    y = b.buffer("y", dry.dtype, mutable=True)
    with b.loop(64 // lanes, "vector" if lanes == 1 else "serial") as i:
        b.store(y, i * dry.lanes, formula(*(Load(x, i * lanes, lanes) for x in xs)))
    size = 64 // lanes * dry.lanes
    same(b.done(), operands | {"y": np.zeros(size, DTYPES[dry.dtype])})


def operations(dtype: str) -> list[str]:
    """Return the binary operations that `dtype` has and that never trap."""
    if dtype == "bool":
        return ["and", "or", "xor", "min", "max"]
    if dtype in FLOATS:
        return ["add", "sub", "mul", "div", "rem", "min", "max"]
    return [op for op in BINARY if op not in ("div", "rem", "shl", "shr", "pow")]


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", sorted(ALL))
def test_operators_of_each_element_type(dtype: str, lanes: int) -> None:
    for op in operations(dtype):
        mapped(lambda x, y, op=op: Binary(op, x, y), dtype, dtype, lanes=lanes)
    for op in COMPARE:
        mapped(lambda x, y, op=op: Compare(op, x, y), dtype, dtype, lanes=lanes)
    mapped(lambda x, y: Select(Compare("lt", x, y), y, x), dtype, dtype, lanes=lanes)


@pytest.mark.parametrize("dtype", sorted(INTS))
def test_division_and_shifts_by_what_is_allowed(dtype: str) -> None:
    for op, by in (("div", 3), ("rem", 3), ("div", 100), ("shl", 7), ("shr", 7)):
        mapped(lambda x, op=op, by=by: Binary(op, x, Const(by, dtype)), dtype)


@pytest.mark.parametrize("dtype", sorted(ALL))
def test_unary_operators(dtype: str) -> None:
    names = {"bool": ["not"]}.get(dtype, ["neg", "abs"])
    names += ["sqrt", "floor", "ceil", "round", "trunc"] if dtype in FLOATS else []
    for lanes in (1, 8):
        for op in names:
            mapped(lambda x, op=op: Unary(op, x), dtype, lanes=lanes)


@pytest.mark.parametrize("source", sorted(ALL))
@pytest.mark.parametrize("target", sorted(ALL))
def test_conversions(source: str, target: str) -> None:
    for lanes in (1, 8):
        mapped(lambda x: Convert(x, target), source, lanes=lanes)


@pytest.mark.parametrize("lanes", [1, 8])
@pytest.mark.parametrize("dtype", sorted(NUMBERS))
def test_fma_rounds_once(dtype: str, lanes: int) -> None:
    mapped(lambda x, y: Fma(x, y, x), dtype, dtype, lanes=lanes)


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
    same(build.done(), operands | {"result": np.zeros(size, DTYPES[dtype])})


@pytest.mark.parametrize("op", REDUCE)
@pytest.mark.parametrize("dtype", ["f32", "i32", "u8"])
def test_reduce_in_halves(op: str, dtype: str) -> None:
    mapped(lambda x: Reduce(op, x), dtype, lanes=16)


def test_lanes_move() -> None:
    mapped(lambda x: Shuffle(x, (7, 6, 5, 4, 3, 2, 1, 0)), "f32", lanes=8)
    mapped(lambda x: Shuffle(x, (1, 5)), "i8", lanes=8)
    mapped(lambda x: Splat(Shuffle(x, (2,)), 4), "f64", lanes=4)
    mapped(lambda x: Splat(x, 4), "bool")
    mapped(lambda x: Bitcast(Bitcast(x, "i32"), "u32"), "f32", lanes=8)


@pytest.mark.parametrize("dtype", ["f32", "bool", "i64", "bf16"])
def test_masked_lanes_are_not_touched(dtype: str) -> None:
    b = Builder("masked")
    x, y, s = (b.buffer(n, dtype, n != "x") for n in "xys")
    lane = Binary("add", Lanes(8), Splat(Const(56), 8))
    mask = Compare("lt", lane, Splat(Const(60), 8))
    b.store(y, 0, Load(x, Const(56), 8, mask), mask)
    with b.loop(64) as i:
        low = Compare("lt", i, Const(5))
        b.store(s, i, Load(x, i * 3, 1, low), Compare("ne", i, Const(2)))

    operands = {"x": values(dtype)[:60], "y": values(dtype)[:4].copy(), "s": values(dtype)}
    operands["x"] = operands["x"].copy()
    same(b.done(), operands)


def test_gather_and_scatter() -> None:
    b = Builder("spread")
    x, at, y = b.buffer("x", "f32"), b.buffer("at", "i64"), b.buffer("y", "f32", True)
    with b.loop(4) as i:
        places = b.let(Load(at, i * 16, 16))
        inside = Compare("ge", places, Splat(Const(0), 16))
        b.store(y, places, Load(x, places, 16, inside), inside)
        b.store(y, Binary("sub", Splat(Const(127), 16), Lanes(16)), Load(x, Lanes(16), 16))

    where = np.random.default_rng(0).permutation(64) - 8
    same(b.done(), {"x": values("f32"), "at": where, "y": np.zeros(128, np.float32)})


@pytest.mark.parametrize("kind", ["serial", "vector", "unrolled"])
@pytest.mark.parametrize("extent", [0, 1, 7, 100])
def test_loops_of_run_time_extent(kind: Kind, extent: int) -> None:
    b = Builder("sums")
    n, x, y = b.extent("N"), b.buffer("x", "i64"), b.buffer("y", "i64", True)
    with b.loop(3, "parallel") as p:
        total = b.var(Const(0))
        with b.loop(n, kind) as i:
            b.store(y, p * n + i, Load(x, p * n + i) * 3 + i)
        with b.loop(n) as i:
            b.set(total, total + Load(y, p * n + i))
        b.store(y, n * 3 + p, total)

    y0 = np.zeros(3 * extent + 3, np.int64)
    same(b.done(), {"x": np.arange(300), "y": y0}, N=extent)


def test_branches_loops_and_arrays() -> None:
    b = Builder("collatz")
    y = b.buffer("y", "i64", True)
    seen = b.array("i64", 16)
    with b.loop(30) as i:
        n, steps = b.var(i + 1), b.var(Const(0))
        with b.repeat_while(Compare("ne", n, Const(1))):
            with b.when(Compare("eq", n % 2, Const(0))):
                b.set(n, n // 2)
            with b.otherwise():
                b.set(n, n * 3 + 1)
            b.set(steps, steps + 1)
        b.store(seen, i % 16, steps)
        b.atomic("add", y, Const(0), steps)
        b.atomic("max", y, Const(1), steps)
        b.store(y, i + 2, Load(seen, i % 16))

    same(b.done(), {"y": np.zeros(32, np.int64)})


@pytest.mark.parametrize("name", ["vpdpbusd", "vdpbf16ps"])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_machine_operations(name: str, lanes: int) -> None:
    feature = {"vpdpbusd": "avx512vnni", "vdpbf16ps": "avx512bf16"}[name]
    level = Target.parse(f"x86-64-v4+{feature}")
    dtype = "i32" if name == "vpdpbusd" else "f32"
    b = Builder("dot")
    x, w, y = b.buffer("x", "i32"), b.buffer("w", "i32"), b.buffer("y", dtype, True)
    acc = Load(y, Const(0), lanes)
    b.store(y, 0, Intrinsic(name, (acc, Load(x, Const(0), lanes), Load(w, Const(0), lanes))))
    kernel = b.done()
    rng = np.random.default_rng(0)
    bits = rng.normal(0, 1, (2, 32)).astype(ml_dtypes.bfloat16).view(np.int32)
    operands = {"x": bits[0].copy(), "w": bits[1].copy(), "y": np.arange(16).astype(DTYPES[dtype])}

    assert name in assembly(render(kernel), level)
    if HOST.has(feature):
        same(kernel, operands)


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

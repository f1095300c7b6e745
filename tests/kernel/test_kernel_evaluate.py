"""The NumPy evaluator of kernels: the meaning that every renderer must give."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from alpenglow.ir.types import DTYPES, Array
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Compare, Const, Expr, Index, fold
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.text import parse_kernel, print_expr

INF, NAN = np.inf, np.nan
F32, I32 = np.float32, np.int32


def run(text: str, extents: dict[str, int] | None = None, **operands: Array) -> None:
    evaluate(parse_kernel(text), operands, extents)


def value(expr: str, dtype: str) -> Array:
    """Evaluate a constant expression."""
    kernel = parse_kernel(f"kernel @k(y: mut {dtype}) {{\n  y[0] = {expr}\n}}")
    y = np.zeros(1, DTYPES[dtype])
    evaluate(kernel, {"y": y})
    return y


@pytest.mark.parametrize(
    ("expr", "dtype", "expected"),
    [
        ("100:i8 + 100:i8", "i8", -56),
        ("3:u8 - 5:u8", "u8", 254),
        ("-7:i32 / 2:i32", "i32", -3),
        ("-7:i32 % 2:i32", "i32", -1),
        ("-7 / 2", "i64", -3),
        ("9223372036854775807 + 1", "i64", -(2**63)),
        ("abs(-128:i8)", "i8", -128),
        ("-8:i32 >> 1:i32", "i32", -4),
        ("248:u8 >> 1:u8", "u8", 124),
        ("not(5:i32)", "i32", -6),
        ("min(1.0:f32, nan:f32)", "f32", NAN),
        ("max(nan:f32, 1.0:f32)", "f32", NAN),
        ("round(2.5:f32)", "f32", 2),
        ("-7.5:f32 % 2.0:f32", "f32", -1.5),
        ("f32(nan:f32 != nan:f32)", "f32", 1),
        ("f32(nan:f32 == nan:f32)", "f32", 0),
        ("select(nan:f32 < 1.0:f32, 1, 2)", "i64", 2),
        ("i32(-2.7:f32)", "i32", -2),
        ("i8(300.0:f32)", "i8", 44),
        ("i32(3e9:f32)", "i32", -(2**31)),
        ("u32(3e9:f64)", "u32", 3000000000),
        ("u8(nan:f32)", "u8", 0),
        ("i64(inf:f32)", "i64", -(2**63)),
        ("u64(1e19:f64)", "u64", 10**19),
        ("bool(0.5:f32)", "bool", True),
        ("bits.i32(1.0:f32)", "i32", 0x3F800000),
        ("bits.bf16(16256:i16)", "bf16", 1.0),
        ("bits.i32(u8(lanes.4))", "i32", 0x03020100),
        ("shuffle(bits.u8(splat.2(-2:i32)), [4])", "u8", 254),
        ("1.0:bf16 + 0.0039:bf16", "bf16", 1.0),
        ("2048.0:f16 + 1.0:f16", "f16", 2048),
        ("reduce.max(lanes.8)", "i64", 7),
        ("reduce.add(1.5:f32x4)", "f32", 6),
        ("shuffle(lanes.4, [2])", "i64", 2),
        ("blend(lanes.4, lanes.4 + 4:i64x4, [2])", "i64", 2),
        ("blend(lanes.4, lanes.4 + 4:i64x4, [7])", "i64", 7),
    ],
)
def test_an_operation_means(expr: str, dtype: str, expected: float) -> None:
    actual = value(expr, dtype)

    np.testing.assert_array_equal(actual, np.array([expected]).astype(actual.dtype))


def test_fma_rounds_once() -> None:
    """In bf16 and f32 the rounded product would lose what the sum uncovers."""
    x, tiny = 1 + 2.0**-12, 2.0**-60

    assert value(f"fma({x}:f32, {x}:f32, {-(1 + 2.0**-11)}:f32)", "f32")[0] == 2.0**-24
    assert value(f"fma(1.0:f32, {1 + 2.0**-23}:f32, {2.0**-24}:f32)", "f32")[0] == 1 + 2.0**-22
    # Just above and just below a tie, by less than f64 could see next to it.
    half = 1.5 * 2.0**-23
    assert value(f"fma({tiny}:f32, {tiny}:f32, 1.0:f32)", "f32")[0] == 1
    assert value(f"fma({1 + 2.0**-30}:f64, {1 - 2.0**-30}:f64, -1.0:f64)", "f64")[0] == -(2.0**-60)
    assert value(f"fma(1.0:f32, 1.0:f32, {half}:f32)", "f32")[0] == F32(1 + 2.0**-22)


def test_masked_lanes_are_not_touched_and_load_zero() -> None:
    x, y = np.arange(6, dtype=F32) + 1, np.full(8, -1, F32)
    run(
        """kernel @k(x: f32, y: mut f32) extents(n) {
          r0: boolx8 = lanes.8 < splat.8(n)
          y[0] = x.8[0 if r0]
          y[lanes.8*2:i64x8 if lanes.8 < 2:i64x8] = 9.0:f32x8
        }""",
        extents={"n": 6},
        x=x,
        y=y,
    )

    assert y.tolist() == [9, 2, 9, 4, 5, 6, 0, 0]


def test_a_vector_address_gathers_and_scatters() -> None:
    x, y = np.arange(10, dtype=F32), np.zeros(4, F32)
    run(
        """kernel @k(x: f32, y: mut f32) {
          r0: i64x4 = 9:i64x4 - lanes.4*3:i64x4
          y[shuffle(lanes.4, [3, 2, 1, 0])] = x.4[r0]
        }""",
        x=x,
        y=y,
    )

    assert y.tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y[0] = x[8]", r"x\[8\] is outside, expected 0 or more and less than 8"),
        ("y[0] = x[-1]", r"x\[-1\] is outside"),
        ("y[0] = x.4[5]", r"x\[8\] is outside"),
        ("y[0] = x.4[lanes.4 - 2:i64x4]", r"x\[-2\] is outside"),
        ("y[3] = x[0]", r"y\[3\] is outside, expected 0 or more and less than 3"),
        ("y[0] = x.4[0]", r"y\[3\] is outside"),
        ("y[0] = x.4[6 if lanes.4 < 3:i64x4]", r"x\[8\] is outside"),
        ("atomic.add y[7] = x[0]", r"y\[7\] is outside"),
    ],
)
def test_an_address_outside_names_buffer_and_address(statement: str, message: str) -> None:
    text = f"kernel @k(x: f32, y: mut f32) {{\n  {statement}\n}}"

    with pytest.raises(IndexError, match=message):
        run(text, x=np.zeros(8, F32), y=np.zeros(3, F32))


def test_division_of_integers_by_zero_raises() -> None:
    with pytest.raises(ZeroDivisionError):
        value("1 % 0", "i64")


def test_loops_branches_and_registers() -> None:
    """The number of steps to 1 by the rule of Collatz."""
    steps = np.zeros(10, np.int64)
    run(
        """kernel @collatz(y: mut i64) {
          for i0 in 9 {
            r0: i64 = i0 + 1
            while r0 != 1 {
              if r0%2 == 0 {
                r0 = r0/2
              } else {
                r0 = r0*3 + 1
              }
              y[i0 + 1] = y[i0 + 1] + 1
            }
          }
        }""",
        y=steps,
    )

    assert steps.tolist() == [0, 0, 1, 7, 2, 5, 8, 16, 3, 19]


def test_a_part_of_the_parallel_loop_runs_alone() -> None:
    y = np.zeros(6, np.int64)
    kernel = parse_kernel("""kernel @k(y: mut i64) {
      parallel i0 in 6 {
        y[i0] = i0 + 1
      }
    }""")
    evaluate(kernel, {"y": y}, parallel=(2, 4))

    assert y.tolist() == [0, 0, 3, 4, 0, 0]


def test_threads_of_a_group_go_from_barrier_to_barrier() -> None:
    """Each thread reads what its right neighbour wrote, twice; shared arrays are one a group."""
    y = np.zeros(8, np.int64)
    run(
        """kernel @rotate(y: mut i64) {
          array a0: i64[4] shared
          array a1: i64[1] local
          group i0 in 2 {
            thread i1 in 2 {
              thread i2 in 2 {
                a0[i1*2 + i2] = i0*10 + i1*2 + i2
                for i3 in 2 {
                  barrier
                  a1[0] = a0[(i1*2 + i2 + 1)%4]
                  if i3 < 5 {
                    barrier
                  }
                  a0[i1*2 + i2] = a1[0]
                }
                y[i0*4 + i1*2 + i2] = a0[i1*2 + i2]
              }
            }
          }
        }""",
        y=y,
    )

    assert y.tolist() == [2, 3, 0, 1, 12, 13, 10, 11]


def test_threads_that_miss_a_barrier_are_found() -> None:
    b = Builder("k")
    with b.loop(2, "thread") as i, b.when(Compare("eq", i, Const(0))):
        b.barrier()

    with pytest.raises(AssertionError, match="some threads of a group wait at a barrier"):
        evaluate(b.done(), {})


def test_local_arrays_begin_with_nothing_useful() -> None:
    y = np.zeros(2, F32)
    run("kernel @k(y: mut f32) {\n  array a0: f32[2] local\n  y[0] = a0.2[0]\n}", y=y)

    assert np.isnan(y).all()


def test_atomics_combine_every_lane() -> None:
    y = np.array([5, 0], I32)
    run(
        """kernel @k(y: mut i32) {
          atomic.add y[0:i64x4] = 2:i32x4
          atomic.max y[1] = 7:i32
          atomic.min y[1] = 3:i32
        }""",
        y=y,
    )

    assert y.tolist() == [13, 3]


@pytest.mark.parametrize("name", ["vpdpbusd", "usdot"])
def test_bytes_with_a_sign_are_multiplied_by_bytes_without(name: str) -> None:
    a = np.array([255, 255, 255, 255, 1, 2, 3, 4], np.uint8).view(I32)
    b = np.array([127, 127, 127, 127, -1, -2, -3, -128], np.int8).view(I32)

    assert INTRINSICS[name].meaning(np.array([1, 2], I32), a, b).tolist() == [129541, -524]


def test_sdot_adds_four_products_of_bytes_with_signs() -> None:
    a = np.array([-1, -1, -1, -1, 1, 2, 3, 4], np.int8).view(I32)
    b = np.array([127, 127, 127, 127, -1, -2, -3, -128], np.int8).view(I32)

    assert INTRINSICS["sdot"].meaning(np.array([1, 2], I32), a, b).tolist() == [-507, -524]


def test_vcvtps2dq_rounds_halves_to_even_and_takes_the_least_for_what_is_too_large() -> None:
    x = np.array([0.5, 1.5, -2.5, 2.0**30, 3e9, -3e9, np.nan, -INF], F32).view(I32)
    least = -(2**31)

    assert INTRINSICS["vcvtps2dq"].meaning(x).tolist() == [0, 2, -2, 2**30, *[least] * 4]


def test_packing_limits_and_goes_by_quarters_of_registers() -> None:
    a, b = np.arange(16, dtype=I32), np.arange(16, dtype=I32) + 100
    a[0], b[3] = 40000, -40000
    halves = INTRINSICS["vpackssdw"].meaning(a, b)
    bytes_ = INTRINSICS["vpackuswb"].meaning(halves, halves).view(np.uint8)

    assert halves.view(np.int16)[:9].tolist() == [32767, 1, 2, 3, 100, 101, 102, -32768, 4]
    assert bytes_[:17].tolist() == [255, 1, 2, 3, 100, 101, 102, 0] * 2 + [4]


def test_vdpbf16ps_adds_two_products_of_bf16() -> None:
    a = np.array([1.5, 2, 3, 4], ml_dtypes.bfloat16).view(I32)
    b = np.array([2, 0.5, 1, INF], ml_dtypes.bfloat16).view(I32)

    assert INTRINSICS["vdpbf16ps"].meaning(np.array([1, 2], F32), a, b).tolist() == [5, INF]


@pytest.mark.parametrize(
    ("op", "x", "y", "expected"),
    [
        ("div", Const(-7), Const(2), "-3"),
        ("rem", Const(-7), Const(2), "-1"),
        ("div", Const(-(2**62) - 1), Const(1 << 10), str(-(2**52))),
        ("rem", Const(7), Const(0), "7%0"),
        ("add", Const(100, "i8"), Const(100, "i8"), "-56:i8"),
        ("add", Index("n") + 3, Const(4), "n + 7"),
    ],
)
def test_index_arithmetic_folds_as_it_would_run(op: str, x: Expr, y: Expr, expected: str) -> None:
    assert print_expr(fold(op, x, y)) == expected

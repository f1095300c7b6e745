"""Kernels of groups of threads, for the evaluator, laws and renderers alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from alpenglow.ir.types import DTYPES, FLOATS, HALVES, Array
from alpenglow.kernel.text import parse_kernel
from kernel_cases import Case


def numbers(dtype: str, count: int) -> Array:
    rng = np.random.default_rng(count)
    if dtype in FLOATS | HALVES:
        return rng.standard_normal(count).astype(DTYPES[dtype])
    return rng.integers(0, 2 if dtype == "bool" else 100, count).astype(DTYPES[dtype])


def exchange(text: str, dtype: str, lanes: int, size: int = 8) -> Case:
    """y = what threads of 2 subgroups in 3 groups make of x, which is of some lanes."""
    vector = f"x{lanes}" if lanes > 1 else ""
    load = f"x.{lanes}" if lanes > 1 else "x"
    place = f"((g*2 + w)*{size} + t)*{lanes}"
    kernel = parse_kernel(f"""kernel @exchange(x: {dtype}, y: mut {dtype}) subgroup {size} {{
  group g in 3 {{
    thread w in 2 {{
      thread t in {size} {{
        r0: {dtype}{vector} = {load}[{place}]
        y[{place}] = {text.replace("(x", "(r0")}
      }}
    }}
  }}
}}""")
    count = 3 * 2 * size * lanes
    return Case(kernel, {"x": numbers(dtype, count), "y": np.zeros(count, DTYPES[dtype])}, {})


EXCHANGES = (
    "across.xor(x, 5)", "across.down(x, 3)", "across.up(x, 3)", "across.from(x, t*3%8 + 1)",
)  # fmt: skip
COMBINED = ("add", "mul", "min", "max")


def rotated(size: int) -> Case:
    """Threads of a subgroup take what its next thread has put into shared memory, and y."""
    kernel = parse_kernel(f"""kernel @rotated(x: f32, y: mut f32) subgroup {size} {{
  array a0: f32[{2 * size}] shared
  group g in 3 {{
    thread w in 2 {{
      thread t in {size} {{
        a0[w*{size} + t] = x[(g*2 + w)*{size} + t]
        barrier subgroup
        r0: f32 = a0[w*{size} + (t + 1)%{size}]
        y[(g*2 + w)*{size} + t] = r0
        barrier
        r1: f32 = y[g*2*{size} + ((w + 1)%2*{size} + t)]
        barrier
        y[(g*2 + w)*{size} + t] = r1
      }}
    }}
  }}
}}""")
    x = numbers("f32", 6 * size)
    return Case(kernel, {"x": x, "y": np.zeros_like(x)}, {})


PRODUCT = """kernel @product(x: TYPE, y: TYPE, z: mut f32) subgroup 8 {
  array a0: TYPE[256] shared align 64
  group i0 in 2 {
    thread i1 in 2 {
      thread i2 in 8 {
        r3: f32[8x4] = 0.5:f32[8x4]
        for i4 in 3 {
          r5: TYPE[8x16] = x.8x16[(i0*2 + i1)*384 + i4*16, 48]
          for i6 in 8 {
            a0[i1*128 + i6*8 + i2] = y[(i4*16 + i6*2 + i2/4)*4 + i2%4]
          }
          barrier subgroup
          r3 = mma(r3, r5, a0.16x4[i1*128, 4])
          barrier subgroup
        }
        r7: f32[8x4] = select(r3 > 0.0:f32[8x4], r3, neg(r3)*r3)
        z[(i0*2 + i1)*32, 4] = r7 + mma(r7, x.8x16[0, 48], y.16x4[0, 4])
      }
    }
  }
}
"""
"""Products of 4 fragments; `TYPE` is the type of the factors."""


def product(dtype: str = "f32", subgroup: int = 8) -> Case:
    """z = what becomes of x[32, 48] @ y[48, 4], for a subgroup of 8 or of one thread."""
    text = PRODUCT.replace("TYPE", dtype)
    if subgroup == 1:
        text = text.replace(" subgroup 8", "").replace("thread i2 in 8", "for i2 in 8")
        # Each thread does what the subgroup did.
        text = text.replace("for i2 in 8 {", "thread i2 in 1 {").replace(
            "for i6 in 8", "for i6 in 64"
        )
        text = text.replace("a0[i1*128 + i6*8 + i2] = y[(i4*16 + i6*2 + i2/4)*4 + i2%4]",
                            "a0[i1*128 + i6] = y[i4*64 + i6]")  # fmt: skip
    rng = np.random.default_rng(5)
    x, y = (rng.integers(-4, 5, n).astype(DTYPES[dtype]) for n in (32 * 48, 48 * 4))
    return Case(parse_kernel(text), {"x": x, "y": y, "z": np.zeros(128, np.float32)}, {})


def integer_product(left: str) -> Case:
    """z = x[8, 16] @ y[16, 8], of bytes."""
    kernel = parse_kernel(f"""kernel @bytes(x: {left}, y: i8, z: mut i32) subgroup 4 {{
  thread t in 4 {{
    z[0, 8] = mma(1:i32[8x8], x.8x16[0, 16], y.16x8[0, 8])
  }}
}}""")
    rng = np.random.default_rng(6)
    x = rng.integers(*((0, 256) if left == "u8" else (-128, 128)), 128).astype(DTYPES[left])
    y = rng.integers(-128, 128, 128).astype(np.int8)
    return Case(kernel, {"x": x, "y": y, "z": np.zeros(64, np.int32)}, {})


def nested(subgroup: int) -> Case:
    """Products of products, and a fragment stored where it overlaps what it was loaded from."""
    kernel = parse_kernel(f"""kernel @nested(x: f32, z: mut f32) subgroup {subgroup} {{
  thread t in {subgroup} {{
    r0: f32[4x4] = x.4x4[0, 4]
    r0 = mma(r0, mma(r0, r0, x.4x4[16, 4]), neg(mma(x.4x4[4, 4], x.4x4[8, 4], r0)))
    z[4, 4] = r0
    barrier
    r1: f32[4x4] = z.4x4[2, 4] + r0
    barrier
    z[3, 4] = r1
  }}
}}""")
    x = np.random.default_rng(7).integers(-3, 4, 32).astype(np.float32)
    return Case(kernel, {"x": x, "z": np.zeros(20, np.float32)}, {})


def overlapping() -> Case:
    """A fragment that is stored a column beside where it was loaded from."""
    kernel = parse_kernel("""kernel @overlapping(x: f32, z: mut f32) {
  thread t in 1 {
    z[0, 4] = x.4x4[0, 4]
    z[1, 4] = z.4x4[0, 4]
  }
}""")
    return Case(kernel, {"x": numbers("f32", 16), "z": np.zeros(20, np.float32)}, {})


def products() -> Iterator[Case]:
    """Yield kernels of fragments."""
    yield from map(nested, (1, 8))
    yield overlapping()
    yield product("f32", 1)
    yield from map(product, ("f32", "f16", "bf16"))
    yield integer_product("u8")
    yield integer_product("i8")


def exchanges(size: int) -> Iterator[Case]:
    """Yield kernels of all that goes across the threads of a subgroup."""
    yield rotated(size)
    yield pipeline()
    for dtype in ("f32", "i32", "u8", "i16", "i64", "bool"):
        combined = ("any", "all") if dtype == "bool" else COMBINED
        for text in (*EXCHANGES, *(f"across.{op}(x)" for op in combined)):
            for lanes in (1, 4):
                yield exchange(text, dtype, lanes, size)


PIPELINE = """kernel @pipeline(x: i64, y: mut i64) {
  array a0: i64[16] shared align 64
  thread i0 in 8 {
    r2: i64 = 0
    copy a0[i0] = x[i0]
    commit
    for i1 in 5 {
      copy a0[(i1 + 1)%2*8 + i0] = x[(i1 + 1)*8 + i0 if (i1 + 1)*8 + i0 < 37]
      commit
      wait 1
      barrier
      r2 = r2 + a0[i1%2*8 + (i0 + 1)%8]
      barrier
    }
    y[i0] = r2
  }
}
"""
"""Sums of what lies 8 apart in 37 numbers, taken from the next thread; two batches are begun."""


def pipeline(text: str = PIPELINE) -> Case:
    return Case(parse_kernel(text), {"x": np.arange(37), "y": np.zeros(8, np.int64)}, {})

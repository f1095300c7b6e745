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

"""Faults planted into kernels that are right: each is named, with the place or the construct.

A kernel that runs without a complaint here has no race, misses no wait, and stays in its buffers,
for these data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from alpenglow.base.errors import KernelError
from alpenglow.ir.types import Array
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.races import RaceError
from alpenglow.kernel.text import parse_kernel

MATMUL = """kernel @matmul(a: f32, b: f32, c: mut f32) extents(n, k) {
  array rows: f32[16] shared
  array cols: f32[16] shared
  group gy in 2 {
    group gx in n/4 {
      thread ty in 4 {
        thread tx in 4 {
          acc: f32 = 0.0:f32
          for step in k/4 {
            rows[ty*4 + tx] = a[(gy*4 + ty)*k + step*4 + tx]
            cols[ty*4 + tx] = b[(step*4 + ty)*n + gx*4 + tx]
            barrier   # before the tiles are read
            for p in 4 {
              acc = fma(rows[ty*4 + p], cols[p*4 + tx], acc)
            }
            barrier   # before they are written again
          }
          c[(gy*4 + ty)*n + gx*4 + tx] = acc
        }
      }
    }
  }
}"""

FRAGMENTS = """kernel @fragments(a: f32, b: f32, c: mut f32) extents(n, k) subgroup 8 {
  array rows: f32[128] shared
  array cols: f32[256] shared
  group gx in n/16 {
    thread w in 2 {
      thread t in 8 {
        acc: f32[8x8] = 0.0:f32[8x8]
        number: i64 = w*8 + t
        copy rows[number*4] = a.4[number/2*k + number%2*4]
        copy cols[number*8] = b.8[number/2*n + gx*16 + number%2*8]
        commit
        for step in k/8 {
          next: i64 = step + 1
          if next < k/8 {
            copy rows[next%2*64 + number*4] = a.4[number/2*k + next*8 + number%2*4]
            copy cols[next%2*128 + number*8] = b.8[(next*8 + number/2)*n + gx*16 + number%2*8]
          }
          commit   # of the next tiles
          wait 1
          barrier   # after the wait
          acc = mma(acc, rows.8x8[step%2*64, 8], cols.8x8[step%2*128 + w*8, 16])
          barrier   # before the next copies
        }
        c[gx*16 + w*8, n] = acc
      }
    }
  }
}"""

SOFTMAX = """kernel @softmax(x: f32, y: mut f32) extents(n) subgroup 8 {
  array sums: f32[16] shared
  group g in 4 {
    thread w in 2 {
      thread t in 8 {
        top: f32 = -inf:f32
        for i in n/8 {
          top = max(top, x[(g*2 + w)*n + i*8 + t])
        }
        top = across.max(top)
        sum: f32 = 0.0:f32
        for i in n/8 {
          sum = sum + exp(x[(g*2 + w)*n + i*8 + t] - top)
        }
        sums[w*8 + t] = sum
        barrier subgroup
        sum = sums[w*8 + (t + 1)%8]
        sum = across.from(across.add(sum), 3)
        for i in n/8 {
          y[(g*2 + w)*n + i*8 + t] = exp(x[(g*2 + w)*n + i*8 + t] - top)/sum
        }
      }
    }
  }
}"""


Sizes = tuple[tuple[int, ...], tuple[int, ...]]
"""How many groups there are, and threads in each, along each axis."""


@dataclass(frozen=True)
class Right:
    """A kernel that is right, and the launch, operands and results of it."""

    text: str
    operands: Mapping[str, Array]
    extents: Mapping[str, int]
    launch: Sizes
    result: str
    expected: Array

    def run(self, text: str | None = None, launch: Sizes | None = None) -> Array:
        """Run the kernel, or another in its place, and return the result."""
        operands = {name: a.copy() for name, a in self.operands.items()}
        kernel = parse_kernel(text or self.text)
        evaluate(kernel, operands, self.extents, launch=launch or self.launch)
        return operands[self.result]

    def planted(self, old: str, new: str) -> str:
        assert self.text.count(old) == 1, f"{old} stands there {self.text.count(old)} times"
        return self.text.replace(old, new)


def right(name: str) -> Right:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, s).astype(np.float32) for s in ((8, 24), (24, 32)))
    flat = {"a": a.ravel(), "b": b.ravel(), "c": np.zeros(8 * 32, np.float32)}
    extents, product = {"n": 32, "k": 24}, (a @ b).ravel()
    if name == "matmul":
        return Right(MATMUL, flat, extents, ((8, 2), (4, 4)), "c", product)
    if name == "fragments":
        return Right(FRAGMENTS, flat, extents, ((2,), (8, 2)), "c", product)
    x = rng.standard_normal((8, 24)).astype(np.float32)
    powers = np.exp(x - x.max(1, keepdims=True))
    softmax = (powers / powers.sum(1, keepdims=True)).ravel()
    operands = {"x": x.ravel(), "y": np.zeros_like(x).ravel()}
    return Right(SOFTMAX, operands, {"n": 24}, ((4,), (8, 2)), "y", softmax)


@pytest.mark.parametrize("name", ["matmul", "fragments", "softmax"])
def test_what_is_right_passes(name: str) -> None:
    kernel = right(name)

    assert np.allclose(kernel.run(), kernel.expected, rtol=1e-6)


RACES = [
    # a barrier that is missing
    ("matmul", "barrier   # before the tiles are read\n", "\n",
     r"thread 1 reads rows\[0\], which thread 0 wrote, and no barrier is between"),
    ("matmul", "barrier   # before they are written again\n", "\n",
     r"thread 0 writes rows\[0\], which others read, and no barrier is between"),
    ("fragments", "barrier   # after the wait\n", "\n",
     r"subgroup 0 reads rows\[0\], which thread 0 wrote"),
    ("fragments", "barrier   # before the next copies\n", "\n",
     r"thread 0 writes rows\[0\], which others read"),
    ("softmax", "barrier subgroup\n", "\n",
     r"thread 0 reads sums\[1\], which thread 1 wrote"),
    # a barrier of too few
    ("matmul", "barrier   # before the tiles are read", "barrier subgroup",
     r"thread 1 reads rows\[0\], which thread 0 wrote"),
    ("fragments", "barrier   # after the wait", "barrier subgroup",
     r"subgroup 0 reads rows\[32\], which subgroup 1 wrote, and no barrier of the group"),
    ("softmax", "sums[w*8 + (t + 1)%8]", "sums[(w*8 + t + 8)%16]",
     r"subgroup 0 reads sums\[8\], which subgroup 1 wrote, and no barrier of the group"),
    # copies
    ("fragments", "wait 1\n", "\n", "under way: it has not been waited for"),
    ("fragments", "wait 1\n", "wait 2\n", "under way: it has not been waited for"),
    ("fragments", "        commit\n        for", "        for",
     r"subgroup reads rows\[0\].*it has not been waited for"),
    ("fragments", "commit   # of the next tiles\n          wait 1", "wait 0",
     "under way: it has not been committed"),
    ("fragments", "rows[next%2*64 + number*4]", "rows[number*4]", "rows"),
    # one place, two threads
    ("matmul", "c[(gy*4 + ty)*n + gx*4 + tx]", "c[(gy*4 + ty)*n + gx*4]",
     r"thread 0 writes c\[0\], which thread 3 writes"),
    ("matmul", "c[(gy*4 + ty)*n + gx*4 + tx]", "c[ty*n + gx*4 + tx]",
     r"group 8 writes c\[0\], which group 0 wrote, and nothing parts groups in time"),
    ("fragments", "c[gx*16 + w*8, n] = acc", "c[gx*16, n] = acc",
     r"subgroup [01] writes c\[0\], which"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "says"), RACES)
def test_races_are_named(name: str, old: str, new: str, says: str) -> None:
    kernel = right(name)
    with pytest.raises(RaceError, match=says):
        kernel.run(kernel.planted(old, new))


REFUSED = [
    # threads that do not meet
    ("matmul", "barrier   # before the tiles are read", "if tx < 2 {\nbarrier\n}",
     "not all threads of a group need meet in the 'if'"),
    ("matmul", "for step in k/4 {", "for step in k/4 + tx {",
     "not all threads of a group need meet in a serial loop"),
    ("softmax", "top = across.max(top)", "if t < 4 {\ntop = across.max(top)\n}",
     "not all threads of a subgroup need come to across.max in the 'if'"),
    ("softmax", "top = across.max(top)", "while top < 0.0:f32 {\ntop = across.max(top)\n}",
     "not all threads of a subgroup need come to across.max in the 'while'"),
    ("softmax", "barrier subgroup", "if t > 0 {\nbarrier subgroup\n}",
     "not all threads of a subgroup need meet in the 'if'"),
    ("fragments", "c[gx*16 + w*8, n] = acc", "if t == 0 {\nc[gx*16 + w*8, n] = acc\n}",
     "not all threads of a subgroup need come to a tile in the 'if'"),
    # sizes
    (
        "softmax",
        "subgroup 8",
        "subgroup 32",
        "a group has 16 threads, expected a multiple of the subgroup of 32",
    ),
    ("softmax", "across.max(top)", "across.xor(top, 8)", "across.xor by 8 in a subgroup of 8"),
    ("softmax", "across.add(sum), 3)", "across.add(sum), 8)",
     "across.from by 8 in a subgroup of 8"),
    ("fragments", "rows.8x8[step%2*64, 8]", "rows.8x8[64, 16]", "to 183 of 128 elements"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "says"), REFUSED)
def test_what_cannot_be_right_is_refused(name: str, old: str, new: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        parse_kernel(right(name).planted(old, new))


OUTSIDE = [
    ("softmax", "across.add(sum), 3)", "across.add(sum), t + 1)",
     "across.from reads thread 8, expected 0 to 7"),
    (
        "matmul",
        "rows[ty*4 + tx] =",
        "rows[ty*4 + tx + step] =",
        r"rows\[16\] is outside, expected 0 or more and less than 16",
    ),
    ("matmul", "c[(gy*4 + ty)*n + gx*4 + tx]", "c[(gy*4 + ty + 1)*n + gx*4 + tx]",
     r"c\[256\] is outside, expected 0 or more and less than 256"),
    (
        "fragments",
        "c[gx*16 + w*8, n]",
        "c[gx*16 + w*8, n + 1]",
        r"c\[256\] is outside, expected 0 or more and less than 256",
    ),
    ("fragments", "step%2*128 + w*8, 16]", "step%2*128 + w*8 - 8, 16]", r"cols\[-8\] is outside"),
    (
        "fragments",
        "if next < k/8 {",
        "if next < k/8 + 1 {",
        r"\[.*\] is outside, expected 0 or more",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new", "says"), OUTSIDE)
def test_what_lies_outside_is_named(name: str, old: str, new: str, says: str) -> None:
    kernel = right(name)
    with pytest.raises(IndexError, match=says):
        kernel.run(kernel.planted(old, new))


def test_threads_that_disagree_on_a_tile_are_told() -> None:
    kernel = right("fragments")
    with pytest.raises(AssertionError, match="disagree on where a tile of rows is"):
        kernel.run(kernel.planted("rows.8x8[step%2*64, 8]", "rows.8x8[step%2*64 + t/4, 8]"))


@pytest.mark.parametrize("name", ["matmul", "fragments", "softmax"])
def test_a_launch_of_another_size_is_told(name: str) -> None:
    kernel = right(name)
    groups, threads = kernel.launch
    with pytest.raises(KernelError, match=r"threads are launched as \(1, .*\), expected"):
        kernel.run(launch=(groups, (1, *threads)))

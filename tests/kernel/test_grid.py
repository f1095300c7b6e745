"""Grids of threads: they mean what loops mean, and mistakes of threads are told."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import loop_kernels
from alpenglow.base.errors import KernelError
from alpenglow.ir.target import Facts
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Const, Fma, Load
from alpenglow.kernel.races import RaceError
from alpenglow.kernel.stmt import For, Kernel
from alpenglow.kernel.text import parse_kernel
from alpenglow.ops.elementwise.activation import Gelu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.normalize import LayerNorm
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.window.pooling import MaxPool
from kernel_cases import Case, formulas, mapped
from loop_kernels import same_bits


@pytest.mark.parametrize("lanes", [1, 8, 16])
def test_threads_compute_what_a_loop_computes(lanes: int) -> None:
    for formula in formulas(lanes):
        loop, grid = mapped(formula, lanes), mapped(formula, lanes, "thread")
        evaluate(loop.kernel, loop.operands)
        evaluate(grid.kernel, grid.operands)
        assert same_bits(loop.operands["y"], grid.operands["y"]), loop.kernel


@pytest.mark.parametrize("op", [Add, Gelu, LayerNorm, Softmax, MatMul, MaxPool, Gather])
def test_iterations_of_a_parallel_loop_may_be_threads(
    op: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loops, branches, masks and arrays of each thread, as forms of operators have them."""
    monkeypatch.setattr(loop_kernels, "Facts", partial(Facts, serial=0))
    met = 0
    for case in loop_kernels.loop_cases(op, 4, 6):
        if case.kernel.parallel is None:
            continue
        one, other = ({n: a.copy() for n, a in case.operands.items()} for _ in range(2))
        evaluate(case.kernel, one, case.extents)
        evaluate(as_threads(case), other, case.extents)
        met += 1
        for name in one:
            assert same_bits(one[name], other[name]), case.kernel.name
    assert met


def as_threads(case: Case) -> Kernel:
    loop = case.kernel.parallel
    assert loop is not None, "it is parallel"
    grid = For(loop.index, loop.extent, loop.body, "thread")
    return replace(case.kernel, body=(*case.kernel.body[:-1], grid))


# ── mistakes ──

ROTATE = """
kernel @rotate(y: mut i64) {
  array a: i64[8] shared
  group g in 2 {
    thread t in 8 {
      a[t] = g*8 + t
      barrier
      r: i64 = a[(t + 1)%8]
      barrier
      a[t] = r
      barrier
      y[g*8 + t] = a[(t + 1)%8]
    }
  }
}
"""


def run(text: str, size: int = 16) -> np.ndarray:
    y = np.zeros(size, np.int64)
    evaluate(parse_kernel(text), {"y": y})
    return y


def test_threads_meet_at_barriers() -> None:
    assert run(ROTATE).tolist() == [2, 3, 4, 5, 6, 7, 0, 1, 10, 11, 12, 13, 14, 15, 8, 9]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (0, r"thread 0 reads a\[1\], which thread 1 wrote"),
        (1, r"thread 0 writes a\[0\], which thread 7 read"),
        (2, r"thread 0 reads a\[1\], which thread 1 wrote"),
    ],
)
def test_a_barrier_that_is_missing_is_a_race(number: int, says: str) -> None:
    lines = ROTATE.splitlines()
    barriers = [i for i, line in enumerate(lines) if "barrier" in line]
    del lines[barriers[number]]
    with pytest.raises(RaceError, match=says):
        run("\n".join(lines))


def threads(body: str, arrays: str = "array a: i64[8] shared") -> str:
    return f"kernel @k(y: mut i64) {{\n  {arrays}\n  thread t in 8 {{\n{body}\n  }}\n}}"


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        ("a[t/2] = t", RaceError, r"thread 0 writes a\[0\], which thread 1 writes"),
        ("a[0] = 3", RaceError, r"writes a\[0\], which thread"),
        (
            "if t == 3 {\n a[0] = t\n}\ny[t] = a[0]",
            RaceError,
            r"reads a\[0\], which thread 3 wrote",
        ),
        ("y[t] = a[0]\nif t == 3 {\n a[0] = t\n}", RaceError, r"a\[0\], which others read"),
        ("atomic.add a[0] = 1\ny[t] = a[0]", RaceError, "others, atomically, wrote"),
        ("a[t] = 0\natomic.add a[0] = 1", RaceError, r"thread 1 changes a\[0\], which thread 0"),
        ("y[t] = a[t]\natomic.add a[(t + 1)%8] = 1", RaceError, "changes"),
        ("if t < 4 {\n barrier\n}", KernelError, "not all threads of a group need meet"),
        ("for i in t {\n barrier\n}", KernelError, "not all threads of a group need meet"),
        ("a[t + 1] = t", IndexError, r"a\[8\] is outside, expected 0 or more and less than 8"),
        ("y[t*3] = t", IndexError, r"y\[18\] is outside"),
        ("y[t] = 7/(t - 2)", ZeroDivisionError, "divided by 0"),
    ],
)
def test_mistakes_of_threads_are_told(body: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        run(threads(body))


def test_what_threads_that_are_not_at_work_would_do_is_not_done() -> None:
    y = run(threads("if t > 2 {\n y[t - 3] = 7/(t - 2)\n}"))
    assert y[:6].tolist() == [7, 3, 2, 1, 1, 0]


def test_atomics_of_several_threads_add_up() -> None:
    y = run(threads("a[t] = 0\nbarrier\natomic.add a[t/4] = t\nbarrier\ny[t] = a[t]"))
    assert y[:8].tolist() == [6, 22, 0, 0, 0, 0, 0, 0]


def test_a_thread_reads_again_what_it_wrote_itself() -> None:
    y = run(threads("a[t] = t\na[t] = a[t] + 1\ny[t] = a[t]"))
    assert y[:8].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_local_arrays_are_those_of_a_thread() -> None:
    y = run(threads("a[0] = t\nbarrier\ny[t] = a[0]", "array a: i64[1] local"))
    assert y[:8].tolist() == list(range(8))


def test_threads_in_loops_of_their_own_length() -> None:
    body = "n: i64 = 0\nfor i in t {\n n = n + i\n}\nwhile n > 5 {\n n = n - t\n}\ny[t] = n"
    expected = []
    for t in range(8):
        n = sum(range(t))
        while n > 5:
            n -= t
        expected.append(n)
    assert run(threads(body))[:8].tolist() == expected


def test_a_tiled_product_of_many_threads_is_exact() -> None:
    b = Builder("tiled")
    left, right = b.buffer("a", "f32"), b.buffer("b", "f32")
    out, tile = b.buffer("c", "f32", mutable=True), 16
    rows, cols = (b.array("f32", tile * tile, "shared") for _ in range(2))
    with (
        b.loop(4, "group") as gy, b.loop(4, "group") as gx,
        b.loop(tile, "thread") as ty, b.loop(tile, "thread") as tx,
    ):  # fmt: skip
        acc = b.var(Const(0.0, "f32"))
        with b.loop(4) as step:
            b.store(rows, ty * tile + tx, Load(left, (gy * tile + ty) * 64 + step * tile + tx))
            b.store(cols, ty * tile + tx, Load(right, (step * tile + ty) * 64 + gx * tile + tx))
            b.barrier()
            with b.loop(tile) as p:
                b.set(acc, Fma(Load(rows, ty * tile + p), Load(cols, p * tile + tx), acc))
            b.barrier()
        b.store(out, (gy * tile + ty) * 64 + gx * tile + tx, acc)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-8, 8, (64, 64)).astype(np.float32) for _ in range(2))
    z = np.zeros(64 * 64, np.float32)
    evaluate(b.done(), {"a": x.ravel(), "b": y.ravel(), "c": z})

    assert (z.reshape(64, 64) == x @ y).all()

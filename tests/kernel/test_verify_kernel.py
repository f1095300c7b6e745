"""Kernels from elsewhere: each rule refuses what breaks it, and says in which statement."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import alpenglow as ag
from alpenglow.base.errors import KernelError
from alpenglow.kernel.build import Builder
from alpenglow.kernel.expr import (
    Binary,
    Buffer,
    Compare,
    Const,
    Convert,
    Expr,
    Index,
    Intrinsic,
    Lanes,
    Load,
    Reduce,
    Register,
    Shuffle,
    Splat,
    Unary,
)
from alpenglow.kernel.parse import parse_kernel
from alpenglow.kernel.stmt import For, Kernel, Set, Stmt
from alpenglow.kernel.verify import verify_kernel
from alpenglow.ops.elementwise.activation import Tanh

KERNEL = """kernel @k(x: f32, y: mut f32, m: mut i32) extents(n) {
  array a: f32[8] local align 64
  array s: f32[16] shared
  r0: f32x4 = x.4[0]
  for i in n {
    r0 = fma(r0, r0, splat.4(x[i]))
    r1: boolx4 = lanes.4 < splat.4(n - i*4)
    y[i*4 if r1] = shuffle(r0, [3, 2, 1, 0])
  }
  a[4] = r0
  while a[7] > 0.0:f32 {
    a[7] = a[7] - 1.0:f32
  }
  atomic.add m[0] = bits.i32(a[1])
  parallel j in n {
    y[j] = reduce.add(blend(r0, r0, [0, 7]))
  }
}"""

GRID = """kernel @grid(x: f32, y: mut f32) extents(n) {
  array s: f32[16] shared
  group g in n {
    thread t in 16 {
      for j in n + g {
        s[t] = x[(g*n + j)*16 + t]
        barrier
        y[g*16 + t] = y[g*16 + t] + s[0]
        barrier
      }
    }
  }
}"""


def test_what_is_right_passes() -> None:
    parse_kernel(KERNEL)
    parse_kernel(GRID)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        # names
        ("extents(n)", "extents(n, n)", "extents of kernel k repeat, expected unique names"),
        ("  a[4] = r0", "  for n in 3 {\n  }", "index n is a register, extent or other index"),
        ("  a[4] = r0", "  for r0 in 3 {\n  }", "index r0 is a register, extent or other"),
        ("  a[4] = r0", "  n: i64 = 3", "register n is an index or extent, too   (node n = …)"),
        # memory
        ("align 64", "align 48", "buffer a is aligned to 48, expected 0 or a power of two"),
        ("a: f32[8]", "a: f32[0]", "buffer a is local f32, size 0; expected a mutable array"),
        ("a: f32[8]", "a: f32[9999999999999999]", "has size 9999999999999999, expected at most"),
        ("a[4] = r0", "a[5] = r0", "a[5] to 8 of 8 elements   (node store a[…])"),
        ("a[7] > 0.0", "a[8] > 0.0", "a[8] to 8 of 8 elements   (node while)"),
        ("a[7] > 0.0", "a[-1] > 0.0", "a[-1] to -1 of 8 elements   (node while)"),
        ("atomic.add m[0]", "atomic.add x[0]", "x is written, but it is not mutable"),
        ("atomic.add m[0]", "atomic.add y[0]", "i32 is written to y of f32   (node atomic y[…])"),
        ("[i*4 if r1]", "[i*4 if i < n]", "a mask is bool, expected boolx4   (node store y[…])"),
        ("a[4] = r0", "a[lanes.2] = r0", "an address of i64x2 for 4 lanes"),
        ("a[4] = r0", "prefetch a[lanes.2]", "an address to prefetch is i64x2, expected i64"),
        # expressions
        ("[3, 2, 1, 0]", "[3, 2, 1, 4]", "lanes [3, 2, 1, 4] of 4   (node store y[…])"),
        ("splat.4(x[i])", "splat.4(x.2[i])", "2 lanes are splat to 4   (node r0 = …)"),
        ("bits.i32(a[1])", "@vpdpbusd(m[0], m[1])", "@vpdpbusd takes 3 operands, found 2"),
        ("bits.i32(a[1])", "reduce.max(@vpdpbusd(m.4[0], m.4[0], m[0]))",
         "@vpdpbusd of i32x4, i32x4, i32   (node atomic m[…])"),
        # loops
        ("for i in n {", "parallel i in n {", "a parallel loop is not outermost and last"),
        ("parallel j in n", "parallel j in n strips 0", "a loop in 0 strips"),
        ("for i in n {", "for i in x[0] {", "the extent of a loop is f32, expected i64"),
        ("for i in n {", "for i in n {\n group g in 4 {\n }", "a group loop inside of others"),
        ("for i in n {", "for i in n {\n thread g in 4 {\n }", "a thread loop inside of others"),
        ("for i in n {", "barrier\nfor i in n {", "a barrier has no threads around it"),
    ],
)  # fmt: skip
def test_a_text_that_breaks_a_rule_is_refused(old: str, new: str, says: str) -> None:
    assert KERNEL.count(old) == 1, old
    with pytest.raises(KernelError) as caught:
        parse_kernel(KERNEL.replace(old, new))

    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("for j in n + g", "for j in n + t", "not all threads of a group need meet in a serial"),
        ("for j in n + g", "if t == 0", "not all threads of a group need meet in the 'if'"),
        ("for j in n + g", "while x[0] > 0.0:f32", "need meet in the 'while'   (node barrier)"),
        ("thread t in 16", "thread t in i64(x[0])", "need meet in a thread loop"),
        ("group g in n {\n    thread t in 16 {", "thread t in 16 {\n    group g in n {",
         "a group loop inside of others   (node group g in …)"),
    ],
)  # fmt: skip
def test_a_barrier_is_met_by_all_threads(old: str, new: str, says: str) -> None:
    text = GRID.replace("g*n + j", "g*n + t") if "j in" in old and "j in" not in new else GRID
    assert text.count(old) == 1, old
    with pytest.raises(KernelError) as caught:
        parse_kernel(text.replace(old, new))

    assert says in str(caught.value)


# ── what a text cannot say, but a template can build ──


def stored(value: Expr, at: Expr | int = 0) -> Kernel:
    b = Builder("k")
    b.store(b.buffer("y", value.dtype, mutable=True), at, value)
    return b.done()


def looped(*body: Stmt, kind: str = "serial") -> Kernel:
    loop = For(Index("i"), Const(4), body, kind)  # type: ignore[arg-type]
    return Kernel("k", (), (), (), (loop,))


def conditional(condition: Expr) -> Kernel:
    b = Builder("k")
    with b.when(condition):
        pass
    return b.done()


def repeated(condition: Expr) -> Kernel:
    b = Builder("k")
    with b.repeat_while(condition):
        pass
    return b.done()


X, V, D = Const(1.0, "f32"), Const(1.0, "f32", 4), Const(1.0, "f64")


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Kernel("k", (Buffer("x", "f32"),) * 2, (), (), ()), "x is already declared"),
        (lambda: Kernel("k", (Buffer("x", "f32", size=3),), (), (), ()), "buffer x is global f32"),
        (lambda: Kernel("k", (), (), (Buffer("a", "f32", size=3, space="local"),), ()),
         "expected a mutable array, shared or local, with a size"),
        (lambda: stored(Load(Buffer("x", "f32"), Const(0))), "x is no buffer of the kernel"),
        (lambda: stored(Index("i")), "index i is read outside of its loop   (node store y[…])"),
        (lambda: stored(Register("r", "f32")), "register r is read before it is set"),
        (lambda: stored(X, Const(0, "i32")), "an address of i32 for 1 lanes"),
        (lambda: stored(Unary("sqr", X)), "no operation is called sqr"),
        (lambda: stored(Binary("plus", X, X)), "no operation is called plus"),
        (lambda: stored(Compare("is", X, X)), "no comparison is called is"),
        (lambda: stored(Reduce("sub", V)), "no lanes are combined by sub"),
        (lambda: stored(Intrinsic("vadd", (X,))), "no intrinsic is called vadd"),
        (lambda: stored(Shuffle(V, (0, 4))), "lanes [0, 4] of 4"),
        (lambda: stored(Shuffle(V, (0, -1))), "lanes [0, -1] of 4"),
        (lambda: stored(Splat(V, 4)), "4 lanes are splat to 4"),
        (lambda: stored(Lanes(0)), "0 lanes"),
        (lambda: stored(Const(1.0, "f32", 0)), "a constant of f32x0"),
        (lambda: conditional(Compare("eq", Convert(X, "f3"), Convert(X, "f3"))),
         "no element type is called f3"),
        (lambda: looped(Set(Register("r", "f32"), X), Set(Register("r", "f64"), D)),
         "f32 is set as another type   (node r = …)"),
        (lambda: looped(kind="endless"), "no loop is endless"),
        (lambda: conditional(Const(1)), "a condition is i64, expected bool   (node if)"),
        (lambda: repeated(Const(True, "bool", 4)), "a condition is boolx4, expected bool"),
    ],
)  # fmt: skip
def test_a_kernel_that_breaks_a_rule_is_refused(build: Callable[[], Kernel], says: str) -> None:
    with pytest.raises(KernelError) as caught:
        verify_kernel(build())

    assert says in str(caught.value)


def test_a_register_has_one_type() -> None:
    b = Builder("k")
    r = b.var(X)
    b.store(b.buffer("y", "i32", mutable=True), 0, Register(r.name, "i32"))

    with pytest.raises(KernelError, match="register r0 of f32 is read as i32"):
        verify_kernel(b.done())


@pytest.mark.parametrize("check", [False, True])
def test_kernels_are_verified_where_passes_are_checked(
    monkeypatch: pytest.MonkeyPatch, check: bool
) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", str(int(check)))
    monkeypatch.setenv("ALPENGLOW_CACHE", "off")
    seen: list[str] = []
    monkeypatch.setattr(
        "alpenglow.machines.proof.verify_kernel", lambda kernel: seen.append(kernel.name)
    )
    g = ag.Graph("f")
    g.output("y", g(Tanh(), g.input("x", "f32[64]")))
    ag.compile(g)

    assert bool(seen) == check

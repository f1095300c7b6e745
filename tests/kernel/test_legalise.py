"""Legalised kernels: without what a target lacks, and the same bits by the evaluator."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy as np
import pytest

from alpenglow.base.errors import UnsupportedError
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES, FLOATS, INTS, Array
from alpenglow.kernel.arithmetic import Arithmetic
from alpenglow.kernel.build import Builder
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import (
    Binary,
    Bitcast,
    Compare,
    Const,
    Convert,
    Expr,
    Fma,
    Intrinsic,
    Load,
    Lookup,
    Reduce,
    Shuffle,
)
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.kernel.legalise import INSTRUCTIONS, Lacks, halves, legalise
from alpenglow.kernel.rewrite import expressions
from alpenglow.kernel.stmt import Atomic, Kernel, Set, Store, statements
from alpenglow.kernel.text import parse_kernel, print_kernel
from kernel_cases import Case, formulas, mapped
from kernel_cases import statements as statement_cases
from loop_kernels import loop_cases, same_bits, sampled

HALVES = frozenset({"f16", "bf16"})

RECORDS = {
    "scalars": Lacks(lanes=1, instructions=INSTRUCTIONS),
    "fours": Lacks(lanes=4, instructions=INSTRUCTIONS),
    "masks": Lacks(masks=True),
    "halves": Lacks(halves=HALVES),
    "bf16": Lacks(halves=frozenset({"bf16"})),
    "fma": Lacks(fma=frozenset({"f32", *INTS})),
    "extremes": Lacks(extremes=FLOATS),
    "division": Lacks(quotients=True, remainders=True, extremes=FLOATS, wrapping=True),
    "logic": Lacks(logic=True),
    "wrapping": Lacks(wrapping=True),
    "atomics": Lacks(atomics=frozenset({"i64"})),
    "tables": Lacks(lookups=True, instructions=INSTRUCTIONS),
    "everything": Lacks(
        lanes=1, masks=True, halves=HALVES, fma=frozenset({"f16", "bf16", "f32", *INTS}),
        extremes=FLOATS, atomics=frozenset({"i64"}), logic=True, wrapping=True, lookups=True,
        instructions=INSTRUCTIONS,
    ),
    "opencl": Lacks(
        lanes=16, element=8, masks=True, halves=HALVES, atomics=frozenset({"i64"}), logic=True,
        wrapping=True, lookups=True, instructions=INSTRUCTIONS,
    ),
}  # fmt: skip
every_record = pytest.mark.parametrize("lacks", RECORDS.values(), ids=RECORDS.keys())


def remains(kernel: Kernel, lacks: Lacks) -> list[str]:
    """Return what there is of a kernel that the target lacks."""
    wrong = [b.name for b in (*kernel.buffers, *kernel.arrays) if b.dtype in lacks.halves]
    for e in expressions(kernel):
        if unknown(e, lacks):
            wrong.append(f"{e}")
    for s in statements(kernel.body):
        match s:
            case Store(value=value, mask=mask) if mask is not None:
                wrong += ["masked store"] if lacks.masks and value.lanes > 1 else []
            case Atomic(buffer=buffer):
                wrong += ["atomic"] if buffer.dtype in lacks.atomics else []
    return wrong


def unknown(e: Expr, lacks: Lacks) -> bool:
    """Whether a target lacks an expression itself, whatever it is made of."""
    limited = lacks.lanes and (e.lanes > lacks.lanes or e.lanes & (e.lanes - 1))
    thick = lacks.element and e.lanes > 1 and DTYPES[e.dtype].itemsize > lacks.element
    if limited or thick or e.dtype in lacks.halves:
        return True
    match e:
        case Load(lanes=lanes, mask=mask):
            return lacks.masks and lanes > 1 and mask is not None
        case Fma():
            return e.dtype in lacks.fma
        case Binary(op) | Reduce(op) if op in ("min", "max") and e.dtype in FLOATS:
            return e.dtype in lacks.extremes
        case Binary("rem") if e.dtype == "f32":
            return lacks.remainders and e.lanes > 1
        case Binary("div" | "rem", _, y) if e.dtype in ("i8", "u8", "i16", "u16", "i32", "u32"):
            return lacks.quotients and e.lanes > 1 and not isinstance(y, Const)
        case Binary(op) if e.dtype == "bool":
            return lacks.logic and op not in ("and", "or", "xor")
        case Reduce(op, x) if x.dtype == "bool":
            return lacks.logic and op != "or"
        case Compare(op, x) if x.dtype == "bool":
            return lacks.logic and op not in ("eq", "ne")
        case Convert(x, "u64"):
            return lacks.wrapping and x.dtype in FLOATS
        case Lookup():
            return lacks.lookups
        case Intrinsic(name):
            return name in lacks.instructions
    return False


def left(case: Case, kernel: Kernel) -> dict[str, Array]:
    """Return what a kernel leaves in its operands; those of other types are given its bits."""
    arrays = {n: a.copy() for n, a in case.operands.items()}
    views = {b.name: arrays[b.name].view(DTYPES[b.dtype]) for b in kernel.buffers}
    evaluate(kernel, views, case.extents)
    return arrays


def check(cases: Iterable[Case], lacks: Lacks) -> int:
    """Assert that legalised kernels lack nothing and do the same; return how many changed."""
    changed = 0
    for case in cases:
        kernel = legalise(case.kernel, lacks)
        assert remains(kernel, lacks) == [], print_kernel(kernel)
        assert legalise(kernel, lacks) is kernel
        if kernel is case.kernel:
            continue
        changed += 1
        assert print_kernel(parse_kernel(print_kernel(kernel))) == print_kernel(kernel)
        expected, actual = left(case, case.kernel), left(case, kernel)
        for name, a in expected.items():
            assert same_bits(a, actual[name]), f"{name}\n{print_kernel(case.kernel)}\n=>\n" + (
                f"{print_kernel(kernel)}\n{a}\n{actual[name]}"
            )
    return changed


@every_record
@pytest.mark.parametrize("lanes", [1, 8, 16])
@pytest.mark.sampled(6)
def test_operations_mean_the_same(lacks: Lacks, lanes: int) -> None:
    some = random.Random(lanes).sample(list(formulas(lanes)), 80)
    check((mapped(f, lanes) for f in some), lacks)


@every_record
@pytest.mark.sampled(6)
def test_memory_loops_and_branches_mean_the_same(lacks: Lacks) -> None:
    check(statement_cases(), lacks)


@pytest.mark.parametrize(("cls", "lanes"), sampled(0.1))
@pytest.mark.sampled(5)
def test_loop_forms_mean_the_same(cls: type[Op], lanes: int) -> None:
    for lacks in (RECORDS["opencl"], RECORDS["fours"]):
        check(loop_cases(cls, lanes, 2), lacks)


def test_a_kernel_that_lacks_nothing_is_the_same_object() -> None:
    for lanes in (1, 16):
        for formula in formulas(lanes):
            kernel = mapped(formula, lanes).kernel
            assert legalise(kernel, Lacks()) is kernel


# ── the laws one by one ──

LAWS = {
    "parts": (
        Lacks(lanes=2),
        "kernel @k(x: f32, y: mut f32) { y[0] = sqrt(x.4[1]) }",
        "r1: f32x2 = sqrt(x.2[3])",
    ),
    "masks": (
        Lacks(masks=True),
        "kernel @k(x: f32, y: mut f32) { y[0 if lanes.2 < 1:i64x2] = x.2[3] }",
        "y[1 if shuffle(r1, [1])] = shuffle(r0, [1])",
    ),
    "extremes": (
        Lacks(extremes=frozenset({"f32"})),
        "kernel @k(x: f32, y: mut f32) { y[0] = min(x[0], x[1]) }",
        "r5: f32 = select(r4, r0, r1)",
    ),
    "atomics": (
        Lacks(atomics=frozenset({"f32"})),
        "kernel @k(x: f32, y: mut f32) { atomic.add y[2] = x[0] }",
        "y[2] = y[2] + r0",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("lacks", "before", "after"), LAWS.values(), ids=LAWS.keys())
def test_a_law_in_text(lacks: Lacks, before: str, after: str) -> None:
    kernel = legalise(parse_kernel(before.replace("{ ", "{\n").replace(" }", "\n}\n")), lacks)

    assert after in [line.strip() for line in print_kernel(kernel).splitlines()]


def test_what_a_condition_needs_is_computed_before_each_turn() -> None:
    b = Builder("halving")
    x = b.buffer("x", "bf16", True)
    with b.repeat_while(Compare("gt", Load(x, Const(0)), Const(1, "bf16"))):
        b.store(x, 0, Binary("div", Load(x, Const(0)), Const(2, "bf16")))
    case = Case(b.done(), {"x": np.array([40], DTYPES["bf16"])}, {})

    assert check([case], Lacks(halves=HALVES)) == 1


def test_a_vector_that_is_set_to_its_own_lanes_is_read_before() -> None:
    b = Builder("turned")
    x = b.buffer("x", "i32", True)
    r = b.var(Load(x, Const(0), 8))
    b.set(r, Shuffle(r, (7, 6, 5, 4, 3, 2, 1, 0)))
    b.store(x, 0, r)
    case = Case(b.done(), {"x": np.arange(8, dtype=np.int32)}, {})

    assert all(check([case], Lacks(lanes=n)) == 1 for n in (1, 2, 4))


@pytest.mark.parametrize("name", sorted(INTRINSICS))
def test_machine_operations_mean_what_numpy_says(name: str) -> None:
    b = Builder("machine")
    x, y = b.buffer("x", "i32"), b.buffer("y", "i32", True)
    count = {"vcvtps2dq": 1, "vpackssdw": 2, "vpackuswb": 2, "vpermps": 2}.get(name, 3)
    args: list[Expr] = [Load(x, Const(16 * i), 16) for i in range(count)]
    if name in ("vdpbf16ps", "vpermps"):
        args[0] = Bitcast(args[0], "f32")
    b.store(y, 0, Bitcast(Intrinsic(name, tuple(args)), "i32"))
    halves_ = np.random.default_rng(1).normal(0, 300, 96).astype(DTYPES["bf16"])
    operands = {"x": halves_.view(np.int32), "y": np.zeros(16, np.int32)}

    assert check([Case(b.done(), operands, {})], RECORDS["scalars"]) == 1


# ── what laws refuse, and what they would be caught at ──


def test_what_threads_share_is_not_taken_apart() -> None:
    b = Builder("shared")
    y = b.buffer("y", "f32", True)
    with b.loop(4, "parallel"):
        b.atomic("add", y, 0, Const(1.0, "f32"))

    with pytest.raises(UnsupportedError, match=r"atomic add of f32.*threads share.*not supported"):
        legalise(b.done(), Lacks(atomics=frozenset({"f32"})))


def test_f64_is_not_multiplied_and_added_in_steps() -> None:
    b = Builder("exact")
    y = b.buffer("y", "f64", True)
    b.store(y, 0, Fma(Load(y, Const(0)), Load(y, Const(1)), Load(y, Const(2))))

    with pytest.raises(UnsupportedError, match=r"fma of f64 is not supported.*exact"):
        legalise(b.done(), Lacks(fma=frozenset({"f64"})))


def test_a_wrong_law_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding up what lies midway is wrong for every second number of bf16."""

    def upwards(m: Arithmetic, bits: Expr) -> Expr:
        return m.shift_right(m.add(bits, 0x8000), 16)

    monkeypatch.setattr(halves, "_to_bf16", upwards)
    b = Builder("midway")
    x, y = b.buffer("x", "f32"), b.buffer("y", "bf16", True)
    with b.loop(64) as i:
        b.store(y, i, Convert(Load(x, i), "bf16"))
    midway = (np.arange(64, dtype=np.uint32) << 15) + 0x3F800000
    case = Case(b.done(), {"x": midway.view(np.float32), "y": np.zeros(64, DTYPES["bf16"])}, {})

    with pytest.raises(AssertionError, match="kernel @midway"):
        check([case], Lacks(halves=HALVES))


def test_a_law_that_does_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alpenglow.kernel.legalise.LAWS", ())

    with pytest.raises(AssertionError, match="kernel @mapped"):
        check((mapped(f, 8) for f in formulas(8)), RECORDS["fours"])


def test_a_register_that_is_never_read_is_no_other() -> None:
    """What laws compute goes into registers of their own, of one type each."""
    kernel = parse_kernel(
        """kernel @k(y: mut bf16, x: f32) {
  for i in 8 {
    r1: bf16 = bf16(x[i])
    r2: f32 = f32(r1)
    y[i] = r1
  }
}"""
    )
    made = legalise(kernel, RECORDS["halves"])
    types: dict[str, set[str]] = {}
    for s in statements(made.body):
        if isinstance(s, Set):
            types.setdefault(s.register.name, set()).add(s.register.dtype)

    assert types["r2"] == {"f32"}
    assert {name for name, kinds in types.items() if len(kinds) > 1} == set()

"""Kernels stay within their operands, which is proved; and nothing else is."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow import loops
from alpenglow.base import knobs
from alpenglow.base.errors import UnsupportedError
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ir import dims
from alpenglow.ir.dims import symbol
from alpenglow.ir.op import Op
from alpenglow.ir.target import Target
from alpenglow.ir.types import DTYPES, FLOATS, INTS, Array, TensorType
from alpenglow.kernel.bounds import Access, accesses
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.expr import Binary, Const, Expr, Load
from alpenglow.kernel.inequality import Premises
from alpenglow.kernel.parse import parse_kernel
from alpenglow.kernel.stmt import For, If, Kernel, Store, While, statements
from alpenglow.kernel.sums import number
from alpenglow.loops.form import UNPROVED, has_form
from alpenglow.machines import proof
from alpenglow.machines.proof import ProofWarning, admitted, proved, summary
from alpenglow.machines.registry import kernels
from alpenglow.machines.vector.select import kernel_for
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.order import ReverseSequence
from alpenglow.program import Instr, Program, Region
from onnx_node import single
from operator_cases import OPERATORS, applications, every_operator, forest

TARGETS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")
"""Machines of 16, 8 and 4 lanes."""


def planned(cls: type[Op], target: Target) -> Program:
    """Return the program of all examples of an operator."""
    graph = forest(list(applications(cls)))
    *_, (_, program) = run_stages(graph, target, ag.Options(check=False))
    assert isinstance(program, Program)
    return program


def unproved(kernel: Kernel, instr: Instr) -> list[str]:
    return [str(a) for a in proved(kernel, instr) if not a.proved]


# ── what kernels do is proved ──


@every_operator
@pytest.mark.sampled(7)
def test_addresses_of_every_example_are_proved(
    cls: type[Op], record_property: pytest.RecordProperty
) -> None:
    found: list[tuple[str, Access]] = []
    for name in TARGETS:
        target = Target.parse(name)
        program = planned(cls, target)
        for instr, kernel in kernels(program, target):
            found += [(f"{name} {kernel.name}", a) for a in proved(kernel, instr)]
    for instr in program.instrs():
        if instr.body is None and has_form(instr.op):
            kernel = loops.build(instr.op.name, instr, Target.parse("interpreter").facts).done()
            found += [(f"1 lane {kernel.name}", a) for a in proved(kernel, instr)]
    affine = [a for _, a in found if a.affine]
    record_property("affine", f"{sum(a.proved for a in affine)} of {len(affine)}")
    record_property("data", f"{sum(a.proved for _, a in found if not a.affine)}"
                            f" of {len(found) - len(affine)}")  # fmt: skip

    assert [f"{where}: {a}" for where, a in found if not a.proved] == []


# ── what they do not is not ──


class Change:
    """Changes the one of the places where a kernel could be changed that has a number."""

    def __init__(self, wanted: int, way: Callable[[Any], Any]) -> None:
        self.wanted, self.way = wanted, way
        self.count = 0

    def kernel(self, k: Kernel) -> Kernel:
        return replace(k, body=self.rebuilt(k.body))

    def rebuilt(self, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(self.rebuilt(part) for part in x)
        if isinstance(x, Expr | For | If | While | Store) or type(x).__name__ in ("Set", "Atomic"):
            parts = {f.name: getattr(x, f.name) for f in fields(x)}
            made = type(x)(**{n: self.rebuilt(part) for n, part in parts.items()})
            changed = self.way(made)
            if changed is not None:
                self.count += 1
                if self.count - 1 == self.wanted:
                    return changed
            return made
        return x


def further(x: Any, by: int) -> Any:
    if not isinstance(x, Load | Store):
        return None
    return replace(x, at=Binary("add", x.at, Const(by, "i64", x.at.lanes)))


def longer(x: Any) -> Any:
    if isinstance(x, For) and isinstance(x.extent, Const):
        return replace(x, extent=Const(x.extent.value + 1))
    return None


def unmasked(x: Any) -> Any:
    return replace(x, mask=None) if isinstance(x, Load | Store) and x.mask is not None else None


def unasked(x: Any) -> Any:
    return replace(x, condition=Const(True, "bool")) if isinstance(x, If) else None


def unlimited(x: Any) -> Any:
    is_limit = isinstance(x, Binary) and x.op in ("min", "max") and x.dtype in INTS
    return x.x if is_limit else None


WAYS: dict[str, Callable[[Any], Any]] = {
    "one element further": lambda x: further(x, 1),
    "one element back": lambda x: further(x, -1),
    "one turn more": longer,
    "without mask": unmasked,
    "without a branch": unasked,
    "without a limit": unlimited,
}


def mutants(kernel: Kernel, draw: random.Random, most: int) -> Iterator[tuple[str, Kernel]]:
    """Yield some of the kernels that one change makes of a kernel."""
    places: list[tuple[str, int]] = []
    for name, way in WAYS.items():
        counting = Change(-1, way)
        counting.kernel(kernel)
        places += [(name, i) for i in range(counting.count)]
    loops_on = any(isinstance(s, While) for s in statements(kernel.body))
    if loops_on:  # What is read elsewhere may keep a loop going for ever.
        places = [p for p in places if p[0] == "without mask" or p[0] == "without a limit"]
    for name, i in draw.sample(places, min(most, len(places))):
        yield f"{name}, place {i}", Change(i, WAYS[name]).kernel(kernel)


def extent_of(r: Region) -> int:
    """Return how many elements lie from the first of a region to its last."""
    if 0 in r.shape:
        return 0
    return 1 + sum((d - 1) * s for d, s in zip(r.shape, r.strides, strict=True))


def contents(program: Program, r: Region, draw: np.random.Generator) -> Array:
    """Return what a region holds: a constant, or numbers that often are no indices."""
    size = extent_of(r)
    array = program.buffers[r.buffer].array
    if array is not None and r.buffer in program.buffers and array.size >= r.offset + size:
        return array.reshape(-1)[r.offset : r.offset + size].copy()
    dtype = DTYPES[r.type.dtype]
    if r.type.dtype in FLOATS:
        return draw.normal(0, 5, size).astype(dtype)
    if r.type.dtype in INTS:
        return draw.integers(0 if r.type.dtype[0] == "u" else -9, 10, size).astype(dtype)
    if r.type.dtype == "bool":
        return draw.random(size) < 0.5
    return np.zeros(size * dtype.itemsize, np.uint8).view(dtype)


def leaves(kernel: Kernel, program: Program, instr: Instr) -> bool:
    """Whether a kernel leaves its operands where they hold some numbers."""
    draw = np.random.default_rng(1)
    regions = {f"y{i}": r for i, r in enumerate(instr.outs)}
    regions |= {f"x{i}": r for i, r in enumerate(instr.ins) if r is not None}
    arrays = {
        # What is no operand is a word of the call: that it stops, that an index is out of range.
        b.name: contents(program, regions[b.name], draw) if b.name in regions else np.zeros(1, int)
        for b in kernel.buffers
    }
    try:
        evaluate(kernel, arrays)
    except IndexError:
        return True
    return False


def small(cls: type[Op], target: Target) -> tuple[Program, Instr, Kernel] | None:
    """Return an example of an operator whose kernel is soon evaluated."""
    program = planned(cls, target)
    found = [
        (len(list(statements(k.body))), i, k)
        for i, k in kernels(program, target)
        if not isinstance(i.op, Copy)
        and 1 < max(r.type.size for r in (*i.outs, *i.reads())) < 400
        and all(s >= 0 for r in (*i.outs, *i.reads()) for s in r.strides)
    ]
    if not found:
        return None
    _, instr, kernel = min(found, key=lambda each: each[0])
    return program, instr, kernel


SLICES = 5
"""Into how many tests the operators are dealt out whose kernels are changed."""


@pytest.mark.parametrize("slice_", range(SLICES))
@pytest.mark.rest
def test_no_kernel_that_leaves_its_operands_is_proved(
    slice_: int, record_property: pytest.RecordProperty
) -> None:
    """Where the evaluator meets an address outside, the proof has failed."""
    target = Target.parse("x86-64-v3")
    draw = random.Random(slice_)
    tried = outside = 0
    for cls in OPERATORS[slice_::SLICES]:
        example = small(cls, target)
        if example is None:
            continue
        program, instr, kernel = example
        for what, mutant in mutants(kernel, draw, 4):
            tried += 1
            if leaves(mutant, program, instr):
                outside += 1
                assert unproved(mutant, instr), f"{cls.name}, {what}: is proved, but leaves"
    record_property("mutants", f"{outside} of {tried} leave")

    assert outside > tried / 4 > 100 / SLICES


# ── single kernels ──


def found(text: str, **sizes: int) -> list[str]:
    """Return the unproved addresses of a kernel, on operands of so many elements."""
    kernel = parse_kernel(text)
    operands = {name: (number(0), number(size - 1)) for name, size in sizes.items()}
    return [str(a) for a in accesses(kernel, Premises(), operands) if not a.proved]


def test_an_index_from_memory_is_anything_until_it_is_limited() -> None:
    kernel = """
    kernel @take(y: mut f32, x: f32, i: i64) {{
      for i0 in 8 {{
        r1: i64 = i[i0]
        r2: i64 = {index}
        y[i0] = x[r2]
      }}
    }}"""

    assert found(kernel.format(index="r1"), y=8, x=100, i=8) == ["x[r2]"]
    assert found(kernel.format(index="max(r1, 0)"), y=8, x=100, i=8) == ["x[r2]"]
    assert found(kernel.format(index="min(max(r1, 0), 100)"), y=8, x=100, i=8) == ["x[r2]"]
    assert found(kernel.format(index="min(max(r1, 0), 99)"), y=8, x=100, i=8) == []
    assert found(kernel.format(index="i64(min(u64(r1), 99:u64))"), y=8, x=100, i=8) == []


def test_the_condition_of_a_loop_holds_in_it_and_not_while_it_is_asked() -> None:
    kernel = """
    kernel @walk(y: mut f32, x: f32) {{
      r0: i64 = 0
      while {condition} {{
        y[r0] = 0.0:f32
        r1: i64 = r0 + {step}
        r0 = r1
      }}
    }}"""
    within = kernel.format(condition="r0 < 9", step=1)
    looking = kernel.format(condition="(r0 < 9) & (x[r0] < 1.0:f32)", step=1)
    back = kernel.format(condition="r0 < 9", step=-1)

    assert found(within, y=9, x=9) == []
    assert found(within, y=8, x=9) == ["y[r0]"]
    assert found(looking, y=9, x=9) == ["x[r0]"]
    assert found(back, y=9, x=9) == ["y[r0]"]


def test_what_is_counted_in_a_loop_is_not_more_than_its_turns() -> None:
    kernel = """
    kernel @find(y: mut i64, x: f32) {{
      r0: i64 = 0
      for i1 in 4 {{
        for i2 in 5 {{
          y[r0] = i2
          r3: bool = x[i1*5 + i2] > 0.0:f32
          r4: i64 = r0 + i64(r3)
          r0 = r4
          {more}
        }}
      }}
      y[r0 - 1] = 0
    }}"""

    assert found(kernel.format(more=""), y=20, x=20) == ["y[r0 - 1]"]
    assert found(kernel.format(more=""), y=19, x=20) == ["y[r0]", "y[r0 - 1]"]
    assert found(kernel.format(more="r0 = r0 + 1"), y=20, x=20) == ["y[r0]", "y[r0 - 1]"]
    assert found(kernel.format(more="r0 = i2 + 16"), y=20, x=20) == ["y[r0]", "y[r0 - 1]"]


def test_what_only_one_branch_sets_is_not_known() -> None:
    kernel = """
    kernel @pick(y: mut f32, x: f32) {{
      r0: bool = x[0] > 0.0:f32
      if r0 {{
        r1: i64 = {one}
      }} else {{
        r1 = {other}
      }}
      y[r1] = 0.0:f32
    }}"""

    assert found(kernel.format(one=3, other=5), y=6, x=1) == []
    assert found(kernel.format(one=3, other=5), y=5, x=1) == ["y[r1]"]
    assert found(kernel.format(one=5, other=3), y=5, x=1) == ["y[r1]"]


def test_numbers_from_memory_can_wrap_when_they_are_multiplied() -> None:
    """A large number times another may be any: here it is asked for one that is not negative."""
    kernel = """
    kernel @wrap(y: mut f32, i: i32) {
      r0: i64 = i64(i[0])
      if r0 >= 0 {
        r1: i64 = r0*r0*r0
        r2: i64 = min(r1, 7)
        y[r2] = 0.0:f32
      }
    }"""

    assert found(kernel, y=8, i=1) == ["y[r2]"]
    assert found(kernel.replace("r0*r0*r0", "r0*r0"), y=8, i=1) == []


# ── where it is asked for ──


def sliced(offset: int, end: int) -> tuple[Instr, Kernel]:
    """Return an instruction that copies so many elements, and a kernel that copies eight."""
    t = TensorType("f32", (end - offset,))
    instr = Instr(Copy(), (Region("b", t, 0, (1,)),), (Region("a", t, offset, (1,)),))
    kernel = parse_kernel("""
    kernel @copy(y0: mut f32, x0: f32) {
      for i0 in 8 {
        y0[i0] = x0[i0]
      }
    }""")
    return instr, kernel


def test_a_kernel_that_may_leave_its_operands_is_a_mistake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    instr, kernel = sliced(0, 8)
    assert admitted(kernel, instr)
    assert summary(kernel, instr) == "2 proved"
    instr, kernel = sliced(1, 8)

    with pytest.raises(
        AssertionError, match=r"kernel copy of copy on f32\[7\], f32\[7\] may leave"
    ):
        admitted(kernel, instr)


def test_a_form_may_say_why_its_data_stay_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    t, n = TensorType("f32", (8,)), TensorType("i64", (8,))
    operands = (Region("a", t, 0, (1,)), Region("i", n, 0, (1,)))
    instr = Instr(Copy(), (Region("b", t, 0, (1,)),), operands)
    kernel = parse_kernel("""
    kernel @copy(y0: mut f32, x0: f32, x1: i64) {
      for i0 in 8 {
        r1: i64 = x1[i0]
        y0[i0] = x0[r1]
      }
    }""")
    with pytest.raises(AssertionError, match=r"x0\[r1\]"):
        admitted(kernel, instr)
    monkeypatch.setitem(UNPROVED, Copy, "it sorts indices of its own")

    assert admitted(kernel, instr)
    assert summary(kernel, instr) == "2 proved, 1 by the form (copy: it sorts indices of its own)"
    with pytest.raises(AssertionError, match="may leave"):
        admitted(Change(0, longer).kernel(kernel), instr)


def test_extents_of_tensors_are_not_negative_which_calls_must_keep() -> None:
    g = ag.Graph("f")
    x, i = g.input("x", "f32[6,8,n-2]"), g.input("i", "i64[6]")
    g.output("y", g(Gather(1), x, i))
    target = Target.parse("x86-64-v3")
    assumption = dims.Assumption({"n": 13})
    with dims.assuming(assumption):
        *_, (_, program) = run_stages(g, target, ag.Options(check=False))
        assert isinstance(program, Program)
        made = list(kernels(program, target))
        assert [unproved(kernel, instr) for instr, kernel in made] != [[]]

        assert all(admitted(kernel, instr) for instr, kernel in made)
    assert (symbol("n") - 2, ">=") in assumption.guards


def test_an_index_from_data_below_open_extents_does_not_wrap() -> None:
    """Of four open extents, the product of all could be anything; it is the size of a tensor."""
    t = TensorType("f32", tuple(symbol(name) for name in "abcd"))
    lengths = Region("n", TensorType("i64", (symbol("b"),)), 0, (1,))
    x, y = (Region(name, t, 0, tuple(math.prod(t.shape[i + 1 :], start=1) for i in range(4)))
            for name in "xy")  # fmt: skip
    instr = Instr(ReverseSequence(1, 0), (y,), (x, lengths))
    with dims.assuming(dims.Assumption({"a": 2, "b": 3, "c": 4, "d": 5})):
        assert not unproved(kernel_for(instr, Target.parse("x86-64-v3")), instr)


def test_extents_that_guards_make_numbers_are_these_numbers() -> None:
    n, c, h, w = (symbol(name) for name in "nchw")
    t = TensorType("f32", (n, c, h, w))
    dense = (c * h * w, h * w, w, 1)
    instr = Instr(Copy(), (Region("b", t, 0, dense),), (Region("a", t, 0, (60, 4 * h, 4, 1)),))
    values = {"n": 2, "c": 1, "h": 15, "w": 4}
    with dims.assuming(dims.Assumption(values)):
        kernel = kernel_for(instr, Target.parse("x86-64-v3"))
    with dims.assuming(dims.Assumption(values)):
        assert unproved(kernel, instr)
        for x in (n - 2, c - 1, w - 4):
            assert x == 0
        assert unproved(kernel, instr)  # as long as h may be anything

        assert c * h - 15 == 0
        assert not unproved(kernel, instr)


def test_several_axes_of_which_each_has_elements_have_some_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A border of Winograd's patches: its extents are quotients, and one loop fills it."""
    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    monkeypatch.setattr(knobs, "cache_folder", lambda: None)
    draws = np.random.default_rng(0)
    x = draws.standard_normal((1, 32, 13, 13)).astype(np.float32)
    w = draws.standard_normal((32, 32, 3, 3)).astype(np.float32)
    model = single("Conv", [x, w], 17, constants=[1], pads=[1] * 4)
    for d in list(model.graph.input[0].type.tensor_type.shape.dim)[2:]:
        d.dim_param = "m"
    model.graph.output[0].type.tensor_type.ClearField("shape")

    assert ag.compile(model, threads=1)(x).shape == x.shape


def test_an_operand_without_elements_has_no_address() -> None:
    t = TensorType("f32", (0, 5))
    instr = Instr(Copy(), (Region("b", t, 0, (1, 10)),), (Region("a", t, 0, (1, 10)),))
    kernel = parse_kernel("kernel @copy(y0: mut f32, x0: f32) {\n  y0[0] = x0[0]\n}")

    assert unproved(kernel, instr) == ["x0[0]", "y0[0]"]


def test_what_is_not_proved_for_open_extents_serves_those_that_it_is_proved_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def timid(kernel: Kernel, instr: Instr) -> list[Access]:
        assumption = dims.assumed()
        closed = assumption is None or any(relation == "==" for _, relation in assumption.guards)
        return [replace(a, proved=a.proved and closed) for a in proved(kernel, instr)]

    monkeypatch.setattr(proof, "proved", timid)
    g = ag.Graph("f")
    x = g.input("x", "f32[n]")
    g.output("y", g(Add(), x, x))
    rows = [np.arange(n, dtype=np.float32) for n in (5, 40, 5)]

    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    exe = ag.compile(g)
    for row in rows[:2]:
        with pytest.warns(ProofWarning, match=r"of add on f32\[n\].*serves these alone"):
            np.testing.assert_array_equal(exe(row), row + row)
    np.testing.assert_array_equal(exe(rows[2]), rows[2] + rows[2])
    assert len(exe.artifacts) == 2

    monkeypatch.setenv("ALPENGLOW_CHECK", "1")
    with pytest.raises(AssertionError, match=r"of add on f32\[n\].*may leave its operands"):
        ag.compile(g)(rows[0])


@pytest.mark.parametrize("told", [True, False])
def test_where_names_are_numbers_other_addresses_may_be_taken_together(
    told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Access("x0", "n*8", True, False), Access("x0", "i*n", True, True)

    def by(kernel: Kernel, instr: Instr, guards: Any, numbers: Any) -> list[Access]:
        return [one] if numbers else [two, replace(two, proved=told)]

    monkeypatch.setattr(proof, "_proved", by)
    monkeypatch.setattr(proof, "_numbers", lambda: {"n": 3})
    instr, kernel = sliced(0, 3)
    verdicts = proved(kernel, instr)

    assert all(a.proved for a in verdicts) == told
    assert len(verdicts) == (2 if told else 1)


def test_what_is_not_proved_is_interpreted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def timid(kernel: Kernel, instr: Instr) -> list[Access]:
        return [replace(a, proved=False) for a in proved(kernel, instr)]

    monkeypatch.setattr(proof, "proved", timid)
    monkeypatch.setenv("ALPENGLOW_CHECK", "0")
    g = ag.Graph("f")
    x = g.input("x", "f32[3]")
    g.output("y", g(Add(), x, x))
    with pytest.warns(ProofWarning, match=r"of add on f32\[3\].*: it is not used"):
        exe = ag.compile(g)

    assert [entry.kernel for entry in exe.artifact.table] == [""]
    np.testing.assert_array_equal(exe(np.ones(3, np.float32)), 2)
    refused = pytest.raises(UnsupportedError, match="a kernel that is not proved safe")
    with pytest.warns(ProofWarning), refused:
        ag.bundle(g, tmp_path / "bundle")


WINDOWS: dict[str, dict[str, Any]] = {
    "Conv": {"group": 2},
    "ConvTranspose": {"group": 2, "strides": [5, 6], "output_padding": [4, 5]},
    "MaxPool": {"kernel_shape": [2, 2]},
    "AveragePool": {"kernel_shape": [2, 2]},
    "LpPool": {"kernel_shape": [2, 2]},
    "Pad": {},
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("op", WINDOWS)
@pytest.mark.sampled(3)
def test_one_element_that_all_lanes_read_is_read_only_inside(op: str, target: str) -> None:
    """Along an axis of one element lanes share a load, which no mask holds back."""
    if not Target.parse(target).is_host_compatible():
        pytest.skip(f"this machine is no {target}")
    pads = ([3, 4, 0, 0], [0, 1, 3, 4], [1, 1, 1, 1])
    for shape, pad in itertools.product(((1, 2, 2, 1), (1, 2, 1, 2)), pads):
        x = np.arange(1, 5, dtype=np.float32).reshape(shape)
        if op == "Pad":
            model = single(op, [x, np.array([0, 0, *pad[:2], 0, 0, *pad[2:]])], 17, constants=[1])
        elif op in ("Conv", "ConvTranspose"):
            w = np.ones((2, 1, 2, 2), np.float32)
            model = single(op, [x, w], 17, constants=[1], pads=pad, **WINDOWS[op])
        else:
            model = single(op, [x], 17, pads=[min(p, 1) for p in pad], **WINDOWS[op])
        expected = ag.compile(model, target="interpreter")(x)
        for options in (ag.Options(numerics="strict"), ag.Options(numerics="fast")):
            actual = ag.compile(model, target=target, options=options)(x)
            np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_elements_may_be_negative_which_calls_must_keep() -> None:
    g = ag.Graph("f")
    g.output("y", g(Gather(0), g.input("x", "f32[8*k__e0,4]"), g.input("i", "i64[6]")))
    assumption = dims.Assumption({"k__e0": 3})
    with dims.assuming(assumption):
        *_, (_, program) = run_stages(g, Target.parse("x86-64-v3"), ag.Options(check=False))
        assert isinstance(program, Program)
        for instr, kernel in kernels(program, Target.parse("x86-64-v3")):
            assert admitted(kernel, instr)
    assert (symbol("k__e0"), ">=") in assumption.guards

    facts = Premises()
    assert facts.nonnegative(facts.extent(symbol("k")))
    assert not facts.nonnegative(facts.extent(symbol("k__e0")))

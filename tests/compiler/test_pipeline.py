"""The pipeline keeps its order, takes a user's passes, and checks what passes make."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.store import Store
from alpenglow.compiler import compile_graph
from alpenglow.compiler.pipeline import every_pass, table
from alpenglow.ir.graph import Graph, Node
from alpenglow.ir.op import Op
from alpenglow.ir.types import DTYPES
from alpenglow.ops.control.loop import While
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Equal
from alpenglow.ops.elementwise.logic import BitNot
from alpenglow.ops.product.contraction import Conv
from alpenglow.passes.table import RENAMED, Pass, brought, disorder, inserted, properties
from alpenglow.program import Instr, Program


def addition() -> Graph:
    g = Graph("f")
    g.output("y", g(Add(), g.input("a", "f32[4]"), g.input("b", "f32[4]")))
    return g


def same(ir: Any, target: ag.Target) -> Any:
    return ir


def subtract(g: Graph, target: ag.Target) -> Graph:
    for node in [n for n in g.nodes if isinstance(n.op, Add)]:
        g.replace(node.output, g(Sub(), *node.inputs))
    g.prune()
    return g


def test_the_stages_stand_in_an_order_with_reasons() -> None:
    rows, reasons = table(ag.Options())
    by_name = {p.name: p for p in rows}

    assert disorder(rows, reasons) is None
    for before, later, why in reasons:
        swapped = {before: later, later: before}
        assert disorder([by_name[swapped.get(p.name, p.name)] for p in rows], reasons), why


@pytest.mark.parametrize(("old", "name"), RENAMED.items())
def test_old_names_of_passes_work(old: str, name: str) -> None:
    names = [p.name for p in every_pass()]
    rows = inserted(every_pass(), [Pass("own", same, after=old)])

    assert old not in names
    assert [p.name for p in rows][names.index(name) + 1] == "own"


def test_reasons_of_a_machine_name_passes_by_old_and_present_names() -> None:
    rows = [Pass("own", same, after="lower")]

    assert brought(every_pass(), ("npu",), rows, [("own", "settle", "why")])[1] == [
        ("own", "fold_again", "why")
    ]
    with pytest.raises(OptionError, match="reasons of npu name the pass 'nowhere', expected one"):
        brought(every_pass(), ("npu",), rows, [("own", "nowhere", "why")])


def ran(machine: str, options: ag.Options) -> list[str]:
    """Return the names of the passes that run for a machine with options."""
    rows, _ = table(options)
    return [p.name for p in rows if p.serves(machine) and p.runs(options)]


def test_a_pass_of_the_user_runs_at_its_place() -> None:
    seen: list[str] = []
    mine = ag.Pass("mine", same, "changes nothing", needs=properties("primitive"), after="lower")
    ag.compile(
        addition(), options=ag.Options(passes=(mine,), after=lambda p, _: seen.append(p.name))
    )

    assert seen[seen.index("lower") + 1] == "mine"
    assert [name for name in seen if name != "mine"] == ran("cpu", ag.Options())


@pytest.mark.parametrize(
    ("mine", "says"),
    [
        (
            ag.Pass("mine", same, "", needs=properties("program"), after="fold"),
            "pass mine needs program",
        ),
        (ag.Pass("mine", same, "", after="nowhere"), "after is 'nowhere', expected one of: "),
        (ag.Pass("mine", same, ""), "after is '', expected one of: "),
        (ag.Pass("fold", same, "", after="lower"), "pass 'fold' is in the table already"),
        (
            ag.Pass("mine", same, "", breaks=properties("primitive"), after="lower"),
            "needs primitive",
        ),
    ],
)
def test_a_pass_that_does_not_fit_is_refused(mine: ag.Pass, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        ag.compile(addition(), options=ag.Options(passes=(mine,)))


@pytest.mark.parametrize("on", [("Log",), "Log", Op, (Op, int), (Neg(),)])
def test_a_pass_on_anything_but_operator_classes_cannot_be_made(on: Any) -> None:
    expected = f"pass 'mine': on is {on!r}, expected a tuple of operator classes"
    with pytest.raises(OptionError, match=re.escape(expected)):
        ag.Pass("mine", same, "", after="lower", on=on)


WRONG = ag.Pass("wrong", subtract, "computes something else", after="simplify")


@pytest.mark.parametrize(("knob", "check"), [("1", None), ("0", True), ("", True)])
def test_checking_catches_a_pass_that_changes_the_meaning(
    monkeypatch: pytest.MonkeyPatch, knob: str, check: bool | None
) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", knob)
    with pytest.raises(AssertionError, match="pass wrong changes output 'y'"):
        ag.compile(addition(), options=ag.Options(passes=(WRONG,), check=check))


@pytest.mark.parametrize(("knob", "check"), [("0", None), ("", None), ("1", False)])
def test_nothing_is_checked_where_nobody_asks_for_it(
    monkeypatch: pytest.MonkeyPatch, knob: str, check: bool | None
) -> None:
    monkeypatch.setenv("ALPENGLOW_CHECK", knob)
    exe = ag.compile(addition(), options=ag.Options(passes=(WRONG,), check=check))
    ones = np.ones(4, np.float32)

    np.testing.assert_array_equal(exe(ones, ones), np.zeros(4, np.float32))


def test_checking_interprets_programs_too() -> None:
    def multiply(program: Program, target: ag.Target) -> Program:
        body = tuple(replace(s, op=Mul()) if isinstance(s, Instr) else s for s in program.body)
        return replace(program, body=body)

    wrong = ag.Pass("multiply", multiply, "takes another operator", after="views")
    with pytest.raises(AssertionError, match="pass multiply changes output 'y'"):
        ag.compile(addition(), options=ag.Options(passes=(wrong,), check=True))


def convolution() -> Graph:
    random = np.random.default_rng(0)
    g = Graph("f")
    w = g.constant((random.normal(size=(64, 64, 3, 3)) / 24).astype(np.float32), "w")
    g.output("y", g(Conv(pads=(1, 1, 1, 1)), g.input("x", "f32[1,64,16,16]"), w))
    return g


def counting(dtype: str) -> Graph:
    """Return a loop that adds 1 to x while x is not 5: integers come to it, few floats do."""
    one, last = (np.array(n, DTYPES[dtype]) for n in (1, 5))
    body = Graph("turn")
    x = body.input("x", f"{dtype}[]")
    y = body(Add(), x, body.constant(one))
    body.output("going", body(BitNot(), body(Equal(), y, body.constant(last))))
    body.output("y", y)
    g = Graph("counting")
    x = g.input("x", f"{dtype}[]")
    going = g(BitNot(), g(Equal(), x, g.constant(last)))
    g.output("y", g.add(While(1), [going, x], [body]).output)
    return g


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
def test_a_loop_that_does_not_end_on_drawn_inputs_is_not_checked(target: str) -> None:
    exe = ag.compile(counting("f32"), target, options=ag.Options(check=True))

    assert exe(np.float32(2)) == 5


def test_checking_catches_a_pass_that_makes_a_loop_endless() -> None:
    def endless(g: Graph, target: ag.Target) -> Graph:
        for node in g.nodes:
            if node.regions:
                (body,) = node.regions
                body.outputs["going"] = body.constant(np.True_)
        return g

    mine = ag.Pass("endless", endless, "never ends", after="lower")
    with pytest.raises(AssertionError, match="pass endless makes a loop take more iterations"):
        ag.compile(counting("i64"), options=ag.Options(check=True, passes=(mine,)))


def test_strict_numerics_do_without_winograd() -> None:
    x = np.random.default_rng(1).normal(size=(1, 64, 16, 16)).astype(np.float32)
    results, used = {}, {}
    for numerics in ("fast", "strict"):
        nodes: list[Node] = []

        def look(p: ag.Pass, ir: Any, nodes: list[Node] = nodes) -> None:
            nodes.extend(ir.nodes if isinstance(ir, Graph) else ())

        options = ag.Options(numerics, after=look)
        results[numerics] = ag.compile(convolution(), options=options)(x)
        used[numerics] = any(n.op.name.startswith("winograd") for n in nodes)

    assert used == {"fast": True, "strict": False}
    # Winograd's transforms lose a few bits of f32; outputs are of order 1.
    np.testing.assert_allclose(results["fast"], results["strict"], 1e-4, 1e-4)


def test_code_for_another_machine_compiles_and_is_not_called() -> None:
    other = "aarch64" if ag.Target.parse("cpu") != ag.Target.parse("aarch64") else "x86-64-v3"
    exe = ag.compile(addition(), target=other)
    with pytest.raises(UnsupportedError, match="does not run on this machine"):
        exe(np.zeros(4, np.float32), np.zeros(4, np.float32))


def test_open_extents_are_named() -> None:
    g = Graph("f")
    g.output("y", g(Add(), g.input("a", "f32[N,M]"), g.input("b", "f32[N,M]")))
    with pytest.raises(UnsupportedError, match=r"dimensions M, N are dynamic in a f32\[N,M\]"):
        compile_graph(g, ag.Target.parse("cpu"), ag.Options(), Store(None))

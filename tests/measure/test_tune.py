"""Tuning: records choose among ways that all give the same, and tuning finds such records."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import ParseError
from alpenglow.ir.types import Array
from alpenglow.measure.tune import problems, tune, ways
from alpenglow.ops.product.contraction import Conv, MatMul

RECORD = "one problem : width=2 winograd=0\nother f32[1,2] : width=1\n"


def integers(*shape: int) -> Array:
    """Return small numbers, so that every order of summation gives the same bits."""
    return np.random.default_rng(0).integers(-2, 3, shape).astype(np.float32)


def network() -> ag.Graph:
    """A convolution that Winograd's way fits, and a matrix product."""
    g = ag.Graph("f")
    x = g.input("x", "f32[1,32,16,16]")
    g.output("y", g(Conv((1, 1), (1, 1, 1, 1)), x, g.constant(integers(64, 32, 3, 3))))
    z = g.input("z", "f32[20,40]")
    g.output("p", g(MatMul(), z, g.constant(integers(40, 96))))
    return g


def compiled(record: ag.Record) -> ag.Executable:
    return ag.compile(network(), threads=1, options=ag.Options(tuning=record))


def shapes(exe: ag.Executable) -> list[tuple[int, ...]]:
    """Return the shapes of the constants in a program."""
    buffers = exe.artifact.program.buffers.values()
    return sorted(b.type.extents for b in buffers if b.space == "const" and b.type is not None)


def test_a_record_reads_back() -> None:
    record = ag.Record.parse(RECORD)

    assert str(record) == RECORD
    assert record.problems["one problem"] == {"width": 2, "winograd": 0}


def test_a_later_line_counts() -> None:
    text = "# measured twice\n\nc f32[1] : width=1\nc f32[1] : width=3  # better\n"
    other = ag.Record.parse("c f32[1] : width=4\nd f32[1] : width=2\n")

    assert str(ag.Record.parse(text)) == "c f32[1] : width=3\n"
    assert str(ag.Record.parse(text).merged(other)) == str(other)


@pytest.mark.parametrize("line", ["no choices", "p f32[1] : width", "p f32[1] : width=-1", ": w=1"])
def test_what_is_no_record_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "tuning.txt"
    path.write_text(f"fine f32[1] : width=1\n{line}\n")

    with pytest.raises(ParseError, match=r"line 2 is .*, expected PROBLEM : CHOICE=NUMBER"):
        ag.Record.read(path)


@pytest.mark.rest
def test_every_way_of_every_problem_gives_the_same() -> None:
    feeds = {"x": integers(1, 32, 16, 16), "z": integers(20, 40)}
    expected = compiled(ag.Record()).run(feeds)
    target = ag.Target.parse("cpu")
    seen = set()
    for text, met in problems(network(), target).items():
        for way in ways(met):
            exe = compiled(ag.Record({text: way}))
            seen.add(str(shapes(exe)))
            for name, actual in exe.run(feeds).items():  # Winograd's way rounds
                np.testing.assert_allclose(actual, expected[name], rtol=0, atol=1e-3)

    # Winograd or not and two widths or more, for the convolution; two widths for the product.
    assert len(seen) >= 5


def test_a_choice_that_does_not_exist_is_ignored() -> None:
    (text, *_) = problems(network(), ag.Target.parse("cpu"))

    assert shapes(compiled(ag.Record({text: {"width": 77, "colour": 1}}))) == shapes(
        compiled(ag.Record())
    )


def test_a_record_is_read_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tuning.txt"
    monkeypatch.setenv("ALPENGLOW_TUNING", str(path))
    plain = shapes(ag.compile(network()))
    (text,) = (t for t in problems(network(), ag.Target.parse("cpu")) if t.startswith("conv"))
    path.write_text(f"{text} : winograd=0\n")
    direct = shapes(ag.compile(network()))
    monkeypatch.setenv("ALPENGLOW_TUNING", "off")

    assert direct != plain
    assert shapes(ag.compile(network())) == plain


def test_problems_are_told_apart_by_machine() -> None:
    here, there = (set(problems(network(), ag.Target.parse(t))) for t in ("cpu", "aarch64"))

    assert len(here) == len(there) == 2 and not here & there


def test_problems_are_those_of_the_precision_that_is_compiled_for() -> None:
    target = ag.Target.parse("x86-64-v4+avx512bf16")
    found = problems(network(), target, ag.Options(precision="bf16"))

    assert [m.problem.w.dtype for m in found.values()] == ["bf16", "bf16"]


@pytest.mark.rest
def test_tuning_measures_those_with_most_work_first() -> None:
    tuning = tune(network(), ag.Target.parse("cpu"), 1, seconds=60)

    assert [t.problem.split()[0] for t in tuning.found] == ["conv", "mat_mul"]
    assert tuning.problems == 2
    assert all(0 < t.best_seconds <= t.rule_seconds for t in tuning.found)
    assert tuning.record.problems.keys() <= {t.problem for t in tuning.found}


def test_tuning_ends_when_the_budget_is_spent() -> None:
    tuning = tune(network(), ag.Target.parse("cpu"), 1, seconds=0)

    assert len(tuning.found) <= 1 and tuning.problems == 2

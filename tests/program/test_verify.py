"""Programs from elsewhere: each rule refuses what breaks it, and says which instruction did."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import OptionError, ParseError, ProgramError
from alpenglow.compiler import every_pass, properties_after
from alpenglow.compiler.pipeline import run_stages
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.elementwise.select import Cast
from alpenglow.ops.reduction.scan import CumSum
from alpenglow.ops.tensor.movement import Concat, Slice, Transpose
from alpenglow.program import Instr, Program
from alpenglow.program.footprint import Footprint, Map, footprint, overlap
from alpenglow.program.instr import Region
from alpenglow.program.text import parse_program, print_program, side_weights
from alpenglow.program.verify import verify

PROGRAMS = [p.name for p in every_pass() if "program" in properties_after(p.name)]

SCHEDULED = """program @net arena=0 bound=0 {
  input %x : f32[2,3]
  output %z : f32[3,2]
  const @c : f32[3,2] = [[1, 2], [3, 4], [5, 6]]
  arena %a : 24
  arena %b : 24
  %a f32[2,3] = tanh(%x f32[2,3])
  %b f32[3,2] = transpose(%a f32[2,3], perm=(1, 0))
  %z f32[3,2] = add(%b f32[3,2], @c f32[3,2])
}"""

PLANNED = """program @net arena=192 bound=192 {
  input %x : f32[2,3]
  input %i : i64[4]
  output %z : f32[2,5]
  output %w : i64[4] called x
  const @c : f32[3,2] = [[1, 2], [3, 4], [5, 6]]
  arena %y : 40 @ 64
  arena %p : 16 @ 0
  arena %q : 32 @ 128
  alloc %y
  %y f32[2,3] +0 (5, 1) = tanh(%x f32[2,3])
  alloc %p
  %p f32[2,2] = fill(dtype='f32', shape=(2, 2), value=1.0)
  %y f32[2,2] +3 (5, 1) = neg(%p f32[2,2] +0 (1, 2))
  free %p
  %y f32[2,5] = neg(%y f32[2,5])
  alloc %q
  %q i64[4] = add(%i i64[4], %i i64[4])
  %z f32[2,5] = add(%y f32[2,5], %y f32[2,5])
  %w i64[4] = neg(%q i64[4] +3 (-1,))
  free %q
  free %y
}"""


def changed(text: str, *edits: tuple[str, str]) -> str:
    for old, new in edits:
        assert text.count(old) == 1, f"{old} stands {text.count(old)} times in the text"
        text = text.replace(old, new)
    return text


def test_what_is_right_passes() -> None:
    parse_program(SCHEDULED, properties=properties_after("schedule"))
    parse_program(PLANNED, properties=properties_after("plan"))


def test_a_hidden_input_is_a_key() -> None:
    hidden = changed(SCHEDULED, ("input %x", "hidden %x"))

    with pytest.raises(ProgramError, match=r"%x is input f32\[2,3\], expected input u32\[2\]"):
        parse_program(hidden)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        # regions
        (
            [("+3 (5, 1)", "+4 (5, 1)")],
            "+4 (5, 1) spans bytes 16 to 44, expected 0 to 40",
        ),
        ([("+3 (5, 1)", "+3 (-5, 1)")], "spans bytes -8 to 20, expected 0 to 40"),
        ([("+3 (-1,)", "+1 (-1,)")], "spans bytes -16 to 16, expected 0 to 32"),
        ([("+3 (5, 1)", "+30000000 (5, 1)")], "spans bytes 120000000 to 120000028"),
        ([("+3 (5, 1)", "+3 (0, 1)")], "has elements that overlap"),
        ([("+3 (5, 1)", "+3 (1, 1)")], "has elements that overlap"),
        (
            [("%p f32[2,2] +0 (1, 2)", "%p f32[2,2] +0 (1, 3)")],
            "spans bytes 0 to 20, expected 0 to 16",
        ),
        ([("(1, 2))", "(1, 99999999999999))")], "spans too many bytes"),
        # types
        ([("%z f32[2,5] = ", "%z f32[1,5] = ")], "results of add are f32[1,5], expected f32[2,5]"),
        (
            [("tanh(%x f32[2,3])", "tanh(%x f32[1,3])")],
            "results of tanh are f32[2,3], expected f32[1,3]",
        ),
        (
            [("tanh(%x f32[2,3])", "tanh(%i f32[2,3])")],
            "is unwritten or in part, expected elements of f32",
        ),
        (
            [("shape=(2, 2)", "shape=(1, 3, 1, 34000)")],
            "are f32[2,2], expected f32[1,3,1,34000]",
        ),
        ([("dtype='f32', shape", "dtype='f3', shape")], "dtype is 'f3', expected one of"),
        (
            [("tanh(%x f32[2,3])", "relu(%x f32[2,3])")],
            "relu is an instruction, expected a primitive operator",
        ),
        ([("neg(%p f32[2,2] +0 (1, 2))", "neg()")], "neg: got 0 operands"),
        # memory
        (
            [("output %z : f32[2,5]", "output %z : f32[1,2]")],
            "%z f32[2,5] +0 (5, 1) spans bytes 0 to 40",
        ),
        (
            [("output %z : f32[2,5]", "output %z : f32[3,5]")],
            "output %z is unwritten or in part, expected f32[3,5]",
        ),
        (
            [("output %z : f32[2,5]", "output %z : i32[2,5]")],
            "is written to an output, expected i32",
        ),
        ([("  %w i64[4] = neg(%q i64[4] +3 (-1,))\n", "")], "output %w is unwritten or in part"),
        (
            [("%p f32[2,2] = fill", "@c f32[2,2] = fill")],
            "is written, expected no write to space const",
        ),
        (
            [("%p f32[2,2] = fill", "%x f32[2,2] = fill")],
            "is written, expected no write to space input",
        ),
        (
            [("  %y f32[2,2] +3 (5, 1) = neg(%p f32[2,2] +0 (1, 2))\n", "")],
            "operand 0, %y f32[2,5]",
        ),
        (
            [
                ("%y f32[2,5] = neg(%y f32[2,5])", "%y f32[1,5] = neg(%y f32[1,5] +5 (5, 1))"),
                ("%z f32[2,5] = add(%y f32[2,5], %y f32[2,5])", "%z f32[2,5] = neg(%y f32[2,5])"),
            ],
            "",
        ),
        (
            [("%y f32[2,5] = neg(%y f32[2,5])", "%y f32[1,5] = neg(%y f32[1,5] +4 (5, 1))")],
            "overlaps operand 0",
        ),
        (
            [("%y f32[2,5] = neg(%y f32[2,5])", "%y f32[2,5] = neg(%y f32[2,5] +9 (-5, -1))")],
            "overlaps operand 0",
        ),
        ([("called x", "called z")], "two outputs are called %z"),
        # the arena
        ([("arena=192", "arena=64")], "lower_bound is 192, expected 0 to 64 (arena)"),
        (
            [("arena=192 bound=192", "arena=64 bound=64")],
            "takes bytes 64 to 104, expected a part of the arena of 64 bytes",
        ),
        (
            [("arena=192", f"arena={1 << 60}")],
            f"arena is {1 << 60} bytes, expected 0 to 192, where the last buffer ends",
        ),
        ([("16 @ 0", "16 @ 99999936")], "a part of the arena of 192 bytes"),
        ([("16 @ 0", "16 @ 1")], "is at 1, expected a multiple of 64"),
        (
            [("16 @ 0", "16 @ 64")],
            "buffer %p at 64 to 80 overlaps %y at 64 to 104, expected separate bytes",
        ),
        (
            [("16 @ 0", "80 @ 0")],
            "buffer %p at 0 to 80 overlaps %y at 64 to 104, expected separate bytes",
        ),
        ([("16 @ 0", f"{1 << 60} @ 0")], f"buffer %p has {1 << 60} bytes"),
        ([("16 @ 0", "16")], "buffer %p has no offset"),
        # lifetimes
        ([("  alloc %p\n", "")], "%p f32[2,2] +0 (2, 1) is not alive"),
        ([("  alloc %p\n", "  alloc %p\n  alloc %p\n")], "buffer %p is allocated twice"),
        ([("  alloc %p\n", "  alloc %z\n")], "alloc of %z, expected a buffer in the arena"),
        ([("  free %p\n", "")], "buffer %p is not freed"),
        ([("  free %p\n", "  free %p\n  free %p\n")], "buffer %p is freed, expected an alloc"),
        ([("  free %p\n", "  free %p\n  alloc %p\n  free %p\n")], "buffer %p is allocated twice"),
    ],
)
def test_a_planned_program_that_breaks_a_rule_is_refused(
    edits: list[tuple[str, str]], says: str
) -> None:
    text = changed(PLANNED, *edits)
    if not says:
        parse_program(text, properties=properties_after("plan"))
        return

    with pytest.raises(ProgramError) as caught:
        parse_program(text, properties=properties_after("plan"))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ([("%b f32[3,2] = ", "%b f32[3,2] +0 (1, 3) = ")], "is a part of its buffer"),
        ([("arena %a : 24", "arena %a : 48")], "is a part of its buffer"),
        ([("%b f32[3,2] = t", "%a f32[3,2] = t")], "is written twice"),
        (
            [("  %z f32[3,2]", "  %a f32[2,3] = tanh(%x f32[2,3])\n  %z f32[3,2]")],
            "is written twice",
        ),
        ([("perm=(1, 0)", "perm=(1, 5)")], "transpose"),
        (
            [("arena %a : 24", "arena %a : 24 @ 0")],
            "has an offset, expected none before memory is planned",
        ),
        ([("  %a f32", "  alloc %a\n  %a f32")], "expected none without lifetimes"),
    ],
)
def test_a_program_before_its_views_holds_values(edits: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(ProgramError) as caught:
        parse_program(changed(SCHEDULED, *edits), properties=properties_after("schedule"))
    assert says in str(caught.value)


PAIRS = """program @pairs arena=0 bound=0 {
  input %x : c64[3]
  output %y : c64[3]
  output %z : f32[3]
  %y f32[3,1] +0 (2, 1) = neg(%x f32[3,1] +0 (2, 1))
  %y f32[3,1] +1 (2, 1) = neg(%x f32[3,1] +1 (2, 1))
  %z f32[3] = neg(%y f32[3] +1 (2,))
}"""


def test_complex_numbers_are_written_and_read_in_parts() -> None:
    parse_program(PAIRS)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ([("%y f32[3,1] +1 (2, 1) =", "%y f32[3,1] +0 (2, 1) =")], "operand 0, %y f32[3] +1 (2,)"),
        ([("%z f32[3] = neg(%y f32[3] +1 (2,))", "%z f32[3] = neg(%y f32[3] +4 (1,))")], "spans"),
        (
            [("%z f32[3] = neg(%y f32[3] +1", "%z f64[1] = neg(%y f64[1] +1")],
            "operand 0, %y f64[1] +1 (2,), is unwritten or in part, expected elements of f64",
        ),
        (
            [("%z f32[3] = neg(%y f32[3] +1 (2,))", "%y f64[3] = copy(%y f64[3])")],
            "operand 0, %y f64[3] +0 (1,), is unwritten or in part",
        ),
        (
            [("%y f32[3,1] +1 (2, 1) = neg(%x f32[3,1] +1 (2, 1))",
              "%y i64[3] = fill(dtype='i64', shape=(3,), value=1)")],
            "is written to an output, expected c64",
        ),
    ],
)  # fmt: skip
def test_parts_are_those_of_their_complex_numbers(edits: list[tuple[str, str]], says: str) -> None:
    with pytest.raises(ProgramError, match=re.escape(says)):
        parse_program(changed(PAIRS, *edits))


def test_an_output_of_which_a_part_is_missing_is_refused() -> None:
    lines = [line for line in PAIRS.splitlines() if "+1" not in line and "%z" not in line]
    with pytest.raises(
        ProgramError, match=re.escape("output %y is unwritten or in part, expected c64[3]")
    ):
        parse_program("\n".join(lines))


def test_an_error_names_the_instruction() -> None:
    text = changed(PLANNED, ("+3 (5, 1)", "+4 (5, 1)"))

    with pytest.raises(ProgramError, match=r"node 4: %y = neg\(…\)"):
        parse_program(text, properties=properties_after("plan"))


def net() -> ag.Graph:
    g = ag.Graph("net")
    x, t = g.input("x", "f32[2,3]"), g.input("t", "f32[2,2]")
    y = g(Concat(1), g(Tanh(), x), g(Transpose((1, 0)), t))
    g.output("y", g(Add(), y, g(Slice((0, 4), (2, 5), (1, -1)), y)))
    return g


@pytest.mark.parametrize("stage", PROGRAMS)
def test_a_pass_of_a_user_that_breaks_a_rule_is_named(stage: str) -> None:
    def beyond(program: Program, target: ag.Target) -> Program:
        body = [
            replace(s, ins=tuple(None if r is None else replace(r, offset=1000) for r in s.ins))
            if isinstance(s, Instr) else s
            for s in program.body
        ]  # fmt: skip
        return replace(program, body=tuple(body))

    wrong = ag.Pass("beyond", beyond, "reads somewhere else", after=stage)

    with pytest.raises(ProgramError, match=r"after pass beyond: .* spans bytes 4000 to"):
        ag.compile(net(), options=ag.Options(passes=(wrong,), check=False))


def test_a_pass_of_a_user_may_leave_values_in_parts_if_it_says_so() -> None:
    def same(program: Program, target: ag.Target) -> Program:
        return program

    honest = ag.Pass("parts", same, "says so", breaks=frozenset({"values"}), after="schedule")

    with pytest.raises(OptionError, match="pass reorder needs values"):
        ag.compile(net(), options=ag.Options(passes=(honest,)))


def test_what_our_passes_make_is_verified_where_passes_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(
        "alpenglow.compiler.pipeline.verify", lambda program, facts: seen.append(set(facts))
    )
    for _ in run_stages(net(), ag.Target.parse("cpu"), ag.Options(check=True)):
        pass

    assert len(seen) == len(PROGRAMS) - 2  # there is no limit of memory
    assert "values" in seen[0] and "planned" in seen[-1]


def other_types() -> ag.Graph:
    """A net in which results take over memory that held another type."""
    g = ag.Graph("net")
    x = g.input("x", "f32[64]")
    whole = g(Cast("i32"), g(CumSum(0), x))
    g.output("y", g(CumSum(0), g(Cast("f32"), g(CumSum(0), whole))))
    return g


@pytest.mark.parametrize("net", [net, other_types])
def test_what_our_passes_make_passes(net: Callable[[], ag.Graph]) -> None:
    for p, made in run_stages(net(), ag.Target.parse("cpu"), ag.Options(check=False)):
        if isinstance(made, Program):
            verify(made, properties_after(p.name))
            parse_program(print_program(made), side_weights(made), properties_after(p.name))


def test_footprints_are_the_bytes_that_regions_touch() -> None:
    """Whatever the shape, type and strides: compared with a map of every byte."""
    rng = np.random.default_rng(0)
    regions = []
    for _ in range(300):
        dtype = str(rng.choice(["u8", "f16", "f32"]))
        shape = tuple(int(d) for d in rng.integers(0, 4, int(rng.integers(0, 4))))
        strides = tuple(int(s) for s in rng.integers(-6, 7, len(shape)))
        regions.append(Region("a", ag.TensorType(dtype, shape), int(rng.integers(40, 60)), strides))
    touched = [touches(r) for r in regions]

    for r, bytes_ in zip(regions, touched, strict=True):
        place, once = footprint(r)
        assert once == (len(bytes_) == len(set(bytes_)) and not widened(r, bytes_))
        if not widened(r, bytes_):
            assert 0 in r.shape or (place.begin, place.end) == (min(bytes_), max(bytes_) + 1)
    for i in range(0, 300, 2):
        a, b = regions[i], regions[i + 1]
        if not widened(a, touched[i]) and not widened(b, touched[i + 1]):
            meet = bool(set(touched[i]) & set(touched[i + 1]))
            assert overlap(footprint(a)[0], footprint(b)[0]) == meet


def touches(r: Region) -> list[int]:
    """Return every byte that a region touches, as often as it does."""
    size = r.type.numpy.itemsize
    places = [r.offset + int(np.dot(at, r.strides)) for at in np.ndindex(*r.shape)]
    return [p * size + i for p in places for i in range(size)]


def widened(r: Region, bytes_: list[int]) -> bool:
    """Whether windows overlap, or might: then all that lies between the ends counts."""
    if 0 in r.shape:
        return False
    steps = sorted((abs(s), d) for d, s in zip(r.shape, r.strides, strict=True) if d > 1 and s)
    reach = 1
    for step, extent in steps:
        if step < reach:
            return True
        reach += (extent - 1) * step
    return False


def test_pieces_are_marked_on_one_map(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map for each reader would take time that grows as the square of the text."""
    pieces, maps = 400, []

    class Counted(Map):
        def __init__(self, nbytes: int, footprints: Iterable[Footprint]) -> None:
            super().__init__(nbytes, footprints)
            maps.append(self)

    monkeypatch.setattr("alpenglow.program.contents.Map", Counted)
    lines = [f"  %a f32[1] +{i} (1,) = tanh(%x f32[1] +{i} (1,))" for i in range(pieces)]
    lines += [f"  %y f32[2] +{i} (1,) = tanh(%a f32[2] +{i} (1,))" for i in range(0, pieces, 2)]
    head = ["program @many arena=0 bound=0 {", f"  input %x : f32[{pieces}]",
            f"  output %y : f32[{pieces}]", f"  arena %a : {4 * pieces + 64}"]  # fmt: skip
    parse_program("\n".join([*head, *lines, "}"]))

    assert len(maps) == 2


def test_absurd_numbers_are_errors_of_ours() -> None:
    for old, new in (("f32[2,3]\n", f"f32[{1 << 70},3]\n"), ("f32[2,3]\n", "f32[-2,3]\n")):
        with pytest.raises(ParseError):
            parse_program(SCHEDULED.replace(old, new, 1))

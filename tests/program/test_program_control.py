"""Programs with loops and branches: their texts, what is refused, and limits on their memory."""

from __future__ import annotations

import numpy as np
import pytest

import alpenglow as ag
from alpenglow.base.errors import MemoryLimitError, ProgramError
from alpenglow.compiler.pipeline import run_stages
from alpenglow.evaluate import evaluate
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan
from alpenglow.ops.elementwise.activation import Relu, Tanh
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv
from alpenglow.ops.window.pooling import MaxPool
from alpenglow.program import Program
from alpenglow.program.interpret import interpret
from alpenglow.program.text import parse_program, print_program, side_weights
from control_cases import cases

CASES = cases()

LOOP = """program @loop arena=0 bound=0 {
  input %x : f32[6]
  input %limit : f32[]
  output %y : f32[6]
  arena %a : 24
  arena %b : 24
  arena %s : 4
  arena %going : 1
  alloc %a
  %a f32[6] = tanh(%x f32[6])
  alloc %b
  %b f32[6] = neg(%a f32[6])
  alloc %going
  alloc %s
  %s f32[] = reduce_sum(%b f32[6], axes=(0,), keepdims=False)
  %going bool[] = less(%s f32[], %limit f32[])
  free %s
  %b f32[6] = add(%b f32[6], %a f32[6])
  jump(%going bool[], by=-3)
  free %a
  free %going
  %y f32[6] = neg(%b f32[6])
  free %b
}"""


def stages(g: Graph, target: str) -> list[tuple[str, Program]]:
    made = run_stages(g.copy(), Target.parse(target), ag.Options())
    return [(p.name, ir) for p, ir in made if isinstance(ir, Program)]


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", CASES)
def test_each_stage_is_read_as_it_is_printed_and_means_the_same(name: str, target: str) -> None:
    case = CASES[name]
    for stage, program in stages(case.graph, target):
        text = print_program(program)
        read = parse_program(text, side_weights(program))

        assert print_program(read) == text, stage
        for feeds in case.feeds:
            expected = evaluate(case.graph, feeds)
            for output, y in interpret(read, feeds).items():
                np.testing.assert_allclose(y, expected[output], 1e-5, 1e-6, err_msg=stage)


def test_regions_are_programs_until_they_are_laid_out() -> None:
    texts = {stage: print_program(p) for stage, p in stages(CASES["nested"].graph, "cpu")}

    assert texts["share"].count("program @") == 3
    assert "while(" in texts["share"] and "jump(" not in texts["share"]
    assert texts["unfold"].count("program @") == 1
    # Two turns of the outer loop stand in a row, in each two of the inner one.
    assert texts["unfold"].count("jump(") == 3 * 4 and "while(" not in texts["unfold"]


def test_a_loop_that_follows_the_rules_is_read() -> None:
    parse_program(LOOP)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("by=-3", "by=-7", "a jump leads to -2, expected instruction 0 to 7"),
        ("by=-3", "by=3", "a jump leads to 8, expected instruction 0 to 7"),
        ("by=-3", "by=0", "jump: by is 0, expected another integer"),
        ("jump(%going bool[]", "jump(%limit f32[]", r"flag is f32\[\], expected bool\[\]"),
        ("jump(%going", "%going bool[] = jump(%going", r"of jump are bool\[\], expected "),
        ("jump(%going bool[], ", "jump(%going bool[], %going bool[], ", "jump: got 2 operands"),
    ],
)
def test_jumps_that_break_a_rule_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ag.errors.AlpenglowError, match=message):
        parse_program(LOOP.replace(old, new))


def test_a_loop_that_frees_what_its_next_turn_reads_is_refused() -> None:
    freed = LOOP.replace("  free %a\n", "").replace("  jump(", "  free %a\n  jump(")
    with pytest.raises(ProgramError, match="%a is freed in a loop that reads it"):
        parse_program(freed)


BRANCH = """program @branch arena=0 bound=0 {
  input %x : f32[6]
  input %n : i32[6]
  input %flag : bool[]
  output %y : f32[6]
  output %z : i32[6]
  arena %a : 24
  arena %b : 24
  alloc %a
  %a f32[6] = tanh(%x f32[6])
  jump(%flag bool[], by=4, when=False)
  alloc %b
  %b i32[6] = cast(%a f32[6], dtype='i32')
  %a i32[6] = add(%n i32[6], %n i32[6])
  jump(by=3)
  %a f32[6] = neg(%a f32[6])
  %b i32[6] = cast(%a f32[6], dtype='i32')
  free %a
  %z i32[6] = neg(%b i32[6])
  %y f32[6] = neg(%x f32[6])
  free %b
}"""


def test_each_way_of_a_branch_begins_with_the_contents_before_it() -> None:
    parse_program(BRANCH)


SPOILED = {
    "the first way does not write b": BRANCH.replace(
        "  %b i32[6] = cast(%a f32[6], dtype='i32')\n  %a i32", "  %a i32"
    ),
    "the second way writes another type": BRANCH.replace(
        "%b i32[6] = cast(%a f32[6], dtype='i32')\n  free", "%b f32[6] = neg(%a f32[6])\n  free"
    ),
    "both ways leave another type in a": BRANCH.replace("neg(%x", "neg(%a").replace(
        "  free %a\n", ""
    ).replace("  free %b", "  free %b\n  free %a"),
    "an iteration leaves another type in b": LOOP.replace("= neg(%b", "= neg(%x").replace(
        "%b f32[6] = add(%b f32[6], %a f32[6])", "%b i32[6] = cast(%b f32[6], dtype='i32')"
    ),
}


@pytest.mark.parametrize("why", SPOILED)
def test_a_value_that_is_not_written_on_each_path_is_refused(why: str) -> None:
    with pytest.raises(ProgramError, match="is unwritten or in part"):
        parse_program(SPOILED[why])


def image() -> Graph:
    """Return convolutions whose rows roll before a loop and a branch that keep what came first."""
    rng = np.random.default_rng(0)
    g = Graph("image")
    x = g.input("x", "f32[1,3,40,12]")

    def conv(b: Graph, y: ag.Value) -> ag.Value:
        w = rng.standard_normal((8, y.type.extents[1], 3, 3), np.float32) / 8
        return b(Relu(), b(Conv((1, 1), (1, 1, 1, 1)), y, b.constant(w)))

    def pool(y: ag.Value) -> ag.Value:
        return g(MaxPool((2, 2), (2, 2), (0, 0, 0, 0), (1, 1)), y)

    y = pool(conv(g, pool(conv(g, conv(g, x)))))
    body = Graph("turn")
    body.input("turn", "i64[]")
    h, kept = body.input("h", y.type), body.input("kept", y.type)
    body.output("next", body(Add(), conv(body, body(Tanh(), h)), kept))
    y = g.add(Scan(3, 1), [y, g(Tanh(), y)], [body]).output
    ways = []
    for name in ("then", "else"):
        way = Graph(name)
        way.output("y", conv(way, way.input("y", y.type)))
        ways.append(way)
    g.output("y", g.add(If(), [g.input("go", "bool[]"), y], ways).output)
    return g


def test_a_loop_under_a_limit_leaves_the_same_bits() -> None:
    g, rng = image(), np.random.default_rng(1)
    strict = ag.Options(numerics="strict")
    free = ag.compile(g.copy(), threads=1, options=strict)
    arena = free.artifact.program.arena
    limited = ag.compile(
        g.copy(), threads=1, options=ag.Options(numerics="strict", memory=arena // 2)
    )
    x = rng.standard_normal((1, 3, 40, 12), np.float32)

    assert limited.artifact.program.arena <= arena // 2
    for go in (True, False):
        feeds = {"x": x, "go": np.array(go)}
        assert free.run(feeds)["y"].tobytes() == limited.run(feeds)["y"].tobytes()


@pytest.mark.parametrize("name", CASES)
def test_a_limit_that_a_loop_cannot_keep_to_is_refused(name: str) -> None:
    with pytest.raises(MemoryLimitError):
        ag.compile(CASES[name].graph.copy(), options=ag.Options(memory=1))

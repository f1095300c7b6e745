"""Every stage of the pipeline prints as text, and compilation can go on from that text.

tests/golden/mnist8/STAGE.txt shows what each stage makes of a small network; it is rewritten by
`pytest --bless`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
import models
from alpenglow.base import knobs
from alpenglow.base.store import Store
from alpenglow.compiler import Options, every_pass
from alpenglow.compiler.pipeline import emit, run_stages
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Target
from alpenglow.ir.text import parse_graph
from alpenglow.ir.text import side_weights as graph_weights
from alpenglow.program import Instr, Program, Region
from alpenglow.program.instr import Step
from alpenglow.program.text import parse_program, print_ir, print_program
from alpenglow.program.text import side_weights as program_weights
from alpenglow.runtime.executables.installed import install

Array = NDArray[Any]
IR = Graph | Program

pytestmark = pytest.mark.models

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "mnist8"
SCREEN = 70
"""Lines of text that one can take in at a glance."""

IMPORT = "import"

OPTIONS = Options(check=False)
"""Passes are validated where models are compiled; here each would be once a stage."""

STAGES = [p.name for p in every_pass() if p.serves("cpu") and p.runs(OPTIONS)]
"""The passes that run where nothing is asked for."""

HEAVY = (
    "basic_pitch",
    "shufflenet",
    "seeded_squeezenet",
    "squeezenet11",
    "squeezenet11_qdq",
    "squeezenet11_qlinear",
    "style26",
    "vgg19",
    "zfnet512",
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "style_predict_qdq",
    "style_transform_qdq",
)


def weights(ir: IR) -> dict[str, Array]:
    return graph_weights(ir) if isinstance(ir, Graph) else program_weights(ir)


def read_back(ir: IR, printed: str) -> IR:
    parse = parse_graph if isinstance(ir, Graph) else parse_program
    return parse(printed, weights(ir))


def stages(graph: Graph, target: Target) -> list[tuple[str, IR, str]]:
    """Return the name of each stage, what it made, and its text at that moment."""
    found: list[tuple[str, IR, str]] = [(IMPORT, graph, print_ir(graph))]
    for p, ir in run_stages(graph.copy(), target, OPTIONS):
        # Passes change graphs in place: what is compared is a copy.
        kept = ir.copy() if isinstance(ir, Graph) else ir
        found.append((p.name, kept, print_ir(ir)))
    return found


def loaded(name: str) -> Graph:
    shapes = {key: array.shape for key, array in models.inputs(name).items()}
    g = ag.load(models.model_path(name), shapes)
    return g if isinstance(g, Graph) else g.graph


def planned(ir: IR, stage: str) -> Program:
    """Return the program that the stages after `stage` make."""
    start: IR = ir.copy() if isinstance(ir, Graph) else ir
    resume = "" if stage == IMPORT else stage
    made: IR = start
    for _, reached in run_stages(start, Target.parse("cpu"), OPTIONS, resume):
        made = reached
    assert isinstance(made, Program)
    return made


def outputs(program: Program, feeds: dict[str, Array]) -> dict[str, Array]:
    artifact = emit(program, Target.parse("cpu"), OPTIONS, Store(knobs.cache_folder()))
    return install(artifact, 1).run(feeds)


def anonymous(program: Program) -> str:
    """Return the text of a program in which buffers are numbered in the order of their use."""
    used = {r.buffer: None for i in program.instrs() for r in (*i.reads(), *i.outs)}
    names = {old: f"b{n}" for n, old in enumerate({**used, **program.buffers})}

    def region(r: Region) -> Region:
        return replace(r, buffer=names[r.buffer])

    def step(s: Step) -> Step:
        if not isinstance(s, Instr):
            return replace(s, buffer=names[s.buffer])
        ins = tuple(None if r is None else region(r) for r in s.ins)
        return replace(s, outs=tuple(map(region, s.outs)), ins=ins)

    buffers = {new: replace(program.buffers[old], name=new) for old, new in names.items()}
    return print_program(
        replace(
            program,
            buffers=buffers,
            inputs=tuple(names[n] for n in program.inputs),
            outputs=tuple(names[n] for n in program.outputs),
            body=tuple(map(step, program.body)),
        )
    )


@pytest.mark.parametrize("stage", [IMPORT, *STAGES])
@pytest.mark.sampled(16)
def test_mnist8_reads_as_its_golden_file(stage: str, bless: bool) -> None:
    path = GOLDEN / f"{stage}.txt"
    made = {name: text for name, _, text in stages(loaded("mnist8"), Target.parse("x86-64-v4"))}
    actual = made[stage] + "\n"
    if bless:
        path.parent.mkdir(exist_ok=True)
        path.write_text(actual)
    expected = path.read_text()

    assert expected == actual
    assert len(actual.splitlines()) <= SCREEN


def test_every_golden_file_belongs_to_a_stage() -> None:
    expected = {IMPORT, *STAGES}
    actual = {path.stem for path in GOLDEN.glob("*.txt")}

    assert expected == actual


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if name.endswith(HEAVY) else ())
        for name in models.names()
    ],
)
@pytest.mark.sampled(0, "mnist8", "silero_vad_half")
def test_compilation_goes_on_from_the_text_of_any_stage(name: str) -> None:
    graph, feeds = loaded(name), models.inputs(name)
    made = stages(graph, Target.parse("cpu"))
    direct = planned(graph, IMPORT)
    expected = outputs(direct, feeds)
    for number, (stage, ir, printed) in enumerate(made):
        again = read_back(ir, printed)
        assert printed == print_ir(again), stage
        # What the next stage makes of it is what goes on from there.
        if number + 1 < len(made) and after(again, stage) == made[number + 1][2]:
            continue
        program = planned(again, stage)
        # Code is a function of the program: of equal ones a single run is enough.
        if stage == STAGES[-1] or anonymous(program) != anonymous(direct):
            actual = outputs(program, feeds)
            for key, array in expected.items():
                np.testing.assert_array_equal(actual[key], array, f"{key} after {stage}")


def after(ir: IR, stage: str) -> str:
    """Return the text of what the next stage makes."""
    start: IR = ir.copy() if isinstance(ir, Graph) else ir
    resume = "" if stage == IMPORT else stage
    _, made = next(iter(run_stages(start, Target.parse("cpu"), OPTIONS, resume)))
    return print_ir(made)

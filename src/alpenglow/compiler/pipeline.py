"""The pipeline is a table, and the reasons for its order are a second one, checked at import.

From Graph to Graph the passes optimise and lower; `schedule` makes a Program; the rest plan its
memory.  One hook, `after`, sees what every pass made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alpenglow.backends.api import Artifact
from alpenglow.backends.registry import backend_for
from alpenglow.base import knobs
from alpenglow.base.errors import OptionError, ProgramError, TypeRuleError, UnsupportedError
from alpenglow.base.log import log
from alpenglow.base.store import Store
from alpenglow.compiler.options import Options
from alpenglow.compiler.passes import Facts, Pass
from alpenglow.compiler.validate import Validator
from alpenglow.ir import dims
from alpenglow.ir.dims import Assumption, assuming
from alpenglow.ir.graph import Graph, infer
from alpenglow.ir.target import Target
from alpenglow.ops.quantize import Dequantize
from alpenglow.passes.absorb import absorb
from alpenglow.passes.bands import split_bands
from alpenglow.passes.batch import split_batches
from alpenglow.passes.choices import tuned
from alpenglow.passes.cse import cse
from alpenglow.passes.few_bits import keep_few_bits, read_stored
from alpenglow.passes.fold import fold
from alpenglow.passes.fuse import fuse
from alpenglow.passes.indices import clamp_indices
from alpenglow.passes.lower import lower
from alpenglow.passes.precision import known_as, reduce_precision
from alpenglow.passes.quantized import integers
from alpenglow.passes.recover import recover, recover_halves
from alpenglow.passes.simplify import simplify
from alpenglow.passes.sink import sink
from alpenglow.program import (
    Program,
    eliminate_copies,
    mark_lifetimes,
    plan,
    schedule,
    share,
    spread_rows,
)
from alpenglow.program.bind import bind
from alpenglow.program.verify import verify


def _graph_pass(run: Any) -> Any:
    return lambda g, target: run(g)


def facts(*names: str) -> Facts:
    return frozenset(names)


STAGES: tuple[Pass, ...] = (
    Pass("stored", _graph_pass(read_stored), "arithmetic on stored weights is recognised"),
    Pass("fold", lambda g, t: fold(g, but=(Dequantize,)),
         "what is constant is computed now, but quantised weights stay"),
    Pass("simplify", _graph_pass(simplify), "algebra on the model as written"),
    Pass("quantized", _graph_pass(integers), "quantised models are computed in integers",
         fast=True, steps=True),
    Pass("few_bits", keep_few_bits, "products by quantised weights keep these in few bits",
         fast=True),
    Pass("widen", _graph_pass(fold), "quantised weights of what is left in floats become floats"),
    Pass("recover", _graph_pass(recover), "LayerNorm, GELU and softmax written out become one"),
    Pass("halves", _graph_pass(recover_halves), "those of halves, which overflow as written",
         fast=True),
    Pass("absorb", _graph_pass(absorb), "scales, shifts and pads join convolution and matmul"),
    Pass("sink", _graph_pass(sink), "transposes move down until they meet and cancel"),
    Pass("lower", _graph_pass(lower), "composites become primitives",
         makes=facts("primitive")),
    Pass("tidy", _graph_pass(simplify), "algebra on what lowering exposed",
         needs=facts("primitive")),
    Pass("settle", _graph_pass(fold), "scaled weights and what else became constant",
         needs=facts("primitive")),
    Pass("merge", _graph_pass(cse), "equal nodes become one",
         needs=facts("primitive")),
    Pass("algorithms", lambda g, t: backend_for(t).algorithms(g, t), "fewer multiplications",
         needs=facts("primitive"), fast=True),
    Pass("layout", lambda g, t: backend_for(t).layout(g, t), "blocked tensors, packed weights",
         needs=facts("primitive")),
    Pass("prepare", _graph_pass(fold), "weights are packed: folding again"),
    Pass("batch", _graph_pass(split_batches), "samples that do not fit the cache run in parts",
         needs=facts("primitive")),
    Pass("bands", _graph_pass(split_bands), "images whose patches do not fit the cache, in bands",
         needs=facts("primitive")),
    Pass("fuse", lambda g, t: fuse(g, backend_for(t).takes_epilogue),
         "elementwise operators join what makes their operands",
         needs=facts("primitive"), makes=facts("fused")),
    Pass("schedule", _graph_pass(schedule), "Graph becomes Program",
         needs=facts("primitive"), makes=facts("program", "values")),
    Pass("views", _graph_pass(eliminate_copies), "moves become addressing",
         needs=facts("program", "values"), breaks=facts("values")),
    Pass("share", _graph_pass(share), "results take over the memory of dying operands",
         needs=facts("program")),
    Pass("pitch", _graph_pass(spread_rows),
         "rows and planes that would fall into one cache set are moved apart",
         needs=facts("program")),
    Pass("lifetimes", _graph_pass(mark_lifetimes), "alloc and free mark what is alive",
         needs=facts("program"), makes=facts("lifetimes")),
    Pass("plan", _graph_pass(plan), "buffers receive addresses",
         needs=facts("lifetimes"), makes=facts("planned")),
)  # fmt: skip

ORDER: tuple[tuple[str, str, str], ...] = (
    ("stored", "fold", "what weights are stored in is gone once they are floats"),
    ("fold", "simplify", "rules look for constants"),
    ("simplify", "quantized", "scales stand where rules look for them"),
    ("quantized", "few_bits", "integers are multiplied as such where both operands are"),
    ("few_bits", "widen", "what stays in few bits does not become floats"),
    ("quantized", "widen", "the integers of weights are gone once they are floats"),
    ("widen", "recover", "patterns hold numbers that models may have quantised"),
    ("quantized", "absorb", "scales worked into quantised weights are no longer theirs"),
    ("quantized", "lower", "integer products are composites"),
    ("simplify", "recover", "a pattern stands in its simplest form"),
    ("recover", "absorb", "a scale inside a pattern belongs to the pattern"),
    ("halves", "absorb", "a scale inside a pattern belongs to the pattern"),
    ("absorb", "sink", "a bias that has joined its convolution stops no transpose"),
    ("sink", "lower", "rules on composites fire only while there are composites"),
    ("lower", "tidy", "what lowering made is simplified"),
    ("absorb", "settle", "absorbed scales are work on constants"),
    ("tidy", "settle", "simplified nodes leave less to compute"),
    ("settle", "merge", "equal constants make nodes equal"),
    ("settle", "algorithms", "only constant weights are transformed and packed"),
    ("merge", "algorithms", "algorithms and layouts are chosen once for each value"),
    ("algorithms", "layout", "what stays a plain convolution is computed directly"),
    ("layout", "prepare", "packing weights is work on constants"),
    ("prepare", "batch", "packed weights tell what reading them again costs"),
    ("batch", "bands", "parts of a batch may fit the cache as they are"),
    ("bands", "fuse", "what is fused treats rows alike"),
    ("prepare", "fuse", "packed weights are operands, not producers"),
    ("fuse", "schedule", "an instruction is a fused node"),
    ("schedule", "views", "only a Program has memory to view"),
    ("views", "share", "a view must not be mistaken for a buffer of its own"),
    ("share", "pitch", "only dense buffers are taken over"),
    ("pitch", "lifetimes", "sizes are final when memory is planned"),
    ("share", "lifetimes", "shared buffers live as long as all that they hold"),
    ("lifetimes", "plan", "what is alive together must not overlap"),
)


def check_order(stages: Sequence[Pass]) -> None:
    """Assert that the stages stand in an order that ORDER and their facts allow."""
    position = {p.name: i for i, p in enumerate(stages)}
    assert len(position) == len(stages), "two passes have one name"
    for before, later, why in ORDER:
        assert position[before] < position[later], f"{before} runs before {later}: {why}"
    missing = unmet(stages)
    assert missing is None, missing


def facts_after(name: str, stages: Sequence[Pass] = STAGES) -> Facts:
    """Return what holds after the pass of this name; nothing if no pass is called so."""
    held: Facts = frozenset()
    for p in stages:
        held = (held - p.breaks) | p.makes
        if p.name == name:
            return held
    return frozenset()


def unmet(stages: Sequence[Pass]) -> str | None:
    """Return a sentence about the first pass whose needs are not met; None if all are."""
    held: set[str] = set()
    for p in stages:
        if lacking := p.needs - held:
            return f"pass {p.name} needs {', '.join(sorted(lacking))}, which does not hold there"
        held = (held - p.breaks) | p.makes
    return None


check_order(STAGES)


def with_user_passes(extra: Sequence[Pass]) -> tuple[Pass, ...]:
    """Return the stages with a user's passes inserted; raise OptionError where they do not fit."""
    stages = list(STAGES)
    for p in extra:
        names = [s.name for s in stages]
        if p.name in names:
            raise OptionError(f"there is a pass called '{p.name}' already")
        if p.after not in names:
            raise OptionError(f"pass '{p.name}' runs after '{p.after}', which is none of {names}")
        stages.insert(names.index(p.after) + 1, p)
    if (problem := unmet(stages)) is not None:
        raise OptionError(problem)
    return tuple(stages)


def _precision(options: Options, ir: Graph | Program) -> tuple[Pass, ...]:
    """Return the pass that reduces precision, if that is wanted."""
    if options.precision == "f32":
        return ()
    dtype, fast = options.precision, options.numerics == "fast"
    keep = known_as(ir, options.keep) if isinstance(ir, Graph) else options.keep
    return (
        Pass("precision", lambda g, target: reduce_precision(g, dtype, keep, target, fast),
             "contractions take halves", needs=facts("primitive"), after="merge", steps=True),
    )  # fmt: skip


CLAMP = Pass("clamp", _graph_pass(clamp_indices), "indices out of range are no errors")
"""The first pass, if it is asked for: it changes what a model means, so nothing validates it."""


def run_stages(
    ir: Graph | Program, target: Target, options: Options, resume: str = ""
) -> Iterator[tuple[Pass, Any]]:
    """Run the pipeline and yield each pass and what it made.

    `resume` names the last pass that `ir` has been through; what follows it is run.
    """
    every = stages = with_user_passes((*_precision(options, ir), *options.passes))
    if resume:
        names = [p.name for p in stages]
        if resume not in names:
            raise OptionError(f"no pass is called '{resume}'; there are {', '.join(names)}")
        stages = stages[names.index(resume) + 1 :]
    elif options.indices == "clamp":
        stages = (CLAMP, *stages)
    record = options.record
    held = facts_after(resume, every)
    validator = Validator() if (knobs.check() if options.check is None else options.check) else None
    if validator is not None:
        validator.begin(_as_assumed(ir))
    for p in stages:
        if p.fast and options.numerics == "strict":
            continue
        begin = time.perf_counter()
        with tuned(record):
            ir = p.run(ir, target)
        log.debug("pass %s: %.4f s", p.name, time.perf_counter() - begin)
        held = (held - p.breaks) | p.makes
        if isinstance(ir, Program) and (p in options.passes or validator is not None):
            _verify(p, _as_assumed(ir), held)
        if validator is not None and p is CLAMP:
            validator.begin(_as_assumed(ir))
        elif validator is not None:
            validator.after(p, _as_assumed(ir))
        if options.after is not None:
            options.after(p, ir)
        yield p, ir


def _verify(p: Pass, program: Graph | Program, held: Facts) -> None:
    """Raise ProgramError if what a pass made breaks a rule of programs."""
    assert isinstance(program, Program), "a program stays one"
    try:
        verify(program, held)
    except ProgramError as error:
        error.message = f"after pass {p.name}: {error.message}"
        raise


def _as_assumed(ir: Graph | Program) -> Graph | Program:
    """Return `ir` with the numbers that its symbols are taken to stand for, ready to evaluate."""
    assumption = dims.assumed()
    if assumption is None:
        return ir
    with assuming(None):
        if isinstance(ir, Graph):
            return ir.bind(assumption.values)
        return bind(ir, assumption.values)


def compile_graph(
    ir: Graph | Program,
    target: Target,
    options: Options,
    store: Store,
    resume: str = "",
    *,
    owned: bool = False,
) -> Artifact:
    """Compile a graph whose extents are all known.

    The graph is left as it is, unless it is `owned`: then the passes may take it apart, and its
    weights are released as soon as they are packed.

    `resume` names the last pass that `ir` has been through already: a graph or program read from
    the text of a stage goes on from there.

    Raises UnsupportedError if an input's extent is open or no backend makes code for the target.
    """
    made: Any = ir
    if isinstance(ir, Graph):
        require_closed(ir)
        made = ir if owned else ir.copy()
    for _, stage in run_stages(made, target, options, resume):
        made = stage
    artifact = emit(made, target, options, store)
    return replace(artifact, metadata=ir.metadata) if isinstance(ir, Graph) else artifact


def compile_open(
    g: Graph,
    target: Target,
    options: Options,
    store: Store,
    values: Mapping[str, int],
    like: Mapping[str, int] | None = None,
) -> Artifact | None:
    """Compile a graph with open extents, for `values` of them and what behaves alike.

    The memory of the program is not planned: its sizes are known when it is called.  Decisions
    are taken as for extents `like` these instead, if they are given; None if that led to code
    that does not serve `values`.
    """
    assumption = Assumption(like or values)
    assumption.guards |= dict.fromkeys(g.guards)
    report = options.progress

    def progress(what: str, done: int, total: int) -> None:
        # All decisions have been taken, and no code has been made yet.
        if not done and not assumption.holds(values):
            raise _Unsuitable
        report(what, done, total)

    try:
        made = _compile_open(g, target, replace(options, progress=progress), store, assumption)
        # Where no code is made, nobody has reported progress.
        return made if assumption.holds(values) else None
    except _Unsuitable:
        return None
    except TypeRuleError:
        # Extents that must be equal were taken to be different.
        if like is None:
            raise
        return None


class _Unsuitable(Exception):
    """What was concluded from an assumption does not hold of the extents that are wanted."""


def _compile_open(
    g: Graph, target: Target, options: Options, store: Store, assumption: Assumption
) -> Artifact:
    with assuming(assumption):
        made: Any = g.copy()
        for node in g.nodes:  # what type rules ask of the extents becomes guards
            infer(node.op, [None if v is None else v.type for v in node.inputs], node.regions)
        for p, stage in run_stages(made, target, options):
            made = stage
            if "lifetimes" in p.makes:
                break
        artifact = emit(made, target, options, store)
    return replace(artifact, guards=tuple(assumption.guards))


def require_closed(g: Graph) -> None:
    """Raise UnsupportedError if an extent of an input is open."""
    names = sorted({s for v in g.inputs.values() for s in v.type.symbols()})
    if not names:
        return
    first, shape = next((k, v.type.shape) for k, v in g.inputs.items() if v.type.symbols())
    closed = tuple(d if isinstance(d, int) else 1 for d in shape)
    flags = " ".join(f"--dim {name}=1" for name in names)
    inputs = ", ".join(f"{k} {v.type}" for k, v in g.inputs.items())
    raise UnsupportedError(
        f"the extents {', '.join(names)} are open in {inputs}",
        hint=f"shapes={{'{first}': {closed}}}, with numbers of your choice",
        flags=f"{flags}, or --shapes '{first}={'x'.join(map(str, closed))}'; with numbers of your "
        "choice",
    )


def emit(program: Program, target: Target, options: Options, store: Store) -> Artifact:
    """Make code for a planned program."""
    strict = options.numerics == "strict"
    return backend_for(target).emit(program, target, strict, store, options.progress)

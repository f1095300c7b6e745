"""The pipeline is a table of passes: those for all machines, and rows that a machine brings.

From Graph to Graph the passes optimise and lower; `schedule` makes a Program; the rest plan its
memory.  Why they stand in this order is checked (`passes.table`).  One hook, `after`, sees what
every pass made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from alpenglow.base import deadline, knobs
from alpenglow.base.errors import (
    GraphError,
    IncompatibleError,
    OptionError,
    ProgramError,
    TypeRuleError,
    UnsupportedError,
)
from alpenglow.base.log import log
from alpenglow.base.store import Store
from alpenglow.compiler.memory import refuse_open, require_known_memory
from alpenglow.compiler.options import Options
from alpenglow.compiler.validate import Validator
from alpenglow.ir import dims
from alpenglow.ir.dims import Assumption, assuming
from alpenglow.ir.graph import Graph, Node, infer
from alpenglow.ir.op import Control
from alpenglow.ir.target import Target
from alpenglow.ir.verify import verify_graph
from alpenglow.machines.api import Artifact
from alpenglow.machines.registry import families, machine_for
from alpenglow.ops.elementwise.arithmetic import Add, Div, Mul, Neg, Sub
from alpenglow.ops.elementwise.logic import BitXor
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.product.attention import Attention
from alpenglow.ops.quantized.integer import ConvInteger, MatMulInteger
from alpenglow.ops.quantized.quantize import Dequantize, Quantize, Requantize
from alpenglow.ops.reduction.normalize import BatchNorm
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Pad, Reshape, Slice, Transpose
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.passes.absorb import absorb
from alpenglow.passes.attention import whole_in_f32
from alpenglow.passes.choices import tuned
from alpenglow.passes.control import shrink_control
from alpenglow.passes.cse import cse
from alpenglow.passes.demand import compute_what_is_read
from alpenglow.passes.exact import keep_exact, rounds
from alpenglow.passes.fold import fold
from alpenglow.passes.fuse import fuse
from alpenglow.passes.heads import share_heads
from alpenglow.passes.indices import clamp_indices
from alpenglow.passes.keep import known_as
from alpenglow.passes.lower import lower
from alpenglow.passes.precision import reduce_precision
from alpenglow.passes.quantized import integers
from alpenglow.passes.recover import recover, recover_halves
from alpenglow.passes.simplify import simplify
from alpenglow.passes.sink import sink
from alpenglow.passes.stored import read_stored
from alpenglow.passes.table import (
    Choices,
    Pass,
    Properties,
    Reason,
    brought,
    disorder,
    held_after,
    ignoring_target,
    inserted,
    properties,
    unmet,
)
from alpenglow.program import (
    Instr,
    Program,
    eliminate_copies,
    mark_lifetimes,
    plan,
    schedule,
    share,
)
from alpenglow.program.bind import bind
from alpenglow.program.limit import require_fit
from alpenglow.program.recompute import recompute
from alpenglow.program.reorder import reorder
from alpenglow.program.roll import roll
from alpenglow.program.unfold import unfold
from alpenglow.program.verify import verify

REASONS: tuple[Reason, ...] = (
    ("control", "stored", "weights that a loop captures stand in its region"),
    ("clamp", "fold", "a check of what is constant would be answered, and gone"),
    ("stored", "fold", "what weights are stored in is gone once they are floats"),
    ("fold", "simplify", "rules look for constants"),
    ("simplify", "quantized", "scales stand where rules look for them"),
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
    ("settle", "captures", "only constants move into regions"),
    ("captures", "prepare", "weights are packed where they are constants"),
    ("lower", "heads", "attention is written out"),
    ("heads", "merge", "a mask becomes one for all heads in each layer"),
    ("merge", "demand", "what equal nodes read is read by one"),
    ("demand", "precision", "whether halves pay is a matter of how much is computed"),
    ("merge", "precision", "what several read is rounded once"),
    ("precision", "prepare", "what is packed has the type that it is multiplied in"),
    ("prepare", "fuse", "packed weights are operands, not producers"),
    ("fuse", "schedule", "an instruction is a fused node"),
    ("schedule", "reorder", "what lives when is known of an order"),
    ("reorder", "recompute", "what need not wait is not made again"),
    ("recompute", "roll", "rows of what is kept roll"),
    ("schedule", "roll", "each buffer holds one value, whose rows are known"),
    ("roll", "views", "what moves into windows of rows is no addressing of whole values"),
    ("schedule", "views", "only a Program has memory to view"),
    ("views", "share", "a view must not be mistaken for a buffer of its own"),
    ("share", "unfold", "what is computed in place is known of each region by itself"),
    ("unfold", "lifetimes", "regions are planned with what is around them"),
    ("lifetimes", "plan", "what is alive together must not overlap"),
)


QUANTIZED = (Quantize, Dequantize, Requantize, ConvInteger, MatMulInteger, BitXor)
"""Operators of quantized models."""

WRITTEN_OUT = (Add, Mul, Div, Where, Cast, Softmax, SumAt)
"""Operators one of which is in everything that `recover` knows as written out."""


def common_passes(choices: Choices) -> tuple[Pass, ...]:
    """Return the passes that every machine has."""
    primitive, program = properties("primitive"), properties("program")

    def narrow(g: Graph, target: Target) -> Graph:
        machine = machine_for(target)
        fast = choices.numerics == "fast"
        takes = partial(machine.takes_attention, target=target)
        takes_halves = partial(takes, dtype=choices.precision)
        whole = set(whole_in_f32(g, takes, takes_halves, choices.keep)) if fast else set()

        def stays(node: Node) -> bool:
            if not fast:
                return False
            return node in whole or machine.stays_in_f32(node, choices.precision, target)

        return reduce_precision(g, choices.precision, choices.keep, stays)

    def lowered(g: Graph, target: Target) -> Graph:
        machine = machine_for(target)
        return lower(g, lambda op: not machine.lacks(op))

    def fused(g: Graph, target: Target) -> Graph:
        machine = machine_for(target)
        takes_attention = partial(machine.takes_attention, target=target)
        return fuse(g, machine.takes_epilogue, machine.takes_prologue, takes_attention)

    def within(fit: Callable[[Program, int], Program]) -> Callable[[Program, Target], Program]:
        def fitted(p: Program, target: Target) -> Program:
            limit = choices.memory_nbytes
            assert limit is not None, "memory is limited"
            return fit(p, limit)

        return fitted

    return (
        Pass("clamp", ignoring_target(clamp_indices), "indices out of range are no errors",
             when=lambda choices: choices.indices == "clamp", only='indices="clamp"',
             redefines=True),
        Pass("exact", ignoring_target(keep_exact), "activations are not rounded though they may be",
             when=lambda choices: choices.activations == "f32", only='activations="f32"',
             redefines=True, ahead=rounds),
        Pass("control", ignoring_target(shrink_control),
             "loops carry what changes, and compute the rest once", on=(Control,)),
        Pass("stored", ignoring_target(read_stored), "arithmetic on stored weights is recognised",
             on=(Cast,)),
        Pass("fold", lambda g, t: fold(g, but=(Dequantize,)),
             "what is constant is computed now, but quantised weights stay"),
        Pass("simplify", ignoring_target(simplify), "algebra on the model as written"),
        Pass("quantized", ignoring_target(integers), "quantised models are computed in integers",
             fast=True, steps=True, on=QUANTIZED),
        Pass("widen", ignoring_target(fold),
             "quantised weights of what is left in floats become floats"),
        Pass("recover", ignoring_target(recover),
             "LayerNorm, GELU and softmax written out become one", on=WRITTEN_OUT),
        Pass("halves", ignoring_target(recover_halves),
             "those of halves, which overflow as written", fast=True, on=WRITTEN_OUT),
        Pass("absorb", ignoring_target(absorb),
             "scales, shifts and pads join convolution and matmul",
             on=(Add, Sub, Mul, Div, Neg, Pad, BatchNorm, Attention)),
        Pass("sink", ignoring_target(sink), "transposes move down until they meet and cancel",
             on=(Transpose, Reshape)),
        Pass("lower", lowered, "composites become primitives",
             makes=primitive),
        Pass("tidy", ignoring_target(simplify), "algebra on what lowering exposed",
             needs=primitive),
        Pass("settle", ignoring_target(fold), "scaled weights and what else became constant",
             needs=primitive),
        Pass("captures", ignoring_target(shrink_control),
             "what loops capture and became constant stands in their regions",
             needs=primitive, on=(Control,)),
        Pass("heads", ignoring_target(share_heads),
             "keys that are repeated for heads of attention are shared",
             needs=primitive, on=(Softmax,)),
        Pass("merge", ignoring_target(cse), "equal nodes become one",
             needs=primitive),
        Pass("demand", ignoring_target(compute_what_is_read),
             "operators compute only the slices of their results that are read",
             needs=primitive, fast=True, on=(Slice, Gather)),
        Pass("precision", narrow, "contractions take halves",
             needs=primitive, steps=True,
             when=lambda choices: choices.precision != "f32", only='precision="bf16" or "f16"'),
        Pass("prepare", ignoring_target(fold), "weights are packed: folding again"),
        Pass("fuse", fused,
             "elementwise operators join what makes their operands",
             needs=primitive, makes=properties("fused")),
        Pass("schedule", ignoring_target(schedule), "Graph becomes Program",
             needs=primitive, makes=properties("program", "values")),
        Pass("reorder", ignoring_target(reorder), "what waits for its readers does not wait long",
             needs=properties("program", "values")),
        Pass("recompute", within(partial(recompute, progress=choices.progress)),
             "what waits long is made again, where memory is short",
             needs=properties("program", "values"),
             when=lambda choices: choices.memory_nbytes is not None, only="a limit of memory"),
        Pass("roll", within(roll),
             "chains are computed a few rows at a time, where memory is short",
             needs=properties("program", "values"), breaks=properties("values"),
             when=lambda choices: choices.memory_nbytes is not None, only="a limit of memory"),
        Pass("views", ignoring_target(eliminate_copies), "moves become addressing",
             needs=program, breaks=properties("values")),
        Pass("share", ignoring_target(share), "results take over the memory of dying operands",
             needs=program),
        Pass("unfold", ignoring_target(unfold), "loops and branches become jumps",
             needs=program),
        Pass("lifetimes", ignoring_target(mark_lifetimes), "alloc and free mark what is alive",
             needs=program, makes=properties("lifetimes")),
        Pass("plan", ignoring_target(plan), "buffers receive addresses",
             needs=properties("lifetimes"), makes=properties("planned")),
    )  # fmt: skip


assert disorder(common_passes(Options()), REASONS) is None, "the common passes are in order"


def table(choices: Choices) -> tuple[tuple[Pass, ...], list[Reason]]:
    """Return the common passes and those of every machine, and the reasons for their order.

    Raises IncompatibleError, naming the machine, where its passes do not fit in.
    """
    rows, reasons = common_passes(choices), list(REASONS)
    for names, machine in families():
        try:
            rows, why = brought(rows, names, machine.passes(choices), machine.reasons)
        except OptionError as error:
            raise IncompatibleError(f"machine '{machine.name}': {error.message}") from None
        if (problem := disorder(rows, why)) is not None:
            raise IncompatibleError(f"machine '{machine.name}': {problem}")
        reasons += why
    return rows, reasons


@cache
def every_pass() -> tuple[Pass, ...]:
    """Return all passes that there are, in order, whatever a caller chooses."""
    return table(Options())[0]


def properties_after(name: str) -> Properties:
    """Return what holds after the pass of this name; nothing if no pass is called so."""
    return held_after(name, every_pass())


def with_user_passes(rows: Sequence[Pass], extra: Sequence[Pass]) -> tuple[Pass, ...]:
    """Return the table with a user's passes inserted; raise OptionError where they do not fit."""
    rows = inserted(rows, extra)
    if (problem := unmet(rows)) is not None:
        raise OptionError(problem)
    return rows


def run_stages(
    ir: Graph | Program, target: Target, options: Options, resume: str = ""
) -> Iterator[tuple[Pass, Any]]:
    """Run the pipeline and yield each pass and what it made.

    `resume` names the last pass that `ir` has been through, of whatever machine; what follows it is
    run.
    """
    if isinstance(ir, Graph) and options.keep:
        options = replace(options, keep=tuple(known_as(ir, options.keep)))
    rows = with_user_passes(table(options)[0], options.passes)
    held = held_after(resume, rows)
    if resume:
        names = [p.name for p in rows]
        if resume not in names:
            raise OptionError(f"no pass is called '{resume}'; there are {', '.join(names)}")
        rows = rows[names.index(resume) + 1 :]
    limit = options.memory_nbytes
    if limit is not None:
        require_known_memory(target)
    record = options.record
    validator = Validator() if (knobs.check() if options.check is None else options.check) else None
    if validator is not None:
        _verify(f"pass {resume}" if resume else "import", ir, held)
        validator.begin(_as_assumed(ir))
    for p in rows:
        if not p.serves(target.machine) or not p.runs(options):
            continue
        deadline.check(f"pass '{p.name}'")
        begin = time.perf_counter()
        with tuned(record):
            made = deep(p, ir, target)
        if p in options.passes:
            _require_same_kind(p, ir, made)
        ir = made
        log.debug("pass %s: %.4f s", p.name, time.perf_counter() - begin)
        held = (held - p.breaks) | p.makes
        if p in options.passes or validator is not None:
            _verify(f"pass {p.name}", ir, held)
        if validator is not None and p.redefines:
            validator.begin(_as_assumed(ir))
        elif validator is not None:
            validator.after(p, _as_assumed(ir))
        if options.after is not None:
            options.after(p, ir)
        yield p, ir
    if limit is not None and isinstance(ir, Program):
        require_fit(ir, limit, planned_before=not rows)


def deep(p: Pass, ir: Any, target: Target) -> Any:
    """Apply a pass to a graph or a program, and before that to the regions of loops and branches.

    A pass from graphs to programs goes through regions itself.
    """
    if isinstance(ir, Graph) and "program" not in p.makes:
        for node in ir.nodes:
            if node.regions and isinstance(node.op, Control):
                node.regions = tuple(deep(p, r, target) for r in node.regions)
    elif isinstance(ir, Program) and any(i.parts for i in ir.instrs()):
        body = tuple(
            replace(s, parts=tuple(deep(p, part, target) for part in s.parts))
            if isinstance(s, Instr) else s
            for s in ir.body
        )  # fmt: skip
        ir = replace(ir, body=body)
    return p.run(ir, target) if p.concerns(ir) else ir


def _require_same_kind(p: Pass, ir: Graph | Program, made: object) -> None:
    """Raise OptionError if a pass of a caller returned anything else than what it was given."""
    kind = Program if isinstance(ir, Program) or "program" in p.makes else Graph
    if not isinstance(made, kind):
        found = "None" if made is None else f"a {type(made).__name__}"
        raise OptionError(
            f"pass '{p.name}' returned {found}, expected a {kind.__name__}",
            hint=f"return the {kind.__name__} at the end of the function",
        )


def _verify(stage: str, ir: Graph | Program, held: Properties) -> None:
    """Raise GraphError or ProgramError if what a stage made breaks a rule of graphs or programs."""
    try:
        if isinstance(ir, Program):
            program = _as_assumed(ir)
            assert isinstance(program, Program), "a program stays one"
            verify(program, held)
        else:
            assumption = dims.assumed()
            with assuming(None):
                verify_graph(ir, held, {} if assumption is None else assumption.values)
    except (GraphError, ProgramError) as error:
        error.message = f"after {stage}: {error.message}"
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

    Raises UnsupportedError if an input's extent is open or no machine makes code for the target.
    """
    lowered: Any = ir
    if isinstance(ir, Graph):
        require_closed(ir)
        lowered = ir if owned else ir.copy()
    with deadline.limited(options.timeout):
        for _, stage in run_stages(lowered, target, options, resume):
            lowered = stage
        artifact = emit(lowered, target, options, store)
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
        artifact = _compile_open(g, target, replace(options, progress=progress), store, assumption)
        # Where no code is made, nobody has reported progress.
        return artifact if assumption.holds(values) else None
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
    with assuming(assumption), deadline.limited(options.timeout):
        artifact = emit(open_program(g, target, options), target, options, store)
    return replace(artifact, guards=tuple(assumption.guards), values=assumption.values)


def open_program(g: Graph, target: Target, options: Options) -> Program:
    """Return the program of a graph with open extents, as the present assumption decides.

    Buffers have lifetimes and no addresses yet: their sizes are known when it is called.
    """
    refuse_open(options)
    lowered: Any = g.bind({})  # types are inferred anew: an assumption may say more
    for node in g.nodes:  # what type rules ask of the extents becomes guards
        infer(node.op, [None if v is None else v.type for v in node.inputs], node.regions)
    for p, stage in run_stages(lowered, target, options):
        lowered = stage
        if "lifetimes" in p.makes:
            break
    assert isinstance(lowered, Program), "what has lifetimes is a program"
    return lowered


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
    return machine_for(target).emit(program, target, strict, store, options.progress)

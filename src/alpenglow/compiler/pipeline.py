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
from alpenglow.passes.exact import keep_exact, rounds
from alpenglow.passes.fold import fold
from alpenglow.passes.fuse import fuse
from alpenglow.passes.indices import clamp_indices
from alpenglow.passes.keep import known_as
from alpenglow.passes.lower import lower
from alpenglow.passes.precision import reduce_precision
from alpenglow.passes.quantized import integers
from alpenglow.passes.recover import recover, recover_halves
from alpenglow.passes.share_kv_heads import share_kv_heads
from alpenglow.passes.simplify import simplify
from alpenglow.passes.sink import sink
from alpenglow.passes.slice_to_used import slice_to_used
from alpenglow.passes.stored import read_stored
from alpenglow.passes.table import (
    Choices,
    Pass,
    Properties,
    Reason,
    brought,
    current_name,
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
from alpenglow.program.stream_rows import stream_rows
from alpenglow.program.unfold import unfold
from alpenglow.program.verify import verify

REASONS: tuple[Reason, ...] = (
    ("control", "stored", "weights that a loop captures move into its region"),
    ("clamp", "fold", "folding would replace checks of constant indices by their results"),
    ("stored", "fold", "folding replaces packed integers of weights by floats"),
    ("fold", "simplify", "rewrite rules match constants"),
    ("simplify", "quantized", "simplified scales stand where the rules expect them"),
    ("quantized", "dequantize_rest", "dequantizing replaces the integers of weights by floats"),
    ("dequantize_rest", "recover", "constants of a pattern may be quantized in the model"),
    ("quantized", "absorb", "a scale folded into quantized weights changes their integers"),
    ("quantized", "lower", "integer products are composites"),
    ("simplify", "recover", "patterns are written in simplified form"),
    ("recover", "absorb", "a scale inside a pattern belongs to the pattern"),
    ("recover_f16", "absorb", "a scale inside a pattern belongs to the pattern"),
    ("absorb", "sink", "a bias inside a convolution stops no transpose"),
    ("sink", "lower", "rewrite rules on composites need composites"),
    ("lower", "tidy", "lowering exposes redundant operators"),
    ("absorb", "fold_again", "absorbed scales are arithmetic on constants"),
    ("tidy", "fold_again", "simplification leaves fewer constants to compute"),
    ("fold_again", "merge", "nodes with equal constants are equal"),
    ("fold_again", "captures", "only constants move into regions"),
    ("captures", "prepare", "constant weights are packed, captured values are not"),
    ("lower", "share_kv_heads", "lowering writes attention as matrix multiplications and softmax"),
    ("share_kv_heads", "merge", "masks that were repeated for each head become equal"),
    ("merge", "slice_to_used", "one merged node then has all readers of its value"),
    ("slice_to_used", "precision", "half precision pays by the amount of computation"),
    ("merge", "precision", "a value with several readers is rounded once"),
    ("precision", "prepare", "weights are packed in the dtype of their multiplication"),
    ("prepare", "fuse", "packed weights are operands, not producers"),
    ("fuse", "schedule", "one fused node becomes one instruction"),
    ("schedule", "reorder", "lifetimes of values need an order"),
    ("reorder", "recompute", "a value with a short lifetime needs no recomputation"),
    ("recompute", "stream_rows", "values that stay in memory are computed row by row"),
    ("schedule", "stream_rows", "each buffer holds one value, whose rows are known"),
    ("stream_rows", "views", "a copy into a window of rows cannot become a view"),
    ("schedule", "views", "only a Program has buffers to view"),
    ("views", "share", "a view must not be mistaken for a buffer of its own"),
    ("share", "unfold", "each region decides by itself what is computed in place"),
    ("unfold", "lifetimes", "buffers of regions are planned with those around them"),
    ("lifetimes", "plan", "buffers that are live together must not overlap"),
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
        Pass("clamp", ignoring_target(clamp_indices),
             "clamp indices that are out of range, instead of raising an error",
             when=lambda choices: choices.indices == "clamp", only='indices="clamp"',
             redefines=True),
        Pass("exact", ignoring_target(keep_exact),
             "keep activations in f32 where a model allows to quantize them",
             when=lambda choices: choices.activations == "f32", only='activations="f32"',
             redefines=True, ahead=rounds),
        Pass("control", ignoring_target(shrink_control),
             "move loop-invariant computation out of loops", on=(Control,)),
        Pass("stored", ignoring_target(read_stored),
             "recognize arithmetic that unpacks stored weights",
             on=(Cast,)),
        Pass("fold", lambda g, t: fold(g, but=(Dequantize,)),
             "constant folding, except of quantized weights"),
        Pass("simplify", ignoring_target(simplify), "algebraic simplification"),
        Pass("quantized", ignoring_target(integers), "compute quantized operators in integers",
             fast=True, steps=True, on=QUANTIZED),
        Pass("dequantize_rest", ignoring_target(fold),
             "dequantize the weights of operators that stay in floats"),
        Pass("recover", ignoring_target(recover),
             "replace the operators of LayerNorm, GELU or softmax by one operator", on=WRITTEN_OUT),
        Pass("recover_f16", ignoring_target(recover_halves),
             "the same for f16 patterns, whose separate operators would overflow",
             fast=True, on=WRITTEN_OUT),
        Pass("absorb", ignoring_target(absorb),
             "fold scales, shifts and padding into convolutions and matmuls",
             on=(Add, Sub, Mul, Div, Neg, Pad, BatchNorm, Attention)),
        Pass("sink", ignoring_target(sink), "move transposes down until pairs of them cancel",
             on=(Transpose, Reshape)),
        Pass("lower", lowered, "lowering: replace composite operators by primitives",
             makes=primitive),
        Pass("tidy", ignoring_target(simplify), "algebraic simplification after lowering",
             needs=primitive),
        Pass("fold_again", ignoring_target(fold),
             "constant folding after lowering, e.g. of scaled weights",
             needs=primitive),
        Pass("captures", ignoring_target(shrink_control),
             "move captured constants into the regions of loops",
             needs=primitive, on=(Control,)),
        Pass("share_kv_heads", ignoring_target(share_kv_heads),
             "read keys and values once per group of attention heads (GQA)",
             needs=primitive, on=(Softmax,)),
        Pass("merge", ignoring_target(cse), "common subexpression elimination",
             needs=primitive),
        Pass("slice_to_used", ignoring_target(slice_to_used),
             "compute only those slices of results that are read",
             needs=primitive, fast=True, on=(Slice, Gather)),
        Pass("precision", narrow, "convert operands of convolutions and matmuls to half precision",
             needs=primitive, steps=True,
             when=lambda choices: choices.precision != "f32", only='precision="bf16" or "f16"'),
        Pass("prepare", ignoring_target(fold), "constant folding of packed weights"),
        Pass("fuse", fused,
             "operator fusion: elementwise operators and their producers",
             needs=primitive, makes=properties("fused")),
        Pass("schedule", ignoring_target(schedule),
             "turn the Graph into a Program: one order of instructions",
             needs=primitive, makes=properties("program", "values")),
        Pass("reorder", ignoring_target(reorder), "reorder instructions to lower peak memory",
             needs=properties("program", "values")),
        Pass("recompute", within(partial(recompute, progress=choices.progress)),
             "rematerialization: recompute values to meet a memory limit",
             needs=properties("program", "values"),
             when=lambda choices: choices.memory_nbytes is not None, only="a memory limit"),
        Pass("stream_rows", within(stream_rows),
             "compute chains of operators row by row to meet a memory limit",
             needs=properties("program", "values"), breaks=properties("values"),
             when=lambda choices: choices.memory_nbytes is not None, only="a memory limit"),
        Pass("views", ignoring_target(eliminate_copies),
             "replace copies by views (address arithmetic)",
             needs=program, breaks=properties("values")),
        Pass("share", ignoring_target(share),
             "write results into the memory of operands at their last use",
             needs=program),
        Pass("unfold", ignoring_target(unfold), "turn loops and branches into jumps",
             needs=program),
        Pass("lifetimes", ignoring_target(mark_lifetimes),
             "mark the lifetime of each buffer with alloc and free",
             needs=program, makes=properties("lifetimes")),
        Pass("plan", ignoring_target(plan),
             "static memory planning: give each buffer its offset in the arena",
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
    names = [p.name for p in rows]
    resume = current_name(resume, names)
    held = held_after(resume, rows)
    if resume:
        if resume not in names:
            raise OptionError(f"pass is '{resume}', expected one of {', '.join(names)}")
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
        f"dimensions {', '.join(names)} are dynamic in {inputs}, expected fixed ones",
        hint=f"shapes={{'{first}': {closed}}}, with numbers of your choice",
        flags=f"{flags}, or --shapes '{first}={'x'.join(map(str, closed))}'; with numbers of your "
        "choice",
    )


def emit(program: Program, target: Target, options: Options, store: Store) -> Artifact:
    """Make code for a planned program."""
    strict = options.numerics == "strict"
    return machine_for(target).emit(program, target, strict, store, options.progress)

"""What nodes cost on a worker: measured as a profile, or estimated by what the machine reaches.

Either way the whole graph is compiled for the worker's target, and the seconds of each instruction
are those of the nodes that it comes from.  A cut between two nodes of one instruction would take it
apart, so that is remembered, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.compiler import Options
from alpenglow.compiler.validate import made_up
from alpenglow.driver.compile import compile
from alpenglow.host.worker import Worker
from alpenglow.ir.graph import Node
from alpenglow.ir.op import Control
from alpenglow.ir.types import Array
from alpenglow.machines.registry import device_for
from alpenglow.measure.flops import flops_by_type, flops_of, flops_of_node
from alpenglow.measure.limit import limits, roofline, touched
from alpenglow.measure.profile import profile
from alpenglow.measure.sources import sources
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan
from alpenglow.placement.schedule import Schedule
from alpenglow.program import Program
from alpenglow.report.check import judged, planned

INTERPRETED = 1e9
"""Operations a second, and bytes a second, that NumPy does as it interprets: an estimate."""

ROUNDS = 20
"""How often a graph is run to be measured."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The `seconds` of each node, and why it is not compiled (`lacks`, by number).

    `joined` are the numbers of nodes that are of one instruction with the node before.
    """

    seconds: Array
    lacks: Mapping[int, str] = field(default_factory=dict)
    joined: frozenset[int] = frozenset()


def costs(s: Schedule, worker: Worker, options: Options, measured: bool) -> Costs:
    """Return what the nodes of a schedule cost on a worker.

    A node of control flow is one node, of all turns that are known beforehand.
    Raises DeviceError or UnsupportedError where the worker's target does not run here: nothing is
    known of it then.
    """
    if not worker.target.is_host_compatible():
        device_for(worker.target)
        raise UnsupportedError(
            f"the times of nodes on worker '{worker.name}' are unknown: "
            f"'{worker.target}' does not run on this machine",
            hint="place the model where all workers are",
        )
    program = planned(s.graph, worker.target, options=options)
    instrs = list(program.instrs())
    reasons = [" and ".join(why.values()) for _, why in judged(program, worker.target)]
    run = 0.0
    if measured:
        run, seconds, origins = _measured(s, worker, options)
    else:
        seconds, origins = _estimated(program, worker, reasons), sources(instrs, s.graph)
    owners = _owners(s, origins)
    total, work = np.zeros(len(s.nodes)), [flops_of_node(node) for node in s.nodes]
    numbers = {s.name(k): k for k in range(len(s.nodes))}
    for k, nodes in enumerate(owners):
        again = [numbers[name] for name in origins[k] if name in numbers]
        heirs = nodes or again or next((o for o in owners[k:] if o), [len(s.nodes) - 1])
        total[max(heirs, key=lambda n: (work[n], n))] += seconds[k]
    for k, node in enumerate(s.nodes):
        if isinstance(node.op, Control):
            total[k] = total[k] * _turns(node) if measured else _of_regions(node, worker, options)
    if run and total.any():
        # Parts are timed one by one, in between other work: what counts is the run.
        total *= run / total.sum()
    joined = {n for nodes in owners if nodes for n in range(nodes[0] + 1, nodes[-1] + 1)}
    return Costs(total, _lacks(s, program, reasons), frozenset(joined))


def _of_regions(node: Node, worker: Worker, options: Options) -> float:
    """Return the estimated seconds of a loop or branch.

    A `Scan` runs its region `count` times, a `While` once, and an `If` runs the slower branch.
    """
    each = [costs(Schedule(r), worker, options, measured=False).seconds.sum()
            for r in node.regions if r.nodes]  # fmt: skip
    longest = float(max(each, default=0.0))
    match node.op:
        case Scan(count=count):
            assert isinstance(count, int), "all extents are known"
            return count * longest
    return longest


def _turns(node: Node) -> float:
    """Return how often the instructions of a node run, on average.

    A `Scan` runs its region `count` times, a `While` once, and an `If` runs one of two branches.
    """
    if once := _flops_once(node):
        return flops_of_node(node) / once
    nodes = (n for r in node.regions for n in r.nodes if isinstance(n.op, Control))
    inner = max(map(_turns, nodes), default=1.0)
    match node.op:
        case Scan(count=count):
            assert isinstance(count, int), "all extents are known"
            return count * inner
        case If():
            return inner / 2
    return inner


def _flops_once(node: Node) -> int:
    """Return the operations of a node if all of its regions ran once."""
    if not isinstance(node.op, Control):
        return flops_of_node(node)
    return sum(_flops_once(n) for r in node.regions for n in r.nodes)


def _owners(s: Schedule, origins: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return the nodes of each instruction, in order; a node is of the first that it is in."""
    numbers = {s.name(k): k for k in range(len(s.nodes))}
    owners: list[list[int]] = []
    for names in origins:
        owners.append(sorted(k for name in names if (k := numbers.pop(name, None)) is not None))
    return owners


def _lacks(s: Schedule, program: Program, reasons: Sequence[str]) -> dict[int, str]:
    owners = _owners(s, sources(list(program.instrs()), s.graph))
    return {k: why for nodes, why in zip(owners, reasons, strict=True) if why for k in nodes}


def _measured(
    s: Schedule, worker: Worker, options: Options
) -> tuple[float, list[float], list[tuple[str, ...]]]:
    """Return the median seconds of runs and of instructions on random inputs, and what these come
    from."""
    exe = compile(s.graph.copy(), worker.target, worker.threads, options=options)
    rng = np.random.default_rng(0)
    feeds = {name: made_up(v.type, rng) for name, v in s.graph.inputs.items()}
    times = profile(exe, feeds, s.graph, ROUNDS)
    return times.run, [p.seconds for p in times.parts], [p.sources for p in times.parts]


def _estimated(program: Program, worker: Worker, reasons: Sequence[str]) -> list[float]:
    """Return what instructions take at the limits of the machine: of operations, or of bytes."""
    instrs = list(program.instrs())
    compiled = [i for i, why in zip(instrs, reasons, strict=True) if not why]
    on = roofline(compiled, worker.threads, worker.target) if compiled else None
    if on is not None and math.isinf(on.bandwidth):
        raise UnsupportedError(
            f"the times of nodes on worker '{worker.name}' cannot be estimated: the peak and the "
            f"memory bandwidth of '{worker.target}' are not known",
            hint="measure=True, which measures the nodes",
            flags="leave --estimate out, so that nodes are measured",
        )
    least = limits(program, on) if on else [0.0] * len(instrs)
    seconds: list[float] = []
    for i, why, limit in zip(instrs, reasons, least, strict=True):
        nbytes = sum(map(touched, {*i.reads(), *i.outs}))
        if why or on is None:
            seconds.append((flops_of(i) + nbytes) / INTERPRETED)
        else:
            seconds.append(max(limit, nbytes / on.bandwidth if not flops_by_type(i) else 0.0))
    return seconds

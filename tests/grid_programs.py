"""Programs whose instructions run as kernels of a grid, evaluated in NumPy.

What is fused, which operands are views, and what is computed in place is decided as a machine's
pipeline decides it.  An instruction that a template takes runs as its kernel, proved and without
races; any other is interpreted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from alpenglow.evaluate import evaluate as interpreted
from alpenglow.ir.graph import Graph
from alpenglow.ir.target import Facts, Target
from alpenglow.ir.types import Array, TensorType
from alpenglow.kernel.evaluate import evaluate
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.grid.select import choose, takes_attention, takes_epilogue
from alpenglow.machines.grid.templates import templates
from alpenglow.machines.proof import admitted
from alpenglow.passes.fold import fold
from alpenglow.passes.fuse import fuse
from alpenglow.passes.lower import lower
from alpenglow.program import Instr, Region, eliminate_copies, schedule, share
from alpenglow.program.interpret import UNWRITTEN, Memory, step
from kernel_cases import Case

GRID = Target("a-grid", machine="interpreter", facts=Facts(lanes=1, group=256, fuses=True))
DOTS = Target(
    "grid-of-words",
    machine="interpreter",
    facts=replace(GRID.facts, multiplies=("f32", "u8", "i8")),
)
SMALL = Target("small-grid", machine="interpreter", facts=Facts(lanes=1, group=64, fuses=True))


@dataclass
class Ran:
    """What a graph made, and the kernels of templates that ran, with their operands before."""

    outputs: dict[str, Array]
    expected: Mapping[str, Array]
    cases: list[Case] = field(default_factory=list)


def run(build: Callable[[], Graph], feeds: Mapping[str, Array], target: Target = GRID) -> Ran:
    """Run a graph, which `build` makes anew each time, on a grid and in the interpreter."""
    attends = partial(takes_attention, target=target)
    g = fuse(fold(lower(build())), takes_epilogue, lambda op: False, attends)
    program = share(eliminate_copies(schedule(g)))
    memory = Memory(program)
    ran = Ran({}, interpreted(build(), feeds))
    for name in program.inputs:
        memory.bytes[name] = np.ascontiguousarray(feeds[name]).reshape(-1).view(np.uint8)
    for name in program.outputs:
        t = program.buffers[name].type
        assert t is not None
        ran.outputs[program.names.get(name, name)] = array = np.empty(t.extents, t.numpy)
        memory.bytes[name] = array.reshape(-1).view(np.uint8)
        memory.bytes[name].fill(UNWRITTEN)
    for instr in program.instrs():
        if templates.choose(instr.anchor(), instr, target) is None:
            step(memory, instr)
        else:
            ran.cases.append(_run(kernel_of(instr, target), instr, memory))
    return ran


def kernel_of(instr: Instr, target: Target) -> Kernel:
    """Return the kernel of an instruction, which is proved to stay within its operands."""
    choice = choose(instr, target, strict=False)
    assert choice is not None and admitted(choice.kernel, instr)
    return choice.kernel


def _run(kernel: Kernel, instr: Instr, memory: Memory) -> Case:
    operands = {f"y{i}": _flat(memory, r) for i, r in enumerate(instr.outs)}
    operands |= {f"x{i}": _flat(memory, r) for i, r in enumerate(instr.ins) if r is not None}
    before = {name: array.copy() for name, array in operands.items()}
    evaluate(kernel, operands)
    return Case(kernel, before, {})


def _flat(memory: Memory, r: Region) -> Array:
    """Return the memory of a region from its first element on."""
    size = r.type.numpy.itemsize
    begin = r.offset * size
    whole = memory.bytes[r.buffer]
    return whole[begin : begin + (whole.nbytes - begin) // size * size].view(r.type.numpy)


def whole_numbers(rng: np.random.Generator, t: TensorType) -> Array:
    """Return small whole numbers: sums of their products are exact in any order."""
    low = 0 if t.dtype[0] == "u" else -3
    return rng.integers(low, 4, t.extents).astype(np.float32).astype(t.numpy)


def feeds_of(build: Callable[[], Graph], seed: int) -> dict[str, Array]:
    """Return small whole numbers for the inputs of a graph."""
    rng = np.random.default_rng(seed)
    return {name: whole_numbers(rng, v.type) for name, v in build().inputs.items()}

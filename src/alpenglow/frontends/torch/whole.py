"""The graph of a program that does not depend on data: inputs, state and outputs around a body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from alpenglow.base.errors import GraphError, ModelError, UnsupportedError
from alpenglow.frontends.torch.fx import unique
from alpenglow.frontends.torch.importer import Importer
from alpenglow.frontends.torch.program import DENSE, Program
from alpenglow.frontends.torch.refusals import Refusal, unsupported
from alpenglow.frontends.torch.symbols import guards
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.metadata import Metadata
from alpenglow.ir.types import Array, TensorType
from alpenglow.ir.verify import verify_graph

GENERATOR = "generator"
"""The name of the variable that holds the state of the random generator."""


def graph_of(program: Program) -> Graph:
    """Return the graph of a program.

    Parameters, constants and buffers that nothing writes are constants; buffers that the program
    writes are variables, and so is the state that random numbers are drawn from.  Raises
    UnsupportedError, which names all operators that have no converter or are called in a way that
    none takes, with the places in the user's code.
    """
    g, refusals = attempted(program)
    if refusals:
        raise unsupported(program, refusals)
    return g


def attempted(program: Program) -> tuple[Graph, list[Refusal]]:
    """Return the graph of a program, and the calls that are not in it, for which it is no whole."""
    g = Graph(program.name)
    importer = Importer(g, program.ranges, program.trusted, demands=program.demands)
    # A buffer may have the name of an argument or a result, which a variable of the graph may not.
    taken = {i.name for i in program.inputs} | {o.name for o in program.outputs}
    written = {o.target: unique(o.target, taken) for o in program.outputs if o.kind == "buffer"}
    constants: dict[int, Value] = {}
    operands: list[Value | None] = []
    for i in program.inputs:
        if i.kind in ("symbol", "fixed"):
            operands.append(None)
        elif i.kind == "user":
            operands.append(g.input(i.name, _type(program, i.name)))
        elif i.target in written:
            operands.append(g.variable(written[i.target], program.state[i.target], copy=False))
        else:
            operands.append(_constant(g, constants, program.state, i.target))
    kept = [o for o in program.outputs if o.kind != "fixed"]
    body = replace(program.body, outputs=tuple(
        a for a, o in zip(program.body.outputs, program.outputs, strict=True) if o.kind != "fixed"
    ))  # fmt: skip
    drawn = unique(GENERATOR, taken)
    if program.generator is not None:
        importer.generator = g.variable(drawn, program.generator)
    results = importer.body(body, operands)
    if importer.refusals:
        return g, importer.refusals
    for o, v in zip(kept, results, strict=True):
        if o.kind == "buffer":
            g.assign(written[o.target], v)
        else:
            g.output(o.name, v)
    if importer.generator is not None:
        g.assign(drawn, importer.generator)
    symbols = {s for v in g.inputs.values() for s in v.type.symbols()}
    taken_for_granted = dict.fromkeys([*program.demands, *importer.demands])
    g.guards = (*guards(program.ranges, symbols), *taken_for_granted)
    g.metadata = Metadata("torch", program.version, structure=program.structure)
    g.prune()
    if not program.trusted:
        verify(g)
    return g, []


def verify(g: Graph) -> None:
    """Raise ModelError if a graph breaks a rule: it is open in extents that no input brings."""
    try:
        verify_graph(g)
    except GraphError as error:
        raise ModelError(error.message, node=error.node) from error


def _type(program: Program, name: str) -> TensorType:
    t = program.body.types.get(name)
    if t is None:
        raise UnsupportedError(f"input '{name}' is not supported, {DENSE}", file=program.file)
    return t


def _constant(
    g: Graph, constants: dict[int, Value], state: Mapping[str, Array], target: str
) -> Value:  # fmt: skip
    """Return a constant of the state; those that are tied are one."""
    if target not in state:
        raise ModelError(f"tensor '{target}' of the state is missing")
    array = state[target]
    if id(array) not in constants:
        constants[id(array)] = g.constant(np.asarray(array), target, copy=False)
    return constants[id(array)]

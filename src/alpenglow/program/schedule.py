"""From Graph to Program: an order that needs little memory, and a buffer for every value."""

from __future__ import annotations

from alpenglow.ir.dims import estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.text import unique
from alpenglow.ops.copy import Copy
from alpenglow.program.instr import Buffer, Instr, Program, Region, Space, whole
from alpenglow.program.order import MemoryGraph, best_order


def schedule(g: Graph) -> Program:
    """Give every node one instruction, in the order that keeps the least memory alive.

    Outputs that are inputs, constants or other outputs get an instruction that copies them.
    """
    nodes = list(g.nodes)
    ordered = [nodes[i] for i in best_order(memory_graph(g, nodes)).nodes]
    # The caller's names come first: what is inside makes way for them.
    free = set(g.outputs) - set(g.inputs)
    taken = dict.fromkeys(free, 2)
    buffers: dict[str, Buffer] = {}
    home: dict[Value, Region] = {}

    def add(v: Value, space: Space, name: str) -> Region:
        if space == "output" and name in free:
            label = name
        else:
            label = unique(name, taken)
        constant = v.detached() if space == "const" else None
        buffers[label] = Buffer(label, v.type.nbytes, space, v.type, constant)
        return whole(label, v.type)

    for name, v in g.inputs.items():
        home[v] = add(v, "input", name)
    for v in g.constants():
        home[v] = add(v, "const", v.name)
    outputs: dict[Value, str] = {}
    late: list[tuple[str, Value]] = []
    for name, v in g.outputs.items():
        if v in home or v in outputs:
            late.append((name, v))
        else:
            outputs[v] = name
    body: list[Instr] = []
    for node in ordered:
        for v in node.results:
            is_output = v in outputs
            home[v] = add(v, "output" if is_output else "arena", outputs.get(v, v.name))
        ins = tuple(None if v is None else home[v] for v in node.inputs)
        assert len(node.regions) < 2, "an instruction has at most one body"
        inner = node.regions[0] if node.regions else None
        outs = tuple(home[v] for v in node.results)
        body.append(Instr(node.op, outs, ins, inner, _names(node)))
    labels = {name: home[v].buffer for v, name in outputs.items()}
    for name, v in late:
        copied = Value(v.type)
        target = add(copied, "output", name)
        labels[name] = target.buffer
        body.append(Instr(Copy(), (target,), (home[v],)))
    return Program(
        g.name,
        buffers,
        tuple(home[v].buffer for v in g.inputs.values()),
        tuple(labels[name] for name in g.outputs),
        tuple(body),
        names={labels[name]: name for name in g.outputs if labels[name] != name},
    )


def _names(node: Node) -> tuple[str, ...]:
    """Return what the values that a node makes are called, those inside a fused one too."""
    inside = [v.name for r in node.regions for n in r.nodes for v in n.results]
    found = (*inside, *(v.name for v in node.results))
    return tuple(dict.fromkeys(filter(None, found)))


def memory_graph(g: Graph, nodes: list[Node]) -> MemoryGraph:
    """Return what the scheduler needs to know: who reads and writes how many bytes."""
    values: dict[Value, int] = {}
    sizes: list[int] = []

    def number(v: Value) -> int:
        if v not in values:
            values[v] = len(values)
            # Inputs and constants live elsewhere, and outputs in the caller's memory.
            free = v.producer is None or v in outputs
            sizes.append(0 if free else estimate(v.type.nbytes))
        return values[v]

    outputs = dict.fromkeys(g.outputs.values())
    inputs = tuple(tuple({number(v): None for v in n.inputs if v is not None}) for n in nodes)
    made = tuple(tuple(number(v) for v in n.results) for n in nodes)
    keep = frozenset(values[v] for v in outputs if v in values)
    return MemoryGraph(inputs, made, tuple(sizes), keep)

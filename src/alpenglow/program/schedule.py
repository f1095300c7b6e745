"""From Graph to Program: an order that needs little memory, and a buffer for every value."""

from __future__ import annotations

from collections.abc import Mapping

from alpenglow.ir.dims import estimate
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Control
from alpenglow.ir.text import unique
from alpenglow.ops.control.loop import While
from alpenglow.ops.tensor.copy import Copy
from alpenglow.ops.tensor.movement import Concat
from alpenglow.program.instr import (
    Buffer,
    Cell,
    Instr,
    Program,
    Region,
    Space,
    first_part,
    roomy,
    whole,
)
from alpenglow.program.order import MemoryGraph, best_order


class _Buffers:
    """The buffers of a program, and the region where each value lies."""

    def __init__(self, g: Graph) -> None:
        self.variables = g.initial
        self.growing = g.growing
        # The caller's names come first: what is inside makes way for them.
        self.free = set(g.outputs) - set(g.inputs)
        self.taken = dict.fromkeys(self.free, 2)
        self.by_name: dict[str, Buffer] = {}
        self.home: dict[Value, Region] = {}
        for name, v in g.inputs.items():
            self.home[v] = self.add(v, "variable" if name in g.initial else "input", name)
            same = self.home[v].buffer == name
            assert name not in g.initial or same, f"{name} is the name of a variable"
            if name in g.growing:
                room = roomy(v.type, g.growing[name])
                self.by_name[name] = Buffer(name, room.nbytes, "variable", room)
                self.home[v] = first_part(self.by_name[name], v.type)
        for v in g.constants():
            self.home[v] = self.add(v, "const", v.name)

    def add(self, v: Value, space: Space, name: str) -> Region:
        if space == "output" and name in self.free:
            label = name
        else:
            label = unique(name, self.taken)
        constant = v.detached() if space == "const" else None
        self.by_name[label] = Buffer(
            label, v.type.nbytes, space, v.type, constant, hidden=v.hidden
        )
        return whole(label, v.type)

    def add_output(self, v: Value, name: str) -> Region:
        if name in self.growing:
            return first_part(self.by_name[name], v.type)
        return self.add(v, "variable" if name in self.variables else "output", name)


def schedule(g: Graph) -> Program:
    """Give every node one instruction, in the order that keeps the least memory alive.

    Outputs that are inputs, constants or other outputs get an instruction that copies them, at the
    end; what a variable has at entry is copied at the beginning, so that it may change in place.
    """
    nodes = list(g.nodes)
    ordered = [nodes[i] for i in best_order(memory_graph(g, nodes)).nodes]
    buffers = _Buffers(g)
    home = buffers.home
    outputs, late = _outputs(g, home)
    body: list[Instr] = []
    for node in ordered:
        for v in node.results:
            label = outputs.get(v)
            home[v] = (
                buffers.add(v, "arena", v.name) if label is None else buffers.add_output(v, label)
            )
        ins = tuple(None if v is None else home[v] for v in node.inputs)
        outs = tuple(home[v] for v in node.results)
        if isinstance(node.op, Control):
            count = node.op.carried_count if isinstance(node.op, While) else 0
            parts = tuple(schedule(_with_state(r, count)) for r in node.regions)
            body.append(Instr(node.op, outs, ins, None, _names(node), parts))
            continue
        assert len(node.regions) < 2, "an instruction has at most one body"
        inner = node.regions[0] if node.regions else None
        body.append(Instr(node.op, outs, ins, inner, _names(node)))
    labels = {name: home[v].buffer for v, name in outputs.items()}
    early: list[Instr] = []
    for name, v in late:
        target = buffers.add_output(Value(v.type), name)
        labels[name] = target.buffer
        copy = Instr(Copy(), (target,), (home[v],))
        at_entry = buffers.by_name[home[v].buffer].space == "variable" and v.producer is None
        (early if at_entry else body).append(copy)
    return Program(
        g.name,
        buffers.by_name,
        tuple(home[v].buffer for name, v in g.inputs.items() if name not in g.initial),
        tuple(labels[name] for name in g.callers_outputs()),
        (*early, *body),
        names={labels[n]: n for n in g.callers_outputs() if labels[n] != n},
        variables=_cells(g, labels),
    )


def _with_state(region: Graph, count: int) -> Graph:
    """Return a region whose first `count` inputs and last outputs are variables: what is carried.

    Others are called by their number.
    """
    g = region.copy()
    carried = [f"s{i}" for i in range(count)]
    captured = [f"x{i}" for i in range(len(g.inputs) - count)]
    made = [f"y{i}" for i in range(len(g.outputs) - count)]
    g.inputs = dict(zip((*carried, *captured), g.inputs.values(), strict=True))
    g.outputs = dict(zip((*made, *carried), g.outputs.values(), strict=True))
    g.initial = {name: Value(g.inputs[name].type, name) for name in carried}
    return g


def _outputs(
    g: Graph, home: Mapping[Value, Region]
) -> tuple[dict[Value, str], list[tuple[str, Value]]]:
    """Return which values are made where an output is, and the outputs that are copies of values.

    A variable may stay in place, an output is the caller's memory: that is what is copied.
    """
    outputs: dict[Value, str] = {}
    late: list[tuple[str, Value]] = []
    for name, v in sorted(g.outputs.items(), key=lambda item: item[0] not in g.initial):
        if name in g.initial and v is g.inputs[name]:
            continue  # it is there
        if v in home or v in outputs or (name in g.growing and not _appends(g, name, v)):
            late.append((name, v))
        else:
            outputs[v] = name
    return outputs, late


def _appends(g: Graph, name: str, v: Value) -> bool:
    """Whether what a variable has at exit is what it has at entry with something behind it.

    Then all but what is new is there already.  What is changed in place after that may be, where
    nobody else reads what was there; anything else may not be computed there.
    """
    before = g.inputs[name]
    node = v.producer
    while node is not None and 0 in node.op.carried and v is node.results[0]:
        inner = node.inputs[node.op.carried[0]]
        if inner is None or g.users(inner) != 1 or g.users(before) != 1:
            return False
        v, node = inner, inner.producer
    match node:
        case Node(Concat(axis), [first, *rest]):
            along = axis % v.type.rank == g.growing[name]
            return along and first is before and before not in rest
    return False


def _cells(g: Graph, labels: Mapping[str, str]) -> dict[str, Cell]:
    """Return the cells of variables; what is assigned its own value has no buffer for another."""
    return {
        name: Cell(
            v.initial.detached(),
            labels.get(name, name) if v.assigned is not None else "",
            g.growing.get(name),
            v.assigned.type if name in g.growing and v.assigned is not None else None,
        )
        for name, v in g.variables.items()
    }


def _names(node: Node) -> tuple[str, ...]:
    """Return what the values that a node makes are called, those inside a fused one too."""
    fused = () if isinstance(node.op, Control) else node.regions
    inside = [v.name for r in fused for n in r.nodes for v in n.results]
    names = (*inside, *(v.name for v in node.results))
    return tuple(dict.fromkeys(filter(None, names)))


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
    results = tuple(tuple(number(v) for v in n.results) for n in nodes)
    keep = frozenset(values[v] for v in outputs if v in values)
    return MemoryGraph(inputs, results, tuple(sizes), keep)

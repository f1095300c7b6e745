"""Graphs with loops and branches, and inputs for which they take each of their ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import Array
from alpenglow.ops.control.branch import If
from alpenglow.ops.control.loop import Scan, While
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Mul, Neg
from alpenglow.ops.elementwise.comparison import Less
from alpenglow.ops.reduction.reduction import ReduceSum
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.in_range import InRange
from alpenglow.ops.tensor.movement import Reshape
from region_cases import rnn

Feeds = dict[str, Array]


@dataclass(frozen=True)
class Case:
    """A graph, and inputs of several runs."""

    graph: Graph
    feeds: tuple[Feeds, ...]


def cases() -> dict[str, Case]:
    """Return all graphs by name."""
    rng = np.random.default_rng(1)
    h = rng.standard_normal((2, 8), np.float32)
    xs = rng.standard_normal((5, 2, 8), np.float32)
    x, limit = np.full(6, 0.3, np.float32), np.float32
    ends = ({"x": x, "limit": np.array(limit(n))} for n in (1, 50, 1000))
    flags = ({"x": x, "go": np.array(go), "other": np.array(not go)} for go in (True, False))
    return {
        "scan": Case(rnn(), ({"h0": h, "xs": xs}, {"h0": h, "xs": -xs})),
        "reversed": Case(rnn(reverse=True), ({"h0": h, "xs": xs},)),
        "while": Case(doubling(), tuple(ends)),
        "nested": Case(nested(), ({"x": x, "limits": np.array([1, 3, 40, 41], np.float32)},)),
        "branch": Case(branches(), tuple(flags)),
        "branch in a loop": Case(turning(), ({"xs": xs[:, 0]}, {"xs": -xs[:, 1]})),
        "chain": Case(chain(), ({"start": np.array(1)}, {"start": np.array(3)})),
    }


def doubling() -> Graph:
    """Return a loop that doubles a vector until its sum is no longer below a limit."""
    g = Graph("doubling")
    x, limit = g.input("x", "f32[6]"), g.input("limit", "f32[]")
    y = _doubled(g, g(Tanh(), x), limit)
    g.output("y", g(Neg(), y))
    return g


def nested() -> Graph:
    """Return a scan whose turns double a vector until its sum is no longer below a row."""
    body = Graph("turn")
    body.input("turn", "i64[]")
    x, limit = body.input("x", "f32[6]"), body.input("limit", "f32[]")
    y = _doubled(body, x, limit)
    body.output("next", y)
    body.output("sum", _sum(body, y))
    g = Graph("nested")
    node = g.add(Scan(4, 1, 1), [g.input("x", "f32[6]"), g.input("limits", "f32[4]")], [body])
    g.output("y", node.results[0])
    g.output("sums", node.results[1])
    return g


def branches() -> Graph:
    """Return a branch behind another, whose first region has a branch in it."""
    g = Graph("branches")
    x, go, other = g.input("x", "f32[6]"), g.input("go", "bool[]"), g.input("other", "bool[]")
    inner = [_region("then", Tanh()), _region("else", Neg())]
    outer = Graph("outer")
    ox, oc = outer.input("x", "f32[6]"), outer.input("other", "bool[]")
    outer.output("y", outer(Add(), outer.add(If(), [oc, ox], inner).output, ox))
    plain = Graph("plain")
    px = plain.input("x", "f32[6]")
    plain.input("other", "bool[]")
    plain.output("y", plain(Mul(), px, px))
    y = g.add(If(), [go, x, other], [outer, plain]).output
    y = g.add(If(), [other, y], [_region("then", Tanh()), _region("else", Neg())]).output
    g.output("y", y)
    return g


def turning() -> Graph:
    """Return a scan that takes one of two branches in each turn, as the sum of its state says."""
    body = Graph("turn")
    body.input("turn", "i64[]")
    h, x = body.input("h", "f32[8]"), body.input("x", "f32[8]")
    ways = []
    for name, op in (("below", Add()), ("above", Mul())):
        way = Graph(name)
        way.output("y", way(op, way.input("h", "f32[8]"), way.input("x", "f32[8]")))
        ways.append(way)
    below = body(Less(), _sum(body, h), body.constant(np.float32(0)))
    y = body.add(If(), [below, h, x], ways).output
    body.output("next", y)
    body.output("row", body(Tanh(), y))
    g = Graph("turning")
    xs = g.input("xs", "f32[5,8]")
    first = g.constant(np.linspace(-1, 0.9, 8, dtype=np.float32))
    node = g.add(Scan(5, 1, 1), [first, xs], [body])
    g.output("y", node.results[0])
    g.output("rows", node.results[1])
    return g


def chain() -> Graph:
    """Return a loop that follows a table from entry to entry until it meets 0.

    Entry 6 leads out of the table.
    """
    body = Graph("step")
    at = body(InRange(0, 6), body.input("at", "i64[1]"))
    steps, table = body.input("steps", "i64[]"), body.input("table", "i64[7]")
    after = body(Gather(0), table, at)
    zero = body.constant(np.int64(0))
    body.output("going", body(Less(), zero, _sum(body, after)))
    body.output("after", after)
    body.output("count", body(Add(), steps, body.constant(np.int64(1))))
    g = Graph("chain")
    start = g.input("start", "i64[]")
    first = g(Reshape((1,)), start)
    table = g.constant(np.array([0, 2, 4, 0, 5, 3, 7]))
    going = g.constant(np.array(True))
    zero = g.constant(np.int64(0))
    node = g.add(While(2), [going, first, zero, table], [body])
    g.output("steps", node.results[1])
    return g


def _doubled(g: Graph, x: Value, limit: Value) -> Value:
    body = Graph("double")
    bx, bl = body.input("x", "f32[6]"), body.input("limit", "f32[]")
    y = body(Add(), bx, bx)
    body.output("going", body(Less(), _sum(body, y), bl))
    body.output("y", y)
    going = g(Less(), _sum(g, x), limit)
    return g.add(While(1), [going, x, limit], [body]).output


def _sum(g: Graph, x: Value) -> Value:
    return g(ReduceSum((0,), keepdims=False), x)


def _region(name: str, op: Tanh | Neg) -> Graph:
    g = Graph(name)
    g.output("y", g(op, g.input("x", "f32[6]")))
    return g

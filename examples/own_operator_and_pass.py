"""Define an operator and a pass that finds it in a graph, without a change to Alpenglow."""

from typing import Any

import numpy as np

import alpenglow as ag
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Elementwise
from alpenglow.ir.rewrite import Rewritten, Rules
from alpenglow.ir.types import FLOATS
from alpenglow.ops.elementwise.activation import Tanh
from alpenglow.ops.elementwise.arithmetic import Mul


class TanhShrink(Elementwise):
    """x * tanh(x): smooth, even and at most |x|."""

    dtypes = FLOATS

    def scalar(self, m: Any, x: Any) -> Any:
        return m.mul(x, m.tanh(x))


rules = Rules()


@rules.on(Mul)
def shrink(g: Graph, node: Node) -> Rewritten:
    """mul(x, tanh(x)) => tanh_shrink(x)"""
    match node.inputs:
        case [Value() as x, Value(Node(Tanh(), [Value() as y]))] if x is y:
            return g(TanhShrink(), x)
    return None


def recover_shrink(g: Graph, target: ag.Target) -> Graph:
    rules.apply(g)
    return g


g = ag.Graph("written_out")
x = g.input("x", "f32[6]")
g.output("y", g(Mul(), x, g(Tanh(), x)))

# `check` evaluates the graph before and after each pass and compares the outputs.
recover = ag.Pass("recover_shrink", recover_shrink, "x * tanh(x) becomes one node", after="fold")
exe = ag.compile(g, options=ag.Options(passes=(recover,), check=True))
x = np.linspace(-2, 3, 6, dtype=np.float32)
print(exe(x).round(4))

rules.apply(g)
print("operators after the pass:", [node.op.name for node in g.nodes])
slope = ag.gradients(g, g.outputs["y"], [g.inputs["x"]])[0]
g.output("slope", slope)
print("gradient:", ag.compile(g).run({"x": x})["slope"].round(4))

"""A model and labels: the input and the outputs that training a loaded model takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from alpenglow.base.errors import OptionError
from alpenglow.base.words import shown
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.types import TensorType
from alpenglow.train.losses import accuracy, binary_cross_entropy, cross_entropy, l1, mse

Loss = Literal["cross-entropy", "binary-cross-entropy", "mse", "l1"]

OF_EQUALS: dict[Loss, Callable[[Graph, Value, Value], Value]] = {
    "binary-cross-entropy": binary_cross_entropy,
    "mse": mse,
    "l1": l1,
}
"""Losses of what has the labels' type."""

LABELS = "labels"


def supervise(graph: Graph, loss: Loss, output: str | None = None, axis: int = 1) -> Graph:
    """Return a copy of a graph with an input `labels` and an output `loss`.

    With the loss "cross-entropy", `labels` are i64[N, …], and there is an output `accuracy`.  With
    the others, `labels` have the type of the output.

    Args:
        graph: the graph.
        loss: "cross-entropy", "binary-cross-entropy", "mse" or "l1".
        output: the name of the output that is compared with labels; None: the first.
        axis: the axis of the classes, with "cross-entropy".

    Returns:
        The copy.

    Raises:
        OptionError: if a name or the axis is wrong.
        TypeRuleError: if the loss does not take the type of the output.

    Example:
        >>> graph = ag.train.supervise(ag.load("model.onnx"), "cross-entropy")
        >>> list(graph.inputs), list(graph.outputs)
        (['x', 'labels'], ['y', 'loss', 'accuracy'])
    """
    g = graph.copy()
    outputs = g.callers_outputs()
    name = next(iter(outputs)) if output is None else output
    if name not in outputs:
        raise OptionError(f"output is {shown(name)}, expected one of {', '.join(outputs)}")
    if taken := {LABELS, "loss", "accuracy"} & {*g.inputs, *g.outputs}:
        raise OptionError(f"the model has an input or output called {shown(min(taken))} already")
    y = outputs[name]
    if loss in OF_EQUALS:
        labels = g.input(LABELS, y.type)
        g.output("loss", OF_EQUALS[loss](g, y, labels))
        return g
    if loss != "cross-entropy":
        known = ", ".join(["cross-entropy", *OF_EQUALS])
        raise OptionError(f"loss is '{loss}', expected one of {known}")
    if y.type.rank < 2:
        raise OptionError(f"output {shown(name)} is {y.type}, expected a score for each class")
    if not -y.type.rank <= axis < y.type.rank:
        raise OptionError(f"axis is {axis}, expected an axis of output {shown(name)} {y.type}")
    shape = tuple(d for a, d in enumerate(y.type.shape) if a != axis % y.type.rank)
    labels = g.input(LABELS, TensorType("i64", shape))
    g.output("loss", cross_entropy(g, y, labels, axis=axis))
    g.output("accuracy", accuracy(g, y, labels, axis=axis))
    return g

"""Small networks to train, and data for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow import train
from alpenglow.autodiff import gradients
from alpenglow.ir.graph import Graph, Value
from alpenglow.ops.elementwise.activation import Relu
from alpenglow.ops.elementwise.arithmetic import Add
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.tensor.movement import Broadcast, Reshape
from alpenglow.ops.training.training import BatchNormTraining
from alpenglow.ops.window.pooling import MaxPool

Array = NDArray[Any]
CLASSES = 5


def dense(g: Graph, x: Value, name: str, outputs: int, random: np.random.Generator) -> Value:
    """Return x[N, K] times weights plus a bias, both parameters."""
    inputs = int(x.type.shape[1])
    w = random.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
    y = g(MatMul(), x, g.variable(f"{name}.w", w.astype(np.float32)))
    bias = g.variable(f"{name}.b", np.zeros(outputs, np.float32))
    return g(Add(), y, g(Broadcast(y.type.shape), bias))


def convolved(g: Graph, x: Value, name: str, outputs: int, random: np.random.Generator) -> Value:
    """Return x convolved by 3x3, normalised by the batch, cut off at 0 and pooled."""
    w = random.standard_normal((outputs, x.type.extents[1], 3, 3)) / 3
    y = g(Conv(pads=(1, 1, 1, 1)), x, g.variable(f"{name}.w", w.astype(np.float32)))
    ones, zeros = np.ones(outputs, np.float32), np.zeros(outputs, np.float32)
    scale, bias = g.variable(f"{name}.scale", ones), g.variable(f"{name}.bias", zeros)
    mean, variance = g.variable(f"{name}.mean", zeros), g.variable(f"{name}.variance", ones)
    y, *running = g.add(BatchNormTraining(), [y, scale, bias, mean, variance]).results
    for v, after in zip((mean, variance), running[:2], strict=True):
        g.assign(v.name, after)
    return g(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1)), g(Relu(), y))


def judged(g: Graph, scores: Value, labels: Value) -> Graph:
    """Give a graph the outputs of a classifier that is trained."""
    g.output("scores", scores)
    g.output("loss", train.cross_entropy(g, scores, labels))
    g.output("accuracy", train.accuracy(g, scores, labels))
    return g


def perceptron(batch: int | str = 16, dropout: float = 0.0, seed: int = 0) -> Graph:
    """Return two layers that tell rows of 20 numbers apart."""
    random, g = np.random.default_rng(seed), ag.Graph("perceptron")
    x, labels = g.input("x", f"f32[{batch},20]"), g.input("labels", f"i64[{batch}]")
    h = g(Relu(), dense(g, x, "first", 30, random))
    if dropout:
        h = train.dropout(g, h, dropout)
    return judged(g, dense(g, h, "second", CLASSES, random), labels)


def convolutional(batch: int = 8, seed: int = 0) -> Graph:
    """Return two convolutions and a layer that tell images of 12 by 12 apart."""
    random, g = np.random.default_rng(seed), ag.Graph("convolutional")
    x, labels = g.input("x", f"f32[{batch},3,12,12]"), g.input("labels", f"i64[{batch}]")
    h = convolved(g, x, "first", 8, random)
    h = convolved(g, h, "second", 16, random)
    h = g(Reshape((batch, 16 * 9)), h)
    return judged(g, dense(g, h, "last", CLASSES, random), labels)


def sequences(
    sizes: tuple[Any, Any, Any, Any], blank: int = 0, dtype: str = "f64", zero: bool = False
) -> Graph:
    """Return the loss of so many steps, sequences, classes and labels, and its gradient."""
    steps, batch, classes, most = sizes
    g = Graph("ctc")
    logits = g.input("logits", f"{dtype}[{steps},{batch},{classes}]")
    labels = g.input("labels", f"i64[{batch},{most}]")
    lengths = [g.input(name, f"i64[{batch}]") for name in ("inputs", "counts")]
    loss = train.ctc(g, logits, labels, *lengths, blank, zero)
    g.output("loss", loss)
    g.output("gradient", gradients(g, loss, [logits])[0])
    return g


def samples(count: int, shape: tuple[int, ...] = (20,), seed: int = 1) -> dict[str, Array]:
    """Return samples whose class can be told: each lies near the centre of its class."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((CLASSES, *shape))
    labels = random.integers(0, CLASSES, count)
    x = centres[labels] + random.standard_normal((count, *shape))
    return {"x": x.astype(np.float32), "labels": labels}

"""Train a small network, write a checkpoint, and continue from it with equal results."""

import tempfile
from pathlib import Path

import numpy as np

import alpenglow as ag
from alpenglow import train
from alpenglow.ops.elementwise.activation import Relu

g = ag.Graph("rings")
x, labels = g.input("x", "f32[N,2]"), g.input("labels", "i64[N]")
scores = train.dense(g, g(Relu(), train.dense(g, x, 32, "first")), 3, "second")
g.output("scores", scores)
g.output("loss", train.cross_entropy(g, scores, labels))
g.output("accuracy", train.accuracy(g, scores, labels))


def rings(count, seed):
    """Return points in three rings, and the number of the ring of each point."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    angle, radius = random.uniform(0, 2 * np.pi, count), labels + random.uniform(0.2, 0.8, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return {"x": points.astype(np.float32), "labels": labels}


def trainer():
    return train.Trainer(g, "loss", train.AdamW(1e-2))


data, held_out = rings(1600, 1), rings(500, 2)
whole = trainer()
print(whole)
whole.fit(data, epochs=6, batch=64, seed=0)

with tempfile.TemporaryDirectory() as folder:
    checkpoint = Path(folder, "rings.npz")
    first = trainer()
    first.fit(data, epochs=2, batch=64, seed=0, checkpoint=checkpoint)
    print(f"after 2 epochs: {first.steps} steps")
    resumed = trainer()
    resumed.load(checkpoint)
    resumed.fit(data, epochs=6, batch=64, seed=0)
    print(f"after 6 epochs: {resumed.steps} steps")

same = all((resumed.values()[name] == w).all() for name, w in whole.values().items())
print("equal to one run of 6 epochs:", same)

# The trained model is a graph without labels and loss.
exe = ag.compile(resumed.trained())
accuracy = (exe(held_out["x"]).argmax(1) == held_out["labels"]).mean()
print("more than 95 % of the held-out points are right:", accuracy > 0.95)

"""Recipes for random numbers, and for training.

Our engines draw the same numbers under the same seed.  ONNX Runtime draws others: what depends on
them is not compared with it (`differential.PEERLESS`).
"""

from __future__ import annotations

import numpy as np

from .draft import Draft, Var
from .elements import DTYPES, FLOATS, code
from .inference import Declined, allowed
from .recipe import recipe
from .recipes_normalize import positive

SEEDS = (0.0, 1.0, 7.5, -3.0)


def drawn(d: Draft, op: str) -> str:
    return str(d.one_of(d.makes(op)))


@recipe("RandomNormal", "RandomUniform")
def random(d: Draft, op: str) -> None:
    shape = d.shape(1, 4)
    if d.is_open:
        shape = tuple(e for e in shape if e not in (11, 13)) or (3,)
    kind = drawn(d, op)
    more = {} if kind == "float" and d.chance(0.5) else {"dtype": code(kind)}
    more |= spread(d, op)
    d.node(op, [], types=[(kind, shape)], shape=list(shape), seed=d.one_of(SEEDS), **more)


def spread(d: Draft, op: str) -> dict[str, float]:
    if "Normal" in op:
        return d.some(op, mean=(0.0, 2.0), scale=(1.0, 0.5))
    return d.some(op, low=(0.0, -2.0), high=(1.0, 3.0))


@recipe("RandomNormalLike", "RandomUniformLike")
def like(d: Draft, op: str) -> None:
    kind = drawn(d, op)
    x = d.pick(allowed(op, d.opset))
    more = {} if kind == x.dtype else {"dtype": code(kind)}
    d.node(op, [x], types=[(kind, x.shape)], seed=d.one_of(SEEDS), **more, **spread(d, op))


@recipe("Bernoulli")
def bernoulli(d: Draft, op: str) -> None:
    kind = drawn(d, op)
    given = d.dtype(allowed(op, d.opset))
    p = d.given(d.rng.uniform(0, 1, d.shape(0, 4)).astype(DTYPES[given]), d.chance(0.5))
    more = {} if kind == given else {"dtype": code(kind)}
    d.node(op, [p], types=[(kind, p.shape)], seed=d.one_of(SEEDS), **more)


@recipe("Multinomial")
def multinomial(d: Draft, op: str) -> None:
    x = d.pick(allowed(op, d.opset), 2, 2, empty=False)
    kind = d.one_of(("int32", "int64"))
    more = d.some(op, sample_size=(1, 4, 9))
    named = {} if kind == "int32" and d.chance(0.5) else {"dtype": code(kind)}
    shape = (x.shape[0], more.get("sample_size", 1))
    d.node(op, [x], types=[(kind, shape)], seed=d.one_of(SEEDS), **more, **named)


@recipe("training:Dropout")
def dropout(d: Draft, op: str) -> None:
    if d.opset < 12:
        raise Declined
    x = d.pick(allowed("Dropout", d.opset))
    ratio = d.given(np.array(d.one_of((0.0, 0.25, 0.5)), np.float32), d.chance(0.7))
    if ratio.name in d.inputs:
        d.controls[ratio.name] = []
    count = d.number(1, 2)
    d.node("Dropout", [x, ratio, d.given(np.array(True), True)], outputs=count,
           types=[(x.dtype, x.shape), ("bool", x.shape)][:count],
           seed=d.number(0, 9))  # fmt: skip


@recipe("training:BatchNormalization")
def batch(d: Draft, op: str) -> None:
    if d.opset < 14:
        raise Declined
    x = d.pick([t for t in allowed("BatchNormalization", d.opset) if t in FLOATS], 2, 5,
               empty=False)  # fmt: skip
    each = (x.shape[1],)
    given = [d.fresh(x.dtype, each), d.fresh(x.dtype, each), d.fresh(x.dtype, each),
             positive(d, x.dtype, each)]  # fmt: skip
    d.node("BatchNormalization", [x, *given], outputs=3,
           types=[(x.dtype, x.shape), (x.dtype, each), (x.dtype, each)], training_mode=1,
           **d.some("BatchNormalization", epsilon=(1e-5, 0.1), momentum=(0.9, 0.25)))  # fmt: skip


PREVIEW = "ai.onnx.preview.training"


@recipe("ai.onnx.preview.training:Adam", "ai.onnx.preview.training:Adagrad",
        "ai.onnx.preview.training:Momentum")  # fmt: skip
def step(d: Draft, op: str) -> None:
    """One step of an optimizer, of one variable or two."""
    op = op.partition(":")[2]
    kind = d.one_of(("float", "double"))
    shapes = [d.shape(0, 3) for _ in range(d.number(1, 2))]
    if d.is_open:
        raise Declined
    parts = 4 if op == "Adam" else 3

    def variable(i: int, shape: tuple[int, ...]) -> Var:
        return positive(d, kind, shape, False) if i >= 2 else d.fresh(kind, shape)

    tensors = [variable(i, s) for i in range(parts) for s in shapes]
    rate = d.given(np.array(0.1, np.float32), d.chance(0.5))
    turn = d.given(np.array(d.number(0, 5), np.int64), d.chance(0.5))
    if turn.name in d.inputs:
        d.controls[turn.name] = []
    choices = {
        "Adam": {"alpha": (0.9, 0.5), "beta": (0.999, 0.5), "epsilon": (1e-6, 0.1),
                 "norm_coefficient": (0.0, 0.01), "norm_coefficient_post": (0.0, 0.1)},
        "Adagrad": {"epsilon": (1e-6, 0.1), "decay_factor": (0.0, 0.1),
                    "norm_coefficient": (0.0, 0.01)},
        "Momentum": {"alpha": (0.9, 0.5), "beta": (1.0, 0.5), "norm_coefficient": (0.0, 0.01),
                     "mode": ("standard", "nesterov")},
    }[op]  # fmt: skip
    more = d.some(op, PREVIEW, **choices)
    types = [(kind, s) for _ in range(parts - 1) for s in shapes]
    d.node(op, [rate, turn, *tensors], outputs=len(types), domain=PREVIEW, types=types, **more)

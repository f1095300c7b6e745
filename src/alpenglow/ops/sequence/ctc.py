"""Connectionist temporal classification: labels of a sequence, without a word on when each comes.

A path says one class a step.  It reads as labels: of classes that follow each other and are equal
one is kept, then blanks are dropped.  The probability of labels is that of all paths that read as
they do.  (Graves, Fernández, Gomez and Schmidhuber, 2006.)

Paths go through *states*: S + 1 blanks, one before each label and one after the last, and the S
labels.  From one step to the next a path stays, or goes on to what comes next; from a label it may
go to the next label at once, if that is another one.

Labels outside the classes count as the nearest class, and lengths are limited likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.ir.dims import Dim, is_open
from alpenglow.ir.graph import Graph, Value
from alpenglow.ir.op import Examples, Op, Primitive, check_dtype, check_rank
from alpenglow.ir.types import Array, TensorType
from alpenglow.ir.vocabulary import NUMPY
from alpenglow.ops.tensor.places import INDICES

WIDE = frozenset({"f32", "f64"})

NONE = float("-inf")
"""The logarithm of no probability."""


class Ctc(Primitive):
    """-log of the probability of labels[N, S] by log_probs[T, N, C], for each sequence: loss[N].

    Of sequence n the first input_lengths[n] steps count, and the first label_lengths[n] labels,
    none of which is the class `blank`.  The loss is infinite where no path reads as the labels do:
    where they are more than there are steps, or that have to be kept apart by blanks.

    Result 1 are logarithms of what paths are worth that are in a state after so many steps, of
    blanks and of labels: alphas[N, T + 1, 2, S + 2].  The largest of a step is taken off those of
    the next, so that they keep their digits however long a sequence is.  Blank i stands at place
    i, and label i, which follows it, at i + 1; other places hold -inf, as do steps that do not
    count.
    """

    infinite = frozenset({1})

    blank: int = 0

    def infer(
        self, log_probs: TensorType, labels: TensorType, input_lengths: TensorType,
        label_lengths: TensorType,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        check_dtype(self, "log_probs", log_probs, WIDE)
        check_rank(self, "log_probs", log_probs, 3, 3)
        steps, batch, classes = log_probs.shape
        check_labels(self, batch, labels, input_lengths, label_lengths)
        check_blank(self, self.blank, classes)
        shape = (batch, steps + 1, 2, labels.shape[1] + 2)
        return log_probs.with_shape((batch,)), log_probs.with_shape(shape)

    def reference(
        self, log_probs: Array, labels: Array, input_lengths: Array, label_lengths: Array
    ) -> tuple[Array, Array]:
        steps, batch, classes = log_probs.shape
        dtype = log_probs.dtype
        loss = np.zeros(batch, dtype)
        alphas = np.full((batch, steps + 1, 2, labels.shape[1] + 2), NONE, dtype)
        for n, own, repeats, inputs, count in sequences(
            labels, input_lengths, label_lengths, steps, classes
        ):
            u, total, shift = np.arange(len(own)), dtype.type(0), dtype.type(0)
            alphas[n, 0, 0, 0] = 0
            with np.errstate(all="ignore"):
                for t in range(inputs):
                    blanks, before = alphas[n, t, :, :-1]
                    now = self.step(NUMPY, blanks, alphas[n, t, 1, 1:], before, repeats)
                    scores = log_probs[t, n, self.blank], log_probs[t, n, own]
                    now = tuple(x - shift + s for x, s in zip(now, scores, strict=True))
                    alphas[n, t + 1, 0, :-1] = np.where(u <= count, now[0], NONE)
                    alphas[n, t + 1, 1, 1:] = np.where(u < count, now[1], NONE)
                    total += shift
                    shift = alphas[n, t + 1].max()
                    shift = np.where(shift == NONE, 0, shift)
                loss[n] = 0 - (total + summed(NUMPY, *alphas[n, inputs, :, count]))
        return loss, alphas

    def step(self, m: Any, blank: Any, label: Any, before: Any, repeats: Any) -> tuple[Any, Any]:
        """Return what paths are worth that come to a blank, and to the label that follows it.

        `before` is the label before the blank, and `repeats` where the label is the same.
        """
        skipped = m.where(repeats, NONE, before)
        return summed(m, blank, before), summed(m, label, blank, skipped)

    def gradient(
        self, b: Graph, dys: tuple[Value | None, Value | None], log_probs: Value, labels: Value,
        input_lengths: Value, label_lengths: Value,
    ) -> tuple[Value | None, None, None, None]:  # fmt: skip
        dloss, dalphas = dys
        if dalphas is not None:
            raise UnsupportedError("gradient: alphas of ctc are not supported; supported: its loss")
        if dloss is None:
            return None, None, None, None
        of = (labels, input_lengths, label_lengths)
        alphas = b.add(self, [log_probs, *of]).results[1]
        back = CtcGradient(log_probs.type.shape[2], self.blank)
        return b.add(back, [dloss, alphas, *of]).results[0], None, None, None

    @classmethod
    def examples(cls) -> Examples:
        for classes, blank, *operands in _examples():
            steps, batch = operands.pop(0)
            yield cls(blank), f"f32[{steps},{batch},{classes}]", *operands
        yield cls(), "f64[4,1,3]", np.array([[2, 1]]), np.array([4]), np.array([2])


class CtcGradient(Primitive):
    """The gradient of Ctc by its log-probabilities of `classes`, from the alphas and its dloss[N].

    It is -dloss times the probability that a path that reads as the labels do has the class at the
    step: 0 past the input lengths, and where there is no such path.

    Result 1 [N, 3, S + 2] is where the probabilities of the states at one step are kept: at last
    those before the first one.
    """

    classes: Dim
    blank: int = 0

    def infer(
        self, dloss: TensorType, alphas: TensorType, labels: TensorType,
        input_lengths: TensorType, label_lengths: TensorType,
    ) -> tuple[TensorType, TensorType]:  # fmt: skip
        check_dtype(self, "dloss", dloss, WIDE)
        check_rank(self, "dloss", dloss, 1, 1)
        check_rank(self, "alphas", alphas, 4, 4)
        (batch,) = dloss.shape
        check_labels(self, batch, labels, input_lengths, label_lengths)
        check_blank(self, self.blank, self.classes)
        wanted = dloss.with_shape((batch, alphas.shape[1], 2, labels.shape[1] + 2))
        if alphas != wanted:
            raise TypeRuleError(f"{self.name}: alphas are {alphas}, expected {wanted}")
        steps = alphas.shape[1] - 1
        return (
            dloss.with_shape((steps, batch, self.classes)),
            dloss.with_shape((batch, 3, wanted.shape[3])),
        )

    def reference(
        self, dloss: Array, alphas: Array, labels: Array, input_lengths: Array,
        label_lengths: Array,
    ) -> tuple[Array, Array]:  # fmt: skip
        batch, rows = alphas.shape[:2]
        classes = int(self.classes)
        dx = np.zeros((rows - 1, batch, classes), dloss.dtype)
        states = np.zeros((batch, 3, alphas.shape[3]), dloss.dtype)
        for n, own, repeats, inputs, count in sequences(
            labels, input_lengths, label_lengths, rows - 1, classes
        ):
            with np.errstate(all="ignore"):
                states[n, :2, count] = shares(NUMPY, *alphas[n, inputs, :, count])
                for t in reversed(range(inputs)):
                    dx[t, n, self.blank] -= dloss[n] * states[n, 0].sum()
                    np.subtract.at(dx[t, n], own, dloss[n] * states[n, 1, 1:])
                    blanks, before = alphas[n, t, :, :-1]
                    at = blanks, alphas[n, t, 1, 1:], before, repeats
                    states[n, 0, :-1], kept, states[n, 2, :-1] = self.back(
                        NUMPY, *at, states[n, 0, :-1], states[n, 1, 1:]
                    )
                    states[n, 1, 1:] = kept + states[n, 2, 1:]
        return dx, states

    def back(
        self, m: Any, blank: Any, label: Any, before: Any, repeats: Any, to_blank: Any,
        to_label: Any,
    ) -> tuple[Any, Any, Any]:  # fmt: skip
        """Return how probable a path to a blank, or to the label that follows it, makes the blank,
        this label, and the label before, in all: what there is goes back by shares of `Ctc.step`.
        """
        stays, came = shares(m, blank, before)
        skipped = m.where(repeats, NONE, before)
        own, begun, jumped = shares(m, label, blank, skipped)
        return (
            m.add(m.mul(to_blank, stays), m.mul(to_label, begun)),
            m.mul(to_label, own),
            m.add(m.mul(to_blank, came), m.mul(to_label, jumped)),
        )

    @classmethod
    def examples(cls) -> Examples:
        for classes, blank, *operands in _examples():
            steps, batch = operands.pop(0)
            states = operands[0].shape[1] + 2
            yield (cls(classes, blank), f"f32[{batch}]", f"f32[{batch},{steps + 1},2,{states}]",
                   *operands)  # fmt: skip
        labels, two = np.array([[2, 1]]), np.array([2])
        yield cls(3), "f64[1]", "f64[1,5,2,4]", labels, np.array([4]), two


def summed(m: Any, *xs: Any) -> Any:
    """Return the logarithm of the sum of what xs are logarithms of."""
    top, terms = _powers(m, xs)
    total = terms[0]
    for term in terms[1:]:
        total = m.add(total, term)
    return m.add(m.log(total), top)


def shares(m: Any, *xs: Any) -> list[Any]:
    """Return which part of a sum each is that xs are logarithms of; none of one that is 0."""
    _, terms = _powers(m, xs)
    total = terms[0]
    for term in terms[1:]:
        total = m.add(total, term)
    total = m.where(m.eq(total, 0.0), 1.0, total)
    return [m.div(term, total) for term in terms]


def _powers(m: Any, xs: Any) -> tuple[Any, list[Any]]:
    """Return the largest x, 0 for -inf, and what all are logarithms of once that is taken off."""
    top = xs[0]
    for x in xs[1:]:
        top = m.maximum(top, x)
    top = m.where(m.eq(top, NONE), 0.0, top)
    return top, [m.exp(m.sub(x, top)) for x in xs]


def sequences(
    labels: Array, input_lengths: Array, label_lengths: Array, steps: int, classes: int
) -> Iterator[tuple[int, Array, Array, int, int]]:
    """Yield for each sequence its number, the label after each blank and where it is that before,
    and how many steps and labels count."""
    batch, most = labels.shape
    within = np.clip(labels, 0, classes - 1)
    for n in range(batch):
        own = np.zeros(most + 1, np.int64)
        own[:most] = within[n]
        own[most:] = within[n, -1:] if most else 0
        before = np.concatenate([own[:1], own[:-1]])
        inputs = int(np.clip(input_lengths[n], 0, steps))
        yield n, own, own == before, inputs, int(np.clip(label_lengths[n], 0, most))


def check_labels(
    op: Op, batch: Dim, labels: TensorType, input_lengths: TensorType, label_lengths: TensorType
) -> None:
    """Raise TypeRuleError unless there are labels, and two lengths, for so many sequences."""
    check_dtype(op, "labels", labels, INDICES)
    check_rank(op, "labels", labels, 2, 2)
    if labels.shape[0] != batch:
        raise TypeRuleError(f"{op.name}: labels are {labels}, expected rows for {batch} sequences")
    for what, t in (("input_lengths", input_lengths), ("label_lengths", label_lengths)):
        check_dtype(op, what, t, INDICES)
        if t.shape != (batch,):
            raise TypeRuleError(f"{op.name}: {what} are {t}, expected [{batch}]")


def check_blank(op: Op, blank: int, classes: Dim) -> None:
    """Raise TypeRuleError unless the blank is a class."""
    if blank < 0 or (not is_open(classes) and blank >= classes):
        raise TypeRuleError(f"{op.name}: blank is {blank}, expected one of {classes} classes")


def _examples() -> Iterator[tuple[Any, ...]]:
    """Yield classes, blank, (steps, batch), labels and both lengths."""
    random = np.random.default_rng(0)
    labels = np.array([[1, 1, 2], [2, 4, 2], [3, 0, 0], [9, -1, 2]])
    lengths = np.array([6, 2, 0, 9]), np.array([3, 3, 0, 2])
    yield 5, 0, (6, 4), labels, *lengths
    yield 5, 3, (6, 4), labels % 3, np.array([6, 5, 3, -1]), np.array([3, 9, 1, -1])
    drawn = random.integers(1, 30, (3, 21)).astype(np.int32)
    yield 30, 0, (50, 3), drawn, np.array([50, 42, 21], np.int32), np.array([21, 20, 1], np.int32)
    few = np.array([4, 0], np.int32)
    yield 2, 1, (4, 2), np.zeros((2, 1), np.int32), few, np.array([1, 1], np.int32)
    yield 3, 2, (4, 2), np.zeros((2, 0), np.int64), few, np.zeros(2, np.int64)
    yield 3, 0, (0, 2), np.ones((2, 1), np.int64), np.zeros(2, np.int64), np.array([0, 1])
    yield 3, 0, (4, 0), np.ones((0, 2), np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)

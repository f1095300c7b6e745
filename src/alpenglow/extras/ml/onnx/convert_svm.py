"""Converters for support vector machines (ai.onnx.ml)."""

from __future__ import annotations

import numpy as np

from alpenglow.extras.ml.onnx.convert_ml import ML, array, class_labels, labelled, matrix
from alpenglow.extras.ml.onnx.convert_scores import posted
from alpenglow.extras.ml.probability import Couple
from alpenglow.frontends.onnx.table import Made, Site, on, scalar
from alpenglow.ir.graph import Value
from alpenglow.ir.types import Array
from alpenglow.ops.elementwise.activation import Sigmoid, Tanh
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Maximum, Mul, Neg, Pow, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ArgMax, ReduceSum
from alpenglow.ops.tensor.gather import Gather
from alpenglow.ops.tensor.movement import Concat, stretch


@on("SVMRegressor", domain=ML)
def svm_regressor(s: Site) -> Made:
    count = s.attribute("n_supports", 0)
    weights, rho = array(s, "coefficients", np.float32), array(s, "rho", np.float32)
    if not len(rho):
        raise s.wrong("rho is empty, expected at least 1 entry")
    if count > 0:
        similar = compared(s, array(s, "support_vectors", np.float32), count)
        y = times(s, similar, weights.reshape(1, -1))
        y = s.g(Add(), y, scalar(s.g, float(rho[0]), y))
    else:
        y = lines(s, weights.reshape(1, -1), float(rho[0]))
    if s.attribute("one_class", 0):
        above = s.g(Greater(), y, scalar(s.g, 0, y))
        y = s.g(Where(), above, scalar(s.g, 1, y), scalar(s.g, -1, y))
    return y


@on("SVMClassifier", domain=ML)
def svm_classifier(s: Site) -> Made:
    names = class_labels(s, "classlabels_ints")
    counts, rho = array(s, "vectors_per_class", np.int64), array(s, "rho", np.float32)
    weights, after = array(s, "coefficients", np.float32), s.attribute("post_transform", "NONE")
    classes = len(names)
    if not classes or not len(rho):
        raise s.wrong(f"there are {classes} class labels and {len(rho)} rho, "
                      "expected at least 1 each")  # fmt: skip
    if not counts.sum():
        scores = lines(s, weights.reshape(classes, -1), float(rho[0]))
        positive = bool((weights >= 0).all())
        return labelled(s, best(s, scores, positive), names), posted(s, scores, after)
    if len(counts) != classes or counts.min() < 0:
        raise s.wrong(f"vectors_per_class is {counts}, expected {classes} entries of at least 0")
    total = int(counts.sum())
    similar = compared(s, array(s, "support_vectors", np.float32), total)
    duels = times(s, similar, pairwise(s, weights, counts))
    shift = rho[: classes * (classes - 1) // 2]
    duels = s.g(Add(), duels, stretch(s.g, s.g.constant(shift), duels.type.shape))
    winner = s.g(ArgMax(1, False), votes(s, duels, classes))
    if s.attribute("prob_a", ()):
        scores = posted(s, probabilities(s, duels, classes), after)
    elif classes == 2:
        scores = sides(s, duels, after)
    else:
        scores = posted(s, duels, after)
    return labelled(s, winner, names), scores


def pairs(classes: int) -> list[tuple[int, int]]:
    """Return the duels in order: the first class against all others, and so on."""
    return [(i, j) for i in range(classes) for j in range(i + 1, classes)]


def pairwise(s: Site, weights: Array, counts: Array) -> Array:
    """Return the weight of each support vector in each duel.

    The model holds classes - 1 rows: row r of a vector of class c is for its duel with class r,
    or r + 1 from c on.
    """
    classes, total = len(counts), int(counts.sum())
    if len(weights) != (classes - 1) * total:
        raise s.wrong(f"coefficients has {len(weights)} entries, expected {(classes - 1) * total}")
    rows, ends = weights.reshape(classes - 1, total), np.cumsum(counts)
    out = np.zeros((classes * (classes - 1) // 2, total), np.float32)
    for number, (i, j) in enumerate(pairs(classes)):
        for one, row in ((i, j - 1), (j, i)):
            span = slice(ends[one] - counts[one], ends[one])
            out[number, span] = rows[row, span]
    return out


def votes(s: Site, duels: Value, classes: int) -> Value:
    """Return how many duels each class wins."""
    first, second = np.array(pairs(classes)).T
    won = s.cast(s.g(Greater(), duels, scalar(s.g, 0, duels)), "f32")
    wins = (first[:, None] == np.arange(classes)).astype(np.float32)
    losses = (second[:, None] == np.arange(classes)).astype(np.float32)
    # A duel gives one vote: its first class gets it where `won` is 1, its second where it is 0.
    gained = s.g(MatMul(), won, s.g.constant(wins - losses))
    base = s.g.constant(losses.sum(axis=0))
    return s.g(Add(), gained, stretch(s.g, base, gained.type.shape))


def best(s: Site, scores: Value, positive: bool) -> Value:
    """Return the number of the largest score; of two classes the second wins a positive one."""
    winner = s.g(ArgMax(1, False), scores)
    if scores.type.shape[1] != 2:
        return winner
    top = s.g(Maximum(), *(column(s, scores, i) for i in range(2)))
    limit = np.nextafter(np.float32(0.5), np.float32(0)) if positive else 0
    above = s.cast(s.g(Greater(), top, scalar(s.g, float(limit), top)), "i64")
    return s.g(Maximum(), winner, above)


def column(s: Site, scores: Value, i: int) -> Value:
    """Return column i of scores[N, C] as a vector."""
    return s.g(Gather(1), scores, s.g.constant(np.int64(i)))


def sides(s: Site, duel: Value, after: str) -> Value:
    """Return a score for either of two classes."""
    if after == "NONE":
        return s.g(Concat(1), s.g(Neg(), duel), duel)
    if after == "PROBIT":
        return posted(s, s.g(Concat(1), s.g(Neg(), duel), duel), after)
    if after == "LOGISTIC":
        return s.g(Concat(1), s.g(Sigmoid(), s.g(Neg(), duel)), s.g(Sigmoid(), duel))
    return s.g(Concat(1), s.g(Sub(), scalar(s.g, 1, duel), duel), duel)


def probabilities(s: Site, duels: Value, classes: int) -> Value:
    """Return the probability of each class: Platt's sigmoids of the duels, coupled."""
    a, b = array(s, "prob_a", np.float32), array(s, "prob_b", np.float32)
    count = classes * (classes - 1) // 2
    if not len(a) == len(b) == count:
        raise s.wrong(f"prob_a has {len(a)} entries and prob_b {len(b)}, expected {count} each")
    slope, shift = (stretch(s.g, s.g.constant(v), duels.type.shape) for v in (a, b))
    odds = s.g(Add(), s.g(Mul(), duels, slope), shift)
    win = s.g(Clip(1e-7, 1 - 1e-7), s.g(Sub(), scalar(s.g, 1, odds), s.g(Sigmoid(), odds)))
    lose = s.g(Sub(), scalar(s.g, 1, win), win)
    rows = duels.type.shape[0]
    none = stretch(s.g, s.g.constant(np.zeros((), np.float32)), (rows, 1))
    every = s.g(Concat(1), win, lose, none)
    place = np.full((classes, classes), 2 * count)
    for number, (i, j) in enumerate(pairs(classes)):
        place[i, j], place[j, i] = number, count + number
    return s.g(Couple(), s.g(Gather(1), every, s.g.constant(place)))


# ── kernels ──


def lines(s: Site, weights: Array, shift: float) -> Value:
    """Return X times the transposed weights plus a number."""
    y = times(s, s.cast(matrix(s), "f32"), weights)
    return s.g(Add(), y, scalar(s.g, shift, y))


def times(s: Site, x: Value, weights: Array) -> Value:
    """Return x[N, K] times the transpose of weights[M, K]."""
    return s.g(MatMul(), x, s.g.constant(np.ascontiguousarray(weights.T)))


def compared(s: Site, vectors: Array, count: int) -> Value:
    """Return how similar each row of X is to each of `count` support vectors, by the kernel."""
    if len(vectors) % count:
        raise s.wrong(f"support_vectors has {len(vectors)} entries, expected a multiple of {count}")
    vectors = vectors.reshape(count, -1)
    x = s.cast(matrix(s), "f32")
    gamma, offset, degree = (*map(float, s.attribute("kernel_params", ())), 0.0, 0.0, 0.0)[:3]
    kind = s.attribute("kernel_type", "LINEAR")
    if kind == "RBF":
        distance = squares(s, x, vectors)
        return s.cast(s.g(Exp(), s.g(Mul(), distance, scalar(s.g, -gamma, distance))), "f32")
    y = times(s, x, vectors)
    if kind == "LINEAR":
        return y
    if kind not in ("POLY", "SIGMOID"):
        raise s.wrong(f"kernel_type is '{kind}', expected LINEAR, POLY, RBF or SIGMOID")
    y = s.g(Add(), s.g(Mul(), y, scalar(s.g, gamma, y)), scalar(s.g, offset, y))
    return s.g(Pow(), y, scalar(s.g, degree, y)) if kind == "POLY" else s.g(Tanh(), y)


def squares(s: Site, x: Value, vectors: Array) -> Value:
    """Return the squared distances of rows of x to the vectors, in f64.

    They are |x|² - 2 x·v + |v|², which f32 would cancel away.
    """
    x, wide = s.cast(x, "f64"), vectors.astype(np.float64)
    product = times(s, x, -2 * wide)
    own = s.g(ReduceSum((1,)), s.g(Mul(), x, x))
    theirs = s.g.constant((wide * wide).sum(axis=1))
    total = s.g(Add(), product, stretch(s.g, own, product.type.shape))
    return s.g(Add(), total, stretch(s.g, theirs, product.type.shape))

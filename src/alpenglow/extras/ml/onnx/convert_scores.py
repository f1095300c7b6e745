"""The transforms that end models of ai.onnx.ml (`post_transform`), on scores [N, classes]."""

from __future__ import annotations

from alpenglow.frontends.onnx.table import Site, scalar
from alpenglow.ir.graph import Value
from alpenglow.ops.elementwise.activation import Sigmoid
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Mul, Neg, Sub
from alpenglow.ops.elementwise.comparison import Greater, Less
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.elementwise.transcendental import Exp, Log, Sqrt
from alpenglow.ops.reduction.reduction import ReduceMax, ReduceSum
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.tensor.movement import stretch

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""By their numbers in TreeEnsemble."""

TINY = 1e-7
"""The largest magnitude that SOFTMAX_ZERO treats as zero."""


def posted(s: Site, scores: Value, how: str) -> Value:
    """Return scores[N, C] after a transform."""
    if how not in TRANSFORMS:
        raise s.wrong(f"post_transform is '{how}', expected one of {', '.join(TRANSFORMS)}")
    if how == "SOFTMAX":
        return s.g(Softmax(1), scores)
    if how == "LOGISTIC":
        return s.g(Sigmoid(), scores)
    if how == "SOFTMAX_ZERO":
        return softmax_zero(s, scores)
    return probit(s, scores) if how == "PROBIT" else scores


def softmax_zero(s: Site, x: Value) -> Value:
    """Return the softmax of the scores that are not zero; zeros get no share."""
    top = stretch(s.g, s.g(ReduceMax((1,)), x), x.type.shape)
    counts = s.g(Greater(), s.g(Abs(), x), scalar(s.g, TINY, x))
    share = s.g(Exp(), s.g(Sub(), x, top))
    rest = s.g(Mul(), x, s.g(Exp(), s.g(Neg(), top)))
    total = s.g(ReduceSum((1,)), s.g(Where(), counts, share, scalar(s.g, 0, x)))
    return s.g(Div(), s.g(Where(), counts, share, rest), stretch(s.g, total, x.type.shape))


def probit(s: Site, x: Value) -> Value:
    """Return the quantile of the normal distribution, by Winitzki's inverse of erf.

    With L = log(1 - y²), y = 2x - 1 and a = 0.147, erf⁻¹(y) is the root of
    sqrt(v² - L/a) - v for v = 2/(πa) + L/2, with the sign of y.
    """
    g = s.g
    a = 0.147
    y = g(Sub(), g(Mul(), scalar(g, 2, x), x), scalar(g, 1, x))
    one = scalar(g, 1, x)
    log = g(Log(), g(Mul(), g(Sub(), one, y), g(Add(), one, y)))
    v = g(Add(), g(Mul(), log, scalar(g, 0.5, x)), scalar(g, 2 / (3.14159 * a), x))
    inner = g(Sub(), g(Mul(), v, v), g(Mul(), log, scalar(g, 1 / a, x)))
    root = g(Sqrt(), g(Sub(), g(Sqrt(), inner), v))
    signed = g(Where(), g(Less(), y, scalar(g, 0, x)), g(Neg(), root), root)
    return g(Mul(), signed, scalar(g, 2**0.5, x))

"""Converters for softmax and its kin, and for normalisation."""

from __future__ import annotations

from collections.abc import Callable

from alpenglow.frontends.onnx.table import Made, Site, on
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ir.op import Op
from alpenglow.ops.elementwise.arithmetic import Add, Mul
from alpenglow.ops.reduction.layer_norm import LayerMoments, LayerNorm, RMSNorm
from alpenglow.ops.reduction.normalize import (
    GroupNorm,
    InstanceNorm,
    LocalResponseNorm,
    LpNorm,
    MeanVarianceNorm,
)
from alpenglow.ops.reduction.softmax import Hardmax, LogSoftmax, Softmax
from alpenglow.ops.tensor.movement import Broadcast, Reshape, stretch


def shares(name: str, build: Callable[[int], Op]) -> None:
    """Register an operator on rows: before opset 13 a row was all axes from `axis` on."""

    @on(name)
    def flattened(s: Site) -> Made:
        x = s.input(0)
        axis = s.named_axis(1)
        rows: tuple[Dim, ...] = (product(x.type.shape[:axis]), product(x.type.shape[axis:]))
        if axis == x.type.rank - 1:
            return s.g(build(axis), x)
        return s.g(Reshape(x.type.shape), s.g(build(1), s.g(Reshape(rows), x)))

    @on(name, since=13)
    def along_axis(s: Site) -> Made:
        return s.g(build(s.named_axis(-1)), s.input(0))


shares("Softmax", Softmax)
shares("LogSoftmax", LogSoftmax)
shares("Hardmax", Hardmax)


@on("LayerNormalization")
def layer_normalization(s: Site) -> Made:
    x, scale, bias = s.input(0), s.input(1), s.optional(2)
    axis = s.named_axis(-1)
    epsilon = s.attribute("epsilon", 1e-5)
    inner = x.type.shape[axis:]
    if stretches(scale, inner) and (bias is None or stretches(bias, inner)):
        stretched = None if bias is None else stretch(s.g, bias, inner)
        y = s.g(LayerNorm(axis, epsilon), x, stretch(s.g, scale, inner), stretched)
    else:
        y = s.g(LayerNorm(axis, epsilon), x)
        y = s.g(Mul(), y, stretch(s.g, scale, x.type.shape))
        y = y if bias is None else s.g(Add(), y, stretch(s.g, bias, x.type.shape))
    if not any(s.outputs[1:]):
        return y
    return [y, *s.g.add(LayerMoments(axis, epsilon), [x]).results]


def stretches(v: Value, shape: tuple[Dim, ...]) -> bool:
    """Whether v broadcasts to `shape` without new axes in front of it."""
    tail = shape[len(shape) - v.type.rank :]
    return v.type.rank <= len(shape) and all(
        a in (1, b) for a, b in zip(v.type.shape, tail, strict=True)
    )


@on("RMSNormalization")
def rms_normalization(s: Site) -> Made:
    x, scale = s.input(0), s.input(1)
    axis = s.named_axis(-1)
    op = RMSNorm(axis, s.attribute("epsilon", 1e-5))
    return s.g(op, x, stretch(s.g, scale, x.type.shape[axis:]))


@on("InstanceNormalization")
def instance_normalization(s: Site) -> Made:
    op = InstanceNorm(s.attribute("epsilon", 1e-5))
    return s.g(op, s.input(0), s.input(1), s.input(2))


@on("GroupNormalization", since=18)
def group_normalization_scaled_by_group(s: Site) -> Made:
    x, groups = s.input(0), s.needed("num_groups")
    if x.type.rank < 2 or groups < 1:
        raise s.wrong(
            f"X is {x.type} and num_groups {groups}, expected rank 2 or more and num_groups 1 or "
            "more"
        )
    count = x.type.shape[1]
    operands = []
    for v in (s.input(1), s.input(2)):
        column = s.g(Reshape((groups, 1)), v)
        wide = s.g(Broadcast((groups, count // groups)), column)
        operands.append(s.g(Reshape((count,)), wide))
    return s.g(GroupNorm(groups, s.attribute("epsilon", 1e-5)), x, *operands)


@on("GroupNormalization", since=21)
def group_normalization(s: Site) -> Made:
    op = GroupNorm(s.needed("num_groups"), s.attribute("epsilon", 1e-5))
    return s.g(op, s.input(0), s.input(1), s.input(2))


@on("MeanVarianceNormalization", since=9)
def mean_variance_normalization(s: Site) -> Made:
    axes = s.axes(s.attribute("axes", (0, 2, 3)), s.input(0).type.rank)
    return s.g(MeanVarianceNorm(axes), s.input(0))


@on("LpNormalization")
def lp_normalization(s: Site) -> Made:
    return s.g(LpNorm(s.named_axis(-1), s.attribute("p", 2)), s.input(0))


@on("LRN")
def lrn(s: Site) -> Made:
    alpha, beta = s.attribute("alpha", 1e-4), s.attribute("beta", 0.75)
    op = LocalResponseNorm(s.needed("size"), alpha, beta, s.attribute("bias", 1.0))
    return s.g(op, s.input(0))

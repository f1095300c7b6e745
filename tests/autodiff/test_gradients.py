"""Gradients, against central differences, over the operators' own examples.

Each example is taken in f64.  Its results, weighted by random numbers and added up, are a function
of its operands; how that changes along some directions is what the gradients must say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import alpenglow as ag
from alpenglow.autodiff import gradients, substituted
from alpenglow.autodiff.formula import OPERATORS, PARTIALS
from alpenglow.base.errors import TypeRuleError, UnsupportedError
from alpenglow.base.extensions import bring_extras
from alpenglow.evaluate import evaluate
from alpenglow.extras.linalg.factorization import Svd
from alpenglow.extras.ml.tree import TreeEnsemble
from alpenglow.extras.special.incomplete import IncompleteGamma, Zeta
from alpenglow.ir.graph import Graph, Node, Value
from alpenglow.ir.op import Control, Elementwise, Examples, Host, Op, Primitive
from alpenglow.ir.types import FLOATS, TensorType, type_of
from alpenglow.machines.vector.operators import blocked, filters, winograd
from alpenglow.ops.control.jump import Jump
from alpenglow.ops.elementwise import activation, arithmetic, transcendental
from alpenglow.ops.elementwise.activation import Elu, Mish, Relu, Selu, Sigmoid, Softplus, Swish
from alpenglow.ops.elementwise.arithmetic import Add, Clip, Div, Floor, Maximum, Mul, Pow, Sub
from alpenglow.ops.elementwise.comparison import Greater
from alpenglow.ops.elementwise.floating import NextAfter
from alpenglow.ops.elementwise.select import Cast, Where
from alpenglow.ops.fused import Fused
from alpenglow.ops.image.regions import RoiAlign, RoiAlignIndex, RoiAlignSlope
from alpenglow.ops.product.contraction import Conv, MatMul
from alpenglow.ops.reduction.layer_norm import LayerNorm
from alpenglow.ops.reduction.normalize import InstanceNorm, LpNorm, MeanVarianceNorm
from alpenglow.ops.reduction.reduction import ReduceL2, ReduceMax, ReduceProd
from alpenglow.ops.reduction.softmax import Softmax
from alpenglow.ops.sequence.ctc import Ctc, CtcGradient
from alpenglow.ops.sequence.linear_attention import LinearAttentionGradient
from alpenglow.ops.sequence.recurrent_integer import LstmInteger
from alpenglow.ops.tensor import packing
from alpenglow.ops.tensor.gather import Gather, ScatterElements
from alpenglow.ops.tensor.movement import Broadcast, Pad, Reshape, Slice, Transpose
from alpenglow.ops.window.pooling import AveragePool, LpPool, MaxPool
from differences import check, weighted_sum

Array = NDArray[Any]

DOMAINS: dict[str, tuple[float, float]] = {
    "acos": (-0.9, 0.9), "acosh": (1.2, 3), "asin": (-0.9, 0.9), "atanh": (-0.9, 0.9),
    "log": (0.3, 3), "pow": (0.3, 2), "reduce_log_sum": (0.3, 3), "sqrt": (0.3, 3),
    "tan": (-1, 1),
}  # fmt: skip
"""Where operators are smooth, if that is not almost everywhere."""

SYMMETRIC = {"cholesky", "eigh", "ldl"}
"""Operators whose gradient is symmetric, as what they are applied to."""

WITHOUT = {
    Ctc, CtcGradient, Svd, LinearAttentionGradient, LstmInteger, RoiAlign, RoiAlignIndex,
    RoiAlignSlope, TreeEnsemble, IncompleteGamma, NextAfter, Zeta,
}  # fmt: skip
"""Operators that have no gradient in all or some of their forms."""

LAYOUTS = (blocked.__name__, filters.__name__, packing.__name__, winograd.__name__)
"""Modules of operators that only passes make."""


def derived() -> list[tuple[Op, tuple[Any, ...]]]:
    """Return the examples with f32 operands that are plain, and what they are applied to."""
    found = []
    bring_extras()
    for cls in Op.registry.values():
        ours = cls.__module__.startswith("alpenglow.") and cls.__module__ not in LAYOUTS
        if ours and cls not in (Fused, Jump) and not issubclass(cls, Control | Host):
            found += [(op, tuple(operands)) for op, *operands in cls.examples()]
    return [(op, operands) for op, operands in found if applies(op, types_of(operands))]


def types_of(operands: Sequence[Any]) -> list[TensorType | None]:
    """Return the types of the operands of an example, f64 for f32."""
    types = [
        x if x is None else type_of(x) if isinstance(x, np.ndarray) else TensorType.parse(x)
        for x in operands
    ]
    return [t.with_dtype("f64") if t is not None and t.dtype == "f32" else t for t in types]


def applies(op: Op, types: Sequence[TensorType | None]) -> bool:
    """Whether an example is a plain function from f64 to f64, almost everywhere smooth."""
    if not any(t is not None and t.dtype == "f64" for t in types):
        return False
    if any(t is not None and t.dtype in FLOATS - {"f64"} for t in types):
        return False
    try:
        results = Node(op, [None if t is None else Value(t) for t in types]).results
    except TypeRuleError:
        return False
    plain = all(t is None or t.is_plain for t in [*types, *(v.type for v in results)])
    return plain and any(v.type.dtype == "f64" for v in results)


def drawn(name: str, types: Sequence[TensorType | None], operands: Sequence[Any]) -> list[Array]:
    random = np.random.default_rng(1)
    low, high = DOMAINS.get(name, (-2, 2))
    found = []
    for t, x in zip(types, operands, strict=True):
        if isinstance(x, np.ndarray) and t is not None:
            found.append(x.astype(t.numpy))
        elif t is not None and t.dtype == "f64":
            drawn = random.uniform(low, high, t.extents)
            found.append(drawn + np.swapaxes(drawn, -1, -2) if name in SYMMETRIC else drawn)
        elif t is not None:
            found.append(random.integers(0, 2, t.extents).astype(t.numpy))
    return found


def of_example(op: Op, operands: Sequence[Any]) -> tuple[Graph, Value, dict[str, Array]]:
    """Return a graph, a scalar made by an example from its inputs, and contents for these."""
    g, types = Graph("example"), types_of(operands)
    xs = [None if t is None else g.input(f"x{i}", t) for i, t in enumerate(types)]
    results = g.add(op, xs).results
    feeds = dict(zip(g.inputs, drawn(op.name, types, operands), strict=True))
    return g, weighted_sum(g, [v for v in results if v.type.dtype == "f64"]), feeds


def smooth(op: Op, g: Graph, feeds: dict[str, Array]) -> bool:
    """Whether what is computed is finite, and nothing that was given is on an edge."""
    if op.name == "couple":
        return False  # it ends where it is near enough, which differences are not
    given = [x for x in feeds.values() if x.dtype.kind == "f"]
    with np.errstate(all="ignore"):
        finite = all(np.isfinite(x).all() for x in [*given, *evaluate(g, feeds).values()])
    if op.name in SYMMETRIC:
        given = [x[..., *np.tril_indices(x.shape[-1])] for x in given]
    return finite and all(x.size == len(np.unique(x)) for x in given)


EXAMPLES = derived()


@pytest.mark.parametrize("name", sorted({op.name for op, _ in EXAMPLES}))
@pytest.mark.sampled(10)
def test_gradients_of_examples_agree_with_differences(name: str) -> None:
    lacking = False
    for op, operands in EXAMPLES:
        if op.name == name:
            g, y, feeds = of_example(op, operands)
            g.output("total", y)
            try:
                gradients(g, y, [v for v in g.inputs.values() if v.type.dtype == "f64"])
            except UnsupportedError as error:
                assert "gradient" in str(error)
                lacking = True
            else:
                if smooth(op, g, feeds):
                    check(g, y, feeds, symmetric=name in SYMMETRIC)

    assert lacking == (Op.registry[name] in WITHOUT)


# ── elementwise operators ──


def test_the_vocabulary_is_differentiated_where_it_is_not_flat() -> None:
    flat = {"sign", "floor", "ceil", "round", "isnan", "isinf"}
    whole = {n for n in OPERATORS if n.startswith(("bit_", "shift_"))} | {
        "eq",
        "lt",
        "le",
        "gt",
        "ge",
    }

    assert set(PARTIALS) == set(OPERATORS) - flat - whole


def elementwise_examples() -> list[Elementwise]:
    modules = [m.__name__ for m in (activation, arithmetic, transcendental)]
    found = {
        op: None for op, _ in EXAMPLES
        if isinstance(op, Elementwise) and type(op).__module__ in modules
    }  # fmt: skip
    return list(found)


@pytest.mark.sampled(16)
@pytest.mark.parametrize("op", elementwise_examples(), ids=repr)
def test_gradients_of_gradients_agree_with_differences(op: Elementwise) -> None:
    count = len(op.operands)
    g, y, feeds = of_example(op, ["f32[3,5]"] * count)
    slopes = gradients(g, y, list(g.inputs.values()))

    check(g, weighted_sum(g, slopes), feeds)


@pytest.mark.parametrize("op", [Sigmoid(), Softplus(), Swish(), Swish(1.5), Mish(), Elu(), Selu()])
def test_slopes_of_activations_are_finite_far_out(op: Elementwise) -> None:
    x = np.array([-200, -95, -30, 30, 95, 200], np.float32)
    slopes = slope_at(op, x)

    assert np.isfinite(slopes).all()
    assert (
        np.abs(slopes[3:] - (0 if isinstance(op, Sigmoid) else getattr(op, "gamma", 1))).max()
        < 1e-6
    )


def slope_at(op: Op, *xs: Array) -> Array:
    """Return the gradient of the sum of an operator's result by its first operand."""
    g = Graph("slope")
    values = [g.input(f"x{i}", type_of(x)) for i, x in enumerate(xs)]
    (slope,) = gradients(g, g(op, *values), values[:1])
    g.output("slope", slope)
    with np.errstate(all="ignore"):
        return evaluate(g, {f"x{i}": x for i, x in enumerate(xs)})["slope"]


def test_edges_have_the_slopes_that_are_said() -> None:
    zeros, ones = np.zeros(1), np.ones(1)

    assert slope_at(Relu(), zeros) == 0  # flat at a limit that is a number
    assert slope_at(Clip(0, 1), ones) == 0
    assert slope_at(Maximum(), ones, ones) == 0.5  # shared where operands are equal
    assert slope_at(ReduceMax((0,)), np.array([3.0, 1, 3])).tolist() == [0.5, 0, 0.5]
    assert slope_at(ReduceProd((0,)), np.array([0.0, 2, 3])).tolist() == [6, 0, 0]
    assert slope_at(Pow(), zeros, np.full(1, 2.0)) == 0
    assert slope_at(Pow(), zeros, zeros) == 0
    assert slope_at(Floor(), ones) == 0


def test_norms_of_zeros_have_gradient_0() -> None:
    zeros = np.zeros((1, 1, 4))
    pool = LpPool((2,), (2,), (0, 0), (1,))

    for op in (ReduceL2((2,)), LpNorm(2), LpNorm(2, 1), pool, replace(pool, p=3)):
        assert slope_at(op, zeros).tolist() == zeros.tolist()
    slopes = slope_at(pool, np.array([[[0.0, 0, 3, 4]]]))

    np.testing.assert_allclose(slopes, [[[0, 0, 0.6, 0.8]]], 1e-15)


def test_what_never_varies_is_normalised_with_finite_gradients() -> None:
    assert slope_at(MeanVarianceNorm((1,)), np.ones((2, 1))).tolist() == [[0], [0]]
    assert np.isfinite(slope_at(MeanVarianceNorm((1,)), np.ones((2, 3), np.float32))).all()


def test_what_is_not_chosen_may_be_infinite() -> None:
    g = Graph("choice")
    x = g.input("x", "f64[2]")
    large = g(Greater(), x, g.constant(np.zeros(2)))
    (dx,) = gradients(g, g(Where(), large, g.constant(np.full(2, np.inf)), x), [x])
    g.output("dx", dx)

    assert evaluate(g, {"x": np.array([1.0, -1.0])})["dx"].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision_is_rounded_once(dtype: str) -> None:
    x = np.linspace(-3, 3, 33).astype(TensorType(dtype, ()).numpy)
    expected = slope_at(Mish(), x.astype(np.float32)).astype(x.dtype)

    assert slope_at(Mish(), x).tolist() == expected.tolist()


def test_conversions_between_floats_pass_gradients_on() -> None:
    assert slope_at(Cast("f32"), np.ones(3)).tolist() == [1, 1, 1]
    assert slope_at(Cast("f64"), np.ones(3, np.float16)).dtype == np.float16


class Cubed(Elementwise):
    """x³: an operator of somebody else, which has no rule."""

    def scalar(self, m: Any, x: Any) -> Any:
        return m.mul(m.mul(x, x), x)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), "f32[3]"


def test_an_operator_of_anybody_is_differentiated_by_its_formula() -> None:
    assert slope_at(Cubed(), np.array([1.0, -2.0])).tolist() == [3, 12]


# ── graphs ──


def test_a_value_that_is_read_twice_adds_up_gradients() -> None:
    g = Graph("twice")
    x = g.input("x", "f64[3]")
    check(g, weighted_sum(g, [g(Mul(), g(Transpose((0,)), x), g(Add(), x, x))]), {"x": np.ones(3)})


def test_a_value_that_is_several_operands_of_a_composite_counts_once() -> None:
    g = Graph("twice")
    x, scale = g.input("x", "f64[2,3,4]"), g.input("scale", "f64[3]")
    y = g(InstanceNorm(), x, scale, scale)
    check(
        g, weighted_sum(g, [y]), {"x": np.arange(24.0).reshape(2, 3, 4) ** 2, "scale": np.ones(3)}
    )


def test_values_that_are_not_read_have_gradient_0() -> None:
    g = Graph("apart")
    x, z = g.input("x", "f64[3]"), g.input("z", "f64[2]")
    dx, dz = gradients(g, x, [x, z])
    g.output("dx", dx)
    g.output("dz", dz)
    found = evaluate(g, {"x": np.ones(3), "z": np.ones(2)})

    assert [v.tolist() for v in found.values()] == [[1, 1, 1], [0, 0]]


def test_xs_are_independent_of_each_other() -> None:
    g = Graph("chain")
    x = g.input("x", "f64[]")
    h = g(Mul(), x, x)
    dx, dh = gradients(g, g(Mul(), h, x), [x, h])
    g.output("dx", dx)
    g.output("dh", dh)
    found = evaluate(g, {"x": np.array(3.0)})

    assert [float(v) for v in found.values()] == [9, 3]


def test_results_may_be_weighted() -> None:
    g = Graph("weighted")
    x, w = g.input("x", "f64[3]"), g.input("w", "f64[3]")
    g.output("dx", gradients(g, g(Mul(), x, x), [x], dy=w)[0])
    found = evaluate(g, {"x": np.array([1.0, 2, 3]), "w": np.array([1.0, 0, -1])})

    assert found["dx"].tolist() == [2, 0, -6]


def test_nothing_is_left_that_nobody_reads() -> None:
    g = Graph("lean")
    x = g.input("x", "f32[3]")
    g.output("dx", gradients(g, g(Relu(), g(Add(), x, x)), [x])[0])

    assert g.prune() == 1  # the forward relu
    assert "relu" not in {n.op.name for n in g.nodes}


def test_values_are_substituted_in_what_was_derived() -> None:
    g = Graph("elsewhere")
    x, other = g.input("x", "f64[2]"), g.input("other", "f64[2]")
    derived = gradients(g, g(Mul(), x, x), [x])
    g.output("dx", substituted(g, derived, {x: other})[0])
    found = evaluate(g, {"x": np.zeros(2), "other": np.array([1.0, 4])})

    assert found["dx"].tolist() == [2, 8]


@pytest.mark.parametrize("which", ["y", "x"])
def test_only_floats_are_differentiated(which: str) -> None:
    g = Graph("whole")
    x, n = g.input("x", "f32[2]"), g.input("n", "i64[2]")
    with pytest.raises(TypeRuleError, match=r"expected floats\n  try: "):
        gradients(g, n if which == "y" else x, [n if which == "x" else x])


def test_an_operator_without_gradient_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Op, "registry", dict(Op.registry))  # other tests try all that are there

    class Opaque(Primitive):
        """x, as a primitive of somebody else who says nothing of its gradient."""

        def infer(self, x: TensorType) -> TensorType:
            return x

        @classmethod
        def examples(cls) -> Examples:
            yield cls(), "f32[3]"

    g = Graph("dark")
    x = g.input("x", "f32[3]")
    y = g(Opaque(), x, name="unseen")
    with pytest.raises(UnsupportedError, match=r"opaque is not supported[^z]*unseen.\n  try: ag"):
        gradients(g, y, [x])


Builder = Callable[[Graph, Value], Value]


def convolved(g: Graph, x: Value) -> Value:
    w = g.constant(np.random.default_rng(4).normal(0, 0.3, (6, 3, 3, 3)).astype(np.float32))
    y = g(Relu(), g(Conv((2, 2), (1, 1, 1, 1)), x, w))
    pooled = g(MaxPool((2, 2), (1, 1), (0,) * 4, (1, 1)), y)
    return g(AveragePool((2, 2), (1, 1), (0,) * 4, (1, 1)), pooled)


def attended(g: Graph, x: Value) -> Value:
    rows = g(LayerNorm(1), g(Reshape((8, 24)), x))
    shares = g(Softmax(1), g(MatMul(), rows, g(Transpose((1, 0)), rows)))
    return g(MatMul(), shares, rows)


def moved(g: Graph, x: Value) -> Value:
    picked = g(
        Gather(2),
        g(Slice((0, 0, 7, 1), (1, 3, 3, 6), (1, 1, -3, 1)), x),
        g.constant(np.array([2, 0, 2])),
    )
    return g(
        Sub(),
        g(Pad((0, 0, 1, 1), (0, 0, 2, 2), "edge"), picked),
        g(Broadcast((1, 3, 6, 9)), g(ReduceMax((1, 2, 3)), x)),
    )


def scattered(g: Graph, x: Value) -> Value:
    places = g.constant(np.array([3, 1, 3]))
    flat = g(Reshape((192,)), x)
    part = g(Slice((5,), (3,), (1,)), flat)
    return g(
        Div(),
        g(ScatterElements(0), flat, places, part),
        g(Broadcast((192,)), g.constant(np.float32(3))),
    )


@pytest.mark.parametrize("build", [convolved, attended, moved, scattered])
def test_compiled_gradients_agree_with_evaluated_ones(build: Builder) -> None:
    g = Graph("step")
    x = g.input("x", "f32[1,3,8,8]")
    y = build(g, x)
    g.output("dx", gradients(g, g(Mul(), y, y), [x])[0])
    g.prune()
    feed = np.random.default_rng(5).standard_normal((1, 3, 8, 8)).astype(np.float32)
    exe = ag.compile(g, threads=1)
    expected, actual = evaluate(g, {"x": feed})["dx"], exe(feed)

    assert all(entry.kernel for entry in exe.artifact.table)
    np.testing.assert_allclose(actual, expected, 1e-4, 1e-4)


def test_open_extents_are_differentiated() -> None:
    g = Graph("open")
    x = g.input("x", "f32[N,5]")
    shares = g(Softmax(1), g(Slice((0, 1), (x.type.shape[0], 3), (1, 1)), x))
    g.output("dx", gradients(g, g(Mul(), shares, shares), [x])[0])
    g.prune()
    exe = ag.compile(g, threads=1)
    for n in (1, 7):
        feed = np.random.default_rng(n).standard_normal((n, 5)).astype(np.float32)
        expected = evaluate(g.bind({"N": n}), {"x": feed})["dx"]

        np.testing.assert_allclose(exe(feed), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_wide_sums_of_halves_pass_gradients_on(dtype: str) -> None:
    random = np.random.default_rng(6)
    for op, *shapes in (
        (MatMul(True), (3, 4), (4, 2)),
        (Conv(wide=True), (1, 2, 5, 5), (3, 2, 2, 2)),
    ):
        xs = [random.standard_normal(s).astype(TensorType(dtype, ()).numpy) for s in shapes]
        expected = slope_at(op.__class__(), *(x.astype(np.float32) for x in xs))

        assert slope_at(op, *xs).dtype == xs[0].dtype
        np.testing.assert_allclose(slope_at(op, *xs).astype(np.float32), expected, 1e-2)


def test_windows_of_padding_alone_have_no_gradient() -> None:
    pool = MaxPool((3, 3), (2, 2), (1, 1, 1, 1), (2, 1), True)

    assert slope_at(pool, np.zeros((2, 3, 4, 0))).shape == (2, 3, 4, 0)

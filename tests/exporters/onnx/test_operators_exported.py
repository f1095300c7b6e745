"""Every operator as ONNX: its examples, exported, checked, and run in ONNX Runtime.

What ONNX Runtime has no kernel or no element type for is imported again and interpreted.
"""

from __future__ import annotations

from collections.abc import Iterator
from zlib import crc32

import numpy as np
import onnx
import pytest

import alpenglow as ag
from alpenglow.base.errors import UnsupportedError
from alpenglow.evaluate import evaluate
from alpenglow.exporters.onnx.pairs import pair
from alpenglow.extras.linalg.factorization import Cholesky, Eig, Eigh, Svd
from alpenglow.extras.linalg.indefinite import Ldl, SolveLdl
from alpenglow.extras.linalg.reflections import Qr, Reflect, Reflected
from alpenglow.extras.linalg.solving import Lu, MatrixExp, SolveTriangular
from alpenglow.extras.ml.tree import TreeEnsemble
from alpenglow.ir.graph import Graph
from alpenglow.ir.op import Op
from alpenglow.ir.types import COMPLEX, INTS, NARROW, NARROW_FLOATS
from alpenglow.machines.vector.operators.blocked import (
    ConvBlocked,
    ConvPlanar,
    DepthwiseBlocked,
    DepthwisePlanar,
    MatMulPacked,
    Ungroup,
)
from alpenglow.machines.vector.operators.few_bits import MatMulFewBits, PackNibbles
from alpenglow.machines.vector.operators.filters import (
    ConvFilterBlocked,
    DepthwiseFilter,
    UnpackConv,
)
from alpenglow.machines.vector.operators.layout import Pack
from alpenglow.machines.vector.operators.phases import ConvPhases, DepthwisePhases
from alpenglow.machines.vector.operators.quantized import MatMulGroups, QuantizeGroups
from alpenglow.machines.vector.operators.winograd import (
    WinogradFilter,
    WinogradInput,
    WinogradOutput,
    WinogradProduct,
)
from alpenglow.machines.vector.operators.winograd_back import (
    WinogradBlocks,
    WinogradFilterBack,
    WinogradSums,
)
from alpenglow.ops.elementwise.select import BitCast, Cast
from alpenglow.ops.image.regions import (
    MaxRoiPoolIndex,
    RoiAlignIndex,
    RoiAlignSlope,
    RoiAlignSpread,
)
from alpenglow.ops.image.sampling import Sample, SampleSlope, Spread
from alpenglow.ops.image.suppress import Suppress
from alpenglow.ops.quantized.quantize import Requantize
from alpenglow.ops.random.mersenne import (
    MersenneInteger,
    MersenneNormal,
    MersennePermutation,
    MersenneUniform,
    MersenneUniformWhere,
)
from alpenglow.ops.reduction.scan import LinearScan
from alpenglow.ops.sequence.ctc import Ctc, CtcGradient
from alpenglow.ops.sequence.linear_attention import LinearAttentionGradient
from alpenglow.ops.sequence.recurrent import Gru, Lstm, Rnn
from alpenglow.ops.tensor.counted import Unique
from alpenglow.ops.tensor.sum_at import SumAt
from alpenglow.ops.window.conv_filter import ConvFilter
from onnx_runs import Array, as_exported, imported, in_runtime
from operator_cases import (
    OPERATORS,
    Application,
    applications,
    assert_agree,
    every_operator,
    feeds,
    forest,
    one_node,
)

MACHINE = "a pass of the CPU makes it"
FACTORS = "LAPACK's, of which ONNX has none"
MERSENNE = "PyTorch's generator, whose state no other has"

GRADIENT = "what gradients are made of; ONNX has no operator like it"

REFUSED = {
    ConvFilter: GRADIENT,
    Ctc: "a loss; ONNX has no operator like it",
    CtcGradient: GRADIENT,
    LinearScan: GRADIENT,
    LinearAttentionGradient: GRADIENT,
    Pack: MACHINE,
    PackNibbles: MACHINE,
    Ungroup: MACHINE,
    ConvPhases: MACHINE,
    DepthwisePhases: MACHINE,
    ConvBlocked: MACHINE,
    ConvPlanar: MACHINE,
    DepthwiseBlocked: MACHINE,
    DepthwisePlanar: MACHINE,
    MatMulPacked: MACHINE,
    ConvFilterBlocked: MACHINE,
    DepthwiseFilter: MACHINE,
    UnpackConv: MACHINE,
    MatMulFewBits: MACHINE,
    QuantizeGroups: MACHINE,
    MatMulGroups: MACHINE,
    WinogradFilter: MACHINE,
    WinogradInput: MACHINE,
    WinogradProduct: MACHINE,
    WinogradOutput: MACHINE,
    WinogradBlocks: MACHINE,
    WinogradSums: MACHINE,
    WinogradFilterBack: MACHINE,
    Qr: FACTORS,
    Reflect: FACTORS,
    Reflected: FACTORS,
    Svd: FACTORS,
    Eigh: FACTORS,
    Eig: FACTORS,
    MatrixExp: FACTORS,
    Ldl: FACTORS,
    SolveLdl: FACTORS,
    MersenneUniform: MERSENNE,
    MersenneNormal: MERSENNE,
    MersenneInteger: MERSENNE,
    MersennePermutation: MERSENNE,
    MersenneUniformWhere: MERSENNE,
    SumAt: GRADIENT,
    Spread: GRADIENT,
    SampleSlope: GRADIENT,
    RoiAlignSpread: GRADIENT,
    RoiAlignSlope: GRADIENT,
    RoiAlignIndex: GRADIENT,
    MaxRoiPoolIndex: GRADIENT,
}
"""Operators that no model of ONNX says, and why."""


def is_refused(a: Application, constant: bool) -> bool:
    """Return True for what of an operator cannot be said, where the rest can."""
    if not all(t is None or t.is_plain for t in a.types):
        return True
    match a.op:
        case TreeEnsemble():
            return not constant  # the nodes are records of bits, which are read as it is written
        case Sample():
            return any(a.op.orders)
        case BitCast(dtype):
            (source,) = a.types
            assert source is not None, "the operand is there"
            return source.dtype != dtype and bool({source.dtype, dtype} & (COMPLEX | SIX_BITS))
        case Requantize():
            return a.op.rounding != "even"
        case Lu() | SolveTriangular() | Cholesky():
            return a.types[0] is not None and a.types[0].dtype in COMPLEX
    return type(a.op) in REFUSED


SIX_BITS = {"f6e2m3", "f6e3m2"}
"""What opset 28 brought, and BitCast does not have."""


def kinds(cases: list[Application]) -> Iterator[list[Application]]:
    """Yield cases that are written together: what ONNX Runtime has for one, it has for most."""
    every = [(a, {t.dtype for t in a.types if t is not None}) for a in cases]
    rare = NARROW | COMPLEX
    yield [a for a, dtypes in every if dtypes & rare]
    yield [a for a, dtypes in every if not dtypes & rare and dtypes <= {"f32", "i64", "i32"}]
    yield [a for a, dtypes in every if not dtypes & rare and not dtypes <= {"f32", "i64", "i32"}]


@every_operator
@pytest.mark.sampled(16)
def test_an_operator_is_exported(cls: type[Op]) -> None:
    cases = list(applications(cls))
    for some in kinds([a for a in cases if not is_refused(a, constant=False)]):
        check(some)
    for a in cases:
        if is_refused(a, constant=False):
            with pytest.raises(UnsupportedError, match=cls.name):
                ag.export_onnx(one_node(a))


@every_operator
@pytest.mark.sampled(56)
def test_an_operator_on_constants_is_exported(cls: type[Op]) -> None:
    """Writers look at constants: at indices, at divisors, at zero points, at trees."""
    cases = [a for a in applications(cls) if any(x is not None for x in a.given[1:])]
    for some in kinds([a for a in cases if not is_refused(a, constant=True)]):
        check(some, constant=True)


@pytest.mark.slow
@every_operator
def test_an_operator_says_the_same_of_strange_numbers(cls: type[Op]) -> None:
    """NaN and infinities, as the interpreter has them: runtimes differ there."""
    random = np.random.default_rng(0)
    for a in applications(cls):
        if is_refused(a, constant=False) or isinstance(a.op, Lstm | Gru | Rnn):
            continue  # to which a unit matrix is given, that multiplies infinities by 0
        g = one_node(a)
        arrays = feeds([a], [a.draw(random, special=True)])
        actual = imported(ag.export_onnx(g), as_exported(arrays))
        expected = as_exported(evaluate(g, arrays))
        for name, v in g.outputs.items():
            assert_agree(f"{a.op}", expected[name], actual[name], pair(v.type))


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 20, 23, onnx.defs.onnx_opset_version()])
def test_operators_are_exported_in_every_opset_that_has_them(opset: int) -> None:
    """What an opset lacks is refused; what is written is in it, and says the same."""
    written = 0
    for a in (a for cls in OPERATORS for a in applications(cls)):
        random = np.random.default_rng(crc32(repr(a.op).encode()))
        g = one_node(a)
        try:
            model = ag.export_onnx(g, opset=opset)
        except UnsupportedError:
            continue
        written += 1
        onnx.checker.check_model(model, full_check=True)
        arrays = feeds([a], [a.draw(random)])
        actual, expected = imported(model, as_exported(arrays)), as_exported(evaluate(g, arrays))
        for name, v in g.outputs.items():
            assert_agree(f"{a.op}", expected[name], actual[name], pair(v.type))

    assert written > 2500


def check(cases: list[Application], constant: bool = False) -> None:
    """Export applications as one graph, or where ONNX Runtime lacks one of them, one by one."""
    random = np.random.default_rng(len(cases))
    contents = [a.draw(random) for a in cases]
    if cases and not agree(cases, contents, constant):
        for a, arrays in zip(cases, contents, strict=True):
            agree([a], [arrays], constant)


def on_constants(cases: list[Application]) -> Graph:
    """Return a graph of one node for each application, on constants where contents are given."""
    g = Graph("examples")
    for i, a in enumerate(cases):
        operands = [
            None if t is None else g.input(f"x{i}_{k}", t) if x is None or not k else g.constant(x)
            for k, (t, x) in enumerate(zip(a.types, a.given, strict=True))
        ]
        for k, v in enumerate(g.add(a.op, operands).results):
            g.output(f"y{i}_{k}", v)
    return g


def agree(cases: list[Application], contents: list[list[Array | None]], constant: bool) -> bool:
    """Compare what the model says; return False if many are to be run one by one instead."""
    g = on_constants(cases) if constant else forest(cases)
    arrays = {n: x for n, x in feeds(cases, contents).items() if n in g.inputs}
    model = ag.export_onnx(g)
    given = as_exported(arrays)
    types = {name: v.type for name, v in g.outputs.items()}
    results = None if any(map(peer_differs, cases)) else in_runtime(model, given, types)
    if results is None and len(cases) > 1:
        return False
    actual = imported(model, given) if results is None else results
    expected = as_exported(evaluate(g, arrays))
    for name, t in types.items():
        op = cases[int(name[1:].partition("_")[0])].op
        assert_agree(f"{op} {name}", expected[name], actual[name], pair(t))
    return True


def peer_differs(a: Application) -> bool:
    """Return True where ONNX Runtime does otherwise than ONNX says, or ONNX says nothing.

    It rounds to few bits in its own way: negative numbers are the least power of two, what is not
    limited may be NaN.  NaN as an integer is any number, as a score or a key it is anywhere in the
    order; and its softplus is infinite early.
    """
    nan = any(x is not None and x.dtype.kind == "f" and np.isnan(x).any() for x in a.given)
    if isinstance(a.op, Unique | Suppress) and nan:
        return True
    if isinstance(a.op, Rnn) and a.op.activations[0][0] == "softplus":
        return True
    if not isinstance(a.op, Cast):
        return False
    (source,) = a.types
    assert source is not None, "a cast has an operand"
    narrow = source.dtype in NARROW_FLOATS and a.op.dtype in INTS
    return narrow or a.op.dtype == "f8e8m0" or not a.op.saturate

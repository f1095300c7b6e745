"""Differences that are no mistake of ours, by kind: each with a reason and a narrow predicate.

Where an oracle contradicts the reference, the model is computed in f64 by somebody else: whoever is
farther from that is wrong.  What f64 cannot decide, because it is no matter of rounding, must be of
a kind in `KINDS`, or it is a finding.  `tests/fuzz/test_fuzz_aside.py` shows an example of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import shape_inference

from alpenglow.ir import types
from alpenglow.ir.graph import Graph

from .draft import every
from .noise import wrong
from .oracles import in_f64
from .reference import Reference
from .settings import Setting

Array = NDArray[Any]

TIMES = {"onnxruntime": 256.0, "reference": 64.0, "nodewise": 256.0, "coarse": 256.0}
"""Others approximate, too: exponentials and hyperbolic functions are off by many units."""

LEAST = 1e-6
"""Relative to the largest element: some operators on f64 are computed in single precision."""


COARSE = 1e-4
"""The same where everything is."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an output of an oracle and of the reference are not alike."""

    oracle: str
    nodes: tuple[onnx.NodeProto, ...]
    expected: Array
    actual: Array
    where: Array
    traits: frozenset[str]

    @property
    def operators(self) -> set[str]:
        return {n.op_type for n in self.nodes}

    @property
    def ours(self) -> Array:
        """The elements of the reference that differ."""
        return np.asarray(self.expected[self.where])

    @property
    def theirs(self) -> Array:
        """Those of the oracle: all, if it has another shape."""
        alike = self.actual.shape == self.where.shape
        return np.asarray(self.actual[self.where]) if alike else self.actual.ravel()


@dataclass(frozen=True, slots=True)
class Kind:
    """A way to differ that is set aside: what it is, and whether a difference is of it."""

    name: str
    reason: str
    fits: Callable[[Difference], bool]


def _ends(a: Array) -> list[int]:
    """Return the least and the largest integer of the type of an array."""
    limits = ml_dtypes.iinfo(a.dtype)
    return [int(limits.min), int(limits.max)]


KINDS = (
    Kind(
        "rows of no turns",
        "a loop that never turns makes rows of extents that nobody has seen",
        lambda d: (
            "Loop" in d.operators
            and not d.expected.size
            and not d.actual.size
            and d.expected.shape[:1] == d.actual.shape[:1] == (0,)
        ),
    ),
    Kind(
        "labels of two classes",
        "ONNX Runtime calls them 0 and 1, whatever they are called, where trees score both, and "
        "says 1 where the second score is positive, however large the first",
        lambda d: (
            "TreeEnsembleClassifier" in d.operators
            and d.expected.dtype == np.int64
            and set(d.actual.flat) <= {0, 1}
        ),
    ),
    Kind(
        "small logistics",
        "ONNX Runtime subtracts from 1, which leaves few digits, and those count in a quotient",
        lambda d: (
            bool(d.operators & {"Div", "Reciprocal", "Log"})
            and any(a.s == b"LOGISTIC" for n in d.nodes for a in n.attribute)
        ),
    ),
    Kind(
        "classes without a score",
        "ONNX Runtime passes over a class that no leaf gave a score, though others are negative",
        lambda d: (
            "TreeEnsembleClassifier" in d.operators
            and d.expected.dtype == np.int64
            and d.expected.shape == d.actual.shape
        ),
    ),
    Kind(
        "squares of integers",
        "ONNX Runtime's Normalizer squares them as integers, which overflow",
        lambda d: (
            "Normalizer" in d.operators and bool(((d.theirs == 0) & (np.abs(d.ours) > 0.5)).any())
        ),
    ),
    Kind(
        "base values of two classes",
        "ONNX Runtime adds the second to the first score, and negates that, where trees score both",
        lambda d: any(
            n.op_type == "TreeEnsembleClassifier"
            and any(a.name == "base_values" and len(a.floats) == 2 for a in n.attribute)
            for n in d.nodes
        ),
    ),
    Kind(
        "the fifth result of BatchNormalization",
        "up to opset 13 it is a variance; ONNX Runtime gives 1 over the deviation",
        lambda d: any(n.op_type == "BatchNormalization" and len(n.output) > 4 for n in d.nodes),
    ),
    Kind(
        "softplus in a layer",
        "ONNX Runtime's is infinite from 89 on in recurrent layers, where it is its operand",
        lambda d: (
            any(b"Softplus" in a.strings for n in d.nodes for a in n.attribute)
            and bool(np.isfinite(d.ours).all())
            and not np.isfinite(d.theirs).all()
        ),
    ),
    Kind(
        "caches behind their sequences",
        "ONNX Runtime clears rows of a cache that are behind a sequence; nobody reads them",
        lambda d: (
            "GroupQueryAttention" in d.operators
            and d.expected.shape == d.actual.shape
            and d.expected.ndim == 4
            and bool(((d.actual == 0) | np.isclose(d.actual, d.expected, 1e-3, 1e-5)).all())
        ),
    ),
    Kind(
        "NaN in a maximum",
        "ONNX Runtime's Normalizer passes over NaN where it looks for the largest",
        lambda d: "nan" in d.traits and "Normalizer" in d.operators,
    ),
    Kind(
        "NaN that votes",
        "ONNX Runtime gives all classes the same share where votes are NaN",
        lambda d: (
            "nan" in d.traits and "SVMClassifier" in d.operators and bool(np.isnan(d.ours).all())
        ),
    ),
    Kind(
        "NaN in a GRU",
        "ONNX Runtime's gates are 0 where NaN goes into them, if there is a bias",
        lambda d: (
            "nan" in d.traits
            and "GRU" in d.operators
            and bool(np.isnan(d.ours).any())
            and not np.isnan(d.theirs).any()
        ),
    ),
    Kind(
        "NaN among elements that differ",
        "ONNX Runtime leaves NaN out where Unique finds other elements, or takes each for another",
        lambda d: "nan" in d.traits and "Unique" in d.operators,
    ),
    Kind(
        "large integers in floats",
        "the reference evaluator of onnx takes pixels, and what alpha multiplies, for floats of 53 "
        "bits",
        lambda d: (
            bool(d.operators & {"Resize", "Upsample", "Gemm"})
            and d.expected.dtype in (np.int64, np.uint64)
            and bool((np.abs(d.ours.astype(np.float64)) >= 2.0**53).all())
        ),
    ),
    Kind(
        "sums that overflow",
        "ONNX Runtime adds up integers or their squares, or multiplies them, as floats, and makes "
        "of what is too large an integer at the end of its type",
        lambda d: (
            bool(d.operators & {"ReduceSum", "ReduceSumSquare", "ReduceProd"})
            and d.expected.dtype in (np.int64, np.int32)
            and bool(np.isin(d.theirs, _ends(d.expected)).all())
        ),
    ),
    Kind(
        "squares of huge numbers",
        "what is written down in f64 squares numbers beyond 1e19, which f32 does not hold",
        lambda d: "huge" in d.traits and bool(d.operators & {"GroupNorm", "SkipGroupNorm"}),
    ),
    Kind(
        "NaN beside an image",
        "others multiply the first elements of an image by 0 for samples that lie outside of it",
        lambda d: (
            "nan" in d.traits
            and "RoiAlign" in d.operators
            and bool(np.isnan(d.theirs).all())
            and bool(np.isfinite(d.ours).all())
        ),
    ),
    Kind(
        "the last row of causal attention",
        "ONNX Runtime lets the last query see all keys, even if there are more keys than queries",
        lambda d: any(
            n.op_type.endswith("Attention") and a.name == "unidirectional" and a.i == 1
            for n in d.nodes
            for a in n.attribute
        ),
    ),
    Kind(
        "crops by scales",
        "ONNX multiplies extents by the share of the region, nobody else does",
        lambda d: any(
            n.op_type == "Resize"
            and len(n.input) > 2
            and n.input[2]
            and any(a.s == b"tf_crop_and_resize" for a in n.attribute)
            for n in d.nodes
        ),
    ),
    Kind(
        "corners of fractional lengths",
        "ONNX divides by what the scale makes of a length, ONNX Runtime by that rounded down",
        lambda d: any(
            n.op_type in ("Resize", "Upsample")
            and any(a.s == b"align_corners" for a in n.attribute)
            and not (len(n.input) > 3 and n.input[3])
            for n in d.nodes
        ),
    ),
    Kind(
        "tails of a fused sigmoid",
        "ONNX Runtime's sigmoid is 0 or 1e-8 where it should be less, which may be magnified",
        lambda d: any(
            n.op_type == "FusedConv" and b"Sigmoid" in [a.s for a in n.attribute] for n in d.nodes
        ),
    ),
    Kind(
        "NaN is quantized",
        "ONNX does not say which integer NaN becomes, nor whether the least of a tensor may be NaN",
        lambda d: "nan" in d.traits and any("Quantize" in o or "Cast" in o for o in d.operators),
    ),
    Kind(
        "infinity is quantized",
        "ONNX limits it to the largest integer, others convert it first, which may give the least",
        lambda d: (
            d.expected.dtype.kind in "iu"
            and any("Quantize" in o for o in d.operators)
            and bool(np.isin(d.ours, _ends(d.expected)).all())
            and bool(np.isin(d.theirs, [*_ends(d.expected), 0]).all())
        ),
    ),
    Kind(
        "exponentials below normal numbers",
        "ours are 0, others have a few bits: whether they are 0 is asked by a cast",
        lambda d: (
            d.expected.dtype == np.bool_
            and "Cast" in d.operators
            and bool(
                d.operators & {"QuickGelu", "ScaledSiLU", "Sigmoid", "Silu", "Softplus", "Swish"}
            )
        ),
    ),
    Kind(
        "negative powers of two",
        "FLOAT8E8M0 has no sign: ONNX leaves open what negative numbers become, ours is NaN",
        lambda d: (
            any(n.op_type in ("Cast", "CastLike") for n in d.nodes)
            and d.expected.dtype == ml_dtypes.float8_e8m0fnu
            and bool(np.isnan(d.ours.astype(np.float32)).all())
        ),
    ),
    Kind(
        "zeros of windows",
        "the first element of a Blackman window is 0 but for rounding, and its logarithm anything",
        lambda d: "BlackmanWindow" in d.operators,
    ),
    Kind(
        "nothing to add up",
        "ONNX Runtime takes the sum of no products for any memory where it fuses the bias",
        lambda d: "empty" in d.traits and bool(d.operators & {"MatMulIntegerToFloat"}),
    ),
)

OURS = {
    "torn": "rounding decides: a tie, a step, a mask, a shape",
    "NaN in bytes": "under `fast`, what NaN is quantized to is any",
    "subnormal": "what is less than normal numbers has few bits, or none: exponentials of it are 0",
    "overflow of sums": "sums of products of huge numbers overflow in one order and not in another",
    "0 times NaN": "under `fast`, zeros of a packed operand may meet NaN of other channels",
    "sign of zero": "under `fast`, a product that underflows keeps its sign where 0 is added",
    "overflow of halves": "halves in f32 overflow later, under `fast`; f32 in halves, earlier",
}
"""Kinds of differences between the reference and a setting."""

NAMES = (*(k.name for k in KINDS), *OURS)
"""The words that say that something was set aside."""

FOR_US = ("same", "nearer")
"""Words for oracles that confirm the reference."""


def weighed(
    model: bytes, reference: Reference, results: Mapping[str, Array], oracle: str
) -> tuple[str, str]:
    """Return how the results of an oracle compare: a word for the log, and what is wrong, if any.

    The word is same, nearer (the reference is nearer to f64 than the oracle), the name of a kind,
    contradicted, misshapen (what the oracle made is of other types than ONNX infers), or coarse
    (no more can be said).
    """
    words = []
    truth: Mapping[str, Array] | None = None
    asked = False
    for name, y in reference.expected.items():
        if name not in results:
            return "incomplete", ""
        x = results[name]
        if _misshapen(model, reference, name, x):
            words.append("misshapen")
            continue
        problem = _apart(reference, name, x, oracle)
        if not problem:
            words.append("same")
            continue
        if oracle == "coarse":
            return "coarse", ""
        if not asked:
            truth, asked = in_f64(model, reference.feeds), True
        if truth is not None and name in truth and is_nearer(y, x, truth[name]):
            words.append("nearer")
            continue
        kind = _kind(model, reference, y, x, oracle)
        if kind is None:
            return "contradicted", f"output '{name}': {problem}"
        words.append(kind.name)
    odd = [w for w in words if w != "same"]
    return (odd[0] if odd else "same"), ""


def _apart(reference: Reference, name: str, x: Array, oracle: str) -> str:
    """Return how far an output is from the reference, "" if rounding explains it."""
    y = reference.expected[name]
    nothing = np.zeros(y.shape)
    if not wrong(y, x, nothing, 2.0):
        return ""
    for runs in (6, 60):
        allowed = reference.slack(runs)[name]
        problem = wrong(y, x, allowed, TIMES[oracle], COARSE if oracle == "coarse" else LEAST)
        if not problem:
            return ""
    return problem


def _misshapen(model: bytes, reference: Reference, name: str, x: Array) -> bool:
    """Whether a result has not the type that ONNX infers, where that of the reference has it."""
    y = reference.expected[name]
    if (y.dtype, y.shape) == (x.dtype, x.shape):
        return False
    proto = onnx.load_model_from_string(model)
    for i in proto.graph.input:
        t = onnx.helper.np_dtype_to_tensor_dtype(reference.feeds[i.name].dtype)
        i.type.CopyFrom(onnx.helper.make_tensor_type_proto(t, reference.feeds[i.name].shape))
    for o in proto.graph.output:
        o.type.tensor_type.ClearField("shape")
    for o in shape_inference.infer_shapes(proto, data_prop=True).graph.output:
        t = o.type.tensor_type
        if o.name == name and t.HasField("shape"):
            dims = tuple(d.dim_value if d.HasField("dim_value") else -1 for d in t.shape.dim)
            return (onnx.helper.tensor_dtype_to_np_dtype(t.elem_type), dims) == (y.dtype, y.shape)
    return False


def is_nearer(ours: Array, theirs: Array, truth: Array) -> bool:
    """Whether no element of ours is farther from the truth than theirs, where the two differ."""
    if ours.shape != truth.shape or truth.dtype.kind == "O":
        return False
    if theirs.shape != truth.shape:
        return np.allclose(ours, truth, 1e-3, 1e-6, equal_nan=True)
    a, b, t = (z.astype(np.float64) for z in (ours, theirs, truth))
    eps = (
        float(ml_dtypes.finfo(ours.dtype).eps)
        if types.NAMES.get(ours.dtype) in types.FLOATS
        else 0.0
    )
    # Where all are alike, nobody is wrong.
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= 64 * eps * np.abs(t))
    off_a = np.where((a == t) | (np.isnan(a) & np.isnan(t)), 0.0, np.abs(a - t))
    off_b = np.where((b == t) | (np.isnan(b) & np.isnan(t)), 0.0, np.abs(b - t))
    # What is no number on one side only is as far away as can be.
    off_a, off_b = np.nan_to_num(off_a, nan=np.inf), np.nan_to_num(off_b, nan=np.inf)
    return bool((same | (off_a < off_b)).all())


def _kind(model: bytes, reference: Reference, y: Array, x: Array, oracle: str) -> Kind | None:
    where = _where(y, x)
    nodes = tuple(every(onnx.load_model_from_string(model).graph.node))
    d = Difference(oracle, nodes, y, x, where, frozenset(reference.traits()))
    return next((k for k in KINDS if k.fits(d)), None)


def _where(y: Array, x: Array) -> Array:
    if y.shape != x.shape or y.dtype.kind == "O" or x.dtype.kind == "O":
        return np.ones(y.shape, bool)
    a, b = y.astype(np.float64), x.astype(np.float64)
    return ~((a == b) | (np.isnan(a) & np.isnan(b)))


# ── settings of ours that may differ from the reference ──


LOST = 4096.0
"""How many of the least numbers may be lost between transforms."""


def explained(
    reference: Reference, name: str, actual: Array, allowed: Array, setting: Setting
) -> str:
    """Return the kind of difference of an output that a setting may make, "" if it is none."""
    y = reference.expected[name]
    few_bits = y.shape == actual.shape and y.dtype in (np.float32, np.float64)
    if few_bits and not wrong(y, actual, allowed + float(np.finfo(y.dtype).tiny) / 4.0, 16.0):
        return "subnormal"
    traits = reference.traits()
    if "huge" in traits:
        return "overflow of sums"
    if setting.numerics != "fast" and setting.precision == "f32":
        return ""
    if {"nan", "bytes"} <= traits:
        return "NaN in bytes"
    if "nan" in traits and y.shape == actual.shape and y.dtype.kind == "f":
        leaked = np.isnan(actual) & ~np.isnan(y)
        nodes = reference.graph.nodes if isinstance(reference.graph, Graph) else ()
        groups = any(getattr(n.op, "group", 1) > 1 for n in nodes)
        if groups and not wrong(np.where(leaked, actual, y), actual, allowed, 16.0):
            return "0 times NaN"
    if few_bits:
        turned = np.isinf(y) & (actual == -y)
        if turned.any() and not wrong(np.where(turned, actual, y), actual, allowed, 16.0):
            return "sign of zero"
    if y.dtype in (np.float32, np.float64):
        least = LOST * float(np.finfo(y.dtype).smallest_subnormal)
        if "halves" in traits or setting.precision == "f16":
            least = 4 * float(np.finfo(np.float16).smallest_subnormal)
        if not wrong(y, actual, allowed + least, 16.0):
            return "subnormal"
    if setting.precision == "f16" and "large" in traits:
        return "overflow of halves"
    if "halves" in traits or setting.precision == "f16":
        # Inside, halves are computed as f32, which overflows later; or the other way round.
        if not wrong(y, actual, allowed, 16.0, overflows=False):
            return "overflow of halves"
        if "halves" in traits and not wrong(reference.widely()[name], actual, allowed, 16.0):
            return "overflow of halves"
    return ""


def is_torn(expected: Array, actual: Array, allowed: Array) -> bool:
    """Whether a result is what it is only because rounding may decide: a tie, a step, a mask."""
    nothing = np.where(np.isinf(allowed), 0.0, allowed)
    return bool(np.isinf(allowed).any()) and bool(wrong(expected, actual, nothing, 256.0))


def reasons() -> Iterable[str]:
    """Yield the kinds with their reasons, for reading."""
    for kind in KINDS:
        yield f"{kind.name}: {kind.reason}"

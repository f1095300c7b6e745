"""Recipes for classical machine learning (ai.onnx.ml): scaling, encoding, lines and supports."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from .draft import Draft, Var
from .elements import DTYPES, Shape
from .inference import Declined
from .recipe import recipe
from .recipes_gather import where_from

ML = "ai.onnx.ml"
NUMBERS = ("float", "float", "double", "int64", "int32")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def add(
    d: Draft, op: str, given: list[Var | None], *types: tuple[str, Shape], **attributes: Any
) -> list[Var]:
    return d.node(op.partition(":")[2], given, len(types), ML, types, **attributes)


def rows(d: Draft, kinds: tuple[str, ...] = NUMBERS, least: int = 2, most: int = 2) -> Var:
    """Return a matrix with a row of features for each sample."""
    return d.pick(kinds, least, most, empty=False)


def floats(d: Draft, count: int, spread: float = 1.0) -> list[float]:
    numbers = d.rng.standard_normal(count) * spread
    return (np.round(numbers * 4) / 4 if d.chance(0.4) else numbers).astype(np.float32).tolist()


# ── numbers, one by one, and features ──


@recipe("ai.onnx.ml:Scaler")
def scaler(d: Draft, op: str) -> None:
    x = rows(d, NUMBERS, 1)
    count = d.one_of((1, x.shape[-1]))
    more = {name: floats(d, count) for name in ("offset", "scale") if d.chance(0.9)}
    if len(more) < 2:
        raise Declined  # ONNX Runtime wants both
    add(d, op, [x], ("float", x.shape), **more)


@recipe("ai.onnx.ml:Binarizer")
def binarizer(d: Draft, op: str) -> None:
    x = d.pick(["float"], 1, 3)
    add(d, op, [x], (x.dtype, x.shape), **d.some("Binarizer", ML, threshold=(0.0, 0.5, -1.0)))


@recipe("ai.onnx.ml:Imputer")
def imputer(d: Draft, op: str) -> None:
    x = rows(d, ("float", "int64"), 1)
    count = d.one_of((1, x.shape[-1]))
    more: dict[str, Any]
    if x.dtype == "float":
        more = {"imputed_value_floats": floats(d, count)}
        more["replaced_value_float"] = d.one_of((0.0, 1.0, float("nan")))
    else:
        more = {"imputed_value_int64s": d.rng.integers(-9, 9, count).tolist()}
        more["replaced_value_int64"] = d.number(-2, 2)
    add(d, op, [x], (x.dtype, x.shape), **more)


@recipe("ai.onnx.ml:Normalizer")
def normalizer(d: Draft, op: str) -> None:
    x = rows(d, NUMBERS, 1)
    add(d, op, [x], ("float", x.shape), **d.some("Normalizer", ML, norm=("MAX", "L1", "L2")))


@recipe("ai.onnx.ml:ArrayFeatureExtractor")
def extractor(d: Draft, op: str) -> None:
    x = d.pick(NUMBERS, 1, 3, empty=False)
    count = d.number(1, 5)
    chosen = d.rng.integers(0, x.shape[-1], d.one_of(((count,), (1, count))))
    lead = (1,) if x.rank == 1 else x.shape[:-1]
    add(d, op, [x, where_from(d, chosen.astype(np.int64))], (x.dtype, (*lead, count)))


@recipe("ai.onnx.ml:FeatureVectorizer")
def vectorizer(d: Draft, op: str) -> None:
    x = rows(d)
    parts = [x]
    for _ in range(d.number(0, 2)):
        parts.append(d.fresh(x.dtype, (x.shape[0], d.extent(9))))
    sizes = [p.shape[1] for p in parts]
    if d.chance(0.3):
        sizes = [max(s + d.number(-1, 2), 1) for s in sizes]
    add(d, op, list(parts), ("float", (x.shape[0], sum(sizes))), inputdimensions=sizes)


@recipe("ai.onnx.ml:OneHotEncoder")
def one_hot(d: Draft, op: str) -> None:
    x = d.pick(("int64", "int32", "float"), 1, 2, empty=False)
    cats = d.rng.permutation(12)[: d.number(1, 7)] - 4
    more = {"cats_int64s": cats.tolist()}
    if d.chance(0.8) or x.name in d.made:
        more["zeros"] = 1
    else:
        # What no category has is an error without it.
        x = where_from(d, d.rng.choice(cats, x.shape).astype(DTYPES[x.dtype]))
    add(d, op, [x], ("float", (*x.shape, len(cats))), **more)


def renew(d: Draft, version: int) -> None:
    """Let operators be of this version at least, unless one is there that has changed its form."""
    had = d.versions.get(ML, 1)
    if had < 2 <= version and any(n.op_type == "LabelEncoder" for n in d.nodes):
        raise Declined
    d.versions[ML] = max(had, version)


@recipe("ai.onnx.ml:LabelEncoder")
def labels(d: Draft, op: str) -> None:
    renew(d, 2)
    x = d.pick(("int64", "float"), 1, 3)
    tensors = d.versions[ML] >= 4 and d.chance(0.4)
    if tensors and d.chance(0.5):
        x = d.pick(("int64", "float", "double", "int32", "int16"), 1, 3)
    count = d.number(1, 7)
    keys = (d.rng.permutation(12)[:count] - 6).astype(DTYPES[x.dtype])
    more: dict[str, Any] = {}
    if tensors:
        to = d.one_of(("int64", "float", "double", "int32", "int16"))
        values = d.contents(to, (count,))
        more["keys_tensor"] = numpy_helper.from_array(keys)
        more["values_tensor"] = numpy_helper.from_array(values)
        more["default_tensor"] = numpy_helper.from_array(d.contents(to, (1,)))
    else:
        if x.dtype not in ("int64", "float"):
            raise Declined
        to = d.one_of(("int64", "float"))
        more[f"keys_{x.dtype}s"] = keys.tolist()
        more[f"values_{to}s"] = d.contents(to, (count,)).tolist()
        if d.chance(0.6):
            more[f"default_{to}"] = d.one_of((7, -2)) if to == "int64" else 0.5
    add(d, op, [x], (to, x.shape), **more)


# ── lines ──


@recipe("ai.onnx.ml:LinearRegressor")
def regressor(d: Draft, op: str) -> None:
    x = rows(d, ("float",))
    targets = d.one_of((1, 1, 2, 3, 17))
    more = {"intercepts": floats(d, targets)} if d.chance(0.7) else {}
    if targets > 1 or d.chance(0.5):
        more["targets"] = targets
    if d.chance(0.4):
        more["post_transform"] = d.one_of(TRANSFORMS[:4] if targets > 1 else TRANSFORMS[:1])
    add(d, op, [x], ("float", (x.shape[0], targets)), coefficients=floats(d, targets * x.shape[1]),
        **more)  # fmt: skip


@recipe("ai.onnx.ml:LinearClassifier")
def classifier(d: Draft, op: str) -> None:
    x = rows(d)
    classes = d.one_of((1, 2, 3, 5))
    names = d.rng.permutation(20)[: max(classes, 2)].tolist()
    more = {"post_transform": d.one_of(TRANSFORMS[:4])} if d.chance(0.5) else {}
    if classes == 1:
        more = {"post_transform": d.one_of(("NONE", "LOGISTIC"))}
    more |= d.some("LinearClassifier", ML, multi_class=(0, 1))
    count = max(classes, 2)
    add(d, op, [x], ("int64", x.shape[:1]), ("float", (x.shape[0], count)),
        coefficients=floats(d, classes * x.shape[1]), intercepts=floats(d, classes),
        classlabels_ints=names, **more)  # fmt: skip


# ── support vectors ──

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def kernel(d: Draft) -> dict[str, Any]:
    degree = float(d.one_of((1, 2, 3)))
    return {"kernel_type": d.one_of(KERNELS), "kernel_params": [0.2, d.one_of((0.0, 0.5)), degree]}


@recipe("ai.onnx.ml:SVMRegressor")
def svm_regressor(d: Draft, op: str) -> None:
    x = rows(d, ("float",))
    count = d.one_of((0, 1, 3, 4, 9))
    more = kernel(d) if count else {"kernel_params": [0.0, 0.0, 0.0]}
    if count:
        more["support_vectors"] = floats(d, count * x.shape[1])
    more["coefficients"] = floats(d, count or x.shape[1])
    more |= d.some("SVMRegressor", ML, one_class=(0, 1))
    add(d, op, [x], ("float", (x.shape[0], 1)), n_supports=count, rho=floats(d, 1), **more)


@recipe("ai.onnx.ml:SVMClassifier")
def svm_classifier(d: Draft, op: str) -> None:
    x = rows(d)
    classes = d.one_of((2, 2, 3, 4))
    names = d.rng.permutation(20)[:classes].tolist()
    duels = classes * (classes - 1) // 2
    more: dict[str, Any]
    scores = classes
    if d.chance(0.25):
        more = {"coefficients": floats(d, classes * x.shape[1]), "rho": floats(d, 1),
                "kernel_params": [0.0, 0.0, 0.0],
                "post_transform": d.one_of(TRANSFORMS[:3])}  # fmt: skip
    else:
        counts = [d.number(1, 3) for _ in range(classes)]
        total = sum(counts)
        more = kernel(d) | {"vectors_per_class": counts, "rho": floats(d, duels, 0.3)}
        more["support_vectors"] = floats(d, total * x.shape[1])
        more["coefficients"] = floats(d, (classes - 1) * total)
        if d.chance(0.4):
            more["prob_a"] = (-np.abs(floats(d, duels)) - 0.5).tolist()
            more["prob_b"] = floats(d, duels, 0.1)
        else:
            scores = 2 if classes == 2 else duels
            if d.chance(0.5):
                more["post_transform"] = d.one_of(("NONE", "SOFTMAX", "LOGISTIC"))
    add(d, op, [x], ("int64", x.shape[:1]), ("float", (x.shape[0], scores)),
        classlabels_ints=names, **more)  # fmt: skip

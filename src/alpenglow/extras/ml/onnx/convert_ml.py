"""Converters for classical machine learning (ai.onnx.ml): scaling, encoding and linear models.

Trees are in `convert_tree`, support vectors in `convert_svm`.  Models are matrices [N, F]; a
vector is one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from alpenglow.extras.ml.onnx.convert_scores import posted
from alpenglow.frontends.onnx.table import Made, Site, elements, on, scalar
from alpenglow.frontends.presume import fixed, presume
from alpenglow.ir.dims import Dim, product
from alpenglow.ir.graph import Value
from alpenglow.ir.types import NAMES, Array
from alpenglow.ops.elementwise.arithmetic import Abs, Add, Div, Mul, Sub
from alpenglow.ops.elementwise.comparison import Equal, Greater, IsNaN
from alpenglow.ops.elementwise.select import Where
from alpenglow.ops.product.contraction import MatMul
from alpenglow.ops.reduction.reduction import ArgMax, ReduceL2, ReduceMax, ReduceSum
from alpenglow.ops.tensor.gather import Gather, OneHot
from alpenglow.ops.tensor.lookup import Find
from alpenglow.ops.tensor.movement import Concat, Pad, Reshape, Slice, stretch

ML = "ai.onnx.ml"


def matrix(s: Site) -> Value:
    """Return input 0 as rows of features."""
    x = s.input(0)
    if x.type.rank not in (1, 2):
        raise s.wrong(f"X is {x.type}, expected [N, F] or [F]")
    return x if x.type.rank == 2 else s.g(Reshape((1, *x.type.shape)), x)


def array(s: Site, name: str, dtype: Any, default: Sequence[float] = ()) -> Array:
    """Return a list attribute as an array of one axis."""
    return np.asarray(s.attribute(name, default), dtype).reshape(-1)


# ── numbers, one by one ──


@on("Scaler", domain=ML)
def scaler(s: Site) -> Made:
    x = s.input(0)
    x = s.cast(x, "f64" if x.type.dtype == "f64" else "f32")
    for op, name, default in ((Sub(), "offset", 0.0), (Mul(), "scale", 1.0)):
        constant = s.g.constant(array(s, name, x.type.numpy, (default,)))
        x = s.g(op, x, stretch(s.g, one_or_all(s, constant), x.type.shape))
    return s.cast(x, "f32")


def one_or_all(s: Site, v: Value) -> Value:
    """Return a vector ready to broadcast to the last axis of X; of one element as a scalar."""
    return s.g(Reshape(()), v) if v.type.shape == (1,) else v


@on("Binarizer", domain=ML)
def binarizer(s: Site) -> Made:
    x = s.input(0)
    wide = s.cast(x, "f64") if x.type.dtype not in ("f32", "f64") else x
    above = s.g(Greater(), wide, scalar(s.g, s.attribute("threshold", 0.0), wide))
    return s.cast(above, x.type.dtype)


@on("Imputer", domain=ML)
def imputer(s: Site) -> Made:
    x = s.input(0)
    real = x.type.dtype in ("f32", "f64")
    names = ("imputed_value_floats", "replaced_value_float") if real else (
        "imputed_value_int64s", "replaced_value_int64")  # fmt: skip
    fill = array(s, names[0], x.type.numpy)
    if not len(fill):
        raise s.wrong(f"'{names[0]}' is missing for {x.type}")
    old = s.attribute(names[1], 0)
    bad = s.g(IsNaN(), x) if old != old else s.g(Equal(), x, scalar(s.g, old, x))
    new = stretch(s.g, one_or_all(s, s.g.constant(fill)), x.type.shape)
    return s.g(Where(), bad, new, x)


@on("Normalizer", domain=ML)
def normalizer(s: Site) -> Made:
    x = s.cast(s.input(0), "f32")
    axes = (min(1, x.type.rank - 1),)
    norm = s.attribute("norm", "MAX")
    if norm == "MAX":
        size = s.g(ReduceMax(axes), x)
    elif norm == "L1":
        size = s.g(ReduceSum(axes), s.g(Abs(), x))
    elif norm == "L2":
        size = s.g(ReduceL2(axes), x)
    else:
        raise s.wrong(f"norm is '{norm}', expected MAX, L1 or L2")
    none = s.g(Equal(), size, scalar(s.g, 0, size))
    divisor = s.g(Where(), none, scalar(s.g, 1, size), size)
    return s.g(Div(), x, stretch(s.g, divisor, x.type.shape))


# ── features ──


@on("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(s: Site) -> Made:
    x, chosen = s.input(0), s.input(1)
    x = s.g(Reshape((1, *x.type.shape)), x) if x.type.rank == 1 else x
    flat = s.g(Reshape((product(chosen.type.shape),)), chosen)
    flat = s.within(flat, 0, x.type.shape[-1] - 1, "an index")
    return s.g(Gather(x.type.rank - 1), x, flat)


@on("FeatureVectorizer", domain=ML)
def feature_vectorizer(s: Site) -> Made:
    columns = []
    sizes = s.attribute("inputdimensions", (None,) * len(s))
    if len(sizes) != len(s):
        raise s.wrong(f"inputdimensions is {sizes}, expected {len(s)} entries")
    for x, size in zip(s.required(), sizes, strict=True):
        rows: tuple[Dim, Dim] = (1, x.type.shape[0]) if x.type.rank == 1 else (
            x.type.shape[0], product(x.type.shape[1:]))  # fmt: skip
        columns.append(fitted(s, s.cast(s.g(Reshape(rows), x), "f32"), size))
    return s.g(Concat(1), *columns)


def fitted(s: Site, x: Value, size: int | None) -> Value:
    """Return x[N, F] with `size` columns: the first ones, or zeros behind."""
    rows, have = x.type.shape
    if size is None or have == size:
        return x
    if presume(have - size, ">="):
        return s.g(Slice((0, 0), (rows, size), (1, 1)), x)
    missing = fixed(size - have)
    return s.g(Pad((0, 0), (0, missing)), x)


@on("OneHotEncoder", domain=ML)
def one_hot_encoder(s: Site) -> Made:
    x = s.input(0)
    categories = array(s, "cats_int64s", np.int64)
    if not len(categories):
        raise s.refuse("only categories that are integers are supported")
    place = looked_up(s, s.cast(x, "i64"), categories, np.arange(len(categories)), len(categories))
    values = s.g.constant(np.array([0, 1], np.float32))
    return s.g(OneHot(len(categories), x.type.rank), place, values)


@on("LabelEncoder", domain=ML, since=2)
def label_encoder(s: Site) -> Made:
    x = s.input(0)
    keys, values = mapping(s, "keys"), mapping(s, "values")
    if len(keys) != len(values):
        raise s.wrong(f"values has {len(values)} entries, expected {len(keys)} as keys")
    if NAMES[keys.dtype] != x.type.dtype:
        raise s.wrong(f"X is {x.type}, expected {NAMES[keys.dtype]} as the keys")
    tensor = s.attribute("default_tensor")
    if tensor is not None:
        if tensor.size != 1 or tensor.dtype != values.dtype:
            raise s.wrong(
                f"default_tensor is {NAMES[tensor.dtype]}{list(tensor.shape)},"
                f" expected one element of {NAMES[values.dtype]}"
            )
        default = tensor.reshape(-1)[0]
    elif values.dtype.kind == "f":
        default = s.attribute("default_float", -0.0)
    else:
        default = s.attribute("default_int64", -1)
    return looked_up(s, x, keys, values, default)


def mapping(s: Site, what: str) -> Array:
    """Return the keys or the values of a LabelEncoder."""
    for kind, dtype in (("int64s", np.int64), ("floats", np.float32)):
        if f"{what}_{kind}" in s.attributes:
            return array(s, f"{what}_{kind}", dtype)
    if f"{what}_tensor" in s.attributes:
        return np.asarray(s.attribute(f"{what}_tensor")).reshape(-1)
    raise s.refuse(f"only {what} that are numbers are supported")


def looked_up(s: Site, x: Value, keys: Array, values: Array, default: Any) -> Value:
    """Return the value beside the last key that equals x, or the default."""
    order = np.argsort(keys, kind="stable")
    table = np.append(values[order], elements(default, NAMES[values.dtype]))
    place = s.g(Find(), x, s.g.constant(keys[order]))
    return s.g(Gather(0), s.g.constant(table), place)


# ── linear models ──


@on("LinearRegressor", domain=ML)
def linear_regressor(s: Site) -> Made:
    y = linear(s, s.attribute("targets", 1))
    return posted(s, y, s.attribute("post_transform", "NONE"))


@on("LinearClassifier", domain=ML)
def linear_classifier(s: Site) -> Made:
    classes = len(array(s, "intercepts", np.float32))
    if not classes:
        raise s.wrong("intercepts is empty, expected an entry for each class")
    scores = linear(s, classes)
    after = s.attribute("post_transform", "NONE")
    names = class_labels(s, "classlabels_ints")
    if classes > 1:
        winner = s.g(ArgMax(1, False), scores)
        return labelled(s, winner, names), posted(s, scores, after)
    names = names if len(names) == 2 else np.array([0, 1])
    winner = s.g(Reshape(scores.type.shape[:1]), s.g(Greater(), scores, scalar(s.g, 0, scores)))
    label = labelled(s, s.cast(winner, "i64"), names)
    if len(class_labels(s, "classlabels_ints")) != 2:
        return label, posted(s, scores, after)
    if not after.startswith("SOFTMAX"):  # ONNX Runtime takes no softmax of one score
        scores = posted(s, scores, after)
    return label, s.g(Concat(1), s.g(Sub(), scalar(s.g, 1, scores), scores), scores)


def linear(s: Site, targets: int) -> Value:
    """Return X times the transposed coefficients, plus the intercepts, if there are any."""
    x = s.cast(matrix(s), "f32")
    weights = array(s, "coefficients", np.float32)
    if targets < 1 or len(weights) % targets:
        raise s.wrong(f"coefficients has {len(weights)} entries, "
                      f"expected as many for each of {targets} targets")  # fmt: skip
    columns = np.ascontiguousarray(weights.reshape(targets, -1).T)
    y = s.g(MatMul(), x, s.g.constant(columns))
    shift = array(s, "intercepts", np.float32)
    if not len(shift):
        return y
    return s.g(Add(), y, stretch(s.g, s.g.constant(shift), y.type.shape))


def class_labels(s: Site, ints: str) -> Array:
    """Return the labels of a classifier; raise UnsupportedError if they are strings."""
    if s.attribute("classlabels_strings", ()):
        raise s.refuse("only labels that are integers are supported")
    return array(s, ints, np.int64)


def labelled(s: Site, winner: Value, names: Array) -> Value:
    """Return the labels of the classes with these numbers."""
    if not len(names):
        raise s.wrong("the class labels are empty, expected at least 1")
    return s.g(Gather(0), s.g.constant(names), winner)

"""Hosted forms of operators on labels, maps and n-grams, and classifiers that name their classes.

A classifier whose classes have strings for names is one that numbers them, and a CategoryMapper
behind it: `numbered` says so in ONNX, so that its arithmetic is compiled like any other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from alpenglow.base.errors import ModelError
from alpenglow.frontends.onnx.attributes import attribute_value
from alpenglow.frontends.onnx.hosted import HostSite, hosted
from alpenglow.ir.dims import known
from alpenglow.ir.op import Host
from alpenglow.ir.types import NAMES
from alpenglow.ops.labels import (
    CastMap,
    Label,
    Labels,
    MapCategories,
    MapLabels,
    OneHotLabels,
    VectorizeMap,
    ZipMap,
)
from alpenglow.ops.ngrams import CountNgrams, Word
from alpenglow.ops.string_choice import StringFeatures

ML = "ai.onnx.ml"

FORMS = {"strings": "string", "int64s": "i64", "floats": "f32"}
"""The element type of a list of labels, by the end of its attribute's name."""

DEFAULTS: dict[str, tuple[str, Label]] = {
    "string": ("default_string", "_Unused"),
    "i64": ("default_int64", -1),
    "f32": ("default_float", -0.0),
}
"""For each element type of a list of labels, the attribute of the default, and its own default."""

CAST = {"TO_FLOAT": "f32", "TO_INT64": "i64", "TO_STRING": "string"}

CLASSIFIERS = {
    "LinearClassifier": "classlabels_ints",
    "SVMClassifier": "classlabels_ints",
    "TreeEnsembleClassifier": "classlabels_int64s",
}
"""The attribute that numbers the classes."""


def has_strings(s: HostSite) -> bool:
    """Whether labels of a LabelEncoder are strings."""
    tensors = [s.attribute("keys_tensor"), s.attribute("values_tensor")]
    textual = any(isinstance(t, np.ndarray) and t.dtype == object for t in tensors)
    return textual or bool({"keys_strings", "values_strings"} & s.attributes.keys())


@hosted("LabelEncoder", domain=ML)
def label_encoder_of_classes(s: HostSite) -> Host:
    names = s.needed("classes_strings")
    return MapCategories(
        names,
        tuple(range(len(names))),
        s.attribute("default_string", "_Unused"),
        s.attribute("default_int64", -1),
    )


@hosted("LabelEncoder", since=2, domain=ML, makes=has_strings)
def label_encoder(s: HostSite) -> Host:
    keys, _ = labels(s, "keys")
    values, dtype = labels(s, "values")
    if len(keys) != len(values):
        raise ModelError(f"LabelEncoder: {len(keys)} keys, {len(values)} values")
    return MapLabels(keys, values, default(s, values, dtype), dtype)


def labels(s: HostSite, what: str) -> tuple[Labels, str]:
    """Return the labels that are keys or values, and their element type."""
    given = [k for k in s.attributes if k.startswith(f"{what}_")]
    if len(given) != 1:
        listed = ", ".join(given) or "none"
        raise ModelError(f"LabelEncoder: expected one attribute {what}_…, got {listed}")
    found = s.attributes[given[0]]
    if isinstance(found, np.ndarray):
        return tuple(found.reshape(-1).tolist()), element(found)
    form = given[0].removeprefix(f"{what}_")
    if form not in FORMS:
        raise ModelError(f"LabelEncoder: attribute '{given[0]}' is unknown")
    return tuple(found), FORMS[form]


def element(array: np.ndarray[Any, Any]) -> str:
    """Return the element type of a tensor of labels."""
    return "string" if array.dtype == object else NAMES[array.dtype]


def default(s: HostSite, values: Labels, dtype: str) -> Label:
    """Return the label of what is no key."""
    tensor = s.attribute("default_tensor")
    if isinstance(tensor, np.ndarray):
        if tensor.size != 1 or element(tensor) != dtype:
            raise ModelError(f"LabelEncoder: default_tensor is no single element of {dtype}")
        found: Label = tensor.reshape(-1).tolist()[0]
        return found
    kind = dtype if dtype in DEFAULTS else "i64" if all(known(v) for v in values) else "f32"
    word, otherwise = DEFAULTS[kind]
    return s.attribute(word, otherwise) if dtype in DEFAULTS else otherwise


@hosted("CategoryMapper", domain=ML)
def category_mapper(s: HostSite) -> Host:
    names, numbers = s.needed("cats_strings"), s.needed("cats_int64s")
    if len(names) != len(numbers):
        raise ModelError(f"CategoryMapper: {len(names)} strings, {len(numbers)} integers")
    return MapCategories(
        names, numbers, s.attribute("default_string", "_Unused"), s.attribute("default_int64", -1)
    )


@hosted("OneHotEncoder", domain=ML)
def one_hot_encoder(s: HostSite) -> Host:
    return OneHotLabels(s.needed("cats_strings"), bool(s.attribute("zeros", 1)))


@hosted("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(s: HostSite) -> Host:
    return StringFeatures()


@hosted("DictVectorizer", domain=ML)
def dict_vectorizer(s: HostSite) -> Host:
    return VectorizeMap(one_of(s, "string_vocabulary", "int64_vocabulary"))


@hosted("ZipMap", domain=ML)
def zip_map(s: HostSite) -> Host:
    return ZipMap(one_of(s, "classlabels_strings", "classlabels_int64s"))


def one_of(s: HostSite, *names: str) -> tuple[str | int, ...]:
    """Return the one attribute of these that is given and not empty."""
    given = [n for n in names if s.attribute(n)]
    if len(given) != 1:
        raise ModelError(f"{s.op_type}: expected one of the attributes {', '.join(names)}")
    return tuple(s.attributes[given[0]])


@hosted("CastMap", domain=ML)
def cast_map(s: HostSite) -> Host:
    dtype = CAST[s.choice("cast_to", "TO_FLOAT", tuple(CAST))]
    sparse = s.choice("map_form", "DENSE", ("DENSE", "SPARSE")) == "SPARSE"
    extent = s.attribute("max_map", 1)
    if sparse and extent < 1:
        raise ModelError(f"CastMap: max_map is {extent}, expected a positive number")
    return CastMap(dtype, extent if sparse else 0)


@hosted("TfIdfVectorizer", since=9)
def tf_idf_vectorizer(s: HostSite) -> Host:
    pool: tuple[Word, ...] = one_of(s, "pool_strings", "pool_int64s")
    starts, columns = s.needed("ngram_counts"), s.needed("ngram_indexes")
    sizes = [end - start for start, end in zip(starts, (*starts[1:], len(pool)), strict=True)]
    numbers = [size // n for n, size in enumerate(sizes, 1)]
    fits = starts and not starts[0] and all(not size % n for n, size in enumerate(sizes, 1))
    if not fits or min(sizes) < 0 or sum(numbers) != len(columns) or min(columns, default=0) < 0:
        raise ModelError(
            f"TfIdfVectorizer: a pool of {len(pool)} in groups that start at {starts} does not fit "
            f"ngram_indexes {columns}"
        )
    shortest, longest = s.needed("min_gram_length"), s.needed("max_gram_length")
    skips = s.needed("max_skip_count")
    if not 1 <= shortest <= longest or skips < 0:
        raise ModelError(f"TfIdfVectorizer: n-grams of {shortest} to {longest}, {skips} skips")
    weights = s.attribute("weights", ())
    if weights and len(weights) != len(columns):
        raise ModelError(f"TfIdfVectorizer: {len(columns)} n-grams, {len(weights)} weights")
    mode = s.choice("mode", "", ("TF", "IDF", "TFIDF")).lower()
    return CountNgrams(pool, starts, columns, shortest, longest, skips, mode, weights)


def numbered(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return a classifier with strings for labels as one with numbers, and what names them.

    Any other node is returned as it is.
    """
    if node.domain != ML or node.op_type not in CLASSIFIERS:
        return [node]
    strings = [a for a in node.attribute if a.type == onnx.AttributeProto.STRINGS]
    names = next((attribute_value(a, None) for a in strings if a.name == "classlabels_strings"), ())
    if not names:
        return [node]
    classes = list(range(len(names)))
    label = node.output[0] if node.output else ""
    number = f"{label}/number"
    made = onnx.NodeProto()
    made.CopyFrom(node)
    del made.attribute[:]
    kept = [
        a
        for a in node.attribute
        if a.name not in ("classlabels_strings", CLASSIFIERS[node.op_type])
    ]
    made.attribute.extend([*kept, helper.make_attribute(CLASSIFIERS[node.op_type], classes)])
    if not label:
        return [made]
    made.output[0] = number
    namer = helper.make_node(
        "CategoryMapper",
        [number],
        [label],
        name=f"{node.name}/label" if node.name else "",
        domain=ML,
        cats_int64s=classes,
        cats_strings=list(names),
        default_string="_Unused",
    )
    namer.metadata_props.extend(node.metadata_props)
    return [made, namer]

"""Hosted forms of operators on labels, maps and n-grams."""

from __future__ import annotations

from typing import Any

import numpy as np

from alpenglow.base.errors import ModelError
from alpenglow.extras.ml.labels import (
    CastMap,
    Label,
    Labels,
    MapCategories,
    MapLabels,
    OneHotLabels,
    VectorizeMap,
    ZipMap,
)
from alpenglow.extras.ml.ngrams import CountNgrams, Word
from alpenglow.frontends.onnx.hosted import HostSite, hosted
from alpenglow.ir.dims import known
from alpenglow.ir.op import Host
from alpenglow.ir.types import NAMES

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
        raise ModelError(f"LabelEncoder: values has {len(values)} entries, expected {len(keys)}")
    return MapLabels(keys, values, default(s, values, dtype), dtype)


def labels(s: HostSite, what: str) -> tuple[Labels, str]:
    """Return the labels that are keys or values, and their element type."""
    names = [k for k in s.attributes if k.startswith(f"{what}_")]
    if len(names) != 1:
        listed = ", ".join(names) or "none"
        raise ModelError(f"LabelEncoder: expected one attribute {what}_…, got {listed}")
    values = s.attributes[names[0]]
    if isinstance(values, np.ndarray):
        return tuple(values.reshape(-1).tolist()), element(values)
    form = names[0].removeprefix(f"{what}_")
    if form not in FORMS:
        expected = ", ".join(f"{what}_{known}" for known in FORMS)
        raise ModelError(f"LabelEncoder: {names[0]} is unknown, expected one of {expected}")
    return tuple(values), FORMS[form]


def element(array: np.ndarray[Any, Any]) -> str:
    """Return the element type of a tensor of labels."""
    return "string" if array.dtype == object else NAMES[array.dtype]


def default(s: HostSite, values: Labels, dtype: str) -> Label:
    """Return the label for elements that are not among the keys."""
    tensor = s.attribute("default_tensor")
    if isinstance(tensor, np.ndarray):
        if tensor.size != 1 or element(tensor) != dtype:
            raise ModelError(f"LabelEncoder: default_tensor has {tensor.size} elements of "
                             f"{tensor.dtype}, expected 1 of {dtype}")  # fmt: skip
        label: Label = tensor.reshape(-1).tolist()[0]
        return label
    kind = dtype if dtype in DEFAULTS else "i64" if all(known(v) for v in values) else "f32"
    word, otherwise = DEFAULTS[kind]
    return s.attribute(word, otherwise) if dtype in DEFAULTS else otherwise


@hosted("CategoryMapper", domain=ML)
def category_mapper(s: HostSite) -> Host:
    names, numbers = s.needed("cats_strings"), s.needed("cats_int64s")
    if len(names) != len(numbers):
        raise ModelError(f"CategoryMapper: cats_int64s has {len(numbers)} entries, expected "
                         f"{len(names)} as cats_strings")  # fmt: skip
    return MapCategories(
        names, numbers, s.attribute("default_string", "_Unused"), s.attribute("default_int64", -1)
    )


@hosted("OneHotEncoder", domain=ML)
def one_hot_encoder(s: HostSite) -> Host:
    return OneHotLabels(s.needed("cats_strings"), bool(s.attribute("zeros", 1)))


@hosted("DictVectorizer", domain=ML)
def dict_vectorizer(s: HostSite) -> Host:
    return VectorizeMap(one_of(s, "string_vocabulary", "int64_vocabulary"))


@hosted("ZipMap", domain=ML)
def zip_map(s: HostSite) -> Host:
    return ZipMap(one_of(s, "classlabels_strings", "classlabels_int64s"))


def one_of(s: HostSite, *names: str) -> tuple[str | int, ...]:
    """Return the one attribute of these that is given and not empty."""
    present = [n for n in names if s.attribute(n)]
    if len(present) != 1:
        raise ModelError(f"{s.op_type}: expected one of the attributes {', '.join(names)}")
    return tuple(s.attributes[present[0]])


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
            f"TfIdfVectorizer: ngram_counts is {starts} and ngram_indexes {columns}, expected "
            f"starts in a pool of {len(pool)} and an entry for each n-gram"
        )
    shortest, longest = s.needed("min_gram_length"), s.needed("max_gram_length")
    skips = s.needed("max_skip_count")
    if not 1 <= shortest <= longest or skips < 0:
        raise ModelError(f"TfIdfVectorizer: min_gram_length is {shortest}, max_gram_length "
                         f"{longest} and max_skip_count {skips}, expected 1 <= min <= max, "
                         "0 <= skips")  # fmt: skip
    weights = s.attribute("weights", ())
    if weights and len(weights) != len(columns):
        raise ModelError(f"TfIdfVectorizer: weights has {len(weights)} entries, "
                         f"expected {len(columns)}")  # fmt: skip
    mode = s.choice("mode", "", ("TF", "IDF", "TFIDF")).lower()
    return CountNgrams(pool, starts, columns, shortest, longest, skips, mode, weights)

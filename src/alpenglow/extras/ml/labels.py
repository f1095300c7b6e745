"""Labels and maps: what stands between a model's numbers and the names that people give them.

A map is a dict from strings or integers to strings or numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.extras.strings.strings import spelled
from alpenglow.ir.dims import known
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import DTYPES, Array
from alpenglow.ops.host.demand import mapping, refuse, strings, tensor, text

Label = str | int | float
Labels = tuple[Label, ...]


class MapLabels(Host):
    """Each element of x that is one of `keys` replaced by its value, others by `default`.

    All keys are strings, or all are numbers; a NaN among them stands for every NaN.  Of equal keys
    the last counts.  `dtype` is the element type of the result, string or one of ours.
    ONNX LabelEncoder.
    """

    forms_follow = True
    keys: Labels
    values: Labels
    default: Label
    dtype: str = "string"

    def reference(self, x: Array) -> Array:
        return self.prepared()(x)

    def prepared(self) -> Callable[[Array], Array]:
        textual = any(isinstance(k, str) for k in self.keys)
        written = str if self.dtype == "string" else _same
        table: dict[Any, Any] = {
            key(k): written(v) for k, v in zip(self.keys, self.values, strict=True)
        }
        look_up, find, default = table.__getitem__, table.get, written(self.default)
        dtype = None if self.dtype == "string" else DTYPES[self.dtype]

        def mapped(x: Array) -> Array:
            if not textual:
                x = numbers(self, x)
            elif type(x) is not np.ndarray or x.dtype.kind != "O":
                x = strings(self, "x", x)
            items: list[Any] = x.ravel().tolist()
            if not textual and x.dtype.kind not in "biu":  # there may be a NaN
                items = list(map(key, items))
            try:
                values = list(map(look_up, items))
            except (KeyError, TypeError):  # a key is missing, or an element is no label at all
                if textual:
                    strings(self, "x", x)
                values = [find(item, default) for item in items]
            if dtype is None:
                return text(values, x.shape)
            return np.fromiter(values, dtype, len(values)).reshape(x.shape)

        return mapped

    @classmethod
    def examples(cls) -> Examples:
        yield cls(("a", "b", "a"), (1, 2, 3), -1, "i64"), text("abca", (2, 2))
        yield cls((1, 2), ("x", "y"), "_Unused"), np.array([2, 1, 0])
        yield cls((0.5, math.nan), (1.5, 2.0), -0.0, "f32"), np.array([np.nan, 0.5, 3], np.float32)
        yield cls(("a",), ("b",), "c"), text([])


class MapCategories(Host):
    """Strings replaced by their numbers (i64), or numbers by their strings: whichever x holds.

    What is not there becomes a default.  ONNX CategoryMapper, LabelEncoder in its first opset.
    """

    forms_follow = True
    names: tuple[str, ...]
    numbers: tuple[int, ...]
    default_name: str = "_Unused"
    default_number: int = -1

    def reference(self, x: Array) -> Array:
        return self.prepared()(x)

    def prepared(self) -> Callable[[Array], Array]:
        forth = MapLabels(self.names, self.numbers, self.default_number, "i64").prepared()
        back = MapLabels(self.numbers, self.names, self.default_name).prepared()
        return lambda x: (forth if tensor(self, "x", x).dtype.kind in "OU" else back)(x)

    @classmethod
    def examples(cls) -> Examples:
        for x in (text("abc", (3, 1)), np.array([5, 4, 3])):
            yield cls(("a", "b"), (3, 5)), x


class OneHotLabels(Host):
    """1 where an element of x is the category of a new last axis, and 0 elsewhere, as f32.

    What is in no category is 0 all along, or an error unless `zeros`.  ONNX OneHotEncoder.
    """

    forms_follow = True
    categories: tuple[str, ...]
    zeros: bool = True

    def reference(self, x: Array) -> Array:
        return self.prepared()(x)

    def prepared(self) -> Callable[[Array], Array]:
        places = {c: i for i, c in reversed(list(enumerate(self.categories)))}
        columns = np.arange(len(self.categories))

        def hot(x: Array) -> Array:
            x = strings(self, "x", x)
            items = x.ravel().tolist()
            indices = [places.get(s, -1) for s in items]
            if not self.zeros and -1 in indices:
                unknown = items[indices.index(-1)]
                expected = ", ".join(self.categories)
                raise FeedError(f"{self.name}: x holds '{unknown}', expected one of {expected}")
            numbered = np.array(indices, np.int64).reshape(*x.shape, 1)
            return np.asarray(numbered == columns, np.float32)

        return hot

    @classmethod
    def examples(cls) -> Examples:
        yield cls(("a", "b", "c")), text("abx", (1, 3))
        yield cls(("a", "b"), False), text("ab")


class VectorizeMap(Host):
    """The values of a map in the order of a vocabulary of keys, 0 where one is missing.

    Keys that are not in the vocabulary are left out.  The element type is `dtype` or, without one,
    what the values are.  ONNX DictVectorizer.
    """

    vocabulary: tuple[str | int, ...]
    dtype: str = ""

    def reference(self, x: dict[str | int, object]) -> Array:
        entries = mapping(self, "x", x)
        if any(isinstance(v, str) for v in entries.values()):
            return text((str(entries.get(k, "")) for k in self.vocabulary), (1, -1))
        dtype = DTYPES[self.dtype] if self.dtype else element_of(list(entries.values()))
        row = [entries.get(k, 0) for k in self.vocabulary]
        return np.array([row], dtype)

    @classmethod
    def examples(cls) -> Examples:
        yield cls(("a", "c", "b", "z")), {"a": 4.0, "c": 8.0, "d": 1.0}
        yield cls((3, 1), "i64"), {1: 5}
        yield cls(("a", "b")), {"b": "text"}
        yield cls(("a",)), {}


class CastMap(Host):
    """The values of a map with integer keys, in the order of the keys, as one row.

    With an `extent`, the key is the position in a row of that extent; elsewhere are 0 or empty
    strings.  `dtype` is string or one of our element types.  ONNX CastMap.
    """

    dtype: str = "f32"
    extent: int = 0

    def reference(self, x: dict[int, object]) -> Array:
        entries = mapping(self, "x", x)
        textual = self.dtype == "string"
        if self.extent:
            if outside := [k for k in entries if not 0 <= k < self.extent]:
                most = self.extent - 1
                raise FeedError(f"{self.name}: x has key {outside[0]}, expected 0 to {most}")
            row = [entries.get(k, "" if textual else 0) for k in range(self.extent)]
        else:
            row = [entries[k] for k in sorted(entries)]
        if textual:
            words = (v if isinstance(v, str) else spelled(np.float32(str(v))) for v in row)
            return text(words, (1, -1))
        try:
            return np.array([[float(str(v)) for v in row]]).astype(DTYPES[self.dtype])
        except ValueError as error:
            raise FeedError(f"{self.name}: x holds a text, expected numbers: {error}") from error

    @classmethod
    def examples(cls) -> Examples:
        yield cls(), {3: 1.5, 0: 2.0}
        yield cls("i64", 4), {3: "7", 0: "2"}
        yield cls("string", 2), {1: "b"}
        yield cls("string"), {1: 2.5}


class ZipMap(Host):
    """For each row of x[N, C] the map from C `keys` to its elements; a list is one row.

    ONNX ZipMap.
    """

    keys: tuple[str | int, ...]

    def reference(self, x: Array) -> list[dict[str | int, float]]:
        x = tensor(self, "x", x)
        if x.ndim not in (1, 2) or x.shape[-1] != len(self.keys):
            refuse(self, "x", x, f"[N, {len(self.keys)}], a column for each key")
        rows = x.reshape(-1, len(self.keys)).tolist()
        return [dict(zip(self.keys, row, strict=True)) for row in rows]

    @classmethod
    def examples(cls) -> Examples:
        yield cls(("a", "b")), np.array([[0.25, 0.75], [1, 0]], np.float32)
        yield cls((3, 4)), np.array([0.25, 0.75], np.float32)
        yield cls(("a",)), np.zeros((0, 1), np.float32)


def key(label: Label) -> Label:
    """Return a label as what a dict finds it by: NaN equals itself there."""
    return "NaN" if isinstance(label, float) and math.isnan(label) else label


def _same(label: Label) -> Label:
    return label


def numbers(op: Host, x: object) -> Array:
    """Return operand x, which must be a tensor of numbers."""
    if tensor(op, "x", x).dtype.kind in "OUS":
        refuse(op, "x", x, "a tensor of numbers")
    return tensor(op, "x", x)


def element_of(values: list[object]) -> np.dtype[np.generic]:
    """Return the element type of a map's values: Python's floats stand for f32."""
    kinds = {v.dtype for v in values if isinstance(v, np.generic)}
    if kinds:
        return np.result_type(*kinds)
    whole = values and all(known(v) for v in values)
    return np.dtype(np.int64 if whole else np.float32)

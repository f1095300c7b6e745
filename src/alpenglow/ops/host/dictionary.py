"""Strings as numbers: their ranks in a sorted dictionary, and back.

Equal strings have equal ranks, and a smaller string has a smaller rank, so that whatever only moves
or compares strings does the same to their ranks.  The empty string is in every dictionary, as the
first: what fills with zeros fills with empty strings.

A dictionary is a list, not an array: how long it is decides nothing about how a run goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.ir.op import Examples, Host
from alpenglow.ir.types import Array
from alpenglow.ops.host.demand import strings, text

Dictionary = list[Any]
"""All str or, for strings as bytes, all bytes."""


class EncodeStrings(Host):
    """A sorted dictionary of all strings in the operands, and the ranks of each operand in it, i32.

    Operand i is called `names[i]`, and is what the node `readers[i]` takes for strings.  Operands
    whose elements are all bytes are encoded like strings, but beside no strings.  What moves or
    compares strings in ONNX is given their ranks.
    """

    forms_follow = True
    names: tuple[str, ...]
    readers: tuple[str, ...]

    def reference(self, *xs: Array) -> tuple[Dictionary, *tuple[Array, ...]]:
        if _are_bytes(xs):
            return _encoded(b"", xs)
        return _encoded("", [self.operand(i, x) for i, x in enumerate(xs)])

    def operand(self, i: int, x: Array) -> Array:
        """Return operand i; raise FeedError that names its reader if it holds no strings."""
        try:
            return strings(self, f"'{self.names[i]}'", x)
        except FeedError as error:
            raise error.located(node=self.readers[i]) from None

    @classmethod
    def examples(cls) -> Examples:
        one = cls(("x",), ("Transpose 't'",))
        yield one, text(["b", "a", "", "ü", "b", "a\0"], (2, 3))
        yield one, text(["a"], ())
        yield one, text([], (0, 2))
        yield one, np.array([b"b", b""], object)
        yield cls(("x", "y"), ("Equal 'e'",) * 2), text(["b", "c"]), text(["a", "b"], (2, 1))


class DecodeStrings(Host):
    """The strings that have these ranks in a dictionary.

    Behind what moves ranks in place of strings in ONNX this makes strings of them again.
    """

    forms_follow = True

    def reference(self, dictionary: Dictionary, ranks: Array) -> Array:
        return text(map(dictionary.__getitem__, ranks.reshape(-1).tolist()), ranks.shape)

    @classmethod
    def examples(cls) -> Examples:
        dictionary = ["", "a", "ü"]
        yield cls(), dictionary, np.array([[1, 0], [2, 2]], np.int32)
        yield cls(), dictionary, np.array(2, np.int32)
        yield cls(), dictionary, np.zeros((0, 2), np.int32)


def _are_bytes(tensors: Iterable[object]) -> bool:
    """True if values are tensors whose elements are bytes, and there is at least one."""
    listed = [x.ravel().tolist() if isinstance(x, np.ndarray) else [x] for x in tensors]
    return {kind for elements in listed for kind in map(type, elements)} == {bytes}


def _encoded(empty: str | bytes, tensors: Sequence[Array]) -> tuple[Dictionary, *tuple[Array, ...]]:
    """Return the dictionary of some tensors, which begins with `empty`, and their ranks."""
    elements: list[list[Any]] = [x.ravel().tolist() for x in tensors]
    dictionary = sorted({empty}.union(*elements))
    rank = {word: i for i, word in enumerate(dictionary)}
    ranks = [
        np.fromiter(map(rank.__getitem__, listed), np.int32, len(listed)).reshape(x.shape)
        for listed, x in zip(elements, tensors, strict=True)
    ]
    return (dictionary, *ranks)

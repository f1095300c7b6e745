"""Digests of graphs that are the same with any hash seed, path, processor and version of NumPy."""

from __future__ import annotations

import hashlib
import re

import numpy as np

from alpenglow.ir.graph import Graph
from alpenglow.ir.text import print_graph, side_weights
from alpenglow.ir.types import Array

FLOAT = re.compile(r"(?<![\w.:])-?\d+\.\d+(?:e[+-]?\d+)?|(?<![\w.:])-?\d+e[+-]?\d+")
"""A number with a fraction or an exponent, in the text of a graph."""

DIGITS = 5
"""So many digits of a float count: the last ones depend on the library that computed it."""


def text_of(graph: Graph) -> str:
    """Return the text of a graph, its floats rounded, also where a hash stands for them."""
    text = FLOAT.sub(lambda m: f"{float(m[0]):.{DIGITS}g}", print_graph(graph))
    for hashed, array in side_weights(graph).items():
        text = text.replace(hashed, hashlib.sha256(rounded(array)).hexdigest())
    return text


def rounded(array: Array) -> bytes:
    """Return elements as bytes: integers as they are, others as text of few digits."""
    if array.dtype.kind in "biu":
        return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
    parts = array.astype(np.complex128) if array.dtype.kind == "c" else array.astype(np.float64)
    numbers = parts.reshape(-1).view(np.float64)
    return " ".join(f"{x:.{DIGITS}g}" for x in numbers.tolist()).encode()


def digest(text: str) -> str:
    """Return 12 digits that stand for the text of a graph."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]

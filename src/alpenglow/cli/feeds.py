"""Arrays for the inputs of a run, from files or made up, and what to say of those that come out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from alpenglow.base.errors import FeedError
from alpenglow.cli.source import array_in
from alpenglow.compiler.validate import generate
from alpenglow.ir.types import Array, TensorType

FIRST = 5
"""How many elements are shown of an array."""


def feeds(types: Mapping[str, TensorType], inputs: Mapping[str, str]) -> dict[str, Array]:
    """Return an array for each input: from its file, or random (the same on every run)."""
    if unknown := inputs.keys() - types.keys():
        names = ", ".join(types)
        raise FeedError(f"--input names {', '.join(sorted(unknown))}; the inputs are {names}")
    rng = np.random.default_rng(0)
    # All are generated, so that a file for one input does not change the others.
    made = {name: generate(t, rng) for name, t in types.items()}
    given = {name: np.array(array_in(name, f)) for name, f in inputs.items() if f != "random"}
    return made | given


def described(name: str, t: TensorType, array: Array) -> dict[str, Any]:
    """Return name, type, least, mean, largest and first elements of an array, fit for JSON."""
    flat = array.reshape(-1)
    wide = flat.astype(np.float64)
    found: dict[str, Any] = {"name": name, "type": str(t)}
    if flat.size:
        with np.errstate(all="ignore"):
            values = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()}
        found |= {k: number(float(v)) for k, v in values.items()}
    return found | {"first": [number(v) for v in wide[:FIRST].tolist()]}


def number(value: float) -> float | str:
    """Return a number as JSON can hold it: what is not finite becomes its name."""
    return value if math.isfinite(value) else str(value)


def line(row: Mapping[str, Any]) -> str:
    """Return the line about an array that is printed."""
    name, t = row["name"], row["type"]
    if "min" not in row:
        return f"{name} : {t}   no elements"
    spread = "  ".join(f"{k} {short(row[k])}" for k in ("min", "mean", "max"))
    shown = " ".join(short(v) for v in row["first"])
    return f"{name} : {t}   {spread}   [{shown} …]"


def short(value: float | str) -> str:
    """Return a number with as many digits as one reads."""
    return value if isinstance(value, str) else f"{value:.5g}"

"""Arrays for the inputs of a run, from files or made up, and what to say of those that come out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.words import shown
from alpenglow.cli.source import array_in, check_inputs
from alpenglow.compiler.validate import made_up
from alpenglow.ir.types import NAMES, TensorType

FIRST = 5
"""How many elements are shown of an array."""


def feeds(types: Mapping[str, TensorType | None], inputs: Mapping[str, str]) -> dict[str, Any]:
    """Return an array for each input: from its file, or random (the same on every run)."""
    check_inputs(inputs, types)
    loaded = {name: np.array(array_in(name, f)) for name, f in inputs.items() if f != "random"}
    for name, t in types.items():
        if name not in loaded:
            _check_known(name, t)
    rng = np.random.default_rng(0)
    # All are generated, so that a file for one input does not change the others.
    generated = {name: made_up(t, rng) for name, t in types.items() if t is not None and t.static}
    return {name: loaded.get(name, generated.get(name)) for name in types}


def _check_known(name: str, t: TensorType | None) -> None:
    """Raise UnsupportedError if no array can be made up for an input."""
    if t is None:
        raise UnsupportedError(
            f"the model does not tell the type and shape of input '{name}'",
            hint=f"--input {name}=FILE.npy",
        )
    if not t.static:
        raise UnsupportedError(
            f"input '{name}' is {t}",
            hint=f"--input {name}=FILE.npy, or fix dimensions of a model file: --dim, --shapes",
        )


def described(name: str, value: Any) -> dict[str, Any]:
    """Return name, type, least, mean, largest and first elements of an array, fit for JSON.

    Of strings there are no numbers, and of sequences no elements either.
    """
    if not isinstance(value, np.ndarray):
        kind = f"sequence of {len(value)}" if isinstance(value, list) else type(value).__name__
        return {"name": name, "type": kind}
    flat = value.reshape(-1)
    if value.dtype == object:
        extents = ",".join(map(str, value.shape))
        first = [str(s) for s in flat[:FIRST]]
        return {"name": name, "type": f"string[{extents}]", "first": first}
    wide = flat.astype(np.float64)
    t = TensorType(NAMES[value.dtype], value.shape)
    fields: dict[str, Any] = {"name": name, "type": str(t)}
    if flat.size:
        with np.errstate(all="ignore"):
            values = {"min": wide.min(), "mean": wide.mean(), "max": wide.max()}
        fields |= {k: number(float(v)) for k, v in values.items()}
    return fields | {"first": [number(v) for v in wide[:FIRST].tolist()]}


def number(value: float) -> float | str:
    """Return a number as JSON can hold it: what is not finite becomes its name."""
    return value if math.isfinite(value) else str(value)


def line(row: Mapping[str, Any]) -> str:
    """Return the line about an array that is printed."""
    name, t = shown(row["name"]), row["type"]
    if "first" not in row:
        return f"{name} : {t}"
    if "min" not in row:
        first = " ".join(map(shown, row["first"]))
        return f"{name} : {t}   [{first} …]" if first else f"{name} : {t}   no elements"
    spread = "  ".join(f"{k} {short(row[k])}" for k in ("min", "mean", "max"))
    first = " ".join(short(v) for v in row["first"])
    return f"{name} : {t}   {spread}   [{first} …]"


def short(value: float | str) -> str:
    """Return a number with as many digits as one reads."""
    return value if isinstance(value, str) else f"{value:.5g}"

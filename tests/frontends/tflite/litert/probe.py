"""A model of one operator: its operands, options and types, to be written for LiteRT and us."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from alpenglow.frontends.tflite.file.model import Grid
from alpenglow.ir.types import NAMES, Array


@dataclass(frozen=True)
class Probe:
    """An operator on operands: `fixed` has the numbers of those that are constants.  None is an
    absent operand.

    Operands in `kept` are variables, zero at first.  `grids` are scales, zero points and an axis of
    integers that stand for reals, one for each operand, then each result.  `layout` names the
    options where the converter does not read them; `results` are the element types of the results,
    "" for the type of operand 0.  `only` is the one rounding of such integers for which LiteRT
    decides what is right, if there is one.  Results may be so many steps `off`, where LiteRT
    depends on the platform's functions of f32.  `between` are the types of intermediates, and what
    they stand for.
    """

    kind: str
    operands: Sequence[Array | None]
    options: Mapping[str, Any] = field(default_factory=dict)
    fixed: Sequence[int] = ()
    results: Sequence[str] = ("",)
    layout: str = ""
    kept: Sequence[int] = ()
    grids: Sequence[Grid | None] = ()
    only: str = ""
    off: int = 0
    between: Sequence[tuple[str, Grid]] = ()

    def __str__(self) -> str:
        operands = ["-" if v is None else f"{NAMES[v.dtype]}{list(v.shape)}" for v in self.operands]
        small = [f"{i}={v.reshape(-1).tolist()}" for i, v in enumerate(self.operands)
                 if v is not None and i in self.fixed and v.size <= 8]  # fmt: skip
        options = ",".join(f"{k}={v}" for k, v in self.options.items())
        said = ["-" if g is None else str(g) for g in self.grids]
        return f"{self.kind} {' '.join([*operands, *small, *said])} {options}"

    def grid(self, i: int) -> Grid | None:
        """Return what operand i, or a result behind operands, stands for."""
        return self.grids[i] if i < len(self.grids) else None

    def inputs(self) -> list[Array]:
        """Return the operands that are inputs of the model."""
        inner = {*self.fixed, *self.kept}
        return [v for i, v in enumerate(self.operands) if v is not None and i not in inner]


def content_of(v: Array) -> bytes:
    """Return elements as a file has them: two of i4 are in a byte, the first in its low half."""
    if NAMES[v.dtype] != "i4":
        return v.tobytes()
    halves = np.pad(v.astype(np.int8).reshape(-1) & 15, (0, v.size % 2)).astype(np.uint8)
    return (halves[::2] | halves[1::2] << 4).tobytes()

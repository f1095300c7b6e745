"""A model format in text: an input's type, then operators without attributes, one a line.

chain f32[2,3]
relu
neg
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import alpenglow as ag
from alpenglow.base.errors import ModelError
from alpenglow.ir.op import find_operator


class ChainFrontEnd:
    """Reads files called ``*.chain``."""

    name = "chain"

    def accepts(self, model: object) -> bool:
        return isinstance(model, str | Path) and Path(model).suffix == ".chain"

    def load(
        self, model: str | Path, shapes: Mapping[str, Sequence[int]] | None = None
    ) -> ag.Graph:
        first, *lines = Path(model).read_text().split("\n")
        head, _, type_ = first.partition(" ")
        if head != "chain":
            raise ModelError(f"the first word is '{head}', expected 'chain'", file=str(model))
        g = ag.Graph("chain")
        value = g.input("x", type_)
        for name in filter(None, lines):
            cls = find_operator(name)
            if cls is None:
                raise ModelError(f"no operator is called '{name}'", file=str(model))
            value = g(cls(), value)
        g.output("y", value)
        return g

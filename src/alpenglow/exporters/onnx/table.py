"""The table from our operators to the functions that write them as nodes of ONNX.

A writer is called with the `Writer` of a model, the operator and its operands (None for one that is
absent) and returns the tensor of the result, or one for each of several.  An operator without a
writer is written by what gives its meaning, if that is a formula (`formula`) or other operators
(`prepare`); one that has neither is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from alpenglow.base.extensions import bring_extras, is_extra
from alpenglow.exporters.onnx.writer import Tensor
from alpenglow.ir.graph import Node
from alpenglow.ir.op import Op

Written = Tensor | Sequence[Tensor]
Write = Callable[..., Written]
When = Callable[[int, Node], bool]
"""Whether a writer serves a node in an opset."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A writer, and which nodes it serves: all where nothing is said."""

    write: Write
    when: When | None = None

    def serves(self, opset: int, node: Node) -> bool:
        """Return True if the node is written by this, not by what gives its meaning."""
        return self.when is None or self.when(opset, node)


_TABLE: dict[type[Op], Entry] = {}


def on(*classes: type[Op], when: When | None = None) -> Callable[[Write], Write]:
    """Register the decorated writer for operators; nodes for which `when` fails are expanded."""

    def add(write: Write) -> Write:
        for cls in classes:
            assert cls not in _TABLE, f"{cls.name} has two writers"
            _TABLE[cls] = Entry(write, when)
        return write

    return add


def find(node: Node, opset: int) -> Write | None:
    """Return the writer of a node, or None; the writer of a kind serves all its operators."""
    classes = type(node.op).__mro__
    if any(map(is_extra, classes)):
        bring_extras("writers")
    entry = next((_TABLE[c] for c in classes if c in _TABLE), None)
    return entry.write if entry is not None and entry.serves(opset, node) else None


def operands(node: Node) -> list[Any]:
    """Return the operands of a node, with None in the place of all that are absent."""
    if node.op.variadic:
        return list(node.inputs)
    return [*node.inputs, *[None] * (len(node.op.operands) - len(node.inputs))]

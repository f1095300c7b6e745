"""Sequences that a loop only appends to: what it appends is collected, and joined at the end.

Scripts that fill a list become such loops.  The sequence itself is then no business of the body,
which may be compiled as a whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx

from alpenglow.frontends.onnx.function_body import domain_of
from alpenglow.frontends.onnx.subgraphs import reads


@dataclass(frozen=True, slots=True)
class Append:
    """A carried value, by its number, that only the node appends to."""

    number: int
    node: onnx.NodeProto


def appends(body: onnx.GraphProto) -> list[Append]:
    """Return the carried values of a Loop's body that it does nothing with but append one value."""
    uses = Counter(name for node in body.node for name in _mentions(node))
    uses.update(out.name for out in body.output)
    makers = {out: node for node in body.node for out in node.output}
    found: list[Append] = []
    for number, (given, result) in enumerate(zip(body.input[2:], body.output[1:], strict=False)):
        node = makers.get(result.name)
        if (
            node is not None
            and (domain_of(node), node.op_type) == ("", "SequenceInsert")
            and len([n for n in node.input if n]) == 2
            and node.input[0] == given.name
            and uses[given.name] == uses[result.name] == 1
        ):
            found.append(Append(number, node))
    return found


def collecting(body: onnx.GraphProto, found: list[Append]) -> onnx.GraphProto:
    """Return a body that hands out what it would append, after all other results."""
    new = onnx.GraphProto()
    new.CopyFrom(body)
    numbers = {a.number for a in found}
    dropped = [a.node for a in found]
    del new.node[:], new.input[:], new.output[:]
    new.node.extend(node for node in body.node if node not in dropped)
    new.input.extend(i for k, i in enumerate(body.input) if k - 2 not in numbers)
    new.output.extend(o for k, o in enumerate(body.output) if k - 1 not in numbers)
    new.output.extend(onnx.ValueInfoProto(name=a.node.input[1]) for a in found)
    return new


def _mentions(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, as often as it does."""
    operands = [n for n in node.input if n]
    return [*operands, *(n for n in reads(node) if n not in operands)]

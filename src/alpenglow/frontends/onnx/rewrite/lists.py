"""Lists that a loop fills or goes through: its body need not know that they are sequences.

Scripts write ``for i in range(len(xs)): ys.append(f(xs[i]))``.  Where a Loop only appends to a
sequence, what it appends is collected, and joined at the end; where it reads the element by the
number of the turn, each turn is given that element.  Then the body may be compiled as a whole.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import onnx

from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.subgraphs import defined, label, reads


@dataclass(frozen=True, slots=True)
class Lists:
    """The body of a Loop without lists, and what became of them.

    `appended` are the numbers of carried values to which the last results of the body are appended,
    `picked` the sequences of which the last inputs are elements; each with the label of the node.
    """

    body: onnx.GraphProto
    appended: list[tuple[int, str]]
    picked: list[tuple[str, str]]


def without_lists(body: onnx.GraphProto) -> Lists:
    """Return the list operations of a Loop's body, and the rest of the body."""
    appends, picks = _appends(body), _picks(body)
    dropped = {id(node) for node in (*appends.values(), *picks)}
    if not dropped:
        return Lists(body, [], [])
    new = onnx.GraphProto()
    new.CopyFrom(body)
    del new.node[:], new.input[:], new.output[:]
    new.node.extend(node for node in body.node if id(node) not in dropped)
    new.input.extend(i for k, i in enumerate(body.input) if k - 2 not in appends)
    new.input.extend(onnx.ValueInfoProto(name=node.output[0]) for node in picks)
    new.output.extend(o for k, o in enumerate(body.output) if k - 1 not in appends)
    new.output.extend(onnx.ValueInfoProto(name=node.input[1]) for node in appends.values())
    return Lists(
        new,
        [(number, label(node)) for number, node in appends.items()],
        [(node.input[0], label(node)) for node in picks],
    )


def _appends(body: onnx.GraphProto) -> dict[int, onnx.NodeProto]:
    """Return the carried values, by number, with which a body does nothing but append to them."""
    uses = Counter(name for node in body.node for name in _mentions(node))
    uses.update(out.name for out in body.output)
    makers = {out: node for node in body.node for out in node.output}
    inserts = {}
    for number, (carried, result) in enumerate(zip(body.input[2:], body.output[1:], strict=False)):
        node = makers.get(result.name)
        if (
            node is not None
            and _is(node, "SequenceInsert")
            and node.input[0] == carried.name
            and uses[carried.name] == uses[result.name] == 1
        ):
            inserts[number] = node
    return inserts


def _picks(body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """Return nodes that read the element of a captured sequence by the number of the turn."""
    own = defined(body)
    return [
        node
        for node in body.node
        if _is(node, "SequenceAt") and node.input[0] not in own
        and node.input[1] == body.input[0].name
    ]  # fmt: skip


def _is(node: onnx.NodeProto, op_type: str) -> bool:
    """Whether this is such a node, with two operands."""
    operands = [n for n in node.input if n]
    return (domain_of(node), node.op_type) == ("", op_type) and len(operands) == 2


def _mentions(node: onnx.NodeProto) -> list[str]:
    """Return the names that a node reads, as often as it does."""
    operands = [n for n in node.input if n]
    return [*operands, *(n for n in reads(node) if n not in operands)]

"""Nodes that only move or compare strings, on the ranks of these in a sorted dictionary.

What such a node does to strings its converter does to numbers that are equal and ordered as they
are.  So the strings that are there when a part is imported are encoded together, once; their ranks
go through all nodes that move them, in one graph with what else there is; and what is still read as
strings is decoded behind.  A node for the latter, in a domain of its own, stands among those that
are left for later, and tells the next part which strings have which ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache

import onnx
from onnx import helper

from alpenglow.base.errors import FeedError, ModelError
from alpenglow.frontends.onnx.functions.body import domain_of
from alpenglow.frontends.onnx.functions.functions import opset_of
from alpenglow.frontends.onnx.functions.subgraphs import graphs_of, label
from alpenglow.frontends.onnx.steps import NodeStep
from alpenglow.ir.staged import RANKS, Apply
from alpenglow.ir.types import Array
from alpenglow.ops.host.dictionary import DecodeStrings, Dictionary, EncodeStrings

ML = "ai.onnx.ml"
DECODING = "alpenglow.decoding"
"""The domain of nodes that make strings of ranks; no model may name it."""

MOVERS = frozenset({
    ("", "CenterCropPad"), ("", "Compress"), ("", "Concat"), ("", "DepthToSpace"), ("", "Equal"),
    ("", "Expand"), ("", "Flatten"), ("", "Gather"), ("", "GatherElements"), ("", "GatherND"),
    ("", "Identity"), ("", "NonZero"), ("", "OneHot"), ("", "Pad"), ("", "Reshape"),
    ("", "ReverseSequence"), ("", "Scatter"), ("", "ScatterElements"), ("", "ScatterND"),
    ("", "Shape"), ("", "Size"), ("", "Slice"), ("", "SpaceToDepth"), ("", "Split"),
    ("", "Squeeze"), ("", "Tile"), ("", "Transpose"), ("", "Trilu"), ("", "Unique"),
    ("", "Unsqueeze"), ("", "Where"), (ML, "ArrayFeatureExtractor"),
})  # fmt: skip
"""The operators that do no more to elements than to move, compare and count them."""

OLDEST = 9
"""ONNX first let some of them move strings in this opset or before; what is older is taken so."""


Ranks = Mapping[str, Mapping[str, str]]
"""For each dictionary that has a name, the names of the ranks of strings by the names of these."""


class Ranked:
    """Which strings have ranks while a part is imported, and what is encoded for the next part.

    `here` are the names of the values that are there and are no tensors of numbers, `constants`
    the ranks that are there as well.
    """

    def __init__(self, here: Collection[str], constants: Ranks) -> None:
        self._here = here
        self._ranks = {dictionary: dict(ranks) for dictionary, ranks in constants.items()}
        self._own = ""  # the dictionary of what is encoded behind this part
        self._readers: dict[str, str] = {}  # what is encoded, and the first node to read it

    def on_ranks(
        self, node: onnx.NodeProto, opset: int | None, is_number: Callable[[str], bool]
    ) -> list[onnx.NodeProto]:
        """Return what does the work of a node on ranks, and decodes them; nothing if it cannot.

        Raises FeedError if only some of what should be strings holds none.
        """
        if node.domain == DECODING:
            dictionary, ranks = node.input
            self._ranks.setdefault(dictionary, {})[node.output[0]] = ranks
            return []
        assert opset is not None, "checked before"
        operands, results = strings_of(node, opset)
        strings = [node.input[i] for i in operands]
        if any(name in self._here for name in strings):
            check_alike(node, strings, is_number)
        dictionary = self._dictionary(node, strings)
        if not dictionary:
            return []
        check_reduction(node)
        new = onnx.NodeProto()
        new.CopyFrom(node)
        ranked = self._ranks[dictionary]
        for i in operands:
            new.input[i] = ranked[node.input[i]]
        for i in results:
            new.output[i] = ranked[node.output[i]] = f"{node.output[i]}{RANKS}"
        names = [node.output[i] for i in results]
        return [new, *(decoding(dictionary, ranked[name], name) for name in names)]

    def _dictionary(self, node: onnx.NodeProto, strings: Sequence[str]) -> str:
        """Return a dictionary in which all of these have ranks, or will have; "" if none can be."""
        if not strings:
            return ""
        for dictionary, ranked in self._ranks.items():
            if all(name in ranked for name in strings):
                return dictionary
        own = self._ranks.get(self._own, {})
        fresh = dict.fromkeys(name for name in strings if name not in own)
        # A value that is there may be copied, of whatever type.
        if node.op_type == "Identity" or any(name not in self._here for name in fresh):
            return ""
        self._own = self._own or f"{next(filter(None, node.output), node.name)}#dictionary"
        encoded = {name: f"{name}{RANKS}/{self._own}" for name in fresh}
        self._ranks.setdefault(self._own, own).update(encoded)
        self._readers |= dict.fromkeys(fresh, label(node))
        return self._own

    @property
    def encoded(self) -> tuple[str, ...]:
        """What will be there when the strings of this part are encoded."""
        own = self._ranks.get(self._own, {})
        return (self._own, *(own[name] for name in self._readers)) if self._own else ()

    def encoding(self) -> Apply | None:
        """Return the action that encodes strings for the next part; None if there is none."""
        if not self._own:
            return None
        names = tuple(self._readers)
        op = EncodeStrings(names, tuple(self._readers.values()))
        return Apply(f"EncodeStrings '{self._own}'", op, names, self.encoded)


def encoded_constants(
    constants: Mapping[str, Array], nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int]
) -> tuple[Ranks, dict[str, Dictionary], dict[str, Array]]:
    """Return what ranks there are of constants that nodes move, the dictionary, and the ranks."""
    names = tuple(dict.fromkeys(name for name in _moved(nodes, opsets) if name in constants))
    if not names:
        return {}, {}, {}
    encode = EncodeStrings(names, ("",) * len(names))
    dictionary, *arrays = encode.reference(*[constants[name] for name in names])
    ranks = {name: f"{name}{RANKS}" for name in names}
    called = f"{names[0]}#dictionary"
    return {called: ranks}, {called: dictionary}, dict(zip(ranks.values(), arrays, strict=True))


def _moved(nodes: Iterable[onnx.NodeProto], opsets: Mapping[str, int]) -> Iterator[str]:
    """Yield what nodes move if it is strings, those of branches and loops included."""
    for node in nodes:
        opset = opset_of(node, opsets)
        assert opset is not None, "checked before"
        yield from (node.input[i] for i in strings_of(node, opset)[0])
        for graph in graphs_of(node):
            yield from _moved(graph.node, opsets)


def decoding(dictionary: str, ranks: str, name: str) -> onnx.NodeProto:
    """Return a node that makes strings of ranks."""
    return helper.make_node("DecodeStrings", [dictionary, ranks], [name], domain=DECODING)


def decoded(node: onnx.NodeProto) -> Apply | None:
    """Return the action for a node that turns ranks into strings; None for any other."""
    if node.domain != DECODING:
        return None
    return Apply(label(node), DecodeStrings(), tuple(node.input), tuple(node.output))


def without_unread(steps: Sequence[NodeStep], outputs: Iterable[str]) -> list[NodeStep]:
    """Return steps without steps that make strings that are never read."""
    read = {name for step in steps for name in step.reads}.union(outputs)
    return [s for s in steps if s.payload.domain != DECODING or s.outputs[0] in read]


def check_alike(
    node: onnx.NodeProto, strings: Sequence[str], is_number: Callable[[str], bool]
) -> None:
    """Raise FeedError if some of what should all be strings, as another is, holds numbers."""
    odd = next(filter(is_number, strings), "")
    if odd:
        other = next(name for name in strings if not is_number(name))
        raise FeedError(
            f"{node.op_type}: '{odd}' holds numbers, expected strings as '{other}'",
            node=label(node),
        )


def check_reduction(node: onnx.NodeProto) -> None:
    """Raise ModelError if what is moved would be added up, or the like."""
    for a in node.attribute:
        if a.name == "reduction" and a.s not in (b"", b"none"):
            word = a.s.decode("utf-8", "replace")
            raise ModelError(
                f"{node.op_type}: reduction is '{word}', expected none for strings",
                node=label(node),
            )


def strings_of(node: onnx.NodeProto, opset: int) -> tuple[list[int], list[int]]:
    """Return which operands and results of a node may be strings that it only moves or compares.

    Those that are left out are not among them.
    """
    form = _form(domain_of(node), node.op_type, max(opset, OLDEST))
    if form is None:
        return [], []
    pairs = zip((node.input, node.output), form, strict=True)
    operands, results = (
        [i for i, name in enumerate(names) if name and holds[min(i, len(holds) - 1)]]
        for names, holds in pairs
    )
    return operands, results


@lru_cache
def _form(domain: str, op_type: str, opset: int) -> tuple[list[bool], list[bool]] | None:
    """Return which operands and results of an operator ONNX allows to be strings; None for others.

    The last operand may be variadic.
    """
    if (domain, op_type) not in MOVERS or not onnx.defs.has(op_type, opset, domain):
        return None
    schema = onnx.defs.get_schema(op_type, opset, domain)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    operands, results = (
        ["tensor(string)" in allowed.get(p.type_str, [p.type_str]) for p in parameters]
        for parameters in (schema.inputs, schema.outputs)
    )
    return operands, results

"""Long lists in the nodes of a model file, read without an object or a word of memory for each.

ONNX writes lists of attributes element by element, each behind a tag of its own, and protocol
buffers keep them in 8 bytes a number and 32 a string.  A forest of 200 MB became 1.2 GB so.
`taken_out` returns the file without such lists, and these as arrays of the narrowest type;
`put_back` gives them to the parsed model as tensors next to the empty lists, and `list_of` reads
them there.

Only nodes of ai.onnx.ml are looked at: of the others some parts of the import, and ONNX's own
inference, read lists as they are.  Whatever is written in an unusual way stays in the file as it
is: what is damaged, protocol buffers say.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from alpenglow.base import leb128
from alpenglow.ir.types import Array

LONG_NBYTES = 1 << 16
"""Attributes of fewer bytes stay as they are."""

CHUNK = 1 << 20
"""Bytes that are decoded together."""

ML = b"ai.onnx.ml"
GRAPH, NODE, DOMAIN, ATTRIBUTE, TENSOR, TYPE = 7, 1, 7, 5, 5, 20
FLOATS, INTS, STRINGS = 7, 8, 9
"""The numbers of fields in onnx.proto."""

KINDS = {
    FLOATS: onnx.AttributeProto.FLOATS,
    INTS: onnx.AttributeProto.INTS,
    STRINGS: onnx.AttributeProto.STRINGS,
}
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

MOST_WORDS = 8
"""Lists of more different strings stay as they are: the modes of trees are meant."""


class Unusual(Exception):
    """Bytes that are not a message, or a message in an unexpected encoding."""


@dataclass(frozen=True, slots=True)
class LongList:
    """A list: the positions of its node and attribute, and its numbers or its `words`."""

    node: int
    attribute: int
    numbers: Array
    words: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message: its number and wire type, where it begins, and where its content is."""

    number: int
    wire: int
    at: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A list in the file: the bytes from `start` to `end` hold it."""

    start: int
    end: int
    found: LongList


def taken_out(content: bytes) -> tuple[bytes, list[LongList]]:
    """Return a model file without its long lists, and these; itself if there are none."""
    if ML not in content:
        return content, []
    try:
        graphs = [f for f in fields(content, 0, len(content)) if f.number == GRAPH]
        if len(graphs) != 1 or graphs[0].wire != LENGTH:
            return content, []
        graph = graphs[0]
        nodes = [f for f in fields(content, graph.start, graph.end) if f.number == NODE]
        large = [(i, f) for i, f in enumerate(nodes) if f.end - f.start >= LONG_NBYTES]
        parts: dict[Field, list[Cut]] = {f: list(cuts(content, i, f)) for i, f in large}
    except Unusual:
        return content, []
    lists = [c.found for some in parts.values() for c in some]
    if not lists:
        return content, []
    inner = b"".join(_shortened(content, graph.start, graph.end, parts))
    head = content[: graph.at] + _tag(GRAPH) + leb128.unsigned(len(inner))
    return head + inner + content[graph.end :], lists


def put_back(graph: onnx.GraphProto, lists: list[LongList]) -> None:
    """Give the lists that were taken out of a graph to its attributes, as tensors; use them up."""
    while lists:
        one = lists.pop()
        attribute = graph.node[one.node].attribute[one.attribute]
        attribute.t.data_type = onnx.helper.np_dtype_to_tensor_dtype(one.numbers.dtype)
        attribute.t.dims.append(len(one.numbers))
        attribute.t.raw_data = one.numbers.tobytes()
        attribute.t.string_data.extend(one.words)


def list_of(a: onnx.AttributeProto) -> Sequence[float] | tuple[str, ...] | None:
    """Return the list that was put back into an attribute; None if it holds its list itself."""
    if a.type not in KINDS.values() or not a.HasField("t"):
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(a.t.data_type)
    numbers = np.frombuffer(a.t.raw_data, dtype)
    if a.type == onnx.AttributeProto.STRINGS:
        words = np.array([w.decode("utf-8", "replace") for w in a.t.string_data], object)
        return tuple(words[numbers].tolist())
    code, wide = ("f", np.float32) if a.type == onnx.AttributeProto.FLOATS else ("q", np.int64)
    values = array(code)
    values.frombytes(numbers.astype(wide).tobytes())
    return values


# ── what to take out ──


def cuts(content: bytes, number: int, node: Field) -> Iterator[Cut]:
    """Yield the long lists of a node."""
    parts = list(fields(content, node.start, node.end))
    domain = [content[f.start : f.end] for f in parts if f.number == DOMAIN]
    if domain != [ML]:
        return
    attributes = [f for f in parts if f.number == ATTRIBUTE]
    for i, attribute in enumerate(attributes):
        if attribute.end - attribute.start < LONG_NBYTES:
            continue
        cut = _cut(content, attribute, number, i)
        if cut is not None:
            yield cut


def _cut(content: bytes, attribute: Field, node: int, place: int) -> Cut | None:
    """Return the long list of an attribute that has one, in one piece, and says so."""
    cut: Cut | None = None
    kind, said, at = 0, [], attribute.start
    while at < attribute.end:
        field = _field(content, at, attribute.end)
        at = field.end
        if field.number in KINDS:
            run = _run(content, field, attribute.end) if cut is None else None
            if run is None:
                return None
            at, numbers, words = run
            cut, kind = Cut(field.at, at, LongList(node, place, numbers, words)), field.number
        elif field.number == TYPE:
            said.append(content[field.start])
        elif field.number == TENSOR:
            return None
    return cut if cut is not None and said == [KINDS[kind]] else None


def _run(content: bytes, first: Field, end: int) -> tuple[int, Array, tuple[bytes, ...]] | None:
    """Return the end of the run of elements that begins with this field, and its contents."""
    if first.number == FLOATS and first.wire == FIXED32:
        return *_floats(content, first.at, end), ()
    if first.number == INTS and first.wire == VARINT:
        return *_ints(content, first.at, end), ()
    if first.number == STRINGS and first.wire == LENGTH:
        return _strings(content, first.at, end)
    return None


def _floats(content: bytes, at: int, end: int) -> tuple[int, Array]:
    rows = np.frombuffer(content, np.uint8, (end - at) // 5 * 5, at).reshape(-1, 5)
    other = rows[:, 0] != (FLOATS << 3 | FIXED32)
    count = int(np.argmax(other)) if other.any() else len(rows)
    return at + 5 * count, rows[:count, 1:].copy().view(np.float32).reshape(-1)


def _ints(content: bytes, at: int, end: int) -> tuple[int, Array]:
    chunks: list[Array] = []
    while at < end:
        part = np.frombuffer(content, np.uint8, min(CHUNK, end - at), at)
        lasts = np.flatnonzero(part < 0x80)
        tags, lasts = lasts[0::2][: len(lasts) // 2], lasts[1::2]
        begins = np.concatenate([[0], lasts[:-1] + 1])[: len(lasts)]
        size = lasts - tags
        other = (tags != begins) | (part[tags] != INTS << 3) | (size < 1) | (size > 10)
        count = int(np.argmax(other)) if other.any() else len(lasts)
        if not count:
            break
        chunks.append(_narrow(_decoded(part, tags[:count] + 1, size[:count])))
        at += int(lasts[count - 1]) + 1
        if count < len(other):
            break
    return at, np.concatenate(chunks) if chunks else np.zeros(0, np.int8)


def _decoded(part: Array, starts: Array, size: Array) -> Array:
    """Return the numbers of so many bytes that begin there: seven bits a byte, lowest first."""
    total = np.zeros(len(starts), np.uint64)
    for i in range(int(size.max())):
        at = np.flatnonzero(size > i)
        total[at] |= (part[starts[at] + i] & np.uint8(0x7F)).astype(np.uint64) << np.uint64(7 * i)
    return total.view(np.int64)


def _narrow(numbers: Array) -> Array:
    """Return integers in the narrowest type that holds them."""
    low, high = int(numbers.min()), int(numbers.max())
    kinds = (np.uint8, np.int8, np.uint16, np.int16, np.int32)
    fits = (k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max)
    return numbers.astype(next(fits, np.int64))


def _strings(content: bytes, at: int, end: int) -> tuple[int, Array, tuple[bytes, ...]] | None:
    """Return a run of strings of less than 128 bytes, of which few are different."""
    codes = bytearray()
    known: dict[bytes, int] = {}
    tag = STRINGS << 3 | LENGTH
    while at + 1 < end and content[at] == tag:
        size = content[at + 1]
        after = at + 2 + size
        code = known.setdefault(content[at:after], len(known))
        if size >= 0x80 or after > end or code == MOST_WORDS:
            return None
        codes.append(code)
        at = after
    return at, np.frombuffer(codes, np.uint8), tuple(word[2:] for word in known)


# ── messages ──


def fields(content: bytes, at: int, end: int) -> Iterator[Field]:
    """Yield the fields of a message; raise Unusual if it is none."""
    while at < end:
        field = _field(content, at, end)
        yield field
        at = field.end


def _field(content: bytes, at: int, end: int) -> Field:
    tag, start = _number(content, at, end)
    number, wire = tag >> 3, tag & 7
    if wire == VARINT:
        after = _number(content, start, end)[1]
    elif wire == LENGTH:
        size, start = _number(content, start, end)
        after = start + size
    elif wire in (FIXED32, FIXED64):
        after = start + (4 if wire == FIXED32 else 8)
    else:
        raise Unusual
    if after > end:
        raise Unusual
    return Field(number, wire, at, start, after)


def _number(content: bytes, at: int, end: int) -> tuple[int, int]:
    """Return a number, which has ten bytes at most, and where it ends."""
    try:
        value, size = leb128.read(content[at : min(at + 10, end)], 0)
    except IndexError:
        raise Unusual from None
    return value, at + size


def _shortened(content: bytes, at: int, end: int, parts: dict[Field, list[Cut]]) -> Iterator[bytes]:
    """Yield the bytes of a graph without the lists that are cut out of its nodes."""
    for node, some in parts.items():
        if not some:
            continue
        yield content[at : node.at]
        inner = b"".join(_without(content, node, some))
        yield _tag(NODE) + leb128.unsigned(len(inner)) + inner
        at = node.end
    yield content[at:end]


def _without(content: bytes, node: Field, some: list[Cut]) -> Iterator[bytes]:
    """Yield the bytes of a node without these lists."""
    for field in fields(content, node.start, node.end):
        cut = next((c for c in some if field.start <= c.start < field.end), None)
        if cut is None:
            yield content[field.at : field.end]
        else:
            rest = content[field.start : cut.start] + content[cut.end : field.end]
            yield _tag(ATTRIBUTE) + leb128.unsigned(len(rest)) + rest


def _tag(number: int) -> bytes:
    return leb128.unsigned(number << 3 | LENGTH)

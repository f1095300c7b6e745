"""Ways to damage a file: its bytes, or what they mean."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import helper

from alpenglow.runtime.archive import archive

from .corpus import floats, info, made

Random = np.random.Generator
Mutator = Callable[[Random, onnx.ModelProto], bytes]

NUMBERS = (0, 1, -1, 2, 3, 7, 255, -128, 2**31 - 1, -(2**31), 2**31, 2**40, 2**62, 2**63 - 1,
           -(2**63))  # fmt: skip
STRINGS = ("", "x", "w", "NOTSET", "\0", "a" * 5000, "../x", "∅", "%s%n", "ai.onnx")


# ── damage to bytes ──


def flip(rng: Random, data: bytes) -> bytes:
    """Change a few bytes, or single bits of them."""
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(len(changed)))
        one_bit = 1 << int(rng.integers(8))
        changed[at] = changed[at] ^ one_bit if rng.random() < 0.5 else int(rng.integers(256))
    return bytes(changed)


def cut(rng: Random, data: bytes) -> bytes:
    return data[: int(rng.integers(len(data)))]


def move(rng: Random, data: bytes) -> bytes:
    """Copy, drop or repeat a run of bytes."""
    a, b = sorted(int(rng.integers(len(data) + 1)) for _ in range(2))
    b = min(b, a + 40)
    times = int(rng.choice([0, 2, 3]))
    return data[:a] + data[a:b] * times + data[b:]


# ── damage to what the bytes mean ──


def nodes(model: onnx.ModelProto) -> list[Any]:
    """Return all nodes, those of subgraphs and functions too."""
    found: list[Any] = []
    waiting: list[Any] = [*model.graph.node, *(n for f in model.functions for n in f.node)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for a in node.attribute:
            waiting += [*a.g.node, *(n for g in a.graphs for n in g.node)]
    return found


def one_of(rng: Random, options: Any) -> Any:
    return options[int(rng.integers(len(options)))] if len(options) else None


def rewire(rng: Random, model: onnx.ModelProto) -> bytes:
    """Let a node read, or make, another value: cycles, names made twice, names from nowhere."""
    node = one_of(rng, nodes(model))
    names = [o for n in nodes(model) for o in (*n.input, *n.output)] + ["", "nothing"]
    field = node.input if rng.random() < 0.6 else node.output
    if len(field):
        field[int(rng.integers(len(field)))] = str(one_of(rng, names))
    else:
        field.append(str(one_of(rng, names)))
    return bytes(model.SerializeToString())


def arity(rng: Random, model: onnx.ModelProto) -> bytes:
    """Drop operands or results, or add some."""
    node = one_of(rng, nodes(model))
    field = node.input if rng.random() < 0.5 else node.output
    if len(field) and rng.random() < 0.6:
        del field[-1]
    else:
        field.extend(["more"] * int(rng.integers(1, 4)))
    return bytes(model.SerializeToString())


def operator(rng: Random, model: onnx.ModelProto) -> bytes:
    """Give a node another operator, domain or name."""
    node = one_of(rng, nodes(model))
    which = int(rng.integers(3))
    if which == 0:
        node.op_type = str(one_of(rng, [s.name for s in onnx.defs.get_all_schemas()]))
    elif which == 1:
        node.domain = str(one_of(rng, ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "local"]))
    else:
        node.op_type = str(one_of(rng, STRINGS))
    return bytes(model.SerializeToString())


def attribute(rng: Random, model: onnx.ModelProto) -> bytes:
    """Give an attribute another kind, absurd numbers, or another name; or repeat it."""
    holders = [n for n in nodes(model) if n.attribute] or nodes(model)
    node = one_of(rng, holders)
    if not node.attribute:
        known = (
            onnx.defs.has(node.op_type, 18) and onnx.defs.get_schema(node.op_type, 18).attributes
        )
        name = one_of(rng, sorted(known)) if known else "axis"
        node.attribute.append(helper.make_attribute(name, int(one_of(rng, NUMBERS))))
        return bytes(model.SerializeToString())
    a = one_of(rng, node.attribute)
    which = int(rng.integers(6))
    if which == 0:
        a.type = int(rng.integers(0, 16))
    elif which == 1:
        some = [int(one_of(rng, NUMBERS)) for _ in range(int(rng.integers(1, 9)))]
        values: list[Any] = [some, some[0], float(rng.normal()), [1.5, np.inf],
                             str(one_of(rng, STRINGS)), floats("t", 2)]  # fmt: skip
        a.CopyFrom(helper.make_attribute(a.name, one_of(rng, values)))
    elif which == 2 and a.ints:
        a.ints[int(rng.integers(len(a.ints)))] = int(one_of(rng, NUMBERS))
    elif which == 3:
        a.i = int(one_of(rng, NUMBERS))
    elif which == 4:
        node.attribute.append(a)
    else:
        a.s = rng.bytes(4)
        a.f = float(one_of(rng, [np.nan, np.inf, 0.0, -1e38]))
    return bytes(model.SerializeToString())


def extent(rng: Random, model: onnx.ModelProto) -> bytes:
    """Give an input, output or weight an absurd extent, another rank, or a strange name."""
    g = model.graph
    which = int(rng.integers(3))
    if which == 0 and g.initializer:
        tensor = one_of(rng, g.initializer)
        if tensor.dims and rng.random() < 0.7:
            tensor.dims[int(rng.integers(len(tensor.dims)))] = int(one_of(rng, NUMBERS))
        else:
            tensor.dims.append(int(one_of(rng, NUMBERS)))
    elif which == 1 and g.input:
        shape = one_of(rng, g.input).type.tensor_type.shape
        dim = one_of(rng, shape.dim) if len(shape.dim) and rng.random() < 0.8 else shape.dim.add()
        if rng.random() < 0.7:
            dim.dim_value = int(one_of(rng, NUMBERS))
        else:
            dim.dim_param = str(one_of(rng, STRINGS))
    else:
        one_of(rng, [*g.input, *g.output]).name = str(one_of(rng, STRINGS))
    return bytes(model.SerializeToString())


def contents(rng: Random, model: onnx.ModelProto) -> bytes:
    """Give a weight other numbers, too many or too few, or another element type."""
    tensors = [
        *model.graph.initializer,
        *(a.t for n in nodes(model) for a in n.attribute if a.HasField("t")),
    ]
    tensor = one_of(rng, tensors)
    if tensor is None:
        return extent(rng, model)
    which = int(rng.integers(4))
    if which == 0:
        tensor.data_type = int(rng.integers(0, 28))
    elif which == 1 and tensor.raw_data:
        size = len(tensor.raw_data)
        count = max(size // 8, 1)
        tensor.raw_data = struct.pack(
            f"<{count}q", *(int(one_of(rng, NUMBERS)) for _ in range(count))
        )[:size]
    elif which == 2:
        tensor.raw_data = rng.bytes(int(rng.integers(0, 40)))
    else:
        tensor.int64_data.extend([1, 2**62])
        tensor.string_data.append(rng.bytes(3))
    return bytes(model.SerializeToString())


def types(rng: Random, model: onnx.ModelProto) -> bytes:
    """Give an input another type, or none."""
    if not model.graph.input:
        return extent(rng, model)
    chosen = one_of(rng, model.graph.input)
    which = int(rng.integers(4))
    if which == 0:
        chosen.type.tensor_type.elem_type = int(rng.integers(-1, 28))
    elif which == 1:
        chosen.type.sequence_type.elem_type.tensor_type.elem_type = 1
    elif which == 2:
        chosen.type.Clear()
    else:
        chosen.type.tensor_type.ClearField("shape")
    return bytes(model.SerializeToString())


def header(rng: Random, model: onnx.ModelProto) -> bytes:
    """Change the versions, repeat parts of the graph, or name things as no text is."""
    which = int(rng.integers(5))
    g = model.graph
    if which == 0:
        one_of(rng, model.opset_import).version = int(
            one_of(rng, (-1, 0, 1, 6, 9, 12, 27, 99, 2**40))
        )
    elif which == 1:
        model.ir_version = int(one_of(rng, (0, 1, 3, 99)))
    elif which == 2:
        part = one_of(rng, [g.node, g.input, g.output, g.initializer])
        if len(part):
            part.append(one_of(rng, part))
    elif which == 3:
        part = one_of(rng, [g.node, g.input, g.output, g.initializer, model.opset_import])
        if len(part):
            del part[int(rng.integers(len(part)))]
    else:
        return bytes(model.SerializeToString()).replace(
            b"x", b"\xff\xfe"[: int(rng.integers(1, 3))], 3
        )
    return bytes(model.SerializeToString())


def outside(rng: Random, model: onnx.ModelProto) -> bytes:
    """Say that a weight lies somewhere else: outside of the folder, behind links, past the end."""
    if not model.graph.initializer:
        return header(rng, model)
    tensor = one_of(rng, model.graph.initializer)
    places = [
        "data", "../secret", "/etc/passwd", "link", "circle", ".", "", "folder", "data\0",
        "a" * 300,
        "folder/../data", "//etc/passwd", "C:\\x", "missing", "fifo", "/dev/zero",
        "../../proc/self/mem",
    ]  # fmt: skip
    numbers = ["0", "64", "-1", "1e3", "", "9" * 30, "4", "63", " 0 ", "0x10"]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    del tensor.external_data[:]
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=str(one_of(rng, places)))
    for key in ("offset", "length"):
        if rng.random() < 0.6:
            tensor.external_data.add(key=key, value=str(one_of(rng, numbers)))
    return bytes(model.SerializeToString())


def deep(rng: Random, model: onnx.ModelProto) -> bytes:
    """Nest branches, or chain nodes or functions, very deeply."""
    depth = int(one_of(rng, (10, 30, 300, 2000)))
    return bytes(one_of(rng, (chain, calls, nest))(rng, depth).SerializeToString())


def chain(rng: Random, depth: int) -> onnx.ModelProto:
    names = ["x", *(f"v{i}" for i in range(depth))]
    links = [helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
    return made(links, [info("x", (2,))], [info(names[-1], (2,))])


def calls(rng: Random, depth: int) -> onnx.ModelProto:
    """Functions that call each other; the last calls itself, the first, or nothing there is."""
    last = int(one_of(rng, (0, depth, depth + 1)))
    functions = []
    for i in range(depth + 1):
        called = f"F{last if i == depth else i + 1}"
        body = [helper.make_node(called, ["a"], ["b"], domain="local")]
        imports = [helper.make_opsetid("local", 1)]
        functions.append(helper.make_function("local", f"F{i}", ["a"], ["b"], body, imports))
    start = [helper.make_node("F0", ["x"], ["y"], domain="local")]
    return made(start, [info("x", (2,))], [info("y", (2,))], functions=functions)


def nest(rng: Random, depth: int) -> onnx.ModelProto:
    """Branches in branches, as deep as protocol buffers go; the inner ones are twice there."""
    relu = helper.make_node("Relu", ["x"], ["y0"])
    branch = helper.make_graph([relu], "b", [], [info("y0", (2,))])
    for i in range(1, min(depth, 30)):
        other = branch if i < 6 else helper.make_graph(
            [helper.make_node("Neg", ["x"], ["z"])], "n", [], [info("z", (2,))])  # fmt: skip
        node = helper.make_node("If", ["c"], [f"y{i}"], then_branch=branch, else_branch=other)
        branch = helper.make_graph([node], "b", [], [info(f"y{i}", (2,))])
    inputs = [info("x", (2,)), info("c", (), onnx.TensorProto.BOOL)]
    return made(list(branch.node), inputs, list(branch.output))


MEANINGS: tuple[Mutator, ...] = (
    rewire, arity, operator, attribute, attribute, extent, extent, contents, contents, types,
    header, outside, deep,
)  # fmt: skip
BYTES = (flip, flip, cut, move)


def mutant(seed: int, models: list[onnx.ModelProto]) -> tuple[str, bytes]:
    """Return the mutant of a seed, and what was done to what."""
    rng = np.random.default_rng(seed)
    chosen = int(rng.integers(len(models)))
    model = onnx.ModelProto()
    model.CopyFrom(models[chosen])
    done: list[str] = []
    data = bytes(model.SerializeToString())
    for _ in range(int(rng.choice([1, 1, 1, 2, 3]))):
        if rng.random() < 0.3:
            change = one_of(rng, BYTES)
            done.append(change.__name__)
            data = change(rng, data)
            break
        meaning = one_of(rng, MEANINGS)
        done.append(meaning.__name__)
        try:
            data = meaning(rng, model)
        except (ValueError, OverflowError, TypeError, AttributeError, DecodeError):
            # Protocol buffers do not hold what was to be written; what stands there already goes.
            break
    return f"model {chosen}: {', '.join(done)}", data


def damaged_archive(seed: int, data: bytes) -> tuple[str, bytes]:
    """Return an archive with damage: to its bytes, or to its header with the digest made right."""
    rng = np.random.default_rng(seed)
    if rng.random() < 0.4:
        change = one_of(rng, BYTES)
        return f"archive: {change.__name__}", change(rng, data)
    magic, version, convention, length, _ = archive.PREFIX.unpack_from(data)
    fields = json.loads(data[archive.PREFIX.size : archive.PREFIX.size + length])
    rest = data[archive.PREFIX.size + length :]
    for _ in range(int(rng.integers(1, 3))):
        replace(rng, fields)
    text = json.dumps(fields, indent=1).encode()
    if rng.random() < 0.3:
        text = flip(rng, text)
    text = text[:length].ljust(length)  # sections stay where they are
    prefix = archive.PREFIX.pack(magic, version, convention, length, hashlib.sha256(text).digest())
    return "archive: header", prefix + text + rest


def replace(rng: Random, fields: Any) -> None:
    """Put something else in one place of nested lists and dictionaries."""
    while True:
        keys = list(fields) if isinstance(fields, dict) else list(range(len(fields)))
        if not keys:
            return
        key = one_of(rng, keys)
        inner = fields[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.8:
            fields = inner
            continue
        if rng.random() < 0.2:
            del fields[key]
        else:
            fields[key] = one_of(
                rng, [None, -1, 0, 7, 2**62, 1.5, "x", "", [], {}, [1], {"a": 1}, True]
            )
        return

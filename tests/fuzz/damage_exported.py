"""Ways to damage a `.pt2` file: its bytes, its zip, its JSON, what the JSON means."""

from __future__ import annotations

import copy
import io
import json
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np

from alpenglow.frontends.torch import converters
from exported_files import CONSTANTS, FILES, MODEL, WEIGHTS, Entries, entries, names, packed

from .damage import BYTES, NUMBERS, STRINGS, Random, flip, one_of, replace

Change = Callable[[Random, Entries], bytes]


@cache
def originals() -> tuple[Entries, ...]:
    return tuple(entries((FILES / f"{n}.pt2").read_bytes()) for n in names())


def damaged_exported(seed: int) -> tuple[str, bytes]:
    """Return the damaged file of a seed, and what was done to which."""
    rng = np.random.default_rng(seed)
    number = int(rng.integers(len(originals())))
    parts = dict(originals()[number])
    if rng.random() < 0.15:
        change = one_of(rng, BYTES)
        return f"{names()[number]}: {change.__name__}", change(rng, packed(parts))
    meaning = one_of(rng, MEANINGS)
    try:
        data = meaning(rng, parts)
    except (TypeError, ValueError):  # there is none of what was to be damaged
        meaning, data = flip, flip(rng, packed(parts))
    return f"{names()[number]}: {meaning.__name__}", data


# ── the zip ──


def entry(rng: Random, parts: Entries) -> bytes:
    """Drop, empty, cut, lengthen, rename or exchange entries."""
    name = str(one_of(rng, sorted(parts)))
    which = int(rng.integers(6))
    if which == 0:
        del parts[name]
    elif which == 1:
        parts[name] = b""
    elif which == 2:
        parts[name] = parts[name][: int(rng.integers(len(parts[name]) + 1))]
    elif which == 3:
        parts[name] += rng.bytes(9)
    elif which == 4:
        others = ["", "..", "/etc/passwd", "models/x.json", "data.pkl", "é", name * 40]
        parts[str(one_of(rng, others))] = parts.pop(name)
    else:
        other = str(one_of(rng, sorted(parts)))
        parts[name], parts[other] = parts[other], parts[name]
    return packed(parts, int(one_of(rng, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))))


def directory(rng: Random, parts: Entries) -> bytes:
    """Change numbers in the headers of entries: places, sizes, methods, checksums, flags."""
    data = bytearray(packed(parts, int(one_of(rng, (0, zipfile.ZIP_DEFLATED)))))
    heads = [i for sign in (b"PK\1\2", b"PK\3\4", b"PK\5\6") for i in _places(bytes(data), sign)]
    for _ in range(int(rng.integers(1, 4))):
        at = int(one_of(rng, heads)) + 4 + 2 * int(rng.integers(21))
        number = int(one_of(rng, (0, 1, 8, 12, 99, 0xFFFF, len(data), 0x7FFFFFFF, 0xFFFFFFFF)))
        form = "<H" if rng.random() < 0.5 else "<I"
        if at + struct.calcsize(form) <= len(data):
            struct.pack_into(form, data, at, number & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    return bytes(data)


def _places(data: bytes, sign: bytes) -> Iterator[int]:
    at = data.find(sign)
    while at >= 0:
        yield at
        at = data.find(sign, at + 1)


def twice(rng: Random, parts: Entries) -> bytes:
    """Write an entry two times, with other contents."""
    buffer = io.BytesIO(packed(parts))
    with zipfile.ZipFile(buffer, "a") as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(f"m/{one_of(rng, sorted(parts))}", rng.bytes(8))
    return buffer.getvalue()


def bomb(rng: Random, parts: Entries) -> bytes:
    """Pack much that is all the same."""
    parts[str(one_of(rng, [MODEL, WEIGHTS, "data/weights/weight_0"]))] = bytes(1) * (
        1 << int(rng.integers(10, 27))
    )
    return packed(parts, zipfile.ZIP_DEFLATED)


# ── the JSON ──


def text(rng: Random, parts: Entries) -> bytes:
    """Change bytes of a JSON, whose checksum is made right."""
    name = str(one_of(rng, [MODEL, WEIGHTS, CONSTANTS]))
    parts[name] = one_of(rng, BYTES)(rng, parts[name]) or b"x"
    return packed(parts)


def nested(rng: Random, parts: Entries) -> bytes:
    """Nest lists, records or graphs very deeply."""
    depth = int(one_of(rng, (20, 90, 1000, 50_000)))
    name = str(one_of(rng, [MODEL, WEIGHTS]))
    if rng.random() < 0.5:
        parts[name] = b'{"a":' * depth + b"1" + b"}" * depth
        return packed(parts)
    return _with_graphs(parts, min(depth, 90))


def _with_graphs(parts: Entries, depth: int) -> bytes:
    whole = json.loads(parts[MODEL])
    graph = whole["graph_module"]["graph"]
    inner = copy.deepcopy(graph)
    for _ in range(depth):
        argument = {"as_graph": {"name": "g", "graph": inner}}
        node = {"target": "torch.ops.higher_order.cond", "outputs": [], "metadata": {},
                "inputs": [{"name": "", "arg": argument, "kind": 1}]}  # fmt: skip
        inner = {**graph, "nodes": [node]}
    whole["graph_module"]["graph"] = inner
    parts[MODEL] = json.dumps(whole).encode()
    return packed(parts)


def anywhere(rng: Random, parts: Entries) -> bytes:
    """Put something else somewhere in a JSON."""
    name = str(one_of(rng, [MODEL, MODEL, WEIGHTS, CONSTANTS]))
    whole = json.loads(parts[name])
    for _ in range(int(rng.integers(1, 4))):
        replace(rng, whole)
    return _written(parts, name, whole)


def _written(parts: Entries, name: str, whole: Any) -> bytes:
    parts[name] = json.dumps(whole).encode()
    return packed(parts)


# ── what the JSON means ──


def values(tree: Any, kind: type | tuple[type, ...]) -> list[tuple[Any, Any]]:
    """Return the places of all values of a kind: what holds each, and its key there."""
    places = []
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        for key in holder if isinstance(holder, dict) else range(len(holder)):
            if type(holder[key]) in (kind if isinstance(kind, tuple) else (kind,)):
                places.append((holder, key))
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])
    return places


def numbers(rng: Random, parts: Entries) -> bytes:
    """Put absurd numbers where numbers stand."""
    name = str(one_of(rng, [MODEL, MODEL, WEIGHTS, CONSTANTS]))
    whole = json.loads(parts[name])
    for _ in range(int(rng.integers(1, 4))):
        holder, key = one_of(rng, values(whole, int))
        holder[key] = int(one_of(rng, (*NUMBERS, 2**64, 10**30, 4, 5, 6, 12, 13)))
    return _written(parts, name, whole)


def names_of(rng: Random, parts: Entries) -> bytes:
    """Put another name, or no name, where a text stands: cycles, reads from nowhere, two makers."""
    name = str(one_of(rng, [MODEL, MODEL, MODEL, WEIGHTS]))
    whole = json.loads(parts[name])
    places = [(h, k) for h, k in values(whole, str) if k not in ("stack_trace", "torch_fn")]
    for _ in range(int(rng.integers(1, 3))):
        holder, key = one_of(rng, places)
        other, at = one_of(rng, places)
        holder[key] = other[at] if rng.random() < 0.7 else str(one_of(rng, STRINGS))
    return _written(parts, name, whole)


def argument(rng: Random, parts: Entries) -> bytes:
    """Give a call another kind of argument, or another number of them."""
    whole = json.loads(parts[MODEL])
    nodes = whole["graph_module"]["graph"]["nodes"]
    inputs = one_of(rng, nodes)["inputs"]
    every = [a["arg"] for n in nodes for a in n["inputs"]]
    if not inputs or rng.random() < 0.15:
        inputs.append({"name": str(one_of(rng, ["", "dim", "self", "x"])),
                       "arg": one_of(rng, every), "kind": 1})  # fmt: skip
    elif rng.random() < 0.15:
        del inputs[int(rng.integers(len(inputs)))]
    else:
        n = int(one_of(rng, NUMBERS))
        one_of(rng, inputs)["arg"] = one_of(rng, [
            *every, {"as_int": n}, {"as_ints": [n] * int(rng.integers(7))}, {"as_none": True},
            {"as_float": "NaN"}, {"as_bool": True}, {"as_string": "x"}, {"as_tensors": []},
            {"as_scalar_type": int(rng.integers(40))}, {"as_complex": {"real": 1.0, "imag": n}},
            {"as_optional_tensors": [{"as_none": True}]}, {"as_layout": 3}, {"as_floats": [1e999]},
        ])  # fmt: skip
    return _written(parts, MODEL, whole)


def target(rng: Random, parts: Entries) -> bytes:
    """Let a node call another operator, or exchange two nodes."""
    whole = json.loads(parts[MODEL])
    nodes = whole["graph_module"]["graph"]["nodes"]
    a, b = int(rng.integers(len(nodes))), int(rng.integers(len(nodes)))
    if rng.random() < 0.3:
        nodes[a], nodes[b] = nodes[b], nodes[a]
    elif rng.random() < 0.5:
        nodes[a]["target"] = nodes[b]["target"]
    else:
        nodes[a]["target"] = f"torch.ops.{one_of(rng, converters.supported())}"
    return _written(parts, MODEL, whole)


EXTENTS = (
    "Symbol('s0')", "Symbol('')", "Symbol('1')", "Integer(10**30)", "Integer(-5)", "Integer(0)",
    "Mul(Symbol('s0'), Symbol('s0'))", "Pow(Symbol('s0'), Integer(-1))",
    "Pow(Integer(9), Integer(8))",
    "FloorDiv(Symbol('s0'), Integer(0))", "Max(Symbol('s0'), Integer(1))", "__import__('os')",
    "Add(" * 300 + "Symbol('s0')" + ", Integer(1))" * 300, "Symbol('s0', integer=True) ** 99",
    "Pow(" * 8 + "Add(Symbol('a'), Symbol('b'), Symbol('c'))" + ", Integer(8))" * 8, "(", "\0",
    "x.y", "Mod(Integer(7), Symbol('s0'))",
    "FloorDiv(Integer(1), Add(Symbol('s0'), Mul(Integer(-1), Symbol('s0'))))",
)  # fmt: skip


def extents(rng: Random, parts: Entries) -> bytes:
    """Give tensors other extents, element types and layouts, and symbols other ranges."""
    whole = json.loads(parts[MODEL])
    graph = whole["graph_module"]["graph"]
    for _ in range(int(rng.integers(1, 3))):
        tensor = one_of(rng, list(graph["tensor_values"].values()))
        which = int(rng.integers(5))
        if which == 0:
            tensor["dtype"] = int(rng.integers(0, 40))
        elif which == 1:
            tensor["sizes"] = tensor["sizes"] * int(rng.integers(3))
        elif which == 2:
            low, high = (one_of(rng, (None, *NUMBERS)) for _ in range(2))
            name = str(one_of(rng, ["s0", "s46", "s77", "x y"]))
            whole["range_constraints"] = {name: {"min_val": low, "max_val": high}}
        else:
            size = {"as_int": int(one_of(rng, NUMBERS))} if which == 3 else {
                "as_expr": {"expr_str": str(one_of(rng, EXTENTS)), "hint": None}}  # fmt: skip
            sizes = tensor["sizes"]
            if sizes:
                sizes[int(rng.integers(len(sizes))) :] = [size]
    return _written(parts, MODEL, whole)


def views(rng: Random, parts: Entries) -> bytes:
    """Let weights lie elsewhere, on top of each other, backwards, or outside."""
    name = str(one_of(rng, [WEIGHTS, CONSTANTS]))
    whole = json.loads(parts[name])
    payloads = list(whole["config"].values())
    for _ in range(int(rng.integers(1, 4))):
        payload = one_of(rng, payloads)
        meta = payload["tensor_meta"]
        places = ["sizes", "strides", "storage_offset", "dtype", "path_name", "pickle"]
        which = str(one_of(rng, places))
        number = {"as_int": int(one_of(rng, NUMBERS))}
        if which in ("sizes", "strides") and meta[which]:
            meta[which][int(rng.integers(len(meta[which])))] = number
        elif which == "storage_offset":
            meta[which] = number
        elif which == "dtype":
            meta[which] = int(rng.integers(0, 40))
        elif which == "path_name":
            payload[which] = str(one_of(rng, [p["path_name"] for p in payloads] + list(STRINGS)))
        else:
            payload["use_pickle"] = bool(rng.random() < 0.5)
    return _written(parts, name, whole)


def signature(rng: Random, parts: Entries) -> bytes:
    """Exchange, drop, repeat or damage what the signature says of inputs and outputs."""
    whole = json.loads(parts[MODEL])
    module = whole["graph_module"]
    which = int(rng.integers(4))
    if which == 0:
        replace(rng, module["module_call_graph"])
    elif which == 1:
        replace(rng, module["signature"])
    else:
        for specs, places in (("input_specs", "inputs"), ("output_specs", "outputs")):
            listed, graph = module["signature"][specs], module["graph"][places]
            i, j = int(rng.integers(len(listed))), int(rng.integers(len(listed)))
            if which == 2:
                listed[i], listed[j] = listed[j], listed[i]
            if rng.random() < 0.5:
                graph[i], graph[j] = graph[j], graph[i]
            if rng.random() < 0.3:
                listed.append(listed[i])
                graph.append(graph[i])
    return _written(parts, MODEL, whole)


MEANINGS: tuple[Change, ...] = (
    entry, directory, directory, twice, bomb, text, nested, anywhere, anywhere, numbers, numbers,
    names_of, names_of, names_of, argument, argument, argument, target, target, extents, extents,
    views, views, signature,
)  # fmt: skip

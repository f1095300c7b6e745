"""The records of a ``.pt2`` file's JSON, and the words that their numbers encode.

This is torch/_export/serde/schema.py as far as it matters to inference.  A field that is not known
is refused: a newer PyTorch may have given it a meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

from alpenglow.base.errors import IncompatibleError, ModelError, UnsupportedError
from alpenglow.base.words import shown

MAJOR, MINOR = 8, 20
"""The version of the schema; a file of another major one is refused, a newer minor one read."""

OPSET = 10
"""The version of the operators of ATen."""

DTYPES = {
    1: "u8", 2: "i8", 3: "i16", 4: "i32", 5: "i64", 6: "f16", 7: "f32", 8: "f64", 10: "c64",
    11: "c128", 12: "bool", 13: "bf16", 28: "u16", 29: "f8e4m3fn", 30: "f8e5m2",
    31: "f8e4m3fnuz", 32: "f8e5m2fnuz", 33: "f8e8m0", 34: "u32", 35: "u64",
}  # fmt: skip
"""Element types by ScalarType's numbers; 9 (complex of f16) is not supported."""

LAYOUTS = {
    1: "torch.sparse_coo", 2: "torch.sparse_csr", 3: "torch.sparse_csc", 4: "torch.sparse_bsr",
    5: "torch.sparse_bsc", 6: "torch._mkldnn", 7: "torch.strided",
}  # fmt: skip
STRIDED = 7

FORMATS = {
    1: "torch.contiguous_format", 2: "torch.channels_last", 3: "torch.channels_last_3d",
    4: "torch.preserve_format",
}  # fmt: skip

FIELDS = {
    "program": "graph_module opset_version range_constraints schema_version verifiers "
               "torch_version guards_code",
    "module": "graph signature module_call_graph metadata treespec_namedtuple_fields",
    "graph": "inputs outputs nodes tensor_values sym_int_values sym_bool_values "
             "is_single_tensor_return custom_obj_values sym_float_values",
    "node": "target inputs outputs metadata is_hop_single_tensor_return name",
    "argument": "name arg kind",
    "tensor": "dtype sizes requires_grad device strides storage_offset layout",
    "payload": "path_name is_param use_pickle tensor_meta",
    "expression": "expr_str hint",
    "device": "type index",
    "range": "min_val max_val",
    "version": "major minor",
    "signature": "input_specs output_specs",
}  # fmt: skip
"""The fields of each record that are known."""

_FIELDS = {record: frozenset(names.split()) for record, names in FIELDS.items()}
WORDS = {dict: "a record", list: "a list", str: "a text", int: "a number", bool: "true or false"}
INT64 = 1 << 63

T = TypeVar("T")
Record = Mapping[str, Any]


def document(text: str, what: str) -> Record:
    """Return the record that a text in JSON is."""
    try:
        return record(json.loads(text, parse_constant=_no_number), what)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{what} is damaged, expected JSON: {str(error)[:200]}") from error


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON, expected it as a string")


def record(value: Any, what: str, kind: str = "") -> Record:
    """Return a value that is a record, all of whose fields are known if its kind is said."""
    if not isinstance(value, dict):
        raise ModelError(f"{what} is {_shown(value)}, expected a record")
    if kind and (strange := value.keys() - _FIELDS[kind]):
        raise IncompatibleError(
            f"{what} has field '{shown(min(strange))}', expected one of schema {MAJOR}.{MINOR}",
            hint="export it with torch 2.13",
        )
    return value


def field(r: Record, name: str, kind: type[T], what: str) -> T:
    """Return a field of a record, which must be of a kind."""
    if name not in r:
        raise ModelError(f"field '{name}' of {what} is missing")
    return of_kind(r[name], kind, f"{name} of {what}")


def of_kind(value: Any, kind: type[T], what: str) -> T:
    """Return a value that must be of a kind; true and false are not numbers."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ModelError(f"{what} is {_shown(value)}, expected {WORDS[kind]}")
    if kind is int and not -INT64 <= value < INT64:  # type: ignore[operator]  # it is an int
        raise ModelError(f"{what} is {_shown(value)}, expected a number of 64 bits")
    return value


def listed(value: Any, kind: type[T], what: str) -> tuple[T, ...]:
    """Return the items of a list, each of a kind."""
    return tuple(of_kind(item, kind, f"an item of {what}") for item in of_kind(value, list, what))


def union(value: Any, what: str) -> tuple[str, Any]:
    """Return which of several kinds a value is, and the value."""
    r = record(value, what)
    if len(r) != 1:
        raise ModelError(f"{what} is {_shown(value)}, expected a record with one field")
    return next(iter(r.items()))


def number(value: Any, what: str) -> float:
    """Return a float; infinities and NaN are texts in JSON."""
    words = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
    if isinstance(value, str) and value in words:
        return words[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ModelError(f"{what} is {_shown(value)}, expected a number")
    return float(value) if isinstance(value, float) else float(of_kind(value, int, what))


def word(words: Mapping[int, str], value: Any, what: str) -> str:
    """Return the word that a number encodes."""
    key = of_kind(value, int, what)
    if key not in words:
        raise UnsupportedError(f"{what} is {key}, expected one of {', '.join(map(str, words))}")
    return words[key]


def device(value: Any, what: str) -> str:
    """Return a device as PyTorch prints it: ``cpu``, ``cuda:0``."""
    r = record(value, what, "device")
    kind, index = field(r, "type", str, what), r.get("index")
    return kind if index is None else f"{kind}:{of_kind(index, int, what)}"


def check_versions(program: Record) -> None:
    """Raise IncompatibleError unless a program is of a schema and of operators that are known."""
    version = record(program.get("schema_version"), "the schema's version", "version")
    major = field(version, "major", int, "the schema's version")
    minor = field(version, "minor", int, "the schema's version")
    if major != MAJOR:
        raise IncompatibleError(
            f"the file is of schema {major}.{minor}, expected {MAJOR}.{MINOR}",
            hint="export it with torch 2.13",
        )
    opsets = record(program.get("opset_version"), "the versions of operators")
    aten = field(opsets, "aten", int, "the versions of operators")
    if aten != OPSET:
        raise IncompatibleError(f"the file is of opset {aten} of ATen, expected {OPSET}")


def _shown(value: Any) -> str:
    match value:
        case dict():
            return "a record"
        case list():
            return "a list"
        case str():
            return f"'{shown(value)}'"
        case int() if abs(value) >= 1 << 70:
            return "a number of many digits"
    return str(value)

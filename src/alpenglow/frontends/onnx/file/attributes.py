"""ONNX's ways of writing values: attributes, tensors and types, read into Python's."""

from __future__ import annotations

import math
import warnings
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from alpenglow.base.errors import ModelError, UnsupportedError
from alpenglow.base.mapped import read_into
from alpenglow.base.memory import aligned_bytes, sealed
from alpenglow.base.words import shown
from alpenglow.frontends.onnx.file import long_lists
from alpenglow.frontends.onnx.file.extents import Labels, is_fixed, label_of
from alpenglow.frontends.shapes import check_size as check_size
from alpenglow.ir.dims import Dim
from alpenglow.ir.staged import Kind
from alpenglow.ir.types import NAMES, Array, TensorType, width

LONG_LIST = 10_000

ELEMENT_NAMES = {
    "BOOL": "bool",
    "INT8": "i8",
    "INT16": "i16",
    "INT32": "i32",
    "INT64": "i64",
    "UINT8": "u8",
    "UINT16": "u16",
    "UINT32": "u32",
    "UINT64": "u64",
    "FLOAT16": "f16",
    "BFLOAT16": "bf16",
    "FLOAT": "f32",
    "DOUBLE": "f64",
    "FLOAT8E4M3FN": "f8e4m3fn",
    "FLOAT8E4M3FNUZ": "f8e4m3fnuz",
    "FLOAT8E5M2": "f8e5m2",
    "FLOAT8E5M2FNUZ": "f8e5m2fnuz",
    "FLOAT8E8M0": "f8e8m0",
    "FLOAT6E2M3": "f6e2m3",
    "FLOAT6E3M2": "f6e3m2",
    "FLOAT4E2M1": "f4e2m1",
    "INT4": "i4",
    "UINT4": "u4",
    "INT2": "i2",
    "UINT2": "u2",
    "COMPLEX64": "c64",
    "COMPLEX128": "c128",
}
"""Our name of each element type of ONNX, by ONNX's."""

# The newest of these are not in every version of the onnx package.
ELEMENTS = {code: ELEMENT_NAMES[name] for name, code in onnx.TensorProto.DataType.items()
            if name in ELEMENT_NAMES}  # fmt: skip

MOST_ELEMENTS = 1 << 40
"""A tensor of more elements than this is a mistake in the file."""

POSITIVE = frozenset({"kernel_shape", "strides", "dilations"})
"""Attributes of windows whose numbers are at least 1."""


class LinkWarning(UserWarning):
    """A file of weights has several names (hard links): it may be another's, given as a model's.

    Installers use hard links, so this is a warning, not an error.
    """


def element_type(code: int, what: str) -> str:
    """Return our name of an ONNX element type; raise UnsupportedError if there is none."""
    if code in ELEMENTS:
        return ELEMENTS[code]
    known = {v: k for k, v in onnx.TensorProto.DataType.items()}
    if code not in known or code == onnx.TensorProto.UNDEFINED:
        raise ModelError(f"{what} has element type {code}, expected a TensorProto.DataType")
    raise UnsupportedError(f"{what} has element type {known[code]}, which is not supported")


def check_form(node: onnx.NodeProto, domain: str, opset: int) -> None:
    """Raise ModelError unless a node has the operands and kinds of attributes of its operator.

    Only for the operators that ONNX defines; attributes that it does not know are let through.
    """
    if not onnx.defs.has(node.op_type, opset, domain):
        return
    schema = onnx.defs.get_schema(node.op_type, opset, domain)
    if len(node.input) < schema.min_input:
        raise ModelError(f"{node.op_type}: input {len(node.input)} is missing")
    if len(node.input) > schema.max_input:
        raise ModelError(
            f"{node.op_type}: got {len(node.input)} inputs, expected at most {schema.max_input}"
        )
    counts = Counter(a.name for a in node.attribute)
    for name, count in counts.items():
        if count > 1:
            raise ModelError(
                f"{node.op_type}: attribute '{name}' is given {count} times, expected once"
            )
    for a in node.attribute:
        known = schema.attributes.get(a.name)
        kind = onnx.AttributeProto.AttributeType.Name(a.type)
        wanted = "" if known is None else str(known.type).rpartition(".")[2]
        if wanted and kind != wanted:
            raise ModelError(
                f"{node.op_type}: attribute '{a.name}' is of type {kind}, expected {wanted}"
            )
        if a.name in POSITIVE and min(a.ints, default=1) < 1:
            raise ModelError(f"{node.op_type}: {a.name} is {list(a.ints)}, expected 1 or more each")
    for name, known in schema.attributes.items():
        if known.required and name not in counts:
            raise ModelError(f"{node.op_type}: attribute '{name}' is missing")


class Attributes(Mapping[str, Any]):
    """The attributes of a node by name, but graphs; a list is read anew whenever it is asked for.

    A forest has ten lists of millions of numbers: none of them should wait for the others, and
    some are never needed.
    """

    def __init__(self, node: onnx.NodeProto, folder: Path | None) -> None:
        graphs = (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        self._given = {a.name: a for a in node.attribute if a.type not in graphs}
        self._read = {
            name: attribute_value(a, folder)
            for name, a in self._given.items()
            if a.type not in long_lists.KINDS.values()
        }

    def __getitem__(self, name: str) -> Any:
        return self._read[name] if name in self._read else attribute_value(self._given[name], None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


FORMS = {"value_float": np.float32, "value_floats": np.float32,
         "value_int": np.int64, "value_ints": np.int64}  # fmt: skip
"""The attributes of Constant that hold numbers and no tensor, with the types of these."""

_NUMBERS = (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS,
            onnx.AttributeProto.INT, onnx.AttributeProto.INTS)  # fmt: skip


def stated_constant(node: onnx.NodeProto, folder: Path | None) -> Array | None:
    """Return the numbers that a node Constant states; None for other nodes and forms.

    External data are read from `folder`; without one they are none.
    """
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or node.input:
        return None
    if len(node.attribute) != 1 or len(node.output) != 1:
        return None
    (a,) = node.attribute
    if a.name in FORMS and a.type in _NUMBERS:
        return np.array(attribute_value(a, folder), FORMS[a.name])
    if a.name != "value" or a.type != onnx.AttributeProto.TENSOR:
        return None
    external = a.t.data_location == onnx.TensorProto.EXTERNAL and folder is None
    if external or a.t.data_type == onnx.TensorProto.STRING:
        return None
    return tensor_array(a.t, folder)


def attribute_value(a: onnx.AttributeProto, folder: Path | None) -> Any:
    """Return an attribute as a Python value; a list of numbers as a tuple, or as `packed` says."""
    if (taken := long_lists.list_of(a)) is not None:
        return taken
    match a.type:
        case onnx.AttributeProto.FLOAT:
            return a.f
        case onnx.AttributeProto.INT:
            return a.i
        case onnx.AttributeProto.STRING:
            return a.s.decode("utf-8", "replace")
        case onnx.AttributeProto.FLOATS:
            return packed(a.floats, "f")
        case onnx.AttributeProto.INTS:
            return packed(a.ints, "q")
        case onnx.AttributeProto.STRINGS:
            return texts(a.strings)
        case onnx.AttributeProto.TENSOR:
            strings = a.t.data_type == onnx.TensorProto.STRING
            return string_tensor(a.t) if strings else tensor_array(a.t, folder)
        case onnx.AttributeProto.TYPE_PROTO:
            return a.tp
    kind = onnx.AttributeProto.AttributeType.Name(a.type)
    raise UnsupportedError(f"attribute '{a.name}' is a {kind}, which is not supported")


def packed(numbers: Collection[float], code: str) -> Sequence[float]:
    """Return a list as a tuple, or as an array of the type `code` if it is so long.

    A forest has ten lists of millions of numbers, each of which would be an object in a tuple.
    """
    return tuple(numbers) if len(numbers) <= LONG_LIST else array(code, numbers)


def texts(strings: Iterable[bytes]) -> tuple[str, ...]:
    """Return a list of strings, in which equal ones are one object."""
    known: dict[bytes, str] = {}
    return tuple([known.get(s) or known.setdefault(s, s.decode("utf-8", "replace"))
                  for s in strings])  # fmt: skip


def string_tensor(tensor: onnx.TensorProto) -> Array:
    """Return the contents of a tensor of strings, as an array of str."""
    size = math.prod(tensor.dims)
    if any(d < 0 for d in tensor.dims) or size != len(tensor.string_data):
        raise ModelError(
            f"tensor '{tensor.name}' has {len(tensor.string_data)} strings, expected as many as "
            f"its shape {list(tensor.dims)} has elements"
        )
    array = np.empty(size, object)
    array[:] = [s.decode("utf-8", "replace") for s in tensor.string_data]
    return array.reshape(tuple(tensor.dims))


def tensor_array(tensor: onnx.TensorProto, folder: Path | None) -> Array:
    """Return the contents of a tensor; raise ModelError if they do not fill its shape."""
    what = f"tensor '{tensor.name}'"
    dtype = element_type(tensor.data_type, what)
    if any(d < 0 for d in tensor.dims) or math.prod(tensor.dims) > MOST_ELEMENTS:
        raise ModelError(
            f"{what} has shape {list(tensor.dims)}, expected extents of 0 or more and at most "
            f"{MOST_ELEMENTS} elements"
        )
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, what, TensorType(dtype, tuple(tensor.dims)), folder)
    try:
        array = numpy_helper.to_array(tensor)
    except (ValueError, TypeError, OverflowError) as error:
        wanted = TensorType(dtype, tuple(tensor.dims))
        raise ModelError(f"{what}: expected the elements of {wanted}: {error}") from error
    assert NAMES[array.dtype] == dtype
    return np.asarray(array)


def _external(tensor: onnx.TensorProto, what: str, t: TensorType, folder: Path | None) -> Array:
    entries = {e.key: e.value for e in tensor.external_data}
    if folder is None:
        raise ModelError(
            f"{what} has external data, expected a model that is a file",
            hint="the path of the model in place of its bytes or ModelProto",
        )
    stored = -(-t.size * width(t.dtype) // 8)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", stored))
    except ValueError as error:
        raise ModelError(
            f"{what}: external data is {entries}, expected integers as offset and length"
        ) from error
    location = entries.get("location", "")
    try:
        path = (folder / location).resolve()
        there = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:  # too long, a zero byte, links in a circle
        raise ModelError(
            f"{what}: location of external data is '{location}', expected a path: {error}"
        ) from error
    if not location or not path.is_relative_to(folder.resolve()):
        raise ModelError(
            f"{what}: location of external data is '{location}', expected a path in the model's "
            "folder"
        )
    if not there:
        raise ModelError(f"{what}: external data file '{location}' is missing")
    if length != stored or offset < 0 or offset + length > path.stat().st_size:
        raise ModelError(
            f"{what}: external data is {length} bytes at offset {offset} of '{location}', expected "
            f"{stored} within the {path.stat().st_size} bytes of the file"
        )
    if path.stat().st_nlink > 1:
        warnings.warn(
            f"external data '{shown(str(path))}' has other names, which may lie in other folders",
            LinkWarning,
            stacklevel=2,
        )
    if t.size == 0:
        return np.zeros(t.extents, t.numpy)
    content = _content(path, offset, stored, what)
    return unpacked(content, t) if width(t.dtype) < 8 else content.view(t.numpy).reshape(t.extents)


def _content(path: Path, offset: int, nbytes: int, what: str) -> Array:
    """Return a copy of bytes of a file: a later write into the file changes no model."""
    memory = aligned_bytes(nbytes)
    try:
        with path.open("rb") as file:
            count = read_into(file.fileno(), offset, memory.data)
    except OSError as error:
        reason = error.strerror
        raise ModelError(f"{what}: expected a readable '{path.name}': {reason}") from error
    if count < nbytes:
        raise ModelError(
            f"{what}: external data file '{path.name}' is being written, expected {nbytes} bytes"
        )
    return sealed(memory)


def unpacked(packed: Array, t: TensorType) -> Array:
    """Return elements of less than a byte that follow each other, lowest bits first."""
    bits = width(t.dtype)
    each = 8 // bits
    if 8 % bits:
        parts = np.unpackbits(packed, count=t.size * bits, bitorder="little").reshape(-1, bits)
        codes = np.packbits(parts, axis=1, bitorder="little").reshape(-1)
    else:
        codes = np.empty(each * packed.size, np.uint8)
        for i in range(each):
            codes[i::each] = packed >> np.uint8(bits * i) & np.uint8((1 << bits) - 1)
    return codes[: t.size].view(t.numpy).reshape(t.extents)


def tensor_type(info: onnx.ValueInfoProto, labels: Labels) -> TensorType:
    """Return the type of a graph input; extents without a number are what `labels` has."""
    what = f"input '{info.name}'"
    kind = info.type.WhichOneof("value")
    if kind is None:
        raise ModelError(f"{what}: type is missing")
    if kind != "tensor_type":
        raise UnsupportedError(f"{what} is a {kind}, which is not supported; supported: tensors")
    if not info.type.tensor_type.HasField("shape"):
        raise UnsupportedError(f"{what} has no rank", hint="run ONNX shape inference on the model")
    dtype = element_type(info.type.tensor_type.elem_type, what)
    shape: list[Dim] = []
    for i, d in enumerate(info.type.tensor_type.shape.dim):
        if is_fixed(d):
            if not 0 <= d.dim_value <= MOST_ELEMENTS:
                raise ModelError(
                    f"{what} has extent {d.dim_value} on axis {i}, expected 0 to {MOST_ELEMENTS}"
                )
            shape.append(d.dim_value)
        else:
            shape.append(labels[label_of(info, i)])
    return TensorType(dtype, tuple(shape))


def kind_of(t: onnx.TypeProto, name: str) -> Kind | None:
    """Return the kind of values that `TensorType` cannot describe; None if the type has none."""
    match t.WhichOneof("value"):
        case "tensor_type":
            tensor = t.tensor_type
            strings = tensor.elem_type == onnx.TensorProto.STRING
            dtype = "string" if strings else element_type(tensor.elem_type, f"input '{name}'")
            dims = [d.dim_value if is_fixed(d) else None for d in tensor.shape.dim]
            return Kind("tensor", dtype, tuple(dims) if tensor.HasField("shape") else None)
        case "sequence_type":
            return Kind("sequence", of=kind_of(t.sequence_type.elem_type, name))
        case "optional_type":
            return Kind("optional", of=kind_of(t.optional_type.elem_type, name))
        case "map_type":
            return Kind("map")
    return None

"""DLPack: handing arrays of a device on to other libraries (github.com/dmlc/dlpack, version 0.8).

A consumer renames the capsule that it takes over, and calls the tensor's deleter when it is done
with it; a capsule that nobody has taken does so itself.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from typing import Any

import numpy as np

from alpenglow.ir.types import NAMES

HOST = (1, 0)
"""The device type and number of memory of the host (kDLCPU)."""

OPENCL = 4
"""The device type of OpenCL (kDLOpenCL), whose data are a cl_mem."""

_NAME = b"dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4


class _Device(Structure):
    _fields_ = (("type", c_int32), ("id", c_int32))


class _DataType(Structure):
    _fields_ = (("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16))


class Tensor(Structure):
    """DLTensor."""

    _fields_ = (
        ("data", c_void_p), ("device", _Device), ("ndim", c_int32), ("dtype", _DataType),
        ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64),
    )  # fmt: skip


class ManagedTensor(Structure):
    """DLManagedTensor."""


_DELETER = CFUNCTYPE(None, POINTER(ManagedTensor))
ManagedTensor._fields_ = (("tensor", Tensor), ("context", c_void_p), ("deleter", _DELETER))

_held: dict[int, tuple[Any, ...]] = {}
"""What handed-on tensors need, by their addresses."""


def _forget(tensor: Any) -> None:
    _held.pop(ctypes.addressof(tensor.contents), None)


_delete = _DELETER(_forget)

_DESTRUCTOR = CFUNCTYPE(None, c_void_p)
# Functions of their own: others may say of ctypes.pythonapi's what they take.
_new = PYFUNCTYPE(py_object, c_void_p, c_char_p, _DESTRUCTOR)(("PyCapsule_New", pythonapi))
_is_valid = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))


def _drop(capsule: int) -> None:
    if _is_valid(capsule, _NAME):  # nobody has taken it
        _held.pop(_pointer(capsule, _NAME), None)


_destroy = _DESTRUCTOR(_drop)


def capsule(
    owner: object,
    handle: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    device: tuple[int, int],
) -> Any:
    """Return a capsule of memory that `owner` keeps, dense and row by row.

    Raises BufferError for an element type that DLPack has not.
    """
    code = _BFLOAT if NAMES.get(dtype) == "bf16" else _CODES.get(dtype.kind)
    if code is None or (dtype.kind == "V" and code != _BFLOAT):
        raise BufferError(f"DLPack: dtype {dtype} is not supported")
    extents = (c_int64 * max(len(shape), 1))(*shape)
    managed = ManagedTensor()
    managed.tensor = Tensor(
        handle, _Device(*device), len(shape), _DataType(code, 8 * dtype.itemsize, 1),
        ctypes.cast(extents, POINTER(c_int64)), None, 0,
    )  # fmt: skip
    managed.deleter = _delete
    address = ctypes.addressof(managed)
    _held[address] = owner, extents, managed
    return _new(address, _NAME, _destroy)

"""Read weights out of pickles without running what a pickle may ask to run.

A pickle is a program: loading one calls whatever it names. The readers here know the few names
that arrays need and refuse all others, and need neither PyTorch nor the NumPy version that wrote
the file.
"""

from __future__ import annotations

import collections
import io
import pickle
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TORCH_MAGIC = 0x1950A86A20F9469CFC6C

_NUMPY_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): "numpy._core.multiarray",
    ("numpy._core.multiarray", "_reconstruct"): "numpy._core.multiarray",
    ("numpy", "ndarray"): "numpy",
    ("numpy", "dtype"): "numpy",
    ("_codecs", "encode"): "_codecs",
}

_TORCH_STORAGES = {
    "FloatStorage": np.dtype(np.float32),
    "DoubleStorage": np.dtype(np.float64),
    "HalfStorage": np.dtype(np.float16),
    "LongStorage": np.dtype(np.int64),
    "IntStorage": np.dtype(np.int32),
}


def read_numpy_pickle(content: bytes) -> Any:
    """What a pickle of plain containers and NumPy arrays holds."""
    return _NumpyUnpickler(io.BytesIO(content)).load()


def read_state_dict(content: bytes) -> dict[str, NDArray[Any]]:
    """The tensors of a PyTorch state dict in the format that was written before version 1.6.

    The file is a row of pickles (magic number, protocol version, sizes of C types, the dict
    itself, the keys of its storages), then each storage: its number of elements and its raw
    elements.
    """
    file = io.BytesIO(content)
    magic = _TorchUnpickler(file).load()
    if magic != TORCH_MAGIC:
        raise pickle.UnpicklingError("not a PyTorch state dict of the old format")
    for _ in ("protocol version", "sizes of C types"):
        _TorchUnpickler(file).load()
    unpickler = _TorchUnpickler(file)
    tensors: dict[str, _Tensor] = unpickler.load()
    elements = {}
    for key in _TorchUnpickler(file).load():
        (count,) = struct.unpack("<q", file.read(8))
        dtype = unpickler.storages[key]
        elements[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    return {name: tensor.view(elements[tensor.storage]) for name, tensor in tensors.items()}


@dataclass(frozen=True)
class _Tensor:
    """A view of a storage whose elements come later in the file."""

    storage: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def view(self, elements: NDArray[Any]) -> NDArray[Any]:
        strides = [stride * elements.itemsize for stride in self.strides]
        window = elements[self.offset :]
        return np.lib.stride_tricks.as_strided(window, self.shape, strides).copy()


def _tensor(
    storage: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _Tensor:
    """Stands in for the function that rebuilds a tensor; gradients and hooks are dropped."""
    return _Tensor(storage, offset, shape, strides)


class _NumpyUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        home = _NUMPY_NAMES.get((module, name))
        if home is None:
            raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}: not allowed")
        return super().find_class(home, name)


class _TorchUnpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storages: dict[str, np.dtype[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if (module, name) == ("torch._utils", "_rebuild_tensor"):
            return _tensor
        if module == "torch" and name in _TORCH_STORAGES:
            return _TORCH_STORAGES[name]
        raise pickle.UnpicklingError(f"the pickle asks for {module}.{name}: not allowed")

    def persistent_load(self, pid: Any) -> str:
        _, dtype, key, _, _, view = pid
        if view is not None:
            raise pickle.UnpicklingError("a storage that is a view of another: not supported")
        self.storages[key] = dtype
        return str(key)

"""Arrays in the memory of a device, as `run(…, device=True)` returns them and calls take them."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from alpenglow.base.memory import aligned_bytes
from alpenglow.ir.types import Array
from alpenglow.machines.api import Argument, Device, Event
from alpenglow.runtime.device import dlpack


class DeviceArray:
    """An array of `shape` and NumPy's `dtype` on a device, dense and row by row.

    It may still be computed: what needs its contents waits.  A call of an Executable on the same
    device takes it as it is; everywhere else it is copied, by `numpy()` or as NumPy asks
    (``np.asarray(x)``, ``np.from_dlpack(x, device="cpu")``).
    """

    def __init__(
        self, device: Device, nbytes: int, shape: tuple[int, ...], dtype: np.dtype[Any], where: str
    ) -> None:
        """`where` is the name of the target that code on the device is made for."""
        self.shape, self.dtype, self.nbytes, self.where = shape, dtype, nbytes, where
        self.device = device
        self._memory = device.allocate(nbytes)
        weakref.finalize(self, device.free, self._memory)
        self.ready: Event = None
        """When it has been computed."""

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def place(self) -> Argument:
        """Where it lies in memory of the device."""
        return self._memory, 0

    def numpy(self) -> Array:
        """Return a copy in memory of the host.  Raises DeviceError where computing it failed."""
        flat = aligned_bytes(self.nbytes)
        if self.nbytes:
            self.device.wait(self.device.download(self._memory, 0, flat, [self.ready]))
        return flat.view(self.dtype).reshape(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError(self._copied())
        array = self.numpy()
        return array if dtype is None else array.astype(dtype)

    def _copied(self) -> str:
        return f"an array on {self.where} is copied to the host, expected no copy=False"

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device.dlpack

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None,
        dl_device: tuple[int, int] | None = None, copy: bool | None = None,
    ) -> Any:  # fmt: skip
        """Return what DLPack hands on, once the array has been computed: of a device's memory, the
        handle that its runtime knows."""
        if dl_device == dlpack.HOST:
            if copy is False:
                raise BufferError(self._copied())
            return self.numpy().__dlpack__()
        if dl_device not in (None, self.device.dlpack) or copy:
            expected = f"the host, or {self.where} without a copy"
            raise BufferError(f"dl_device is {dl_device}, expected {expected}")
        self.device.wait(self.ready)
        handle = self.device.handle(self._memory)
        return dlpack.capsule(self, handle, self.shape, self.dtype, self.device.dlpack)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} on {self.where})"

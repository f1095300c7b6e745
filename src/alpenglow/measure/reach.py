"""What the machine of a target reaches: operations and bytes a second, and bytes of its last cache.

Code of this process is measured on the CPU, that of OpenCL on its device.  Of other devices with
memory of their own nothing is known: they reach infinity, and nothing is a share of that.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

from alpenglow.ir.target import Target
from alpenglow.machines.opencl.device import OpenClDevice
from alpenglow.machines.registry import device_for
from alpenglow.measure import opencl
from alpenglow.measure.bandwidth import bandwidth
from alpenglow.measure.peak import peak

_UNITS = {"K": 2**10, "M": 2**20}


def peak_of(target: Target, threads: int, dtype: str = "f32") -> float:
    """Return the operations a second at best, by `threads` threads where they are of this process.

    `dtype` is that of left operands; devices are measured on f32.
    """
    device = device_for(target)
    if device is None:
        return peak(threads, target, dtype)
    return opencl.peak(device) if isinstance(device, OpenClDevice) else math.inf


def bandwidth_of(target: Target, threads: int) -> float:
    """Return the bytes a second that come from memory at best."""
    device = device_for(target)
    if device is None:
        return bandwidth(threads)
    return opencl.bandwidth(device) if isinstance(device, OpenClDevice) else math.inf


def cache_of(target: Target) -> float:
    """Return the bytes of the last cache; infinity where nobody tells."""
    device = device_for(target)
    if device is None:
        return last_cache()
    if not isinstance(device, OpenClDevice):
        return math.inf
    return last_cache() if device.facts.kind == "cpu" else device.facts.cache_nbytes or math.inf


def last_cache() -> float:
    """Return the bytes of the CPU's last cache; infinity where the system does not tell."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    matches = [re.fullmatch(r"(\d+)([KM])", path.read_text().strip()) for path in sizes]
    return max((float(m[1]) * _UNITS[m[2]] for m in matches if m is not None), default=math.inf)


def forget() -> None:
    """Measure anew from now on: clocks wander, and so do virtual machines."""
    for measured in (peak, bandwidth, opencl.peak, opencl.bandwidth):
        measured.cache_clear()

"""The targets of OpenCL: devices that are here, and kinds of devices, of which code can be made
anywhere.

    opencl            the first device here
    opencl:1          a device by its number, or by a part of its name: opencl:pocl
    opencl-cpu        devices that are processors: vectors in registers, loops cut for cores
    opencl-gpu        devices of many threads: a grid, one thread an element
    opencl-gpu:pocl   one way or the other, on a device of one's choice
"""

from __future__ import annotations

from dataclasses import replace

from alpenglow.base.errors import OptionError
from alpenglow.ir.target import Facts, Target
from alpenglow.machines.opencl.devices import DeviceFacts, find

LANES, UNITS, GROUP = 16, 16, 256
"""How many f32 vectors have, how many cores there are, and threads in a group, where no device is
named."""

VECTORS = Facts(
    lanes=LANES, registers=32, fuses=True, line=64, way=4096, own_cache=1 << 20, cache=8 << 20,
    units=UNITS,
)  # fmt: skip
GRID = Facts(lanes=1, registers=64, fuses=True, line=128, serial=0, group=GROUP)


def named(kind: str, name: str, features: tuple[str, ...]) -> Target | None:
    """Return the target of a kind of devices, "cpu" or "gpu", that is called `name`; None for other
    names.

    Raises OptionError for features, and DeviceError where it names a device that is not here.
    """
    begin, _, device = name.partition(":")
    if begin not in ("opencl", f"opencl-{kind}"):
        return None
    if features:
        raise OptionError(
            f"target '{'+'.join([name, *features])}': '{begin}' takes no features",
            hint=f"'{name}' alone",
        )
    if begin == "opencl":
        facts = find(device)
        return _of(facts, kind, name) if (facts.kind == "cpu") == (kind == "cpu") else None
    if device:
        return _of(find(device), kind, name)
    return Target(name, machine(kind), VECTORS if kind == "cpu" else GRID)


def machine(kind: str) -> str:
    """Return the name of the machine for a kind of devices."""
    return f"opencl-{kind}"


def _of(d: DeviceFacts, kind: str, name: str) -> Target:
    """Return the target of a device."""
    if kind == "gpu":
        group = min(GROUP, d.most_threads)
        multiplies = (*GRID.multiplies, "u8", "i8") if d.integer_dot else GRID.multiplies
        facts = replace(GRID, group=group, units=d.units, multiplies=multiplies)
        return Target(name, machine(kind), facts)
    lanes = max(min(d.lanes, LANES), 4)
    registers = 32 if lanes == LANES else 16
    return Target(
        name, machine(kind), replace(VECTORS, lanes=lanes, registers=registers, units=d.units)
    )

"""Finding the machine of a target.  Ours and third parties' come through the same door: the entry
point group ``alpenglow.machines``, each entry a class without arguments."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from alpenglow.base.errors import UnsupportedError
from alpenglow.base.extensions import brought
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.api import Device, HostDevice, Machine
from alpenglow.program import Instr, Program


def machines() -> dict[str, Machine]:
    """Return all machines by name."""
    return brought("alpenglow.machines")


def families() -> list[tuple[tuple[str, ...], Machine]]:
    """Return the names of machines that share their rows of the pass table, and one of them."""
    families: dict[str, list[Machine]] = {}
    for machine in machines().values():
        families.setdefault(machine.family, []).append(machine)
    return [(tuple(m.name for m in alike), alike[0]) for alike in families.values()]


def machine_for(target: Target) -> Machine:
    """Return the machine that makes code for `target`; raise UnsupportedError if it is not here."""
    machine = machines().get(target.machine)
    if machine is None:
        raise UnsupportedError(
            f"no machine makes code for target '{target}'",
            hint=f"install the distribution that brings '{target.machine}'",
        )
    return machine


def device_for(target: Target) -> Device | None:
    """Return the device with memory of its own that runs code for `target`; None without one.

    Raises DeviceError if there is one, but not here.
    """
    machine = machines().get(target.machine)
    device = None if machine is None else machine.device(target)
    return None if isinstance(device, HostDevice) else device


@cache
def this_process() -> HostDevice:
    """Return what runs code in this process, whichever machine has made that."""
    here = Target.parse("cpu")
    device = machine_for(here).device(here)
    assert isinstance(device, HostDevice), "the machine of this processor runs code in this process"
    return device


def kernels(program: Program, target: Target) -> Iterator[tuple[Instr, Kernel]]:
    """Yield the kernel of every instruction that is compiled."""
    machine = machine_for(target)
    for instr in program.instrs():
        kernel = machine.kernel(instr, target)
        if kernel is not None:
            yield instr, kernel

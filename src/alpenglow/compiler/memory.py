"""Where a limit on the memory of a call cannot be kept to, which is refused with the reason."""

from __future__ import annotations

from contextlib import suppress

from alpenglow.base.errors import DeviceError, UnsupportedError
from alpenglow.compiler.options import Options
from alpenglow.ir.target import Target
from alpenglow.machines.registry import device_for


def refuse_limit(options: Options, why: str, hint: str = "", flags: str = "") -> None:
    """Raise UnsupportedError if memory is limited."""
    if options.memory_nbytes is not None:
        raise UnsupportedError(f"memory cannot be limited: {why}", hint=hint, flags=flags)


def refuse_open(options: Options) -> None:
    """Raise UnsupportedError if memory is limited: of a graph with open extents it is planned as
    calls come."""
    refuse_limit(
        options,
        "dimensions are dynamic, so memory is planned at each call",
        "fix them: shapes={'NAME': (1, 3, 32, 32)}, with numbers of your choice",
        "fix them: --shapes NAME=1x3x32x32, or --dim N=1; with numbers of your choice",
    )


def require_known_memory(target: Target) -> None:
    """Raise UnsupportedError for a device: its driver takes memory of which nothing is known."""
    if target.triple:
        return
    with suppress(DeviceError):
        if device_for(target) is None:
            return
    raise UnsupportedError(
        f"memory cannot be limited on '{target}': the driver of the device allocates more",
        hint="a target that is a processor",
    )

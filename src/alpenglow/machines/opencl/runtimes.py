"""Where the drivers of OpenCL devices are, what is wrong with them, and Intel's for the CPU.

A loader reads .icd files, each the name of a driver.  It says nothing of one that it cannot load.

Intel's runtime comes as wheels whose .icd file names a place that exists nowhere, and it needs
libraries that no loader finds.  So that `pip install` is enough, these are loaded before, and the
loader looks in a folder with all .icd files of the system and a right one.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from alpenglow.base import knobs
from alpenglow.base.words import some, told

SYSTEM = Path("/etc/OpenCL/vendors")

INTEL = "libintelocl.so"
NEEDED = ("libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so")
"""What Intel's runtime loads by name, from the folder in which it lies itself."""

VARIABLES = {"CL_CONFIG_CPU_VECTORIZER_MODE": "1"}
"""What Intel's runtime is to do: make no vectors of threads.  Its vectoriser ends the process at
some loops (2026.2).  It reads that when it is loaded, and was seen not to know it later where it
had been taken back: it stays.  The attribute `intel_vec_len_hint(1)` of a kernel prevents that,
too, but then some sums are rounded otherwise than the kernel says."""


@contextmanager
def prepared() -> Iterator[None]:
    """Let a loader see Intel's runtime during a block, in which it has to look for the first time.

    Whoever has said where drivers are is left alone.
    """
    knobs.presume(VARIABLES)
    intel = intel_folder()
    if intel is None or knobs.opencl_vendors() is not None:
        yield
        return
    for name in NEEDED:
        with suppress(OSError):  # without them the loader passes the runtime over
            ctypes.CDLL(str(intel / name), ctypes.RTLD_GLOBAL)
    with tempfile.TemporaryDirectory(prefix="alpenglow-opencl-") as folder:
        for file in _descriptions(SYSTEM):
            Path(folder, file.name).write_bytes(file.read_bytes())
        Path(folder, "alpenglow-intel.icd").write_text(f"{intel / INTEL}\n")
        with knobs.presumed({"OCL_ICD_VENDORS": folder}):
            yield


@cache
def intel_folder() -> Path | None:
    """Return the folder of Intel's runtime if a wheel of it is installed beside us."""
    if not sys.platform.startswith("linux"):
        return None
    with suppress(PackageNotFoundError):
        for file in files("intel-opencl-rt") or ():
            path = Path(file.locate()).resolve()
            if path.name == INTEL and path.exists():
                return path.parent
    return None


def without_runtime() -> str:
    """Return what is wrong with the drivers that are named somewhere, as the end of a message."""
    vendors = knobs.opencl_vendors() or SYSTEM
    if vendors.suffix == ".icd" and vendors.is_file():
        listed = [vendors]
    else:
        listed = _descriptions(vendors)
    faults = [f"{file} names {_fault(driver)}" for file in listed for driver in _named(file)]
    faults += [f"OCL_ICD_FILENAMES names {_fault(driver)}" for driver in knobs.opencl_libraries()]
    if faults:
        return f": {some(faults)}"
    return f" (there is no .icd file in {told(str(vendors))})"


def _descriptions(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(file for file in folder.iterdir() if file.suffix == ".icd")
    return []


def _named(file: Path) -> list[str]:
    """Return the drivers that an .icd file names: one, in its first line."""
    with suppress(OSError):
        return file.read_text(errors="replace").split("\n")[:1]
    return []


def _fault(driver: str) -> str:
    """Return a driver and why it is of no use."""
    driver = driver.strip()
    try:
        if "/" in driver and not Path(driver).exists():
            return f"{driver}, which is not there"
        ctypes.CDLL(driver)
    except (OSError, ValueError) as error:  # a name may hold anything
        return f"{driver}, which cannot be loaded: {told(str(error))}"
    return f"{driver}, which can be loaded but has no device"

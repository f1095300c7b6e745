"""Settings from the environment, each read in this one place.

A knob changes how the compiler works, never what a model means.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from alpenglow.base.errors import OptionError

MOST_THREADS = 1024
"""What is more is a slip, not a number of threads."""


def check() -> bool:
    """`ALPENGLOW_CHECK=1`: validate every pass by evaluating the graph before and after it."""
    return os.environ.get("ALPENGLOW_CHECK", "") not in ("", "0")


def threads() -> int | None:
    """`ALPENGLOW_THREADS=N`: how many threads a call uses unless it is told; None if not set."""
    text = os.environ.get("ALPENGLOW_THREADS", "").strip()
    if not text:
        return None
    is_number = text.isascii() and text.isdecimal() and len(text) < 10
    if not (is_number and 1 <= int(text) <= MOST_THREADS):
        raise OptionError(f"ALPENGLOW_THREADS is {text[:40]!r}, expected 1 to {MOST_THREADS}")
    return int(text)


def tuning_file() -> Path | None:
    """Return the file of what `alpenglow tune` measured; None if `ALPENGLOW_TUNING=off`.

    `ALPENGLOW_TUNING=FILE` names it; otherwise it is `tuning.txt` in the cache folder.
    """
    named = os.environ.get("ALPENGLOW_TUNING", "")
    if named.lower() in ("off", "0"):
        return None
    if named:
        return Path(named)
    folder = cache_folder()
    return None if folder is None else folder / "tuning.txt"


def cache_folder() -> Path | None:
    """Return the folder for compiled kernels; None if `ALPENGLOW_CACHE=off`, or nobody has a home.

    `ALPENGLOW_CACHE=DIR` names it; otherwise it is `alpenglow` in the user's cache folder.
    """
    named = os.environ.get("ALPENGLOW_CACHE", "")
    if named.lower() in ("off", "0"):
        return None
    if named:
        return Path(named)
    cache = _folder_in("XDG_CACHE_HOME")
    if cache is not None:
        return cache / "alpenglow"
    if sys.platform == "win32" and (local := _folder_in("LOCALAPPDATA")) is not None:
        return local / "alpenglow" / "cache"
    home = _home()
    if home is None:
        return None
    if sys.platform == "win32":
        return home / "alpenglow" / "cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "alpenglow"
    return home / ".cache" / "alpenglow"


def opencl_vendors() -> Path | None:
    """Return where a loader of OpenCL looks for drivers: `OCL_ICD_VENDORS`; None if not set."""
    named = os.environ.get("OCL_ICD_VENDORS", "")
    return Path(named) if named else None


def opencl_libraries() -> tuple[str, ...]:
    """Return the drivers that a loader of OpenCL is to load besides: `OCL_ICD_FILENAMES`."""
    return tuple(filter(None, os.environ.get("OCL_ICD_FILENAMES", "").split(os.pathsep)))


def presume(variables: Mapping[str, str]) -> None:
    """Set variables that the user has not set, for libraries that may read them at any time."""
    for name, text in variables.items():
        os.environ.setdefault(name, text)


@contextlib.contextmanager
def presumed(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, for libraries that read them, during a block."""
    missing = {name: text for name, text in variables.items() if name not in os.environ}
    os.environ.update(missing)
    try:
        yield
    finally:
        for name in missing:
            os.environ.pop(name, None)


def _folder_in(variable: str) -> Path | None:
    """Return the folder that a variable of the system names; None unless its path is absolute.

    A relative one would be another folder wherever a program starts: the XDG rules say to ignore
    it.
    """
    path = Path(os.environ.get(variable, ""))
    return path if path.is_absolute() else None


def _home() -> Path | None:
    """Return the user's home; None if it is not known, or no absolute path."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    return home if home.is_absolute() else None

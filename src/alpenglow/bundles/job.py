"""What a format is asked for, and what it makes: the shape of `bundles.formats`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from alpenglow.bundles.entry import Api
from alpenglow.bundles.plan import BundlePlan

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Job:
    """A layout to be written as the bundle `name`.

    With `embedded` the constants are part of the code's file; `freestanding` code calls nothing,
    not even memcpy and memset.  `version` is this package's.  `portable` C has no extensions in it;
    `release` is the version of a wheel.
    """

    name: str
    layout: BundlePlan
    api: Api
    embedded: bool
    freestanding: bool
    progress: Progress
    version: str
    portable: bool = False
    release: str = "1.0"


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes of code, of other data beside it (constants do not count), and of stack for a call.

    Of source that is not `compiled` yet, `stack_nbytes` counts the largest arrays that it keeps
    there; how much a compiler adds, and how long code becomes, it alone knows.  What does not run
    `on_host` has its memory on a device.
    """

    code_nbytes: int
    data_nbytes: int
    stack_nbytes: int
    compiled: bool = True
    on_host: bool = True


@dataclass(frozen=True, slots=True)
class Made:
    """The files of a bundle by name, and what its code needs."""

    files: Mapping[str, bytes]
    needs: Needs


Format = Callable[[Job], Made]

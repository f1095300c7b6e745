"""Log lines of compilations: model, reason, time, and kernels from the cache."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from alpenglow.base.log import log
from alpenglow.base.store import Store
from alpenglow.base.words import counted, told
from alpenglow.machines.api import Artifact


def compiled(name: str, why: str, store: Store, compile_: Callable[[], Artifact]) -> Artifact:
    """Compile, and log a line such as

    ``compiled 'tiny' for cpu in 0.210 s (compile): 7 kernels, 2 from the cache``.
    """
    before, begin = store.made, time.perf_counter()
    artifact = compile_()
    seconds = time.perf_counter() - begin
    if log.isEnabledFor(logging.INFO):
        kernels = len(artifact.objects)
        cached = max(kernels - (store.made - before), 0)
        log.info(
            told(
                f"compiled '{name}' for {artifact.target} in {seconds:.3f} s ({why}): "
                f"{counted(kernels, 'kernel')}, {cached} from the cache"
            )
        )
    return artifact


def found(name: object, find: Callable[[], Artifact | None]) -> Artifact | None:
    """Look for an archive in the compilation cache, and log whether there is one."""
    begin = time.perf_counter()
    artifact = find()
    seconds = time.perf_counter() - begin
    if log.isEnabledFor(logging.INFO):
        if artifact is None:
            text = f"'{name}' is not in the compilation cache"
        else:
            kernels = counted(len(artifact.objects), "kernel")
            text = f"loaded '{name}' from the compilation cache in {seconds:.3f} s: {kernels}"
        log.info(told(text))
    return artifact


def extents(values: Mapping[str, int]) -> str:
    """Return the reason of a compilation: the first call with these values of dimensions."""
    return f"first call with {', '.join(f'{n}={v}' for n, v in values.items()) or 'these shapes'}"

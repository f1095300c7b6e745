"""What the log says of compilations: of what, why, how long, and what came from the cache."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from alpenglow.base.log import log
from alpenglow.base.store import Store
from alpenglow.base.words import counted, told
from alpenglow.machines.api import Artifact


def compiled(name: str, why: str, store: Store, compile_: Callable[[], Artifact]) -> Artifact:
    """Compile, and log it: ``compiled tiny for cpu in 0.210 s (compile): 7 kernels, 2 cached``."""
    before, begin = store.made, time.perf_counter()
    artifact = compile_()
    seconds = time.perf_counter() - begin
    if log.isEnabledFor(logging.INFO):
        kernels = len(artifact.objects)
        cached = max(kernels - (store.made - before), 0)
        log.info(
            told(
                f"compiled '{name}' for {artifact.target} in {seconds:.3f} s ({why}): "
                f"{counted(kernels, 'kernel')}, {cached} of them cached"
            )
        )
    return artifact


def found(name: object, find: Callable[[], Artifact | None]) -> Artifact | None:
    """Look for a compilation that was kept, and log whether there is one."""
    begin = time.perf_counter()
    artifact = find()
    seconds = time.perf_counter() - begin
    if log.isEnabledFor(logging.INFO):
        if artifact is None:
            text = f"no compilation of '{name}' is kept"
        else:
            kernels = counted(len(artifact.objects), "kernel")
            text = f"a kept compilation of '{name}' is used, found in {seconds:.3f} s: {kernels}"
        log.info(told(text))
    return artifact


def extents(values: Mapping[str, int]) -> str:
    """Return why code is made: for the extents that a call has brought."""
    return f"first call with {', '.join(f'{n}={v}' for n, v in values.items()) or 'such extents'}"

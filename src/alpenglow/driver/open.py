"""`open`: from an archive to an Executable."""

from __future__ import annotations

import os
from importlib import import_module

from alpenglow.base.cpus import check_threads
from alpenglow.base.errors import ModelError, OptionError
from alpenglow.machines.api import Artifact
from alpenglow.runtime import archive, signature
from alpenglow.runtime.executor import Executable
from alpenglow.runtime.installed import install


def open(
    path: str | os.PathLike[str] | archive.Content,
    threads: int | None = None,
    *,
    mmap: bool | None = None,
    key: signature.Key | None = None,
) -> Executable:
    """Return the Executable that `Executable.save` wrote to `path`, without compiling anything.

    Of a model with open extents the archive holds what had been compiled, and the graph: code for
    other kinds of extents is made when a call brings them, as it was where it was compiled first.
    Of a model whose graph depends on its data it holds what calls had led to; a call whose data
    lead elsewhere raises UnsupportedError.

    Instead of a path, the bytes of such a file may be given; they are copied.
    An archive of up to 64 MiB is copied; weights of a larger one are mapped from the file, which
    must then be replaced, never written into.  `mmap` says which of the two, whatever the size.
    Raises ModelError if the file is no archive or damaged, and IncompatibleError if this version
    or this machine cannot run it; both before any of its code is loaded.  An archive is a program:
    open only what you would run.  `key`, a public Ed25519 key (a PEM file, or its bytes), must have
    signed it: else there is a SignatureError.
    """
    check_threads(threads)
    if mmap is not None and not isinstance(mmap, bool):
        raise OptionError(f"mmap is {mmap!r}, expected True, False or None")
    archived = archive.read(path, mmap, key)
    if isinstance(archived, Artifact):
        return install(archived, threads)
    # The compiler is imported for what it may have to compile only.
    compiler = import_module("alpenglow.driver.compile")
    try:
        executable: Executable = compiler.reopened(archived, threads)
    except ModelError as error:
        raise error.located(file=str(path) if isinstance(path, str | os.PathLike) else "") from None
    return executable

"""`open`: from an archive to an Executable."""

from __future__ import annotations

import os
from importlib import import_module

from alpenglow.base.cpus import check_threads
from alpenglow.base.errors import ModelError, OptionError, UnsupportedError
from alpenglow.base.sizes import parse_nbytes
from alpenglow.machines.api import Artifact
from alpenglow.runtime.archive import archive, signature
from alpenglow.runtime.executables.executor import Executable
from alpenglow.runtime.executables.installed import install, stream


def open(
    path: str | os.PathLike[str] | archive.Content,
    threads: int | None = None,
    *,
    mmap: bool | None = None,
    weights: int | str | None = None,
    key: signature.Key | None = None,
) -> Executable:
    """Return the Executable that `Executable.save` wrote to `path`, without compiling anything.

    Of a model with open extents the archive holds what had been compiled, and the graph: code for
    other kinds of extents is made when a call brings them, as it was where it was compiled first.
    Of a model whose graph depends on its data it holds what calls had led to; a call whose data
    lead elsewhere raises UnsupportedError.

    Instead of a path, the bytes of such a file may be given; they are copied.
    An archive of up to 64 MiB is copied; weights of a larger one are mapped from the file, which
    must then be replaced: once it was written into, calls raise ModelError.  `mmap` says which of
    the two, whatever the size.
    With `weights`, bytes or a text like "800MB", they take no more memory than that: while some are
    computed with, others are read from the file, in each call anew (docs/memory.md).
    Raises ModelError if the file is no archive or damaged, and IncompatibleError if this version
    or this machine cannot run it; both before any of its code is loaded.  An archive is a program:
    open only what you would run.  `key`, a public Ed25519 key (a PEM file, or its bytes), must have
    signed it: else there is a SignatureError.
    """
    check_threads(threads)
    if mmap is not None and not isinstance(mmap, bool):
        raise OptionError(f"mmap is {mmap!r}, expected True, False or None")
    if weights is not None:
        return _streamed(path, threads, mmap, parse_nbytes(weights, "weights"), key)
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


def _streamed(
    path: str | os.PathLike[str] | archive.Content, threads: int | None, mmap: bool | None,
    nbytes: int, key: signature.Key | None,
) -> Executable:  # fmt: skip
    """Return the Executable of an archive whose weights are read as it runs."""
    if mmap is False:
        raise OptionError("mmap is False with streamed weights, expected True or None")
    if not isinstance(path, str | os.PathLike):
        raise OptionError("the archive is bytes, expected a file to stream weights from")
    archived, file = archive.read_mapped(path, key)
    if not isinstance(archived, Artifact):
        raise UnsupportedError(
            "streaming the weights of a model with dynamic dimensions, or whose graph depends on "
            "its data, is not supported",
            hint="fix its dimensions before it is compiled",
        )
    return stream(archived, file, nbytes, threads)

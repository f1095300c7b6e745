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
    """Open an archive that `Executable.save` wrote, and return its Executable.

    `open` compiles nothing.  The archive of a model with dynamic dimensions holds the code compiled
    before and the graph; a call with other dimensions compiles more code.  The archive of a model
    whose graph depends on its data holds the parts that earlier calls used.  A call that needs
    another part raises UnsupportedError.

    An archive is a program: open only archives from a source that you trust.

    Args:
        path: the file, or the bytes of one, which are copied.
        threads: the number of threads of a call, 1 to 1024; None: one for each CPU that this
            process may use.
        mmap: True maps the weights from the file, False copies them; None copies archives of at
            most 64 MiB.  A mapped file may be replaced, but not overwritten: calls then raise
            ModelError.
        weights: the memory for weights: bytes, or a text like "800MB".  Each call reads weights
            from the file, so they never take more.  None: all weights stay in memory.
        key: the public Ed25519 key, a PEM file or its bytes, that must have signed the archive.

    Returns:
        The compiled model.

    Raises:
        ModelError: if the file is damaged or no archive.
        IncompatibleError: if this version of Alpenglow or this processor cannot run the code.
        SignatureError: if `key` has not signed the archive.
        UnsupportedError: if `weights` is given for a model with dynamic dimensions or parts.
        OptionError: if an argument has a wrong value.

    Example:
        >>> ag.compile("model.onnx", shapes={"x": (2, 8)}).save("model.ago")
        >>> exe = ag.open("model.ago")
        >>> exe.inputs
        {'x': f32[2,8]}
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

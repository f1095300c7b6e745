"""Files that commands write, none of which may be one that they read."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

import click

from alpenglow.base import whole, words
from alpenglow.base.errors import OptionError


class Written(click.Path):
    """The type of an option that names a file to write, and the endings of files beside it."""

    def __init__(self, *beside: str) -> None:
        super().__init__(path_type=Path, dir_okay=False)
        self.beside = beside


def refuse_overwriting(ctx: click.Context, written: Iterable[tuple[str, Path]] = ()) -> None:
    """Raise OptionError if a file that the command writes is one that it reads, by any name.

    `written` are files in addition to those that options of the type `Written` name.
    """
    read = [(name, path) for name, path in _read(ctx) if os.path.isfile(path)]
    before: list[tuple[str, Path]] = []
    for option, path in (*_written(ctx), *written):
        for name, other in read:
            if _same(path, other):
                raise _overwriting(option, path, f"the file that {name} names")
            if os.path.isfile(path) and any(_same(path, part) for part in _parts(other)):
                raise _overwriting(option, path, f"a part of what {name} names")
        for name, other in before:
            if Path(os.path.abspath(path)) == Path(os.path.abspath(other)) or _same(path, other):
                raise _overwriting(option, path, f"the file that {name} writes")
        before.append((option, path))


def _read(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Yield the parameters that name files to read, and the files; in NAME=FILE, too."""
    for p in ctx.command.params:
        value = ctx.params.get(p.name or "")
        if isinstance(value, Path) and not isinstance(p.type, Written):
            yield p.opts[0] if isinstance(p, click.Option) else p.human_readable_name, value
        texts = (value,) if isinstance(value, str) else value if isinstance(value, tuple) else ()
        for text in texts:
            yield from ((p.opts[0], Path(word)) for word in (text, text.partition("=")[2]))


def _written(ctx: click.Context) -> Iterator[tuple[str, Path]]:
    """Yield the options that name files to write, and the files, with those beside them."""
    for p in ctx.command.params:
        path = ctx.params.get(p.name or "")
        if isinstance(p.type, Written) and isinstance(path, Path):
            yield p.opts[0], path
            yield from ((p.opts[0], path.with_name(path.name + end)) for end in p.type.beside)


def _parts(model: Path) -> Iterator[Path]:
    """Yield the files beside a model that belong to it."""
    yield weights_path(model)
    # Only where an output exists already: an archive runs without a front end.
    yield from import_module("alpenglow.frontends.onnx.front_end").external_files(model)


def _overwriting(option: str, path: Path, what: str) -> OptionError:
    return OptionError(f"{option}: {path} is {what}, expected another file")


def _same(path: Path, other: Path) -> bool:
    return os.path.isfile(path) and os.path.isfile(other) and path.samefile(other)


def weights_path(path: Path) -> Path:
    """Return where the constants of a text stand."""
    return path.with_name(path.name + ".npz")


def write(path: Path, fill: whole.Fill) -> None:
    """Let `fill` write a file that nobody ever sees a part of; on any error `path` is as it was."""
    write_all({path: fill})


def write_all(fills: Mapping[Path, whole.Fill]) -> None:
    """Write several files, all of them or none."""
    for path in fills:
        check_folder(path)
    whole.write_all(fills)


def check_folder(path: Path) -> None:
    """Raise FileNotFoundError if there is no folder for a file: before long work, not after."""
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))


def stems(names: Iterable[str]) -> dict[str, str]:
    """Return a file name for each name, no two alike even where case does not count."""
    listed = list(names)
    plain = (re.sub(r"[^\w.-]+", "_", name).lstrip(".") or "output" for name in listed)
    return dict(zip(listed, words.apart(plain), strict=True))

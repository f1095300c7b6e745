"""The format "wheel": a package for pip with a shared library and a few lines of Python around it.

The library needs no other and asks nothing of the system but to be loaded, so the wheel fits every
Linux of its architecture, whatever its C library.  What it needs of the processor beyond what its
architecture's tag promises is looked up when it is imported.

Files are stored, not compressed: the same model then gives the same bytes whichever zlib is here,
and floats hardly shrink.
"""

from __future__ import annotations

import base64
import hashlib
import io
import keyword
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from importlib.resources import files

from alpenglow.base.errors import OptionError
from alpenglow.base.words import counted
from alpenglow.bundles.elf.linux_flags import needed_flags
from alpenglow.bundles.elf.shared import file_name, library
from alpenglow.bundles.extents import ROWS
from alpenglow.bundles.job import Job, Made
from alpenglow.bundles.mutable import State, Symbol
from alpenglow.bundles.plan import Routine
from alpenglow.ir.dims import is_open
from alpenglow.ir.types import NARROW

RUNTIME = "runtime.py"
"""The file that calls libraries; in a wheel it is `_runtime.py`."""

_PLATFORMS = {
    "x86-64": ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "musllinux_1_1_x86_64"),
    "aarch64": ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "musllinux_1_1_aarch64"),
    "arm": ("manylinux2014_armv7l", "manylinux_2_17_armv7l", "musllinux_1_1_armv7l"),
    "riscv64": ("manylinux_2_31_riscv64", "musllinux_1_2_riscv64"),
}


def wheel_files(job: Job) -> Made:
    """Return the wheel."""
    _refuse(job)
    tag = ".".join(_PLATFORMS[job.layout.target.architecture])
    image, needs = library(_embedded(job))
    package, about = job.name, f"{_distribution(job.name)}-{job.release}.dist-info"
    content = {
        f"{package}/__init__.py": _module(job).encode(),
        f"{package}/_runtime.py": (files("alpenglow.bundles.wheel") / RUNTIME).read_bytes(),
        f"{package}/py.typed": b"",
        f"{package}/{file_name(job.name)}": image,
        f"{about}/METADATA": _metadata(job).encode(),
        f"{about}/WHEEL": _about_wheel(job).encode(),
    }
    record = f"{about}/RECORD"
    lines = [*(f"{path},{_digest(c)},{len(c)}" for path, c in content.items()), f"{record},,"]
    content[record] = "".join(f"{line}\n" for line in lines).encode()
    name = f"{_distribution(job.name)}-{job.release}-py3-none-{tag}.whl"
    return Made({name: _zipped(content)}, needs)


def _embedded(job: Job) -> Job:
    """Return the job with weights in the library, where all processes on a machine share them."""
    return Job(
        job.name, job.layout, "static", True, True, job.progress, job.version, release=job.release
    )


def _refuse(job: Job) -> None:
    """Raise OptionError for what a wheel cannot be called or be for."""
    target = job.layout.target
    if target.os != "linux" or target.architecture not in _PLATFORMS:
        raise OptionError(
            f"a wheel holds a shared library for Linux, and {target} is not for Linux",
            hint="system='linux', with a target that runs it",
            flags="--system linux, with a target that runs it",
        )
    if job.api == "dynamic":
        raise OptionError(
            "api is 'dynamic', which is not supported for wheels",
            hint="api='static'", flags="leave --api out",
        )  # fmt: skip
    if job.name in sys.stdlib_module_names or job.name == "numpy":
        raise OptionError(
            f"a package called '{job.name}' would hide another",
            hint=f"entry='{job.name}_model'",
            flags=f"--entry {job.name}_model",
        )
    for name in (job.name, *_variants(job)):
        if keyword.iskeyword(name) or not _distribution(name):
            raise OptionError(
                f"'{name}' cannot be a name in Python",
                hint=f"entry='{name}_model'",
                flags=f"--entry {name}_model",
            )
    for name in _variants(job):
        if name.startswith("_") or name == "run":
            raise OptionError(f"function is '{name}', expected a name other than run and _…")
    if not re.fullmatch(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", job.release):
        raise OptionError(
            f"'{job.release}' is no version of a wheel", hint="release='1.0'", flags="--release 1.0"
        )


def _variants(job: Job) -> list[str]:
    """Return the names of the functions, if there are several."""
    entries = [r.entry for r in job.layout.routines]
    return entries if len(entries) > 1 else []


def _distribution(name: str) -> str:
    """Return the name by which pip knows the package: lower case, without leading underscores."""
    return re.sub(r"_+", "_", name).strip("_").lower()


# ── Python ──


def _module(job: Job) -> str:
    """Return the text of __init__.py."""
    layout, name = job.layout, job.name
    state = layout.routines[0].state
    needed = needed_flags(layout.target)
    lines = [
        f'"""{name}, a neural network compiled by Alpenglow {job.version} for {layout.target}.',
        "",
        *_described(layout.routines),
        '"""',
        "",
        "from pathlib import Path",
        "",
        "from . import _runtime",
        "",
        f"__all__ = {['run', *_variants(job)] if state is None else ['session']!r}",
        f"__version__ = {job.release!r}",
        "",
        "_library = _runtime.SharedLibrary(",
        f"    Path(__file__).with_name({file_name(name)!r}),",
        f'    "{name}_constants",',
        f"    {needed!r},",
        ")",
    ]
    names = _variants(job) or ["run"]
    if state is not None:
        names = [f"_{name}" for name in names]
    for name_, routine in zip(names, layout.routines, strict=True):
        lines += _routine(routine, name_)
    if state is not None:
        lines += _session(state, names)
    elif len(names) > 1:
        lines.append(f"run = _runtime.Choice({', '.join(names)})")
    return "\n".join(lines) + "\n"


def _session(state: State, names: list[str]) -> Iterator[str]:
    """Define what makes sessions."""
    choice = f"_runtime.Choice({', '.join(names)})"
    yield from ("", "", "def session() -> _runtime.Session:")
    yield '    """Return what calls the model with a state of its own, as before any call."""'
    yield f"    return _runtime.Session(_library, {state.name!r}, {choice}, {state.length})"


def _described(routines: tuple[Routine, ...]) -> Iterator[str]:
    state = routines[0].state
    if state is not None:
        room = f", with room for {counted(state.length, 'row')} of state" if state.length else ""
        yield f"session() returns what is called with arrays{room}"
    for routine in routines:
        name = routine.entry if len(routines) > 1 else "run" if state is None else "a session"
        yield f"{name}(…) takes" if state is None else f"{name} takes"
        for s in _visible(routine):
            yield f"    {_plain(s)}"
        yield "and returns"
        for s in routine.outputs:
            yield f"    {_plain(s)}"


def _plain(s: Symbol) -> str:
    """Return an input or output for reading, without what would end a string."""
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in f"{s.name}: {s.shown}")


def _routine(routine: Routine, name: str) -> Iterator[str]:
    yield f"{name} = _runtime.Routine("
    yield "    _library,"
    yield f"    {routine.entry!r},"
    for symbols in (_visible(routine), routine.outputs):
        yield "    ["
        for s in symbols:
            kind, dtype = _elements(s)
            shape, now = _shape(s)
            yield (
                f"        _runtime.Tensor({s.name!r}, {kind!r}, {dtype!r}, {shape!r}, "
                + (f"{s.offset}{now}),")
            )
        yield "    ],"
    yield f"    mutable_nbytes={routine.mutable_nbytes},"
    yield f"    scratch_nbytes={routine.scratch_nbytes},"
    hidden = {s.offset: s.type.nbytes for s in routine.inputs if s.hidden}
    yield f"    random={hidden!r},"
    yield f"    out_of_range={routine.stop_word.offset + 8 if routine.checks else 0},"
    yield ")"


def _shape(s: Symbol) -> tuple[tuple[int | str, ...], str]:
    """Return the shape of a symbol, and what tells it where that depends on rows of state."""
    if not any(map(is_open, s.now)):
        return s.type.extents, ""
    shape = tuple(str(d) if is_open(d) else int(d) for d in s.now)
    return shape, f", lambda {ROWS}: ({''.join(f'{d}, ' for d in shape)})"


def _visible(routine: Routine) -> list[Symbol]:
    return [s for s in routine.inputs if not s.hidden]


def _elements(s: Symbol) -> tuple[str, str]:
    """Return what the elements are, and NumPy's type for them or for their bits."""
    kind = s.type.numpy.name
    if s.type.dtype == "bf16":
        return kind, "uint16"
    return kind, "uint8" if s.type.dtype in NARROW else kind


# ── the files about the package ──


def _metadata(job: Job) -> str:
    described = "\n".join(f"    {line}" for line in _described(job.layout.routines))
    return (
        "Metadata-Version: 2.1\n"
        f"Name: {_distribution(job.name)}\n"
        f"Version: {job.release}\n"
        f"Summary: {job.name}, a neural network compiled for {job.layout.target}\n"
        "Requires-Python: >=3.10\n"
        "Requires-Dist: numpy>=1.20\n"
        "Description-Content-Type: text/markdown\n"
        "\n"
        f"`import {job.name}`, where\n\n{described}\n"
    )


def _about_wheel(job: Job) -> str:
    tags = "".join(f"Tag: py3-none-{p}\n" for p in _PLATFORMS[job.layout.target.architecture])
    return (
        f"Wheel-Version: 1.0\nGenerator: alpenglow ({job.version})\nRoot-Is-Purelib: false\n{tags}"
    )


def _digest(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return f"sha256={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _zipped(content: Mapping[str, bytes]) -> bytes:
    """Return an archive of files, with nothing in it of when and where it was made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            entry.external_attr = (0o100755 if path.endswith(".so") else 0o100644) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()

"""The formats that a bundle can have, each a function from a job to files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from alpenglow.base.errors import OptionError
from alpenglow.bundles.c.example import example
from alpenglow.bundles.c.header import header, weights_header
from alpenglow.bundles.c.project import cmake, pkg_config
from alpenglow.bundles.c.source import source, stack_nbytes
from alpenglow.bundles.elf.object import emit
from alpenglow.bundles.elf.shared import file_name, library
from alpenglow.bundles.job import Format, Job, Made, Needs
from alpenglow.bundles.opencl.source import opencl_files
from alpenglow.bundles.wasm.module import wasm_files
from alpenglow.bundles.wheel.package import wheel_files

ARRAY_NBYTES = 64 << 20
"""Weights larger than this are not written as a C array as well: no compiler would like it."""


def object_files(job: Job) -> Made:
    """Return an object file, its header, and what a build needs to find both."""
    layout, name = job.layout, job.name
    emitted = emit(
        layout,
        pic=layout.target.os not in ("none", "unknown", ""),
        api=job.api,
        embed=name if job.embedded else "",
        freestanding=job.freestanding,
        progress=job.progress,
    )
    contents = {
        f"{name}.o": emitted.image,
        **interface(job, emitted.needs),
        **_project(job, f"{name}.o", f"${{prefix}}/{name}.o"),
    }
    return Made(contents, emitted.needs)


def shared_files(job: Job) -> Made:
    """Return a shared library, its header, and what a build needs to find both."""
    image, needs = library(job)
    file = file_name(job.name)
    flags = f"-L${{prefix}} -l{job.name} -Wl,-rpath,${{prefix}}"
    return Made({file: image, **interface(job, needs), **_project(job, file, flags)}, needs)


def _project(job: Job, file: str, libraries: str) -> dict[str, bytes]:
    """Return what builds need to find what is linked, and an example."""
    name, target = job.name, str(job.layout.target)
    return {
        "CMakeLists.txt": cmake(name, job.api, job.embedded, file).encode(),
        f"{name}.pc": pkg_config(name, target, job.version, libraries).encode(),
        "main.c": example(job.layout, name, job.api, job.embedded).encode(),
    }


def interface(job: Job, needs: Needs) -> dict[str, bytes]:
    """Return what all formats for C have: headers, weights, and threads for the dynamic API."""
    layout, name = job.layout, job.name
    text = header(layout, name, job.api, job.embedded, needs, job.version)
    contents = {f"{name}.h": text.encode()}
    if not job.embedded:
        contents[f"{name}.weights.bin"] = layout.weights()
        if layout.constants_nbytes <= ARRAY_NBYTES:
            contents[f"{name}.weights.h"] = weights_header(layout, name).encode()
    if job.api == "dynamic":
        for file in ("alpenglow_bundle.h", "alpenglow_threads.h", "alpenglow_threads.c"):
            contents[file] = (files("alpenglow.bundles") / "c" / file).read_bytes()
    return contents


def c_files(job: Job) -> Made:
    """Return the source of the kernels and entry points in C, and its header."""
    if any(r.choices for r in job.layout.routines):
        raise OptionError(
            f"C is compiled for one machine, not for {job.layout.target}",
            hint="name one target; format='object' can choose among them",
            flags="name one target; --format object can choose among them",
        )
    text = source(job.layout, job.name, job.api, job.embedded, job.portable)
    needs = Needs(0, 0, stack_nbytes(job.layout), compiled=False)
    file = f"{job.name}.c"
    project = _project(job, file, f"${{prefix}}/{file}")
    return Made({file: text.encode(), **interface(job, needs), **project}, needs)


FORMATS: Mapping[str, Format] = {
    "object": object_files, "c": c_files, "wasm": wasm_files,
    "shared": shared_files, "wheel": wheel_files, "opencl": opencl_files,
}  # fmt: skip

"""The formats that a bundle can have, each a function from a job to files."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

from alpenglow.bundle.c import source, stack_nbytes
from alpenglow.bundle.example import example
from alpenglow.bundle.header import header, weights_header
from alpenglow.bundle.job import Format, Job, Made, Needs
from alpenglow.bundle.object import emit
from alpenglow.bundle.project import cmake, pkg_config

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
    made = {
        f"{name}.o": emitted.image,
        **interface(job, emitted.needs),
        "CMakeLists.txt": cmake(name, job.api, job.embedded).encode(),
        f"{name}.pc": pkg_config(name, str(layout.target), job.version).encode(),
        "main.c": example(layout, name, job.api, job.embedded).encode(),
    }
    return Made(made, emitted.needs)


def interface(job: Job, needs: Needs) -> dict[str, bytes]:
    """Return what all formats for C have: headers, weights, and threads for the dynamic API."""
    layout, name = job.layout, job.name
    text = header(layout, name, job.api, job.embedded, needs, job.version)
    made = {f"{name}.h": text.encode()}
    if not job.embedded:
        made[f"{name}.weights.bin"] = layout.weights()
        if layout.constants_nbytes <= ARRAY_NBYTES:
            made[f"{name}.weights.h"] = weights_header(layout, name).encode()
    if job.api == "dynamic":
        for file in ("alpenglow_bundle.h", "alpenglow_threads.h", "alpenglow_threads.c"):
            made[file] = (files("alpenglow.bundle") / "c" / file).read_bytes()
    return made


def c_files(job: Job) -> Made:
    """Return the source of the kernels and entry points in C, and its header."""
    text = source(job.layout, job.name, job.api, job.embedded, job.portable)
    needs = Needs(0, 0, stack_nbytes(job.layout))
    main = example(job.layout, job.name, job.api, job.embedded)
    made = {f"{job.name}.c": text.encode(), **interface(job, needs), "main.c": main.encode()}
    return Made(made, needs)


FORMATS: Mapping[str, Format] = {"object": object_files, "c": c_files}

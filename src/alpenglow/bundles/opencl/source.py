"""Bundles for OpenCL: NAME.c, which holds the kernels as text and drives a device.

Kernels are those that `compile` writes for the same target, each a program of its own, so that a
device's compiler makes the same of it.  The three regions of a bundle are three memory objects: the
weights are copied there when a model is made, inputs and outputs at each call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import zip_longest

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.bundles.c.project import pkg_config
from alpenglow.bundles.c.source import byte_array
from alpenglow.bundles.job import Job, Made, Needs
from alpenglow.bundles.mutable import MEMORIES, Place, Symbol
from alpenglow.bundles.opencl.header import header, signature
from alpenglow.bundles.opencl.project import cmake, example
from alpenglow.bundles.plan import BundlePlan, Command, Goto, KernelCall, KernelCode, Routine
from alpenglow.kernel.stmt import Kernel
from alpenglow.machines.opencl.emit import as_text, launch
from alpenglow.render.opencl.operations import NEWER


def opencl_files(job: Job) -> Made:
    """Return the source of a bundle that runs on OpenCL devices, its header and its weights.

    Raises UnsupportedError if OpenCL C has no form of an operator, naming all such operators.
    """
    _refuse(job)
    layout, name = job.layout, job.name
    contents = {
        f"{name}.c": _source(job).encode(),
        f"{name}.h": header(layout, name, job.embedded, job.version).encode(),
        "main.c": example(layout, name, job.embedded).encode(),
        "CMakeLists.txt": cmake(name, job.embedded).encode(),
        f"{name}.pc": pkg_config(
            name, str(layout.target), job.version, f"${{prefix}}/{name}.c -lOpenCL"
        ).encode(),
    }
    if not job.embedded:
        contents[f"{name}.weights.bin"] = layout.weights()
    return Made(contents, Needs(0, 0, 0, compiled=False, on_host=False))


def _refuse(job: Job) -> None:
    """Raise an error for what these bundles do not have."""
    target = job.layout.target
    if target.machine not in OPENCL:
        raise OptionError(
            f"a bundle for OpenCL is made for its devices, not for {target}",
            hint="target='opencl-gpu' or 'opencl-cpu'",
            flags="--target opencl-gpu or opencl-cpu",
        )
    if job.api != "static":
        raise OptionError(
            f"bundles for OpenCL have one API, not the {job.api} one: a device brings its threads",
            hint="api='static'",
            flags="--api static",
        )
    if job.freestanding or job.portable:
        raise OptionError("freestanding and portable are not supported for OpenCL bundles, which "
                          "are C99 that calls OpenCL")  # fmt: skip
    for routine in job.layout.routines:
        if routine.entry in _names(job.name) or re.fullmatch(r"kernel_\d+", routine.entry):
            raise OptionError(
                f"'{routine.entry}' is a name in the source of the bundle, so no entry point can "
                "have it",
                hint=f"entry='{routine.entry}_1'",
                flags=f"--entry {routine.entry}_1",
            )
    if job.layout.routines[0].state is not None:
        raise UnsupportedError(
            "a bundle for OpenCL keeps no state yet",
            hint="leave state out, and pass caches as inputs and outputs",
            flags="leave --state out, and pass caches as inputs and outputs",
        )


OPENCL = ("opencl-cpu", "opencl-gpu")
"""The machines that these bundles are for."""


def _template() -> str:
    return (files("alpenglow.bundles") / "c" / "opencl_model.c").read_text()


def _names(name: str) -> set[str]:
    """Return what is a name all over the source, or in its header."""
    text = _template()
    functions = re.findall(r"^(?:static|extern)[^(\[=]*?(\w+)[(\[]", text, re.MULTILINE)
    constants = [word for line in re.findall(r"^enum {(.*)}", text, re.MULTILINE)
                 for word in re.findall(r"[A-Z_]+", line)]  # fmt: skip
    ours = [f"{name}_{what}" for what in ("create", "create_on", "destroy", "message")]
    return {*functions, *constants, *ours, "handle", "sources", "places", "numbers", "launches"}


def _source(job: Job) -> str:
    """Return the text of NAME.c."""
    layout, name = job.layout, job.name
    tables = _Tables(layout)
    scratch = max(r.scratch_nbytes for r in layout.routines)
    mutable = max(r.mutable_nbytes for r in layout.routines)
    entries = [_entry(name, r, first, count) for r, first, count in tables.routines]
    if job.embedded:
        entries.insert(0, byte_array(f"{name}_constants", layout.weights()))
    parts = {
        "TABLES": "\n\n".join(tables.text()),
        "ENTRIES": "\n\n".join(entries),
        "CHECKS": "".join(_cleared(layout, name)),
        "REGIONS": ", ".join(map(str, (layout.constants_nbytes, mutable, scratch))),
        "KERNELS": str(len(tables.sources)),
        "LAUNCHES": str(len(tables.launches)),
        "TARGET": str(layout.target),
        "VERSION": job.version,
        "UPPER": name.upper(),
        "NAME": name,
    }
    pieces = _template().split("@")
    return "".join(parts.get(p, p) if i % 2 else p for i, p in enumerate(pieces)).rstrip() + "\n"


def _cleared(layout: BundlePlan, name: str) -> Iterator[str]:
    """Yield what makes the words in which kernels leave what is out of range 0."""
    places = sorted({int(r.stop_word.offset) for r in layout.routines if r.checks})
    if places:
        yield "  static const int64_t nothing[2] = {0, 0};\n"
    for offset in places:
        yield (
            f"  error = clEnqueueWriteBuffer(m->queue, m->memory[MUTABLE], 1, {offset}, "
            "sizeof nothing,\n                               nothing, 0, NULL, NULL);\n"
            f'  if (error)\n    return refused(m, error, "begin with", "{name}");\n'
        )


def _entry(name: str, routine: Routine, first: int, count: int) -> str:
    """Return the definition of an entry point."""
    words = int(routine.stop_word.offset) if routine.checks else -1
    inputs, outputs = routine.inputs, routine.outputs
    lines = [
        f"{signature(name, routine)} {{",
        *_copies("inputs", inputs), *_copies("outputs", outputs),
        *_pointers("const void *const from", [f"input_{s.ident}" for s in inputs]),
        *_pointers("void *const to", [f"output_{s.ident}" for s in outputs]),
        f"  return run(model, {first}, {count}, inputs, from, {len(inputs)}, outputs, to, "
        f"{len(outputs)}, {words});",
        "}",
    ]  # fmt: skip
    return "\n".join(lines)


def _copies(what: str, symbols: Sequence[Symbol]) -> Iterator[str]:
    listed = ", ".join(f"{{{s.offset}, {s.type.nbytes}}}" for s in symbols)
    yield f"  static const struct copy {what}[] = {{{listed or '{0, 0}'}}};"


def _pointers(what: str, names: Sequence[str]) -> Iterator[str]:
    yield f"  {what}[] = {{{', '.join(names) or 'NULL'}}};"


class _Tables:
    """The tables that NAME.c reads: texts of kernels, launches, and where their operands lie.

    `routines` are the entry points, each with its first launch and how many there are.
    """

    def __init__(self, layout: BundlePlan) -> None:
        self.sources: list[str] = []
        self.launches: list[str] = []
        self.routines: list[tuple[Routine, int, int]] = []
        self._texts: list[str] = []
        self._places: list[str] = []
        self._numbers: list[int] = []
        self._index = {name: i for i, name in enumerate(layout.kernels)}
        kernels = _rendered(layout)
        self._grids = [launch(kernel) for _, kernel, _ in kernels]
        for code, _, text in kernels:
            self._source(code, text)
        for routine in layout.routines:
            (branch,) = routine.branches
            first = len(self.launches)
            self._launch_all(branch.calls)
            self.routines.append((routine, first, len(self.launches) - first))

    def text(self) -> Iterator[str]:
        """Yield the definitions of the tables."""
        yield from self._texts
        yield _table("struct source sources", self.sources)
        yield _table("struct place places", self._places)
        yield _table("int64_t numbers", list(map(str, self._numbers)), "0")
        yield _table("struct launch launches", self.launches)

    def _source(self, code: KernelCode, text: str) -> None:
        """Add the text of a kernel, line by line: compilers cut long strings off."""
        number, lines = len(self.sources), text.splitlines()
        standard = "-cl-std=CL3.0" if text.startswith(NEWER) else "-cl-std=CL1.2"
        quoted = "".join(f'  "{_escaped(line)}\\n",\n' for line in lines)
        self._texts.append(
            f"/* {code.what} */\nstatic const char *const kernel_{number}[] = {{\n{quoted}}};"
        )
        name = code.kernel.name
        self.sources.append(f'{{"{name}", "{standard}", kernel_{number}, {len(lines)}}}')

    def _launch_all(self, calls: Sequence[Command]) -> None:
        """Add the launches of calls, and the jumps among them, which lead from launch to launch."""
        begins: list[int] = []
        jumps: dict[int, Goto] = {}
        for call in calls:
            begins.append(len(self.launches))
            if isinstance(call, Goto):
                jumps[len(self.launches)] = call
                self.launches.append("")
            else:
                self._launch(call)
        begins.append(len(self.launches))
        for number, call in jumps.items():
            kind = "ALWAYS" if call.flag is None else "WHERE_TRUE" if call.when else "WHERE_FALSE"
            place = len(self._places)
            self._places += [] if call.flag is None else [_place(call.flag)]
            self.launches[number] = f"{{{kind}, {place}, 0, {begins[call.to]}, 0, 0, {{0}}, {{0}}}}"

    def _launch(self, call: KernelCall) -> None:
        """Add the launch of a kernel, unless no thread of it would run."""
        number = self._index[call.kernel]
        groups, threads = self._grids[number]
        if 0 in groups:
            return
        axes = [(int(g), int(t)) for g, t in zip_longest(groups, threads, fillvalue=1)]
        total = ", ".join(str(g * t) for g, t in axes)
        group = ", ".join(str(t) for _, t in axes)
        at = f"{len(self._places)}, {len(call.args)}, {len(self._numbers)}, {len(call.extents)}"
        self.launches.append(f"{{{number}, {at}, {len(axes)}, {{{total}}}, {{{group}}}}}")
        self._places += map(_place, call.args)
        self._numbers += [int(d) for d in call.extents]


def _place(place: Place) -> str:
    return f"{{{MEMORIES.index(place.memory)}, {place.offset}}}"


def _rendered(layout: BundlePlan) -> list[tuple[KernelCode, Kernel, str]]:
    """Return all kernels, as devices run them, with their texts."""
    rendered: list[tuple[KernelCode, Kernel, str]] = []
    lacking: dict[str, str] = {}
    for code in layout.kernels.values():
        try:
            written = as_text(code.kernel, code.target, code.aliased, code.exact)
        except UnsupportedError as error:
            lacking.setdefault(code.what.partition(":")[0], error.message)
            continue
        rendered.append((code, written.kernel, written.text))
    if lacking:
        listed = "; ".join(f"{what} ({why})" for what, why in sorted(lacking.items()))
        raise UnsupportedError(f"operators that are not supported in OpenCL C: {listed}")
    return rendered


def _table(what: str, rows: Sequence[str], nothing: str = "{0}") -> str:
    """Return the definition of an array, which C wants to have an element."""
    listed = "".join(f"  {row},\n" for row in rows or [nothing])
    return f"static const {what}[] = {{\n{listed}}};"


def _escaped(line: str) -> str:
    return line.replace("\\", "\\\\").replace('"', '\\"')

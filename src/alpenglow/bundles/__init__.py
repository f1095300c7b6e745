"""Bundles: a model as files that a C programmer links, for any machine, with nothing of ours.

`bundle` plans a model for a target as `compile` does, lays out its memory (`plan`), and writes it
in a format (`formats`).  Kernels are those that `compile` makes for the same target, so the results
are the same, bit by bit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from alpenglow.base import deadline
from alpenglow.base.errors import OptionError
from alpenglow.base.words import counted, shown
from alpenglow.bundles.elf.fat import require_fat
from alpenglow.bundles.elf.system import for_system
from alpenglow.bundles.entry import APIS, Api
from alpenglow.bundles.footprint import ONLY_COMPILED, Limits, footprint
from alpenglow.bundles.formats import FORMATS
from alpenglow.bundles.job import Job, Made, Needs
from alpenglow.bundles.mutable import State, identifiers
from alpenglow.bundles.opencl.source import OPENCL
from alpenglow.bundles.plan import BundlePlan, Planned, Routine, fat_layout
from alpenglow.bundles.rows import grown, refuse_length
from alpenglow.bundles.write import refuse_existing, write_folder
from alpenglow.compiler import Options
from alpenglow.compiler.pipeline import require_closed, run_stages
from alpenglow.driver.compile import Model, loaded
from alpenglow.driver.state import with_state
from alpenglow.ir.graph import Graph
from alpenglow.ir.staged import StagedModel, refuse_staged
from alpenglow.ir.target import Target
from alpenglow.passes.keep import check_kept
from alpenglow.program import Program

Weights = Literal["separate", "embedded"]
Shapes = Mapping[str, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Describe a bundle that was written; `str` returns the memory that it needs.

    Args:
        folder: the folder of the bundle.
        name: the name of the bundle and of its files.
        target: the target of the code.
        files: the sizes of the files in bytes, by name.
        constants_nbytes: the size of the weights in bytes.
        routines: the entry points, each with its inputs, outputs and memory.
        needs: the memory of the code, and the stack of a call.

    Example:
        >>> bundle = ag.bundle("model.onnx", "sizes", shapes={"x": (1, 8)})
        >>> bundle.constants_nbytes, bundle.routines[0].entry
        (1536, 'model')
    """

    folder: Path
    name: str
    target: Target
    files: Mapping[str, int]
    constants_nbytes: int
    routines: tuple[Routine, ...]
    needs: Needs

    @property
    def flash_nbytes(self) -> int:
        """Return the bytes of code and constants; of source code, the bytes of constants only."""
        return footprint(self.constants_nbytes, self.routines, self.needs).flash

    @property
    def ram_nbytes(self) -> int:
        """Return the bytes of mutable memory, scratch memory and stack during a call.

        If there are several entry points, this is the largest of their sums.
        """
        return footprint(self.constants_nbytes, self.routines, self.needs).ram

    def __str__(self) -> str:
        """Return the memory that the bundle needs, for reading."""
        code = self.needs.code_nbytes + self.needs.data_nbytes
        place = self.folder.joinpath(*self.files) if len(self.files) == 1 else self.folder
        lines = [f"{place}: {counted(len(self.files), 'file')} for {self.target}"]
        bound = "of one call, at most"
        if not self.needs.on_host:
            lines.append("  on the device")
        if self.needs.compiled:
            lines.append(f"  {'code':10} {code:>12,}")
        else:
            bound = "arrays of one call; a compiler adds to it"
        lines += [
            f"  {'constants':10} {self.constants_nbytes:>12,}   the weights, shared by all calls",
        ]
        state = self.routines[0].state
        holds = "inputs and outputs" if state is None else "state, inputs and outputs"
        lines += [] if state is None else _state(state)
        for r in self.routines:
            lines += [
                f"entry {r.entry}",
                f"  {'mutable':10} {r.mutable_nbytes:>12,}   {holds}",
                f"  {'scratch':10} {r.scratch_nbytes:>12,}   of one call",
            ]
            if self.needs.on_host:
                lines.append(f"  {'stack':10} {self.needs.stack_nbytes:>12,}   {bound}")
            lines.append(f"  {'work':10} {r.multiply_adds:>12,}   multiply-adds of a call")
            for s in r.symbols:
                kind = "output" if s.output else "input"
                most = f", at most {s.type}" if s.now else ""
                lines.append(f"  {kind:10} {s.offset:>12,}   {shown(s.name)}: {s.shown}{most}")
        if self.needs.on_host:
            flash = "code and constants" if self.needs.compiled else f"constants; {ONLY_COMPILED}"
            ram = "mutable, scratch and stack" + ", the largest entry" * (len(self.routines) > 1)
            lines += [
                "sum",
                f"  {'flash':10} {self.flash_nbytes:>12,}   {flash}",
                f"  {'RAM':10} {self.ram_nbytes:>12,}   {ram}",
            ]
        return "\n".join(lines)


def _state(state: State) -> list[str]:
    """Return what a bundle keeps from call to call, for reading."""
    room = f"room for {counted(state.length, 'row')}" if state.length else "kept from call to call"
    cells = (f"  {'':10} {c.offset:>12,}   {shown(c.name)}: {c.type}" for c in state.cells)
    return ["state", f"  {'of mutable':10} {state.nbytes:>12,}   {room}", *cells]


def bundle(
    model: Model,
    out: str | os.PathLike[str],
    *,
    target: str | Target = "cpu",
    api: Api = "static",
    entry: str | None = None,
    weights: Weights = "separate",
    format: str | None = None,
    shapes: Shapes | None = None,
    variants: Mapping[str, Shapes] | None = None,
    constants: Mapping[str, Any] | None = None,
    state: bool | Mapping[str, str] = False,
    last: Sequence[str] = (),
    length: int | None = None,
    freestanding: bool = False,
    portable: bool = False,
    release: str = "1.0",
    system: str | None = None,
    memory: int | str | None = None,
    flash: int | str | None = None,
    ram: int | str | None = None,
    options: Options | None = None,
    force: bool = False,
    rounding: str | None = None,
) -> Bundle:
    """Write a model as files that run without Alpenglow, and return their memory needs.

    An error leaves no files.

    Args:
        model: a model that `compile` takes.
        out: the folder to write, which must not exist unless `force` is True.
        target: the processor; several levels of x86-64, as "x86-64-v2,x86-64-v3", produce code that
            chooses one at run time.
        api: "static", or "dynamic", which adds `NAME_config` with sizes and the names of inputs and
            outputs, for programs that learn them at run time.
        entry: the name of the entry point and the files; None: after the model.
        weights: "separate" writes the weights to a file, "embedded" into the code.
        format: "object", "c", "wasm", "shared", "wheel" or "opencl"; None: "object", or "opencl"
            for OpenCL targets.
        shapes: the shapes of inputs with dynamic dimensions, by input name.
        variants: `shapes` of several entry points, by their names; they share the weights.
        constants: values of inputs that are the same in all calls; see `load`.
        state: the inputs that become variables, as for `compile`.  They are stored in the mutable
            memory; `NAME_reset`, `NAME_length` and `NAME_trim` control them.
        last: outputs of which only the last row is returned, as for `compile`.
        length: the number of rows that fit into variables that grow.
        freestanding: True writes code that calls no function, not even memcpy.
        portable: True writes plain C11 without vectors (format "c").
        release: the version of a wheel.
        system: "linux", "macos" or "windows"; None: this system if the target has its architecture,
            else linux.
        memory: the limit of the scratch memory of a call: bytes, or a text like "200KB".
        flash: the limit of code and constants together: bytes, or a text like "256KiB".
        ram: the limit of mutable memory, scratch memory and stack of a call together, likewise.
        options: the options of the compiler; None: `Options()`.
        force: True replaces a folder that holds only unchanged files of a bundle.
        rounding: how a quantized TFLite model rounds integers; see `load`.

    Returns:
        The files and the memory that the bundle needs.

    Raises:
        UnsupportedError: if a dynamic dimension is left, or an operator has no kernel.
        MemoryLimitError: if the compiler cannot keep to `memory`, and states the smallest limit;
            or if the bundle takes more than `flash` or `ram`, and lists its parts.
        OptionError: if the folder exists, or a name is not an identifier of C.

    Example:
        >>> bundle = ag.bundle("model.onnx", "out", shapes={"x": (1, 8)}, format="c")
        >>> sorted(bundle.files)[:3]
        ['CMakeLists.txt', 'main.c', 'model.c']
    """
    folder, limits = Path(out), Limits.parse(flash, ram)
    targets, settings = machines(target, system), options or Options()
    if memory is not None:
        settings = replace(settings, memory=memory)
    name, written = entry or _name_of(model), format or default_format(targets)
    check(folder, name, api, written, tuple(variants or ()), force)
    asked: Mapping[str, Shapes | None] = variants or {name: shapes}
    with deadline.limited(settings.timeout):
        graphs = {e: _graph(model, s, constants, rounding, state, last) for e, s in asked.items()}
        programs = {
            t: {e: planned(g, t, settings, length=length) for e, g in graphs.items()}
            for t in targets
        }
        made = produced(
            programs, name, api=api, embedded=weights == "embedded", format=written,
            freestanding=freestanding, portable=portable, release=release, options=settings,
        )  # fmt: skip
    return write(made, folder, name, force, limits)


def machines(target: str | Target, system: str | None = None) -> tuple[Target, ...]:
    """Return the targets that a text with commas names, or the one that it names without.

    Raises OptionError if no code can choose among them as it runs.
    """
    if isinstance(target, Target) or "," not in target:
        return (parsed(target, system),)
    targets = tuple(parsed(each, system) for each in target.split(","))
    require_fat(targets)
    return targets


def parsed(target: str | Target, system: str | None = None) -> Target:
    """Return the target on a system; raise OptionError if no machine code is made for it."""
    chosen = target if isinstance(target, Target) else Target.parse(target)
    if chosen.machine in OPENCL and system is None:
        return chosen
    if not chosen.triple:
        raise OptionError(
            f"target '{chosen}' has no machine code, and a bundle is nothing else",
            hint="name a machine: cpu, x86-64-v3, aarch64, cortex-m4, opencl-gpu …",
        )
    return chosen if system is None else for_system(chosen, system)


def default_format(targets: Sequence[Target]) -> str:
    """Return the format that is written unless another is asked for."""
    return "opencl" if targets[0].machine in OPENCL else "object"


def check(
    folder: Path, name: str, api: str, format: str, entries: Sequence[str] = (), force: bool = False
) -> None:
    """Raise OptionError if a bundle cannot be written there or under these names."""
    refuse_existing(folder, force)
    for what, choice, known in (("API", api, APIS), ("format", format, tuple(FORMATS))):
        if choice not in known:
            raise OptionError(f"{what} is '{choice}', expected one of {', '.join(known)}")
    for each in (name, *entries):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each) or each in _RESERVED:
            raise OptionError(
                f"'{each}' cannot be the name of a function in C",
                hint=f"entry='{_identifier(each)}'",
                flags=f"--entry {_identifier(each)}",
            )
    if len({each.upper() for each in entries}) < len(entries):
        raise OptionError(f"entry points are {', '.join(entries)}, expected other names, not case")
    if len(entries) > 1 and name in entries:
        raise OptionError(f"entry point is '{name}', expected another name than the bundle has")


def planned(
    ir: Graph | Program,
    target: Target,
    options: Options,
    resume: str = "",
    length: int | None = None,
) -> Planned:
    """Return the program that `compile` would make of a graph, or of what pass `resume` made.

    Where state grows, these are programs for each number of rows up to `length`.  Raises
    UnsupportedError if they cannot be known before they run.
    """
    refuse_length(ir, length)
    if isinstance(ir, Graph) and length is not None:
        check_kept(ir, options.keep)
        return grown(ir, target, options, length)
    model: Any = ir
    if isinstance(ir, Graph):
        require_closed(ir)
        if not resume:
            check_kept(ir, options.keep)
        model = ir.copy()
    for _, stage in run_stages(model, target, options, resume):
        model = stage
    assert isinstance(model, Program), "the last stage makes a program"
    return model


def write(
    made: tuple[BundlePlan, Made], folder: Path, name: str, force: bool = False,
    limits: Limits | None = None,
) -> Bundle:  # fmt: skip
    """Write a plan and its files into a folder.

    Raises MemoryLimitError, and writes nothing, if the bundle exceeds `limits`.
    """
    layout, product = made
    if limits is not None:
        limits.check(footprint(layout.constants_nbytes, layout.routines, product.needs))
    write_folder(folder, product.files, force)
    sizes = {file: len(content) for file, content in product.files.items()}
    return Bundle(
        folder, name, layout.target, sizes, layout.constants_nbytes, layout.routines, product.needs
    )


def produced(
    programs: Mapping[Target, Mapping[str, Planned]],
    name: str,
    *,
    api: Api,
    embedded: bool,
    format: str,
    freestanding: bool,
    portable: bool = False,
    release: str = "1.0",
    options: Options,
) -> tuple[BundlePlan, Made]:
    """Return the layout of planned programs, one for each target and entry point, and the files of
    their bundle."""
    for target in programs:
        if target.machine in OPENCL and format != "opencl":
            raise OptionError(
                f"code for {target} is OpenCL C, not {format}",
                hint="format='opencl'",
                flags="--format opencl",
            )
    layout: BundlePlan = fat_layout(programs, strict=options.numerics == "strict", name=name)
    product = FORMATS[format](
        Job(
            name,
            layout,
            api,
            embedded,
            freestanding,
            options.progress,
            version("alpenglow"),
            portable,
            release,
        )
    )
    return layout, product


def _graph(
    model: Model, shapes: Shapes | None, constants: Mapping[str, Any] | None, rounding: str | None,
    state: bool | Mapping[str, str], last: Sequence[str],
) -> Graph:  # fmt: skip
    if isinstance(model, StagedModel):
        refuse_staged("bundled")
    graph = loaded(model, shapes, constants, rounding)
    if not isinstance(graph, Graph):
        refuse_staged("bundled")
    kept = with_state(graph, state, last)
    assert isinstance(kept, Graph), "state makes no parts of a graph"
    return kept


def _name_of(model: Model) -> str:
    if isinstance(model, str | Path):
        return default_name(Path(model))
    return _identifier(model.name if isinstance(model, Graph) else "model")


def default_name(path: Path) -> str:
    """Return the name of a bundle that is asked for without one."""
    return _identifier(path.stem)


def _identifier(text: str) -> str:
    (name,) = identifiers([text])
    return f"model_{name}" if name[0].isdigit() or name in _RESERVED else name


_WORDS = """
    alignas alignof and asm auto bool break case catch char class const constexpr continue
    decltype default delete do double else enum explicit export extern false float for
    friend goto if inline int long main memcpy memmove memset mutable namespace new not
    nullptr operator or private protected public register restrict return short signed
    sizeof static struct switch template this throw true try typedef typeid typename typeof
    union unsigned using virtual void volatile while xor
"""
_RESERVED = frozenset(_WORDS.split())
"""Words of C and C++, and names that a bundle must leave alone."""

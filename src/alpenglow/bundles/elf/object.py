"""One object file from a layout: all kernels, the entry points, and what they call.

Every kernel is optimised by itself, exactly as it is when the model is compiled to run here, and
then emitted with the others: that makes a bundle's results those of `ag.compile`, bit by bit.  An
object refers to nothing but memcpy and memset, and with `freestanding` to nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from alpenglow.base import deadline
from alpenglow.base.errors import UnsupportedError
from alpenglow.bundles.elf import stack
from alpenglow.bundles.elf.arm_attributes import fit_both
from alpenglow.bundles.elf.system import RUNTIME, twin
from alpenglow.bundles.elf.writer import ElfObject
from alpenglow.bundles.entry import Api, constants, entries
from alpenglow.bundles.job import Needs
from alpenglow.bundles.plan import BundlePlan
from alpenglow.bundles.support.support import ALLOWED, support
from alpenglow.bundles.wasm.object import MAGIC, WasmObject
from alpenglow.ir.target import Target
from alpenglow.machines.cpu.assemble import (
    assemble,
    assemble_all,
    assembly_of_all,
    optimise,
)
from alpenglow.machines.cpu.legal import legal
from alpenglow.render.llvm.render import ATTRIBUTES, render, render_body

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Emitted:
    """An object file, and what it needs besides the three regions."""

    image: bytes
    needs: Needs


def emit(
    layout: BundlePlan,
    *,
    pic: bool,
    api: Api = "static",
    embed: str = "",
    freestanding: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Emitted:
    """Return the object of a layout.

    `pic` asks for position-independent code.  `embed` is the name of a bundle whose constants the
    object is to hold, as `NAME_constants`; without, the caller brings them.
    """
    target, known = layout.target, twin(layout.target)
    modules = _optimised(layout, progress)
    allowed = RUNTIME.get(target.os, frozenset()) | (frozenset() if freestanding else ALLOWED)
    needed = _supported(layout, [entries(layout, api), *modules], allowed, pic)
    modules += needed
    assembly = assembly_of_all([entries(layout, api), *modules], known, pic=pic)
    frames = stack.frames(assembly, target)
    deepest = max(stack.deepest(frames, assembly, r.entry, target) for r in layout.routines)
    deepest += frames.get("each", 0)
    first = entries(layout, api, deepest)
    if embed:
        first += constants(layout, embed)
    image = assemble_all([first, *modules], target, pic=pic)
    if target.architecture == "arm":
        image = fit_both(image)
    same = image if known == target else assemble_all([first, *modules], known, pic=pic)
    binary = opened(same)
    code, other = binary.nbytes(executable=True), binary.nbytes(executable=False)
    data = other - (layout.constants_nbytes if embed else 0)
    return Emitted(image, Needs(code, data, deepest))


def opened(image: bytes) -> ElfObject | WasmObject:
    """Return what tells of an object what it defines, what it lacks, and how large it is."""
    return WasmObject(image) if image.startswith(MAGIC) else ElfObject(image)


def _optimised(layout: BundlePlan, progress: Progress) -> list[str]:
    modules = []
    for done, code in enumerate(layout.kernels.values()):
        deadline.check("the next kernel")
        progress("compiling kernels", done, len(layout.kernels))
        text = render_body(
            legal(code.kernel, code.target), fast=not code.exact, aliased=code.aliased
        )
        if code.target != layout.target:
            text = text.replace(ATTRIBUTES, f"{ATTRIBUTES} {_machine(code.target)}")
        modules.append(optimise(text, code.target))
    progress("compiling kernels", len(layout.kernels), len(layout.kernels))
    return modules


def _machine(target: Target) -> str:
    """Return the attributes of a function whose machine is not that of its object."""
    return f'"target-cpu"="{target.cpu}" "target-features"="{",".join(target.features)}"'


def _supported(
    layout: BundlePlan, modules: list[str], allowed: frozenset[str], pic: bool
) -> list[str]:
    """Return modules with all that the others call and nobody provides."""
    target = layout.target
    helpers: dict[str, str] = {}
    while True:
        image = assemble_all([*modules, *helpers.values()], twin(target), pic=pic)
        missing = sorted(opened(image).undefined() - allowed)
        if not missing:
            return list(helpers.values())
        for name in missing:
            text = support(name, target)
            if text is None:
                raise _unsupported(layout, missing)
            helpers[name] = optimise(text, target)


def _unsupported(layout: BundlePlan, missing: list[str]) -> UnsupportedError:
    """Return the error about functions that bundles do not bring, by operator."""
    needs: dict[str, set[str]] = {}
    for code in layout.kernels.values():
        image = assemble(
            render(legal(code.kernel, code.target), aliased=code.aliased), twin(code.target)
        )
        for symbol in opened(image).undefined() - ALLOWED:
            if support(symbol, layout.target) is None:
                needs.setdefault(code.what.partition(":")[0], set()).add(symbol)
    named = ", ".join(f"{k} ({', '.join(sorted(v))})" for k, v in sorted(needs.items()))
    return UnsupportedError(
        f"on {layout.target} these operators call functions of a library that bundles do not "
        f"bring: {named or ', '.join(missing)}",
        hint="operands of f32, or another target, need fewer of them",
    )

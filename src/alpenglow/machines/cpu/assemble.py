"""Turn LLVM IR text into object code for a target.

Pure: the same text, target and level give the same bytes, and the machine that code is made for
need not be the one that makes it.  Safe to call from several threads (LLVM is entered by one at a
time).  IR that LLVM does not accept is a mistake of ours, shown with the lines in question.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.ffi import ObjectRef
from llvmlite.binding.newpassmanagers import NewPassManager

from alpenglow.ir.target import Target
from alpenglow.machines.cpu.onelane import apart


def assemble(ir_text: str, target: Target, *, opt: int = 2) -> bytes:
    """Return the object code of `ir_text`.

    `opt` is LLVM's level; at 3 its loop and SLP vectorisers run as well.  Below, code is as
    vectorised as it was written, which is what kernels with vectors of their own want.
    """
    with _optimised(ir_text, target, opt) as module:
        return bytes(_machine(target, opt).emit_object(module))


def assembly(ir_text: str, target: Target, *, opt: int = 2) -> str:
    """Return the assembly code of `ir_text`, for reading."""
    with _optimised(ir_text, target, opt) as module:
        return str(_machine(target, opt).emit_assembly(module))


def optimise(ir_text: str, target: Target) -> str:
    """Return the IR that `assemble` makes machine code of, as text."""
    with _optimised(ir_text, target, 2) as module:
        return str(module)


def assemble_all(modules: Sequence[str], target: Target, *, pic: bool) -> bytes:
    """Return one object of modules that have been optimised.

    What the first defines is as it says; all that the others define is local to the object.
    """
    with _linked(modules, _machine(target, 2, pic)) as module:
        return bytes(_machine(target, 2, pic).emit_object(module))


def assembly_of_all(modules: Sequence[str], target: Target, *, pic: bool) -> str:
    """Return what `assemble_all` makes as assembly code, for reading."""
    with _linked(modules, _machine(target, 2, pic)) as module:
        return str(_machine(target, 2, pic).emit_assembly(module))


@contextlib.contextmanager
def _linked(modules: Sequence[str], machine: Any) -> Iterator[Any]:
    first, *others = modules
    with llvm.create_context() as context, _parsed(first, machine, context) as whole:
        public = {f.name for f in whole.functions if not f.is_declaration}
        for text in others:
            # Linking takes the module.
            whole.link_in(_parsed(text, machine, context))
        for function in whole.functions:
            if not function.is_declaration and function.name not in public:
                function.linkage = "internal"
                function.visibility = "default"
        yield whole


def _parsed(text: str, machine: Any, context: Any) -> Any:
    """Return a module that is verified; the caller closes it."""
    try:
        module = llvm.parse_assembly(text, context=context)
    except RuntimeError as error:
        raise AssertionError(_explained(str(error), text)) from None
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    try:
        module.verify()
    except RuntimeError as error:
        module.close()
        raise AssertionError(_explained(str(error), text)) from None
    return module


@contextlib.contextmanager
def _optimised(ir_text: str, target: Target, opt: int) -> Iterator[Any]:
    """Parse, verify and optimise a module, in a context of its own.

    Both are closed here, the module first: were they left to the garbage collector, as an
    exception would leave them, it might take the context from under the module.
    """
    machine = _machine(target, opt)
    ir_text = apart(ir_text, target)
    with llvm.create_context() as context, _parsed(ir_text, machine, context) as module:
        _run_passes(module, machine, opt)
        yield module


def _run_passes(module: Any, machine: Any, opt: int) -> None:
    options = llvm.create_pipeline_tuning_options(opt)
    options.loop_vectorization = options.loop_interleaving = opt >= 3
    options.slp_vectorization = opt >= 3
    with llvm.create_pass_builder(machine, options) as builder:
        manager = builder.getModulePassManager()
        try:
            manager.run(module, builder)
        finally:
            _dispose(manager)


def _dispose(manager: Any) -> None:
    """Give back the memory of a pass manager, 70 KB and more.

    llvmlite (0.45 to 0.50) never does: of the two `_dispose` that ModulePassManager inherits, that
    of ObjectRef comes first, which does nothing.
    """
    if type(manager)._dispose is ObjectRef._dispose:
        NewPassManager._dispose(manager)
        manager.detach()
    manager.close()


@functools.lru_cache(maxsize=16)
def _machine(target: Target, opt: int, pic: bool = True) -> Any:
    """Return LLVM's target machine; shared, as it is only read while LLVM's lock is held.

    Position-independent code of the small model: all sections of an object are linked next to
    each other, and what lies farther away is reached by way of stubs.
    """
    assert target.triple, f"target '{target.name}' has no machine code"
    _know_all_targets()
    double = target.architecture == "riscv64" and target.has("d")
    return llvm.Target.from_triple(_format(target)).create_target_machine(
        cpu=target.cpu,
        features=",".join(target.features),
        opt=opt,
        reloc="pic" if pic else "static",
        codemodel="small",
        abiname="lp64d" if double else "",
    )


def _format(target: Target) -> str:
    """Return the triple with the object format: on Windows the JIT links ELF objects only."""
    windows = target.os == "windows" and not target.triple.endswith(("-elf", "-coff"))
    return target.triple + ("-elf" if windows else "")


@functools.cache
def _know_all_targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _explained(message: str, ir_text: str) -> str:
    """Return LLVM's message with the numbered lines of IR that it is about."""
    lines = ir_text.splitlines()
    m = re.search(r":(\d+):\d+: error", message)
    if m:
        centres = [int(m[1]) - 1]
    else:
        said = {line.strip() for line in message.splitlines() if line.strip()}
        centres = [i for i, line in enumerate(lines) if line.strip() in said]
    shown = sorted({i for c in centres for i in range(c - 3, c + 4) if 0 <= i < len(lines)})
    picture = (f"{'>' if i in centres else ' '}{i + 1:5} | {lines[i]}" for i in shown)
    return "\n".join([f"LLVM rejects the IR: {message.strip()}", *picture])

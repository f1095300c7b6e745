"""Turn LLVM IR text into object code for a target.

Pure: the same text, target and level give the same bytes, and the machine that code is made for
need not be the one that makes it.  Safe to call from several threads (LLVM is entered by one at a
time).  IR that LLVM does not accept is a mistake of ours, shown with the lines in question.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm

from alpenglow.backends.cpu.onelane import has_masked_stores, plain_stores
from alpenglow.ir.target import Target


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


@contextlib.contextmanager
def _optimised(ir_text: str, target: Target, opt: int) -> Iterator[Any]:
    """Parse, verify and optimise a module, in a context of its own.

    Both are closed here, the module first: were they left to the garbage collector, as an
    exception would leave them, it might take the context from under the module.
    """
    machine = _machine(target, opt)
    with llvm.create_context() as context:
        try:
            module = llvm.parse_assembly(ir_text, context=context)
        except RuntimeError as error:
            raise AssertionError(_explained(str(error), ir_text)) from None
        with module:
            module.triple = machine.triple
            module.data_layout = str(machine.target_data)
            try:
                module.verify()
            except RuntimeError as error:
                raise AssertionError(_explained(str(error), ir_text)) from None
            _run_passes(module, machine, opt)
            if not (target.has("avx512f") and has_masked_stores(ir_text)):
                yield module
                return
            sound = plain_stores(str(module))
        with llvm.parse_assembly(sound, context=context) as module:
            yield module


def _run_passes(module: Any, machine: Any, opt: int) -> None:
    options = llvm.create_pipeline_tuning_options(opt)
    options.loop_vectorization = options.loop_interleaving = opt >= 3
    options.slp_vectorization = opt >= 3
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


@functools.lru_cache(maxsize=16)
def _machine(target: Target, opt: int) -> Any:
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
        reloc="pic",
        codemodel="small",
        abiname="lp64d" if double else "",
    )


def _format(target: Target) -> str:
    """Return the triple with the object format: on Windows the JIT links ELF objects only."""
    windows = target.os == "windows" and not target.triple.endswith("-elf")
    return target.triple + ("-elf" if windows else "")


@functools.cache
def _know_all_targets() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _explained(message: str, ir_text: str) -> str:
    """Return LLVM's message with the numbered lines of IR that it is about."""
    lines = ir_text.splitlines()
    found = re.search(r":(\d+):\d+: error", message)
    if found:
        centres = [int(found[1]) - 1]
    else:
        said = {line.strip() for line in message.splitlines() if line.strip()}
        centres = [i for i, line in enumerate(lines) if line.strip() in said]
    shown = sorted({i for c in centres for i in range(c - 3, c + 4) if 0 <= i < len(lines)})
    picture = (f"{'>' if i in centres else ' '}{i + 1:5} | {lines[i]}" for i in shown)
    return "\n".join([f"LLVM rejects the IR: {message.strip()}", *picture])

"""The kernels of a program as text: all in the kernel language, or one in the language of code."""

from __future__ import annotations

from collections.abc import Iterator

from alpenglow.base.errors import OptionError, UnsupportedError
from alpenglow.base.words import meant
from alpenglow.cli.output import table
from alpenglow.ir.target import Target
from alpenglow.kernel.stmt import Kernel
from alpenglow.kernel.text import print_kernel
from alpenglow.machines.api import Readable
from alpenglow.machines.proof import summary
from alpenglow.machines.registry import kernels, machine_for
from alpenglow.ops.control.jump import Jump
from alpenglow.program import Instr, Program

KERNEL = "kernel"
"""The language in which kernels are before code is generated."""


def named_kernels(program: Program, target: Target) -> dict[int, tuple[str, Instr, Kernel]]:
    """Return the name, instruction and kernel by identity of each instruction that is compiled.

    Instructions whose kernels have the same text share a name.
    """
    names: dict[str, str] = {}
    named = {}
    for instr, kernel in kernels(program, target):
        body = print_kernel(kernel)
        name = names.setdefault(body, f"{kernel.name}.{len(names)}")
        named[id(instr)] = name, instr, kernel
    if not named:
        raise UnsupportedError(
            f"target '{target}' has no kernels to show; supported: targets that generate code"
        )
    return named


def all_kernels(program: Program, target: Target) -> Iterator[str]:
    """Yield the text of each kernel once, then the table of instructions and their kernels."""
    named = named_kernels(program, target)
    printed = set()
    for name, instr, kernel in named.values():
        if name not in printed:
            printed.add(name)
            yield f"# kernel {name}"
            yield print_kernel(kernel)
            yield f"# addresses: {summary(kernel, instr)}"
            yield ""
    rows = [("instruction", "kernel", "results", "operands")]
    for number, i in enumerate(program.instrs()):
        results = ", ".join(f"%{r.buffer} {r.type}" for r in i.outs)
        operands = ", ".join("none" if r is None else f"%{r.buffer} {r.type}" for r in i.ins)
        how = named[id(i)][0] if id(i) in named else "interpreted"
        if isinstance(i.op, Jump):
            how = f"to {number + i.op.by}" + f" if {str(i.op.when).lower()}" * len(i.ins)
        rows.append((f"{number} {i.op.name}", how, results, operands))
    yield "# table"
    yield from table(rows)


def one_kernel(program: Program, target: Target, name: str, language: str, strict: bool) -> str:
    """Return the code of the kernel of a name in a language.

    Raises OptionError if no kernel has the name, or the target no code in the language.
    """
    by_name = {known: (i, k) for known, i, k in reversed(named_kernels(program, target).values())}
    if name not in by_name:
        alike = [known for known in by_name if known.rpartition(".")[0] == name]
        if len(alike) != 1:
            raise OptionError(
                f"--kernel is '{name}', expected the name of one kernel{meant(name, by_name)}",
                hint=", ".join(reversed(alike or by_name)),
            )
        [name] = alike
    instr, kernel = by_name[name]
    if language == KERNEL:
        return f"{print_kernel(kernel)}\n# addresses: {summary(kernel, instr)}"
    machine: object = machine_for(target)
    languages: list[str] = list(machine.languages) if isinstance(machine, Readable) else []
    if not isinstance(machine, Readable) or language not in languages:
        raise OptionError(
            f"--as is '{language}', expected one of {', '.join([KERNEL, *languages])} "
            f"for target {target}"
        )
    return machine.code(instr, target, strict, language).expandtabs()

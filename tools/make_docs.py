"""Write docs/operators.md and docs/passes.md from what the code says of itself.

    python tools/make_docs.py [FOLDER]

FOLDER is docs unless given.  docs/passes.md is in the repository, and tests/test_docs.py compares
it; docs/operators.md is built: `make docs/operators.md`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from alpenglow import extras, frontends, ops, passes
from alpenglow.cli.show import described
from alpenglow.compiler import Options, every_pass
from alpenglow.compiler.pipeline import table
from alpenglow.frontends.onnx.converters import find, supported
from alpenglow.frontends.onnx.hosted import Hosted, find_hosted, supported_on_host
from alpenglow.frontends.onnx.table import Converter, Site
from alpenglow.ir.op import Composite, Control, Elementwise, Host, Op
from alpenglow.ir.rewrite import Rule, Rules
from alpenglow.loops import has_form
from alpenglow.machines.vector import operators as cpu_operators
from alpenglow.machines.vector import passes as cpu_passes
from alpenglow.machines.vector.templates import templates
from alpenglow.ops.control.jump import Jump
from alpenglow.passes.table import Properties

NAMING_MODULES = (ops.__name__, extras.__name__, frontends.__name__)
"""Modules whose names begin so define operators, or functions that build them."""

NEWEST_OPSET = 64
"""No opset of any domain is as new as this."""

OPERATORS = """\
# Operators

*Reference.*  All operators.  For those who build graphs or write converters.  Index:
[index](index.md).

An operator is one class, of one of five kinds.  *Elementwise*: one formula over scalars.
*Primitive*: a NumPy function, which machines implement.  *Composite*: an abbreviation for other
operators, gone after the pass `lower`.  *Control*: a loop or a branch, which runs the regions of
its node ([control-flow.md](control-flow.md)).  *Host*: a function of values that no graph holds,
such as sequences and strings, applied between graphs.  `jump` is of no kind: it is an instruction
of programs alone.  A `?` marks an optional operand, a `*` any number of them.

How an operator runs on a CPU: by a tuned *template*, as *loops*, as *addressing* (memory is read in
another order; where no strides can say that, it is copied), as *jumps* between the instructions of
its regions, *lowered* to others, or *interpreted* in NumPy.  Behind *ONNX* stand the operators
whose converters use it, with the opset versions since which each converter holds; the last tables
have all of them.

This page is written by `tools/make_docs.py`.
"""

PASSES = """\
# Passes

*Reference.*  All passes, in the order in which they run.  For those who read `alpenglow show` or
write passes.  Index: [index](index.md).

The compiler is this table, from top to bottom.  A pass *needs* properties that passes before it
make; what it *breaks* holds no longer.  Passes of a machine run for its targets alone.
`docs/add-a-pass.md` shows how to add one.

This page is written by `tools/make_docs.py`.
"""

Entry = Converter | Hosted
Versions = dict[Any, int]
"""For each entry of an ONNX operator the opset since which it holds."""


def main(folder: Path) -> None:
    """Write both pages into `folder`."""
    (folder / "operators.md").write_text("\n".join(operators_page()) + "\n")
    (folder / "passes.md").write_text("\n".join(passes_page()) + "\n")


# ── operators ──


def operators_page() -> Iterator[str]:
    """Yield the lines of docs/operators.md."""
    yield OPERATORS
    uses: dict[type[Op], list[str]] = {}
    for look, names in ((find, supported()), (find_hosted, supported_on_host())):
        for name in names:
            for entry, since in versions(name, look).items():
                for op in sorted(operators_in(entry), key=lambda op: op.name):
                    uses.setdefault(op, []).append(f"{name} {since}")
    for module in (*of_folders(ops), *of_folders(extras), *submodules(cpu_operators)):
        classes = [c for c in Op.registry.values() if c.__module__ == module.__name__]
        if classes:
            yield f"## {heading(module)}\n"
            yield f"{summary(module)}\n"
        for cls in classes:
            yield from operator(cls, uses.get(cls, []))
    yield "## ONNX\n"
    yield "| operator | converters since opset |\n|---|---|"
    for name in supported():
        yield f"| `{name}` | {', '.join(map(str, versions(name, find).values()))} |"
    yield "\nOn values that no graph holds:\n"
    yield "| operator | hosted forms since opset |\n|---|---|"
    for name in supported_on_host():
        yield f"| `{name}` | {', '.join(map(str, versions(name, find_hosted).values()))} |"


def operator(cls: type[Op], uses: list[str]) -> Iterator[str]:
    """Yield the lines about one operator."""
    yield f"### {cls.name}\n"
    yield f"`{signature(cls)}` — {kind(cls)}, {runs(cls)}\n"
    yield f"{inspect.getdoc(cls)}\n"
    if attributes := [attribute(f) for f in fields(cls)]:  # type: ignore[arg-type]
        yield "\n".join(f"- `{a}`" for a in attributes) + "\n"
    if uses:
        yield f"ONNX: {', '.join(merged(uses))}\n"


def signature(cls: type[Op]) -> str:
    """Return an operator's name with its operands."""
    marked = [f"{o}?" if o in cls.optional else o for o in cls.operands]
    if cls.variadic:
        marked[-1] = f"*{marked[-1]}"
    return f"{cls.name}({', '.join(marked)})"


def kind(cls: type[Op]) -> str:
    """Return the kind of an operator."""
    if issubclass(cls, Elementwise):
        return "elementwise"
    if issubclass(cls, Host):
        return "host"
    if issubclass(cls, Control):
        return "control"
    if cls is Jump:
        return "of programs"
    return "composite" if issubclass(cls, Composite) else "primitive"


def runs(cls: type[Op]) -> str:
    """Say how an operator runs on a CPU."""
    if issubclass(cls, Host):
        return "between graphs"
    if issubclass(cls, Composite) or (issubclass(cls, Control) and cls.lower is not None):
        return "lowered"
    if issubclass(cls, Control | Jump):
        return "as jumps"
    if cls.name == "fused":
        return "as its parts"
    if cls.moves and cls.name != "fill":
        return "addressing"
    example, *_ = next(iter(cls.examples()))
    if cls in templates:
        return "template or loops" if has_form(example) else "template"
    return "loops" if has_form(example) else "interpreted"


def attribute(f: Any) -> str:
    """Return an attribute as it is declared."""
    default = "" if f.default is MISSING else f" = {f.default!r}"
    return f"{f.name}: {f.type}{default}"


def merged(uses: list[str]) -> list[str]:
    """Return uses with the versions of one operator together: Add 1, Add 7 as `Add` 1/7."""
    found: dict[str, list[str]] = {}
    for use in uses:
        name, since = use.rsplit(" ", 1)
        found.setdefault(name, []).append(since)
    return [f"`{name}` {'/'.join(since)}" for name, since in found.items()]


def versions(name: str, look: Callable[[str, str, int], Entry | None]) -> Versions:
    """Return the entries of an ONNX operator, each with the opset since which it holds."""
    domain, _, op_type = name.rpartition(":")
    found: Versions = {}
    for opset in range(1, NEWEST_OPSET):
        entry = look(domain, op_type, opset)
        if entry is not None:
            found.setdefault(entry, opset)
    return found


def operators_in(converter: Entry) -> set[type[Op]]:
    """Return the operators that a converter mentions, or what it calls in its module or table.

    What front ends share belongs to a converter as its own module does.
    """
    assert isinstance(converter, FunctionType)
    own = {converter.__module__, Site.__module__}
    shared = {i.name for i in pkgutil.iter_modules(frontends.__path__) if not i.ispkg}
    own |= {f"{frontends.__name__}.{name}" for name in shared}
    found: set[type[Op]] = set()
    seen: set[FunctionType] = set()
    waiting: list[Any] = [converter]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, type) and issubclass(thing, Op):
            found.add(thing)
        elif isinstance(thing, Op):
            found.add(type(thing))
        elif isinstance(thing, tuple | dict):
            waiting += thing.values() if isinstance(thing, dict) else thing
        elif isinstance(thing, FunctionType) and thing not in seen:
            seen.add(thing)
            waiting += mentioned(thing) if thing.__module__ in own else ()
    return {op for op in found if op.name in Op.registry}


def mentioned(function: FunctionType) -> Iterator[Any]:
    """Yield the globals, attributes of modules, methods of a site, and closure cells it names."""
    names = set(names_in(function.__code__))
    for name in names & function.__globals__.keys():
        thing = function.__globals__[name]
        yield thing
        if isinstance(thing, ModuleType) and thing.__name__.startswith(NAMING_MODULES):
            yield from (getattr(thing, n) for n in names if hasattr(thing, n))
    yield from (getattr(Site, n) for n in names if isinstance(getattr(Site, n, None), FunctionType))
    yield from (cell.cell_contents for cell in function.__closure__ or ())


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that code and the code inside it refers to."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


# ── passes ──


def passes_page() -> Iterator[str]:
    """Yield the lines of docs/passes.md."""
    yield PASSES
    yield "| pass | what it does | needs | makes | breaks |\n|---|---|---|---|---|"
    for p in every_pass():
        held = " | ".join(map(listed, (p.needs, p.makes, p.breaks)))
        yield f"| `{p.name}` | {described(p)} | {held} |"
    yield "\n## Order\n"
    yield "| pass | stands before | because |\n|---|---|---|"
    for before, later, why in table(Options())[1]:
        yield f"| `{before}` | `{later}` | {why} |"
    yield "\n## Rules\n"
    yield "A rule rewrites one pattern; its law says which, and into what."
    for module in (*submodules(passes), *submodules(cpu_passes)):
        if rules := rules_of(module):
            yield f"\n### {module.__name__}\n\n{summary(module)}\n"
            yield "\n".join(f"- `{r.__name__}`: `` {law(r)} ``" for r in rules)


def listed(names: Properties) -> str:
    return ", ".join(sorted(names))


def rules_of(module: ModuleType) -> list[Rule]:
    """Return the rules that a module defines."""
    sets = [thing for thing in vars(module).values() if isinstance(thing, Rules)]
    return [r for s in sets for r in s.rules() if r.__module__ == module.__name__]


def law(rule: Rule) -> str:
    """Return the law of a rule, on one line."""
    return " ".join((rule.__doc__ or "").split())


# ── modules ──


def submodules(package: ModuleType) -> Iterator[ModuleType]:
    """Yield the modules of a package in order of their names."""
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
        yield importlib.import_module(f"{package.__name__}.{info.name}")


def of_folders(package: ModuleType) -> list[ModuleType]:
    """Return the modules of a package and of its folders, in order of their names."""
    modules = list(submodules(package))
    modules += [m for folder in modules if hasattr(folder, "__path__") for m in submodules(folder)]
    return sorted(modules, key=lambda m: m.__name__.rpartition(".")[2])


def heading(module: ModuleType) -> str:
    """Return a module's name; behind a machine's, its name."""
    name = module.__name__.rpartition(".")[2].replace("_", " ").capitalize()
    _, _, inside = module.__name__.partition("machines.")
    return f"{name} ({inside.partition('.')[0]})" if inside else name


def summary(module: ModuleType) -> str:
    """Return the first paragraph of what a module says of itself."""
    return (inspect.getdoc(module) or "").split("\n\n")[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs")

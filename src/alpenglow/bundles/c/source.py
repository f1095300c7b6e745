"""Bundles as C that people can read and any compiler takes: NAME.c, with the header of all formats.

Kernels are those of the object format, each a function (`render.c`); the entry points call them
in order at computed addresses.  Results are those of `compile` to rounding: C compilers contract
and round in their own way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from alpenglow.base.errors import UnsupportedError
from alpenglow.bundles.c import state as c_state
from alpenglow.bundles.c.header import parameters
from alpenglow.bundles.c.state import REGIONS, aligned, at
from alpenglow.bundles.config import config
from alpenglow.bundles.entry import OUT_OF_RANGE, Api, Body
from alpenglow.bundles.extents import ROWS, spelled
from alpenglow.bundles.plan import Branch, BundlePlan, Goto, KernelCall, Routine
from alpenglow.ir.dims import is_open
from alpenglow.ir.types import DTYPES
from alpenglow.render.c.render import Unit
from alpenglow.render.c.spelling import memory


def source(layout: BundlePlan, name: str, api: Api, embedded: bool, portable: bool = False) -> str:
    """Return the text of NAME.c; `portable` has no extensions of compilers in it.

    Raises UnsupportedError if C has no form of an operator, naming all such operators.
    """
    unit = Unit(portable=portable, fast=not layout.strict)
    names = _names(layout)
    lacking: dict[str, str] = {}
    for kernel, code in layout.kernels.items():
        try:
            unit.add(code.kernel, names[kernel], code.what, code.aliased)
        except UnsupportedError as error:
            lacking.setdefault(_stem(kernel), str(error).splitlines()[0])
    if lacking:
        listed = "; ".join(f"{stem} ({why})" for stem, why in sorted(lacking.items()))
        raise UnsupportedError(
            f"these operators are not written in C: {listed}",
            hint="format='object' has them all",
            flags="--format object has them all",
        )
    parts = [_title(layout, name, api, portable), unit.text()]
    if embedded:
        parts += [byte_array(f"{name}_constants", layout.weights(), layout.alignment)]
    if api == "dynamic":
        parts += [_EACH]
    parts += ["\n".join(c_state.functions(layout)) + "\n"] if layout.routines[0].state else []
    for routine in layout.routines:
        make = _dynamic if api == "dynamic" else _static
        parts += ["\n".join(make(layout, routine, names)) + "\n"]
    return "\n".join(parts)


def stack_nbytes(layout: BundlePlan) -> int:
    """Return the bytes of the arrays that the kernel with the largest ones keeps on the stack."""
    return max(
        (
            sum(a.size * DTYPES[a.dtype].itemsize for a in code.kernel.arrays)
            for code in layout.kernels.values()
        ),
        default=0,
    )


def _names(layout: BundlePlan) -> dict[str, str]:
    """Return short names for kernels, which are named by their content."""
    return {k: f"{_stem(k)}_{number}" for number, k in enumerate(layout.kernels, 1)}


def _stem(kernel: str) -> str:
    return kernel.rpartition("_")[0]


def _title(layout: BundlePlan, name: str, api: Api, portable: bool) -> str:
    how = (
        "Plain C11 without extensions of compilers."
        if portable
        else "C11 with the vectors of gcc and clang: name the machine when you compile it,\n"
        " * for example -O3 -march=native; gcc's notes about vectors as parameters mean nothing\n"
        " * (-Wno-psabi)."
    )
    # The configuration has a type of its own in the header.
    include = "alpenglow_bundle.h" if api == "dynamic" else f"{name}.h"
    lines = [f"/* {name}, made by Alpenglow for {layout.target}.", " *", f" * {how}", " */"]
    return "\n".join([*lines, f'#include "{include}"', ""])


def _static(layout: BundlePlan, routine: Routine, names: dict[str, str]) -> Iterator[str]:
    regions = "const uint8_t *constants, uint8_t *mutable_data, uint8_t *scratch"

    def body(name: str, branch: Branch) -> Iterator[str]:
        def run(number: int, call: KernelCall) -> str:
            return _call(layout, names, call, "", "0", spelled(call.extent))

        yield from _labelled(branch, run, "")

    yield from _functions(routine, regions, body)
    yield f"int {routine.entry}({parameters('static')}) {{"
    yield aligned(*REGIONS.values(), alignment=layout.alignment)
    yield from c_state.admitted(routine)
    yield from _cleared(routine)
    yield from _branches(routine, ", ".join(REGIONS.values()), body)
    yield from _returned(routine)


def _dynamic(layout: BundlePlan, routine: Routine, names: dict[str, str]) -> Iterator[str]:
    def body(name: str, branch: Branch) -> Iterator[str]:
        def run(number: int, call: KernelCall) -> str:
            return f"each(parallel, {name}_{number}, at, {spelled(call.extent)});"

        yield from _labelled(branch, run, "at->")

    yield byte_array(f"{routine.entry}_config", config(layout, routine, 0), 8)
    for name, branch in routine.named("_"):
        for number, call in enumerate(branch.calls):
            if isinstance(call, KernelCall):
                yield from _task(layout, f"{name}_{number}", call, names)
    shared = "const struct alpenglow_parallel *parallel, struct regions *at"
    yield from _functions(routine, shared, body)
    yield f"int {routine.entry}({parameters('dynamic')}) {{"
    yield aligned(*REGIONS.values(), alignment=layout.alignment)
    yield "  struct regions all = {constants, mutable_data, scratch}, *const at = &all;"
    yield from c_state.admitted(routine)
    yield from _cleared(routine)
    yield from _branches(routine, "parallel, at", body)
    yield from _returned(routine)


def _labelled(
    branch: Branch, run: Callable[[int, KernelCall], str], prefix: str
) -> Iterator[str]:
    """Run the calls of a branch, with labels where jumps lead."""
    ends = {call.to for call in branch.calls if isinstance(call, Goto)}
    for number, call in enumerate((*branch.calls, None)):
        if number in ends:
            yield f"call_{number}:;"
        if isinstance(call, Goto):
            yield f"  {_goto(call, prefix)}"
        elif call is not None:
            yield f"  {run(number, call)}"


def _goto(call: Goto, prefix: str) -> str:
    conditions = []
    if call.flag is not None:
        conditions += [f"*{at(call.flag, prefix)} {'!=' if call.when else '=='} 0"]
    if call.stop is not None:
        conditions += [f"*(volatile int64_t *)({at(call.stop, prefix)}) == 0"]
    taken = f"if ({' && '.join(conditions)}) " if conditions else ""
    return f"{taken}goto call_{call.to};"


def _task(
    layout: BundlePlan, name: str, call: KernelCall, names: dict[str, str]
) -> Iterator[str]:  # fmt: skip
    """Define what runs a part of one call."""
    yield f"static void {name}(void *context, int64_t begin, int64_t end) {{"
    yield "  const struct regions *at = context;"
    if any(map(is_open, (*call.extents, *(a.offset for a in call.args)))):
        yield f"  {c_state.rows('at->')}"
    if layout.kernels[call.kernel].kernel.parallel is None:
        yield "  (void)begin, (void)end;"
    yield f"  {_call(layout, names, call, 'at->', '(ptrdiff_t)begin', '(ptrdiff_t)end')}"
    yield from ("}", "")


def _functions(routine: Routine, parameters: str, body: Body) -> Iterator[str]:
    """Define the functions of branches, where there are several."""
    branches = routine.named("_")
    for name, branch in branches if len(branches) > 1 else ():
        head = f"{parameters}, int64_t {ROWS}"
        used = [re.split(r"[ *]", parameter)[-1] for parameter in head.split(", ")]
        yield f"static void {name}({head}) {{"
        yield f"  {', '.join(f'(void){word}' for word in used)};"
        yield from body(name, branch)
        yield from ("}", "")


def _branches(routine: Routine, arguments: str, body: Body) -> Iterator[str]:
    """Run the only branch, or call that which is for the rows that there are."""
    branches = routine.named("_")
    if len(branches) == 1:
        yield from body(*branches[0])
        return
    for name, branch in branches:
        ranges = (f"({a} <= {ROWS} && {ROWS} <= {b})" for a, b in branch.rows)
        yield f"  if ({' || '.join(ranges)}) {name}({arguments}, {ROWS});"


def _cleared(routine: Routine) -> Iterator[str]:
    """Clear the words in which checks leave what they find."""
    if routine.checks:
        yield f"  volatile int64_t *const found = (volatile int64_t *)({at(routine.stop_word)});"
        yield "  found[0] = found[1] = 0;"


def _returned(routine: Routine) -> Iterator[str]:
    """Return whether data was out of range; if not, the state is what it has become."""
    if routine.checks:
        lost = "state[0] = 0, " if routine.loses else ""
        yield f"  if (found[0] != 0) return {lost}{OUT_OF_RANGE};"
    yield from c_state.kept(routine)
    yield from ("  return 0;", "}")


def _call(
    layout: BundlePlan, names: dict[str, str], call: KernelCall, prefix: str, begin: str, end: str
) -> str:
    kernel = layout.kernels[call.kernel].kernel
    arguments = []
    for b, place in zip(kernel.buffers, call.args, strict=True):
        const = "const " if place.memory == "constants" or not b.mutable else ""
        const += "volatile " if b.volatile else ""
        arguments.append(f"({const}{memory(b.dtype)} *){at(place, prefix)}")
    arguments += map(spelled, call.extents)
    arguments += [begin, end] if kernel.parallel is not None else []
    return f"{names[call.kernel]}({', '.join(arguments)});"


def byte_array(name: str, content: bytes, alignment: int = 0) -> str:
    """Return the definition of an array of bytes that others refer to."""
    numbers = [str(value) for value in range(256)]
    rows = (content[i : i + 24] for i in range(0, len(content) or 1, 24))
    listed = ",\n".join(",".join(map(numbers.__getitem__, row)) for row in rows)
    aligned = f"_Alignas({alignment}) " if alignment else ""
    head = f"extern const uint8_t {name}[];\n{aligned}const uint8_t {name}"
    return f"{head}[{len(content) or 1}] = {{\n{listed or 0}\n}};\n"


_EACH = """\
struct regions {
  const uint8_t *constants;
  uint8_t *mutable_data, *scratch;
};

/* Runs a task on the caller's threads or, if there are none or nothing to share, on this one. */
static void each(const struct alpenglow_parallel *parallel, alpenglow_task task,
                 struct regions *at, int64_t extent) {
  if (parallel == NULL || extent <= 1) {
    task(at, 0, extent);
  } else {
    parallel->parallel_for(parallel->pool, task, at, extent);
  }
}
"""

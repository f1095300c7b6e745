"""Bundles as C that people can read and any compiler takes: NAME.c, with the header of all formats.

Kernels are those of the object format, each a function (`render.c`); the entry points call them
in order at computed addresses.  Results are those of `compile` to rounding: C compilers contract
and round in their own way.
"""

from __future__ import annotations

from collections.abc import Iterator

from alpenglow.base.errors import UnsupportedError
from alpenglow.bundles.config import config
from alpenglow.bundles.entry import MISALIGNED, OUT_OF_RANGE, Api
from alpenglow.bundles.header import parameters
from alpenglow.bundles.plan import BundlePlan, KernelCall, Routine
from alpenglow.ir.types import DTYPES
from alpenglow.render.c.render import Unit
from alpenglow.render.c.spelling import memory

_REGIONS = {"constants": "constants", "mutable": "mutable_data", "scratch": "scratch"}


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
        parts += [_bytes(f"{name}_constants", layout.weights(), layout.alignment)]
    if api == "dynamic":
        parts += [_EACH]
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
    yield f"int {routine.entry}({parameters('static')}) {{"
    yield _checked(layout.alignment)
    yield from _cleared(routine)
    for call in routine.calls:
        yield f"  {_call(layout, names, call, '', '0', str(call.extent))}"
    yield from _returned(routine)


def _dynamic(layout: BundlePlan, routine: Routine, names: dict[str, str]) -> Iterator[str]:
    entry = routine.entry
    yield _bytes(f"{entry}_config", config(layout, routine, 0), 8)
    for number, call in enumerate(routine.calls):
        yield f"static void {entry}_{number}(void *context, int64_t begin, int64_t end) {{"
        yield "  const struct regions *at = context;"
        if layout.kernels[call.kernel].kernel.parallel is None:
            yield "  (void)begin, (void)end;"
        yield f"  {_call(layout, names, call, 'at->', '(ptrdiff_t)begin', '(ptrdiff_t)end')}"
        yield from ("}", "")
    yield f"int {entry}({parameters('dynamic')}) {{"
    yield _checked(layout.alignment)
    yield "  struct regions at = {constants, mutable_data, scratch};"
    yield from _cleared(routine)
    for number, call in enumerate(routine.calls):
        yield f"  each(parallel, {entry}_{number}, &at, {call.extent});"
    yield from _returned(routine)


def _cleared(routine: Routine) -> Iterator[str]:
    """Clear the words in which checks leave what they find."""
    if routine.checks:
        place = routine.stop_word
        at = f"{_REGIONS[place.memory]} + {place.offset}"
        yield f"  volatile int64_t *const found = (volatile int64_t *)({at});"
        yield "  found[0] = found[1] = 0;"


def _returned(routine: Routine) -> Iterator[str]:
    """Return whether data was out of range."""
    yield f"  return found[0] != 0 ? {OUT_OF_RANGE} : 0;" if routine.checks else "  return 0;"
    yield "}"


def _checked(alignment: int) -> str:
    regions = " | ".join(f"(uintptr_t){region}" for region in _REGIONS.values())
    return f"  if (({regions}) % {alignment} != 0) return {MISALIGNED};"


def _call(
    layout: BundlePlan, names: dict[str, str], call: KernelCall, prefix: str, begin: str, end: str
) -> str:
    kernel = layout.kernels[call.kernel].kernel
    arguments = []
    for b, place in zip(kernel.buffers, call.args, strict=True):
        const = "const " if place.memory == "constants" or not b.mutable else ""
        const += "volatile " if b.volatile else ""
        region = f"{prefix}{_REGIONS[place.memory]}"
        at = f"({region} + {place.offset})" if place.offset else region
        arguments.append(f"({const}{memory(b.dtype)} *){at}")
    arguments += [begin, end] if kernel.parallel is not None else []
    return f"{names[call.kernel]}({', '.join(arguments)});"


def _bytes(name: str, content: bytes, alignment: int) -> str:
    numbers = [str(value) for value in range(256)]
    rows = (content[i : i + 24] for i in range(0, len(content) or 1, 24))
    listed = ",\n".join(",".join(map(numbers.__getitem__, row)) for row in rows)
    head = f"extern const uint8_t {name}[];\n_Alignas({alignment}) const uint8_t {name}"
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

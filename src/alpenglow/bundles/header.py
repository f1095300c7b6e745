"""The C header of a bundle: what it needs, where its inputs and outputs lie, how it is called."""

from __future__ import annotations

from collections.abc import Iterator

from alpenglow.bundles.entry import OUT_OF_RANGE, Api
from alpenglow.bundles.job import Needs
from alpenglow.bundles.plan import BundlePlan, Routine, Symbol
from alpenglow.ir.graph import HIDDEN
from alpenglow.ir.types import COMPLEX, NARROW

C_TYPES = {
    "bool": "uint8_t",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    **dict.fromkeys(sorted(NARROW), "uint8_t"),
    "c64": "float",
    "c128": "double",
}
"""What an element is in C: of types that C does not have, the bits; complex ones are pairs."""


def header(
    layout: BundlePlan, name: str, api: Api, embedded: bool, needs: Needs, version: str
) -> str:
    """Return the text of NAME.h."""
    guard, upper = f"{name.upper()}_H", name.upper()
    includes = ["<stdint.h>"] + (['"alpenglow_bundle.h"'] if api == "dynamic" else [])
    lines = [
        *_comment(layout, name, embedded, needs, version),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        *(f"#include {file}" for file in includes),
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {upper}_ALIGNMENT {layout.alignment}",
        f"#define {upper}_CONSTANTS_NBYTES {layout.constants_nbytes}",
    ]
    if needs.compiled:
        lines.append(f"#define {upper}_CODE_NBYTES {needs.code_nbytes + needs.data_nbytes}")
    if embedded:
        lines += [
            "",
            "/* The weights, beside the code. */",
            f"extern const uint8_t {name}_constants[];",
        ]
    for routine in layout.routines:
        lines += ["", *_routine(routine, api, needs)]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "#endif"]
    return "\n".join(lines) + "\n"


def _comment(
    layout: BundlePlan, name: str, embedded: bool, needs: Needs, version: str
) -> Iterator[str]:
    where = f"beside the code, {name}_constants" if embedded else f"{name}.weights.bin"
    alignment = layout.alignment
    yield f"/* {name}: made by Alpenglow {version} for {layout.target}."
    yield " *"
    yield " * Bytes of memory:"
    if needs.compiled:
        yield f" *   code       {needs.code_nbytes + needs.data_nbytes:>11}"
    yield f" *   constants  {layout.constants_nbytes:>11}  the weights, only read: {where}"
    for r in layout.routines:
        of = f"of {r.entry}: " if len(layout.routines) > 1 else ""
        yield f" *   mutable    {r.mutable_nbytes:>11}  {of}inputs and outputs"
        yield f" *   scratch    {r.scratch_nbytes:>11}  {of}anything before and after a call"
        bound = "of one call, at most" if needs.compiled else "arrays; a compiler adds to it"
        yield f" *   stack      {needs.stack_nbytes:>11}  {of}{bound}"
    yield " *"
    yield f" * constants, mutable and scratch begin at multiples of {alignment}.  Calls that share"
    yield " * neither mutable nor scratch memory may run at the same time.  Inputs are left as they"
    yield " * are."
    yield " */"


def _routine(routine: Routine, api: Api, needs: Needs) -> Iterator[str]:
    entry, upper = routine.entry, routine.entry.upper()
    yield f"#define {upper}_MUTABLE_NBYTES {routine.mutable_nbytes}"
    yield f"#define {upper}_SCRATCH_NBYTES {routine.scratch_nbytes}"
    if needs.compiled:
        yield f"#define {upper}_STACK_NBYTES {needs.stack_nbytes}"
    for s in routine.symbols:
        yield from ("", *_symbol(upper, s))
    yield ""
    yield from _status(routine)
    yield f"int {entry}({parameters(api)});"
    if routine.choices:
        yield ""
        yield f"/* What {entry} calls on this processor, or null: for programs that ask once. */"
        yield f"typedef int (*{entry}_function)({parameters(api)});"
        yield f"{entry}_function {entry}_choose(void);"
    if api == "dynamic":
        yield ""
        yield "/* Sizes, and the inputs and outputs by name. */"
        yield f"extern const struct alpenglow_config {entry}_config;"


def _status(routine: Routine) -> Iterator[str]:
    """Say what the entry point returns."""
    if routine.choices:
        yield "/* Returns 0; without doing anything, 1 if a region is not aligned, or 2 if this"
        last = " * processor has none of the levels that there is code for."
    else:
        last = "/* Returns 0, or 1 without doing anything if a region is not aligned."
    if not routine.checks:
        yield f"{last} */"
        return
    yield last
    yield f" * Returns {OUT_OF_RANGE} if an index, given or computed, is out of range: outputs then"
    yield " * hold anything, and the int64_t at this offset in mutable memory is one of those. */"
    yield f"#define {routine.entry.upper()}_OUT_OF_RANGE_OFFSET {routine.stop_word.offset + 8}"


def parameters(api: Api) -> str:
    """Return the parameters of an entry point."""
    text = "const uint8_t *constants, uint8_t *mutable_data, uint8_t *scratch"
    # Without threads, a null pointer.
    return text + (", const struct alpenglow_parallel *parallel" if api == "dynamic" else "")


def macro(entry: str, s: Symbol, what: str) -> str:
    """Return the name of a macro about an input or output."""
    return f"{entry.upper()}_{'OUTPUT' if s.output else 'INPUT'}_{s.ident.upper()}_{what}"


def _symbol(upper: str, s: Symbol) -> Iterator[str]:
    shape = s.type.extents
    count = s.type.size * (2 if s.type.dtype in COMPLEX else 1)
    kind = "output" if s.output else "input"
    hidden = ": random bits, new ones for each call" if s.name.startswith(HIDDEN) else ""
    quoted = "".join(c if c.isprintable() and c not in "*/\\" else "?" for c in s.name)
    yield f"/* {kind} {quoted}: {s.type}, row-major{hidden} */"
    yield f"#define {macro(upper, s, 'OFFSET')} {s.offset}"
    yield f"#define {macro(upper, s, 'NBYTES')} {s.type.nbytes}"
    yield f"#define {macro(upper, s, 'TYPE')} {C_TYPES[s.type.dtype]}"
    yield f"#define {macro(upper, s, 'COUNT')} {count}"
    yield f"#define {macro(upper, s, 'RANK')} {len(shape)}"
    if shape:
        yield f"#define {macro(upper, s, 'SHAPE')} {{{', '.join(map(str, shape))}}}"


def weights_header(layout: BundlePlan, name: str) -> str:
    """Return the text of NAME.weights.h: the region of constants as a C array."""
    content = layout.weights() or b"\0"
    numbers = [str(value) for value in range(256)]
    rows = (content[i : i + 24] for i in range(0, len(content), 24))
    lines = [",".join(map(numbers.__getitem__, row)) + "," for row in rows]
    guard = f"{name.upper()}_WEIGHTS_H"
    return "\n".join(
        [
            f"/* The constants of {name}, for programs that cannot read {name}.weights.bin. */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <stdint.h>",
            "",
            "#ifdef __cplusplus",
            f"alignas({layout.alignment})",
            "#else",
            f"_Alignas({layout.alignment})",
            "#endif",
            f"static const uint8_t {name}_weights[{len(content)}] = {{",
            *lines,
            "};",
            "",
            "#endif",
        ]
    ) + "\n"  # fmt: skip

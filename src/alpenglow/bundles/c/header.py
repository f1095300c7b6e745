"""The C header of a bundle: what it needs, where its inputs and outputs lie, how it is called."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from alpenglow.bundles.entry import OUT_OF_RANGE, Api
from alpenglow.bundles.entry_state import MISALIGNED, NO_MACHINE, NO_ROOM, NO_STATE
from alpenglow.bundles.job import Needs
from alpenglow.bundles.mutable import State, Symbol
from alpenglow.bundles.plan import BundlePlan, Routine
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
    state = layout.routines[0].state
    if state is not None:
        lines += ["", *_state(state)]
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
        holds = "inputs and outputs"
        if r.state is not None:
            holds = f"state ({r.state.nbytes} bytes), {holds}"
        yield f" *   mutable    {r.mutable_nbytes:>11}  {of}{holds}"
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
    if routine.step:
        yield f"#define {upper}_ROWS {routine.step} /* that a call adds to the state */"
    for s in routine.symbols:
        yield from ("", *_symbol(s, upper))
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


def _state(state: State) -> Iterator[str]:
    """Say what stays in mutable memory, and declare what handles it."""
    name, upper = state.name, state.name.upper()
    yield from said(
        "State that stays from call to call, at the beginning of mutable memory.  Entry points "
        "that are called on one piece of memory, with room for what each needs, share it."
    )
    yield f"#define {upper}_STATE_NBYTES {state.nbytes}"
    if state.length:
        yield f"#define {upper}_STATE_LENGTH {state.length} /* rows that there is room for */"
    for s in state.cells:
        yield from ("", *_symbol(s, upper, "state"))
    aligned = f"{MISALIGNED} without doing anything if memory is not aligned"
    yield ""
    yield from said(f"Makes the state what it is before the first call.  Returns 0, or {aligned}.")
    yield f"int {name}_reset(const uint8_t *constants, uint8_t *mutable_data);"
    if state.length:
        yield from ("", *said("Returns how many rows there are, or -1 if there is no state."))
        yield f"int64_t {name}_length(const uint8_t *mutable_data);"
        yield ""
        yield from said(
            "Keeps the first rows, as if no more had been computed.  Returns 0; without doing "
            f"anything, {MISALIGNED} if memory is not aligned, {NO_STATE} if there is no state or "
            f"{NO_ROOM} if there are not as many rows."
        )
        yield f"int {name}_trim(uint8_t *mutable_data, int64_t rows);"


def _status(routine: Routine) -> Iterator[str]:
    """Say what the entry point returns."""
    reasons = [f"{MISALIGNED} if a region is not aligned"]
    if routine.choices:
        reasons.append(f"{NO_MACHINE} if this processor has none of the levels that there is code "
                       "for")  # fmt: skip
    if routine.state is not None:
        reasons.append(f"{NO_STATE} if there is no state ({routine.state.name}_reset makes it)")
    if routine.step:
        reasons.append(f"{NO_ROOM} if there is no room for {routine.entry.upper()}_ROWS more")
    last = reasons.pop()
    listed = f"{', '.join(reasons)} or {last}" if reasons else last
    text = f"Returns 0; without doing anything, {listed}."
    if routine.checks:
        text += (
            f"  Returns {OUT_OF_RANGE} if an index, given or computed, is out of range: outputs "
            "then hold anything, and the int64_t at this offset in mutable memory is one of those."
        )
    if routine.checks and routine.state is not None:
        lost = "is lost then, until it is made anew" if routine.loses else "is as it was then"
        text += f"  The state {lost}."
    yield from said(text)
    if routine.checks:
        offset = routine.stop_word.offset + 8
        yield f"#define {routine.entry.upper()}_OUT_OF_RANGE_OFFSET {offset}"


def said(text: str) -> Iterator[str]:
    """Return a comment in lines."""
    *lines, end = textwrap.wrap(
        text, 96, initial_indent="/* ", subsequent_indent=" * ",
        break_long_words=False, break_on_hyphens=False, fix_sentence_endings=True,
    )  # fmt: skip
    yield from (*lines, f"{end} */")


def parameters(api: Api) -> str:
    """Return the parameters of an entry point."""
    text = "const uint8_t *constants, uint8_t *mutable_data, uint8_t *scratch"
    # Without threads, a null pointer.
    return text + (", const struct alpenglow_parallel *parallel" if api == "dynamic" else "")


def macro(entry: str, s: Symbol, what: str, kind: str = "") -> str:
    """Return the name of a macro about an input or output, or another kind of thing."""
    return f"{entry.upper()}_{(kind or _kind(s)).upper()}_{s.ident.upper()}_{what}"


def _kind(s: Symbol) -> str:
    return "output" if s.output else "input"


def _symbol(s: Symbol, upper: str, kind: str = "") -> Iterator[str]:
    yield symbol_about(s, kind)
    yield f"#define {macro(upper, s, 'OFFSET', kind)} {s.offset}"
    yield from symbol_sizes(s, upper, kind)


def symbol_about(s: Symbol, kind: str = "") -> str:
    """Return a comment on an input or output, or another kind of thing."""
    hidden = ": random bits, new ones for each call" if s.hidden else ""
    if s.now:
        hidden = f": {s.shown}, of the rows before a call; these are the largest numbers"
    quoted = "".join(c if c.isprintable() and c not in "*/\\" else "?" for c in s.name)
    return f"/* {kind or _kind(s)} {quoted}: {s.type}, row-major{hidden} */"


def symbol_sizes(s: Symbol, upper: str, kind: str = "") -> Iterator[str]:
    """Yield macros about the size of an input or output, or of another kind of thing."""
    shape = s.type.extents
    count = s.type.size * (2 if s.type.dtype in COMPLEX else 1)
    yield f"#define {macro(upper, s, 'NBYTES', kind)} {s.type.nbytes}"
    yield f"#define {macro(upper, s, 'TYPE', kind)} {C_TYPES[s.type.dtype]}"
    yield f"#define {macro(upper, s, 'COUNT', kind)} {count}"
    yield f"#define {macro(upper, s, 'RANK', kind)} {len(shape)}"
    if shape:
        yield f"#define {macro(upper, s, 'SHAPE', kind)} {{{', '.join(map(str, shape))}}}"


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

"""The C header of a bundle for OpenCL: how a model is made on a device, run and given back."""

from __future__ import annotations

from collections.abc import Iterator

from alpenglow.bundles.c.header import C_TYPES, said, symbol_about, symbol_sizes
from alpenglow.bundles.entry import OUT_OF_RANGE
from alpenglow.bundles.entry_state import NO_MACHINE
from alpenglow.bundles.plan import BundlePlan, Routine

CODES = (
    ("NO_DEVICE", NO_MACHINE, "there is no device of this number"),
    ("OUT_OF_RANGE", OUT_OF_RANGE, "an index, given or computed: outputs hold anything then"),
    ("OPENCL", 6, "a function of OpenCL failed"),
    ("NOT_BUILT", 7, "the device's compiler refuses a kernel: the message is its log"),
    ("NO_MEMORY", 8, "there is not enough memory on the host"),
)
"""What functions return that fail: the end of a macro, its number, and why."""


def header(layout: BundlePlan, name: str, embedded: bool, version: str) -> str:
    """Return the text of NAME.h."""
    guard = f"{name.upper()}_H"
    lines = [
        *_comment(layout, name, embedded, version),
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
        "#include <stdint.h>",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        f"#define {name.upper()}_CONSTANTS_NBYTES {layout.constants_nbytes}",
        *(f"#define {name.upper()}_{end} {code} /* {why} */" for end, code, why in CODES),
    ]
    if embedded:
        lines += ["", "/* The weights, beside the code. */",
                  f"extern const uint8_t {name}_constants[];"]  # fmt: skip
    lines += ["", *_model(name)]
    for routine in layout.routines:
        lines += ["", *_routine(name, routine)]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "#endif"]
    return "\n".join(lines) + "\n"


def signature(name: str, routine: Routine) -> str:
    """Return the head of an entry point."""
    parameters = [f"struct {name}_model *model"]
    parameters += [f"const {C_TYPES[s.type.dtype]} *input_{s.ident}" for s in routine.inputs]
    parameters += [f"{C_TYPES[s.type.dtype]} *output_{s.ident}" for s in routine.outputs]
    return f"int {routine.entry}({', '.join(parameters)})"


def _comment(layout: BundlePlan, name: str, embedded: bool, version: str) -> Iterator[str]:
    where = f"beside the code, {name}_constants" if embedded else f"{name}.weights.bin"
    mutable = max(r.mutable_nbytes for r in layout.routines)
    scratch = max(r.scratch_nbytes for r in layout.routines)
    yield f"/* {name}: made by Alpenglow {version} for OpenCL devices ({layout.target})."
    yield " *"
    yield " * Bytes of memory on the device:"
    yield f" *   constants  {layout.constants_nbytes:>11}  the weights: {where}"
    yield f" *   mutable    {mutable:>11}  inputs and outputs"
    yield f" *   scratch    {scratch:>11}  what lives during a call"
    yield " *"
    yield " * Calls on one model come one after another; models are independent of each other."
    yield " */"


def _model(name: str) -> Iterator[str]:
    upper = name.upper()
    yield "/* A model on a device. */"
    yield f"struct {name}_model;"
    yield ""
    yield from said(
        f"Makes a model on a device by its number: GPUs come first, then accelerators, then "
        f"processors, each in the order of the loader.  The weights, {upper}_CONSTANTS_NBYTES "
        f"bytes, are copied.  Returns 0 or a code; the model is to be destroyed either way."
    )
    yield f"int {name}_create(struct {name}_model **model, const uint8_t *constants,"
    yield "    unsigned device);"
    yield ""
    yield from said(
        "The same on the caller's cl_context, cl_device_id and cl_command_queue.  The queue runs "
        "in order; it and the context are retained until the model is destroyed."
    )
    yield f"int {name}_create_on(struct {name}_model **model, const uint8_t *constants,"
    yield "    void *context, void *device, void *queue);"
    yield ""
    yield "/* Gives back all that a model has; null is allowed. */"
    yield f"void {name}_destroy(struct {name}_model *model);"
    yield ""
    yield "/* Returns what the function that failed last has to say, in English. */"
    yield f"const char *{name}_message(const struct {name}_model *model);"


def _routine(name: str, routine: Routine) -> Iterator[str]:
    upper = routine.entry.upper()
    for s in routine.symbols:
        yield symbol_about(s)
        yield from symbol_sizes(s, upper)
        yield ""
    yield from said(
        "Copies inputs to the device, runs, and copies outputs back; returns 0 when that is done, "
        "or a code.  Arrays are the host's, row-major."
    )
    yield f"{signature(name, routine)};"

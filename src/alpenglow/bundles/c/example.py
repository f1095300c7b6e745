"""main.c: a program that runs the first entry point of a bundle on one input."""

from __future__ import annotations

from alpenglow.bundles.c.header import macro
from alpenglow.bundles.entry import Api
from alpenglow.bundles.mutable import Symbol
from alpenglow.bundles.plan import BundlePlan, Routine


def example(layout: BundlePlan, name: str, api: Api, embedded: bool) -> str:
    """Return the text of main.c."""
    routine = layout.routines[0]
    upper, entry = name.upper(), routine.entry.upper()
    weights = _EMBEDDED if embedded else _SEPARATE
    threads = _THREADED if api == "dynamic" else _SINGLE
    text = _MAIN.replace("@WEIGHTS@", weights).replace("@CALL@", threads)
    resets = "" if routine.state is None else _RESETS
    text = text.replace("@RESETS@", resets)
    text = text.replace("@READS@", _reads(routine)).replace("@PRINTS@", _prints(routine))
    text = text.replace("@COUNT@", str(len(routine.inputs)))
    text = text.replace("@NAME@", name).replace("@UPPER@", upper)
    text = text.replace("@ENTRY@", routine.entry).replace("@ENTRY_UPPER@", entry)
    return text.replace("@INPUTS@", " ".join(s.ident.upper() for s in routine.inputs))


def _reads(routine: Routine) -> str:
    return "\n".join(
        f"    if (argc > {k} && !read_file(argv[{k}], mutable_data + "
        f"{macro(routine.entry, s, 'OFFSET')}, {macro(routine.entry, s, 'NBYTES')}))\n"
        "        return 1;"
        for k, s in enumerate(routine.inputs, 1)
    )


def _prints(routine: Routine) -> str:
    return "\n".join(_print(routine.entry, s) for s in routine.outputs)


def _print(entry: str, s: Symbol) -> str:
    where = f"mutable_data + {macro(entry, s, 'OFFSET')}"
    kind, count = macro(entry, s, "TYPE"), macro(entry, s, "COUNT")
    title = s.ident.replace('"', "")
    return f"""    {{
        const {kind} *y = (const {kind} *)(const void *)({where});
        long best = 0;
        printf("{title}:");
        for (long i = 0; i < {count}; i++) {{
            if (i < 8)
                printf(" %.9g", (double)y[i]);
            if (y[i] > y[best])
                best = i;
        }}
        printf("%s, largest at %ld\\n", {count} > 8 ? " ..." : "", best);
    }}"""


_EMBEDDED = """
static const uint8_t *load_weights(void)
{
    return @NAME@_constants;
}
"""

_SEPARATE = """
#ifdef WEIGHTS_IN_PROGRAM
#include "@NAME@.weights.h"

static const uint8_t *load_weights(void)
{
    return @NAME@_weights;
}
#else
#ifndef WEIGHTS
#define WEIGHTS "@NAME@.weights.bin"
#endif
static _Alignas(@UPPER@_ALIGNMENT) uint8_t constants[@UPPER@_CONSTANTS_NBYTES + 1];

static const uint8_t *load_weights(void)
{
    return read_file(WEIGHTS, constants, @UPPER@_CONSTANTS_NBYTES) ? constants : NULL;
}
#endif
"""

_RESETS = """    if (@NAME@_reset(weights, mutable_data) != 0)
        return 1;
"""

_SINGLE = """    if (@ENTRY@(weights, mutable_data, scratch) != 0)
        return 1;"""

_THREADED = """    /* One thread; alpenglow_threads.h shows how to use several. */
    if (@ENTRY@(weights, mutable_data, scratch, NULL) != 0)
        return 1;"""

_MAIN = """/* Runs @ENTRY@ once and prints what comes out.
 *
 * Arguments are files with the elements of the inputs, in order: @INPUTS@.
 * Inputs without a file are zeros.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "@NAME@.h"

static int read_file(const char *path, uint8_t *to, size_t nbytes)
{
    FILE *file = fopen(path, "rb");
    size_t found = file ? fread(to, 1, nbytes, file) : 0;
    if (file)
        fclose(file);
    if (found != nbytes)
        fprintf(stderr, "%s: expected %lu bytes, found %lu\\n", path, (unsigned long)nbytes,
                (unsigned long)found);
    return found == nbytes;
}
@WEIGHTS@
static _Alignas(@UPPER@_ALIGNMENT) uint8_t mutable_data[@ENTRY_UPPER@_MUTABLE_NBYTES + 1];
static _Alignas(@UPPER@_ALIGNMENT) uint8_t scratch[@ENTRY_UPPER@_SCRATCH_NBYTES + 1];

int main(int argc, char **argv)
{
    const uint8_t *weights = load_weights();
    if (weights == NULL || argc > @COUNT@ + 1)
        return 1;
@RESETS@@READS@
@CALL@
@PRINTS@
    return 0;
}
"""

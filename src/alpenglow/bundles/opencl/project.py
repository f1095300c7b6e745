"""The files beside a bundle for OpenCL: an example, and what lets CMake find the bundle."""

from __future__ import annotations

from alpenglow.bundles.c.header import macro
from alpenglow.bundles.mutable import Symbol
from alpenglow.bundles.plan import BundlePlan


def cmake(name: str, embedded: bool) -> str:
    """Return the text of CMakeLists.txt."""
    return _CMAKE.replace("@WEIGHTS@", "" if embedded else _WEIGHTS).replace("@NAME@", name)


def example(layout: BundlePlan, name: str, embedded: bool) -> str:
    """Return the text of main.c: a program that runs the first entry point on one input."""
    routine = layout.routines[0]
    inputs, outputs = routine.inputs, routine.outputs

    def argument(k: int, s: Symbol) -> str:
        nbytes = macro(routine.entry, s, "NBYTES")
        return (
            f"    if (argc > {k} && !read_file(argv[{k}], input_{s.ident}, {nbytes}))\n"
            "        return 1;\n"
        )

    arrays = [_array(routine.entry, s) for s in routine.symbols]
    arguments = ["on_device", *(f"input_{s.ident}" for s in inputs),
                 *(f"output_{s.ident}" for s in outputs)]  # fmt: skip
    parts = {
        "@ARRAYS@": "\n".join(arrays),
        "@WEIGHTS@": _EMBEDDED if embedded else _SEPARATE,
        "@READS@": "".join(argument(k, s) for k, s in enumerate(inputs, 1)),
        "@PRINTS@": "".join(_print(routine.entry, s) for s in outputs),
        "@ARGUMENTS@": ", ".join(arguments),
        "@INPUTS@": " ".join(s.ident for s in inputs),
        "@ENTRY@": routine.entry,
        "@UPPER@": name.upper(),
        "@NAME@": name,
    }
    text = _MAIN
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


def _array(entry: str, s: Symbol) -> str:
    kind = "output" if s.output else "input"
    return f"static {macro(entry, s, 'TYPE')} {kind}_{s.ident}[{macro(entry, s, 'COUNT')} + 1];"


def _print(entry: str, s: Symbol) -> str:
    count = macro(entry, s, "COUNT")
    return (
        f'    printf("{s.ident}:");\n'
        f"    for (long i = 0; i < {count} && i < 8; i++)\n"
        f'        printf(" %.9g", (double)output_{s.ident}[i]);\n'
        '    printf("\\n");\n'
    )


_EMBEDDED = """\
static const uint8_t *load_weights(void)
{
    return @NAME@_constants;
}
"""

_SEPARATE = """\
#ifndef WEIGHTS
#define WEIGHTS "@NAME@.weights.bin"
#endif

static const uint8_t *load_weights(void)
{
    static uint8_t constants[@UPPER@_CONSTANTS_NBYTES + 1];
    return read_file(WEIGHTS, constants, @UPPER@_CONSTANTS_NBYTES) ? constants : NULL;
}
"""

_MAIN = """\
/* Runs @ENTRY@ once on an OpenCL device and prints what comes out.
 *
 * Arguments are files with the elements of the inputs, in order: @INPUTS@.
 * Inputs without a file are zeros.
 */
#include <stdint.h>
#include <stdio.h>

#include "@NAME@.h"

#ifndef DEVICE
#define DEVICE 0
#endif

@ARRAYS@

static int read_file(const char *path, void *to, size_t nbytes)
{
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(to, 1, nbytes, file) : 0;
    if (file)
        fclose(file);
    if (count != nbytes)
        fprintf(stderr, "%s: expected %lu bytes, found %lu\\n", path, (unsigned long)nbytes,
                (unsigned long)count);
    return count == nbytes;
}

@WEIGHTS@
int main(int argc, char **argv)
{
    struct @NAME@_model *on_device = NULL;
    const uint8_t *weights = load_weights();
    if (weights == NULL)
        return 1;
@READS@    (void)argc, (void)argv;
    int code = @NAME@_create(&on_device, weights, DEVICE);
    if (code == 0)
        code = @ENTRY@(@ARGUMENTS@);
    if (code != 0)
        fprintf(stderr, "%s\\n", @NAME@_message(on_device));
    @NAME@_destroy(on_device);
    if (code != 0)
        return 1;
@PRINTS@    return 0;
}
"""

_CMAKE = """\
# add_subdirectory(DIR), then target_link_libraries(PROGRAM PRIVATE @NAME@).
cmake_minimum_required(VERSION 3.13)
project(@NAME@ C)

find_library(OPENCL_LOADER NAMES OpenCL libOpenCL.so.1)
add_library(@NAME@ STATIC @NAME@.c)
set_target_properties(@NAME@ PROPERTIES C_STANDARD 99)
target_include_directories(@NAME@ PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(@NAME@ PUBLIC ${OPENCL_LOADER})
if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable(@NAME@_example main.c)
  target_link_libraries(@NAME@_example PRIVATE @NAME@)
@WEIGHTS@endif()
"""

_WEIGHTS = """  target_compile_definitions(@NAME@_example PRIVATE
    WEIGHTS="${CMAKE_CURRENT_SOURCE_DIR}/@NAME@.weights.bin")
"""

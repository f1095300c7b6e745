"""What a file of C defines before its kernels: types, and the functions that they call."""

from __future__ import annotations

import re
from functools import cache
from string import Template

from alpenglow.ir.types import DTYPES
from alpenglow.kernel.intrinsics import INTRINSICS
from alpenglow.render.c import machine
from alpenglow.render.c.functions import BOTH, FLOATING, PLAIN
from alpenglow.render.c.spelling import TYPES
from alpenglow.render.clike import library as clike
from alpenglow.render.clike.spelling import vector

_HEADERS = "#include <stddef.h>\n#include <stdint.h>\n"
_FUSED = """\
/* Where the machine multiplies and adds in one step, rounding once. */
#if defined(__GNUC__) && (defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA))
#define HAS_FMA_F32
#endif
#if defined(__GNUC__) && defined(__riscv_flen)
#define HAS_FMA_F32
#endif
#if defined(HAS_FMA_F32) && (!defined(__ARM_FP) || __ARM_FP & 8)
#define HAS_FMA_F64
#endif
"""
_INLINE = {
    True: """\
#define INLINE static inline
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function"
#endif
""",
    False: """\
#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wunused-function"
#else
/* Vectors are passed to functions that are inlined, so no convention of calling matters. */
#pragma GCC diagnostic ignored "-Wpsabi"
#endif
""",
}
_KERNEL = """\
#if defined(__GNUC__)
#define KERNEL static __attribute__((noinline))
#else
#define KERNEL static
#endif
"""
_STRUCTS = {
    "c64": "typedef struct { uint32_t half[2]; } c64;\n",
    "c128": "typedef struct { uint64_t half[2]; } c128;\n",
}


class CLibrary(clike.Library):
    """Headers, types of vectors, and the functions of `functions` that are called."""

    language = "C"
    inline = "INLINE"

    def __init__(self, portable: bool) -> None:
        super().__init__()
        self.portable = portable

    def text(self) -> str:
        functions = "\n".join(self.functions.values())
        fused = _FUSED if "HAS_FMA" in functions else ""
        root = "#define HAS_ROOT\n" if "HAS_ROOT" in functions else ""
        headers = machine.HEADERS if "_mm" in functions else ""
        parts = [
            _HEADERS,
            headers,
            _KERNEL,
            _INLINE[self.portable] if functions else "",
            fused,
            root,
        ]
        return "\n".join([p for p in [*parts, "".join(self.types.values()), functions] if p])

    def type(self, dtype: str, lanes: int = 1) -> str:
        if lanes > 1:
            name = vector(dtype, lanes)
            element = "int32_t" if dtype == "bool" else TYPES[dtype]
            size = lanes * (4 if dtype == "bool" else DTYPES[dtype].itemsize)
            attribute = f"__attribute__((vector_size({size})))"
            self.types.setdefault(name, f"typedef {element} {name} {attribute};\n")
            return name
        if dtype in _STRUCTS:
            self.types.setdefault(dtype, _STRUCTS[dtype])
        return TYPES[dtype]

    def call(self, name: str, *operands: str) -> str:
        """Return a call of one of the functions that C text is given for."""
        if name not in _texts():
            raise self.lacks(f"{name.replace('_', ' of ')} without a library of mathematics")
        self.need(name)
        return f"{name}({', '.join(operands)})"

    def need(self, name: str) -> None:
        """Define a function, and before it those that it calls."""
        if name in self.functions:
            return
        text = _texts()[name]
        if self.portable:
            # An instruction of the machine, before what C can say.
            text = re.sub(
                r"#if defined\(HAS_ROOT\).*?#else\n(.*?)#endif\n", r"\1", text, flags=re.DOTALL
            )
        for other in re.findall(r"\w+", text):
            if other != name and other in _texts():
                self.need(other)
            if other in _STRUCTS:
                self.type(other)
        self.functions[name] = text


@cache
def _texts() -> dict[str, str]:
    """Return the functions by name."""
    whole = [Template(FLOATING).substitute(names) for names in BOTH.values()]
    whole += [PLAIN, *(known.c for known in INTRINSICS.values())]
    functions = {}
    for text in re.split(
        r"\n(?=(?:/\*.*\*/\n)?(?:INLINE|static inline) )",
        "\n".join(whole),
    ):
        if named := re.search(r"^(?:INLINE|static inline) [\w ]+?\b(\w+)\(", text, re.MULTILINE):
            functions[named[1]] = text.strip("\n") + "\n"
    return functions

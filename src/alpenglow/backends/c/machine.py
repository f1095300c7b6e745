"""Functions on vectors that matter for speed, by operations on whole vectors.

A loop over lanes says the same; but compilers take a long time to find the vector in thousands of
such loops, and some do not.  The one operation that C cannot say of vectors, to multiply and add
with one rounding, is the machine's by its header; where there is none, the loop remains.
"""

from __future__ import annotations

HEADERS = """\
#if defined(__x86_64__) && defined(__FMA__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
"""

FUSED = {
    ("f32", 16): ("__AVX512F__", "_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c)"),
    ("f32", 8): ("__FMA__", "_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c)"),
    ("f32", 4): ("__FMA__", "_mm_fmadd_ps((__m128)a, (__m128)b, (__m128)c)"),
    ("f64", 8): ("__AVX512F__", "_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c)"),
    ("f64", 4): ("__FMA__", "_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c)"),
    ("f64", 2): ("__FMA__", "_mm_fmadd_pd((__m128d)a, (__m128d)b, (__m128d)c)"),
}
"""What x86-64 has where the compiler defines a name."""

ARM = {
    ("f32", 4): "vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b)",
    ("f64", 2): "vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b)",
}

WHOLE = {
    "f32": {"whole": "0x4b000000", "magic": "8388608.0f", "one": "1.0f", "zero": "0.0f",
            "size": "0x7fffffff"},
    "f64": {"whole": "0x4330000000000000", "magic": "4503599627370496.0", "one": "1.0",
            "zero": "0.0", "size": "0x7fffffffffffffff"},
}  # fmt: skip
LIMITS = {"i32": ("2147483648.0", "INT32_MIN"), "i64": ("9223372036854775808.0", "INT64_MIN")}

BODIES = {
    "abs": "return ($v)(($i)x & $size);",
    "min": "return $select((a < b) | (a != a), a, b);",
    "max": "return $select((a > b) | (a != a), a, b);",
    "round": """\
const $i size = ($i)x & $size, sign = ($i)x & ~$size;
  const $v near = (($v)size + $magic) - $magic;
  return $select(size < $whole, ($v)((($i)near & $size) | sign), x);""",
    "trunc": """\
const $i size = ($i)x & $size, sign = ($i)x & ~$size;
  const $v safe = $select(size < $whole, x, ($v){$zero});
  const $v near = __builtin_convertvector(__builtin_convertvector(safe, $i), $v);
  return $select(size < $whole, ($v)((($i)near & $size) | sign), x);""",
    "floor": """\
const $v whole = $trunc(x);
  return $select(whole > x, whole - $one, whole);""",
    "ceil": """\
const $v whole = $trunc(x);
  return $select(whole < x, whole + $one, whole);""",
}
"""The bodies of functions of x, or of a and b; `$select` takes what a comparison gives."""


def fused(dtype: str, lanes: int, kind: str, otherwise: list[str]) -> list[str]:
    """Return the body of a * b + c, rounded once where the machine can."""
    lines = []
    if (dtype, lanes) in FUSED:
        name, call = FUSED[dtype, lanes]
        lines += [f"#if defined({name})", f"  return ({kind}){call};"]
        if (dtype, lanes) in ARM:
            lines += ["#elif defined(__aarch64__)", f"  return ({kind}){ARM[dtype, lanes]};"]
        return [*lines, "#else", *otherwise, "#endif"]
    return otherwise

"""Functions on vectors that matter for speed, by operations on whole vectors.

A loop over lanes says the same; but compilers take a long time to find the vector in thousands of
such loops, and some do not.  What C cannot say of vectors is the machine's, by its header: to
multiply and add with one rounding, and to load and store some lanes.  Where there is none, the loop
remains.
"""

from __future__ import annotations

HEADERS = """\
#if defined(__x86_64__) && defined(__AVX__)
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

_BITS = "_mm512_test_epi32_mask((__m512i)mask, (__m512i)mask)"
MASKED = {
    ("load", "f32", 16): ("__AVX512F__", f"x = (f32x16)_mm512_maskz_loadu_ps({_BITS}, place);"),
    ("load", "f32", 8): ("__AVX__", "x = (f32x8)_mm256_maskload_ps(place, (__m256i)mask);"),
    ("load", "f32", 4): ("__AVX__", "x = (f32x4)_mm_maskload_ps(place, (__m128i)mask);"),
    ("store", "f32", 16): ("__AVX512F__", f"_mm512_mask_storeu_ps(place, {_BITS}, (__m512)x);"),
    ("store", "f32", 8): ("__AVX__", "_mm256_maskstore_ps(place, (__m256i)mask, (__m256)x);"),
    ("store", "f32", 4): ("__AVX__", "_mm_maskstore_ps(place, (__m128i)mask, (__m128)x);"),
}
"""Loads and stores of some lanes on x86-64, as statements."""

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


def masked(verb: str, dtype: str, lanes: int, otherwise: str) -> list[str]:
    """Return the statement that moves some lanes."""
    if (verb, dtype, lanes) not in MASKED:
        return [otherwise]
    name, statement = MASKED[verb, dtype, lanes]
    return [f"#if defined({name})", statement, "#else", otherwise, "#endif"]


def fused(dtype: str, lanes: int, kind: str, otherwise: list[str]) -> list[str]:
    """Return the body of a * b + c, rounded once where the machine can."""
    lines = []
    if (dtype, lanes) in FUSED:
        name, call = FUSED[dtype, lanes]
        lines += [f"#if defined({name})", f"return ({kind}){call};"]
        if (dtype, lanes) in ARM:
            lines += ["#elif defined(__aarch64__)", f"return ({kind}){ARM[dtype, lanes]};"]
        return [*lines, "#else", *otherwise, "#endif"]
    return otherwise

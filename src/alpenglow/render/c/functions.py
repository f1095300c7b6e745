"""The functions of C that kernels call, written in C: what its operators do not say exactly.

No library is called.  Each function comes with the names of those that it calls itself, so that a
file holds what it uses and nothing else.  Where `f32` and `f64` differ only in names and numbers,
one text serves both: `$float` is the type, `$bits` the integer of its width.
"""

from __future__ import annotations

BOTH = {
    "f32": {
        "t": "f32", "float": "float", "bits": "uint32_t", "int": "int32_t", "f": "f",
        "sign": "0x80000000u", "size": "0x7fffffffu", "whole": "0x4b000000u", "magic": "8388608.0f",
        "mantissa": "23", "bias": "127", "hidden": "0x800000u", "inf": "0x7f800000u",
        "nan": "0x7fc00000u", "shift": "1", "steps": "25", "pairs": "24",
        "root": '"sqrtss %1, %0"', "vroot": '"vsqrtss %1, %1, %0"', "arm": '"fsqrt %s0, %s1"',
    },
    "f64": {
        "t": "f64", "float": "double", "bits": "uint64_t", "int": "int64_t", "f": "",
        "sign": "0x8000000000000000u", "size": "0x7fffffffffffffffu",
        "whole": "0x4330000000000000u", "magic": "4503599627370496.0", "mantissa": "52",
        "bias": "1023", "hidden": "0x10000000000000u", "inf": "0x7ff0000000000000u",
        "nan": "0x7ff8000000000000u", "shift": "0", "steps": "54", "pairs": "52",
        "root": '"sqrtsd %1, %0"', "vroot": '"vsqrtsd %1, %1, %0"', "arm": '"fsqrt %d0, %d1"',
    },
}  # fmt: skip
"""What the text of a function says for each of the two types.

From `whole` on, numbers have no fraction; `magic` is the least of them.
"""

FLOATING = """
INLINE $bits bits_$t($float x) {
  union { $float value; $bits bits; } u = {x};
  return u.bits;
}

INLINE $float ${t}_of_bits($bits bits) {
  union { $bits bits; $float value; } u = {bits};
  return u.value;
}

INLINE $float abs_$t($float x) {
  return ${t}_of_bits(bits_$t(x) & $size);
}

INLINE $float copysign_$t($float size, $float sign) {
  return ${t}_of_bits((bits_$t(size) & $size) | (bits_$t(sign) & $sign));
}

INLINE $float min_$t($float a, $float b) {
  return a < b || a != a ? a : b;
}

INLINE $float max_$t($float a, $float b) {
  return a > b || a != a ? a : b;
}

INLINE $float trunc_$t($float x) {
  const _Bool fits = (bits_$t(x) & $size) < $whole;
  const $float near = fits ? x : 0.0$f;
  return fits ? copysign_$t(($float)($int)near, x) : x;
}

INLINE $float floor_$t($float x) {
  const $float whole = trunc_$t(x);
  return whole > x ? whole - 1.0$f : whole;
}

INLINE $float ceil_$t($float x) {
  return -floor_$t(-x);
}

/* Half-way cases go to even: the sum has no digits left for the fraction. */
INLINE $float round_$t($float x) {
  const $float sum = abs_$t(x) + $magic;
  const $float near = sum - $magic;
  return (bits_$t(x) & $size) < $whole ? copysign_$t(near, x) : x;
}

/* x - n y, n whole and |n| the largest that leaves the sign of x: exact, as each step is. */
static inline $float rem_$t($float x, $float y) {
  const $float divisor = abs_$t(y);
  $float rest = abs_$t(x);
  if (!(divisor > 0.0$f) || !(rest < ${t}_of_bits($inf))) return ${t}_of_bits($nan);
  if (rest < divisor) return x;
  $float part = divisor;
  while (part <= rest / 2.0$f) part += part;
  for (;;) {
    if (rest >= part) rest -= part;
    if (part == divisor) return copysign_$t(rest, x);
    part /= 2.0$f;
  }
}

/* The digits of the root one after the other, as on paper, and one more to round by. */
static inline $float sqrt_digits_$t($float x) {
  if (!(x > 0.0$f)) return x == 0.0$f ? x : ${t}_of_bits($nan);
  if (x == ${t}_of_bits($inf)) return x;
  int exponent = (int)(bits_$t(x) >> $mantissa) - $bias;
  uint64_t mantissa = bits_$t(x) & ($hidden - 1);
  if (exponent == -$bias) {
    for (exponent++; mantissa < $hidden; exponent--) mantissa <<= 1;
  }
  mantissa = (mantissa | $hidden) << ($shift + (exponent & 1));
  uint64_t root = 0, rest = 0;
  for (int step = 0, pair = $pairs; step < $steps; step++, pair -= 2) {
    rest = (rest << 2) | (pair < 0 ? 0 : (mantissa >> pair) & 3);
    const uint64_t trial = (root << 2) | 1;
    const _Bool digit = rest >= trial;
    rest -= digit ? trial : 0;
    root = (root << 1) | digit;
  }
  const $bits half = ($bits)((exponent - (exponent & 1)) / 2 + $bias - 1);
  return ${t}_of_bits((half << $mantissa) + ($bits)((root >> 1) + (root & 1)));
}

/* What does not fit, NaN too, becomes the least integer. */
INLINE int32_t i32_of_$t($float x) {
  const _Bool fits = abs_$t(x) < 2147483648.0$f;
  const int32_t near = (int32_t)(fits ? x : 0.0$f);
  return fits ? near : INT32_MIN;
}

/* What does not fit, NaN too, becomes the least integer. */
INLINE int64_t i64_of_$t($float x) {
  const _Bool fits = abs_$t(x) < 9223372036854775808.0$f;
  const int64_t near = (int64_t)(fits ? x : 0.0$f);
  return fits ? near : INT64_MIN;
}

INLINE uint64_t u64_of_$t($float x) {
  const _Bool high = x >= 9223372036854775808.0$f;
  const int64_t low = i64_of_$t(high ? x - 9223372036854775808.0$f : x);
  return (uint64_t)low ^ (high ? 0x8000000000000000u : 0);
}

INLINE $float sqrt_$t($float x) {
#if defined(HAS_ROOT) && defined(__AVX__)
  __asm__($vroot : "=x"(x) : "x"(x));
  return x;
#elif defined(HAS_ROOT) && defined(__SSE2__)
  __asm__($root : "=x"(x) : "x"(x));
  return x;
#elif defined(HAS_ROOT) && defined(__aarch64__)
  __asm__($arm : "=w"(x) : "w"(x));
  return x;
#else
  return sqrt_digits_$t(x);
#endif
}

/* x, rounded, cut off towards zero with its last bit set, if rounding it has lost anything. */
INLINE $float odd_$t($float x, double lost) {
  const $int bits = ($int)bits_$t(x);
  const $int down = bits - ((bits < 0) != (lost < 0.0));
  return lost < 0.0 || lost > 0.0 ? ${t}_of_bits(($bits)(down | 1)) : x;
}
"""

PLAIN = """
/* a + b rounded to odd, which may be rounded once more as if it were exact. */
INLINE double odd_sum(double a, double b) {
  const double sum = a + b;
  const double part = sum - a;
  return odd_f64(sum, (a - (sum - part)) + (b - part));
}

INLINE float fma_digits_f32(float a, float b, float c) {
  return (float)odd_sum((double)a * b, c);
}

INLINE double low_product(double a, double b, double product) {
  const double x = a * 134217729.0, y = b * 134217729.0;
  const double above = x - (x - a), beyond = y - (y - b);
  const double below = a - above, beneath = b - beyond;
  return ((above * beyond - product) + above * beneath + below * beyond) + below * beneath;
}

/* Exact unless a product is beyond 2^960 or below 2^-960. */
static inline double fma_digits_f64(double a, double b, double c) {
  const double product = a * b;
  const double size = abs_f64(product);
  const _Bool split = size < 0x1p960 && size > 0x1p-960 && abs_f64(a) < 0x1p990 &&
                      abs_f64(b) < 0x1p990 && abs_f64(c) < 0x1p1000;
  if (!split) return product + c;
  const double low = low_product(a, b, product);
  const double sum = c + low, back = sum - c;
  const double lost = (c - (sum - back)) + (low - back);
  const double total = product + sum, part = total - product;
  const double rest = (product - (total - part)) + (sum - part);
  return total + odd_sum(lost, rest);
}

/* a b + c, rounded once. */
INLINE float fma_f32(float a, float b, float c) {
#if defined(HAS_FMA_F32)
  return __builtin_fmaf(a, b, c);
#else
  return fma_digits_f32(a, b, c);
#endif
}

/* a b + c, rounded once. */
INLINE double fma_f64(double a, double b, double c) {
#if defined(HAS_FMA_F64)
  return __builtin_fma(a, b, c);
#else
  return fma_digits_f64(a, b, c);
#endif
}

/* c + a b, where it does not matter if the product is rounded. */
INLINE float accumulate_f32(float a, float b, float c) {
#if defined(HAS_FMA_F32)
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

/* c + a b, where it does not matter if the product is rounded. */
INLINE double accumulate_f64(double a, double b, double c) {
#if defined(HAS_FMA_F64)
  return __builtin_fma(a, b, c);
#else
  return a * b + c;
#endif
}

INLINE uint64_t load_c64(const c64 *place) {
  return place->half[0] | (uint64_t)place->half[1] << 32;
}

INLINE void store_c64(c64 *place, uint64_t x) {
  place->half[0] = (uint32_t)x;
  place->half[1] = (uint32_t)(x >> 32);
}
"""

#pragma OPENCL FP_CONTRACT OFF

__kernel void gather(
    __global float *restrict y0,
    __global const float *restrict x0,
    __global const long *restrict x1) {
  for (long i0 = 0; i0 < 3; i0++) {
    for (long i1 = 0; i1 < 2; i1++) {
      const long x1_2 = x1[i0];
      const bool is3 = x1_2 < 0L;
      const long t4 = (long)((ulong)x1_2 + (ulong)9L);
      const long t5 = is3 ? t4 : x1_2;
      const long t6 = max(t5, 0L);
      const long t7 = min(t6, 8L);
      const float8 x0_8 = vload8(0, x0 + t7 * 20 + i1 * 8);
      vstore8(x0_8, 0, y0 + i0 * 20 + i1 * 8);
    }
    const int8 is9 = convert_int8(((long8)(16L) + (long8)(0, 1, 2, 3, 4, 5, 6, 7)) < (long8)(20L));
    const long x1_10 = x1[i0];
    const bool is11 = x1_10 < 0L;
    const long t12 = (long)((ulong)x1_10 + (ulong)9L);
    const long t13 = is11 ? t12 : x1_10;
    const long t14 = max(t13, 0L);
    const long t15 = min(t14, 8L);
    const long t17 = (long)((ulong)((long)((ulong)t15 * (ulong)20L)) + (ulong)16L);
    const float x0_18 = (is9.s0 != 0) ? x0[t17] : 0.0f;
    const float x0_19 = (is9.s1 != 0) ? x0[t17 + 1] : 0.0f;
    const float x0_20 = (is9.s2 != 0) ? x0[t17 + 2] : 0.0f;
    const float x0_21 = (is9.s3 != 0) ? x0[t17 + 3] : 0.0f;
    const float x0_22 = (is9.s4 != 0) ? x0[t17 + 4] : 0.0f;
    const float x0_23 = (is9.s5 != 0) ? x0[t17 + 5] : 0.0f;
    const float x0_24 = (is9.s6 != 0) ? x0[t17 + 6] : 0.0f;
    const float x0_25 = (is9.s7 != 0) ? x0[t17 + 7] : 0.0f;
    const float2 t26 = (float2)(x0_18, x0_19);
    const float2 t27 = (float2)(x0_20, x0_21);
    const float2 t28 = (float2)(x0_22, x0_23);
    const float2 t29 = (float2)(x0_24, x0_25);
    const float4 t30 = (float4)(t26, t27);
    const float4 t31 = (float4)(t28, t29);
    const float8 t32 = (float8)(t30, t31);
    const float8 t16 = t32;
    const long at33 = i0 * 20 + 16;
    if (is9.s0 != 0) y0[at33] = t16.s0;
    if (is9.s1 != 0) y0[at33 + 1] = t16.s1;
    if (is9.s2 != 0) y0[at33 + 2] = t16.s2;
    if (is9.s3 != 0) y0[at33 + 3] = t16.s3;
    if (is9.s4 != 0) y0[at33 + 4] = t16.s4;
    if (is9.s5 != 0) y0[at33 + 5] = t16.s5;
    if (is9.s6 != 0) y0[at33 + 6] = t16.s6;
    if (is9.s7 != 0) y0[at33 + 7] = t16.s7;
  }
}

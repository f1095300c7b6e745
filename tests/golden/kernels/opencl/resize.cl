#pragma OPENCL FP_CONTRACT OFF

__kernel void interpolate(
    __global float *restrict y0,
    __global const float *restrict x0,
    __global const int *restrict x1,
    __global const float *restrict x2) {
  for (long i13 = 0; i13 < 6; i13++) {
    float4 t14 = (float4)(0.0f);
    for (long i15 = 0; i15 < 2; i15++) {
      const int x1_16 = x1[i15 * 6 + i13];
      const long t17 = (long)x1_16;
      const bool is18 = t17 < 0L;
      const long t19 = (long)((ulong)t17 + (ulong)3L);
      const long t20 = is18 ? t19 : t17;
      const long t21 = max(t20, 0L);
      const long t22 = min(t21, 2L);
      const float4 x0_23 = vload4(0, x0 + t22 * 5);
      const float x2_24 = x2[i15 * 6 + i13];
      const float4 t25 = x0_23 * (float4)(x2_24);
      const float4 t26 = t14 + t25;
      t14 = t26;
    }
    vstore4(t14, 0, y0 + i13 * 5);
    const int4 is27 = convert_int4(((long4)(4L) + (long4)(0, 1, 2, 3)) < (long4)(5L));
    float4 t28 = (float4)(0.0f);
    for (long i29 = 0; i29 < 2; i29++) {
      const int x1_30 = x1[i29 * 6 + i13];
      const long t31 = (long)x1_30;
      const bool is32 = t31 < 0L;
      const long t33 = (long)((ulong)t31 + (ulong)3L);
      const long t34 = is32 ? t33 : t31;
      const long t35 = max(t34, 0L);
      const long t36 = min(t35, 2L);
      const long t41 = (long)((ulong)((long)((ulong)t36 * (ulong)5L)) + (ulong)4L);
      const float x0_42 = (is27.s0 != 0) ? x0[t41] : 0.0f;
      const float x0_43 = (is27.s1 != 0) ? x0[t41 + 1] : 0.0f;
      const float x0_44 = (is27.s2 != 0) ? x0[t41 + 2] : 0.0f;
      const float x0_45 = (is27.s3 != 0) ? x0[t41 + 3] : 0.0f;
      const float2 t46 = (float2)(x0_42, x0_43);
      const float2 t47 = (float2)(x0_44, x0_45);
      const float4 t48 = (float4)(t46, t47);
      const float4 t37 = t48;
      const float x2_38 = x2[i29 * 6 + i13];
      const float4 t39 = t37 * (float4)(x2_38);
      const float4 t40 = t28 + t39;
      t28 = t40;
    }
    const long at49 = i13 * 5 + 4;
    if (is27.s0 != 0) y0[at49] = t28.s0;
    if (is27.s1 != 0) y0[at49 + 1] = t28.s1;
    if (is27.s2 != 0) y0[at49 + 2] = t28.s2;
    if (is27.s3 != 0) y0[at49 + 3] = t28.s3;
  }
}

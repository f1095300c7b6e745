#pragma OPENCL FP_CONTRACT OFF

static float reduce_add_f32x2(float2 x) {
  return x.s0 + x.s1;
}

static float reduce_add_f32x4(float4 x) {
  const float2 low = x.s01;
  const float2 high = x.s23;
  return reduce_add_f32x2(low + high);
}

static float reduce_add_f32x8(float8 x) {
  const float4 low = x.s0123;
  const float4 high = x.s4567;
  return reduce_add_f32x4(low + high);
}

__kernel void reduce_sum(__global float *restrict y0, __global const float *restrict x0) {
  for (long i0 = 0; i0 < 3; i0++) {
    float8 t1 = (float8)(0.0f);
    float8 t2 = (float8)(0.0f);
    float8 t3 = (float8)(0.0f);
    const float8 x0_4 = vload8(0, x0 + i0 * 20);
    const float8 t5 = t1 + x0_4;
    t1 = t5;
    const float8 x0_6 = vload8(0, x0 + i0 * 20 + 8);
    const float8 t7 = t2 + x0_6;
    t2 = t7;
    const int8 is8 = convert_int8(((long8)(16L) + (long8)(0, 1, 2, 3, 4, 5, 6, 7)) < (long8)(20L));
    const long at15 = i0 * 20 + 16;
    const float x0_16 = (is8.s0 != 0) ? x0[at15] : 0.0f;
    const float x0_17 = (is8.s1 != 0) ? x0[at15 + 1] : 0.0f;
    const float x0_18 = (is8.s2 != 0) ? x0[at15 + 2] : 0.0f;
    const float x0_19 = (is8.s3 != 0) ? x0[at15 + 3] : 0.0f;
    const float x0_20 = (is8.s4 != 0) ? x0[at15 + 4] : 0.0f;
    const float x0_21 = (is8.s5 != 0) ? x0[at15 + 5] : 0.0f;
    const float x0_22 = (is8.s6 != 0) ? x0[at15 + 6] : 0.0f;
    const float x0_23 = (is8.s7 != 0) ? x0[at15 + 7] : 0.0f;
    const float2 t24 = (float2)(x0_16, x0_17);
    const float2 t25 = (float2)(x0_18, x0_19);
    const float2 t26 = (float2)(x0_20, x0_21);
    const float2 t27 = (float2)(x0_22, x0_23);
    const float4 t28 = (float4)(t24, t25);
    const float4 t29 = (float4)(t26, t27);
    const float8 t30 = (float8)(t28, t29);
    const float8 t9 = t30;
    const float8 t10 = select((float8)(0.0f), t9, is8);
    const float8 t11 = t3 + t10;
    t3 = t11;
    const float8 t12 = t1 + t2;
    const float8 t13 = t12 + t3;
    const float t14 = reduce_add_f32x8(t13);
    y0[i0] = t14;
  }
}

#pragma OPENCL FP_CONTRACT OFF

__kernel void add(
    __global ushort *restrict y0,
    __global const ushort *restrict x0,
    __global const ushort *restrict x1) {
  for (long i5 = 0; i5 < 2; i5++) {
    const ushort8 x0_6 = vload8(0, x0 + i5 * 8);
    const uint8 t48 = convert_uint8(x0_6);
    const uint8 t49 = t48 << (uint8)(16u);
    const float8 t50 = as_float8(t49);
    const float8 t7 = t50;
    const ushort8 x1_8 = vload8(0, x1 + i5 * 8);
    const uint8 t51 = convert_uint8(x1_8);
    const uint8 t52 = t51 << (uint8)(16u);
    const float8 t53 = as_float8(t52);
    const float8 t9 = t53;
    const float8 t10 = t7 + t9;
    const uint8 t54 = as_uint8(t10);
    const uint8 t55 = t54 >> (uint8)(16u);
    const uint8 t56 = t55 & (uint8)(1u);
    const uint8 t57 = t54 + (uint8)(32767u);
    const uint8 t58 = t57 + t56;
    const uint8 t59 = t58 >> (uint8)(16u);
    const uint8 t60 = t54 >> (uint8)(16u);
    const uint8 t61 = t60 | (uint8)(64u);
    const uint8 t62 = t54 & (uint8)(2147483647u);
    const int8 is63 = t62 >= (uint8)(2139095041u);
    const uint8 t64 = select(t59, t61, is63);
    const ushort8 t65 = convert_ushort8(t64);
    vstore8(t65, 0, y0 + i5 * 8);
  }
  const int8 is11 = convert_int8(((long8)(16L) + (long8)(0, 1, 2, 3, 4, 5, 6, 7)) < (long8)(20L));
  const ushort x0_17 = (ushort)((is11.s0 != 0) ? x0[16] : (ushort)0);
  const ushort x0_18 = (ushort)((is11.s1 != 0) ? x0[17] : (ushort)0);
  const ushort x0_19 = (ushort)((is11.s2 != 0) ? x0[18] : (ushort)0);
  const ushort x0_20 = (ushort)((is11.s3 != 0) ? x0[19] : (ushort)0);
  const ushort x0_21 = (ushort)((is11.s4 != 0) ? x0[20] : (ushort)0);
  const ushort x0_22 = (ushort)((is11.s5 != 0) ? x0[21] : (ushort)0);
  const ushort x0_23 = (ushort)((is11.s6 != 0) ? x0[22] : (ushort)0);
  const ushort x0_24 = (ushort)((is11.s7 != 0) ? x0[23] : (ushort)0);
  const ushort2 t25 = (ushort2)(x0_17, x0_18);
  const ushort2 t26 = (ushort2)(x0_19, x0_20);
  const ushort2 t27 = (ushort2)(x0_21, x0_22);
  const ushort2 t28 = (ushort2)(x0_23, x0_24);
  const ushort4 t29 = (ushort4)(t25, t26);
  const ushort4 t30 = (ushort4)(t27, t28);
  const ushort8 t31 = (ushort8)(t29, t30);
  const ushort8 t12 = t31;
  const uint8 t66 = convert_uint8(t12);
  const uint8 t67 = t66 << (uint8)(16u);
  const float8 t68 = as_float8(t67);
  const float8 t13 = t68;
  const ushort x1_32 = (ushort)((is11.s0 != 0) ? x1[16] : (ushort)0);
  const ushort x1_33 = (ushort)((is11.s1 != 0) ? x1[17] : (ushort)0);
  const ushort x1_34 = (ushort)((is11.s2 != 0) ? x1[18] : (ushort)0);
  const ushort x1_35 = (ushort)((is11.s3 != 0) ? x1[19] : (ushort)0);
  const ushort x1_36 = (ushort)((is11.s4 != 0) ? x1[20] : (ushort)0);
  const ushort x1_37 = (ushort)((is11.s5 != 0) ? x1[21] : (ushort)0);
  const ushort x1_38 = (ushort)((is11.s6 != 0) ? x1[22] : (ushort)0);
  const ushort x1_39 = (ushort)((is11.s7 != 0) ? x1[23] : (ushort)0);
  const ushort2 t40 = (ushort2)(x1_32, x1_33);
  const ushort2 t41 = (ushort2)(x1_34, x1_35);
  const ushort2 t42 = (ushort2)(x1_36, x1_37);
  const ushort2 t43 = (ushort2)(x1_38, x1_39);
  const ushort4 t44 = (ushort4)(t40, t41);
  const ushort4 t45 = (ushort4)(t42, t43);
  const ushort8 t46 = (ushort8)(t44, t45);
  const ushort8 t14 = t46;
  const uint8 t69 = convert_uint8(t14);
  const uint8 t70 = t69 << (uint8)(16u);
  const float8 t71 = as_float8(t70);
  const float8 t15 = t71;
  const float8 t16 = t13 + t15;
  const uint8 t72 = as_uint8(t16);
  const uint8 t73 = t72 >> (uint8)(16u);
  const uint8 t74 = t73 & (uint8)(1u);
  const uint8 t75 = t72 + (uint8)(32767u);
  const uint8 t76 = t75 + t74;
  const uint8 t77 = t76 >> (uint8)(16u);
  const uint8 t78 = t72 >> (uint8)(16u);
  const uint8 t79 = t78 | (uint8)(64u);
  const uint8 t80 = t72 & (uint8)(2147483647u);
  const int8 is81 = t80 >= (uint8)(2139095041u);
  const uint8 t82 = select(t77, t79, is81);
  const ushort8 t83 = convert_ushort8(t82);
  const ushort8 t47 = t83;
  if (is11.s0 != 0) y0[16] = t47.s0;
  if (is11.s1 != 0) y0[17] = t47.s1;
  if (is11.s2 != 0) y0[18] = t47.s2;
  if (is11.s3 != 0) y0[19] = t47.s3;
  if (is11.s4 != 0) y0[20] = t47.s4;
  if (is11.s5 != 0) y0[21] = t47.s5;
  if (is11.s6 != 0) y0[22] = t47.s6;
  if (is11.s7 != 0) y0[23] = t47.s7;
}

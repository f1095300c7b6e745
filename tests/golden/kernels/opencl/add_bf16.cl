#pragma OPENCL FP_CONTRACT OFF

__kernel void add(
    __global ushort *restrict y0,
    __global const ushort *restrict x0,
    __global const ushort *restrict x1) {
  for (long i0 = 0; i0 < 3; i0++) {
    if (i0 < 2L) {
      const ushort8 x0_1 = vload8(0, x0 + i0 * 8);
      const uint8 t46 = convert_uint8(x0_1);
      const uint8 t47 = t46 << (uint8)(16u);
      const float8 t48 = as_float8(t47);
      const float8 t2 = t48;
      const ushort8 x1_3 = vload8(0, x1 + i0 * 8);
      const uint8 t49 = convert_uint8(x1_3);
      const uint8 t50 = t49 << (uint8)(16u);
      const float8 t51 = as_float8(t50);
      const float8 t4 = t51;
      const float8 t5 = t2 + t4;
      const uint8 t52 = as_uint8(t5);
      const uint8 t53 = t52 >> (uint8)(16u);
      const uint8 t54 = t53 & (uint8)(1u);
      const uint8 t55 = t52 + (uint8)(32767u);
      const uint8 t56 = t55 + t54;
      const uint8 t57 = t56 >> (uint8)(16u);
      const uint8 t58 = t52 >> (uint8)(16u);
      const uint8 t59 = t58 | (uint8)(64u);
      const uint8 t60 = t52 & (uint8)(2147483647u);
      const int8 is61 = t60 >= (uint8)(2139095041u);
      const uint8 t62 = select(t57, t59, is61);
      const ushort8 t63 = convert_ushort8(t62);
      vstore8(t63, 0, y0 + i0 * 8);
    } else {
      const int8 is6 = convert_int8(((long8)(i0 * 8) + (long8)(0, 1, 2, 3, 4, 5, 6, 7)) < (long8)(20L));
      const long at12 = i0 * 8;
      const ushort x0_13 = (ushort)((is6.s0 != 0) ? x0[at12] : (ushort)0);
      const ushort x0_14 = (ushort)((is6.s1 != 0) ? x0[at12 + 1] : (ushort)0);
      const ushort x0_15 = (ushort)((is6.s2 != 0) ? x0[at12 + 2] : (ushort)0);
      const ushort x0_16 = (ushort)((is6.s3 != 0) ? x0[at12 + 3] : (ushort)0);
      const ushort x0_17 = (ushort)((is6.s4 != 0) ? x0[at12 + 4] : (ushort)0);
      const ushort x0_18 = (ushort)((is6.s5 != 0) ? x0[at12 + 5] : (ushort)0);
      const ushort x0_19 = (ushort)((is6.s6 != 0) ? x0[at12 + 6] : (ushort)0);
      const ushort x0_20 = (ushort)((is6.s7 != 0) ? x0[at12 + 7] : (ushort)0);
      const ushort2 t21 = (ushort2)(x0_13, x0_14);
      const ushort2 t22 = (ushort2)(x0_15, x0_16);
      const ushort2 t23 = (ushort2)(x0_17, x0_18);
      const ushort2 t24 = (ushort2)(x0_19, x0_20);
      const ushort4 t25 = (ushort4)(t21, t22);
      const ushort4 t26 = (ushort4)(t23, t24);
      const ushort8 t27 = (ushort8)(t25, t26);
      const ushort8 t7 = t27;
      const uint8 t64 = convert_uint8(t7);
      const uint8 t65 = t64 << (uint8)(16u);
      const float8 t66 = as_float8(t65);
      const float8 t8 = t66;
      const long at28 = i0 * 8;
      const ushort x1_29 = (ushort)((is6.s0 != 0) ? x1[at28] : (ushort)0);
      const ushort x1_30 = (ushort)((is6.s1 != 0) ? x1[at28 + 1] : (ushort)0);
      const ushort x1_31 = (ushort)((is6.s2 != 0) ? x1[at28 + 2] : (ushort)0);
      const ushort x1_32 = (ushort)((is6.s3 != 0) ? x1[at28 + 3] : (ushort)0);
      const ushort x1_33 = (ushort)((is6.s4 != 0) ? x1[at28 + 4] : (ushort)0);
      const ushort x1_34 = (ushort)((is6.s5 != 0) ? x1[at28 + 5] : (ushort)0);
      const ushort x1_35 = (ushort)((is6.s6 != 0) ? x1[at28 + 6] : (ushort)0);
      const ushort x1_36 = (ushort)((is6.s7 != 0) ? x1[at28 + 7] : (ushort)0);
      const ushort2 t37 = (ushort2)(x1_29, x1_30);
      const ushort2 t38 = (ushort2)(x1_31, x1_32);
      const ushort2 t39 = (ushort2)(x1_33, x1_34);
      const ushort2 t40 = (ushort2)(x1_35, x1_36);
      const ushort4 t41 = (ushort4)(t37, t38);
      const ushort4 t42 = (ushort4)(t39, t40);
      const ushort8 t43 = (ushort8)(t41, t42);
      const ushort8 t9 = t43;
      const uint8 t67 = convert_uint8(t9);
      const uint8 t68 = t67 << (uint8)(16u);
      const float8 t69 = as_float8(t68);
      const float8 t10 = t69;
      const float8 t11 = t8 + t10;
      const long at44 = i0 * 8;
      const uint8 t70 = as_uint8(t11);
      const uint8 t71 = t70 >> (uint8)(16u);
      const uint8 t72 = t71 & (uint8)(1u);
      const uint8 t73 = t70 + (uint8)(32767u);
      const uint8 t74 = t73 + t72;
      const uint8 t75 = t74 >> (uint8)(16u);
      const uint8 t76 = t70 >> (uint8)(16u);
      const uint8 t77 = t76 | (uint8)(64u);
      const uint8 t78 = t70 & (uint8)(2147483647u);
      const int8 is79 = t78 >= (uint8)(2139095041u);
      const uint8 t80 = select(t75, t77, is79);
      const ushort8 t81 = convert_ushort8(t80);
      const ushort8 t45 = t81;
      if (is6.s0 != 0) y0[at44] = t45.s0;
      if (is6.s1 != 0) y0[at44 + 1] = t45.s1;
      if (is6.s2 != 0) y0[at44 + 2] = t45.s2;
      if (is6.s3 != 0) y0[at44 + 3] = t45.s3;
      if (is6.s4 != 0) y0[at44 + 4] = t45.s4;
      if (is6.s5 != 0) y0[at44 + 5] = t45.s5;
      if (is6.s6 != 0) y0[at44 + 6] = t45.s6;
      if (is6.s7 != 0) y0[at44 + 7] = t45.s7;
    }
  }
}

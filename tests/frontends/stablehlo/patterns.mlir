module @softmax_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x4xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x4x8xf32>
    %6 = stablehlo.exponential %5 : tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %10 = stablehlo.divide %6, %9 : tensor<2x4x8xf32>
    return %10 : tensor<2x4x8xf32>
  }
}
// -----
module @softmax_axis_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [1] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x8xf32>
    %2 = stablehlo.maximum %1, %0 : tensor<2x8xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x1x8xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x1x8xf32>) -> tensor<2x4x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x4x8xf32>
    %6 = stablehlo.exponential %5 : tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [1] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x8xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x1x8xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<2x1x8xf32>) -> tensor<2x4x8xf32>
    %10 = stablehlo.divide %6, %9 : tensor<2x4x8xf32>
    return %10 : tensor<2x4x8xf32>
  }
}
// -----
module @softmax_f64 {
  func.func public @main(%arg0: tensor<2x4x8xf64>) -> (tensor<2x4x8xf64>) {
    %cst = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x4x8xf64>, tensor<f64>) -> tensor<2x4xf64>
    %cst_0 = stablehlo.constant dense<0xFFF0000000000000> : tensor<f64>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f64>) -> tensor<2x4xf64>
    %2 = stablehlo.maximum %1, %0 : tensor<2x4xf64>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x4xf64>) -> tensor<2x4x1xf64>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x4x1xf64>) -> tensor<2x4x8xf64>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x4x8xf64>
    %6 = stablehlo.exponential %5 : tensor<2x4x8xf64>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f64>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf64>, tensor<f64>) -> tensor<2x4xf64>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1] : (tensor<2x4xf64>) -> tensor<2x4x1xf64>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<2x4x1xf64>) -> tensor<2x4x8xf64>
    %10 = stablehlo.divide %6, %9 : tensor<2x4x8xf64>
    return %10 : tensor<2x4x8xf64>
  }
}
// -----
module @softmax_bf16 {
  func.func public @main(%arg0: tensor<2x4x8xbf16>) -> (tensor<2x4x8xbf16>) {
    %cst = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.maximum across dimensions = [2] : (tensor<2x4x8xbf16>, tensor<bf16>) -> tensor<2x4xbf16>
    %cst_0 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<bf16>) -> tensor<2x4xbf16>
    %2 = stablehlo.maximum %1, %0 : tensor<2x4xbf16>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x4xbf16>) -> tensor<2x4x1xbf16>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x4x1xbf16>) -> tensor<2x4x8xbf16>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x4x8xbf16>
    %6 = stablehlo.exponential %5 : tensor<2x4x8xbf16>
    %7 = stablehlo.convert %6 : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %8 = stablehlo.reduce(%7 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %10 = stablehlo.convert %9 : (tensor<2x4x1xf32>) -> tensor<2x4x1xbf16>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<2x4x1xbf16>) -> tensor<2x4x8xbf16>
    %12 = stablehlo.divide %6, %11 : tensor<2x4x8xbf16>
    return %12 : tensor<2x4x8xbf16>
  }
}
// -----
module @ln_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x4x1xf32>
    %c = stablehlo.constant dense<0> : tensor<i32>
    %4 = call @_var(%arg0, %c) : (tensor<2x4x8xf32>, tensor<i32>) -> tensor<2x4x1xf32>
    %5 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %6 = stablehlo.subtract %arg0, %5 : tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %8 = stablehlo.add %4, %7 : tensor<2x4x1xf32>
    %9 = stablehlo.rsqrt %8 : tensor<2x4x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %11 = stablehlo.multiply %6, %10 : tensor<2x4x8xf32>
    %12 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %14 = stablehlo.multiply %11, %13 : tensor<2x4x8xf32>
    %15 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %17 = stablehlo.add %14, %16 : tensor<2x4x8xf32>
    return %17 : tensor<2x4x8xf32>
  }
  func.func private @_var(%arg0: tensor<2x4x8xf32>, %arg1: tensor<i32>) -> tensor<2x4x1xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x4x1xf32>
    %4 = stablehlo.broadcast_in_dim %3, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %5 = stablehlo.subtract %arg0, %4 : tensor<2x4x8xf32>
    %6 = chlo.square %5 : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
    %7 = stablehlo.convert %arg1 : (tensor<i32>) -> tensor<f32>
    %cst_1 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.subtract %cst_1, %7 : tensor<f32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.reduce(%6 init: %cst_2) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %11 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %12 = stablehlo.divide %10, %11 : tensor<2x4x1xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.compare GT, %8, %cst_3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = call @_where(%13, %12, %cst_4) : (tensor<i1>, tensor<2x4x1xf32>, tensor<f32>) -> tensor<2x4x1xf32>
    return %14 : tensor<2x4x1xf32>
  }
  func.func private @_where(%arg0: tensor<i1>, %arg1: tensor<2x4x1xf32>, %arg2: tensor<f32>) -> tensor<2x4x1xf32> {
    %0 = stablehlo.convert %arg2 : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %2 = stablehlo.select %arg0, %arg1, %1 : tensor<i1>, tensor<2x4x1xf32>
    return %2 : tensor<2x4x1xf32>
  }
}
// -----
module @flax_ln_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>, %arg1: tensor<8xf32>, %arg2: tensor<8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %2 = stablehlo.divide %0, %1 : tensor<2x4xf32>
    %3 = chlo.square %arg0 : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %6 = stablehlo.divide %4, %5 : tensor<2x4xf32>
    %7 = chlo.square %2 : tensor<2x4xf32> -> tensor<2x4xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<2x4xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<2x4xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x4x8xf32>
    %14 = stablehlo.broadcast_in_dim %10, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_4 = stablehlo.constant dense<9.99999997E-7> : tensor<f32>
    %15 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %16 = stablehlo.add %14, %15 : tensor<2x4x1xf32>
    %17 = stablehlo.rsqrt %16 : tensor<2x4x1xf32>
    %18 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %19 = stablehlo.broadcast_in_dim %17, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %20 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %21 = stablehlo.multiply %19, %20 : tensor<2x4x8xf32>
    %22 = stablehlo.multiply %13, %21 : tensor<2x4x8xf32>
    %23 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %24 = stablehlo.broadcast_in_dim %23, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %25 = stablehlo.add %22, %24 : tensor<2x4x8xf32>
    return %25 : tensor<2x4x8xf32>
  }
}
// -----
module @flax_ln_bf16 {
  func.func public @main(%arg0: tensor<2x4x8xbf16>, %arg1: tensor<8xbf16>, %arg2: tensor<8xbf16>) -> (tensor<2x4x8xbf16>) {
    %0 = stablehlo.convert %arg0 : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %3 = stablehlo.divide %1, %2 : tensor<2x4xf32>
    %4 = stablehlo.convert %3 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
    %5 = chlo.square %arg0 : tensor<2x4x8xbf16> -> tensor<2x4x8xbf16>
    %6 = stablehlo.convert %5 : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %7 = stablehlo.reduce(%6 init: %cst_1) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %cst_2 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4xf32>
    %9 = stablehlo.divide %7, %8 : tensor<2x4xf32>
    %10 = stablehlo.convert %9 : (tensor<2x4xf32>) -> tensor<2x4xbf16>
    %11 = chlo.square %4 : tensor<2x4xbf16> -> tensor<2x4xbf16>
    %12 = stablehlo.subtract %10, %11 : tensor<2x4xbf16>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<bf16>
    %13 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<bf16>) -> tensor<2x4xbf16>
    %14 = stablehlo.maximum %13, %12 : tensor<2x4xbf16>
    %15 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x4xbf16>) -> tensor<2x4x1xbf16>
    %16 = stablehlo.broadcast_in_dim %15, dims = [0, 1, 2] : (tensor<2x4x1xbf16>) -> tensor<2x4x8xbf16>
    %17 = stablehlo.subtract %arg0, %16 : tensor<2x4x8xbf16>
    %18 = stablehlo.broadcast_in_dim %14, dims = [0, 1] : (tensor<2x4xbf16>) -> tensor<2x4x1xbf16>
    %cst_4 = stablehlo.constant dense<9.983770e-07> : tensor<bf16>
    %19 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<bf16>) -> tensor<2x4x1xbf16>
    %20 = stablehlo.add %18, %19 : tensor<2x4x1xbf16>
    %21 = stablehlo.rsqrt %20 : tensor<2x4x1xbf16>
    %22 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xbf16>) -> tensor<1x1x8xbf16>
    %23 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2] : (tensor<2x4x1xbf16>) -> tensor<2x4x8xbf16>
    %24 = stablehlo.broadcast_in_dim %22, dims = [0, 1, 2] : (tensor<1x1x8xbf16>) -> tensor<2x4x8xbf16>
    %25 = stablehlo.multiply %23, %24 : tensor<2x4x8xbf16>
    %26 = stablehlo.multiply %17, %25 : tensor<2x4x8xbf16>
    %27 = stablehlo.broadcast_in_dim %arg2, dims = [2] : (tensor<8xbf16>) -> tensor<1x1x8xbf16>
    %28 = stablehlo.broadcast_in_dim %27, dims = [0, 1, 2] : (tensor<1x1x8xbf16>) -> tensor<2x4x8xbf16>
    %29 = stablehlo.add %26, %28 : tensor<2x4x8xbf16>
    return %29 : tensor<2x4x8xbf16>
  }
}
// -----
module @rms_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>, %arg1: tensor<8xf32>) -> (tensor<2x4x8xf32>) {
    %0 = chlo.square %arg0 : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %4 = stablehlo.divide %2, %3 : tensor<2x4x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999997E-7> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %6 = stablehlo.add %4, %5 : tensor<2x4x1xf32>
    %7 = stablehlo.rsqrt %6 : tensor<2x4x1xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %9 = stablehlo.multiply %arg0, %8 : tensor<2x4x8xf32>
    %10 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %12 = stablehlo.multiply %9, %11 : tensor<2x4x8xf32>
    return %12 : tensor<2x4x8xf32>
  }
}
// -----
module @rms2_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>, %arg1: tensor<8xf32>) -> (tensor<2x4x8xf32>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<2x4x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %1 = stablehlo.reduce(%0 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %2 = stablehlo.broadcast_in_dim %1, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %4 = stablehlo.divide %2, %3 : tensor<2x4x1xf32>
    %cst_1 = stablehlo.constant dense<9.99999997E-7> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %6 = stablehlo.add %4, %5 : tensor<2x4x1xf32>
    %7 = stablehlo.rsqrt %6 : tensor<2x4x1xf32>
    %8 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xf32>) -> tensor<1x1x8xf32>
    %9 = stablehlo.broadcast_in_dim %7, dims = [0, 1, 2] : (tensor<2x4x1xf32>) -> tensor<2x4x8xf32>
    %10 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x8xf32>) -> tensor<2x4x8xf32>
    %11 = stablehlo.multiply %9, %10 : tensor<2x4x8xf32>
    %12 = stablehlo.multiply %arg0, %11 : tensor<2x4x8xf32>
    return %12 : tensor<2x4x8xf32>
  }
}
// -----
module @rms3_bf16 {
  func.func public @main(%arg0: tensor<2x4x8xbf16>, %arg1: tensor<8xbf16>) -> (tensor<2x4x8xbf16>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<2x4x8xbf16>
    %1 = stablehlo.convert %0 : (tensor<2x4x8xbf16>) -> tensor<2x4x8xf32>
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %cst) applies stablehlo.add across dimensions = [2] : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0, 1] : (tensor<2x4xf32>) -> tensor<2x4x1xf32>
    %cst_0 = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x1xf32>
    %5 = stablehlo.divide %3, %4 : tensor<2x4x1xf32>
    %6 = stablehlo.convert %5 : (tensor<2x4x1xf32>) -> tensor<2x4x1xbf16>
    %cst_1 = stablehlo.constant dense<9.983770e-07> : tensor<bf16>
    %7 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<bf16>) -> tensor<2x4x1xbf16>
    %8 = stablehlo.add %6, %7 : tensor<2x4x1xbf16>
    %9 = stablehlo.sqrt %8 : tensor<2x4x1xbf16>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2] : (tensor<2x4x1xbf16>) -> tensor<2x4x8xbf16>
    %11 = stablehlo.divide %arg0, %10 : tensor<2x4x8xbf16>
    %12 = stablehlo.broadcast_in_dim %arg1, dims = [2] : (tensor<8xbf16>) -> tensor<1x1x8xbf16>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0, 1, 2] : (tensor<1x1x8xbf16>) -> tensor<2x4x8xbf16>
    %14 = stablehlo.multiply %13, %11 : tensor<2x4x8xbf16>
    return %14 : tensor<2x4x8xbf16>
  }
}
// -----
module @gelu_erf_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %1 = stablehlo.multiply %0, %arg0 : tensor<2x4x8xf32>
    %2 = stablehlo.negate %arg0 : tensor<2x4x8xf32>
    %cst_0 = stablehlo.constant dense<0.707106769> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %4 = stablehlo.multiply %2, %3 : tensor<2x4x8xf32>
    %5 = chlo.erfc %4 : tensor<2x4x8xf32> -> tensor<2x4x8xf32>
    %6 = stablehlo.multiply %1, %5 : tensor<2x4x8xf32>
    return %6 : tensor<2x4x8xf32>
  }
}
// -----
module @gelu_tanh_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %0 = stablehlo.multiply %arg0, %arg0 : tensor<2x4x8xf32>
    %1 = stablehlo.multiply %0, %arg0 : tensor<2x4x8xf32>
    %cst = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %3 = stablehlo.multiply %2, %1 : tensor<2x4x8xf32>
    %4 = stablehlo.add %arg0, %3 : tensor<2x4x8xf32>
    %cst_0 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %6 = stablehlo.multiply %5, %4 : tensor<2x4x8xf32>
    %7 = stablehlo.tanh %6 : tensor<2x4x8xf32>
    %cst_1 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %8 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %9 = stablehlo.add %8, %7 : tensor<2x4x8xf32>
    %cst_2 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %10 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %11 = stablehlo.multiply %10, %9 : tensor<2x4x8xf32>
    %12 = stablehlo.multiply %arg0, %11 : tensor<2x4x8xf32>
    return %12 : tensor<2x4x8xf32>
  }
}
// -----
module @leaky_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %cst = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %0 = call @leaky_relu(%arg0, %cst) : (tensor<2x4x8xf32>, tensor<f32>) -> tensor<2x4x8xf32>
    return %0 : tensor<2x4x8xf32>
  }
  func.func private @leaky_relu(%arg0: tensor<2x4x8xf32>, %arg1: tensor<f32>) -> tensor<2x4x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %1 = stablehlo.compare GE, %arg0, %0, FLOAT : (tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xi1>
    %2 = stablehlo.convert %arg1 : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %4 = stablehlo.multiply %3, %arg0 : tensor<2x4x8xf32>
    %5 = call @_where(%1, %arg0, %4) : (tensor<2x4x8xi1>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
    return %5 : tensor<2x4x8xf32>
  }
  func.func private @_where(%arg0: tensor<2x4x8xi1>, %arg1: tensor<2x4x8xf32>, %arg2: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
    %0 = stablehlo.select %arg0, %arg1, %arg2 : tensor<2x4x8xi1>, tensor<2x4x8xf32>
    return %0 : tensor<2x4x8xf32>
  }
}
// -----
module @hard_swish_f32 {
  func.func public @main(%arg0: tensor<2x4x8xf32>) -> (tensor<2x4x8xf32>) {
    %0 = call @hard_silu(%arg0) : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
    return %0 : tensor<2x4x8xf32>
  }
  func.func private @hard_silu(%arg0: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
    %0 = call @hard_sigmoid(%arg0) : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
    %1 = stablehlo.multiply %arg0, %0 : tensor<2x4x8xf32>
    return %1 : tensor<2x4x8xf32>
  }
  func.func private @hard_sigmoid(%arg0: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
    %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %1 = stablehlo.add %arg0, %0 : tensor<2x4x8xf32>
    %2 = call @relu6(%1) : (tensor<2x4x8xf32>) -> tensor<2x4x8xf32>
    %cst_0 = stablehlo.constant dense<6.000000e+00> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %4 = stablehlo.divide %2, %3 : tensor<2x4x8xf32>
    return %4 : tensor<2x4x8xf32>
  }
  func.func private @relu6(%arg0: tensor<2x4x8xf32>) -> tensor<2x4x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x4x8xf32>
    %cst_0 = stablehlo.constant dense<6.000000e+00> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2x4x8xf32>
    %3 = stablehlo.minimum %1, %2 : tensor<2x4x8xf32>
    return %3 : tensor<2x4x8xf32>
  }
}
// -----
module @attn_f32 {
  func.func public @main(%arg0: tensor<2x4x3x8xf32>, %arg1: tensor<2x4x3x8xf32>, %arg2: tensor<2x4x3x8xf32>) -> (tensor<2x4x3x8xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x3x4x4xf32>
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x3x4x4xf32>
    %2 = stablehlo.multiply %0, %1 : tensor<2x3x4x4xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3 = stablehlo.reduce(%2 init: %cst_0) applies stablehlo.maximum across dimensions = [3] : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x3x4xf32>
    %5 = stablehlo.maximum %4, %3 : tensor<2x3x4xf32>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xf32>) -> tensor<2x3x4x4xf32>
    %8 = stablehlo.subtract %2, %7 : tensor<2x3x4x4xf32>
    %9 = stablehlo.exponential %8 : tensor<2x3x4x4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %10 = stablehlo.reduce(%9 init: %cst_2) applies stablehlo.add across dimensions = [3] : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %11 = stablehlo.broadcast_in_dim %10, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xf32>) -> tensor<2x3x4x4xf32>
    %13 = stablehlo.divide %9, %12 : tensor<2x3x4x4xf32>
    %14 = stablehlo.dot_general %arg2, %13, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x8x4xf32>
    %15 = stablehlo.transpose %14, dims = [0, 3, 1, 2] : (tensor<2x3x8x4xf32>) -> tensor<2x4x3x8xf32>
    return %15 : tensor<2x4x3x8xf32>
  }
}
// -----
module @mattn_f32 {
  func.func public @main(%arg0: tensor<2x4x3x8xf32>, %arg1: tensor<2x4x3x8xf32>, %arg2: tensor<2x4x3x8xf32>, %arg3: tensor<2x1x4x4xi1>) -> (tensor<2x4x3x8xf32>) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xf32>, tensor<2x4x3x8xf32>) -> tensor<2x3x4x4xf32>
    %cst = stablehlo.constant dense<8.000000e+00> : tensor<f32>
    %1 = stablehlo.sqrt %cst : tensor<f32>
    %2 = stablehlo.convert %1 : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<2x3x4x4xf32>
    %4 = stablehlo.divide %0, %3 : tensor<2x3x4x4xf32>
    %cst_0 = stablehlo.constant dense<-3.40282347E+38> : tensor<f32>
    %5 = call @_where(%arg3, %4, %cst_0) : (tensor<2x1x4x4xi1>, tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4x4xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %6 = stablehlo.reduce(%5 init: %cst_1) applies stablehlo.maximum across dimensions = [3] : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %7 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2x3x4xf32>
    %8 = stablehlo.maximum %7, %6 : tensor<2x3x4xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
    %10 = stablehlo.broadcast_in_dim %9, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xf32>) -> tensor<2x3x4x4xf32>
    %11 = stablehlo.subtract %5, %10 : tensor<2x3x4x4xf32>
    %12 = stablehlo.exponential %11 : tensor<2x3x4x4xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %13 = stablehlo.reduce(%12 init: %cst_3) applies stablehlo.add across dimensions = [3] : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
    %15 = stablehlo.broadcast_in_dim %14, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xf32>) -> tensor<2x3x4x4xf32>
    %16 = stablehlo.divide %12, %15 : tensor<2x3x4x4xf32>
    %17 = stablehlo.dot_general %arg2, %16, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x8x4xf32>
    %18 = stablehlo.transpose %17, dims = [0, 3, 1, 2] : (tensor<2x3x8x4xf32>) -> tensor<2x4x3x8xf32>
    return %18 : tensor<2x4x3x8xf32>
  }
  func.func private @_where(%arg0: tensor<2x1x4x4xi1>, %arg1: tensor<2x3x4x4xf32>, %arg2: tensor<f32>) -> tensor<2x3x4x4xf32> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 2, 3] : (tensor<2x1x4x4xi1>) -> tensor<2x3x4x4xi1>
    %1 = stablehlo.broadcast_in_dim %arg2, dims = [] : (tensor<f32>) -> tensor<2x3x4x4xf32>
    %2 = stablehlo.select %0, %arg1, %1 : tensor<2x3x4x4xi1>, tensor<2x3x4x4xf32>
    return %2 : tensor<2x3x4x4xf32>
  }
}
// -----
module @attn_bf16 {
  func.func public @main(%arg0: tensor<2x4x3x8xbf16>, %arg1: tensor<2x4x3x8xbf16>, %arg2: tensor<2x4x3x8xbf16>) -> (tensor<2x4x3x8xbf16>) {
    %0 = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 2] x [0, 2], contracting_dims = [3] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xbf16>, tensor<2x4x3x8xbf16>) -> tensor<2x3x4x4xbf16>
    %cst = stablehlo.constant dense<5.000000e-01> : tensor<bf16>
    %1 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<bf16>) -> tensor<2x3x4x4xbf16>
    %2 = stablehlo.multiply %0, %1 : tensor<2x3x4x4xbf16>
    %cst_0 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %3 = stablehlo.reduce(%2 init: %cst_0) applies stablehlo.maximum across dimensions = [3] : (tensor<2x3x4x4xbf16>, tensor<bf16>) -> tensor<2x3x4xbf16>
    %cst_1 = stablehlo.constant dense<0xFF80> : tensor<bf16>
    %4 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<bf16>) -> tensor<2x3x4xbf16>
    %5 = stablehlo.maximum %4, %3 : tensor<2x3x4xbf16>
    %6 = stablehlo.broadcast_in_dim %5, dims = [0, 1, 2] : (tensor<2x3x4xbf16>) -> tensor<2x3x4x1xbf16>
    %7 = stablehlo.broadcast_in_dim %6, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xbf16>) -> tensor<2x3x4x4xbf16>
    %8 = stablehlo.subtract %2, %7 : tensor<2x3x4x4xbf16>
    %9 = stablehlo.exponential %8 : tensor<2x3x4x4xbf16>
    %10 = stablehlo.convert %9 : (tensor<2x3x4x4xbf16>) -> tensor<2x3x4x4xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %11 = stablehlo.reduce(%10 init: %cst_2) applies stablehlo.add across dimensions = [3] : (tensor<2x3x4x4xf32>, tensor<f32>) -> tensor<2x3x4xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2] : (tensor<2x3x4xf32>) -> tensor<2x3x4x1xf32>
    %13 = stablehlo.convert %12 : (tensor<2x3x4x1xf32>) -> tensor<2x3x4x1xbf16>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1, 2, 3] : (tensor<2x3x4x1xbf16>) -> tensor<2x3x4x4xbf16>
    %15 = stablehlo.divide %9, %14 : tensor<2x3x4x4xbf16>
    %16 = stablehlo.dot_general %arg2, %15, batching_dims = [0, 2] x [0, 1], contracting_dims = [1] x [3], precision = [DEFAULT, DEFAULT] : (tensor<2x4x3x8xbf16>, tensor<2x3x4x4xbf16>) -> tensor<2x3x8x4xbf16>
    %17 = stablehlo.transpose %16, dims = [0, 3, 1, 2] : (tensor<2x3x8x4xbf16>) -> tensor<2x4x3x8xbf16>
    return %17 : tensor<2x4x3x8xbf16>
  }
}
